//! Lane masks in scalar register pairs: what comparisons and carries write and conditional moves read.

use crate::inst::{Inst, Operand};
use crate::wave::{Wave, LANES, VCC};

/// One byte, 0 or 1, per lane.
pub(super) type Flags = [u8; LANES];

/// Packs one flag per lane into a mask.
#[inline(always)]
pub(super) fn pack(flags: &Flags) -> u64 {
    let mut mask = 0;
    for (index, eight) in flags.chunks_exact(8).enumerate() {
        let bytes = eight.iter().rev().fold(0, |bytes, &flag| bytes << 8 | u64::from(flag));
        // The multiplication gathers the low bit of each byte into the top byte without a carry between them.
        mask |= (bytes.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * index);
    }
    mask
}

/// The register pair of a mask operand; one that the encoding leaves out is VCC.
pub(super) fn pair(operand: Operand) -> usize {
    operand.scalar().unwrap_or(VCC)
}

/// Writes a mask; lanes that EXEC disables become zero.
#[inline(always)]
pub(super) fn write(wave: &mut Wave, operand: Operand, mask: u64) {
    let active = mask & wave.exec();
    wave.write64(pair(operand), active);
}

/// The mask that source `index` holds; VCC if the encoding leaves it out.
#[inline(always)]
pub(super) fn read(inst: &Inst, wave: &Wave, index: usize) -> u64 {
    let operand = inst.src[index];
    if operand.is_some() {
        wave.scalar64(operand, inst.literal)
    } else {
        wave.read64(VCC)
    }
}
