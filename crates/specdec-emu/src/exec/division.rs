//! The three steps that make a correctly rounded f32 division out of a reciprocal: scale, fused steps, fix-up.
//!
//! `v_div_scale` moves numerator and denominator to where no step of the Newton iteration over- or underflows and
//! reports in VCC that the quotient must be scaled back; `v_div_fmas` does that; `v_div_fixup` puts in the special
//! cases. The numbers are AMD's (CDNA ISA, `V_DIV_SCALE_F32`).

use crate::exec::lane_op::{lane_table, write};
use crate::exec::mask;
use crate::exec::modifier::{self, Shape};
use crate::exec::vector_f32::{fma, ldexp};
use crate::exec::{Flow, Handler};
use crate::inst::Inst;
use crate::op::Op;
use crate::wave::{Wave, LANES, VCC};

/// Biased exponent.
const fn exponent(x: f32) -> i32 {
    (x.to_bits() >> 23 & 0xff) as i32
}

fn is_denormal(x: f32) -> bool {
    x != 0.0 && x.abs() < f32::MIN_POSITIVE
}

/// The scaled operand and whether the quotient needs scaling back.
fn scale(value: f32, denominator: f32, numerator: f32) -> (f32, bool) {
    let scales_denominator = value.to_bits() == denominator.to_bits();
    let scales_numerator = value.to_bits() == numerator.to_bits();
    let reciprocal = (1.0 / f64::from(denominator)).abs();
    let reciprocal_is_denormal = reciprocal > 0.0 && reciprocal < f64::from(f32::MIN_POSITIVE);
    let quotient = f64::from(numerator).abs() / f64::from(denominator).abs();
    let quotient_is_denormal = quotient > 0.0 && quotient < f64::from(f32::MIN_POSITIVE);
    if numerator == 0.0 || denominator == 0.0 {
        (f32::NAN, false)
    } else if exponent(numerator) - exponent(denominator) >= 96 {
        (if scales_denominator { ldexp(value, 64) } else { value }, true)
    } else if is_denormal(denominator) {
        (ldexp(value, 64), false)
    } else if reciprocal_is_denormal && quotient_is_denormal {
        // The ISA text says 2^64 here too, which would turn every denominator that comes here into infinity.
        (if scales_denominator { ldexp(value, -64) } else { value }, true)
    } else if reciprocal_is_denormal {
        (ldexp(value, -64), false)
    } else if quotient_is_denormal {
        (if scales_numerator { ldexp(value, 64) } else { value }, true)
    } else if exponent(numerator) <= 23 {
        (ldexp(value, 64), false)
    } else {
        (value, false)
    }
}

fn div_scale(inst: &Inst, wave: &mut Wave) -> Flow {
    let sources = modifier::sources(inst, wave, Shape::words(3));
    let mut out = [0; LANES];
    let mut flags = [0; LANES];
    for lane in 0..LANES {
        let [value, denominator, numerator] = [0, 1, 2].map(|index: usize| f32::from_bits(sources.lanes[index][lane]));
        let (scaled, scales_back) = scale(value, denominator, numerator);
        out[lane] = scaled.to_bits();
        flags[lane] = u8::from(scales_back);
    }
    write(inst, wave, 0, &out);
    mask::write(wave, inst.sdst, mask::pack(&flags));
    Flow::Next
}

/// `(a * b + c) * 2^shift` rounded once.
fn scaled_fma(a: f32, b: f32, c: f32, shift: i32) -> f32 {
    let (product, c64) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c64;
    if !sum.is_finite() {
        return fma(a, b, c);
    }
    // Rounding the sum to odd makes the final rounding to f32, wherever its last bit falls, the only one.
    let back = sum - product;
    let error = (product - (sum - back)) + (c64 - back);
    let bits = sum.to_bits();
    let odd = if error == 0.0 || bits & 1 == 1 {
        bits
    } else if (error > 0.0) == (sum > 0.0) {
        bits + 1
    } else {
        bits - 1
    };
    let factor = f64::from_bits(((shift + 1023) as u64) << 52);
    (f64::from_bits(odd) * factor) as f32
}

fn div_fmas(inst: &Inst, wave: &mut Wave) -> Flow {
    let sources = modifier::sources(inst, wave, Shape::words(3));
    let scales_back = wave.read64(VCC);
    let mut out = [0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        let [a, b, c] = [0, 1, 2].map(|index: usize| f32::from_bits(sources.lanes[index][lane]));
        *out = if scales_back >> lane & 1 == 0 {
            fma(a, b, c)
        } else {
            scaled_fma(a, b, c, if exponent(c) > 127 { 64 } else { -64 })
        }
        .to_bits();
    }
    write(inst, wave, 0, &out);
    Flow::Next
}

/// The quotient with the special cases put in and the sign made right.
pub(super) fn fixup(quotient: f32, denominator: f32, numerator: f32) -> f32 {
    const QUIET: u32 = 0x0040_0000;
    let sign = (denominator.to_bits() ^ numerator.to_bits()) & 0x8000_0000;
    let magnitude = if numerator.is_nan() {
        return f32::from_bits(numerator.to_bits() | QUIET);
    } else if denominator.is_nan() {
        return f32::from_bits(denominator.to_bits() | QUIET);
    } else if (numerator == 0.0 && denominator == 0.0) || (numerator.is_infinite() && denominator.is_infinite()) {
        return f32::from_bits(0xffc0_0000);
    } else if denominator == 0.0
        || numerator.is_infinite()
        // So far apart the quotient overflows for sure, and the iteration, having met infinity, holds a NaN.
        || (denominator.is_finite() && exponent(numerator) - exponent(denominator) > 128)
    {
        f32::INFINITY
    } else if denominator.is_infinite() || numerator == 0.0 || exponent(numerator) - exponent(denominator) < -150 {
        0.0
    } else {
        quotient.abs()
    };
    f32::from_bits(magnitude.to_bits() | sign)
}

lane_table! {
    VDivFixupF32(quotient: f32, denominator: f32, numerator: f32) -> f32 { fixup(quotient, denominator, numerator) }
}

/// The handler of `v_div_scale` and `v_div_fmas`.
pub(super) fn step_handler(inst: &Inst) -> Option<Handler> {
    match inst.op {
        Op::VDivScaleF32 => Some(div_scale),
        Op::VDivFmasF32 => Some(div_fmas),
        _ => None,
    }
}
