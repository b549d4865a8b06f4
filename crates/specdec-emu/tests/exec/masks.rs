//! Carries, comparisons and the lane masks that they write.

use crate::integer::{signed, wide};
use crate::{assemble, is_active, random_wave, run, Random};
use specdec_emu::wave::{LANES, VCC};

#[test]
fn carries_and_masks() {
    let insts = assemble(&[
        "v_add_co_u32 v0, s[8:9], v1, v2",
        "v_sub_co_u32 v0, vcc, v1, v2",
        "v_subrev_co_u32 v0, s[8:9], v1, v2",
        "v_addc_co_u32 v0, vcc, v1, v2, vcc",
        "v_subb_co_u32 v0, s[8:9], v1, v2, s[10:11]",
        "v_subbrev_co_u32 v0, vcc, v1, v2, vcc",
        "v_mad_u64_u32 v[0:1], s[8:9], v2, v3, v[4:5]",
        "v_mad_i64_i32 v[0:1], s[8:9], v2, v3, v[4:5]",
    ]);
    let mut random = Random(3);
    for _ in 0..100 {
        for (index, inst) in insts.iter().enumerate() {
            let before = random_wave(&mut random);
            let mut after = before.clone();
            run(inst, &mut after);
            let mask = after.read64(if [1, 3, 5].contains(&index) { VCC } else { 8 });
            for lane in 0..LANES {
                let v = |register: usize| i128::from(before.vgpr[register][lane]);
                let bit = |pair: usize| i128::from(before.read64(pair) >> lane & 1);
                let (a, b) = (v(1), v(2));
                let c = v(4) | v(5) << 32;
                let exact = match index {
                    0 => a + b,
                    1 => a - b,
                    2 => b - a,
                    3 => a + b + bit(VCC),
                    4 => a - b - bit(10),
                    5 => b - a - bit(VCC),
                    6 => v(2) * v(3) + c,
                    _ => i128::from(v(2) as i32) * i128::from(v(3) as i32) + i128::from(c as i64),
                };
                let width = if index < 6 { 32 } else { 64 };
                let carry = exact >> width & 1 == 1;
                let active = is_active(&before, lane);
                assert_eq!(mask >> lane & 1 == 1, active && carry, "{inst:?} lane {lane}");
                if active {
                    assert_eq!(after.vgpr[0][lane], exact as u32);
                    assert!(width == 32 || after.vgpr[1][lane] == (exact >> 32) as u32);
                }
            }
        }
    }
}

#[test]
fn comparisons_write_active_lanes_and_zero() {
    type Test = fn(u32, u32) -> bool;
    let cases: &[(&str, Test)] = &[
        ("v_cmp_eq_u32 vcc, v1, v2", |a, b| a == b),
        ("v_cmp_ne_u32 vcc, v1, v2", |a, b| a != b),
        ("v_cmp_lt_u32 vcc, v1, v2", |a, b| a < b),
        ("v_cmp_ge_u32 vcc, v1, v2", |a, b| a >= b),
        ("v_cmp_lt_i32 vcc, v1, v2", |a, b| signed(a) < signed(b)),
        ("v_cmp_gt_i32 vcc, v1, v2", |a, b| signed(a) > signed(b)),
        ("v_cmp_le_i32 vcc, v1, v2", |a, b| signed(a) <= signed(b)),
        ("v_cmp_eq_u16 vcc, v1, v2", |a, b| a & 0xffff == b & 0xffff),
        ("v_cmp_lt_i16 vcc, v1, v2", |a, b| (a as i16) < b as i16),
        ("v_cmp_gt_f32 vcc, v1, v2", |a, b| f32::from_bits(a) > f32::from_bits(b)),
        ("v_cmp_lt_f32 vcc, v1, v2", |a, b| f32::from_bits(a) < f32::from_bits(b)),
        ("v_cmp_nlt_f32 vcc, v1, v2", |a, b| !matches!(order(a, b), Some(std::cmp::Ordering::Less))),
        ("v_cmp_neq_f32 vcc, v1, v2", |a, b| f32::from_bits(a) != f32::from_bits(b)),
        ("v_cmp_lg_f32 vcc, v1, v2", |a, b| order(a, b).is_some_and(std::cmp::Ordering::is_ne)),
        ("v_cmp_nlg_f32 vcc, v1, v2", |a, b| order(a, b).is_none_or(std::cmp::Ordering::is_eq)),
        ("v_cmp_o_f32 vcc, v1, v2", |a, b| order(a, b).is_some()),
        ("v_cmp_u_f32 vcc, v1, v2", |a, b| order(a, b).is_none()),
        ("v_cmp_lt_f32 vcc, -|v1|, v2", |a, b| -f32::from_bits(a).abs() < f32::from_bits(b)),
        ("v_cmp_tru_f32 vcc, v1, v2", |_, _| true),
    ];
    let mut random = Random(5);
    for (text, test) in cases {
        let inst = &assemble(&[text])[0];
        for _ in 0..40 {
            let before = random_wave(&mut random);
            let mut after = before.clone();
            run(inst, &mut after);
            for lane in 0..LANES {
                let (a, b) = (before.vgpr[1][lane], before.vgpr[2][lane]);
                let expected = is_active(&before, lane) && test(a, b);
                assert_eq!(after.read64(VCC) >> lane & 1 == 1, expected, "{text}: {a:08x} {b:08x}");
            }
        }
    }
}

fn order(a: u32, b: u32) -> Option<std::cmp::Ordering> {
    f32::from_bits(a).partial_cmp(&f32::from_bits(b))
}

#[test]
fn comparison_forms() {
    let insts = assemble(&[
        "v_cmp_gt_i64 s[8:9], v[2:3], v[4:5]",
        "v_cmp_lt_u64 vcc, v[2:3], v[4:5]",
        "v_cmpx_lt_u32 s[8:9], v2, v4",
        "v_cndmask_b32 v0, v1, v2, vcc",
        "v_cndmask_b32 v0, v1, -v2, s[8:9]",
        "v_cmp_class_f32 vcc, v1, v2",
    ]);
    let mut random = Random(6);
    for _ in 0..100 {
        let before = random_wave(&mut random);
        let mut waves: Vec<_> = insts.iter().map(|inst| (inst, before.clone())).collect();
        for (inst, wave) in &mut waves {
            run(inst, wave);
        }
        for lane in 0..LANES {
            let v = |register: usize| before.vgpr[register][lane];
            let active = is_active(&before, lane);
            let bit = |wave: usize, pair: usize| waves[wave].1.read64(pair) >> lane & 1 == 1;
            let (a, b) = (wide(v(2)) | wide(v(3)) << 32, wide(v(4)) | wide(v(5)) << 32);
            assert_eq!(bit(0, 8), active && (a as i64) > b as i64);
            assert_eq!(bit(1, VCC), active && a < b);
            assert_eq!(bit(2, 8), active && v(2) < v(4));
            assert_eq!(bit(2, specdec_emu::wave::EXEC), active && v(2) < v(4));
            let choose = |pair: usize, a: u32, b: u32| if before.read64(pair) >> lane & 1 == 1 { b } else { a };
            if active {
                assert_eq!(waves[3].1.vgpr[0][lane], choose(VCC, v(1), v(2)));
                assert_eq!(waves[4].1.vgpr[0][lane], choose(8, v(1), v(2) ^ 0x8000_0000));
            }
            let x = f32::from_bits(v(1));
            let negative = x.is_sign_negative();
            let class = match x.classify() {
                std::num::FpCategory::Nan => v(1) >> 22 & 1,
                std::num::FpCategory::Infinite => {
                    if negative {
                        2
                    } else {
                        9
                    }
                }
                std::num::FpCategory::Normal => {
                    if negative {
                        3
                    } else {
                        8
                    }
                }
                std::num::FpCategory::Subnormal => {
                    if negative {
                        4
                    } else {
                        7
                    }
                }
                std::num::FpCategory::Zero => {
                    if negative {
                        5
                    } else {
                        6
                    }
                }
            };
            assert_eq!(bit(5, VCC), active && v(2) >> class & 1 == 1);
        }
    }
}
