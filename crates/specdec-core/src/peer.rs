//! The peer buffer: what all ranks of a group map and store into (spec/runtime.md §5 and §6).
//!
//! `head | half of even epochs | half of odd epochs`. The head holds an alarm word for each rank. A half has one size
//! whatever a step's width, and holds nothing but pairs; plain data lives in scratch, which no peer reaches.

use std::ops::Range;

use serde::Serialize;

use crate::abi::{MAX_RANKS, PEER_HEAD_BYTES};
use crate::geometry::Shard;
use crate::ids::Rank;
use crate::layout::{Layout, Place, Region};
use crate::tag::Epoch;

/// Bytes of a pair: payload and tag.
pub const PAIR_BYTES: u64 = 8;
/// Bytes of an alarm word.
const ALARM_BYTES: u64 = 4;
/// Halves, one for each parity of an epoch.
pub const HALVES: u32 = 2;

// The head has a word for every rank.
const _: () = assert!(MAX_RANKS as u64 * ALARM_BYTES <= PEER_HEAD_BYTES as u64);

/// A pair by what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PairPlace {
    /// Parity of the epochs that use it.
    pub parity: u32,
    /// Its region.
    pub region: Region,
    /// Its number in the region.
    pub pair: u64,
}

/// Layout of a rank's peer buffer; every offset is in bytes from the buffer's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerLayout {
    /// Bytes of the head.
    pub head_bytes: u64,
    /// Bytes of each half.
    pub half_bytes: u64,
    /// Pair regions with their place in a half.
    pub regions: Vec<Place>,
}

impl PeerLayout {
    /// The layout for one rank's shard: the same for every width.
    pub fn new(shard: &Shard) -> Self {
        let layout = Layout::new(shard);
        Self {
            head_bytes: u64::from(PEER_HEAD_BYTES),
            half_bytes: layout.peer_half_bytes,
            regions: layout.places.into_iter().filter(|place| place.flags.is_none()).collect(),
        }
    }

    /// Bytes of the buffer.
    pub const fn bytes(&self) -> u64 {
        self.head_bytes + HALVES as u64 * self.half_bytes
    }

    /// The alarm word of a rank.
    pub const fn alarm(&self, rank: Rank) -> Range<u64> {
        let start = rank.0 as u64 * ALARM_BYTES;
        start..start + ALARM_BYTES
    }

    /// The half that an epoch's pairs live in.
    pub const fn half(&self, epoch: Epoch) -> Range<u64> {
        let start = self.head_bytes + epoch.parity() as u64 * self.half_bytes;
        start..start + self.half_bytes
    }

    /// A pair region in an epoch; `None` for regions in scratch.
    pub fn region(&self, epoch: Epoch, region: Region) -> Option<Range<u64>> {
        let place = self.regions.iter().find(|place| place.region == region)?;
        let start = self.half(epoch).start + place.data;
        Some(start..start + place.data_bytes)
    }

    /// The pair at an offset; `None` in the head and between regions.
    pub fn pair_at(&self, offset: u64) -> Option<PairPlace> {
        let past_head = offset.checked_sub(self.head_bytes)?;
        let (parity, offset) = (past_head / self.half_bytes, past_head % self.half_bytes);
        let inside = |place: &&Place| (place.data..place.data + place.data_bytes).contains(&offset);
        let place = self.regions.iter().find(inside).filter(|_| parity < u64::from(HALVES))?;
        Some(PairPlace { parity: parity as u32, region: place.region, pair: (offset - place.data) / PAIR_BYTES })
    }
}
