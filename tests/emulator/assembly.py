"""LLVM's assembler, linker and disassembler for gfx950."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from kimi_k3_specdec import _native

from .encodings import Instruction

TARGET = ["-triple=amdgcn-amd-amdhsa", "-mcpu=gfx950"]
METADATA = """---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx950
amdhsa.kernels:
"""
KERNEL_METADATA = """  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: {kernarg}
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 64
    .vgpr_count: 128
    .agpr_count: 0
    .max_flat_workgroup_size: 1024
    .args:
"""
ARGUMENT = "      - {{.offset: {offset}, .size: 8, .value_kind: global_buffer, .address_space: global}}\n"


def run(tool: str, *arguments: str, text: str = "") -> str:
    """One of LLVM's tools, `text` as its input; returns its output."""
    command = [tool, *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, f"{tool}: {done.stderr[:2000]}"
    return done.stdout


@cache
def encodings_of(lines: tuple[str, ...]) -> list[bytes]:
    """The bytes of each line."""
    shown = run("llvm-mc-22", *TARGET, "-show-encoding", text="\n".join(lines))
    found = [
        bytes(int(byte, 16) for byte in match[1].split(",")) for match in re.finditer(r"encoding: \[([^\]]*)\]", shown)
    ]
    assert len(found) == len(lines), "one encoding a line"
    return found


def assembled(line: str) -> Instruction:
    """One line as the emulator decodes it."""
    return described(encodings_of((line,))[0])


def described(code: bytes) -> Instruction:
    """What the emulator makes of an encoding."""
    text, mnemonic, encoding, size, unit = _native.instruction(code)
    assert size == len(code), f"{text} is {len(code)} bytes"
    return Instruction(encoding, -1, code, text, mnemonic, unit)


def disassembled(lines: tuple[str, ...]) -> list[tuple[bytes, str]]:
    """(bytes, text) of each line as LLVM's disassembler prints it, white space made single."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "lines.o")
        run("llvm-mc-22", *TARGET, "-filetype=obj", "-o", path, text="\n".join(lines))
        listing = run("llvm-objdump-22", "-d", path)
    found = []
    for match in re.finditer(r"^\t(.*?)\s*// [0-9A-F]+: ([0-9A-F ]+)", listing, re.MULTILINE):
        words = [int(word, 16).to_bytes(4, "little") for word in match[2].split()]
        found.append((b"".join(words), " ".join(match[1].split())))
    return found


def code_object(kernels: dict[str, str], num_buffers: int, lds_bytes: int = 0) -> bytes:
    """Kernels by name from their instructions: s[0:1] the kernarg, v0 the work-item, 128 vector registers."""
    kernarg = 8 * num_buffers
    text = ['.amdgcn_target "amdgcn-amd-amdhsa--gfx950"', ".amdhsa_code_object_version 6", ".text"]
    for name, body in kernels.items():
        text += [f".globl {name}", ".p2align 8", f".type {name},@function", f"{name}:", body, "s_endpgm"]
        text += [f".L{name}:", f".size {name}, .L{name}-{name}"]
    metadata = METADATA
    text += ['.section .rodata,"a"', ".p2align 6"]
    for name in kernels:
        text += [f".amdhsa_kernel {name}", ".amdhsa_next_free_vgpr 128", ".amdhsa_next_free_sgpr 64"]
        text += [".amdhsa_accum_offset 128", ".amdhsa_user_sgpr_kernarg_segment_ptr 1"]
        text += [f".amdhsa_group_segment_fixed_size {lds_bytes}", f".amdhsa_kernarg_size {kernarg}"]
        text += [".end_amdhsa_kernel"]
        metadata += KERNEL_METADATA.format(name=name, kernarg=kernarg, lds=lds_bytes)
        metadata += "".join(ARGUMENT.format(offset=8 * at) for at in range(num_buffers))
    text += [".amdgpu_metadata", metadata + "...", ".end_amdgpu_metadata", ""]
    with tempfile.TemporaryDirectory() as folder:
        source, linked = Path(folder) / "k.o", Path(folder) / "k.co"
        run("llvm-mc-22", *TARGET, "-filetype=obj", "-o", str(source), text="\n".join(text))
        run("ld.lld-22", "-shared", str(source), "-o", str(linked))
        return linked.read_bytes()
