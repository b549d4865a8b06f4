"""What the special-function unit may return: a bound, since the pseudocode is exact and hardware is not.

A result is accepted within `ULPS` of the real value (of a whole turn's sine and cosine: within that of one's last
place), for the source or, if it is denormal, for the zero that the unit may make of it; a denormal result may be zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .pseudocode.number import FORMATS, Exact, Float, Format, convert

ULPS = 2


def logarithm(x: float) -> float:
    """Base two; of zero minus infinity."""
    return -math.inf if x == 0 else math.log2(x) if x > 0 else math.nan


def reciprocal(x: float) -> float:
    """Of a zero the infinity of its sign."""
    return math.copysign(math.inf, x) if x == 0 else 1 / x


def root(x: float) -> float:
    """Of minus zero itself."""
    return x if x == 0 else math.sqrt(x) if x > 0 else math.nan


def power(x: float) -> float:
    """Two to the x."""
    return math.inf if x > 1000 else 2.0 ** max(x, -1000.0)


def turns(function: Callable[[float], float], outside: float) -> Callable[[float], float]:
    """A function of an angle in turns; the manual allows 256 of them, beyond which it is constant."""

    def apply(x: float) -> float:
        if math.isinf(x):
            return math.nan
        return outside if abs(x) > 256 else function(2 * math.pi * math.fmod(x, 1.0))

    return apply


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "v_exp": power,
    "v_log": logarithm,
    "v_rcp": reciprocal,
    "v_rcp_iflag": reciprocal,
    "v_rsq": lambda x: reciprocal(root(x)),
    "v_sqrt": root,
    "v_sin": turns(math.sin, 0.0),
    "v_cos": turns(math.cos, 1.0),
}


def function_of(mnemonic: str) -> tuple[Callable[[float], float], Format] | None:
    """The function and the format of a mnemonic, if the special-function unit carries it out."""
    name, _, form = mnemonic.rpartition("_")
    return (FUNCTIONS[name], FORMATS[form]) if name in FUNCTIONS else None


def as_double(value: Float) -> float:
    """The value as Python's float."""
    if value.is_infinite or value.is_nan:
        return math.nan if value.is_nan else math.copysign(math.inf, -value.sign or 1)
    m, e = value.dyadic()
    return math.copysign(math.ldexp(abs(m), e), -value.sign or 1)


def in_format(x: float, form: Format) -> Float:
    """A Python float rounded to a format."""
    if math.isnan(x) or math.isinf(x):
        return Float(form, form.quiet_nan if math.isnan(x) else form.infinity | (form.sign_bit if x < 0 else 0))
    top, bottom = x.as_integer_ratio()
    found = convert(Exact(top, 1 - bottom.bit_length()), form)
    return Float(form, found.bits | form.sign_bit) if math.copysign(1, x) < 0 else found


def ordinal(value: Float) -> int:
    """Neighbouring numbers differ by one."""
    return -value.magnitude if value.sign else value.magnitude


def accepts(mnemonic: str, source: int, result: int) -> bool:
    """Whether the unit may answer `result`."""
    function, form = function_of(mnemonic) or (None, None)
    assert function and form
    value, found = Float(form, source), Float(form, result)
    if value.is_nan:
        return found.is_nan and not found.is_signalling
    sources = [value, Float(form, source & form.sign_bit)] if value.is_denormal else [value]
    for candidate in sources:
        x = as_double(candidate)
        real = function(x)
        wanted = in_format(real, form)
        if wanted.is_nan or found.is_nan:
            if wanted.is_nan and found.is_nan and not found.is_signalling:
                return True
            continue
        if abs(ordinal(wanted) - ordinal(found)) <= ULPS or (found.magnitude == 0 and wanted.is_denormal):
            return True
        if mnemonic[:5] in ("v_sin", "v_cos") and abs(as_double(found) - real) <= ULPS * 2.0**-form.mantissa_bits:
            return True
    return False
