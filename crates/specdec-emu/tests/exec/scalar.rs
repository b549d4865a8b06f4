//! Scalar instructions: results and SCC, branches and the program counter.

use crate::{assemble, random_wave, run, Random};
use specdec_emu::exec::Flow;
use specdec_emu::wave::{Wave, EXEC, VCC};

type Formula = fn(&Wave, i128, i128) -> (i128, Option<bool>);

const fn s(x: i128) -> i128 {
    x as u32 as i32 as i128
}

const fn s64(x: i128) -> i128 {
    x as u64 as i64 as i128
}

fn nonzero32(x: i128) -> (i128, Option<bool>) {
    (x, Some(x as u32 != 0))
}

fn nonzero64(x: i128) -> (i128, Option<bool>) {
    (x, Some(x as u64 != 0))
}

/// Exact result and whether it leaves the signed 32-bit range.
fn overflow(x: i128) -> (i128, Option<bool>) {
    (x, Some(x != s(x)))
}

fn carry(x: i128) -> (i128, Option<bool>) {
    (x, Some(!(0..=0xffff_ffff).contains(&x)))
}

fn place(found: Option<u32>) -> (i128, Option<bool>) {
    (found.map_or(-1, i128::from), None)
}

/// Cases on s2 and s4 (pairs where 64 bits wide) into s0 or s[0:1].
#[test]
fn scalar_instructions() {
    let cases: &[(&str, Formula)] = &[
        ("s_mov_b32 s0, s2", |_, a, _| (a, None)),
        ("s_mov_b64 s[0:1], s[2:3]", |_, a, _| (a, None)),
        ("s_movk_i32 s0, 0x8001", |_, _, _| (-0x7fff, None)),
        ("s_cmov_b32 s0, s2", |w, a, _| (if w.scc { a } else { i128::from(w.sgpr[0]) }, None)),
        ("s_cmovk_i32 s0, 0x8001", |w, _, _| (if w.scc { -0x7fff } else { i128::from(w.sgpr[0]) }, None)),
        ("s_cselect_b32 s0, s2, s4", |w, a, b| (if w.scc { a } else { b }, None)),
        ("s_cselect_b64 s[0:1], s[2:3], s[4:5]", |w, a, b| (if w.scc { a } else { b }, None)),
        ("s_cselect_b64 s[0:1], -1, 0", |w, _, _| (if w.scc { -1 } else { 0 }, None)),
        ("s_add_u32 s0, s2, s4", |_, a, b| carry(a + b)),
        ("s_sub_u32 s0, s2, s4", |_, a, b| carry(a - b)),
        ("s_addc_u32 s0, s2, s4", |w, a, b| carry(a + b + i128::from(w.scc))),
        ("s_subb_u32 s0, s2, s4", |w, a, b| carry(a - b - i128::from(w.scc))),
        ("s_add_i32 s0, s2, s4", |_, a, b| overflow(s(a) + s(b))),
        ("s_sub_i32 s0, s2, s4", |_, a, b| overflow(s(a) - s(b))),
        ("s_addk_i32 s0, 0x7fff", |w, _, _| overflow(s(i128::from(w.sgpr[0])) + 0x7fff)),
        ("s_mulk_i32 s0, 0xfffb", |w, _, _| (s(i128::from(w.sgpr[0])) * -5, None)),
        ("s_mul_i32 s0, s2, s4", |_, a, b| (a * b, None)),
        ("s_mul_hi_u32 s0, s2, s4", |_, a, b| ((a * b) >> 32, None)),
        ("s_mul_hi_i32 s0, s2, s4", |_, a, b| ((s(a) * s(b)) >> 32, None)),
        ("s_min_i32 s0, s2, s4", |_, a, b| (s(a).min(s(b)), Some(s(a) < s(b)))),
        ("s_max_i32 s0, s2, s4", |_, a, b| (s(a).max(s(b)), Some(s(a) >= s(b)))),
        ("s_min_u32 s0, s2, s4", |_, a, b| (a.min(b), Some(a < b))),
        ("s_max_u32 s0, s2, s4", |_, a, b| (a.max(b), Some(a >= b))),
        ("s_abs_i32 s0, s2", |_, a, _| nonzero32(s(a).abs())),
        ("s_lshl1_add_u32 s0, s2, s4", |_, a, b| carry(2 * a + b)),
        ("s_lshl4_add_u32 s0, s2, s4", |_, a, b| carry(16 * a + b)),
        ("s_and_b32 s0, s2, s4", |_, a, b| nonzero32(a & b)),
        ("s_and_b64 s[0:1], s[2:3], s[4:5]", |_, a, b| nonzero64(a & b)),
        ("s_or_b32 s0, s2, s4", |_, a, b| nonzero32(a | b)),
        ("s_xor_b64 s[0:1], s[2:3], s[4:5]", |_, a, b| nonzero64(a ^ b)),
        ("s_andn2_b64 s[0:1], s[2:3], s[4:5]", |_, a, b| nonzero64(a & !b)),
        ("s_orn2_b32 s0, s2, s4", |_, a, b| nonzero32(a | !b)),
        ("s_nand_b64 s[0:1], s[2:3], s[4:5]", |_, a, b| nonzero64(!(a & b))),
        ("s_nor_b32 s0, s2, s4", |_, a, b| nonzero32(!(a | b))),
        ("s_xnor_b32 s0, s2, s4", |_, a, b| nonzero32(!(a ^ b))),
        ("s_not_b64 s[0:1], s[2:3]", |_, a, _| nonzero64(!a)),
        ("s_lshl_b32 s0, s2, s4", |_, a, b| nonzero32(a << (b % 32))),
        ("s_lshl_b64 s[0:1], s[2:3], s4", |_, a, b| nonzero64(a << (b as u32 % 64))),
        ("s_lshr_b32 s0, s2, s4", |_, a, b| nonzero32(a >> (b % 32))),
        ("s_lshr_b64 s[0:1], s[2:3], s4", |_, a, b| nonzero64(a >> (b as u32 % 64))),
        ("s_ashr_i32 s0, s2, s4", |_, a, b| nonzero32(s(a) >> (b % 32))),
        ("s_ashr_i64 s[0:1], s[2:3], s4", |_, a, b| nonzero64(s64(a) >> (b as u32 % 64))),
        ("s_bfe_u32 s0, s2, 0x70003", |_, a, _| nonzero32(a >> 3 & 0x7f)),
        ("s_bfe_i32 s0, s2, 0x70003", |_, a, _| nonzero32(((a >> 3 & 0x7f) ^ 0x40) - 0x40)),
        ("s_bfe_u64 s[0:1], s[2:3], 0x280011", |_, a, _| nonzero64(a >> 17 & ((1 << 40) - 1))),
        ("s_bfe_i64 s[0:1], s[2:3], 0x200000", |_, a, _| nonzero64(s(a))),
        ("s_bfm_b32 s0, s2, s4", |_, a, b| (((1 << (a % 32)) - 1) << (b % 32), None)),
        ("s_bfm_b64 s[0:1], s2, s4", |_, a, b| (((1 << (a as u32 % 64)) - 1) << (b as u32 % 64), None)),
        ("s_brev_b32 s0, s2", |_, a, _| ((0..32).fold(0, |x, bit| x << 1 | a >> bit & 1), None)),
        ("s_bcnt1_i32_b64 s0, s[2:3]", |_, a, _| nonzero32((0..64).map(|bit| a >> bit & 1).sum())),
        ("s_bcnt0_i32_b32 s0, s2", |_, a, _| nonzero32((0..32).map(|bit| 1 - (a >> bit & 1)).sum())),
        ("s_ff1_i32_b32 s0, s2", |_, a, _| place((0..32).find(|bit| a >> bit & 1 == 1))),
        ("s_ff1_i32_b64 s0, s[2:3]", |_, a, _| place((0..64).find(|bit| a >> bit & 1 == 1))),
        ("s_ff0_i32_b32 s0, s2", |_, a, _| place((0..32).find(|bit| a >> bit & 1 == 0))),
        ("s_flbit_i32_b32 s0, s2", |_, a, _| place((0..32).find(|bit| a >> (31 - bit) & 1 == 1))),
        ("s_flbit_i32 s0, s2", |_, a, _| place((1..32).find(|bit| a >> (31 - bit) & 1 != a >> 31))),
        ("s_flbit_i32_b64 s0, s[2:3]", |_, a, _| place((0..64).find(|bit| a >> (63 - bit) & 1 == 1))),
        ("s_absdiff_i32 s0, s2, s4", |_, a, b| nonzero32(s(i128::from((a as u32).wrapping_sub(b as u32))).abs())),
        ("s_bcnt0_i32_b64 s0, s[2:3]", |_, a, _| nonzero32((0..64).map(|bit| 1 - (a >> bit & 1)).sum())),
        ("s_bitreplicate_b64_b32 s[0:1], s2", |_, a, _| ((0..64).map(|bit| (a >> (bit / 2) & 1) << bit).sum(), None)),
        ("s_quadmask_b32 s0, s2", |_, a, _| {
            nonzero32((0..8).map(|quad| i128::from(a >> (4 * quad) & 15 != 0) << quad).sum())
        }),
        ("s_wqm_b32 s0, s2", |_, a, _| {
            nonzero32((0..8).map(|quad| if a >> (4 * quad) & 15 != 0 { 15 << (4 * quad) } else { 0 }).sum())
        }),
        ("s_sext_i32_i8 s0, s2", |_, a, _| (i128::from(a as i8), None)),
        ("s_sext_i32_i16 s0, s2", |_, a, _| (i128::from(a as i16), None)),
        ("s_bitset0_b32 s0, s2", |w, a, _| (i128::from(w.sgpr[0]) & !(1 << (a % 32)), None)),
        ("s_bitset1_b64 s[0:1], s2", |w, a, _| (i128::from(w.read64(0)) | 1 << (a as u32 % 64), None)),
        ("s_pack_ll_b32_b16 s0, s2, s4", |_, a, b| (a & 0xffff | (b & 0xffff) << 16, None)),
        ("s_pack_lh_b32_b16 s0, s2, s4", |_, a, b| (a & 0xffff | b >> 16 << 16, None)),
        ("s_pack_hh_b32_b16 s0, s2, s4", |_, a, b| (a >> 16 & 0xffff | b >> 16 << 16, None)),
        ("s_quadmask_b64 s[0:1], s[2:3]", |_, a, _| {
            nonzero64((0..16).map(|quad| i128::from(a >> (4 * quad) & 15 != 0) << quad).sum())
        }),
        ("s_wqm_b64 s[0:1], s[2:3]", |_, a, _| {
            nonzero64((0..16).map(|quad| if a >> (4 * quad) & 15 != 0 { 15 << (4 * quad) } else { 0 }).sum())
        }),
    ];
    let mut random = Random(31);
    for (text, formula) in cases {
        let inst = &assemble(&[text])[0];
        let is_wide = |register: &str| text.contains(&format!("s[{register}"));
        for _ in 0..300 {
            let before = random_wave(&mut random);
            let mut after = before.clone();
            assert_eq!(run(inst, &mut after), Flow::Next);
            let source = |wide: bool, first: usize| {
                if wide {
                    i128::from(before.read64(first))
                } else {
                    i128::from(before.sgpr[first])
                }
            };
            let (a, b) = (source(is_wide("2:3"), 2), source(is_wide("4:5"), 4));
            let (result, scc) = formula(&before, a, b);
            if is_wide("0:1") {
                assert_eq!(after.read64(0), result as u64, "{text}: {a:x} {b:x}");
            } else {
                assert_eq!(after.sgpr[0], result as u32, "{text}: {a:x} {b:x}");
                assert_eq!(after.sgpr[1], before.sgpr[1], "{text}");
            }
            assert_eq!(after.scc, scc.unwrap_or(before.scc), "{text}: SCC of {a:x} {b:x}");
        }
    }
}

#[test]
fn scalar_comparisons() {
    type Test = fn(u32, u32, u64, u64) -> bool;
    let cases: &[(&str, Test)] = &[
        ("s_cmp_eq_u32 s2, s4", |a, b, _, _| a == b),
        ("s_cmp_lg_u32 s2, s4", |a, b, _, _| a != b),
        ("s_cmp_gt_i32 s2, s4", |a, b, _, _| a as i32 > b as i32),
        ("s_cmp_ge_i32 s2, s4", |a, b, _, _| a as i32 >= b as i32),
        ("s_cmp_lt_u32 s2, s4", |a, b, _, _| a < b),
        ("s_cmp_le_u32 s2, s4", |a, b, _, _| a <= b),
        ("s_cmp_lg_u64 s[2:3], s[4:5]", |_, _, a, b| a != b),
        ("s_cmp_eq_u64 s[2:3], 0", |_, _, a, _| a == 0),
        ("s_cmpk_gt_i32 s2, 0x8000", |a, _, _, _| a as i32 > -0x8000),
        ("s_cmpk_gt_u32 s2, 0x8000", |a, _, _, _| a > 0x8000),
        ("s_cmpk_lt_i32 s2, 0x20", |a, _, _, _| (a as i32) < 0x20),
        ("s_cmpk_eq_u32 s2, 0xffff", |a, _, _, _| a == 0xffff),
        ("s_cmpk_lg_i32 s2, 0xffff", |a, _, _, _| a != !0),
        ("s_bitcmp0_b32 s2, s4", |a, b, _, _| a >> (b % 32) & 1 == 0),
        ("s_bitcmp1_b32 s2, s4", |a, b, _, _| a >> (b % 32) & 1 == 1),
        ("s_bitcmp1_b64 s[2:3], s4", |_, b, a, _| a >> (b % 64) & 1 == 1),
    ];
    let mut random = Random(32);
    for (text, test) in cases {
        let inst = &assemble(&[text])[0];
        for _ in 0..300 {
            let before = random_wave(&mut random);
            let mut after = before.clone();
            run(inst, &mut after);
            let expected = test(before.sgpr[2], before.sgpr[4], before.read64(2), before.read64(4));
            assert_eq!(after.scc, expected, "{text}: {:x} {:x}", before.read64(2), before.read64(4));
            assert_eq!(after.sgpr, before.sgpr, "{text}");
        }
    }
}

#[test]
fn save_exec() {
    type Mask = fn(u64, u64) -> u64;
    let cases: &[(&str, Mask)] = &[
        ("and", |s, exec| s & exec),
        ("or", |s, exec| s | exec),
        ("xor", |s, exec| s ^ exec),
        ("andn1", |s, exec| !s & exec),
        ("andn2", |s, exec| s & !exec),
        ("orn2", |s, exec| s | !exec),
        ("nand", |s, exec| !(s & exec)),
        ("nor", |s, exec| !(s | exec)),
        ("orn1", |s, exec| !s | exec),
        ("xnor", |s, exec| !(s ^ exec)),
    ];
    let mut random = Random(33);
    for (name, mask) in cases {
        // The source is also the destination: it must be read first.
        let inst = &assemble(&[&format!("s_{name}_saveexec_b64 s[2:3], s[2:3]")])[0];
        for _ in 0..50 {
            let before = random_wave(&mut random);
            let mut after = before.clone();
            run(inst, &mut after);
            let expected = mask(before.read64(2), before.exec());
            assert_eq!((after.exec(), after.read64(2), after.scc), (expected, before.exec(), expected != 0), "{name}");
        }
    }
}

#[test]
fn relative_moves() {
    let insts = assemble(&["s_movrels_b32 s0, s2", "s_movreld_b64 s[10:11], s[2:3]"]);
    let mut wave = random_wave(&mut Random(34));
    wave.sgpr[specdec_emu::wave::M0] = 4;
    let (from, pair) = (wave.sgpr[6], wave.read64(2));
    run(&insts[0], &mut wave);
    run(&insts[1], &mut wave);
    assert_eq!((wave.sgpr[0], wave.read64(14)), (from, pair));
}

#[test]
fn branches() {
    let mut wave = crate::wave();
    wave.text_base = 0x7f00_0000_1000;
    let insts = assemble(&[
        "s_branch 3",
        "s_branch 65534",
        "s_cbranch_scc0 4",
        "s_cbranch_scc1 4",
        "s_cbranch_vccz 4",
        "s_cbranch_vccnz 4",
        "s_cbranch_execz 4",
        "s_cbranch_execnz 4",
    ]);
    // Every instruction is decoded at 0x100 and is four bytes long.
    assert_eq!(run(&insts[0], &mut wave), Flow::Branch(0x110));
    assert_eq!(run(&insts[1], &mut wave), Flow::Branch(0xfc));
    for (index, taken) in [(2, true), (3, false), (4, true), (5, false), (6, false), (7, true)] {
        let expected = if taken { Flow::Branch(0x114) } else { Flow::Next };
        assert_eq!(run(&insts[index], &mut wave), expected);
        wave.scc = !wave.scc;
        wave.write64(VCC, !wave.read64(VCC));
        wave.write64(EXEC, !wave.exec());
        let expected = if taken { Flow::Next } else { Flow::Branch(0x114) };
        assert_eq!(run(&insts[index], &mut wave), expected);
        wave = crate::wave();
    }
    wave.text_base = 0x7f00_0000_1000;
    let calls =
        assemble(&["s_getpc_b64 s[2:3]", "s_setpc_b64 s[4:5]", "s_swappc_b64 s[4:5], s[4:5]", "s_call_b64 s[6:7], 2"]);
    run(&calls[0], &mut wave);
    assert_eq!(wave.read64(2), 0x7f00_0000_1104);
    wave.write64(4, 0x7f00_0000_1234);
    assert_eq!(run(&calls[1], &mut wave), Flow::Branch(0x234));
    assert_eq!(run(&calls[2], &mut wave), Flow::Branch(0x234));
    assert_eq!(wave.read64(4), 0x7f00_0000_1104);
    assert_eq!(run(&calls[3], &mut wave), Flow::Branch(0x10c));
    assert_eq!(wave.read64(6), 0x7f00_0000_1104);
}
