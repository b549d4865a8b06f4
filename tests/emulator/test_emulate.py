"""`kimi-k3-specdec emulate`: a case runs and is read back; every bad case is one error; nothing is half-written."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from kimi_k3_specdec import _native
from kimi_k3_specdec.cli import application

from .compiled import compile_hip

SOURCE = """
extern "C" __attribute__((global)) void vector_add(const float* a, const float* b, float* sum, int n) {
  const int i = __builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x();
  if (i < n) sum[i] = a[i] + b[i];
}
extern "C" __attribute__((global)) void handshake(unsigned* mine, unsigned* other) {
  __hip_atomic_store(other, 7u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  while (__hip_atomic_load(mine, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) == 0) __builtin_amdgcn_s_sleep(1);
}
extern "C" __attribute__((global)) void patient(unsigned* flag) {
  const unsigned long long start = __builtin_amdgcn_s_memrealtime();
  while (__hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) == 0) {
    if (__builtin_amdgcn_s_memrealtime() - start > 1000) { *flag = 9; return; }
    __builtin_amdgcn_s_sleep(1);
  }
}
extern "C" __attribute__((global)) void spin() { for (;;) asm volatile("s_nop 0"); }
"""
BASE = 1 << 44
COUNT = 1000
BYTES = 4 * COUNT


def emulate(*words: object, stdin: str | bytes | None = None) -> Result:
    """`kimi-k3-specdec emulate WORDS`."""
    return CliRunner().invoke(application(["emulate"]), ["emulate", *map(str, words)], input=stdin)


@pytest.fixture
def case(tmp_path: Path) -> dict[str, Any]:
    """A vector add of two files; its files are in `tmp_path`."""
    (tmp_path / "k.co").write_bytes(compile_hip(SOURCE))
    (tmp_path / "mem").mkdir()
    for name, values in (("0", np.arange(COUNT)), ("1", np.full(COUNT, 0.5))):
        values.astype(np.float32).tofile(tmp_path / "mem" / f"{name}.bin")
    addresses = [BASE, BASE + (1 << 20), BASE + (2 << 20)]
    kernarg = struct.pack("<QQQi", *addresses, COUNT).hex()
    return {
        "allocs": [{"addr": addr, "bytes": BYTES, "rank": 0, "sparse": False} for addr in addresses],
        "writes": [{"addr": addresses[i], "bytes": BYTES, "file": f"mem/{i}.bin"} for i in range(2)],
        "launches": [{"code_object": "k.co", "symbol": "vector_add", "grid": [4, 1, 1], "block": [256, 1, 1],
                      "lds_dynamic": 0, "kernarg": kernarg, "rank": 0}],
        "readback": [{"addr": addresses[2], "bytes": BYTES, "file": "out/deep/sum.bin"}],
    }


def run(folder: Path, case: dict[str, Any] | str, *words: object) -> Result:
    """The case, from a file in `folder`."""
    path = folder / "case.json"
    path.write_text(case if isinstance(case, str) else json.dumps(case))
    return emulate(path, *words)


def launch(case: dict[str, Any], symbol: str, kernarg: bytes, **keys: Any) -> dict[str, Any]:
    """A launch of one wave, otherwise like the case's."""
    return {**case["launches"][0], "symbol": symbol, "grid": [1, 1, 1], "block": [64, 1, 1], "kernarg": kernarg.hex(),
            **keys}


def test_a_case_runs_and_is_read_back(tmp_path: Path, case: dict[str, Any]) -> None:
    """Relative to its own folder, with one line of figures, the same for the same seed."""
    results = [run(tmp_path, case, *words) for words in ((), ("--json",), ("--schedule-seed", 2**64 - 1))]
    for result in results:
        assert result.exit_code == 0 and result.stderr == "", result.output
        assert result.stdout.count("\n") == 1
    found = np.fromfile(tmp_path / "out" / "deep" / "sum.bin", np.float32)
    assert (found == np.arange(COUNT) + 0.5).all()
    first, second = (json.loads(result.stdout) for result in results[:2])
    assert first["wave_instructions"] > 100 and first["virtual_seconds"] > 0 and first["seconds"] > 0
    assert {**first, "seconds": 0} == {**second, "seconds": 0}
    assert [path.name for path in (tmp_path / "out" / "deep").iterdir()] == ["sum.bin"]


def test_the_documented_case_is_one() -> None:
    """Every key of it is known, and none is missing."""
    document = (Path(__file__).parents[2] / "docs" / "emulator.md").read_text()
    shown = document.split("```json\n")[1].split("```")[0].replace("hex of the kernarg segment", "00" * 28)
    case, warnings = _native.parse_case(shown)
    assert json.loads(case) == json.loads(shown) and warnings == []


def test_sparse_memory_counts_as_zeros_and_costs_what_is_touched(tmp_path: Path, case: dict[str, Any]) -> None:
    """A terabyte of it, read where nobody wrote; without `sparse` that is an error with the allocation's name."""
    case["writes"].pop()
    case["allocs"][1] |= {"bytes": 1 << 40, "sparse": True}
    case["allocs"][2]["addr"] = BASE + (1 << 41)
    case["readback"][0]["addr"] = BASE + (1 << 41)
    case["launches"][0]["kernarg"] = struct.pack("<QQQi", BASE, BASE + (1 << 30), BASE + (1 << 41), COUNT).hex()
    result = run(tmp_path, case)
    assert result.exit_code == 0, result.output
    assert (np.fromfile(tmp_path / "out" / "deep" / "sum.bin", np.float32) == np.arange(COUNT)).all()
    case["allocs"][1] |= {"bytes": 1 << 32, "sparse": False}
    result = run(tmp_path, case)
    assert result.exit_code == 1 and "`allocs[1]` + 0x" in result.stderr and "nobody has written" in result.stderr


def test_ranks_run_at_once(tmp_path: Path, case: dict[str, Any]) -> None:
    """Two kernels that wait for each other's store, on ranks 0 and 7."""
    flags = [BASE, BASE + (1 << 20)]
    case["allocs"] = [{"addr": flag, "bytes": 4, "rank": rank, "sparse": True}
                      for flag, rank in zip(flags, (0, 7), strict=True)]
    case["writes"], case["readback"] = [], [{"addr": flags[1], "bytes": 4, "file": "flag.bin"}]
    both = [launch(case, "handshake", struct.pack("<QQ", *pair), rank=rank)
            for pair, rank in ((flags, 0), (flags[::-1], 7))]
    case["launches"] = both
    result = run(tmp_path, case)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "flag.bin").read_bytes() == struct.pack("<I", 7)
    # On one rank the second launch waits for the first, which waits for ever.
    case["launches"] = [{**entry, "rank": 0} for entry in both]
    result = run(tmp_path, case)
    assert result.exit_code == 1 and "deadlock" in result.stderr and "`allocs[0]` + 0x0" in result.stderr


def test_stall_decides_what_a_time_out_sees(tmp_path: Path, case: dict[str, Any]) -> None:
    """An error, or a jump of the clock."""
    case["allocs"], case["writes"] = [{"addr": BASE, "bytes": 4, "sparse": True}], []
    case["readback"] = [{"addr": BASE, "bytes": 4, "file": "flag.bin"}]
    case["launches"] = [launch(case, "patient", struct.pack("<Q", BASE))]
    stopped = run(tmp_path, case)
    assert stopped.exit_code == 1 and "deadlock" in stopped.stderr and not (tmp_path / "flag.bin").exists()
    advanced = run(tmp_path, case, "--stall", "advance")
    assert advanced.exit_code == 0 and json.loads(advanced.stdout)["virtual_seconds"] >= 1
    assert (tmp_path / "flag.bin").read_bytes() == struct.pack("<I", 9)
    case["launches"] = [launch(case, "spin", b"")]
    spun = run(tmp_path, case, "--budget", 1000)
    assert spun.exit_code == 1 and "more than 1000 wave instructions" in spun.stderr
    unknown = run(tmp_path, case, "--stall", "wait")
    assert unknown.exit_code == 2 and "unknown stall policy `wait`" in unknown.stderr


def test_after_an_error_the_old_files_are_there(tmp_path: Path, case: dict[str, Any]) -> None:
    """The kernel goes past its memory: located, exit status 1, the old read-back untouched."""
    case["readback"].append({"addr": BASE, "bytes": BYTES, "file": "out/new/a.bin"})
    old = tmp_path / "out" / "deep" / "sum.bin"
    old.parent.mkdir(parents=True)
    old.write_bytes(b"old")
    case["launches"][0]["kernarg"] = struct.pack("<QQQi", BASE, BASE, BASE + (2 << 20), COUNT + 1).hex()
    result = run(tmp_path, case)
    assert result.exit_code == 1 and result.stdout == ""
    first, second = result.stderr.splitlines()
    assert first.startswith("error: load of 4 bytes") and "lane 40 of `vector_add` at pc" in first and ".hip:4" in first
    assert second.startswith("hint: ")
    assert old.read_bytes() == b"old" and not (tmp_path / "out" / "new").exists()


def test_a_read_back_that_cannot_be_written_leaves_none(tmp_path: Path, case: dict[str, Any]) -> None:
    """Nor a temporary file: here the second name is too long for the file system."""
    case["readback"].append({"addr": BASE, "bytes": BYTES, "file": "out/deep/" + "n" * 300})
    result = run(tmp_path, case)
    assert result.exit_code == 2 and "error: `$.readback" in result.stderr, result.output
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "out" in path.parts]


Change = Callable[[dict[str, Any], Path], Any]


def edit(*keys: Any, to: Any) -> Change:
    """Sets `case[key][key]...`."""
    def change(case: dict[str, Any], _: Path) -> None:
        for key in keys[:-1]:
            case = case[key]
        case[keys[-1]] = to

    return change


def remove(*keys: Any) -> Change:
    """Removes `case[key][key]...`."""
    def change(case: dict[str, Any], _: Path) -> None:
        for key in keys[:-1]:
            case = case[key]
        del case[keys[-1]]

    return change


def code_object(make: Callable[[bytes], bytes]) -> Change:
    """Replaces the code object's file."""
    return lambda case, folder: (folder / "k.co").write_bytes(make((folder / "k.co").read_bytes()))


def text(make: Callable[[str], str]) -> Change:
    """Replaces the JSON text."""
    return lambda case, _: make(json.dumps(case))


LAUNCH = ("launches", 0)
BAD: dict[str, tuple[Change, str]] = {
    "empty": (text(lambda _: ""), "`$`: the input is empty"),
    "no JSON": (text(lambda _: "k.co"), "`$`: expected value at line 1 column 1"),
    "cut JSON": (text(lambda t: t[:-20]), "`$.readback[0]"),
    "more after it": (text(lambda t: t + "{}"), "`$`: trailing characters"),
    "list": (text(lambda t: f"[{t}]"), "`$"),
    "deep": (text(lambda _: "[" * 100_000), "`$"),
    "duplicate key": (text(lambda t: t.replace('"rank": 0', '"rank": 0, "rank": 0', 1)),
                      "`$.allocs[0]`: duplicate field `rank`"),
    "no launches": (remove("launches"), "`$`: missing field `launches`"),
    "no allocs": (remove("allocs"), "`$`: missing field `allocs`"),
    "no address": (remove("allocs", 1, "addr"), "`$.allocs[1]`: missing field `addr`"),
    "null": (edit("allocs", to=None), "`$.allocs`: invalid type: null"),
    "float": (edit("allocs", 0, "bytes", to=4000.0), "`$.allocs[0].bytes`: invalid type: floating point"),
    "string": (edit("allocs", 0, "addr", to="0x10"), "`$.allocs[0].addr`: invalid type: string"),
    "negative": (edit("allocs", 0, "bytes", to=-1), "`$.allocs[0].bytes`: invalid value: integer `-1`"),
    "beyond 64 bits": (edit("allocs", 0, "addr", to=2**64), "`$.allocs[0].addr`: invalid"),
    "past the end": (edit("allocs", 0, "addr", to=2**64 - 100), "`$.allocs[0]`: 4000 bytes at 18446744073709551516 "),
    "overlap": (edit("allocs", 1, "addr", to=BASE + BYTES - 1), "`$.allocs[1]`: overlaps `$.allocs[0]` at"),
    "empty alloc": (edit("allocs", 2, "bytes", to=0), "`$.allocs[2].bytes`: is 0"),
    "huge alloc": (edit("allocs", 2, "bytes", to=1 << 62), "`$.allocs[2]`: the host cannot provide 46116860184273"),
    "huge sparse alloc": (edit("allocs", 2, to={"addr": BASE + (2 << 20), "bytes": 1 << 60, "sparse": True}),
                          "`$.allocs[2]`: the host cannot provide"),
    "huge rank": (edit("allocs", 2, "rank", to=256), "`$.allocs[2].rank`: invalid value: integer `256`"),
    "negative rank": (edit(*LAUNCH, "rank", to=-1), "`$.launches[0].rank`: invalid value"),
    "write outside": (edit("writes", 1, "addr", to=64), "`$.writes[1]`: 4000 bytes at 64 are not inside one "),
    "write past the end": (edit("writes", 1, "addr", to=BASE + 1), "`$.allocs[0]` ends 3999 bytes after that address"),
    "huge write": (edit("writes", 1, "bytes", to=2**64 - 1), "`$.writes[1]`: 18446744073709551615 bytes at"),
    "empty write": (edit("writes", 1, "bytes", to=0), "`$.writes[1].bytes`: is 0"),
    "file of another size": (edit("writes", 1, "bytes", to=BYTES - 4),
                             "`$.writes[1].bytes`: is 3996, but `{}/mem/1.bin` has 4000 bytes"),
    "missing file": (edit("writes", 0, "file", to="mem/2.bin"),
                     "`$.writes[0].file`: `{}/mem/2.bin` cannot be used: No such file or directory"),
    "folder for a file": (edit("writes", 0, "file", to="mem"),
                          "`$.writes[0].file`: `{}/mem` cannot be used: not a regular file"),
    "device for a file": (edit("writes", 0, "file", to="/dev/zero"), "`/dev/zero` cannot be used: not a regular file"),
    "read-back outside": (edit("readback", 0, "bytes", to=BYTES + 1), "`$.readback[0]`: 4001 bytes at"),
    "read-back to nowhere": (edit("readback", 0, "file", to=""), "`$.readback[0].file`: names no file"),
    "read-back to a folder": (edit("readback", 0, "file", to="mem"),
                              "`$.readback[0].file`: `{}/mem` cannot be used: not a regular file"),
    "read-back below a file": (edit("readback", 0, "file", to="k.co/a"), "`$.readback[0].file`: `{}/k.co"),
    "read-backs into one file": (lambda case, _: case["readback"].append(case["readback"][0]),
                                 "`$.readback[1].file`: `$.readback[0]` goes to `out/deep/sum.bin` too"),
    "missing code object": (edit(*LAUNCH, "code_object", to="none.co"),
                            "`$.launches[0].code_object`: `{}/none.co` cannot be used: No such file"),
    "huge code object": (lambda case, folder: (folder / "k.co").open("wb").truncate(1 << 40), "larger than 256 MiB"),
    "empty code object": (code_object(lambda _: b""), "`$.launches[0].code_object`: the code object is not a complete"),
    "truncated code object": (code_object(lambda elf: elf[: len(elf) // 2]),
                              "`$.launches[0].code_object`: the code object is not a complete ELF file"),
    "no code object": (code_object(lambda _: b"#!/bin/sh\n"), "`$.launches[0].code_object`: the code object is not a"),
    "host's ELF": (code_object(lambda _: Path(sys.executable).resolve().read_bytes()),
                   "`$.launches[0].code_object`: the code object is built for ELF machine"),
    "other target": (code_object(lambda _: compile_hip(SOURCE, target="gfx942")),
                     "`$.launches[0].code_object`: the code object is built for AMDGPU machine 0x4c; the emulator "),
    "unknown symbol": (edit(*LAUNCH, "symbol", to="vector_sub"),
                       "`$.launches[0]`: the code object has no kernel `vector_sub`; it has vector_add, "),
    "no symbol": (edit(*LAUNCH, "symbol", to=""), "`$.launches[0]`: the code object has no kernel ``"),
    "short kernarg": (edit(*LAUNCH, "kernarg", to="00" * 27), "got 27 bytes of arguments; it takes 28 (or"),
    "long kernarg": (edit(*LAUNCH, "kernarg", to="00" * 4096), "`$.launches[0]`: kernel `vector_add` got 4096 bytes"),
    "no kernarg": (edit(*LAUNCH, "kernarg", to=""), "`$.launches[0]`: kernel `vector_add` got 0 bytes"),
    "half a byte": (edit(*LAUNCH, "kernarg", to="123"), "`$.launches[0].kernarg`: 3 hexadecimal digits are no whole"),
    "no hex": (edit(*LAUNCH, "kernarg", to="0x12"), "`$.launches[0].kernarg`: byte 0 is not two hexadecimal digits"),
    "zero grid": (edit(*LAUNCH, "grid", to=[4, 0, 1]), "`$.launches[0]`: kernel `vector_add` cannot be launched with"),
    "huge grid": (edit(*LAUNCH, "grid", to=[2**32 - 1] * 3), "`$.launches[0]`: 4294967295 workgroups of `vector_add`"),
    "huger grid": (edit(*LAUNCH, "grid", to=[2**32, 1, 1]), "`$.launches[0].grid[0]`: invalid value"),
    "two dimensions": (edit(*LAUNCH, "grid", to=[4, 1]), "`$.launches[0].grid`: invalid length 2"),
    "zero block": (edit(*LAUNCH, "block", to=[0, 1, 1]), "`$.launches[0]`: kernel `vector_add` cannot be launched"),
    "large block": (edit(*LAUNCH, "block", to=[1025, 1, 1]), "has at most 1024 work-items"),
    "huge block": (edit(*LAUNCH, "block", to=[65536, 65536, 1]), "has at most 1024 work-items"),
    "huge LDS": (edit(*LAUNCH, "lds_dynamic", to=163_841), "`$.launches[0]`: 4 workgroups of `vector_add` do not fit"),
    "negative LDS": (edit(*LAUNCH, "lds_dynamic", to=-1), "`$.launches[0].lds_dynamic`: invalid value"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_case_is_one_error(tmp_path: Path, case: dict[str, Any], name: str) -> None:
    """Exit status 2, the JSON path, a hint; nothing on stdout and no file or folder more than before."""
    change, message = BAD[name]
    changed = change(case, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    result = run(tmp_path, changed if isinstance(changed, str) else case)
    assert result.exit_code == 2 and result.stdout == "", result.output
    first, second, *rest = result.stderr.splitlines()
    assert first.startswith("error: `$") and message.format(tmp_path) in first, first
    assert second.startswith("hint: ") and len(second) > 10 and not rest, result.stderr
    (tmp_path / "case.json").unlink()
    assert sorted(tmp_path.rglob("*")) == before


def test_unknown_keys_warn_and_a_case_from_stdin_is_relative_to_here(
    tmp_path: Path, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the nearest known key; `--json` keeps stderr empty."""
    case["launches"][0]["lds_dynamics"] = 5
    monkeypatch.chdir(tmp_path)
    result = emulate("-", stdin=json.dumps(case))
    assert result.exit_code == 0, result.output
    assert "`$.launches.0.lds_dynamics` is not read; did you mean `lds_dynamic`?" in result.stderr
    assert (tmp_path / "out" / "deep" / "sum.bin").stat().st_size == BYTES
    assert emulate("-", "--json", stdin=json.dumps(case)).stderr == ""
    missing = emulate("none.json")
    assert missing.exit_code == 2 and "`none.json` cannot be read: No such file" in missing.stderr


def test_neither_torch_nor_numpy_is_imported(tmp_path: Path, case: dict[str, Any]) -> None:
    """What makes a case quick, from its own process."""
    path = tmp_path / "case.json"
    path.write_text(json.dumps(case))
    script = ("import sys\nfrom kimi_k3_specdec.cli import main\nsys.argv = ['x', 'emulate', sys.argv[1]]\n"
              "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
              "assert not {'torch', 'vllm', 'numpy'} & set(sys.modules), 'imported'\n")
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["launches"] == 1, done.stderr


@given(st.integers(0, 900), st.integers(0, 40),
       st.binary(max_size=12) | st.sampled_from([b"null", b"[]", b"{}", b"-1", b"1e400", b'""', b"[[[", b"\\", b"0"]))
@settings(max_examples=500, deadline=None)
def test_nonsense_never_panics(at: int, length: int, filler: bytes) -> None:
    """A case with bytes replaced: a case, or an error with a path."""
    data = json.dumps({
        "allocs": [{"addr": 4096 << i, "bytes": 64, "rank": i, "sparse": i == 1} for i in range(3)],
        "writes": [{"addr": 4100, "bytes": 8, "file": "a"}, {"addr": 8192, "bytes": 64, "file": "b"}],
        "launches": [{"code_object": "k.co", "symbol": "k", "grid": [4, 1, 1], "block": [64, 2, 1], "lds_dynamic": 64,
                      "kernarg": "00112233", "rank": 1}],
        "readback": [{"addr": 16384, "bytes": 1, "file": "c"}]}).encode()
    try:
        _native.parse_case((data[:at] + filler + data[at + length :]).decode(errors="replace"))
    except _native.Refused as error:
        assert str(error).startswith("`$") and error.hint
