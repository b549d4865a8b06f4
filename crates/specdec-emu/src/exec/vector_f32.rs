//! Single-precision lane arithmetic.
//!
//! Denormals are kept and rounding is to nearest even, the only mode our code objects ask for. A NaN result is the
//! first NaN source made quiet, or the positive default NaN: x86's own default is negative, and the bits of a NaN
//! reach memory.

use crate::exec::lane_op::lane_table;
use crate::exec::transcendental as special;

const QUIET: u32 = 0x0040_0000;
const DEFAULT_NAN: u32 = 0x7fc0_0000;

/// `result`, or the NaN that the machine makes of these sources.
#[inline(always)]
pub(super) fn settle(result: f32, a: f32, b: f32, c: f32) -> f32 {
    let nan = if a.is_nan() {
        a.to_bits() | QUIET
    } else if b.is_nan() {
        b.to_bits() | QUIET
    } else if c.is_nan() {
        c.to_bits() | QUIET
    } else {
        DEFAULT_NAN
    };
    f32::from_bits(if result.is_nan() { nan } else { result.to_bits() })
}

/// `a + b` of the vector unit.
#[inline(always)]
pub(super) fn add(a: f32, b: f32) -> f32 {
    settle(a + b, a, b, 0.0)
}

/// `a * b` of the vector unit.
#[inline(always)]
pub(super) fn mul(a: f32, b: f32) -> f32 {
    settle(a * b, a, b, 0.0)
}

/// `a * b + c` rounded once.
#[inline(always)]
pub(super) fn fma(a: f32, b: f32, c: f32) -> f32 {
    settle(a.mul_add(b, c), a, b, c)
}

#[inline(always)]
fn sub(a: f32, b: f32) -> f32 {
    settle(a - b, a, b, 0.0)
}

#[inline(always)]
fn is_signalling(x: f32) -> bool {
    x.is_nan() && x.to_bits() & QUIET == 0
}

/// Minimum or maximum in IEEE mode: a quiet NaN loses against a number, a signalling one wins and is made quiet.
#[inline(always)]
fn pick(a: f32, b: f32, number: u32) -> f32 {
    let bits = if is_signalling(a) {
        a.to_bits() | QUIET
    } else if is_signalling(b) {
        b.to_bits() | QUIET
    } else if a.is_nan() {
        b.to_bits()
    } else if b.is_nan() {
        a.to_bits()
    } else {
        number
    };
    f32::from_bits(bits)
}

/// Minimum; the smaller zero is the negative one, and equal numbers differ at most in that sign.
#[inline(always)]
pub(super) fn min(a: f32, b: f32) -> f32 {
    let (x, y) = (a.to_bits(), b.to_bits());
    pick(
        a,
        b,
        if a == b {
            x | y
        } else if a < b {
            x
        } else {
            y
        },
    )
}

/// Maximum; see [`min`].
#[inline(always)]
pub(super) fn max(a: f32, b: f32) -> f32 {
    let (x, y) = (a.to_bits(), b.to_bits());
    pick(
        a,
        b,
        if a == b {
            x & y
        } else if a > b {
            x
        } else {
            y
        },
    )
}

/// `number`, unless a source is a NaN: then the first signalling one, or the first one, made quiet.
#[inline(always)]
pub(super) fn nan_wins(number: f32, a: f32, b: f32) -> f32 {
    let first = if is_signalling(b) && !is_signalling(a) { b } else { a };
    settle(if a.is_nan() || b.is_nan() { f32::NAN } else { number }, first, b, 0.0)
}

/// IEEE 754-2019 maximum: any NaN wins.
#[inline(always)]
fn maximum(a: f32, b: f32) -> f32 {
    nan_wins(max(a, b), a, b)
}

#[inline(always)]
fn minimum(a: f32, b: f32) -> f32 {
    nan_wins(min(a, b), a, b)
}

/// The middle value, found as the manual does: the larger of the two that are not the maximum, which decides between
/// zeros of both signs. With a NaN among the sources, their minimum.
#[inline(always)]
fn median(a: f32, b: f32, c: f32) -> f32 {
    let has_nan = a.is_nan() | b.is_nan() | c.is_nan();
    let largest = max(max(a, b), c);
    let (one, other) = if largest == a {
        (b, c)
    } else if largest == b {
        (a, c)
    } else {
        (a, b)
    };
    if has_nan {
        min(min(a, b), c)
    } else {
        max(one, other)
    }
}

#[inline(always)]
fn quiet(x: f32) -> f32 {
    settle(x, x, x, x)
}

/// The largest float below one: what hardware returns where `x - floor(x)` would round to one.
const BELOW_ONE: f32 = f32::from_bits(0x3f7f_ffff);

#[inline(always)]
fn fract(x: f32) -> f32 {
    let difference = x - x.floor();
    settle(if difference > BELOW_ONE { BELOW_ONE } else { difference }, x, x, x)
}

/// `x * 2^exponent` rounded once: an `f64` holds the exact product of every exponent that matters.
#[inline(always)]
pub(super) fn ldexp(x: f32, exponent: i32) -> f32 {
    let biased = (exponent.clamp(-400, 400) + 1023) as u64;
    quiet((f64::from(x) * f64::from_bits(biased << 52)) as f32)
}

/// Mantissa in 0.5..1 and exponent of a finite number; denormals are normalised.
#[inline(always)]
pub(super) fn frexp(x: f32) -> (f32, i32) {
    if x == 0.0 || !x.is_finite() {
        return (quiet(x), 0);
    }
    let bits = f64::from(x).to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i32 - 1022;
    let mantissa = f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52);
    (mantissa as f32, exponent)
}

lane_table! {
    VAddF32(a: f32, b: f32) -> f32 { add(a, b) }
    VSubF32(a: f32, b: f32) -> f32 { sub(a, b) }
    VSubrevF32(a: f32, b: f32) -> f32 { sub(b, a) }
    VMulF32(a: f32, b: f32) -> f32 { mul(a, b) }
    VMulLegacyF32(a: f32, b: f32) -> f32 { if a == 0.0 || b == 0.0 { 0.0 } else { mul(a, b) } }
    VFmaF32(a: f32, b: f32, c: f32) -> f32 { fma(a, b, c) }
    VFmacF32(a: f32, b: f32, c: f32) -> f32 { fma(a, b, c) }
    VFmaakF32(a: f32, b: f32, c: f32) -> f32 { fma(a, b, c) }
    VFmamkF32(a: f32, b: f32, c: f32) -> f32 { fma(a, b, c) }
    VMinF32(a: f32, b: f32) -> f32 { min(a, b) }
    VMaxF32(a: f32, b: f32) -> f32 { max(a, b) }
    VMin3F32(a: f32, b: f32, c: f32) -> f32 { min(min(a, b), c) }
    VMax3F32(a: f32, b: f32, c: f32) -> f32 { max(max(a, b), c) }
    VMed3F32(a: f32, b: f32, c: f32) -> f32 { median(a, b, c) }
    VMinimum3F32(a: f32, b: f32, c: f32) -> f32 { minimum(minimum(a, b), c) }
    VMaximum3F32(a: f32, b: f32, c: f32) -> f32 { maximum(maximum(a, b), c) }
    VFloorF32(a: f32) -> f32 { quiet(a.floor()) }
    VCeilF32(a: f32) -> f32 { quiet(a.ceil()) }
    VTruncF32(a: f32) -> f32 { quiet(a.trunc()) }
    VRndneF32(a: f32) -> f32 { quiet(a.round_ties_even()) }
    VFractF32(a: f32) -> f32 { fract(a) }
    VLdexpF32(a: f32, exponent: i32) -> f32 { ldexp(a, exponent) }
    VFrexpMantF32(a: f32) -> f32 { frexp(a).0 }
    VFrexpExpI32F32(a: f32) -> i32 { frexp(a).1 }
    VExpF32(a: f32) -> f32 { special::exp2(a) }
    VLogF32(a: f32) -> f32 { special::log2(a) }
    VRcpF32(a: f32) -> f32 { special::reciprocal(a) }
    VRcpIflagF32(a: f32) -> f32 { special::reciprocal(a) }
    VRsqF32(a: f32) -> f32 { special::reciprocal_sqrt(a) }
    VSqrtF32(a: f32) -> f32 { special::sqrt(a) }
    VSinF32(a: f32) -> f32 { special::sin_turns(a) }
    VCosF32(a: f32) -> f32 { special::cos_turns(a) }
}
