//! MFMA on bf16, f16, FP8 and f32: `D = A * B + C` over the whole wave, EXEC ignored.
//!
//! Every output element is one chain of f32 fused multiply-adds in ascending K, starting from C. Hardware's order
//! and internal width are not documented; a chain is exact per step, reproducible, and within every bound that a
//! test may assume of either.
//!
//! Operand maps, for an N x N result (N = 16 or 32, in `64 / N` lane groups `g`): lane `l` holds row (of A) or
//! column (of B) `l % N` and the K values `g * P + j`, `j < P`, packed from the low bits of its registers up.
//! Result register `i` holds row `4 * (64 / N) * (i / 4) + 4 * g + i % 4`, column `l % N`.

use crate::exec::small_float::Format;
use crate::exec::{Flow, Handler};
use crate::inst::Inst;
use crate::op::Op;
use crate::wave::{Lanes, Wave, LANES};
use half::f16;

/// Rows by columns.
#[repr(align(64))]
pub(super) struct Tile<const N: usize>(pub [[f32; N]; N]);

impl<const N: usize> Tile<N> {
    /// All zero.
    pub(super) const ZERO: Self = Self([[0.0; N]; N]);
}

/// Result register and lane group of a row.
const fn place<const N: usize>(row: usize) -> (usize, usize) {
    let num_groups = LANES / N;
    (row / (4 * num_groups) * 4 + row % 4, row / 4 % num_groups)
}

/// Fills in the accumulator that source 2 holds: registers, or a constant in every element.
#[inline(always)]
pub(super) fn load_accumulator<const N: usize>(inst: &Inst, wave: &Wave, tile: &mut Tile<N>) {
    let Some(first) = inst.src[2].vector() else {
        let constant = f32::from_bits(wave.scalar32(inst.src[2], inst.literal));
        tile.0.as_flattened_mut().fill(constant);
        return;
    };
    for (row, values) in tile.0.iter_mut().enumerate() {
        let (index, group) = place::<N>(row);
        let lanes = &wave.vgpr[first + index][group * N..(group + 1) * N];
        for (value, bits) in values.iter_mut().zip(lanes) {
            *value = f32::from_bits(*bits);
        }
    }
}

/// Writes the result; any NaN becomes the machine's default one, whatever this host made of it.
#[inline(always)]
pub(super) fn store<const N: usize>(inst: &Inst, wave: &mut Wave, tile: &Tile<N>) {
    let Some(first) = inst.dst.vector() else { return };
    for (row, values) in tile.0.iter().enumerate() {
        let (index, group) = place::<N>(row);
        let lanes = &mut wave.vgpr[first + index][group * N..(group + 1) * N];
        for (out, value) in lanes.iter_mut().zip(values) {
            *out = if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() };
        }
    }
}

/// Operand values: `J` per lane. Aligned, or every other load of a row would straddle two cache lines; filled in
/// place, because returning one by value costs a copy of kilobytes.
#[repr(align(64))]
pub(super) struct Values<const J: usize>(pub [[f32; LANES]; J]);

impl<const J: usize> Values<J> {
    /// All zero.
    pub(super) const ZERO: Self = Self([[0.0; LANES]; J]);
}

/// The values of one lane group for a run of ascending K.
pub(super) struct Run<'a> {
    /// Lanes by K.
    pub values: &'a [[f32; LANES]],
    /// First lane of the group.
    pub first_lane: usize,
}

/// Adds `a[k][row] * b[k][column]` for ascending `k`, run by run.
///
/// Blocks of ROWS by COLUMNS keep enough independent chains in registers to hide the latency of a fused
/// multiply-add.
#[inline(always)]
pub(super) fn multiply_add<const N: usize, const ROWS: usize, const COLUMNS: usize>(
    tile: &mut Tile<N>,
    runs: &[(Run, Run)],
) {
    for first_row in (0..N).step_by(ROWS) {
        for first_column in (0..N).step_by(COLUMNS) {
            let mut block = [[0.0f32; COLUMNS]; ROWS];
            for (row, chains) in block.iter_mut().enumerate() {
                chains.copy_from_slice(&tile.0[first_row + row][first_column..first_column + COLUMNS]);
            }
            for (a, b) in runs {
                let (a_lane, b_lane) = (a.first_lane + first_row, b.first_lane + first_column);
                for (a, b) in a.values.iter().zip(b.values) {
                    let (a, b) = (&a[a_lane..a_lane + ROWS], &b[b_lane..b_lane + COLUMNS]);
                    for (chains, a) in block.iter_mut().zip(a) {
                        for (chain, b) in chains.iter_mut().zip(b) {
                            *chain = a.mul_add(*b, *chain);
                        }
                    }
                }
            }
            for (row, chains) in block.iter().enumerate() {
                tile.0[first_row + row][first_column..first_column + COLUMNS].copy_from_slice(chains);
            }
        }
    }
}

/// Multiplies what the G lane groups hold, one after the other.
#[inline(always)]
fn multiply_groups<const N: usize, const G: usize>(
    inst: &Inst,
    wave: &mut Wave,
    a: &[[f32; LANES]],
    b: &[[f32; LANES]],
) -> Flow {
    let mut tile = Tile::<N>::ZERO;
    load_accumulator(inst, wave, &mut tile);
    let runs: [(Run, Run); G] = std::array::from_fn(|group| {
        let first_lane = group * N;
        (Run { values: a, first_lane }, Run { values: b, first_lane })
    });
    multiply_add::<N, 4, 16>(&mut tile, &runs);
    store(inst, wave, &tile);
    Flow::Next
}

/// Dword `dword` of source `index`.
#[inline(always)]
fn operand_dword(inst: &Inst, wave: &Wave, index: usize, dword: usize) -> Lanes {
    match inst.src[index].vector() {
        Some(first) => wave.vgpr[first + dword],
        None => [wave.scalar32(inst.src[index], inst.literal); LANES],
    }
}

#[inline(always)]
fn load_halves<const J: usize>(
    inst: &Inst,
    wave: &Wave,
    index: usize,
    values: &mut Values<J>,
    widen: impl Fn(u32) -> f32,
) {
    for (dword, pair) in values.0.chunks_exact_mut(2).enumerate() {
        let dwords = operand_dword(inst, wave, index, dword);
        for (lane, dword) in dwords.iter().enumerate() {
            pair[0][lane] = widen(dword & 0xffff);
            pair[1][lane] = widen(dword >> 16);
        }
    }
}

/// bf16 operands of `J` values a lane, in G lane groups.
fn mfma_bf16<const N: usize, const G: usize, const J: usize>(inst: &Inst, wave: &mut Wave) -> Flow {
    let (mut a, mut b) = (Values::<J>::ZERO, Values::<J>::ZERO);
    let widen = |half: u32| f32::from_bits(half << 16);
    load_halves(inst, wave, 0, &mut a, widen);
    load_halves(inst, wave, 1, &mut b, widen);
    multiply_groups::<N, G>(inst, wave, &a.0, &b.0)
}

/// f16 operands of `J` values a lane, in G lane groups.
fn mfma_f16<const N: usize, const G: usize, const J: usize>(inst: &Inst, wave: &mut Wave) -> Flow {
    let (mut a, mut b) = (Values::<J>::ZERO, Values::<J>::ZERO);
    let widen = |half: u32| f16::from_bits(half as u16).to_f32();
    load_halves(inst, wave, 0, &mut a, widen);
    load_halves(inst, wave, 1, &mut b, widen);
    multiply_groups::<N, G>(inst, wave, &a.0, &b.0)
}

#[inline(always)]
fn load_bytes(inst: &Inst, wave: &Wave, index: usize, format: Format, values: &mut Values<8>) {
    for (dword, four) in values.0.chunks_exact_mut(4).enumerate() {
        let dwords = operand_dword(inst, wave, index, dword);
        for (byte, values) in four.iter_mut().enumerate() {
            for (value, dword) in values.iter_mut().zip(&dwords) {
                *value = format.values()[(dword >> (8 * byte) & 0xff) as usize];
            }
        }
    }
}

/// FP8 operands of eight values a lane; a format is E5M2 where its flag is set, else E4M3.
fn mfma_fp8<const N: usize, const G: usize, const A_BF8: bool, const B_BF8: bool>(
    inst: &Inst,
    wave: &mut Wave,
) -> Flow {
    let format = |is_bf8: bool| if is_bf8 { Format::E5m2 } else { Format::E4m3 };
    let (mut a, mut b) = (Values::ZERO, Values::ZERO);
    load_bytes(inst, wave, 0, format(A_BF8), &mut a);
    load_bytes(inst, wave, 1, format(B_BF8), &mut b);
    multiply_groups::<N, G>(inst, wave, &a.0, &b.0)
}

/// f32 operands of one value a lane.
fn mfma_f32<const N: usize, const G: usize>(inst: &Inst, wave: &mut Wave) -> Flow {
    let [a, b] = [0, 1].map(|index: usize| Values([operand_dword(inst, wave, index, 0).map(f32::from_bits)]));
    multiply_groups::<N, G>(inst, wave, &a.0, &b.0)
}

/// The handler of a matrix instruction of this module; none if it asks for operand broadcast or permutation.
pub(super) fn handler(inst: &Inst) -> Option<Handler> {
    let mods = &inst.mods;
    if mods.cbsz != 0 || mods.abid != 0 || mods.blgp != 0 {
        return None;
    }
    Some(match inst.op {
        Op::VMfmaF3216x16x32Bf16 => mfma_bf16::<16, 4, 8>,
        Op::VMfmaF3232x32x16Bf16 => mfma_bf16::<32, 2, 8>,
        Op::VMfmaF3216x16x16Bf16 => mfma_bf16::<16, 4, 4>,
        Op::VMfmaF3232x32x8Bf16 => mfma_bf16::<32, 2, 4>,
        Op::VMfmaF3216x16x32F16 => mfma_f16::<16, 4, 8>,
        Op::VMfmaF3232x32x16F16 => mfma_f16::<32, 2, 8>,
        Op::VMfmaF3216x16x16F16 => mfma_f16::<16, 4, 4>,
        Op::VMfmaF3232x32x8F16 => mfma_f16::<32, 2, 4>,
        Op::VMfmaF3216x16x32Fp8Fp8 => mfma_fp8::<16, 4, false, false>,
        Op::VMfmaF3216x16x32Fp8Bf8 => mfma_fp8::<16, 4, false, true>,
        Op::VMfmaF3216x16x32Bf8Fp8 => mfma_fp8::<16, 4, true, false>,
        Op::VMfmaF3216x16x32Bf8Bf8 => mfma_fp8::<16, 4, true, true>,
        Op::VMfmaF3232x32x16Fp8Fp8 => mfma_fp8::<32, 2, false, false>,
        Op::VMfmaF3232x32x16Fp8Bf8 => mfma_fp8::<32, 2, false, true>,
        Op::VMfmaF3232x32x16Bf8Fp8 => mfma_fp8::<32, 2, true, false>,
        Op::VMfmaF3232x32x16Bf8Bf8 => mfma_fp8::<32, 2, true, true>,
        Op::VMfmaF3232x32x2F32 => mfma_f32::<32, 2>,
        Op::VMfmaF3216x16x4F32 => mfma_f32::<16, 4>,
        _ => return None,
    })
}
