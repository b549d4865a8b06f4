"""What one gfx950 code object holds, read from the object itself, and what no shipped kernel may contain.

Standard library only: `build.py` runs wherever python3 does, inside a source distribution's isolated build too.
"""

from __future__ import annotations

import re
import struct
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

PT_NOTE = 4
NT_AMDGPU_METADATA = 32
# Padding that the linker puts behind a kernel's last `s_endpgm`; it is never executed.
PADDING = {"s_nop", "s_code_end"}
SYMBOL = re.compile(r"^[0-9a-f]+ <(?P<name>[^>]+)>:$")
INSTRUCTION = re.compile(r"^\s+(?P<mnemonic>[a-z]\w*)\b.*// (?P<pc>[0-9A-F]{12}): ")


class CodeObjectError(Exception):
    """The bytes are no AMDGPU code object, or end early."""


@dataclass(frozen=True)
class Kernel:
    """One entry point: its registers, memory and arguments, as the metadata note and the disassembly give them."""

    name: str
    vgprs: int
    agprs: int
    sgprs: int
    lds_bytes: int
    private_bytes: int
    spills: dict[str, int]
    dynamic_stack: bool
    wave_size: int
    max_workgroup_size: int
    kernarg_bytes: int
    kernarg_layout: list[dict[str, Any]]
    instructions: int
    refused: list[str]

    def problems(self) -> list[str]:
        """Every reason not to ship this kernel; empty when it is fit. (Too much LDS the compiler refuses itself.)"""
        reasons = [f"{count} {kind.upper()} spills" for kind, count in self.spills.items() if count]
        if self.private_bytes or self.dynamic_stack:
            stack = "a dynamic stack" if self.dynamic_stack else f"{self.private_bytes} bytes of private segment"
            reasons.append(f"{stack}, no kernel may use scratch memory")
        return [f"`{self.name}`: {reason}" for reason in [*reasons, *self.refused]]

    def manifest_entry(self) -> dict[str, Any]:
        """The fields that the manifest keeps: all but those that `problems` has proved empty."""
        entry = asdict(self)
        for proved_empty in ("private_bytes", "dynamic_stack", "refused"):
            del entry[proved_empty]
        return entry


class MessagePack:
    """A reader of the MessagePack subset that AMDGPU metadata uses: maps, arrays, strings, integers, booleans."""

    SIZED = {
        0xC4: ("B", "bytes"),
        0xC5: (">H", "bytes"),
        0xC6: (">I", "bytes"),
        0xD9: ("B", "str"),
        0xDA: (">H", "str"),
        0xDB: (">I", "str"),
        0xDC: (">H", "array"),
        0xDD: (">I", "array"),
        0xDE: (">H", "map"),
        0xDF: (">I", "map"),
    }
    NUMBERS = {0xCC: "B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: "b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
    CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}

    def __init__(self, data: bytes) -> None:
        """Reads from the start of `data`."""
        self.data = data
        self.offset = 0

    def unpack(self, layout: str) -> int:
        """The next number, in `struct`'s notation."""
        (value,) = struct.unpack_from(layout, self.data, self.offset)
        self.offset += struct.calcsize(layout)
        return value

    def value(self) -> Any:
        """The next value, whatever its type."""
        tag = self.unpack("B")
        if tag <= 0x7F or tag >= 0xE0:
            return tag if tag <= 0x7F else tag - 0x100
        if tag in self.CONSTANTS:
            return self.CONSTANTS[tag]
        if tag in self.NUMBERS:
            return self.unpack(self.NUMBERS[tag])
        if tag in self.SIZED:
            layout, kind = self.SIZED[tag]
            return self.collection(kind, self.unpack(layout))
        if tag <= 0xBF:
            if tag >= 0xA0:
                return self.collection("str", tag & 0x1F)
            return self.collection("map" if tag <= 0x8F else "array", tag & 0xF)
        raise CodeObjectError(f"the metadata holds a MessagePack tag {tag:#x} that AMDGPU metadata does not use")

    def collection(self, kind: str, count: int) -> Any:
        """The next `count` entries of a map or array, or bytes of a string."""
        if kind == "map":
            return {self.value(): self.value() for _ in range(count)}
        if kind == "array":
            return [self.value() for _ in range(count)]
        raw = self.data[self.offset : self.offset + count]
        self.offset += count
        return raw.decode() if kind == "str" else raw


def metadata(image: bytes) -> dict[str, Any]:
    """The AMDGPU metadata note of the ELF file `image`."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise CodeObjectError("not a 64-bit little-endian ELF file")
    try:
        (headers_at,) = struct.unpack_from("<Q", image, 32)
        header_bytes, num_headers = struct.unpack_from("<HH", image, 54)
        for index in range(num_headers):
            kind, _, start, _, _, size = struct.unpack_from("<IIQQQQ", image, headers_at + index * header_bytes)
            if kind == PT_NOTE and (note := amdgpu_note(image[start : start + size])) is not None:
                return MessagePack(note).value()
    except (struct.error, UnicodeDecodeError) as error:
        raise CodeObjectError(f"the file ends inside a header or the metadata note ({error})") from error
    raise CodeObjectError("there is no AMDGPU metadata note")


def amdgpu_note(notes: bytes) -> bytes | None:
    """The description of the AMDGPU note among `notes`, the bytes of a note segment."""
    offset = 0
    while offset < len(notes):
        name_bytes, description_bytes, kind = struct.unpack_from("<III", notes, offset)
        description_at = offset + 12 + (name_bytes + 3) // 4 * 4
        if kind == NT_AMDGPU_METADATA and notes[offset + 12 : offset + 12 + name_bytes] == b"AMDGPU\0":
            return notes[description_at : description_at + description_bytes]
        offset = description_at + (description_bytes + 3) // 4 * 4
    return None


def disassemble(path: Path, objdump: str) -> dict[str, list[tuple[str, str]]]:
    """(pc, mnemonic) of each instruction of each function in the code object at `path`, padding left out."""
    command = [objdump, "-d", str(path)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    functions: dict[str, list[tuple[str, str]]] = {}
    body: list[tuple[str, str]] = []
    for line in lines:
        if symbol := SYMBOL.match(line):
            body = functions.setdefault(symbol["name"], [])
        elif instruction := INSTRUCTION.match(line):
            body.append((instruction["pc"].lstrip("0"), instruction["mnemonic"]))
    for body in functions.values():
        while body and body[-1][1] in PADDING:
            body.pop()
    return functions


def refused_instructions(path: Path, body: list[tuple[str, str]], symbolizer: str) -> list[str]:
    """One line for each scratch_ or flat_ instruction of `body`, with the innermost source line it came from."""
    refused = []
    for pc, mnemonic in body:
        if mnemonic.startswith(("scratch_", "flat_")):
            command = [symbolizer, "--obj", str(path), f"0x{pc}"]
            source = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
            where = source[1] if len(source) > 1 else "an unknown line"
            refused.append(f"`{mnemonic}` at 0x{pc}, from {where}")
    return refused


def inspect(path: Path, *, target: str, objdump: str, symbolizer: str) -> list[Kernel]:
    """The kernels of the code object at `path`, sorted by name; refuses another target than `target`."""
    note = metadata(path.read_bytes())
    found = note.get("amdhsa.target", "").removeprefix("amdgcn-amd-amdhsa--")
    if found != target:
        raise CodeObjectError(f"it is built for `{found}`, not for `{target}`")
    functions = disassemble(path, objdump)
    # A function that was not inlined is called by some kernel, whose problem its instructions then are.
    names = {entry[".name"] for entry in note["amdhsa.kernels"]}
    shared = [body for name, body in functions.items() if name not in names]
    kernels = []
    for entry in sorted(note["amdhsa.kernels"], key=lambda entry: entry[".name"]):
        bodies = [functions[entry[".name"]], *shared]
        kernels.append(
            Kernel(
                name=entry[".name"],
                vgprs=entry[".vgpr_count"],
                agprs=entry[".agpr_count"],
                sgprs=entry[".sgpr_count"],
                lds_bytes=entry[".group_segment_fixed_size"],
                private_bytes=entry[".private_segment_fixed_size"],
                spills={"vgpr": entry[".vgpr_spill_count"], "sgpr": entry[".sgpr_spill_count"]},
                dynamic_stack=entry.get(".uses_dynamic_stack", False),
                wave_size=entry[".wavefront_size"],
                max_workgroup_size=entry[".max_flat_workgroup_size"],
                kernarg_bytes=entry[".kernarg_segment_size"],
                kernarg_layout=[
                    {"offset": argument[".offset"], "bytes": argument[".size"], "kind": argument[".value_kind"]}
                    for argument in entry.get(".args", [])
                ],
                instructions=sum(map(len, bodies)),
                refused=[line for body in bodies for line in refused_instructions(path, body, symbolizer)],
            )
        )
    return kernels
