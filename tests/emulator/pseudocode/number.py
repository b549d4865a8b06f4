"""Binary floating point in exact integer arithmetic: one rounding an operation, whatever the format."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt


@dataclass(frozen=True)
class Format:
    """A format: `special` says what the top codes mean: IEEE's infinities and NaNs, one NaN, or numbers only."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    special: str = "ieee"

    @property
    def width(self) -> int:
        """Bits of a value."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def sign_bit(self) -> int:
        """The sign's bit."""
        return 1 << (self.width - 1)

    @property
    def infinity(self) -> int:
        """Bits of infinity, or of the first code after the finite numbers."""
        top = ((1 << self.exponent_bits) - 1) << self.mantissa_bits
        return {"ieee": top, "nan": self.sign_bit - 1, "none": self.sign_bit}[self.special]

    @property
    def quiet_nan(self) -> int:
        """Bits of the default NaN."""
        return self.infinity | (1 << (self.mantissa_bits - 1)) if self.special == "ieee" else self.sign_bit - 1


FORMATS = {
    form.name: form
    for form in (
        Format("f64", 11, 52, 1023),
        Format("f32", 8, 23, 127),
        Format("f16", 5, 10, 15),
        Format("bf16", 8, 7, 127),
        Format("fp8", 4, 3, 7, "nan"),
        Format("bf8", 5, 2, 15),
        Format("fp6", 2, 3, 1, "none"),
        Format("bf6", 3, 2, 3, "none"),
        Format("fp4", 2, 1, 1, "none"),
    )
}


@dataclass(frozen=True)
class Float:
    """A value of a format. `loose`: a NaN that arithmetic made, so that only its being a NaN is specified."""

    form: Format
    bits: int
    loose: bool = False

    @property
    def sign(self) -> int:
        """0 or 1."""
        return int(self.bits & self.form.sign_bit != 0)

    @property
    def magnitude(self) -> int:
        """The bits without the sign."""
        return self.bits & (self.form.sign_bit - 1)

    @property
    def is_nan(self) -> bool:
        """Whether it is no number."""
        if self.form.special == "ieee":
            return self.magnitude > self.form.infinity
        return self.form.special == "nan" and self.magnitude == self.form.infinity

    @property
    def is_infinite(self) -> bool:
        """Whether it is an infinity."""
        return self.form.special == "ieee" and self.magnitude == self.form.infinity

    @property
    def is_signalling(self) -> bool:
        """Whether it is a NaN with the quiet bit clear."""
        return self.is_nan and self.form.special == "ieee" and not self.bits >> (self.form.mantissa_bits - 1) & 1

    @property
    def exponent_field(self) -> int:
        """The biased exponent."""
        return self.magnitude >> self.form.mantissa_bits

    @property
    def is_denormal(self) -> bool:
        """Whether it is below the normal numbers and not zero."""
        return self.exponent_field == 0 and self.magnitude != 0

    def dyadic(self) -> tuple[int, int]:
        """A finite value as (m, e): m * 2**e."""
        field = self.exponent_field
        fraction = self.magnitude & ((1 << self.form.mantissa_bits) - 1)
        mantissa = fraction if field == 0 else fraction | 1 << self.form.mantissa_bits
        exponent = max(field, 1) - self.form.bias - self.form.mantissa_bits
        return (-mantissa if self.sign else mantissa), exponent


@dataclass(frozen=True)
class Exact:
    """A real number m * 2**e that no format has rounded yet."""

    m: int
    e: int


def nan(form: Format) -> Float:
    """The NaN of an operation without a result."""
    return Float(form, form.quiet_nan, loose=True)


def infinity(form: Format, sign: int) -> Float:
    """An infinity, or where there is none the largest number."""
    if form.special == "none":
        return Float(form, form.infinity - 1 | (form.sign_bit if sign else 0))
    return Float(form, form.infinity | (form.sign_bit if sign else 0))


def rounded(form: Format, sign: int, magnitude: int, exponent: int, sticky: bool = False, mode: str = "even") -> Float:
    """The value of `form` nearest to magnitude * 2**exponent (a bit more if `sticky`); `mode`: even, zero, saturate."""
    signed = form.sign_bit if sign else 0
    if magnitude == 0:
        return Float(form, signed)
    lowest = 1 - form.bias - form.mantissa_bits
    quantum = max(exponent + magnitude.bit_length() - 1 - form.mantissa_bits, lowest)
    shift = quantum - exponent
    if shift <= 0:
        units = magnitude << -shift
    else:
        units, rest = magnitude >> shift, magnitude & ((1 << shift) - 1)
        half = 1 << (shift - 1)
        if mode != "zero" and (rest > half or (rest == half and (sticky or units & 1))):
            units += 1
    bits = units + ((quantum - lowest) << form.mantissa_bits)
    if bits >= form.infinity:
        if mode in ("zero", "saturate") or form.special == "none":
            bits = form.infinity - 1
        else:
            bits = form.infinity
    return Float(form, signed | bits)


def from_dyadic(form: Format, m: int, e: int, zero_sign: int = 0, mode: str = "even") -> Float:
    """A real number in a format; `zero_sign` is the sign of an exact zero."""
    return rounded(form, int(m < 0) if m else zero_sign, abs(m), e, mode=mode)


def convert(value: Float | Exact, form: Format, mode: str = "even") -> Float:
    """A value in another format."""
    if isinstance(value, Exact):
        return from_dyadic(form, value.m, value.e, mode=mode)
    if value.form == form:
        return value
    if value.is_nan:
        return converted_nan(value, form)
    if value.is_infinite:
        return infinity(form, value.sign) if mode != "saturate" else rounded(form, value.sign, 1, 2000, mode=mode)
    m, e = value.dyadic()
    return from_dyadic(form, m, e, value.sign, mode)


def converted_nan(value: Float, form: Format) -> Float:
    """A NaN with its payload at the top, signalling or not, as the text's casts between formats need it."""
    shift = form.mantissa_bits - value.form.mantissa_bits
    if value.loose or form.special != "ieee":
        return nan(form)
    payload = value.bits & ((1 << value.form.mantissa_bits) - 1)
    payload = payload << shift if shift >= 0 else payload >> -shift
    return Float(form, (form.sign_bit if value.sign else 0) | form.infinity | payload or form.quiet_nan)


def negate(value: Float) -> Float:
    """With the sign flipped, NaNs too."""
    return Float(value.form, value.bits ^ value.form.sign_bit, value.loose)


def multiply_exactly(a: Float, b: Float) -> Float | tuple[int, int, int]:
    """The product: a special value, or (m, e, sign of zero)."""
    if a.is_nan or b.is_nan:
        return nan(a.form)
    sign = a.sign ^ b.sign
    if a.is_infinite or b.is_infinite:
        return nan(a.form) if 0 in (a.magnitude, b.magnitude) else infinity(a.form, sign)
    (ma, ea), (mb, eb) = a.dyadic(), b.dyadic()
    return ma * mb, ea + eb, sign


def multiply(a: Float, b: Float | Exact) -> Float:
    """The product, rounded once."""
    if isinstance(b, Exact):
        if a.is_nan or a.is_infinite:
            return nan(a.form) if a.is_nan else a
        m, e = a.dyadic()
        # Beyond this no format has a finite number other than zero.
        return from_dyadic(a.form, m * b.m, e + max(-9000, min(9000, b.e)), a.sign)
    product = multiply_exactly(a, b)
    return product if isinstance(product, Float) else from_dyadic(a.form, *product)


def fused_multiply_add(a: Float, b: Float, c: Float) -> Float:
    """The product plus c, rounded once."""
    product = multiply_exactly(a, b)
    if c.is_nan or (isinstance(product, Float) and product.is_nan):
        return nan(a.form)
    if isinstance(product, Float):
        return nan(a.form) if c.is_infinite and c.sign != product.sign else product
    if c.is_infinite:
        return c
    (m, e, sign), (mc, ec) = product, c.dyadic()
    low = min(e, ec)
    total = (m << (e - low)) + (mc << (ec - low))
    # An exact zero is positive unless both terms were negative zeros.
    return from_dyadic(a.form, total, low, sign & c.sign if m == 0 and mc == 0 else 0)


def add(a: Float, b: Float) -> Float:
    """The sum, rounded once."""
    one = from_dyadic(a.form, 1, 0)
    return fused_multiply_add(a, one, b)


def divide(a: Float, b: Float) -> Float:
    """The quotient, rounded once."""
    sign = a.sign ^ b.sign
    if a.is_nan or b.is_nan or (a.is_infinite and b.is_infinite) or (a.magnitude == 0 and b.magnitude == 0):
        return nan(a.form)
    if a.is_infinite or b.magnitude == 0:
        return infinity(a.form, sign)
    if b.is_infinite:
        return Float(a.form, a.form.sign_bit if sign else 0)
    (ma, ea), (mb, eb) = a.dyadic(), b.dyadic()
    quotient, rest = divmod(abs(ma) << 200, abs(mb))
    return rounded(a.form, sign, quotient, ea - eb - 200, rest != 0)


def square_root(a: Float) -> Float:
    """The square root, rounded once."""
    if a.is_nan or (a.sign and a.magnitude):
        return nan(a.form)
    if a.magnitude == 0 or a.is_infinite:
        return a
    m, e = a.dyadic()
    shift = 200 + (e & 1)
    scaled = m << shift
    root = isqrt(scaled)
    return rounded(a.form, 0, root, (e - shift) // 2, root * root != scaled)


def order(a: Float, b: Float) -> int | None:
    """-1, 0 or 1 as a is below, equal to or above b; None if they are unordered."""
    if a.is_nan or b.is_nan:
        return None
    keys = []
    for x in (a, b):
        m, e = x.dyadic()
        keys.append((1 - 2 * x.sign) << 4000 if x.is_infinite else m << (e + 1100))
    return (keys[0] > keys[1]) - (keys[0] < keys[1])
