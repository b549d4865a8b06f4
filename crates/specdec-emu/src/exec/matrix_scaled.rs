//! MFMA on 4-, 6- and 8-bit floats with one power-of-two scale per 32 values of K.
//!
//! K is walked in ascending order as in [`crate::exec::matrix`]. Where lane group `g` of G holds its values: 4- and
//! 6-bit formats K `32 * g ..` +32 in order; 8-bit formats two runs of 16, K `16 * g` and `16 * (G + g)`, as AMD's
//! CDNA4 matrix-core examples load them. The scale of K block `b` is a byte of lane group `b` whatever the format.
//! Both operands' scales multiply the values before the product: powers of two, so that the product is exact and the
//! fused multiply-add rounds once.

use crate::exec::lane_op::lanes;
use crate::exec::matrix::{load_accumulator, multiply_add, store, Run, Tile, Values};
use crate::exec::matrix_columns::{self, multiply_columns};
use crate::exec::small_float::{power_of_two, Format};
use crate::exec::{Flow, Handler};
use crate::inst::{Inst, Operand};
use crate::op::Op;
use crate::wave::{Lanes, Wave, LANES};

/// K values of a lane, and of a run that every format keeps together in one.
const PER_LANE: usize = 32;
const RUN: usize = 16;

/// What the values of each lane's two runs are multiplied by.
type Factors = [[f32; LANES]; PER_LANE / RUN];

/// The registers and format of A or B.
#[derive(Clone, Copy)]
struct Source {
    first: usize,
    format: Format,
}

impl Source {
    fn new(operand: Operand, field: u8) -> Option<Self> {
        Some(Self { first: operand.vector()?, format: Format::from_field(field)? })
    }

    /// Lane group of run `run` of K and the first of its values there.
    const fn place<const N: usize>(self, run: usize) -> (usize, usize) {
        let num_groups = LANES / N;
        if self.format.num_bits() == 8 {
            (run % num_groups, run / num_groups * RUN)
        } else {
            (run / 2, run % 2 * RUN)
        }
    }

    /// The values of run `run` of K.
    fn run<const N: usize>(self, values: &Values<PER_LANE>, run: usize) -> Run<'_> {
        let (group, first_value) = self.place::<N>(run);
        Run { values: &values.0[first_value..first_value + RUN], first_lane: group * N }
    }

    /// Decodes every lane's values, each multiplied by its run's factor.
    #[inline(always)]
    fn decode(self, wave: &Wave, factors: &Factors, out: &mut Values<PER_LANE>) {
        if self.format == Format::E2m1 {
            for (dword, values) in out.0.chunks_exact_mut(8).enumerate() {
                let (mut codes, factors) = (wave.vgpr[self.first + dword], &factors[dword / 2]);
                // From the last nibble down, shifting as we go: written otherwise, the compiler vectorises over
                // nibbles and then transposes.
                for values in values.iter_mut().rev() {
                    for (lane, value) in values.iter_mut().enumerate() {
                        *value = scaled_e2m1(codes[lane], factors[lane]);
                        codes[lane] <<= 4;
                    }
                }
            }
            return;
        }
        let (table, num_bits) = (self.format.values(), self.format.num_bits());
        for (j, values) in out.0.iter_mut().enumerate() {
            let bit = j * num_bits;
            let low = &wave.vgpr[self.first + bit / 32];
            // A 6-bit value may begin in one register and end in the next; the last one never does.
            let high = &wave.vgpr[self.first + (bit + num_bits - 1) / 32];
            for (lane, value) in values.iter_mut().enumerate() {
                let both = u64::from(low[lane]) | u64::from(high[lane]) << 32;
                let code = (both >> (bit % 32)) as usize & ((1 << num_bits) - 1);
                *value = table[code] * factors[j / RUN][lane];
            }
        }
    }

    /// The factors that scale codes stand for.
    #[inline(always)]
    fn factors<const N: usize>(self, codes: &Lanes) -> Factors {
        let mut factors = [[0.0; LANES]; PER_LANE / RUN];
        for (half, factors) in factors.iter_mut().enumerate() {
            for (lane, factor) in factors.iter_mut().enumerate() {
                *factor = power_of_two(codes[self.scale_lane::<N>(lane, half)]);
            }
        }
        factors
    }

    /// The lane whose scale byte belongs to run `half` of lane `lane`.
    const fn scale_lane<const N: usize>(self, lane: usize, half: usize) -> usize {
        if self.format.num_bits() == 8 {
            let first_k = RUN * (lane / N + LANES / N * half);
            first_k / PER_LANE * N + lane % N
        } else {
            lane
        }
    }
}

/// The E2M1 value in the top four bits times a positive factor, without a table so that lanes vectorise.
#[inline(always)]
pub(super) fn scaled_e2m1(top: u32, factor: f32) -> f32 {
    // The three magnitude bits, placed as exponent and mantissa, are right from 1 up; below, 0.5 and 0.75 stand for
    // 0 and 0.5, which is where `2 m - 1` is the smaller.
    let magnitude = f32::from_bits(0x3f00_0000 + (top >> 6 & 0x01c0_0000));
    let (straight, bent) = (magnitude * factor, magnitude.mul_add(2.0 * factor, -factor));
    let value = if straight < bent { straight } else { bent };
    f32::from_bits(value.to_bits() | top & 0x8000_0000)
}

/// The E8M0 codes of scale operand `index`: its byte that `op_sel` (low bit) and `op_sel_hi` (high bit) select.
#[inline(always)]
fn scale_codes(inst: &Inst, wave: &Wave, index: usize) -> Lanes {
    let mut codes = lanes(inst, wave, inst.scale[index]);
    let byte = u32::from(inst.mods.op_sel >> index & 1) | u32::from(inst.mods.op_sel_hi >> index & 1) << 1;
    for code in &mut codes {
        *code = *code >> (8 * byte) & 0xff;
    }
    codes
}

/// The largest scale code with which no value of any format overflows.
const LARGEST_SMALL: u32 = 227;

/// Whether no value of any format overflows when multiplied by these scales.
#[inline(always)]
fn are_small(codes: &Lanes) -> bool {
    codes.iter().fold(0, |largest, &code| largest.max(if code == 255 { 0 } else { code })) <= LARGEST_SMALL
}

/// The product with scales so large that a scaled operand may overflow where the product of all four does not: the
/// sum of both exponents is split evenly, pair by pair.
#[cold]
#[inline(never)]
fn multiply_add_balanced<const N: usize>(
    tile: &mut Tile<N>,
    sources: [Source; 2],
    values: [&Values<PER_LANE>; 2],
    codes: [&Lanes; 2],
) {
    for run in 0..2 * LANES / N {
        let runs = [0, 1].map(|index: usize| sources[index].run::<N>(values[index], run));
        let first_scale_lane = run / 2 * N;
        for (row, chains) in tile.0.iter_mut().enumerate() {
            for (column, chain) in chains.iter_mut().enumerate() {
                let (a_code, b_code) = (codes[0][first_scale_lane + row], codes[1][first_scale_lane + column]);
                // From 2^200 on the smallest product overflows anyway; 2^100 keeps each operand finite.
                let exponent = (a_code as i32 + b_code as i32 - 254).min(200);
                let half = exponent.div_euclid(2);
                let is_nan = a_code == 255 || b_code == 255;
                let factor = |exponent: i32| if is_nan { f32::NAN } else { power_of_two((exponent + 127) as u32) };
                for (a, b) in runs[0].values.iter().zip(runs[1].values) {
                    let a = a[runs[0].first_lane + row] * factor(half);
                    let b = b[runs[1].first_lane + column] * factor(exponent - half);
                    *chain = a.mul_add(b, *chain);
                }
            }
        }
    }
}

const UNSCALED: Factors = [[1.0; LANES]; PER_LANE / RUN];

/// N by N, in RUNS runs of K (two per lane group).
fn mfma<const N: usize, const RUNS: usize, const SCALED: bool>(inst: &Inst, wave: &mut Wave) -> Flow {
    let sources = (Source::new(inst.src[0], inst.mods.cbsz), Source::new(inst.src[1], inst.mods.blgp));
    let (Some(a_source), Some(b_source)) = sources else { return Flow::Next };
    let mut tile = Tile::<N>::ZERO;
    load_accumulator(inst, wave, &mut tile);
    let (mut a_codes, mut b_codes) = ([127; LANES], [127; LANES]);
    if SCALED {
        (a_codes, b_codes) = (scale_codes(inst, wave, 0), scale_codes(inst, wave, 1));
    }
    let (mut a, mut b) = (Values::ZERO, Values::ZERO);
    if SCALED && !(are_small(&a_codes) && are_small(&b_codes)) {
        a_source.decode(wave, &UNSCALED, &mut a);
        b_source.decode(wave, &UNSCALED, &mut b);
        multiply_add_balanced(&mut tile, [a_source, b_source], [&a, &b], [&a_codes, &b_codes]);
        store(inst, wave, &tile);
        return Flow::Next;
    }
    a_source.decode(wave, &a_source.factors::<N>(&a_codes), &mut a);
    b_source.decode(wave, &b_source.factors::<N>(&b_codes), &mut b);
    let runs: [(Run, Run); RUNS] = std::array::from_fn(|run| (a_source.run::<N>(&a, run), b_source.run::<N>(&b, run)));
    multiply_add::<N, 4, 16>(&mut tile, &runs);
    store(inst, wave, &tile);
    Flow::Next
}

/// 16 by 16 on 4-bit floats, what the experts multiply with.
fn mfma_e2m1<const SCALED: bool>(inst: &Inst, wave: &mut Wave) -> Flow {
    let (mut a_codes, mut b_codes) = ([127; LANES], [127; LANES]);
    if SCALED {
        (a_codes, b_codes) = (scale_codes(inst, wave, 0), scale_codes(inst, wave, 1));
    }
    // Large scales need care, and a NaN among them meets zeros too.
    let largest = a_codes.iter().chain(&b_codes).fold(0, |largest, &code| largest.max(code));
    let sources = (Source::new(inst.src[0], inst.mods.cbsz), Source::new(inst.src[1], inst.mods.blgp));
    let ((Some(a_source), Some(b_source)), true) = (sources, largest <= LARGEST_SMALL) else {
        return mfma::<16, 8, SCALED>(inst, wave);
    };
    let mut tile = Tile::<16>::ZERO;
    load_accumulator(inst, wave, &mut tile);
    let a = matrix_columns::Operand { registers: &wave.vgpr[a_source.first..a_source.first + 4], codes: &a_codes };
    let b = matrix_columns::Operand { registers: &wave.vgpr[b_source.first..b_source.first + 4], codes: &b_codes };
    if !multiply_columns(&mut tile, a, b) {
        return mfma::<16, 8, SCALED>(inst, wave);
    }
    store(inst, wave, &tile);
    Flow::Next
}

/// The handler of a matrix instruction on small floats.
pub(super) fn handler(inst: &Inst) -> Option<Handler> {
    let handler: Handler = match inst.op {
        Op::VMfmaF3216x16x128F8f6f4 => mfma::<16, 8, false>,
        Op::VMfmaF3232x32x64F8f6f4 => mfma::<32, 4, false>,
        Op::VMfmaScaleF3216x16x128F8f6f4 => mfma::<16, 8, true>,
        Op::VMfmaScaleF3232x32x64F8f6f4 => mfma::<32, 4, true>,
        _ => return None,
    };
    let is_e2m1 = |field| Format::from_field(field) == Some(Format::E2m1);
    let handler = match inst.op {
        Op::VMfmaF3216x16x128F8f6f4 if is_e2m1(inst.mods.cbsz) && is_e2m1(inst.mods.blgp) => mfma_e2m1::<false>,
        Op::VMfmaScaleF3216x16x128F8f6f4 if is_e2m1(inst.mods.cbsz) && is_e2m1(inst.mods.blgp) => mfma_e2m1::<true>,
        _ => handler,
    };
    // Formats that do not exist, and operands that are not registers, stay unimplemented.
    Source::new(inst.src[0], inst.mods.cbsz)?;
    Source::new(inst.src[1], inst.mods.blgp)?;
    Some(handler)
}
