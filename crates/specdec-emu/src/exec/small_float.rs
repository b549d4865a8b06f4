//! The 4-, 6- and 8-bit float formats of the matrix unit (OCP microscaling formats and OCP FP8).

/// A format by its `cbsz`/`blgp` number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// FP8 E4M3: no infinity, NaN is all ones.
    E4m3,
    /// BF8 E5M2: IEEE-like.
    E5m2,
    /// FP6 E2M3.
    E2m3,
    /// BF6 E3M2.
    E3m2,
    /// FP4 E2M1.
    E2m1,
}

impl Format {
    /// The format of a `cbsz` or `blgp` field.
    pub(super) const fn from_field(field: u8) -> Option<Self> {
        Some(match field {
            0 => Self::E4m3,
            1 => Self::E5m2,
            2 => Self::E2m3,
            3 => Self::E3m2,
            4 => Self::E2m1,
            _ => return None,
        })
    }

    /// Bits of one value.
    pub(super) const fn num_bits(self) -> usize {
        match self {
            Self::E4m3 | Self::E5m2 => 8,
            Self::E2m3 | Self::E3m2 => 6,
            Self::E2m1 => 4,
        }
    }

    /// The value of every code; codes beyond the format's repeat it.
    pub(super) const fn values(self) -> &'static [f32; 256] {
        match self {
            Self::E4m3 => &E4M3,
            Self::E5m2 => &E5M2,
            Self::E2m3 => &E2M3,
            Self::E3m2 => &E3M2,
            Self::E2m1 => &E2M1,
        }
    }
}

static E4M3: [f32; 256] = table(4, 3, 7);
static E5M2: [f32; 256] = table(5, 2, 15);
static E2M3: [f32; 256] = table(2, 3, 1);
static E3M2: [f32; 256] = table(3, 2, 3);
static E2M1: [f32; 256] = table(2, 1, 1);

const fn table(exponent_bits: u32, mantissa_bits: u32, bias: i32) -> [f32; 256] {
    let mut out = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        out[code] = value(code as u32, exponent_bits, mantissa_bits, bias);
        code += 1;
    }
    out
}

const fn value(code: u32, exponent_bits: u32, mantissa_bits: u32, bias: i32) -> f32 {
    let mantissa = code & ((1 << mantissa_bits) - 1);
    let exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1);
    let sign = if code >> (mantissa_bits + exponent_bits) & 1 == 1 { -1.0 } else { 1.0 };
    let is_top = exponent == (1 << exponent_bits) - 1;
    if exponent_bits == 5 && is_top {
        return if mantissa == 0 { sign * f32::INFINITY } else { f32::NAN };
    }
    if exponent_bits == 4 && is_top && mantissa == 7 {
        return f32::NAN;
    }
    // A denormal has exponent 1 without the leading one.
    let (leading, exponent) = if exponent == 0 { (0, 1) } else { (1 << mantissa_bits, exponent) };
    let unit = f32::from_bits(((exponent as i32 - bias - mantissa_bits as i32 + 127) as u32) << 23);
    sign * (leading + mantissa) as f32 * unit
}

/// Rounds to E4M3, to nearest even. Beyond the largest value the result is NaN, which is what the machine does
/// with `FP16_OVFL` clear, as at kernel start.
pub(super) fn to_e4m3(x: f32) -> u8 {
    // 464 is the tie between the largest value and the next, which does not exist.
    if x.is_nan() || x.abs() > 464.0 {
        sign_bit(x) | 0x7f
    } else {
        sign_bit(x) | round_magnitude(x.abs(), 3, 7)
    }
}

/// Rounds to E5M2, to nearest even, overflowing to infinity.
pub(super) fn to_e5m2(x: f32) -> u8 {
    let code = if x.is_nan() {
        0x7f
    } else if x.abs() >= 61_440.0 {
        0x7c
    } else {
        round_magnitude(x.abs(), 2, 15)
    };
    sign_bit(x) | code
}

fn sign_bit(x: f32) -> u8 {
    (x.to_bits() >> 24) as u8 & 0x80
}

/// The nearest code of a magnitude in range.
fn round_magnitude(magnitude: f32, mantissa_bits: i32, bias: i32) -> u8 {
    // Multiples of the spacing at this magnitude; the spacing stops shrinking where denormals begin.
    let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(1 - bias);
    let per_unit = f32::from_bits(((mantissa_bits - exponent + 127) as u32) << 23);
    let steps = (magnitude * per_unit).round_ties_even() as i32;
    // Above the denormals the steps hold the leading one, so they carry into the exponent field by themselves.
    (steps + ((exponent + bias - 1) << mantissa_bits)) as u8
}

/// Rounds to a 6-bit format, to nearest even, saturating; a NaN becomes the largest value, the formats having none.
fn to_six_bits(x: f32, mantissa_bits: i32, bias: i32) -> u8 {
    const LARGEST: u8 = 0x1f;
    let sign = (x.to_bits() >> 26) as u8 & 0x20;
    // Beyond any value of either format rounding by itself would run out of its integers.
    let code = if x.is_nan() || x.abs() > 64.0 { LARGEST } else { round_magnitude(x.abs(), mantissa_bits, bias) };
    sign | code.min(LARGEST)
}

/// The code of `x` in a format.
pub(super) fn encode(format: Format, x: f32) -> u32 {
    match format {
        Format::E4m3 => u32::from(to_e4m3(x)),
        Format::E5m2 => u32::from(to_e5m2(x)),
        Format::E2m3 => u32::from(to_six_bits(x, 3, 1)),
        Format::E3m2 => u32::from(to_six_bits(x, 2, 3)),
        Format::E2m1 => to_e2m1(x),
    }
}

/// Rounds `x` to an E2M1 code, ties to the even code, saturating at 6; a NaN becomes 6, E2M1 having none.
#[inline(always)]
pub(super) fn to_e2m1(x: f32) -> u32 {
    // Against the midpoints between neighbours, each moved up by one bit pattern where the tie goes down. Patterns of
    // magnitudes order as the magnitudes do, NaNs last; compared as signed integers, lanes vectorise.
    let magnitude = (x.to_bits() & 0x7fff_ffff) as i32;
    let reaches = |first: i32| u32::from(magnitude >= first);
    let steps = reaches(0x3e80_0001)
        + reaches(0x3f40_0000)
        + reaches(0x3fa0_0001)
        + reaches(0x3fe0_0000)
        + reaches(0x4020_0001)
        + reaches(0x4060_0000)
        + reaches(0x40a0_0001);
    steps | x.to_bits() >> 31 << 3
}

/// Two to the power of a biased exponent (E8M0 code); 255 is NaN.
#[inline(always)]
pub(super) fn power_of_two(code: u32) -> f32 {
    f32::from_bits(match code {
        0 => 0x0040_0000,
        255 => 0x7fc0_0000,
        _ => code << 23,
    })
}
