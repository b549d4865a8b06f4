//! SDWA and DPP forms.

use crate::{assemble, is_active, random_wave, run, Random};
use specdec_emu::wave::{Wave, LANES};

type LaneFormula = fn(u32, u32, u32) -> u32;

#[test]
fn sub_dword_forms() {
    let cases: &[(&str, LaneFormula)] = &[
        ("v_add_u32_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_1", |a, b, _| {
            a.wrapping_add(b >> 16)
        }),
        (
            "v_mul_u32_u24_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD",
            |a, b, _| (a >> 16).wrapping_mul(b & 0xff_ffff),
        ),
        (
            "v_mul_lo_u16_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD",
            |a, b, _| (a >> 8 & 0xff).wrapping_mul(b) & 0xffff,
        ),
        ("v_sub_u16_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD", |a, b, _| {
            (a >> 16).wrapping_sub(b) & 0xffff
        }),
        (
            "v_add_u32_sdwa v0, sext(v1), v2 dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_3 src1_sel:BYTE_0",
            |a, b, d| {
                let sum = ((a as i32 >> 24) + (b & 0xff) as i32) as u32;
                d & 0xff00_ffff | (sum & 0xff) << 16
            },
        ),
        ("v_mov_b32_sdwa v0, v1 dst_sel:WORD_0 dst_unused:UNUSED_SEXT src0_sel:BYTE_2", |a, _, _| a >> 16 & 0xff),
        ("v_mov_b32_sdwa v0, v1 dst_sel:BYTE_1 dst_unused:UNUSED_SEXT src0_sel:WORD_1", |a, _, _| {
            ((a >> 16) as i8 as i32 as u32) << 8
        }),
        ("v_or_b32_sdwa v0, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:BYTE_3", |a, b, _| {
            (a & 0xffff | b >> 24) << 16
        }),
        (
            "v_mul_f32_sdwa v0, |v1|, -v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD",
            |a, b, _| {
                let product = f32::from_bits(a).abs() * -f32::from_bits(b);
                product.to_bits()
            },
        ),
    ];
    let mut random = Random(61);
    for (text, formula) in cases {
        let inst = &assemble(&[text])[0];
        for _ in 0..40 {
            let before = random_wave(&mut random);
            let mut after = before.clone();
            run(inst, &mut after);
            for lane in 0..LANES {
                let [a, b, d] = [1, 2, 0].map(|register: usize| before.vgpr[register][lane]);
                let expected = if is_active(&before, lane) { formula(a, b, d) } else { d };
                assert!(crate::same_float(after.vgpr[0][lane], expected), "{text}: {a:08x} {b:08x}");
            }
        }
    }
    let inst = &assemble(&["v_cmp_eq_u32_sdwa s[8:9], v1, v2 src0_sel:BYTE_0 src1_sel:BYTE_1"])[0];
    let before = random_wave(&mut random);
    let mut after = before.clone();
    run(inst, &mut after);
    for lane in 0..LANES {
        let equal = before.vgpr[1][lane] & 0xff == before.vgpr[2][lane] >> 8 & 0xff;
        assert_eq!(after.read64(8) >> lane & 1 == 1, equal && is_active(&before, lane));
    }
}

type SourceLane = fn(i32) -> Option<i32>;

/// A lane of the same row of 16, if `place` is in it.
fn in_row(lane: i32, place: i32) -> Option<i32> {
    (0..16).contains(&place).then_some(lane / 16 * 16 + place)
}

#[test]
fn cross_lane_forms() {
    let cases: &[(&str, SourceLane)] = &[
        ("quad_perm:[1,0,3,2]", |lane| Some(lane ^ 1)),
        ("quad_perm:[2,3,0,1]", |lane| Some(lane ^ 2)),
        ("quad_perm:[0,0,3,1]", |lane| Some(lane / 4 * 4 + [0, 0, 3, 1][lane as usize % 4])),
        ("row_shl:4", |lane| in_row(lane, lane % 16 + 4)),
        ("row_shl:15", |lane| in_row(lane, lane % 16 + 15)),
        ("row_shr:8", |lane| in_row(lane, lane % 16 - 8)),
        ("row_ror:3", |lane| in_row(lane, (lane % 16 + 13) % 16)),
        ("wave_shl:1", |lane| Some(lane + 1).filter(|&lane| lane < 64)),
        ("wave_rol:1", |lane| Some((lane + 1) % 64)),
        ("wave_shr:1", |lane| Some(lane - 1).filter(|&lane| lane >= 0)),
        ("wave_ror:1", |lane| Some((lane + 63) % 64)),
        ("row_mirror", |lane| in_row(lane, 15 - lane % 16)),
        ("row_half_mirror", |lane| Some(lane / 8 * 8 + 7 - lane % 8)),
        ("row_bcast:15", |lane| Some(lane / 16 * 16 - 1).filter(|&lane| lane >= 0)),
        ("row_bcast:31", |lane| (lane >= 32).then_some(31)),
        ("row_newbcast:6", |lane| in_row(lane, 6)),
    ];
    let masks = [("0xf", "0xf"), ("0xa", "0xf"), ("0xf", "0x5"), ("0x3", "0xc")];
    let mut random = Random(62);
    for (control, source) in cases {
        for (rows, banks) in masks {
            for bound in ["", " bound_ctrl:0"] {
                let text = format!("v_add_u32_dpp v0, v1, v2 {control} row_mask:{rows} bank_mask:{banks}{bound}");
                let inst = &assemble(&[&text])[0];
                let mask = |text: &str| u32::from_str_radix(&text[2..], 16).unwrap();
                for _ in 0..10 {
                    let before = random_wave(&mut random);
                    let mut after = before.clone();
                    run(inst, &mut after);
                    for lane in 0..LANES {
                        let from =
                            source(lane as i32).map(|from| from as usize).filter(|&from| is_active(&before, from));
                        let written = is_active(&before, lane)
                            && mask(rows) >> (lane / 16) & 1 == 1
                            && mask(banks) >> (lane % 16 / 4) & 1 == 1
                            && (from.is_some() || !bound.is_empty());
                        let value = from.map_or(0, |from| before.vgpr[1][from]);
                        let expected =
                            if written { value.wrapping_add(before.vgpr[2][lane]) } else { before.vgpr[0][lane] };
                        assert_eq!(after.vgpr[0][lane], expected, "{text} lane {lane}");
                    }
                }
            }
        }
    }
}

/// The reduction that compilers write with DPP: every lane of the last row ends with the sum of the wave.
#[test]
fn wave_sum() {
    let insts = assemble(&[
        "v_add_u32_dpp v1, v1, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
        "v_add_u32_dpp v1, v1, v1 quad_perm:[2,3,0,1] row_mask:0xf bank_mask:0xf",
        "v_add_u32_dpp v1, v1, v1 row_half_mirror row_mask:0xf bank_mask:0xf",
        "v_add_u32_dpp v1, v1, v1 row_mirror row_mask:0xf bank_mask:0xf",
        "v_add_u32_dpp v1, v1, v1 row_bcast:15 row_mask:0xa bank_mask:0xf",
        "v_add_u32_dpp v1, v1, v1 row_bcast:31 row_mask:0xc bank_mask:0xf",
    ]);
    let mut wave: Wave = crate::wave();
    wave.vgpr[1] = std::array::from_fn(|lane| (lane * lane) as u32);
    let sum: u32 = wave.vgpr[1].iter().sum();
    for inst in &insts {
        run(inst, &mut wave);
    }
    assert_eq!(wave.vgpr[1][63], sum);
}

#[test]
fn wide_broadcast() {
    let inst = &assemble(&["v_mov_b64_dpp v[0:1], v[2:3] row_newbcast:5 row_mask:0xf bank_mask:0xf"])[0];
    let mut wave = crate::wave();
    (wave.vgpr[2], wave.vgpr[3]) =
        (std::array::from_fn(|lane| lane as u32), std::array::from_fn(|lane| 64 + lane as u32));
    run(inst, &mut wave);
    assert_eq!((wave.vgpr[0][20], wave.vgpr[1][63]), (21, 64 + 53));
}
