"""What expressions of the pseudocode stand for, and the storage that they read and write."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .number import FORMATS, Exact, Float, convert, from_dyadic

KIND = re.compile(r"(u|i|b|f|bf|fp)(\d+)")


@dataclass(frozen=True)
class Int:
    """An integer without bounds; `width` counts in concatenations. `is_raw`: bits rather than a number."""

    value: int
    width: int = 32
    is_raw: bool = False
    loose: int = 0


class Memory:
    """Bytes by address."""

    def __init__(self, contents: dict[int, int] | None = None) -> None:
        """`contents`: byte by address; others read as zero."""
        self.contents = dict(contents or {})
        self.loose: set[int] = set()

    def read(self, address: int, num_bytes: int) -> int:
        """A little-endian number."""
        return sum(self.contents.get(address + at, 0) << 8 * at for at in range(num_bytes))

    def write(self, address: int, num_bytes: int, bits: int, loose: int = 0) -> None:
        """Stores a little-endian number; `loose`: its bits that are a NaN of free payload."""
        for at in range(num_bytes):
            self.contents[address + at] = bits >> 8 * at & 0xFF
            if loose >> 8 * at & 0xFF:
                self.loose.add(address + at)


class Cell:
    """Bits that are assigned in parts; remembers which were written, and which hold a NaN of free payload."""

    def __init__(self, bits: int = 0, width: int = 32) -> None:
        """`bits`: what it holds; negative numbers in two's complement."""
        self.bits, self.width, self.written, self.loose = bits & ((1 << width) - 1), width, 0, 0

    def read(self) -> Int:
        """All of it."""
        return Int(self.bits, self.width, True, self.loose)

    def write(self, low: int, width: int, bits: int, loose: int = 0) -> None:
        """Replaces `width` bits from `low` on."""
        mask = ((1 << width) - 1) << low
        self.width = max(self.width, low + width)
        self.bits = self.bits & ~mask | bits << low & mask
        self.written |= mask
        self.loose = self.loose & ~mask | loose << low & mask


@dataclass(frozen=True)
class Reference:
    """A memory address that has not been read yet."""

    memory: Memory
    address: int


Value = Int | Float | Exact | Reference | Cell | list


def size_of(kind: str) -> int:
    """Bits of a field such as `u32` or `bf16`."""
    if kind in FORMATS:
        return FORMATS[kind].width
    match = KIND.fullmatch(kind)
    if not match:
        raise KeyError(kind)
    return int(match[2])


def raw(value: Value) -> Int:
    """A value's bits."""
    if isinstance(value, Cell):
        return value.read()
    if isinstance(value, Reference):
        return Int(value.memory.read(value.address, 4), 32, True)
    if isinstance(value, Float):
        width = value.form.width
        return Int(value.bits, width, True, (1 << width) - 1 if value.loose else 0)
    if isinstance(value, Int):
        return value
    raise TypeError(f"{value} has no bits")


def view(value: Value, kind: str) -> Int | Float:
    """The low bits of a value as a number of another kind; a float becomes another float by conversion."""
    if isinstance(value, Exact) or (isinstance(value, Float) and kind in FORMATS):
        return convert(value, FORMATS[kind])
    if isinstance(value, Reference):
        return view(Int(value.memory.read(value.address, (size_of(kind) + 7) // 8), size_of(kind), True), kind)
    source, width = raw(value), size_of(kind)
    bits = source.value & ((1 << width) - 1)
    if kind in FORMATS:
        form = FORMATS[kind]
        return Float(form, bits, bool(source.loose & ((1 << width) - 1)) and Float(form, bits).is_nan)
    if kind.startswith("i") and bits >> (width - 1):
        bits -= 1 << width
    return Int(bits, width, kind.startswith("b"), source.loose & ((1 << width) - 1))


def number(value: Value) -> int:
    """An integer's value."""
    return raw(value).value


def stored(value: Value, kind: str | None, width: int) -> tuple[int, int]:
    """(bits, loose bits) of a value that is assigned to `width` bits of a kind."""
    if kind in FORMATS:
        form = FORMATS[kind]
        if isinstance(value, (Float, Exact)):
            value = convert(value, form)
        elif isinstance(value, Int) and not value.is_raw:
            value = from_dyadic(form, value.value, 0)
    bits = raw(value)
    mask = (1 << width) - 1
    return bits.value & mask, bits.loose & mask
