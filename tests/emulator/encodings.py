"""Every opcode of every register-only encoding, as bytes with operands that do not overlap.

Built from the encodings' field layouts alone, so that an opcode that the emulator forgot is still tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from kimi_k3_specdec import _native

# First registers: destination, sources; room for 32 registers each.
VECTOR = (0, 32, 64, 96)
SCALAR = (8, 16, 24, 32)
IMMEDIATE = 0x8123


@dataclass(frozen=True)
class Instruction:
    """One opcode in one encoding: bytes, text, base mnemonic, who carries it out."""

    encoding: str
    opcode: int
    code: bytes
    text: str
    mnemonic: str
    unit: str


def described(encoding: str, opcode: int, *words: int) -> Instruction | None:
    """The instruction of these words, if they are one of this encoding."""
    code = b"".join(word.to_bytes(4, "little") for word in words)
    try:
        text, mnemonic, found, size, unit = _native.instruction(code)
    except _native.Refused:
        return None
    return Instruction(encoding, opcode, code[:size], text, mnemonic, unit) if found == encoding else None


def first_of(encoding: str, opcode: int, candidates: Iterator[tuple[int, ...]]) -> Instruction | None:
    """The first candidate that is an instruction."""
    found = (described(encoding, opcode, *words) for words in candidates)
    return next((instruction for instruction in found if instruction), None)


def scalar() -> Iterator[Instruction | None]:
    """SOP1, SOP2, SOPC, SOPK, SOPP."""
    destination, first, second, _ = SCALAR
    for op in range(256):
        yield first_of(
            "sop1", op, iter((0xBE800000 | d << 16 | op << 8 | s,) for d in (destination, 0) for s in (first, 0))
        )
    for op in range(104):
        yield described("sop2", op, 0x80000000 | op << 23 | destination << 16 | second << 8 | first)
    for op in range(128):
        # The mode of s_set_gpr_idx_on is where the others have a register, and four bits wide.
        yield described("sopc", op, 0xBF000000 | op << 16 | destination << 8 | first)
        yield first_of("sopp", op, iter((0xBF800000 | op << 16 | immediate,) for immediate in (5, 0)))
    for op in range(29):
        yield described("sopk", op, 0xB0000000 | op << 23 | destination << 16 | IMMEDIATE)


def vector() -> Iterator[Instruction | None]:
    """VOP1, VOP2, VOPC, VOP3."""
    destination, first, second, third = VECTOR
    literal = 0x40490FDB
    for op in range(256):
        words = (0x7E000000 | d << 17 | op << 9 | 256 + first for d in (destination, SCALAR[0]))
        yield first_of("vop1", op, ((word,) for word in words))
        yield described("vopc", op, 0x7C000000 | op << 17 | second << 9 | 256 + first)
    for op in range(62):
        yield described("vop2", op, op << 25 | destination << 17 | second << 9 | 256 + first, literal)
    for op in range(1024):
        operands = product(
            (256 + third, SCALAR[3], 0),
            # A lane number is a constant: two scalar registers would be one too many.
            (256 + second, 128 + 17, SCALAR[2], 0),
            (256 + first, SCALAR[1], 0),
            (destination, SCALAR[0]),
        )
        yield first_of("vop3", op, iter((0xD0000000 | op << 16 | d, c << 18 | b << 9 | a) for c, b, a, d in operands))


def packed() -> Iterator[Instruction | None]:
    """VOP3P; matrix instructions have `mai` as their encoding."""
    destination, first, second, third = VECTOR
    for op in range(128):
        for c in (256 + third, 0):
            low, high = 0xD3800000 | op << 16 | 1 << 14, 3 << 27 | c << 18 | (256 + second) << 9 | 256 + first
            found = described("vop3p", op, low | destination, high)
            if found:
                break
        yield found


def registers_only() -> list[Instruction]:
    """All of them that decode."""
    return [found for part in (scalar(), vector(), packed()) for found in part if found]


def matrix() -> list[Instruction]:
    """The matrix unit's opcodes, and the moves of its registers; scaled ones have a prefix of eight bytes."""
    destination, first, second, third = VECTOR
    found = []
    for op in range(128):
        low, high = 0xD3800000 | op << 16 | destination, (256 + third) << 18 | (256 + second) << 9 | 256 + first
        scales = (0xD3AC0000, (256 + 100) << 9 | 256 + 101)
        # Bit 11 says that scales go before.
        for words in ((low, high), (low, high & 0x1FF), (*scales, low | 1 << 11, high)):
            found.append(described("mai", op, *words))
    return [row for row in found if row]
