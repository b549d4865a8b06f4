//! Single-precision instructions against double-precision formulas.

use crate::{assemble, check_lanes, is_active, random_wave, run, same_float, Random};
use proptest::prelude::*;
use specdec_emu::wave::LANES;

type Formula = fn(f32, f32, f32) -> f32;

fn double(x: f32) -> f64 {
    f64::from(x)
}

/// Minimum with numbers before quiet NaNs, signalling NaNs before all, -0 before +0.
fn min(a: f32, b: f32) -> f32 {
    let signalling = |x: f32| x.is_nan() && x.to_bits() & 0x40_0000 == 0;
    if signalling(a) || signalling(b) || (a.is_nan() && b.is_nan()) {
        return f32::NAN;
    }
    if a.is_nan() {
        return b;
    }
    if b.is_nan() {
        return a;
    }
    if a.total_cmp(&b).is_lt() {
        a
    } else {
        b
    }
}

fn max(a: f32, b: f32) -> f32 {
    -min(-a, -b)
}

fn any_nan(all: [f32; 3]) -> bool {
    all.iter().any(|x| x.is_nan())
}

#[test]
fn lane_float_instructions() {
    let cases: &[(&str, Formula)] = &[
        ("v_add_f32 v0, v1, v2", |a, b, _| (double(a) + double(b)) as f32),
        ("v_sub_f32 v0, v1, v2", |a, b, _| (double(a) - double(b)) as f32),
        ("v_subrev_f32 v0, v1, v2", |a, b, _| (double(b) - double(a)) as f32),
        ("v_mul_f32 v0, v1, v2", |a, b, _| (double(a) * double(b)) as f32),
        ("v_mul_f32 v0, |v1|, -v2", |a, b, _| (double(a.abs()) * -double(b)) as f32),
        ("v_mul_f32 v0, v1, v2 mul:2", |a, b, _| (double(a) * double(b)) as f32 * 2.0),
        ("v_mul_f32 v0, v1, v2 div:2", |a, b, _| (double(a) * double(b)) as f32 / 2.0),
        ("v_add_f32 v0, v1, v2 clamp", |a, b, _| {
            let sum = (double(a) + double(b)) as f32;
            if sum > 0.0 {
                sum.min(1.0)
            } else {
                0.0
            }
        }),
        (
            "v_mul_legacy_f32 v0, v1, v2",
            |a, b, _| {
                if a == 0.0 || b == 0.0 {
                    0.0
                } else {
                    (double(a) * double(b)) as f32
                }
            },
        ),
        ("v_fma_f32 v0, v1, v2, v3", f32::mul_add),
        ("v_fma_f32 v0, -v1, v2, |v3|", |a, b, c| (-a).mul_add(b, c.abs())),
        ("v_fmaak_f32 v0, v1, v2, 0x40490fdb", |a, b, _| a.mul_add(b, std::f32::consts::PI)),
        ("v_fmamk_f32 v0, v1, 0x40490fdb, v3", |a, _, c| a.mul_add(std::f32::consts::PI, c)),
        ("v_min_f32 v0, v1, v2", |a, b, _| min(a, b)),
        ("v_max_f32 v0, v1, v2", |a, b, _| max(a, b)),
        ("v_min3_f32 v0, v1, v2, v3", |a, b, c| min(min(a, b), c)),
        ("v_max3_f32 v0, v1, v2, v3", |a, b, c| max(max(a, b), c)),
        ("v_med3_f32 v0, v1, v2, v3", |a, b, c| {
            let largest = max(max(a, b), c);
            // Zeros of both signs are equal here, as in the manual: the first one counts as the maximum.
            let others = [(a, [b, c]), (b, [a, c]), (c, [a, b])];
            if any_nan([a, b, c]) {
                min(min(a, b), c)
            } else {
                others.iter().find(|(x, _)| *x == largest).map_or(f32::NAN, |(_, [x, y])| max(*x, *y))
            }
        }),
        ("v_maximum3_f32 v0, v1, v2, v3", |a, b, c| if any_nan([a, b, c]) { f32::NAN } else { max(max(a, b), c) }),
        ("v_minimum3_f32 v0, v1, v2, v3", |a, b, c| if any_nan([a, b, c]) { f32::NAN } else { min(min(a, b), c) }),
        ("v_floor_f32 v0, v1", |a, _, _| double(a).floor() as f32),
        ("v_ceil_f32 v0, v1", |a, _, _| double(a).ceil() as f32),
        ("v_trunc_f32 v0, v1", |a, _, _| double(a).trunc() as f32),
        ("v_rndne_f32 v0, v1", |a, _, _| double(a).round_ties_even() as f32),
        ("v_fract_f32 v0, v1", |a, _, _| {
            let fraction = double(a) - double(a).floor();
            if fraction.is_nan() {
                f32::NAN
            } else {
                (fraction as f32).min(0.999_999_94)
            }
        }),
        ("v_ldexp_f32 v0, v1, v2", |a, b, _| {
            let exponent = (b.to_bits() as i32).clamp(-600, 600);
            (double(a) * 2f64.powi(exponent)) as f32
        }),
        ("v_rcp_f32 v0, v1", |a, _, _| flushed((1.0 / double(flushed(a))) as f32)),
        ("v_sqrt_f32 v0, v1", |a, _, _| double(flushed(a)).sqrt() as f32),
        ("v_rsq_f32 v0, v1", |a, _, _| (1.0 / double(flushed(a)).sqrt()) as f32),
        ("v_dot2_f32_bf16 v0, v1, v2, v3", |a, b, c| {
            let [a, b] = [a, b].map(|x| (f32::from_bits(x.to_bits() << 16), f32::from_bits(x.to_bits() >> 16 << 16)));
            let first = (double(a.0) * double(b.0)) as f32;
            ((double(a.1).mul_add(double(b.1), double(first))) as f32) + c
        }),
    ];
    for (text, formula) in cases {
        check_lanes(text, same_float, |[a, b, c, _]| formula(f(a), f(b), f(c)).to_bits());
    }
    check_lanes("v_fmac_f32 v0, v1, v2", same_float, |[a, b, _, d]| f(a).mul_add(f(b), f(d)).to_bits());
    check_lanes("v_frexp_exp_i32_f32 v0, v1", |a, b| a == b, |[a, ..]| frexp(f(a)).1 as u32);
    check_lanes("v_frexp_mant_f32 v0, v1", same_float, |[a, ..]| frexp(f(a)).0.to_bits());
}

fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

fn flushed(x: f32) -> f32 {
    if x.is_subnormal() {
        0.0f32.copysign(x)
    } else {
        x
    }
}

fn frexp(x: f32) -> (f32, i32) {
    if x == 0.0 || !x.is_finite() {
        return (x, 0);
    }
    let mut exponent = 0;
    let mut mantissa = f64::from(x);
    while mantissa.abs() >= 1.0 {
        mantissa /= 2.0;
        exponent += 1;
    }
    while mantissa.abs() < 0.5 {
        mantissa *= 2.0;
        exponent -= 1;
    }
    (mantissa as f32, exponent)
}

#[test]
fn nan_bits() {
    let insts = assemble(&["v_add_f32 v0, v1, v2", "v_mul_f32 v0, v1, v2", "v_max_f32 v0, v1, v2"]);
    let run_on = |index: usize, a: u32, b: u32| {
        let mut wave = crate::wave();
        (wave.vgpr[1], wave.vgpr[2]) = ([a; LANES], [b; LANES]);
        run(&insts[index], &mut wave);
        wave.vgpr[0][63]
    };
    // Infinity minus infinity is the positive quiet NaN, not x86's negative one.
    assert_eq!(run_on(0, 0x7f80_0000, 0xff80_0000), 0x7fc0_0000);
    assert_eq!(run_on(1, 0, 0xff80_0000), 0x7fc0_0000);
    // A source NaN comes through quiet, the first one first.
    assert_eq!(run_on(0, 0xff80_0001, 0x7fc0_0002), 0xffc0_0001);
    assert_eq!(run_on(0, 0x3f80_0000, 0x7f80_0002), 0x7fc0_0002);
    assert_eq!(run_on(2, 0x7fc0_0000, 0x3f80_0000), 0x3f80_0000);
    assert_eq!(run_on(2, 0x7f80_0001, 0x3f80_0000), 0x7fc0_0001);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The special functions are within one rounding of the host's double-precision ones.
    #[test]
    fn special_functions(bits in proptest::collection::vec(any::<u32>(), LANES), scale in 0u32..20) {
        let insts = lazy_special();
        let mut before = crate::wave();
        before.vgpr[1] = std::array::from_fn(|lane| {
            let x = f(bits[lane]);
            if lane % 2 == 0 { (bits[lane] as i32 as f32 * 2f32.powi(-23 - scale as i32)).to_bits() } else { x.to_bits() }
        });
        for (inst, formula) in insts {
            let mut after = before.clone();
            run(inst, &mut after);
            for lane in 0..LANES {
                let x = f(before.vgpr[1][lane]);
                let expected = flushed(formula(f64::from(flushed(x))) as f32);
                let found = f(after.vgpr[0][lane]);
                // Both sides evaluate in double and round once: at most a tie may fall differently.
                let close = found.to_bits().abs_diff(expected.to_bits()) <= 1;
                prop_assert!(close || (found.is_nan() && expected.is_nan()), "{:?} of {x:e}: {found:e} {expected:e}", inst.op);
            }
        }
    }

    /// Sine and cosine in turns, within the accuracy that hardware states for a reduced angle.
    #[test]
    fn sine_and_cosine(turns in -256f32..256f32) {
        let mut wave = crate::wave();
        wave.vgpr[1] = [turns.to_bits(); LANES];
        let insts = lazy_trigonometric();
        let angle = f64::from(turns) * std::f64::consts::TAU;
        for (inst, expected) in insts.iter().zip([angle.sin(), angle.cos()]) {
            run(inst, &mut wave);
            // The angle itself is off by half a unit in the last place of 2^-45 turns.
            prop_assert!((f64::from(f(wave.vgpr[0][0])) - expected).abs() < 1e-7);
        }
    }
}

type Special = (specdec_emu::inst::Inst, fn(f64) -> f64);

fn lazy_special() -> &'static [Special] {
    static INSTS: std::sync::OnceLock<Vec<Special>> = std::sync::OnceLock::new();
    INSTS.get_or_init(|| {
        let formulas: [fn(f64) -> f64; 5] = [f64::exp2, f64::log2, |x| 1.0 / x, f64::sqrt, |x| 1.0 / x.sqrt()];
        let lines = ["exp", "log", "rcp", "sqrt", "rsq"].map(|name| format!("v_{name}_f32 v0, v1"));
        assemble(&lines.each_ref().map(String::as_str)).into_iter().zip(formulas).collect()
    })
}

fn lazy_trigonometric() -> &'static [specdec_emu::inst::Inst] {
    static INSTS: std::sync::OnceLock<Vec<specdec_emu::inst::Inst>> = std::sync::OnceLock::new();
    INSTS.get_or_init(|| assemble(&["v_sin_f32 v0, v1", "v_cos_f32 v0, v1"]))
}

/// Known points of the special functions, zeros, infinities and denormals included.
#[test]
fn special_function_points() {
    let points: &[(&str, u32, u32)] = &[
        ("exp", 0x8000_0000, 0x3f80_0000),
        ("exp", 0xff80_0000, 0),
        ("exp", 0x4300_0000, 0x7f80_0000),
        ("exp", 0xc2fc_0000, 0x0080_0000),
        ("exp", 0xc2fe_0000, 0),
        ("log", 0, 0xff80_0000),
        ("log", 0x3f80_0000, 0),
        ("log", 0xbf80_0000, 0x7fc0_0000),
        ("log", 1, 0xff80_0000),
        ("log", 0x7f80_0000, 0x7f80_0000),
        ("rcp", 0x8000_0000, 0xff80_0000),
        ("rcp", 0xff80_0000, 0x8000_0000),
        ("rcp", 0xc000_0000, 0xbf00_0000),
        ("rcp", 0x7f7f_ffff, 0),
        ("rsq", 0x4080_0000, 0x3f00_0000),
        ("rsq", 0x8000_0000, 0xff80_0000),
        ("rsq", 0xbf80_0000, 0x7fc0_0000),
        ("sqrt", 0x8000_0000, 0x8000_0000),
        ("sqrt", 0x4110_0000, 0x4040_0000),
    ];
    for &(name, x, expected) in points {
        let inst = &assemble(&[&format!("v_{name}_f32 v0, v1")])[0];
        let mut wave = crate::wave();
        wave.vgpr[1] = [x; LANES];
        run(inst, &mut wave);
        assert_eq!(wave.vgpr[0][0], expected, "{name} of {x:08x}");
    }
}

#[test]
fn packed_pairs() {
    type Pair = fn([f32; 2], [f32; 2], [f32; 2]) -> [f32; 2];
    let cases: &[(&str, Pair)] = &[
        ("v_pk_add_f32 v[0:1], v[2:3], v[4:5]", |a, b, _| [a[0] + b[0], a[1] + b[1]]),
        ("v_pk_add_f32 v[0:1], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,1]", |a, b, _| [a[1] + b[0], a[0] + b[1]]),
        ("v_pk_add_f32 v[0:1], v[2:3], v[4:5] op_sel_hi:[1,0] neg_lo:[1,0] neg_hi:[1,0]", |a, b, _| {
            [b[0] - a[0], b[0] - a[1]]
        }),
        ("v_pk_mul_f32 v[0:1], v[2:3], v[4:5] op_sel_hi:[0,1]", |a, b, _| [a[0] * b[0], a[0] * b[1]]),
        ("v_pk_mul_f32 v[0:1], v[2:3], s[6:7] op_sel:[0,1] op_sel_hi:[1,0]", |a, _, s| [a[0] * s[1], a[1] * s[0]]),
        ("v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[0:1]", |a, b, d| [a[0].mul_add(b[0], d[0]), a[1].mul_add(b[1], d[1])]),
    ];
    let mut random = Random(21);
    for (index, (text, formula)) in cases.iter().enumerate() {
        let inst = &assemble(&[text])[0];
        for _ in 0..40 {
            let before = random_wave(&mut random);
            let mut after = before.clone();
            run(inst, &mut after);
            for lane in (0..LANES).filter(|&lane| is_active(&before, lane)) {
                let pair = |first: usize| [f(before.vgpr[first][lane]), f(before.vgpr[first + 1][lane])];
                let third = if index == 4 { [f(before.sgpr[6]), f(before.sgpr[7])] } else { pair(0) };
                let expected = formula(pair(2), pair(4), third);
                for (dword, expected) in expected.iter().enumerate() {
                    assert!(same_float(after.vgpr[dword][lane], expected.to_bits()), "{text}");
                }
            }
        }
    }
}

#[test]
fn doubles() {
    let insts = assemble(&[
        "v_add_f64 v[0:1], v[2:3], v[4:5]",
        "v_fma_f64 v[0:1], v[2:3], -v[4:5], 1.0",
        "v_cvt_f64_f32 v[0:1], v2",
        "v_cvt_f32_f64 v0, v[2:3]",
    ]);
    let mut random = Random(22);
    for _ in 0..64 {
        let (x, y) = (f64::from(random.float()) * 1e100, f64::from(random.float()) / 3.0);
        let mut wave = crate::wave();
        for (first, value) in [(2, x), (4, y)] {
            wave.vgpr[first] = [value.to_bits() as u32; LANES];
            wave.vgpr[first + 1] = [(value.to_bits() >> 32) as u32; LANES];
        }
        let low = f64::from(f(wave.vgpr[2][0]));
        let expected = [x + y, x.mul_add(-y, 1.0), low];
        for (inst, expected) in insts.iter().zip(expected) {
            let mut wave = wave.clone();
            run(inst, &mut wave);
            let found = f64::from_bits(u64::from(wave.vgpr[0][9]) | u64::from(wave.vgpr[1][9]) << 32);
            assert!(found == expected || (found.is_nan() && expected.is_nan()));
        }
        run(&insts[3], &mut wave);
        assert_eq!(wave.vgpr[0][9], (x as f32).to_bits());
    }
}
