//! What errors call a place in memory: its allocation, and the part of it where it consists of equal parts.

use super::emulator::Emulator;
use super::error::EmulatorError;
use super::memory::{Allocation, Memory};
use super::tap::Tap;

/// An address as its exchange region and index, where one is watched there, and as its allocation and offset.
pub(super) fn named_place(memory: &Memory, tap: &Tap, address: u64) -> String {
    let place = memory.place(address);
    tap.place(address).map_or(place.clone(), |region| format!("{region} ({place})"))
}

/// Equal parts of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// What one part is.
    pub what: String,
    /// Bytes of a part.
    pub bytes: u64,
    /// Number of the first part.
    pub first: u64,
}

impl Parts {
    /// The name of the part at an offset of the allocation `name`, and the offset there.
    pub(super) fn locate(&self, name: &str, offset: u64) -> (String, u64) {
        let bytes = self.bytes.max(1);
        (format!("{name}, {} {}", self.what, self.first + offset / bytes), offset % bytes)
    }
}

impl Allocation {
    /// A place as a name, with its part's number if there are parts, and the offset from there.
    pub(super) fn locate(&self, offset: u64) -> (String, u64) {
        self.parts.as_ref().map_or_else(|| (self.name.clone(), offset), |parts| parts.locate(&self.name, offset))
    }
}

impl Memory {
    /// An address as an allocation's name and an offset.
    pub fn place(&self, address: u64) -> String {
        self.find(address).map_or_else(
            || format!("{address:#x}"),
            |index| {
                let (name, offset) = self.allocations[index].locate(address - self.allocations[index].base);
                format!("`{name}` + {offset:#x}")
            },
        )
    }

    /// The allocation nearest to an address, in words.
    pub(super) fn near(&self, address: u64) -> String {
        let at = self.allocations.partition_point(|allocation| allocation.base <= address);
        let before = at.checked_sub(1).map(|before| &self.allocations[before]);
        let before = before.map(|before| (address.saturating_sub(before.end()), before, "past the end of"));
        let after = self.allocations.get(at).map(|after| (after.base - address, after, "before"));
        let nearest = before.into_iter().chain(after).min_by_key(|&(distance, ..)| distance);
        nearest.map_or_else(String::new, |(distance, allocation, side)| {
            format!(", {distance:#x} bytes {side} `{}` of {} ({:?})", allocation.name, allocation.rank, allocation.kind)
        })
    }
}

impl Emulator {
    /// Says of what equal parts a registered memory consists, for errors that are about it.
    pub fn name_parts(&mut self, address: u64, parts: Parts) -> Result<(), EmulatorError> {
        let memory = self.memory_mut();
        let at = memory.allocations.binary_search_by_key(&address, |allocation| allocation.base);
        let at = at.map_err(|_| EmulatorError::NotAnAllocation { address })?;
        memory.allocations[at].parts = Some(parts);
        Ok(())
    }
}
