//! Half-precision lane arithmetic, through single precision: 24 bits hold enough of a sum, product, quotient or root
//! of two 11-bit numbers that rounding twice is rounding once. `v_fma_f16` goes through double precision.

use crate::exec::lane_op::lane_table;
use crate::exec::transcendental as special;
use crate::exec::vector_f32 as single;
use half::f16;

#[inline(always)]
fn unary(a: f16, step: impl Fn(f32) -> f32) -> f16 {
    f16::from_f32(step(a.to_f32()))
}

#[inline(always)]
pub(super) fn binary(a: f16, b: f16, step: impl Fn(f32, f32) -> f32) -> f16 {
    f16::from_f32(step(a.to_f32(), b.to_f32()))
}

const QUIET: u16 = 0x0200;

#[inline(always)]
fn is_signalling(x: f16) -> bool {
    x.is_nan() && x.to_bits() & QUIET == 0
}

/// What `step` picks of two numbers; NaNs as in single precision, which cannot be asked: widening makes them quiet.
#[inline(always)]
pub(super) fn pick(a: f16, b: f16, step: impl Fn(f32, f32) -> f32) -> f16 {
    if is_signalling(a) {
        f16::from_bits(a.to_bits() | QUIET)
    } else if is_signalling(b) {
        f16::from_bits(b.to_bits() | QUIET)
    } else {
        binary(a, b, step)
    }
}

#[inline(always)]
pub(super) fn min(a: f16, b: f16) -> f16 {
    pick(a, b, single::min)
}

#[inline(always)]
pub(super) fn max(a: f16, b: f16) -> f16 {
    pick(a, b, single::max)
}

/// IEEE 754-2019 maximum of the two numbers that `step` picks from: any NaN wins.
#[inline(always)]
pub(super) fn nan_wins(a: f16, b: f16, step: impl Fn(f32, f32) -> f32) -> f16 {
    let first = if a.is_nan() && (is_signalling(a) || !is_signalling(b)) { a } else { b };
    if a.is_nan() || b.is_nan() {
        f16::from_bits(first.to_bits() | QUIET)
    } else {
        binary(a, b, step)
    }
}

/// `x` in f16, rounded once. `f16::from_f64` may round to f32 first; rounding to odd there keeps what decides a tie.
#[inline(always)]
fn narrow(x: f64) -> f16 {
    let nearest = x as f32;
    let (bits, back) = (nearest.to_bits(), f64::from(nearest));
    f16::from_f32(if back == x || x.is_nan() || bits & 1 == 1 {
        nearest
    } else {
        f32::from_bits(if back.abs() > x.abs() { bits - 1 } else { bits + 1 })
    })
}

/// `a * b + c` rounded once: 53 bits hold every sum that does not overflow f16 anyway.
#[inline(always)]
pub(super) fn fma(a: f16, b: f16, c: f16) -> f16 {
    narrow(a.to_f64().mul_add(b.to_f64(), c.to_f64()))
}

/// The middle value, found as the manual does: the larger of the two that are not the maximum.
#[inline(always)]
fn median(a: f16, b: f16, c: f16) -> f16 {
    let largest = max(max(a, b), c);
    if a.is_nan() || b.is_nan() || c.is_nan() {
        min(min(a, b), c)
    } else if largest == a {
        max(b, c)
    } else if largest == b {
        max(a, c)
    } else {
        max(a, b)
    }
}

/// The largest f16 below one.
const BELOW_ONE: f16 = f16::from_bits(0x3bff);

#[inline(always)]
fn fract(x: f16) -> f16 {
    let difference = unary(x, |x| x - x.floor());
    if difference > BELOW_ONE {
        BELOW_ONE
    } else {
        difference
    }
}

/// The quotient with the special cases put in and the sign made right.
#[inline(always)]
fn fixup(quotient: f16, denominator: f16, numerator: f16) -> f16 {
    let sign = (denominator.to_bits() ^ numerator.to_bits()) & 0x8000;
    let (n, d) = (numerator.to_bits() & 0x7fff, denominator.to_bits() & 0x7fff);
    f16::from_bits(if numerator.is_nan() {
        numerator.to_bits() | QUIET
    } else if denominator.is_nan() {
        denominator.to_bits() | QUIET
    } else if (n == 0 && d == 0) || (n == 0x7c00 && d == 0x7c00) {
        0xfe00
    } else if d == 0 || n == 0x7c00 {
        sign | 0x7c00
    } else if d == 0x7c00 || n == 0 {
        sign
    } else {
        sign | quotient.to_bits() & 0x7fff
    })
}

lane_table! {
    VAddF16(a: f16, b: f16) -> f16 { binary(a, b, single::add) }
    VSubF16(a: f16, b: f16) -> f16 { binary(a, b, |a, b| single::add(a, -b)) }
    VSubrevF16(a: f16, b: f16) -> f16 { binary(b, a, |a, b| single::add(a, -b)) }
    VMulF16(a: f16, b: f16) -> f16 { binary(a, b, single::mul) }
    VMinF16(a: f16, b: f16) -> f16 { min(a, b) }
    VMaxF16(a: f16, b: f16) -> f16 { max(a, b) }
    VFmaF16(a: f16, b: f16, c: f16) -> f16 = keeps { fma(a, b, c) }
    VFloorF16(a: f16) -> f16 { unary(a, f32::floor) }
    VCeilF16(a: f16) -> f16 { unary(a, f32::ceil) }
    VTruncF16(a: f16) -> f16 { unary(a, f32::trunc) }
    VRndneF16(a: f16) -> f16 { unary(a, f32::round_ties_even) }
    VRcpF16(a: f16) -> f16 { unary(a, special::reciprocal) }
    VSqrtF16(a: f16) -> f16 { unary(a, special::sqrt) }
    VRsqF16(a: f16) -> f16 { unary(a, special::reciprocal_sqrt) }
    VExpF16(a: f16) -> f16 { unary(a, special::exp2) }
    VLogF16(a: f16) -> f16 { unary(a, special::log2) }
    VLdexpF16(a: f16, exponent: i16) -> f16 { unary(a, |a| single::ldexp(a, i32::from(exponent))) }
    VFractF16(a: f16) -> f16 { fract(a) }
    VFrexpMantF16(a: f16) -> f16 { unary(a, |a| single::frexp(a).0) }
    VFrexpExpI16F16(a: f16) -> i16 { single::frexp(a.to_f32()).1 as i16 }
    VSinF16(a: f16) -> f16 { unary(a, special::sin_turns) }
    VCosF16(a: f16) -> f16 { unary(a, special::cos_turns) }
    VMin3F16(a: f16, b: f16, c: f16) -> f16 = keeps { min(min(a, b), c) }
    VMax3F16(a: f16, b: f16, c: f16) -> f16 = keeps { max(max(a, b), c) }
    VMed3F16(a: f16, b: f16, c: f16) -> f16 = keeps { median(a, b, c) }
    VDivFixupF16(quotient: f16, denominator: f16, numerator: f16) -> f16 = keeps {
        fixup(quotient, denominator, numerator)
    }
}
