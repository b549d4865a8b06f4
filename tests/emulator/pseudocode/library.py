"""The texts, by encoding and opcode as the CDNA4 manual numbers them."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module

from .parser import Node, Parser

ENCODINGS = {
    "sop1": "SOP1Op",
    "sop2": "SOP2Op",
    "sopc": "SOPCOp",
    "sopk": "SOPKOp",
    "sopp": "SOPPOp",
    "vop1": "VOP1Op",
    "vop2": "VOP2Op",
    "vopc": "VOPCOp",
    "vop3p": "VOP3POp",
    "mai": "VOP3POp",
    "ds": "DSOp",
    "global": "GLOBALOp",
    "flat": "FLATOp",
    "mubuf": "MUBUFOp",
    "smem": "SMEMOp",
}
# VOP3 numbers the short encodings' opcodes from these on.
VOP3_BLOCKS = ((448, 1024, "VOP3Op", 0), (320, 448, "VOP1Op", 320), (256, 320, "VOP2Op", 256), (0, 256, "VOPCOp", 0))


def table(architecture: str) -> dict:
    """The texts of one architecture by tinygrad's enumerations."""
    return import_module(f"tinygrad.runtime.autogen.amd.{architecture}.str_pcode").PCODE


def base_name(name: str) -> str:
    """A mnemonic without the suffix of its encoding."""
    return re.sub(r"_(E32|E64)$", "", name)


class Library:
    """All texts that a test may need."""

    def __init__(self) -> None:
        """Reads the installed package; raises ImportError without it."""
        self.by_opcode: dict[tuple[str, int], tuple[str, str]] = {}
        self.by_name: dict[str, str] = {}
        for architecture in ("rdna4", "cdna"):
            for key, text in table(architecture).items():
                self.by_name[base_name(key.name)] = text
                if architecture == "cdna":
                    self.by_opcode[type(key).__name__, key.value] = (base_name(key.name).lower(), text)

    def find(self, encoding: str, opcode: int) -> tuple[str, str] | None:
        """(mnemonic, text) of an opcode of an encoding as the emulator names it."""
        if encoding != "vop3":
            return self.by_opcode.get((ENCODINGS.get(encoding, ""), opcode))
        for first, end, name, base in VOP3_BLOCKS:
            if first <= opcode < end:
                return self.by_opcode.get((name, opcode - base)) or self.by_opcode.get(("VOP3SDOp", opcode))
        return None

    def lookup(self, name: str) -> str | None:
        """The text of an instruction by its base mnemonic in capitals."""
        return self.by_name.get(name)


@cache
def parsed(text: str) -> list[Node]:
    """The statements of a text."""
    return Parser(text).program()
