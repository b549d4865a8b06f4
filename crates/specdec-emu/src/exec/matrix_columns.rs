//! The 16 x 16 x 128 product of 4-bit floats, column by column: most columns of a decode step's operand are rows that
//! did not pick the expert, and zero.
//!
//! A column of B that is zero changes nothing but the sign of a negative zero in C, as long as no zero meets an
//! infinity or a NaN. The others are the same chains of fused multiply-adds as everywhere, a vector of rows each.

use bytemuck::cast;
use wide::{f32x8, u32x8};

use crate::exec::matrix::Tile;
use crate::exec::matrix_scaled::scaled_e2m1;
use crate::exec::small_float::power_of_two;
use crate::wave::{Lanes, LANES};

const N: usize = 16;
const GROUPS: usize = LANES / N;
/// Registers of an operand, and values of a register.
const DWORDS: usize = 4;
const NIBBLES: usize = 8;
/// K values of a column.
const DEPTH: usize = GROUPS * DWORDS * NIBBLES;
/// Columns whose chains fit the registers of this machine.
const MOST: usize = 4;

/// The registers of an operand and the scale code of each lane, small enough that nothing overflows.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a> {
    pub registers: &'a [Lanes],
    pub codes: &'a Lanes,
}

/// One column of B, by ascending K.
type Column = [f32; DEPTH];

impl Operand<'_> {
    fn column(self, column: usize, out: &mut Column) {
        for (group, values) in out.chunks_exact_mut(DWORDS * NIBBLES).enumerate() {
            let lane = group * N + column;
            let factor = power_of_two(self.codes[lane]);
            for (register, values) in self.registers.iter().zip(values.chunks_exact_mut(NIBBLES)) {
                for (nibble, value) in values.iter_mut().enumerate() {
                    *value = scaled_e2m1(register[lane] << (28 - 4 * nibble), factor);
                }
            }
        }
    }
}

/// The columns that have to be multiplied, a bit each: B's codes are not all zero there, or C holds a negative zero.
#[inline(always)]
fn active_columns(tile: &Tile<N>, b: Operand) -> u32 {
    let mut seen = [0; N];
    for group in b.registers.iter().flat_map(|register| register.chunks_exact(N)) {
        for (seen, code) in seen.iter_mut().zip(group) {
            *seen |= code;
        }
    }
    for row in &tile.0 {
        for (seen, value) in seen.iter_mut().zip(row) {
            *seen |= u32::from(value.to_bits() == 1 << 31);
        }
    }
    seen.iter().enumerate().fold(0, |mask, (column, seen)| mask | u32::from(*seen != 0) << column)
}

/// Adds A times B, unless so many columns are active that the whole product is quicker; whether it did.
pub(super) fn multiply_columns(tile: &mut Tile<N>, a: Operand, b: Operand) -> bool {
    let mut rest = active_columns(tile, b);
    let count = rest.count_ones() as usize;
    if count > MOST {
        return false;
    }
    let (mut columns, mut values) = ([0; MOST], [[0.0; DEPTH]; MOST]);
    for (number, values) in columns.iter_mut().zip(&mut values).take(count) {
        *number = rest.trailing_zeros() as usize;
        b.column(*number, values);
        rest &= rest - 1;
    }
    match count {
        0 => {}
        1 => multiply_block::<1>(tile, a, &values, &columns),
        2 => multiply_block::<2>(tile, a, &values, &columns),
        3 => multiply_block::<3>(tile, a, &values, &columns),
        _ => multiply_block::<MOST>(tile, a, &values, &columns),
    }
    true
}

/// Sixteen rows as two vectors.
type Rows = [f32x8; 2];

fn rows(values: &[f32]) -> Rows {
    [0, 8].map(|first| {
        let mut vector = [0.0; 8];
        vector.copy_from_slice(&values[first..first + 8]);
        vector.into()
    })
}

/// [`scaled_e2m1`] of eight lanes.
#[inline(always)]
fn scaled_rows(top: u32x8, factor: f32x8) -> f32x8 {
    let magnitude: f32x8 = cast(u32x8::splat(0x3f00_0000) + (top >> 6 & u32x8::splat(0x01c0_0000)));
    let value = (magnitude * factor).fast_min(magnitude.mul_sub(factor + factor, factor));
    cast(cast::<f32x8, u32x8>(value) | top & u32x8::splat(0x8000_0000))
}

/// The first `C` columns.
#[inline(never)]
fn multiply_block<const C: usize>(tile: &mut Tile<N>, a: Operand, values: &[Column; MOST], columns: &[usize; MOST]) {
    let mut chains: [Rows; C] = std::array::from_fn(|index| rows(&tile.0.map(|row| row[columns[index]])));
    for group in 0..GROUPS {
        let lanes = group * N..(group + 1) * N;
        let mut factors = [0.0; N];
        for (factor, code) in factors.iter_mut().zip(&a.codes[lanes.clone()]) {
            *factor = power_of_two(*code);
        }
        let factors = rows(&factors);
        for (dword, register) in a.registers.iter().enumerate() {
            let codes = [0, 8].map(|first| {
                let mut vector = [0; 8];
                vector.copy_from_slice(&register[lanes.start + first..lanes.start + first + 8]);
                u32x8::from(vector)
            });
            let first_k = (group * DWORDS + dword) * NIBBLES;
            let values: [&[f32]; C] = std::array::from_fn(|index| &values[index][first_k..first_k + NIBBLES]);
            for nibble in 0..NIBBLES {
                let a: Rows = [0, 1].map(|half| scaled_rows(codes[half] << (28 - 4 * nibble as u32), factors[half]));
                for (chain, values) in chains.iter_mut().zip(&values) {
                    let b = f32x8::splat(values[nibble]);
                    *chain = [a[0].mul_add(b, chain[0]), a[1].mul_add(b, chain[1])];
                }
            }
        }
    }
    for (chain, &column) in chains.iter().zip(columns) {
        for (row, value) in chain.iter().flat_map(|half| half.to_array()).enumerate() {
            tile.0[row][column] = value;
        }
    }
}
