//! Moves across lanes and between the vector and scalar files.

use crate::{assemble, is_active, random_wave, run, Random};
use specdec_emu::wave::{Wave, EXEC, LANES};

#[test]
fn lane_reads_and_writes() {
    let insts = assemble(&[
        "v_readlane_b32 s0, v1, 37",
        "v_readlane_b32 s0, v1, s2",
        "v_readfirstlane_b32 s0, v1",
        "v_writelane_b32 v0, s3, 61",
        "v_writelane_b32 v0, -7, s2",
    ]);
    let mut random = Random(51);
    for _ in 0..200 {
        let before = random_wave(&mut random);
        let after = |index: usize| {
            let mut wave = before.clone();
            run(&insts[index], &mut wave);
            wave
        };
        let lane = before.sgpr[2] as usize & 63;
        assert_eq!(after(0).sgpr[0], before.vgpr[1][37]);
        assert_eq!(after(1).sgpr[0], before.vgpr[1][lane]);
        let first = (0..LANES).find(|&lane| is_active(&before, lane)).unwrap_or(0);
        assert_eq!(after(2).sgpr[0], before.vgpr[1][first]);
        let mut expected = before.vgpr[0];
        expected[61] = before.sgpr[3];
        assert_eq!(after(3).vgpr[0], expected, "EXEC is ignored");
        let mut expected = before.vgpr[0];
        expected[lane] = -7i32 as u32;
        assert_eq!(after(4).vgpr[0], expected);
    }
    let mut wave = random_wave(&mut random);
    wave.write64(EXEC, 0);
    run(&insts[2], &mut wave);
    assert_eq!(wave.sgpr[0], wave.vgpr[1][0], "lane 0 when none is enabled");
}

#[test]
fn lane_counts() {
    let insts = assemble(&["v_mbcnt_lo_u32_b32 v0, s2, v1", "v_mbcnt_hi_u32_b32 v0, s3, v0"]);
    let mut random = Random(52);
    let mut wave = random_wave(&mut random);
    wave.write64(EXEC, !0);
    let base = wave.vgpr[1];
    for inst in &insts {
        run(inst, &mut wave);
    }
    for lane in 0..LANES {
        let below = (0..lane).filter(|&bit| wave.read64(2) >> bit & 1 == 1).count() as u32;
        assert_eq!(wave.vgpr[0][lane], base[lane].wrapping_add(below), "lane {lane}");
    }
}

#[test]
fn data_share_permutes() {
    let insts = assemble(&[
        "ds_bpermute_b32 v0, v1, v2 offset:8",
        "ds_permute_b32 v0, v1, v2",
        "ds_swizzle_b32 v0, v1 offset:swizzle(QUAD_PERM,3,1,0,2)",
        "ds_swizzle_b32 v0, v1 offset:swizzle(BITMASK_PERM,\"01pip\")",
        "ds_swizzle_b32 v0, v1 offset:swizzle(SWAP,16)",
        "ds_swizzle_b32 v0, v1 offset:swizzle(BROADCAST,8,5)",
    ]);
    let mut random = Random(53);
    for _ in 0..100 {
        let mut before = random_wave(&mut random);
        before.vgpr[1] = std::array::from_fn(|_| random.word());
        for (index, inst) in insts.iter().enumerate() {
            let mut after = before.clone();
            run(inst, &mut after);
            for lane in (0..LANES).filter(|&lane| is_active(&before, lane)) {
                let data = |register: usize, from: usize| {
                    if is_active(&before, from) {
                        before.vgpr[register][from]
                    } else {
                        0
                    }
                };
                let target = |lane: usize| before.vgpr[1][lane] as usize / 4 % 64;
                let expected = match index {
                    0 => data(2, before.vgpr[1][lane].wrapping_add(8) as usize / 4 % 64),
                    1 => (0..LANES)
                        .rev()
                        .find(|&from| is_active(&before, from) && target(from) == lane)
                        .map_or(0, |from| before.vgpr[2][from]),
                    2 => data(1, lane / 4 * 4 + [3, 1, 0, 2][lane % 4]),
                    // Bits from the top: clear, set, keep, invert, keep.
                    3 => data(1, lane & 0b10_0000 | 0b01000 | lane & 0b00100 | !lane & 0b00010 | lane & 1),
                    4 => data(1, lane ^ 16),
                    _ => data(1, lane / 8 * 8 + 5),
                };
                assert_eq!(after.vgpr[0][lane], expected, "{inst:?} lane {lane}");
            }
        }
    }
}

#[test]
fn register_swaps() {
    let insts = assemble(&["v_swap_b32 v0, v1", "v_permlane16_swap_b32 v0, v1", "v_permlane32_swap_b32 v0, v1"]);
    let mut before = crate::wave();
    before.vgpr[0] = std::array::from_fn(|lane| lane as u32);
    before.vgpr[1] = std::array::from_fn(|lane| 100 + lane as u32);
    let after: Vec<Wave> = insts
        .iter()
        .map(|inst| {
            let mut wave = before.clone();
            run(inst, &mut wave);
            wave
        })
        .collect();
    for lane in 0..LANES {
        let found = |index: usize| (after[index].vgpr[0][lane], after[index].vgpr[1][lane]);
        let own = (lane as u32, 100 + lane as u32);
        assert_eq!(found(0), (own.1, own.0));
        // The upper half of v0's lane groups and the lower half of v1's change places.
        let swapped = |group: u32| {
            if own.0 & group == 0 {
                (own.0, own.0 + group)
            } else {
                (own.1 - group, own.1)
            }
        };
        assert_eq!(found(1), swapped(16));
        assert_eq!(found(2), swapped(32));
    }
}

#[test]
fn accumulation_registers() {
    let insts = assemble(&["v_accvgpr_write_b32 a3, v1", "v_accvgpr_mov_b32 a4, a3", "v_accvgpr_read_b32 v2, a4"]);
    let mut wave = crate::wave();
    wave.vgpr[1] = std::array::from_fn(|lane| lane as u32 * 7);
    for inst in &insts {
        run(inst, &mut wave);
    }
    assert_eq!([wave.vgpr[2], wave.vgpr[256 + 3]], [wave.vgpr[1]; 2]);
}
