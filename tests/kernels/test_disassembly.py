"""Our decoder and printer against LLVM's disassembler, over every instruction of every shipped code object."""

import re
import shutil
import subprocess

import pytest

from kimi_k3_specdec import _native, kernels

OBJDUMP = next((tool for tool in ("llvm-objdump-22", "llvm-objdump") if shutil.which(tool)), None)


def objdump_lines(path: str) -> list[tuple[int, str]]:
    """(address, text) of each instruction as objdump prints it, white space normalised, symbols stripped."""
    assert OBJDUMP, "llvm-objdump-22 is missing: apt-get install llvm-22"
    printed = subprocess.run([OBJDUMP, "-d", path], capture_output=True, text=True, check=True)
    lines = re.findall(r"^\t(\S.*?)\s*// 0*([0-9A-F]+):", printed.stdout, re.MULTILINE)
    return [(int(address, 16), " ".join(text.split())) for text, address in lines]


@pytest.mark.parametrize("name", [entry["name"] for entry in kernels.manifest()["objects"]])
def test_every_instruction_prints_as_llvm_prints_it(name, tmp_path, record_property):
    """The whole text section, compared as strings up to white space; the count is printed."""
    code_object = kernels.code_object(name)
    path = tmp_path / f"{name}.co"
    path.write_bytes(code_object)
    ours = [(address, " ".join(text.split())) for address, text in _native.disassemble(code_object)]
    theirs = objdump_lines(str(path))
    assert len(theirs) > 1000
    differing = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    assert not differing, differing[:5]
    record_property("printed", f"{name}: {len(ours)} instructions print as {OBJDUMP} prints them")


def test_what_is_no_code_object_is_refused():
    """A cut or foreign file is an error that says what to do."""
    code_object = kernels.code_object(kernels.manifest()["objects"][0]["name"])
    for wrong in (b"", b"not an ELF file", code_object[: len(code_object) // 3]):
        with pytest.raises(_native.Refused) as refused:
            _native.disassemble(wrong)
        assert "kernels/build.py" in refused.value.hint
