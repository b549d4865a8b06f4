"""The operands and modifiers of an assembly line, read from its text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

SPECIAL = {"vcc": (106, 2), "vcc_lo": (106, 1), "vcc_hi": (107, 1), "m0": (124, 1), "exec": (126, 2)}
REGISTER = re.compile(r"([sva])(?:(\d+)|\[(\d+):(\d+)\])")
MODIFIER = re.compile(r"([a-z]\w*)(?::(\[[^\]]*\]|\S+))?")
FLOATS = {"0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494", "0.15915494309189532"}


@dataclass(frozen=True)
class Operand:
    """`file`: v, s, a, or `constant` with its value; signs as written."""

    file: str
    first: int
    count: int = 1
    negated: bool = False
    absolute: bool = False
    extended: bool = False
    text: str = ""


@dataclass
class Line:
    """A line: mnemonic as printed, operands in order, modifiers by name."""

    mnemonic: str
    operands: list[Operand] = field(default_factory=list)
    modifiers: dict[str, str] = field(default_factory=dict)

    def bits(self, name: str, missing: str = "[]") -> list[int]:
        """A modifier that is a list of numbers."""
        return [int(x) for x in self.modifiers.get(name, missing).strip("[]").split(",") if x]


def operand(text: str) -> Operand:
    """One operand."""
    negated = text.startswith("-") and not re.fullmatch(r"-[\d.]+", text)
    inner = text[1:] if negated else text
    absolute, extended = inner.startswith("|"), inner.startswith("sext(")
    inner = inner.removeprefix("sext(").rstrip(")").strip("|")
    if inner in SPECIAL:
        file, (first, count) = "s", SPECIAL[inner]
    elif match := REGISTER.fullmatch(inner):
        file = match[1]
        first = int(match[2] or match[3])
        count = 1 if match[2] else int(match[4]) - first + 1
    elif inner == "off":
        return Operand("none", 0, 0, text=inner)
    elif inner in FLOATS:
        return Operand("float", 0, 1, negated, absolute, extended, inner)
    else:
        return Operand("constant", int(inner, 0), 1, negated, absolute, extended, inner)
    return Operand(file, first, count, negated, absolute, extended, inner)


def parse(text: str) -> Line:
    """A line as LLVM prints it."""
    mnemonic, _, rest = text.partition(" ")
    line = Line(mnemonic)
    parts = [part.strip() for part in re.split(r",(?![^\[]*\])", rest)] if rest else []
    for at, part in enumerate(parts):
        words = part.split(" ")
        if at < len(parts) - 1 or not MODIFIER.fullmatch(words[0]) or ":" not in words[0]:
            line.operands.append(operand(words.pop(0)))
        for word in words:
            match = MODIFIER.fullmatch(word)
            if match:
                line.modifiers[match[1]] = match[2] or "1"
    return line
