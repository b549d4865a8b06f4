//! MFMA on bytes, and those that multiply several small blocks at once; see [`crate::exec::matrix`] for the others.
//!
//! Operand maps, for B blocks of N x N results over K: lane `l` holds row (of A) or column (of B) `l % N` of block
//! `l / N % B`, and the K values `g * P + j`, `g = l / (N * B)`, `j < P`, from the low bits of its registers up. For N
//! = 4 result register `i` of lane `l` holds row `i`, column `l % 4` of block `l / 4`; else blocks follow one another
//! in the registers, each placed as a single one is.

use crate::exec::{Flow, Handler};
use crate::inst::Inst;
use crate::op::Op;
use crate::wave::{Wave, LANES};
use half::f16;

/// An element type of A and B, with its result type as register bits.
trait Element {
    const BITS: usize;
    /// `sum + a * b`.
    fn step(sum: u32, a: u32, b: u32) -> u32;
}

/// One chain of fused multiply-adds; a NaN is the machine's default one, whatever this host makes of it.
fn float_step(sum: u32, a: f32, b: f32) -> u32 {
    let result = a.mul_add(b, f32::from_bits(sum));
    if result.is_nan() {
        0x7fc0_0000
    } else {
        result.to_bits()
    }
}

struct Single;
struct Half;
struct Bfloat;
struct Byte;

impl Element for Single {
    const BITS: usize = 32;
    fn step(sum: u32, a: u32, b: u32) -> u32 {
        float_step(sum, f32::from_bits(a), f32::from_bits(b))
    }
}

impl Element for Half {
    const BITS: usize = 16;
    fn step(sum: u32, a: u32, b: u32) -> u32 {
        let [a, b] = [a, b].map(|half| f16::from_bits(half as u16).to_f32());
        float_step(sum, a, b)
    }
}

impl Element for Bfloat {
    const BITS: usize = 16;
    fn step(sum: u32, a: u32, b: u32) -> u32 {
        float_step(sum, f32::from_bits(a << 16), f32::from_bits(b << 16))
    }
}

impl Element for Byte {
    const BITS: usize = 8;
    fn step(sum: u32, a: u32, b: u32) -> u32 {
        let [a, b] = [a, b].map(|byte| i32::from(byte as i8));
        sum.wrapping_add((a * b) as u32)
    }
}

/// The element of source `index` at row or column `line` of a block, for one K.
fn element<E: Element>(inst: &Inst, wave: &Wave, index: usize, lane: usize, place: usize) -> u32 {
    let bit = place * E::BITS;
    let dword = match inst.src[index].vector() {
        Some(first) => wave.vgpr[first + bit / 32][lane],
        None => wave.scalar32(inst.src[index], inst.literal),
    };
    dword >> (bit % 32) & (!0u32 >> (32 - E::BITS))
}

/// Result register and lane of an element.
const fn result_place<const N: usize>(block: usize, row: usize, column: usize) -> (usize, usize) {
    if N == 4 {
        return (row, 4 * block + column);
    }
    let groups = LANES / N;
    (block * N * N / LANES + row / (4 * groups) * 4 + row % 4, row / 4 % groups * N + column)
}

fn multiply<E: Element, const N: usize, const K: usize, const BLOCKS: usize>(inst: &Inst, wave: &mut Wave) -> Flow {
    let per_lane = K * N * BLOCKS / LANES;
    let accumulator = inst.src[2].vector();
    let mut results = vec![[0u32; LANES]; N * N * BLOCKS / LANES];
    for block in 0..BLOCKS {
        for row in 0..N {
            for column in 0..N {
                let (register, lane) = result_place::<N>(block, row, column);
                let mut sum = match accumulator {
                    Some(first) => wave.vgpr[first + register][lane],
                    None => wave.scalar32(inst.src[2], inst.literal),
                };
                for k in 0..K {
                    let lanes = N * block + N * BLOCKS * (k / per_lane);
                    let a = element::<E>(inst, wave, 0, lanes + row, k % per_lane);
                    let b = element::<E>(inst, wave, 1, lanes + column, k % per_lane);
                    sum = E::step(sum, a, b);
                }
                results[register][lane] = sum;
            }
        }
    }
    if let Some(first) = inst.dst.vector() {
        wave.vgpr[first..first + results.len()].copy_from_slice(&results);
    }
    Flow::Next
}

/// The handler of a matrix instruction of this module; none if it asks for operand broadcast or permutation.
pub(super) fn handler(inst: &Inst) -> Option<Handler> {
    let mods = &inst.mods;
    if mods.cbsz != 0 || mods.abid != 0 || mods.blgp != 0 {
        return None;
    }
    Some(match inst.op {
        Op::VMfmaI3216x16x64I8 => multiply::<Byte, 16, 64, 1>,
        Op::VMfmaI3232x32x32I8 => multiply::<Byte, 32, 32, 1>,
        Op::VMfmaI3216x16x32I8 => multiply::<Byte, 16, 32, 1>,
        Op::VMfmaI3232x32x16I8 => multiply::<Byte, 32, 16, 1>,
        Op::VMfmaI3232x32x42bI8 => multiply::<Byte, 32, 4, 2>,
        Op::VMfmaI3216x16x44bI8 => multiply::<Byte, 16, 4, 4>,
        Op::VMfmaI324x4x416bI8 => multiply::<Byte, 4, 4, 16>,
        Op::VMfmaF3232x32x12bF32 => multiply::<Single, 32, 1, 2>,
        Op::VMfmaF3216x16x14bF32 => multiply::<Single, 16, 1, 4>,
        Op::VMfmaF324x4x116bF32 => multiply::<Single, 4, 1, 16>,
        Op::VMfmaF3232x32x42bF16 => multiply::<Half, 32, 4, 2>,
        Op::VMfmaF3216x16x44bF16 => multiply::<Half, 16, 4, 4>,
        Op::VMfmaF324x4x416bF16 => multiply::<Half, 4, 4, 16>,
        Op::VMfmaF3232x32x42bBf16 => multiply::<Bfloat, 32, 4, 2>,
        Op::VMfmaF3216x16x44bBf16 => multiply::<Bfloat, 16, 4, 4>,
        Op::VMfmaF324x4x416bBf16 => multiply::<Bfloat, 4, 4, 16>,
        _ => return None,
    })
}
