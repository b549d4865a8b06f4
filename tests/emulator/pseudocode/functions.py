"""The functions that AMD's pseudocode calls without defining them.

Conversions follow IEEE 754 and the OCP formats: to nearest even, saturating integers, NaN to zero.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from typing import Any

from .number import (
    FORMATS,
    Exact,
    Float,
    Format,
    convert,
    divide,
    from_dyadic,
    fused_multiply_add,
    multiply,
    nan,
    negate,
    rounded,
    square_root,
)
from .values import Int, number, raw, view


class Unspecified(Exception):
    """An input for which no source says what happens."""


CONVERSION = re.compile(r"([a-z]+\d+)_to_([a-z]+\d+|snorm|unorm)(_scale)?", re.IGNORECASE)


def floor_of(value: Float, towards_zero: bool = False) -> Float:
    """The integer below, or next to zero."""
    if value.is_nan or value.is_infinite:
        return nan(value.form) if value.is_nan else value
    m, e = value.dyadic()
    if e >= 0:
        return value
    whole = abs(m) >> -e if towards_zero and m < 0 else m >> -e
    return from_dyadic(value.form, -whole if towards_zero and m < 0 else whole, 0, value.sign)


def fraction_of(value: Float) -> Float:
    """What is above the floor."""
    return fused_multiply_add(floor_of(value), from_dyadic(value.form, -1, 0), value)


def to_int(value: Float, low: int, high: int) -> int:
    """The integer next to zero, saturated; NaN is zero."""
    if value.is_nan:
        return 0
    if value.is_infinite:
        return low if value.sign else high
    m, e = value.dyadic()
    magnitude = abs(m) << e if e >= 0 else abs(m) >> -e
    return max(low, min(high, -magnitude if m < 0 else magnitude))


def to_norm(value: Float, scale: int, low: int) -> int:
    """A normalised integer: -1 (or 0) to 1 times `scale`, to nearest even."""
    if value.is_nan:
        return 0
    m, e = (1 - 2 * value.sign, 0) if value.is_infinite else value.dyadic()
    whole = round(max(low, min(1.0, math.ldexp(m, max(e, -200)))) * scale)
    return whole


def limits(kind: str) -> tuple[int, int]:
    """The least and greatest integer of a kind."""
    width = int(kind[1:])
    return (-(1 << width - 1), (1 << width - 1) - 1) if kind[0] == "i" else (0, (1 << width) - 1)


def scaled(value: Float, form: Format, exponent: int, mode: str) -> Float:
    """A value times a power of two in another format."""
    if value.is_nan:
        return nan(form)
    if value.is_infinite:
        return convert(value, form, mode)
    m, e = value.dyadic()
    return from_dyadic(form, m, e + exponent, value.sign, mode)


def conversion(name: str, mode: str) -> Callable[..., Any] | None:
    """The conversion of this name, if it is one."""
    match = CONVERSION.fullmatch(name)
    if not match:
        return None
    source, target, is_scaled = match[1], match[2], match[3] is not None

    def convert_value(argument: Any, scale: Any = None) -> Int | Float:
        value = view(argument, source)
        if target in ("snorm", "unorm"):
            return Int(to_norm(value, 32767 if target == "snorm" else 65535, -1.0 if target == "snorm" else 0.0))
        if target not in FORMATS:
            low, high = limits(target)
            found = to_int(value, low, high) if isinstance(value, Float) else max(low, min(high, value.value))
            return Int(found, int(target[1:]))
        if isinstance(value, Int):
            return from_dyadic(FORMATS[target], value.value, 0)
        if value.is_nan:
            return nan(FORMATS[target])
        if not is_scaled:
            return convert(value, FORMATS[target], mode)
        code = number(scale) & 0xFF
        if code == 255:
            raise Unspecified(f"{name} with a scale of NaN")
        is_narrowing = FORMATS[target].width <= 8
        exponent = 127 - code if is_narrowing else code - 127
        found = scaled(value, FORMATS[target], exponent, "even")
        if target in ("fp8", "bf8") and is_narrowing and (found.is_nan or found.is_infinite):
            raise Unspecified(f"{name} beyond the largest value")
        return found

    return convert_value


def real(function: Callable[[float], float]) -> Callable[[Float], Float]:
    """A function of real numbers, evaluated in double precision and rounded."""

    def apply(value: Float) -> Float:
        if value.is_nan:
            return nan(value.form)
        m, e = (0, 0) if value.is_infinite else value.dyadic()
        argument = math.copysign(math.inf, -value.sign or 1) if value.is_infinite else math.ldexp(m, e)
        if m == 0 and value.sign and not value.is_infinite:
            argument = -0.0
        try:
            result = function(argument)
        except (ValueError, OverflowError) as error:
            if isinstance(error, OverflowError):
                return rounded(value.form, 0, 1, 5000)
            result = -math.inf if argument == 0 else math.nan
        if math.isnan(result):
            return nan(value.form)
        double = Float(FORMATS["f64"], int.from_bytes(struct.pack("<d", result), "little"))
        return convert(double, value.form)

    return apply


def power(base: Float, exponent: Float) -> Float:
    """Two to a real power."""
    return real(lambda x: math.inf if x == math.inf else 2.0**x)(exponent)


def mantissa(value: Float) -> Float:
    """The significand in 0.5 to 1; denormals are not normalised by the text, and are not asked for."""
    form = value.form
    if value.exponent_field == 0:
        return value
    fraction = value.bits & ((1 << form.mantissa_bits) - 1)
    return Float(form, value.bits & form.sign_bit | (form.bias - 1) << form.mantissa_bits | fraction)


def make_quiet(value: Float) -> Float:
    """A NaN with the quiet bit set and its payload kept."""
    return Float(value.form, value.bits | 1 << (value.form.mantissa_bits - 1))


def signext_from_bit(value: Any, width: Any) -> Int:
    """The low bits as a signed number; none are zero, more than there are change nothing."""
    source, bits = raw(value), number(width)
    if bits == 0 or bits >= source.width:
        return Int(0 if bits == 0 else source.value, source.width)
    low = source.value & ((1 << bits) - 1)
    return Int(low - (low >> (bits - 1) << bits), source.width)


def round_to_even(value: Float) -> Float:
    """The nearest integer, halves to the even one, zeros with the sign of the value."""
    if value.is_nan or value.is_infinite:
        return nan(value.form) if value.is_nan else value
    m, e = value.dyadic()
    if e >= 0:
        return value
    units, rest, half = abs(m) >> -e, abs(m) & ((1 << -e) - 1), 1 << (-e - 1)
    units += rest > half or (rest == half and units & 1)
    return from_dyadic(value.form, -units if value.sign else units, 0, value.sign)


def normal_exponent(value: Float) -> Int:
    """The exponent that leaves a significand in 0.5 to 1, of denormals too; 0 of what has none."""
    if value.is_nan or value.is_infinite or value.magnitude == 0:
        return Int(0)
    m, e = value.dyadic()
    return Int(e + abs(m).bit_length())


def scaled_fma(a: Float, b: Float, c: Float, exponent: Int) -> Float:
    """(a * b + c) * 2**exponent, rounded once."""
    total = fused_multiply_add(*(convert(x, WIDE) for x in (a, b, c)))
    return nan(a.form) if total.is_nan else scaled(total, a.form, exponent.value, "even")


def is_f32_denormal(a: Float, b: Float) -> Int:
    """Whether the quotient is below f32's normal numbers and not zero."""
    quotient = divide(convert(a, WIDE), convert(b, WIDE))
    if quotient.is_nan or quotient.is_infinite or quotient.magnitude == 0:
        return Int(0, 1)
    m, e = quotient.dyadic()
    return Int(int(abs(m).bit_length() + e <= -126), 1)


# Wide enough that a product plus a number of the other formats is exact for all that tests ask.
WIDE = Format("wide", 15, 600, 16383)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "fma": fused_multiply_add,
    "floor": floor_of,
    "trunc": lambda x: floor_of(x, towards_zero=True),
    "fract": fraction_of,
    "sqrt": square_root,
    "pow": power,
    "log2": real(lambda x: x if x == math.inf else math.log2(x)),
    "sin": real(math.sin),
    "cos": real(math.cos),
    "abs": lambda x: Float(x.form, x.magnitude, x.loose),
    "sign": lambda x: Int(x.sign, 1),
    "exponent": lambda x: Int(x.exponent_field, 32),
    "mantissa": mantissa,
    "isNAN": lambda x: Int(int(x.is_nan), 1),
    "isSignalNAN": lambda x: Int(int(x.is_signalling), 1),
    "isQuietNAN": lambda x: Int(int(x.is_nan and not x.is_signalling), 1),
    "cvtToQuietNAN": make_quiet,
    "isEven": lambda x: Int(int(x.is_infinite or to_int(x, -(1 << 1100), 1 << 1100) % 2 == 0), 1),
    "ldexp": lambda x, e: multiply(x, power_of_two(number(e))),
    "signext": lambda x: x,
    "signext_from_bit": signext_from_bit,
    "bitCount": lambda x: Int(number(x).bit_count(), 32),
    "negate": negate,
    "round_to_even": round_to_even,
    "normal_exponent": normal_exponent,
    "below_one": lambda x: Float(x.form, from_dyadic(x.form, 1, 0).bits - 1),
    "scaled_fma": scaled_fma,
    "is_f32_denormal": is_f32_denormal,
    "nop": lambda: Int(0),
}


def power_of_two(exponent: int) -> Exact:
    """Two to an integer, which no format rounds: the product that it is for is rounded once."""
    return Exact(1, exponent)
