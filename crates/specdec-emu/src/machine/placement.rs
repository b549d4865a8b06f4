//! Where allocations lie: finding room, taking memory in, finding it again by its first byte, letting it go.

use super::error::EmulatorError;
use super::memory::{Allocation, Backing, Description, Memory, ALIGNMENT};
use super::segment::Segment;

impl Memory {
    /// The host's address, unless somebody has placed memory there: then the next address that is free.
    pub(super) fn free_place(&self, host: u64, bytes: u64) -> u64 {
        let mut place = host;
        let first = self.allocations.partition_point(|allocation| allocation.end() <= place);
        for allocation in &self.allocations[first..] {
            if place.saturating_add(bytes.max(1)) <= allocation.base {
                break;
            }
            place = allocation.end().max(place).next_multiple_of(ALIGNMENT);
        }
        place
    }

    /// Takes in what another process shares.
    pub fn adopt(&mut self, segment: Segment, what: Description) -> Result<u64, EmulatorError> {
        let (bytes, host) = (segment.bytes(), segment.host());
        let place = self.free_place(host as u64, bytes);
        let base = self.insert(place, bytes, host, Backing::Shared(segment), what)?;
        self.has_shared |= self.starting_at_mut(base).is_some_and(|allocation| allocation.share().is_some());
        Ok(base)
    }

    /// Removes the allocation that starts at `base`.
    pub fn remove(&mut self, base: u64) -> Result<(), EmulatorError> {
        let at = self.allocations.binary_search_by_key(&base, |allocation| allocation.base);
        let at = at.map_err(|_| EmulatorError::NotAnAllocation { address: base })?;
        self.allocations.remove(at);
        Ok(())
    }

    /// The allocation that starts at `base`.
    pub fn starting_at(&self, base: u64) -> Option<&Allocation> {
        let at = self.allocations.binary_search_by_key(&base, |allocation| allocation.base).ok()?;
        self.allocations.get(at)
    }

    /// The allocation that starts at `base`, to change.
    pub fn starting_at_mut(&mut self, base: u64) -> Option<&mut Allocation> {
        let at = self.allocations.binary_search_by_key(&base, |allocation| allocation.base).ok()?;
        self.allocations.get_mut(at)
    }
}
