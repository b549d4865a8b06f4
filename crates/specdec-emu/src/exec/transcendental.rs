//! The special-function unit: exp2, log2, reciprocal, square roots, sine and cosine.
//!
//! Hardware promises about one unit in the last place; here results are those of an `f64` evaluation rounded once,
//! so correctly rounded but for ties that need more than 53 bits to see. The polynomials are ours and not the
//! platform's libm, because a run must give the same bits on every host. Like the hardware's, these functions
//! flush denormal sources and results to zero of their sign, whatever the denormal mode says: compilers scale
//! around it.

const QUIET: u32 = 0x0040_0000;
const DEFAULT_NAN: f32 = f32::from_bits(0x7fc0_0000);

/// The value with a denormal replaced by zero of its sign.
#[inline(always)]
fn flush(x: f32) -> f32 {
    f32::from_bits(if x.abs() < f32::MIN_POSITIVE { x.to_bits() & 0x8000_0000 } else { x.to_bits() })
}

/// `result`, unless the source is a NaN, or the result is one where the source was a number.
#[inline(always)]
fn settle(x: f32, result: f32) -> f32 {
    let nan = if x.is_nan() { f32::from_bits(x.to_bits() | QUIET) } else { DEFAULT_NAN };
    if x.is_nan() || result.is_nan() {
        nan
    } else {
        flush(result)
    }
}

/// Taylor coefficients of `2^f`: `ln(2)^i / i!`; at `|f| <= 1/2` the first one left out is below 2^-57.
const EXP2: [f64; 13] = exp2_coefficients();

const fn exp2_coefficients() -> [f64; 13] {
    let mut out = [1.0; 13];
    let mut index = 1;
    while index < 13 {
        out[index] = out[index - 1] * std::f64::consts::LN_2 / index as f64;
        index += 1;
    }
    out
}

/// `2^x`.
#[inline(always)]
pub(super) fn exp2(x: f32) -> f32 {
    let clamped = f64::from(x.clamp(-200.0, 200.0));
    let whole = clamped.round_ties_even();
    let part = clamped - whole;
    let mut sum = EXP2[12];
    for coefficient in EXP2[..12].iter().rev() {
        sum = sum.mul_add(part, *coefficient);
    }
    // A NaN came through the clamp; its cast is zero, and `settle` puts the NaN back.
    let scale = f64::from_bits(((whole as i32 + 1023) as u64) << 52);
    settle(x, (sum * scale) as f32)
}

/// `log2(x)`.
#[inline(always)]
pub(super) fn log2(x: f32) -> f32 {
    let x = if x.is_nan() { x } else { flush(x) };
    let bits = f64::from(x).to_bits();
    // The exponent is split so that the mantissa lies around one, where the logarithm is small and must be exact.
    let shifted = bits.wrapping_sub(0x3fe6_a09e_667f_3bcd);
    let exponent = (shifted as i64 >> 52) as i32;
    let mantissa = f64::from_bits(bits.wrapping_sub(shifted & 0xfff0_0000_0000_0000));
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let square = ratio * ratio;
    let mut sum = 0.0;
    for index in (0..12).rev() {
        sum = f64::mul_add(sum, square, 1.0 / (2 * index + 1) as f64);
    }
    let logarithm = (ratio * sum).mul_add(2.0 * std::f64::consts::LOG2_E, f64::from(exponent)) as f32;
    let result = if x == 0.0 {
        f32::NEG_INFINITY
    } else if x < 0.0 {
        DEFAULT_NAN
    } else if x == f32::INFINITY {
        f32::INFINITY
    } else {
        logarithm
    };
    settle(x, result)
}

/// `1 / x`.
#[inline(always)]
pub(super) fn reciprocal(x: f32) -> f32 {
    settle(x, 1.0 / flush(x))
}

/// `1 / sqrt(x)`.
#[inline(always)]
pub(super) fn reciprocal_sqrt(x: f32) -> f32 {
    settle(x, (1.0 / f64::from(flush(x)).sqrt()) as f32)
}

/// `sqrt(x)`.
#[inline(always)]
pub(super) fn sqrt(x: f32) -> f32 {
    settle(x, flush(x).sqrt())
}

/// Sine of an angle in turns; beyond 256 turns hardware returns zero.
#[inline(always)]
pub(super) fn sin_turns(x: f32) -> f32 {
    let turns = f64::from(flush(x));
    let part = turns - turns.round_ties_even();
    let result = if x.is_infinite() {
        DEFAULT_NAN
    } else if x.abs() > 256.0 {
        0.0
    } else {
        sin_of_part(part) as f32
    };
    settle(x, result)
}

/// Cosine of an angle in turns; beyond 256 turns hardware returns one.
#[inline(always)]
pub(super) fn cos_turns(x: f32) -> f32 {
    let turns = f64::from(flush(x));
    let part = (turns - turns.round_ties_even()).abs();
    let result = if x.is_infinite() {
        DEFAULT_NAN
    } else if x.abs() > 256.0 {
        1.0
    } else {
        sin_of_part(0.25 - part) as f32
    };
    settle(x, result)
}

/// Sine of `part` turns, -1/2 to 1/2.
#[inline(always)]
fn sin_of_part(part: f64) -> f64 {
    // sin(pi - a) = sin(a) brings the angle within a quarter turn, where the series converges fast.
    let folded = if part > 0.25 {
        0.5 - part
    } else if part < -0.25 {
        -0.5 - part
    } else {
        part
    };
    let angle = folded * std::f64::consts::TAU;
    let square = angle * angle;
    let mut sum = 1.0;
    for index in (1..12).rev() {
        sum = 1.0 - sum * square / (2 * index * (2 * index + 1)) as f64;
    }
    sum * angle
}
