//! Double-precision functions of one lane; see [`crate::exec::vector_f32`] for the rules on NaNs.

const QUIET: u64 = 1 << 51;
const DEFAULT_NAN: u64 = 0x7ff8_0000_0000_0000;
/// The largest double below one.
const BELOW_ONE: f64 = f64::from_bits(0x3fef_ffff_ffff_ffff);

/// `result`, or the NaN that the machine makes of these sources.
#[inline(always)]
pub(super) fn settle(result: f64, sources: [f64; 3]) -> f64 {
    if !result.is_nan() {
        return result;
    }
    let first = sources.into_iter().find(|source| source.is_nan());
    f64::from_bits(first.map_or(DEFAULT_NAN, |nan| nan.to_bits() | QUIET))
}

/// `result` of a function of one source.
#[inline(always)]
pub(super) fn of_one(x: f64, result: f64) -> f64 {
    settle(result, [x, 0.0, 0.0])
}

/// Minimum or maximum: a signalling NaN wins, a quiet one loses against a number; `number` is the answer for two.
#[inline(always)]
fn pick(a: f64, b: f64, number: u64) -> f64 {
    let is_signalling = |x: f64| x.is_nan() && x.to_bits() & QUIET == 0;
    f64::from_bits(if is_signalling(a) {
        a.to_bits() | QUIET
    } else if is_signalling(b) {
        b.to_bits() | QUIET
    } else if a.is_nan() {
        b.to_bits()
    } else if b.is_nan() {
        a.to_bits()
    } else {
        number
    })
}

/// Minimum; of two zeros the negative one.
#[inline(always)]
pub(super) fn min(a: f64, b: f64) -> f64 {
    let (x, y) = (a.to_bits(), b.to_bits());
    pick(a, b, if a == b { x | y } else { (if a < b { a } else { b }).to_bits() })
}

/// Maximum; of two zeros the positive one.
#[inline(always)]
pub(super) fn max(a: f64, b: f64) -> f64 {
    let (x, y) = (a.to_bits(), b.to_bits());
    pick(a, b, if a == b { x & y } else { (if a > b { a } else { b }).to_bits() })
}

/// The fractional part, below one even where the difference would round to it.
#[inline(always)]
pub(super) fn fract(x: f64) -> f64 {
    let difference = x - x.floor();
    of_one(x, if difference > BELOW_ONE { BELOW_ONE } else { difference })
}

/// Mantissa in 0.5..1 and exponent of a finite number; denormals are normalised.
#[inline(always)]
pub(super) fn frexp(x: f64) -> (f64, i32) {
    if x == 0.0 || !x.is_finite() {
        return (of_one(x, x), 0);
    }
    let is_denormal = x.abs() < f64::MIN_POSITIVE;
    let normal = if is_denormal { x * power(64) } else { x };
    let exponent = (normal.to_bits() >> 52 & 0x7ff) as i32 - 1022 - if is_denormal { 64 } else { 0 };
    (f64::from_bits(normal.to_bits() & !(0x7ff << 52) | 1022 << 52), exponent)
}

/// Two to a power in the range of normal numbers.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// `x * 2^exponent` rounded once: the first factor is exact.
#[inline(always)]
pub(super) fn ldexp(x: f64, exponent: i32) -> f64 {
    let (mantissa, own) = frexp(x);
    let total = own.saturating_add(exponent).clamp(-2000, 2000);
    let first = if total < 0 { -1000 } else { 1000 };
    mantissa * power(first) * power(total - first)
}
