//! Integer lane instructions against formulas in wider integers.

use crate::{assemble, check_lanes, is_active, random_wave, run, Random};
use specdec_emu::wave::LANES;

type Formula = fn(u32, u32, u32, u32) -> u32;

pub(crate) const fn wide(x: u32) -> u64 {
    x as u64
}

pub(crate) const fn signed(x: u32) -> i64 {
    x as i32 as i64
}

fn sext24(x: u32) -> i64 {
    let low = i64::from(x & 0xff_ffff);
    if low >= 0x80_0000 {
        low - 0x100_0000
    } else {
        low
    }
}

fn bits(x: u32) -> impl DoubleEndedIterator<Item = u32> {
    (0..32).map(move |bit| x >> bit & 1)
}

fn bytes(high: u32, low: u32) -> [u8; 8] {
    (wide(high) << 32 | wide(low)).to_le_bytes()
}

fn middle<T: Ord>(mut three: [T; 3]) -> T {
    three.sort();
    let [_, middle, _] = three;
    middle
}

#[test]
fn lane_integer_instructions() {
    let cases: &[(&str, Formula)] = &[
        ("v_mov_b32 v0, v1", |a, _, _, _| a),
        ("v_not_b32 v0, v1", |a, _, _, _| u32::MAX - a),
        ("v_bfrev_b32 v0, v1", |a, _, _, _| bits(a).fold(0, |out, bit| out << 1 | bit)),
        ("v_ffbh_u32 v0, v1", |a, _, _, _| bits(a).rev().position(|bit| bit == 1).map_or(!0, |x| x as u32)),
        ("v_ffbl_b32 v0, v1", |a, _, _, _| bits(a).position(|bit| bit == 1).map_or(!0, |x| x as u32)),
        ("v_ffbh_i32 v0, v1", |a, _, _, _| bits(a).rev().position(|bit| bit != a >> 31).map_or(!0, |x| x as u32)),
        ("v_prng_b32 v0, v1", |a, _, _, _| (a << 1) ^ (a >> 31) * 0xc5),
        ("v_and_b32 v0, v1, v2", |a, b, _, _| a & b),
        ("v_or_b32 v0, v1, v2", |a, b, _, _| a | b),
        ("v_xor_b32 v0, v1, v2", |a, b, _, _| (a | b) - (a & b)),
        ("v_xnor_b32 v0, v1, v2", |a, b, _, _| !(a ^ b)),
        ("v_and_or_b32 v0, v1, v2, v3", |a, b, c, _| (a & b) | c),
        ("v_or3_b32 v0, v1, v2, v3", |a, b, c, _| a | b | c),
        ("v_bfi_b32 v0, v1, v2, v3", |a, b, c, _| c ^ (a & (b ^ c))),
        ("v_add_u32 v0, v1, v2", |a, b, _, _| (wide(a) + wide(b)) as u32),
        ("v_add_u32 v0, v1, v2 clamp", |a, b, _, _| (wide(a) + wide(b)).min(0xffff_ffff) as u32),
        ("v_sub_u32 v0, v1, v2", |a, b, _, _| (wide(a) + (1 << 32) - wide(b)) as u32),
        ("v_sub_u32 v0, v1, v2 clamp", |a, b, _, _| (signed_of(a) - signed_of(b)).max(0) as u32),
        ("v_subrev_u32 v0, v1, v2", |a, b, _, _| (wide(b) + (1 << 32) - wide(a)) as u32),
        ("v_add_i32 v0, v1, v2", |a, b, _, _| (signed(a) + signed(b)) as u32),
        ("v_add_i32 v0, v1, v2 clamp", |a, b, _, _| (signed(a) + signed(b)).clamp(-0x8000_0000, 0x7fff_ffff) as u32),
        ("v_add3_u32 v0, v1, v2, v3", |a, b, c, _| (wide(a) + wide(b) + wide(c)) as u32),
        ("v_add_lshl_u32 v0, v1, v2, v3", |a, b, c, _| ((wide(a) + wide(b)) << (c % 32)) as u32),
        ("v_lshl_add_u32 v0, v1, v2, v3", |a, b, c, _| ((wide(a) << (b % 32)) + wide(c)) as u32),
        ("v_lshl_or_b32 v0, v1, v2, v3", |a, b, c, _| (wide(a) << (b % 32)) as u32 | c),
        ("v_xad_u32 v0, v1, v2, v3", |a, b, c, _| (wide(a ^ b) + wide(c)) as u32),
        ("v_lshlrev_b32 v0, v1, v2", |a, b, _, _| (wide(b) << (a % 32)) as u32),
        ("v_lshrrev_b32 v0, v1, v2", |a, b, _, _| (wide(b) >> (a % 32)) as u32),
        ("v_ashrrev_i32 v0, v1, v2", |a, b, _, _| (signed(b) >> (a % 32)) as u32),
        ("v_min_u32 v0, v1, v2", |a, b, _, _| if a < b { a } else { b }),
        ("v_max_u32 v0, v1, v2", |a, b, _, _| if a < b { b } else { a }),
        ("v_min_i32 v0, v1, v2", |a, b, _, _| if signed(a) < signed(b) { a } else { b }),
        ("v_max_i32 v0, v1, v2", |a, b, _, _| if signed(a) < signed(b) { b } else { a }),
        ("v_min3_u32 v0, v1, v2, v3", |a, b, c, _| a.min(b).min(c)),
        ("v_max3_u32 v0, v1, v2, v3", |a, b, c, _| a.max(b).max(c)),
        ("v_min3_i32 v0, v1, v2, v3", |a, b, c, _| (a as i32).min(b as i32).min(c as i32) as u32),
        ("v_max3_i32 v0, v1, v2, v3", |a, b, c, _| (a as i32).max(b as i32).max(c as i32) as u32),
        ("v_med3_u32 v0, v1, v2, v3", |a, b, c, _| middle([a, b, c])),
        ("v_med3_i32 v0, v1, v2, v3", |a, b, c, _| middle([a as i32, b as i32, c as i32]) as u32),
        ("v_mul_lo_u32 v0, v1, v2", |a, b, _, _| (wide(a) * wide(b)) as u32),
        ("v_mul_hi_u32 v0, v1, v2", |a, b, _, _| ((wide(a) * wide(b)) >> 32) as u32),
        ("v_mul_hi_i32 v0, v1, v2", |a, b, _, _| ((signed(a) * signed(b)) >> 32) as u32),
        ("v_mul_u32_u24 v0, v1, v2", |a, b, _, _| (wide(a & 0xff_ffff) * wide(b & 0xff_ffff)) as u32),
        ("v_mul_hi_u32_u24 v0, v1, v2", |a, b, _, _| ((wide(a & 0xff_ffff) * wide(b & 0xff_ffff)) >> 32) as u32),
        ("v_mul_i32_i24 v0, v1, v2", |a, b, _, _| (sext24(a) * sext24(b)) as u32),
        ("v_mad_u32_u24 v0, v1, v2, v3", |a, b, c, _| (wide(a & 0xff_ffff) * wide(b & 0xff_ffff) + wide(c)) as u32),
        ("v_mad_u32_u24 v0, v1, v2, v3 clamp", |a, b, c, _| {
            (wide(a & 0xff_ffff) * wide(b & 0xff_ffff) + wide(c)).min(0xffff_ffff) as u32
        }),
        ("v_mad_i32_i24 v0, v1, v2, v3", |a, b, c, _| (sext24(a) * sext24(b) + signed(c)) as u32),
        ("v_mad_u32_u16 v0, v1, v2, v3", |a, b, c, _| (wide(a & 0xffff) * wide(b & 0xffff) + wide(c)) as u32),
        ("v_mad_u32_u16 v0, v1, v2, v3 op_sel:[1,0,0,0]", |a, b, c, _| {
            (wide(a >> 16) * wide(b & 0xffff) + wide(c)) as u32
        }),
        ("v_mad_i32_i16 v0, v1, v2, v3", |a, b, c, _| (i64::from(a as i16) * i64::from(b as i16) + signed(c)) as u32),
        ("v_bfe_u32 v0, v1, v2, v3", |a, b, c, _| ((wide(a) >> (b % 32)) & ((1 << (c % 32)) - 1)) as u32),
        ("v_bfe_i32 v0, v1, v2, v3", |a, b, c, _| {
            let width = c % 32;
            let field = (signed(a) >> (b % 32)) & ((1 << width) - 1);
            let top = if width == 0 { 0 } else { field >> (width - 1) & 1 };
            (field - (top << width)) as u32
        }),
        ("v_bfm_b32 v0, v1, v2", |a, b, _, _| (((1u64 << (a % 32)) - 1) << (b % 32)) as u32),
        ("v_alignbit_b32 v0, v1, v2, v3", |a, b, c, _| ((wide(a) << 32 | wide(b)) >> (c % 32)) as u32),
        ("v_alignbyte_b32 v0, v1, v2, v3", |a, b, c, _| {
            u32::from_le_bytes(bytes(a, b)[c as usize % 4..][..4].try_into().unwrap())
        }),
        ("v_bcnt_u32_b32 v0, v1, v2", |a, b, _, _| (wide(bits(a).sum::<u32>()) + wide(b)) as u32),
        ("v_sad_u32 v0, v1, v2, v3", |a, b, c, _| (wide(a.max(b)) - wide(a.min(b)) + wide(c)) as u32),
        ("v_perm_b32 v0, v1, v2, v3", |a, b, c, _| {
            u32::from_le_bytes(c.to_le_bytes().map(|selector| match selector {
                0..=7 => bytes(a, b)[selector as usize],
                8..=11 => {
                    if bytes(a, b)[2 * (selector as usize - 8) + 1] >= 128 {
                        255
                    } else {
                        0
                    }
                }
                12 => 0,
                _ => 255,
            }))
        }),
        ("v_bitop3_b32 v0, v1, v2, v3 bitop3:0xc8", |a, b, c, _| truth(0xc8, a, b, c)),
        ("v_bitop3_b32 v0, v1, v2, v3 bitop3:0x1e", |a, b, c, _| truth(0x1e, a, b, c)),
        ("v_bitop3_b32 v0, v1, v2, v3 bitop3:0x35", |a, b, c, _| truth(0x35, a, b, c)),
        ("v_add_u16 v0, v1, v2", |a, b, _, _| ((a & 0xffff) + (b & 0xffff)) & 0xffff),
        ("v_sub_u16 v0, v1, v2", |a, b, _, _| ((a & 0xffff) + 0x1_0000 - (b & 0xffff)) & 0xffff),
        ("v_mul_lo_u16 v0, v1, v2", |a, b, _, _| (a & 0xffff).wrapping_mul(b & 0xffff) & 0xffff),
        ("v_min_u16 v0, v1, v2", |a, b, _, _| (a & 0xffff).min(b & 0xffff)),
        ("v_max_u16 v0, v1, v2", |a, b, _, _| (a & 0xffff).max(b & 0xffff)),
        ("v_max_i16 v0, v1, v2", |a, b, _, _| u32::from((a as i16).max(b as i16) as u16)),
        ("v_lshlrev_b16 v0, v1, v2", |a, b, _, _| (b & 0xffff) << (a % 16) & 0xffff),
        ("v_lshrrev_b16 v0, v1, v2", |a, b, _, _| (b & 0xffff) >> (a % 16)),
        ("v_ashrrev_i16 v0, v1, v2", |a, b, _, _| u32::from((b as i16 >> (a % 16)) as u16)),
        ("v_mad_u16 v0, v1, v2, v3", |a, b, c, d| d & 0xffff_0000 | u32::from(product16(a, b, c))),
        ("v_mad_u16 v0, v1, v2, v3 op_sel:[1,0,1,1]", |a, b, c, d| {
            d & 0xffff | u32::from(product16(a >> 16, b, c >> 16)) << 16
        }),
        ("v_min_i16 v0, v1, v2", |a, b, _, _| u32::from((a as i16).min(b as i16) as u16)),
        ("v_subrev_u16 v0, v1, v2", |a, b, _, _| ((b & 0xffff) + 0x1_0000 - (a & 0xffff)) & 0xffff),
        ("v_sub_i16 v0, v1, v2", |a, b, _, d| d & 0xffff_0000 | ((a & 0xffff) + 0x1_0000 - (b & 0xffff)) & 0xffff),
        ("v_med3_i16 v0, v1, v2, v3", |a, b, c, d| {
            d & 0xffff_0000 | u32::from(middle([a as i16, b as i16, c as i16]) as u16)
        }),
        ("v_max3_u16 v0, v1, v2, v3 op_sel:[0,1,0,1]", |a, b, c, d| {
            d & 0xffff | (a & 0xffff).max(b >> 16).max(c & 0xffff) << 16
        }),
        ("v_sub_i32 v0, v1, v2", |a, b, _, _| (signed(a) - signed(b)) as u32),
        ("v_mul_hi_i32_i24 v0, v1, v2", |a, b, _, _| ((sext24(a) * sext24(b)) >> 32) as u32),
        ("v_sad_u8 v0, v1, v2, v3", |a, b, c, _| {
            let pairs = a.to_le_bytes().into_iter().zip(b.to_le_bytes());
            (wide(pairs.map(|(a, b)| u32::from(a.max(b) - a.min(b))).sum()) + wide(c)) as u32
        }),
        ("v_bitop3_b16 v0, v1, v2, v3 bitop3:0x6a", |a, b, c, d| d & 0xffff_0000 | truth(0x6a, a, b, c) & 0xffff),
        ("v_pk_add_i16 v0, v1, v2 clamp", |a, b, _, _| {
            halves(a, b, |a, b| (i32::from(a as i16) + i32::from(b as i16)).clamp(-0x8000, 0x7fff) as u32)
        }),
        ("v_pk_mad_i16 v0, v1, v2, v1", |a, b, _, _| halves(a, b, |a, b| a.wrapping_mul(b).wrapping_add(a))),
        ("v_pack_b32_f16 v0, v1, v2 op_sel:[0,1,0]", |a, b, _, _| a & 0xffff | b & 0xffff_0000),
        ("v_pk_add_u16 v0, v1, v2", |a, b, _, _| halves(a, b, |a, b| a + b)),
        ("v_pk_sub_i16 v0, v1, v2", |a, b, _, _| halves(a, b, |a, b| a + 0x1_0000 - b)),
        ("v_pk_mul_lo_u16 v0, v1, v2", |a, b, _, _| halves(a, b, |a, b| a * b)),
        ("v_pk_mul_lo_u16 v0, v1, v2 op_sel_hi:[1,0]", |a, b, _, _| halves(a, b << 16 | b & 0xffff, |a, b| a * b)),
        ("v_pk_lshlrev_b16 v0, 4, v2 op_sel_hi:[0,1]", |_, b, _, _| halves(b, 0, |b, _| b << 4)),
        ("v_pk_lshrrev_b16 v0, v1, v2", |a, b, _, _| halves(a, b, |a, b| b >> (a % 16))),
        ("v_pk_max_i16 v0, v1, v2", |a, b, _, _| halves(a, b, |a, b| (a as i16).max(b as i16) as u32)),
        ("v_pk_min_u16 v0, v1, v2", |a, b, _, _| halves(a, b, u32::min)),
    ];
    for (text, formula) in cases {
        check_lanes(text, |a, b| a == b, |[a, b, c, d]| formula(a, b, c, d));
    }
}

#[test]
fn byte_permute_with_one_selector() {
    for selectors in ["0x07020605", "0x0c0d0301", "0x0b0a0908", "0x00ff0409"] {
        let selected = u32::from_str_radix(&selectors[2..], 16).unwrap().to_le_bytes();
        let insts = ["v_perm_b32 v0, v1, v2, v3", "v_perm_b32 v0, v1, v2, s3"];
        let insts = assemble(&insts);
        let mut wave = random_wave(&mut Random(8));
        (wave.vgpr[3], wave.sgpr[3]) = ([u32::from_le_bytes(selected); LANES], u32::from_le_bytes(selected));
        // The form with a selector per lane has its own test.
        let [mut by_lane, mut by_wave] = [wave.clone(), wave];
        run(&insts[0], &mut by_lane);
        run(&insts[1], &mut by_wave);
        assert_eq!(by_lane.vgpr[0], by_wave.vgpr[0], "{selectors}");
    }
}

fn signed_of(x: u32) -> i64 {
    i64::from(x)
}

fn product16(a: u32, b: u32, c: u32) -> u16 {
    (wide(a & 0xffff) * wide(b & 0xffff) + wide(c & 0xffff)) as u16
}

fn halves(a: u32, b: u32, each: impl Fn(u32, u32) -> u32) -> u32 {
    each(a & 0xffff, b & 0xffff) & 0xffff | each(a >> 16, b >> 16) << 16
}

fn truth(table: u32, a: u32, b: u32, c: u32) -> u32 {
    (0..32).fold(0, |out, bit| {
        let row = (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1);
        out | (table >> row & 1) << bit
    })
}

#[test]
fn scalar_and_constant_sources() {
    check_lanes("v_add_u32 v0, 7, v2", |a, b| a == b, |[_, b, ..]| b.wrapping_add(7));
    check_lanes("v_add_u32 v0, -5, v2", |a, b| a == b, |[_, b, ..]| b.wrapping_sub(5));
    check_lanes("v_add_u32 v0, 0x12345, v2", |a, b| a == b, |[_, b, ..]| b.wrapping_add(0x12345));
    check_lanes("v_xor_b32 v0, 1.0, v2", |a, b| a == b, |[_, b, ..]| b ^ 0x3f80_0000);
    check_lanes("v_lshl_add_u32 v0, v1, 3, 5", |a, b| a == b, |[a, ..]| (a << 3).wrapping_add(5));
}

/// A 64-bit instruction on v[2:3], v[4:5], v[6:7] into v[0:1].
fn check_wide(text: &str, formula: impl Fn(u64, u64, u64) -> u64) {
    let inst = &assemble(&[text])[0];
    let mut random = Random(11);
    for _ in 0..40 {
        let before = random_wave(&mut random);
        let mut after = before.clone();
        run(inst, &mut after);
        let pair = |wave: &specdec_emu::wave::Wave, first: usize, lane: usize| {
            wide(wave.vgpr[first][lane]) | wide(wave.vgpr[first + 1][lane]) << 32
        };
        for lane in 0..LANES {
            let [a, b, c] = [2, 4, 6].map(|first| pair(&before, first, lane));
            let expected = if is_active(&before, lane) { formula(a, b, c) } else { pair(&before, 0, lane) };
            assert_eq!(pair(&after, 0, lane), expected, "{text}: {a:x} {b:x} {c:x}");
        }
    }
}

#[test]
fn wide_integer_instructions() {
    check_wide("v_mov_b64 v[0:1], v[2:3]", |a, _, _| a);
    check_wide("v_lshlrev_b64 v[0:1], v2, v[4:5]", |a, b, _| (u128::from(b) << (a % 64)) as u64);
    check_wide("v_lshrrev_b64 v[0:1], v2, v[4:5]", |a, b, _| (u128::from(b) >> (a % 64)) as u64);
    check_wide("v_ashrrev_i64 v[0:1], v2, v[4:5]", |a, b, _| (i128::from(b as i64) >> (a % 64)) as u64);
    check_wide("v_lshl_add_u64 v[0:1], v[2:3], 3, v[6:7]", |a, _, c| (a << 3).wrapping_add(c));
    check_wide("v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:[1,0]", |a, b, _| a >> 32 | b << 32);
}

#[test]
fn destination_overlaps_source() {
    let insts = assemble(&["v_lshl_add_u64 v[0:1], v[0:1], 4, v[0:1]", "v_mad_u64_u32 v[0:1], s[8:9], v1, v0, v[0:1]"]);
    let before = 0x1234_5678_9abc_def0u64;
    let product = (before >> 32) * (before & 0xffff_ffff);
    for (inst, expected) in insts.iter().zip([(before << 4).wrapping_add(before), product.wrapping_add(before)]) {
        let mut wave = crate::wave();
        (wave.vgpr[0], wave.vgpr[1]) = ([before as u32; LANES], [(before >> 32) as u32; LANES]);
        run(inst, &mut wave);
        assert_eq!(wide(wave.vgpr[0][5]) | wide(wave.vgpr[1][5]) << 32, expected);
    }
}
