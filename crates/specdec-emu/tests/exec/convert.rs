//! Conversions: exhaustive where a source or a format is small enough.

use crate::{assemble, check_lanes, run, same_float};
use specdec_emu::wave::LANES;

const E2M1: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// Every E4M3 magnitude from its definition; the last code is NaN.
fn e4m3(code: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f32::from(code & 7));
    let magnitude = match (exponent, code & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa * 2f32.powi(-9),
        _ => (8.0 + mantissa) * 2f32.powi(exponent - 10),
    };
    if code & 0x80 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// The code among `values` nearest to `x`, ties to the even one.
fn nearest(values: &[f32], x: f64) -> usize {
    let distance = |code: usize| (f64::from(values[code]) - x.abs()).abs();
    (0..values.len()).min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a % 2).cmp(&(b % 2)))).unwrap()
}

fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

#[test]
fn lane_conversions() {
    type Formula = fn(u32, u32) -> u32;
    let cases: &[(&str, Formula)] = &[
        ("v_cvt_f32_i32 v0, v1", |a, _| (f64::from(a as i32) as f32).to_bits()),
        ("v_cvt_f32_u32 v0, v1", |a, _| (f64::from(a) as f32).to_bits()),
        ("v_cvt_i32_f32 v0, v1", |a, _| {
            let x = f64::from(f(a)).trunc();
            if x.is_nan() {
                0
            } else {
                x.clamp(-2_147_483_648.0, 2_147_483_647.0) as i64 as u32
            }
        }),
        ("v_cvt_u32_f32 v0, v1", |a, _| {
            let x = f64::from(f(a)).trunc();
            if x.is_nan() {
                0
            } else {
                x.clamp(0.0, 4_294_967_295.0) as u64 as u32
            }
        }),
        ("v_cvt_f32_ubyte0 v0, v1", |a, _| f32::from(a.to_le_bytes()[0]).to_bits()),
        ("v_cvt_f32_ubyte1 v0, v1", |a, _| f32::from(a.to_le_bytes()[1]).to_bits()),
        ("v_cvt_f32_ubyte2 v0, v1", |a, _| f32::from(a.to_le_bytes()[2]).to_bits()),
        ("v_cvt_f32_ubyte3 v0, v1", |a, _| f32::from(a.to_le_bytes()[3]).to_bits()),
        ("v_cvt_f32_bf16 v0, v1", |a, _| a << 16),
        ("v_cvt_pk_i16_i32 v0, v1, v2", |a, b| {
            let narrow = |x: u32| (x as i32).clamp(-32768, 32767) as u32 & 0xffff;
            narrow(a) | narrow(b) << 16
        }),
        ("v_cvt_pk_u16_u32 v0, v1, v2", |a, b| a.min(65535) | b.min(65535) << 16),
        ("v_cvt_f32_fp8 v0, v1", |a, _| e4m3(a as u8).to_bits()),
    ];
    for (text, formula) in cases {
        check_lanes(text, same_float, |[a, b, ..]| formula(a, b));
    }
}

/// The two bf16 next to `x`, or the one that it is: the conversion takes the nearer, the even one in a tie.
#[test]
fn bf16_rounds_to_nearest_even() {
    check_lanes(
        "v_cvt_pk_bf16_f32 v0, v1, v2",
        |a, b| a == b,
        |[a, b, ..]| {
            let narrow = |bits: u32| {
                let (x, down) = (f64::from(f(bits)), bits >> 16);
                if x.is_nan() {
                    return down | 0x40;
                }
                if bits & 0xffff == 0 {
                    return down;
                }
                let infinity =
                    |half: u32| if half & 0x7fff == 0x7f80 { 2f64.powi(128) } else { f64::from(f(half << 16)).abs() };
                let (below, above) = (x.abs() - infinity(down), infinity(down + 1) - x.abs());
                if below < above || (below == above && down % 2 == 0) {
                    down
                } else {
                    down + 1
                }
            };
            narrow(a) | narrow(b) << 16
        },
    );
}

/// Runs a two-source instruction over all 65,536 halves, with `other` in v2.
fn over_halves(text: &str, shift: u32, other: u32, before: u32, check: impl Fn(u32, u32)) {
    let inst = &assemble(&[text])[0];
    for first in (0..0x1_0000u32).step_by(LANES) {
        let mut wave = crate::wave();
        wave.vgpr[0] = [before; LANES];
        wave.vgpr[1] = std::array::from_fn(|lane| (first + lane as u32) << shift);
        wave.vgpr[2] = [other; LANES];
        run(inst, &mut wave);
        for lane in 0..LANES {
            check(wave.vgpr[1][lane], wave.vgpr[0][lane]);
        }
    }
}

#[test]
fn fp8_from_every_bf16() {
    let values: Vec<f32> = (0..127).map(e4m3).collect();
    for (text, byte) in [("v_cvt_pk_fp8_f32 v0, v1, v2", 0), ("v_cvt_pk_fp8_f32 v0, v1, v2 op_sel:[0,0,1]", 2)] {
        over_halves(text, 16, 0x4000_0000, 0x1234_5678, |bits, found| {
            let (bytes, x) = (found.to_le_bytes(), f(bits));
            // 464 is the tie between 448, the largest code, and the 480 that is not one.
            let overflows = x.is_nan() || x.abs() > 464.0;
            let magnitude = if overflows { 127 } else { nearest(&values, f64::from(x)) as u8 };
            assert_eq!(bytes[byte], magnitude | (bits >> 24) as u8 & 0x80, "{x:e}");
            assert_eq!(bytes[byte + 1], 0x40, "2.0 in the second byte");
            assert_eq!(found >> (16 - 8 * byte) & 0xffff, 0x1234_5678 >> (16 - 8 * byte) & 0xffff);
        });
    }
}

/// E5M2 is the upper byte of f16.
#[test]
fn bf8_from_every_bf16_and_back() {
    let value = |code: u32| half::f16::from_bits((code << 8) as u16).to_f32();
    let values: Vec<f32> = (0..0x7c).map(value).collect();
    over_halves("v_cvt_pk_bf8_f32 v0, v1, v2", 16, 0x4000_0000, 0, |bits, found| {
        let x = f(bits);
        let magnitude = match x.abs() {
            x if x.is_nan() => 0x7f,
            // The tie between 57344 and the 65536 that is infinity's place goes to the even one, infinity.
            x if x >= 61_440.0 => 0x7c,
            x => nearest(&values, f64::from(x)) as u32,
        };
        assert_eq!(found, magnitude | bits >> 31 << 7 | 0x4000, "{x:e}");
    });
    over_halves("v_cvt_f32_bf8 v0, v1", 0, 0, 0, |bits, found| {
        assert!(same_float(found, value(bits & 0xff).to_bits()));
    });
}

#[test]
fn scaled_pairs() {
    let insts = assemble(&[
        "v_cvt_scalef32_pk_f32_fp8 v[4:5], v0, v3 op_sel:[1,0,0]",
        "v_cvt_scalef32_pk_bf16_fp4 v6, v0, v3 op_sel:[0,1,0]",
        "v_cvt_pk_f32_fp8_sdwa v[8:9], v0 src0_sel:WORD_1",
    ]);
    let mut wave = crate::wave();
    (wave.vgpr[0], wave.vgpr[3]) = ([0x38c2_7a55; LANES], [4f32.to_bits(); LANES]);
    for inst in &insts {
        run(inst, &mut wave);
    }
    let found = [4, 5, 8, 9].map(|register: usize| f(wave.vgpr[register][17]));
    assert_eq!(found, [4.0 * e4m3(0xc2), 4.0 * e4m3(0x38), e4m3(0xc2), e4m3(0x38)]);
    // Byte 2 is 0xc2: 1.0 in the low nibble, -2.0 in the high one.
    assert_eq!(wave.vgpr[6][17], 4f32.to_bits() >> 16 | (-8f32).to_bits() & 0xffff_0000);
}

#[test]
fn half_precision_arithmetic() {
    type Formula = fn(f64, f64, f64) -> f64;
    let cases: &[(&str, Formula)] = &[
        ("v_add_f16 v0, v1, v2", |a, b, _| a + b),
        ("v_sub_f16 v0, v1, v2", |a, b, _| a - b),
        ("v_mul_f16 v0, v1, v2", |a, b, _| a * b),
        ("v_floor_f16 v0, v1", |a, _, _| a.floor()),
        ("v_rndne_f16 v0, v1", |a, _, _| a.round_ties_even()),
        ("v_sqrt_f16 v0, v1", |a, _, _| a.sqrt()),
        ("v_rcp_f16 v0, v1", |a, _, _| 1.0 / a),
    ];
    let value = |bits: u32| half::f16::from_bits(bits as u16).to_f64();
    let same = |found: u32, expected: u32| found == expected || (value(found).is_nan() && value(expected).is_nan());
    for (text, formula) in cases {
        check_lanes(text, same, |[a, b, c, _]| {
            u32::from(half::f16::from_f64(formula(value(a), value(b), value(c))).to_bits())
        });
    }
}

#[test]
fn fp4_from_every_bf16_and_scale() {
    for code in [0u32, 1, 64, 119, 126, 127, 128, 131, 200, 253, 254] {
        let text = "v_cvt_scalef32_pk_fp4_bf16 v0, v1, v2 op_sel:[0,0,1,0]";
        // Only the scale's exponent counts, whatever its mantissa and sign.
        over_halves(text, 16, code << 23 | 0x8012_3456, 0xaabb_ccdd, |bits, found| {
            let x = f64::from(f(bits)) * 2f64.powi(127 - code as i32);
            let magnitude = if x.is_nan() { 7 } else { nearest(&E2M1, x.clamp(-6.0, 6.0)) as u32 };
            let nibble = magnitude | bits >> 31 << 3;
            assert_eq!(found, 0xaabb_00dd | nibble << 12, "{bits:08x} at {code}");
        });
    }
}

#[test]
fn fp4_from_f32_and_back() {
    let insts = assemble(&[
        "v_cvt_scalef32_pk_fp4_f32 v0, v1, v2, v3 op_sel:[0,0,1,1]",
        "v_cvt_scalef32_pk_f32_fp4 v[4:5], v0, v3 op_sel:[1,1,0]",
    ]);
    for code in 0..16u32 {
        let mut wave = crate::wave();
        let value = E2M1[code as usize % 8] * if code < 8 { 1.0 } else { -1.0 };
        wave.vgpr[1] = [(value * 8.0).to_bits(); LANES];
        // A hair over the tie between 2 and 3 goes up, under it goes down; both from the scaled value.
        wave.vgpr[2] = std::array::from_fn(|lane| f32::to_bits(if lane == 0 { 20.000_002 } else { 19.999_998 }));
        wave.vgpr[3] = [8f32.to_bits(); LANES];
        for inst in &insts {
            run(inst, &mut wave);
        }
        assert_eq!(wave.vgpr[0][0], (code | 5 << 4) << 24);
        assert_eq!(wave.vgpr[0][1], (code | 4 << 4) << 24);
        assert_eq!((f(wave.vgpr[4][0]), f(wave.vgpr[5][0])), (value * 8.0, 24.0));
    }
}

#[test]
fn half_precision() {
    let insts = assemble(&["v_cvt_f32_f16 v0, v1", "v_cvt_f16_f32 v2, v0", "v_cvt_pkrtz_f16_f32 v3, v4, v0"]);
    for half in (0..0x1_0000u32).step_by(LANES) {
        let mut wave = crate::wave();
        wave.vgpr[1] = std::array::from_fn(|lane| half + lane as u32);
        // Just under each f16, and away from zero under it: both are cut to the next one below.
        run(&insts[0], &mut wave);
        let exact = wave.vgpr[0];
        wave.vgpr[4] = exact.map(|x| if x & 0x7fff_ffff == 0 { x } else { x - 1 });
        run(&insts[1], &mut wave);
        run(&insts[2], &mut wave);
        for lane in 0..LANES {
            let bits = wave.vgpr[1][lane];
            let x = f(exact[lane]);
            if x.is_nan() {
                continue;
            }
            assert_eq!(wave.vgpr[2][lane], bits, "{x:e}");
            assert_eq!(wave.vgpr[3][lane] >> 16, bits);
            if bits & 0x7fff != 0 {
                assert_eq!(wave.vgpr[3][lane] & 0xffff, bits - 1, "{x:e} less one step");
            }
        }
    }
}
