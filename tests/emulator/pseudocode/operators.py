"""Literals and operators of the pseudocode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .functions import power_of_two
from .number import FORMATS, Exact, Float, add, convert, divide, infinity, multiply, nan, negate, order
from .values import Int, Value, number, raw


def literal(text: str) -> Int | Float:
    """An unsized number."""
    if text.startswith("0x"):
        digits = text.rstrip("UL")
        return Int(int(digits, 16), 64 if text.endswith("LL") else 32, True)
    if "." in text:
        form = FORMATS["f32" if text.endswith("F") else "f64"]
        return real_literal(text.rstrip("F"), form)
    return Int(int(text.rstrip("UL")), 64 if text.endswith("LL") else 32)


def real_literal(text: str, form: Any) -> Float:
    """A decimal fraction; those that occur are exact."""
    top, bottom = float(text).as_integer_ratio()
    return convert(Exact(top, 1 - bottom.bit_length()), form)


def sized_literal(text: str) -> Int | Float:
    """A number with its width in front."""
    width, digits = text.split("'")
    if "." in digits:
        return real_literal(digits, FORMATS[f"f{width}"])
    digits = digits.rstrip("UIB") if not digits.startswith("0x") else digits
    return Int(int(digits, 0), int(width), digits.startswith("0x"))


class Special:
    """`INF`, `NAN` and `DENORM`, whose format a field or the other operand says."""

    def __init__(self, name: str, sign: int = 0) -> None:
        """`name` as the text has it."""
        self.name, self.sign = name, sign

    def as_float(self, form: Any) -> Float:
        """The value in a format."""
        return infinity(form, self.sign) if self.name == "INF" else nan(form)


def compare(operator: str, a: Value, b: Value) -> bool:
    """A comparison of numbers; NaNs are unordered, and `<>` means below or above."""
    if isinstance(a, Float) or isinstance(b, Float):
        assert isinstance(a, Float)
        if isinstance(b, Special):
            if b.name == "DENORM":
                return a.is_denormal == (operator == "==")
            b = b.as_float(a.form)
        assert isinstance(b, Float)
        found = order(a, b)
        if found is None:
            return operator == "!="
    else:
        found = (number(a) > number(b)) - (number(a) < number(b))
    return {
        "==": found == 0,
        "!=": found != 0,
        "<>": found != 0,
        "<": found < 0,
        ">": found > 0,
        "<=": found <= 0,
        ">=": found >= 0,
    }[operator]


INTEGER: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}


def arithmetic(operator: str, a: Value, b: Value) -> Value:
    """An operation on two numbers."""
    if operator == "**":
        return power_of_two(number(b))
    if isinstance(a, Exact) and isinstance(b, Float):
        a, b = b, a
    if isinstance(a, Float):
        if isinstance(b, Int):
            b = convert(Exact(b.value, 0), a.form)
        if isinstance(b, Exact):
            return multiply(a, b)
        assert isinstance(b, Float)
        form = max(a.form, b.form, key=lambda form: form.width)
        a, b = convert(a, form), convert(b, form)
        return {"+": add, "-": lambda x, y: add(x, negate(y)), "*": multiply, "/": divide}[operator](a, b)
    left, right = raw(a), raw(b)
    is_bitwise = operator in "&|^"
    width = left.width if operator in ("<<", ">>") else max(left.width, right.width)
    value = INTEGER[operator](left.value, right.value)
    return Int(value, width, is_bitwise and left.is_raw and right.is_raw)
