//! LDS reads that transpose: what sixteen lanes read is a matrix, and each lane gets a column of it.

use crate::wave::{Lanes, LANES};

/// Lanes that share a matrix.
const BLOCK: usize = 16;

/// Whether every matrix has all of its lanes or none: what a missing lane would contribute is not documented.
pub(super) fn is_whole(exec: u64) -> bool {
    (0..LANES / BLOCK).all(|block| matches!(exec >> (block * BLOCK) & 0xffff, 0 | 0xffff))
}

/// Transposes what each block of lanes has read: rows of sixteen elements of `bits` bits, spread over consecutive
/// lanes, one row for each element that a lane holds. Lane `i` of the block gets column `i`.
pub(super) fn transpose(data: &mut [Lanes], bits: usize, exec: u64) {
    let elements = data.len() * 32 / bits;
    let lanes_of_a_row = BLOCK / elements;
    let old: Vec<Lanes> = data.to_vec();
    let element = |lane: usize, index: usize| {
        let bit = index * bits;
        old[bit / 32][lane] >> (bit % 32) & ((1 << bits) - 1)
    };
    for lane in (0..LANES).filter(|lane| exec >> lane & 1 != 0) {
        let (first, column) = (lane / BLOCK * BLOCK, lane % BLOCK);
        for register in data.iter_mut() {
            register[lane] = 0;
        }
        for row in 0..elements {
            let value = element(first + row * lanes_of_a_row + column / elements, column % elements);
            data[row * bits / 32][lane] |= value << (row * bits % 32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The matrix has `row * 16 + column` as its elements, so a column is an arithmetic sequence.
    #[test]
    fn each_lane_gets_a_column() {
        for bits in [16, 8] {
            let elements = 64 / bits;
            let place = |lane: usize, index: usize| (index * bits / 32, lane, index * bits % 32);
            let mut data = [[0u32; LANES]; 2];
            for lane in 0..LANES {
                for index in 0..elements {
                    let (register, lane, shift) = place(lane, index);
                    data[register][lane] |= ((lane % BLOCK * elements + index) as u32) << shift;
                }
            }
            transpose(&mut data, bits, u64::MAX);
            for lane in 0..LANES {
                for row in 0..elements {
                    let (register, lane, shift) = place(lane, row);
                    let value = data[register][lane] >> shift & ((1 << bits) - 1);
                    assert_eq!(value as usize, row * BLOCK + lane % BLOCK, "{bits} bits, lane {lane}");
                }
            }
        }
    }

    #[test]
    fn a_matrix_without_some_of_its_lanes_is_not_whole() {
        assert!(is_whole(u64::MAX) && is_whole(0xffff_0000_ffff_0000) && is_whole(0));
        assert!(!is_whole(u64::MAX >> 1) && !is_whole(1));
    }
}
