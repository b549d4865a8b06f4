"""Which instructions there are, and what each is checked against."""

from __future__ import annotations

from functools import cache

from .encodings import Instruction, registers_only
from .expected import Oracle


@cache
def described_by_pseudocode() -> list[Instruction]:
    """The register-only instructions that the emulator carries out and AMD's pseudocode describes."""
    oracle = Oracle()
    return [row for row in registers_only() if row.unit == "wave" and oracle.text(row)]
