//! The tap: what was stored into exchange regions, kept by tag, so that reused regions can be checked afterwards.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use specdec_core::ids::Rank;

use super::visibility::{LaneAddresses, Origin};
use crate::wave::Lanes;

/// How a region's data and tags travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TapForm {
    /// 8-byte stores: payload in the low word, tag in the high one.
    Pairs,
    /// Plain stores into the data, then a 4-byte tag into one of the flags by the same workgroup.
    Rows {
        /// Addresses of the flags.
        flags: Range<u64>,
    },
}

/// An exchange region that the host wants to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapRegion {
    /// Rank that the region belongs to.
    pub rank: Rank,
    /// The host's number for it.
    pub id: u32,
    /// Name in error messages.
    pub name: String,
    /// Addresses of the data (or of the pairs).
    pub data: Range<u64>,
    /// How it is written.
    pub form: TapForm,
}

/// What was stored under one tag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TapImage {
    /// Pairs: the 4-byte payloads, dense. Rows: the data range.
    pub bytes: Vec<u8>,
    /// Per byte, 1 where it was stored under this tag.
    pub written: Vec<u8>,
}

/// A store that waits for its flag: offset in the region and bytes.
type PendingStore = (u64, [u8; 16], u8);

/// Registered regions and their images.
#[derive(Debug, Default)]
pub(super) struct Tap {
    regions: Vec<TapRegion>,
    /// Watched ranges, data and flags, sorted by address, with their region.
    ranges: Vec<(Range<u64>, usize)>,
    images: BTreeMap<(Rank, u32, u32), TapImage>,
    /// Per storing rank, workgroup and region index: row stores whose flag has not come.
    pending: HashMap<(Rank, u32, usize), Vec<PendingStore>>,
}

impl TapRegion {
    fn image_bytes(&self) -> usize {
        let bytes = (self.data.end - self.data.start) as usize;
        if self.form == TapForm::Pairs {
            bytes / 2
        } else {
            bytes
        }
    }
}

impl Tap {
    /// Registers a region. Regions of one rank may share an id: the halves of a doubled one, told apart by tag.
    pub fn watch(&mut self, region: TapRegion) {
        let index = self.regions.len();
        self.ranges.push((region.data.clone(), index));
        if let TapForm::Rows { flags } = &region.form {
            self.ranges.push((flags.clone(), index));
        }
        self.ranges.sort_by_key(|(range, _)| range.start);
        self.regions.push(region);
    }

    /// The region that watches an address.
    #[inline]
    fn find(&self, address: u64) -> Option<usize> {
        let before = self.ranges.partition_point(|(range, _)| range.start <= address).checked_sub(1)?;
        let (range, index) = &self.ranges[before];
        range.contains(&address).then_some(*index)
    }

    /// Whether an address is data of a region with this rank and id.
    pub fn is_data_of(&self, address: u64, rank: Rank, id: u32) -> bool {
        let region = self.find(address).map(|index| &self.regions[index]);
        region.is_some_and(|region| (region.rank, region.id) == (rank, id) && region.data.contains(&address))
    }

    /// Forgets every region and image.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Removes and returns what was stored into a region under a tag.
    pub fn take(&mut self, rank: Rank, id: u32, tag: u32) -> Option<TapImage> {
        self.images.remove(&(rank, id, tag))
    }

    /// Tags under which something was stored into a region.
    pub fn tags(&self, rank: Rank, id: u32) -> Vec<u32> {
        self.images.range((rank, id, 0)..=(rank, id, u32::MAX)).map(|(&(_, _, tag), _)| tag).collect()
    }

    /// An address as region name and pair index (or byte offset).
    pub fn place(&self, address: u64) -> Option<String> {
        let region = &self.regions[self.find(address)?];
        let offset = address.wrapping_sub(region.data.start);
        Some(match region.form {
            TapForm::Pairs => format!("{} of {} pair {}", region.name, region.rank, offset / 8),
            TapForm::Rows { .. } if region.data.contains(&address) => {
                format!("{} of {} + {offset:#x}", region.name, region.rank)
            }
            TapForm::Rows { ref flags } => {
                format!("{} of {} flag {}", region.name, region.rank, (address - flags.start) / 4)
            }
        })
    }

    /// Whether any lane may store into a region.
    #[inline]
    pub fn may_watch(&self, lanes: &LaneAddresses) -> bool {
        let (Some((first, _)), Some((last, _))) = (self.ranges.first(), self.ranges.last()) else { return false };
        let bounds = first.start..last.end;
        lanes.active().any(|lane| bounds.contains(&lanes.at[lane]))
    }

    /// Records the stores of one instruction.
    pub fn observe(&mut self, origin: Origin, lanes: &LaneAddresses, bytes: usize, data: &[Lanes]) {
        for lane in lanes.active() {
            let address = lanes.at[lane];
            let Some(index) = self.find(address) else { continue };
            let mut value = [0; 16];
            for (word, chunk) in data.iter().zip(value.chunks_exact_mut(4)) {
                chunk.copy_from_slice(&word[lane].to_le_bytes());
            }
            self.record(origin, index, address, &value[..bytes]);
        }
    }

    fn record(&mut self, origin: Origin, index: usize, address: u64, value: &[u8]) {
        let region = &self.regions[index];
        let key = (origin.rank, origin.workgroup, index);
        match &region.form {
            TapForm::Pairs => {
                let first = (address - region.data.start) / 8;
                for (pair, at) in value.chunks_exact(8).zip(first..) {
                    let tag = u32::from_le_bytes([pair[4], pair[5], pair[6], pair[7]]);
                    let image = image(&mut self.images, region, tag);
                    put(image, at as usize * 4, &pair[..4]);
                }
            }
            TapForm::Rows { .. } if region.data.contains(&address) => {
                let mut bytes = [0; 16];
                bytes[..value.len()].copy_from_slice(value);
                let store = (address - region.data.start, bytes, value.len() as u8);
                self.pending.entry(key).or_default().push(store);
            }
            TapForm::Rows { .. } => {
                let Ok(tag) = value.try_into().map(u32::from_le_bytes) else { return };
                let image = image(&mut self.images, region, tag);
                for (offset, bytes, count) in self.pending.remove(&key).unwrap_or_default() {
                    put(image, offset as usize, &bytes[..count as usize]);
                }
            }
        }
    }
}

fn image<'a>(images: &'a mut BTreeMap<(Rank, u32, u32), TapImage>, region: &TapRegion, tag: u32) -> &'a mut TapImage {
    images.entry((region.rank, region.id, tag)).or_insert_with(|| {
        let bytes = region.image_bytes();
        TapImage { bytes: vec![0; bytes], written: vec![0; bytes] }
    })
}

/// Writes what fits: a store may reach past the region's end.
fn put(image: &mut TapImage, at: usize, value: &[u8]) {
    let end = image.bytes.len().min(at + value.len());
    if at < end {
        image.bytes[at..end].copy_from_slice(&value[..end - at]);
        image.written[at..end].fill(1);
    }
}
