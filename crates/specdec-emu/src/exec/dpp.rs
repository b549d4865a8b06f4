//! DPP: the cross-lane read of source 0.

use crate::inst::Dpp;
use crate::wave::{Lanes, LANES};

/// Marks a lane that reads no lane.
const NONE: u8 = u8::MAX;

/// For each control and lane, the lane that is read.
static SOURCES: [[u8; LANES]; 512] = source_table();

#[expect(clippy::large_stack_arrays, reason = "it lives on the compiler's stack")]
const fn source_table() -> [[u8; LANES]; 512] {
    let mut table = [[NONE; LANES]; 512];
    let mut ctrl = 0;
    while ctrl < table.len() {
        let mut lane = 0;
        while lane < LANES {
            table[ctrl][lane] = source_lane(ctrl, lane);
            lane += 1;
        }
        ctrl += 1;
    }
    table
}

const fn source_lane(ctrl: usize, lane: usize) -> u8 {
    let amount = ctrl & 15;
    let (row, place) = (lane & !15, lane & 15);
    let source = match ctrl {
        0x000..=0x0ff => lane & !3 | (ctrl >> (2 * (lane & 3)) & 3),
        0x101..=0x10f if place + amount < 16 => lane + amount,
        0x111..=0x11f if place >= amount => lane - amount,
        0x121..=0x12f => row | ((place + 16 - amount) & 15),
        0x130 if lane < 63 => lane + 1,
        0x134 => (lane + 1) % LANES,
        0x138 if lane > 0 => lane - 1,
        0x13c => (lane + LANES - 1) % LANES,
        0x140 => lane ^ 15,
        0x141 => lane ^ 7,
        0x142 if row > 0 => row - 1,
        0x143 if lane >= 32 => 31,
        0x150..=0x15f => row | amount,
        _ => return NONE,
    };
    source as u8
}

/// Whether the control is one that gfx950 has.
pub(super) fn is_known(ctrl: u16) -> bool {
    matches!(ctrl, 0..=0xff | 0x101..=0x10f | 0x111..=0x11f | 0x121..=0x12f | 0x130 | 0x134 | 0x138 | 0x13c
        | 0x140..=0x143 | 0x150..=0x15f)
}

/// The lanes of the rows and banks that the two masks allow.
fn masked_lanes(row_mask: u8, bank_mask: u8) -> u64 {
    let spread = |mask: u8, width: u32, unit: u64| {
        (0..4).fold(0, |lanes, bit| lanes | (u64::from(mask >> bit & 1) * unit) << (bit * width))
    };
    let banks_of_row = spread(bank_mask, 4, 0xf);
    spread(row_mask, 16, 0xffff) & (banks_of_row * 0x0001_0001_0001_0001)
}

/// Replaces each lane by the lane it reads; returns which lanes may be written.
///
/// A source lane that does not exist, or that EXEC disables, is invalid: it reads as zero with `bound_ctrl`,
/// otherwise the reading lane is not written.
pub(super) fn permute(dpp: Dpp, value: &mut Lanes, exec: u64) -> u64 {
    let before = *value;
    let mut valid = 0;
    for (lane, (value, &from)) in value.iter_mut().zip(&SOURCES[usize::from(dpp.ctrl) % 512]).enumerate() {
        let is_valid = from != NONE && exec >> (from % LANES as u8) & 1 == 1;
        *value = if is_valid { before[usize::from(from) % LANES] } else { 0 };
        valid |= u64::from(is_valid) << lane;
    }
    masked_lanes(dpp.row_mask, dpp.bank_mask) & if dpp.bound_ctrl { !0 } else { valid }
}
