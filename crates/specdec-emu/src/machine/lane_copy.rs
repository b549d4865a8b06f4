//! Copies between memory (a lane's bytes together) and registers (a dword of all lanes together).

use super::visibility::LaneAddresses;
use crate::wave::{Lanes, LANES};

/// Whether lane `l` accesses byte `first + l * bytes`, all lanes active.
#[inline]
fn is_contiguous(lanes: &LaneAddresses, bytes: usize) -> bool {
    let first = lanes.at[0];
    lanes.mask == u64::MAX
        && (0..LANES).fold(true, |same, lane| same & (lanes.at[lane] == first.wrapping_add((lane * bytes) as u64)))
}

/// One lane's registers as bytes.
#[inline]
pub(super) fn pack(data: &[Lanes], lane: usize) -> [u8; 16] {
    let mut value = [0; 16];
    for (word, chunk) in data.iter().zip(value.chunks_exact_mut(4)) {
        chunk.copy_from_slice(&word[lane].to_le_bytes());
    }
    value
}

#[inline]
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | byte as u32)
}

/// Calls `visit` with each active lane and its place in `view`, whose first byte has address `base`.
#[inline]
fn each_lane(base: u64, lanes: &LaneAddresses, bytes: usize, mut visit: impl FnMut(usize, usize)) {
    if is_contiguous(lanes, bytes) {
        let first = (lanes.at[0] - base) as usize;
        (0..LANES).for_each(|lane| visit(lane, first + lane * bytes));
    } else if lanes.mask == u64::MAX {
        lanes.at.iter().enumerate().for_each(|(lane, address)| visit(lane, (address - base) as usize));
    } else {
        lanes.active().for_each(|lane| visit(lane, (lanes.at[lane] - base) as usize));
    }
}

#[inline]
fn gather_dwords<const DWORDS: usize>(view: &[u8], base: u64, lanes: &LaneAddresses, out: &mut [Lanes]) {
    let Some(out) = out.first_chunk_mut::<DWORDS>() else { return };
    each_lane(base, lanes, DWORDS * 4, |lane, at| {
        for (register, word) in out.iter_mut().zip(view[at..at + DWORDS * 4].chunks_exact(4)) {
            register[lane] = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        }
    });
}

#[inline]
fn scatter_dwords<const DWORDS: usize>(view: &mut [u8], base: u64, lanes: &LaneAddresses, data: &[Lanes]) {
    let Some(data) = data.first_chunk::<DWORDS>() else { return };
    each_lane(base, lanes, DWORDS * 4, |lane, at| {
        for (register, word) in data.iter().zip(view[at..at + DWORDS * 4].chunks_exact_mut(4)) {
            word.copy_from_slice(&register[lane].to_le_bytes());
        }
    });
}

/// Copies the active lanes' bytes out of `view`, whose first byte has address `base`, into registers. The caller
/// has checked that all of them lie in `view`.
pub(super) fn gather(view: &[u8], base: u64, lanes: &LaneAddresses, bytes: usize, out: &mut [Lanes]) {
    match bytes {
        4 => gather_dwords::<1>(view, base, lanes, out),
        8 => gather_dwords::<2>(view, base, lanes, out),
        12 => gather_dwords::<3>(view, base, lanes, out),
        16 => gather_dwords::<4>(view, base, lanes, out),
        _ => each_lane(base, lanes, bytes, |lane, at| out[0][lane] = word(&view[at..at + bytes])),
    }
}

/// Copies the active lanes' registers to memory. The caller has checked that all of it lies in `view`.
pub(super) fn scatter(view: &mut [u8], base: u64, lanes: &LaneAddresses, bytes: usize, data: &[Lanes]) {
    match bytes {
        4 => scatter_dwords::<1>(view, base, lanes, data),
        8 => scatter_dwords::<2>(view, base, lanes, data),
        12 => scatter_dwords::<3>(view, base, lanes, data),
        16 => scatter_dwords::<4>(view, base, lanes, data),
        _ => each_lane(base, lanes, bytes, |lane, at| {
            view[at..at + bytes].copy_from_slice(&data[0][lane].to_le_bytes()[..bytes]);
        }),
    }
}
