"""Which instructions there are, and what each is checked against."""

from __future__ import annotations

from functools import cache

from .encodings import Instruction, registers_only
from .expected import Oracle
from .memory import all_of_them
from .pseudocode import Library

# What no pseudocode describes, or only in prose, by the test whose vectors were derived by hand.
BY_HAND = {
    "s_waitcnt": "test_control.py",
    "s_barrier": "test_control.py",
    "s_endpgm": "test_control.py",
    "s_sleep": "test_control.py",
    "s_memrealtime": "test_control.py",
}
# Matrix instructions, whose operand maps are facts in matrix_maps.toml.
MATRIX: dict[str, str] = {"v_mfma_f32_16x16x32_bf16": "", "v_mfma_scale_f32_16x16x128_f8f6f4": ""}


@cache
def library() -> Library:
    """The pseudocode, read once."""
    return Library()


@cache
def described_by_pseudocode() -> list[Instruction]:
    """The register-only instructions that the emulator carries out and AMD's pseudocode describes."""
    oracle = Oracle()
    return [row for row in registers_only() if row.unit == "wave" and oracle.text(row)]


@cache
def memory_rows() -> list[Instruction]:
    """The memory instructions that the emulator carries out and AMD's pseudocode describes, lane by lane."""
    rows = [row for row in all_of_them() if row.unit == "machine"]
    return [row for row in rows if library().find(row.encoding, row.opcode) and row.mnemonic not in BY_HAND]
