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
fn binary(a: f16, b: f16, step: impl Fn(f32, f32) -> f32) -> f16 {
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

lane_table! {
    VAddF16(a: f16, b: f16) -> f16 { binary(a, b, single::add) }
    VSubF16(a: f16, b: f16) -> f16 { binary(a, b, |a, b| single::add(a, -b)) }
    VSubrevF16(a: f16, b: f16) -> f16 { binary(b, a, |a, b| single::add(a, -b)) }
    VMulF16(a: f16, b: f16) -> f16 { binary(a, b, single::mul) }
    VMinF16(a: f16, b: f16) -> f16 { pick(a, b, single::min) }
    VMaxF16(a: f16, b: f16) -> f16 { pick(a, b, single::max) }
    VFmaF16(a: f16, b: f16, c: f16) -> f16 = keeps { f16::from_f64(a.to_f64().mul_add(b.to_f64(), c.to_f64())) }
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
}
