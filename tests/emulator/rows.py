"""Which instructions there are, and what each is checked against."""

from __future__ import annotations

from functools import cache

from .encodings import Instruction, registers_only
from .expected import Oracle
from .memory import all_of_them
from .pseudocode import Library


@cache
def described_by_pseudocode() -> list[Instruction]:
    """The register-only instructions that the emulator carries out and AMD's pseudocode describes."""
    oracle = Oracle()
    return [row for row in registers_only() if row.unit == "wave" and oracle.text(row)]


@cache
def memory_rows() -> list[Instruction]:
    """The memory instructions that the emulator carries out and AMD's pseudocode describes, lane by lane."""
    library = Library()
    rows = [row for row in all_of_them() if row.unit == "machine" and row.encoding != "smem"]
    return [row for row in rows if library.find(row.encoding, row.opcode) and "lds" not in row.mnemonic]
