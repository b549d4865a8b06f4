//! Guest memory: allocations by address, every access checked. The only module that touches memory by address.

use std::cell::Cell;

use specdec_core::device::MemoryKind;
use specdec_core::ids::Rank;

use super::emulator::Emulator;
use super::error::EmulatorError;
use super::location::Location;
use super::parts::Parts;
use super::segment::Segment;
use super::written::Written;

/// Alignment of allocations that the emulator owns: a device's usual one.
pub(super) const ALIGNMENT: u64 = 256;
/// From this size on an allocation has pages of its own.
const PAGES_FROM_BYTES: u64 = 1 << 20;

/// What a new allocation is.
#[derive(Clone, Debug)]
pub(super) struct Description {
    pub rank: Rank,
    pub kind: MemoryKind,
    pub name: String,
    pub is_initialised: bool,
}

/// One allocation.
#[derive(Debug)]
pub(super) struct Allocation {
    pub base: u64,
    pub bytes: u64,
    pub rank: Rank,
    pub kind: MemoryKind,
    pub name: String,
    pub(super) parts: Option<Parts>,
    /// Bytes that are written; `None` when all are.
    written: Option<Written>,
    /// Host address of the first byte; differs from `base` only for memory placed at a guest address.
    host: usize,
    /// The storage, when it is ours; kept for its drop.
    backing: Backing,
    /// Whether another process may touch it too, so that every access has to be atomic.
    is_shared: bool,
}

/// Who holds an allocation's bytes.
#[derive(Debug)]
#[expect(dead_code, reason = "what most variants hold is only ever reached by address")]
pub(super) enum Backing {
    /// The host, who registered it.
    Host,
    Words(Vec<u128>),
    /// A file that other processes can map.
    Shared(Segment),
    /// Pages that reserve nothing until they are touched.
    Pages(memmap2::MmapMut),
}

/// All allocations, sorted by address.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) allocations: Vec<Allocation>,
    /// Where the last look-up ended: consecutive accesses mostly meet one allocation.
    last: Cell<usize>,
    /// Whether any allocation is shared with other processes.
    pub(super) has_shared: bool,
    /// Whether anything was stored to those since the world was last told.
    pub(super) has_stored_shared: bool,
}

impl Backing {
    /// Zeroed storage and its aligned host address.
    fn zeroed(bytes: u64, kind: MemoryKind) -> Option<(usize, Self)> {
        if kind == MemoryKind::Uncached {
            let segment = Segment::create(bytes).ok()?;
            return Some((segment.host(), Self::Shared(segment)));
        }
        let needed = usize::try_from(bytes.max(1).checked_add(ALIGNMENT)?).ok()?;
        if bytes < PAGES_FROM_BYTES {
            let mut words = vec![0u128; needed.div_ceil(16)];
            let host = words.as_mut_ptr().expose_provenance();
            return Some((host.next_multiple_of(ALIGNMENT as usize), Self::Words(words)));
        }
        let mut pages = memmap2::MmapOptions::new().len(needed).no_reserve_swap().map_anon().ok()?;
        Some((pages.as_mut_ptr().expose_provenance(), Self::Pages(pages)))
    }
}

impl Allocation {
    /// Its bytes.
    #[inline]
    pub fn view(&self) -> &[u8] {
        let start = std::ptr::with_exposed_provenance::<u8>(self.host);
        // SAFETY: `host..host + bytes` is our own vector, or was promised by `Emulator::register`'s caller.
        unsafe { std::slice::from_raw_parts(start, self.bytes as usize) }
    }

    /// Its bytes, to write.
    #[inline]
    pub fn view_mut(&mut self) -> &mut [u8] {
        let start = std::ptr::with_exposed_provenance_mut::<u8>(self.host);
        // SAFETY: as in `view`; `&mut self` makes this the only view that the emulator has of the range.
        unsafe { std::slice::from_raw_parts_mut(start, self.bytes as usize) }
    }

    /// Whether its bytes may be read as they lie: all are written, and no other process changes them.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.written.is_none() && !self.is_shared
    }

    /// The file behind it, when other processes may have it too.
    #[inline]
    pub fn segment(&self) -> Option<&Segment> {
        match &self.backing {
            Backing::Shared(segment) if self.is_shared => Some(segment),
            _ => None,
        }
    }

    /// From now on other processes may touch it, whose stores no map of written bytes would know; `None` if it cannot be
    /// shared.
    pub fn share(&mut self) -> Option<&Segment> {
        self.is_shared = matches!(self.backing, Backing::Shared(_));
        if self.is_shared {
            self.written = None;
        }
        self.segment()
    }

    /// Copies bytes out. The caller has checked that they are there.
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        match self.segment() {
            Some(segment) => segment.read(offset, into),
            None => into.copy_from_slice(&self.view()[offset as usize..][..into.len()]),
        }
    }

    /// Copies bytes in. The caller has checked that they are there.
    #[inline]
    pub fn write(&mut self, offset: u64, from: &[u8]) {
        self.mark(offset, from.len() as u64);
        match self.segment() {
            Some(segment) => segment.write(offset, from),
            None => self.view_mut()[offset as usize..][..from.len()].copy_from_slice(from),
        }
    }

    /// Whether the bytes at an offset are written.
    #[inline]
    pub fn covers(&self, offset: u64, bytes: u64) -> bool {
        self.written.as_ref().is_none_or(|written| written.covers(offset, bytes))
    }

    /// Marks the bytes at an offset as written.
    #[inline]
    pub fn mark(&mut self, offset: u64, bytes: u64) {
        if let Some(written) = &mut self.written {
            written.mark(offset, bytes);
            if written.is_complete() {
                self.written = None;
            }
        }
    }

    pub fn end(&self) -> u64 {
        self.base + self.bytes
    }
}

impl Memory {
    /// Allocates zeroed bytes of our own, at an address of the host's choice or at `place`. Untouched pages of a
    /// large allocation cost nothing.
    pub fn allocate(&mut self, bytes: u64, place: Option<u64>, what: Description) -> Result<u64, EmulatorError> {
        let (host, backing) = Backing::zeroed(bytes, what.kind)
            .ok_or_else(|| EmulatorError::OutOfMemory { bytes, name: what.name.clone() })?;
        let place = place.unwrap_or_else(|| self.free_place(host as u64, bytes));
        self.insert(place, bytes, host, backing, what)
    }

    pub(super) fn insert(
        &mut self,
        base: u64,
        bytes: u64,
        host: usize,
        backing: Backing,
        what: Description,
    ) -> Result<u64, EmulatorError> {
        let at = self.allocations.partition_point(|allocation| allocation.base < base);
        let end = base.checked_add(bytes);
        let next = self.allocations.get(at).filter(|next| end.is_none_or(|end| next.base < end.max(base + 1)));
        let previous = at.checked_sub(1).map(|before| &self.allocations[before]).filter(|before| before.end() > base);
        if let Some(other) = next.or(previous) {
            return Err(EmulatorError::Overlap { name: what.name, address: base, bytes, other: other.name.clone() });
        }
        if end.is_none() {
            return Err(EmulatorError::OutOfMemory { bytes, name: what.name });
        }
        let written = if what.is_initialised || bytes == 0 {
            None
        } else {
            let map = Written::none(bytes);
            Some(map.ok_or_else(|| EmulatorError::OutOfMemory { bytes, name: what.name.clone() })?)
        };
        let Description { rank, kind, name, .. } = what;
        self.allocations.insert(
            at,
            Allocation { base, bytes, rank, kind, name, parts: None, written, host, backing, is_shared: false },
        );
        Ok(base)
    }

    /// The index of the allocation that holds `address`.
    #[inline]
    pub fn find(&self, address: u64) -> Option<usize> {
        let holds = |allocation: &Allocation| address.wrapping_sub(allocation.base) < allocation.bytes;
        let last = self.last.get();
        if self.allocations.get(last).is_some_and(holds) {
            return Some(last);
        }
        let at = self.allocations.partition_point(|allocation| allocation.base <= address).checked_sub(1)?;
        if !holds(&self.allocations[at]) {
            return None;
        }
        self.last.set(at);
        Some(at)
    }

    /// The allocation of an index that `find` gave.
    #[inline]
    pub fn at(&self, index: usize) -> &Allocation {
        &self.allocations[index]
    }

    /// The allocation of an index that `find` gave, to write.
    #[inline]
    pub fn at_mut(&mut self, index: usize) -> &mut Allocation {
        &mut self.allocations[index]
    }

    /// Checks that one allocation holds all of `address..address + bytes`; its index and the offset there.
    #[inline]
    pub fn check(&self, access: &'static str, address: u64, bytes: u64) -> Result<(usize, u64), EmulatorError> {
        let Some(index) = self.find(address) else {
            let near = self.near(address);
            return Err(EmulatorError::OutsideAllocation { access, address, bytes, near, at: Location::unknown() });
        };
        let allocation = &self.allocations[index];
        let offset = address - allocation.base;
        if bytes > allocation.bytes - offset {
            return Err(EmulatorError::CrossesEnd {
                access,
                allocation: allocation.name.clone(),
                offset,
                bytes,
                allocation_bytes: allocation.bytes,
                at: Location::unknown(),
            });
        }
        Ok((index, offset))
    }

    /// Reads checked and written bytes.
    #[inline]
    pub fn load(&self, access: &'static str, address: u64, into: &mut [u8]) -> Result<(), EmulatorError> {
        let bytes = into.len() as u64;
        let (index, offset) = self.check(access, address, bytes)?;
        let allocation = &self.allocations[index];
        if !allocation.covers(offset, bytes) {
            let (allocation, offset) = allocation.locate(offset);
            return Err(EmulatorError::NeverWritten { allocation, offset, bytes, at: Location::unknown() });
        }
        allocation.read(offset, into);
        Ok(())
    }

    /// Writes checked bytes.
    #[inline]
    pub fn store(&mut self, access: &'static str, address: u64, from: &[u8]) -> Result<(), EmulatorError> {
        let (index, offset) = self.check(access, address, from.len() as u64)?;
        let allocation = &mut self.allocations[index];
        allocation.write(offset, from);
        self.has_stored_shared |= allocation.is_shared;
        Ok(())
    }
}

impl Emulator {
    /// Makes host memory in place, e.g. a CPU tensor, reachable for every rank at its own address.
    ///
    /// # Safety
    /// `address..address + bytes` is readable and writable, is not moved or freed before
    /// [`Emulator::unregister`], and nobody else touches it while `synchronize`, `read` or `write` runs.
    pub unsafe fn register(
        &mut self,
        address: u64,
        bytes: u64,
        rank: Rank,
        name: &str,
        is_initialised: bool,
    ) -> Result<(), EmulatorError> {
        let what = Description { rank, kind: MemoryKind::Device, name: name.into(), is_initialised };
        self.memory_mut().insert(address, bytes, address as usize, Backing::Host, what).map(|_| ())
    }

    /// Ends what [`Emulator::register`] began; the memory is the caller's again.
    pub fn unregister(&mut self, address: u64) -> Result<(), EmulatorError> {
        self.forget_races(address);
        self.memory_mut().remove(address)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use specdec_core::device::Device;
    use specdec_core::ids::DeviceAddress;

    use super::*;
    use crate::machine::Options;

    fn describe(name: &str, is_initialised: bool) -> Description {
        Description { rank: Rank(0), kind: MemoryKind::Device, name: name.into(), is_initialised }
    }

    #[test]
    fn placed_allocations_are_checked_and_do_not_overlap() {
        let mut memory = Memory::default();
        memory.allocate(64, Some(0x1000), describe("a", true)).unwrap();
        assert!(memory.allocate(64, Some(0x1020), describe("b", true)).is_err());
        assert!(memory.allocate(64, Some(0xfff), describe("b", true)).is_err());
        memory.allocate(64, Some(0x1040), describe("b", false)).unwrap();
        memory.store("store", 0x1040, &[7; 4]).unwrap();
        let mut bytes = [0; 4];
        memory.load("load", 0x1040, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 4]);
        assert!(matches!(memory.load("load", 0x1042, &mut bytes), Err(EmulatorError::NeverWritten { offset: 2, .. })));
        assert!(matches!(memory.load("load", 0x103e, &mut bytes), Err(EmulatorError::CrossesEnd { .. })));
        assert!(matches!(memory.load("load", 0x2000, &mut bytes), Err(EmulatorError::OutsideAllocation { .. })));
        assert_eq!(memory.place(0x1044), "`b` + 0x4");
    }

    #[test]
    fn our_own_places_avoid_the_fixed_ones() {
        let mut memory = Memory::default();
        assert_eq!(memory.free_place(0x1000, 64), 0x1000);
        memory.allocate(0x100, Some(0xf80), describe("before", true)).unwrap();
        memory.allocate(0x40, Some(0x1140), describe("after", true)).unwrap();
        assert_eq!(memory.free_place(0x1000, 0x40), 0x1100);
        assert_eq!(memory.free_place(0x1000, 0x41), 0x1200);
        assert_eq!(memory.free_place(0x2000, 0x41), 0x2000);
        memory.allocate(1 << 46, Some(0x4000_0000_0000), describe("all that the host would choose", true)).unwrap();
        let own = memory.allocate(64, None, describe("own", true)).unwrap();
        memory.store("store", own, &[1; 64]).unwrap();
    }

    #[test]
    fn host_memory_is_used_in_place() {
        let mut emulator = Emulator::new(Options::default());
        let mut tensor: Vec<u32> = (0..64).collect();
        let address = tensor.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the vector outlives the registration, and meanwhile only the emulator uses it.
        unsafe { emulator.register(address, 256, Rank(0), "tensor", true) }.unwrap();
        // SAFETY: as above; it overlaps the first, so it is refused.
        assert!(unsafe { emulator.register(address + 128, 256, Rank(0), "view", true) }.is_err());
        let mut bytes = [0; 4];
        emulator.read(DeviceAddress(address + 20), &mut bytes).unwrap();
        assert_eq!(bytes, [5, 0, 0, 0]);
        emulator.write(DeviceAddress(address + 24), &[9, 0, 0, 0]).unwrap();
        emulator.unregister(address).unwrap();
        assert_eq!(tensor[..8], [0, 1, 2, 3, 4, 5, 9, 7]);
        assert!(emulator.unregister(address).is_err());
    }

    #[test]
    fn an_error_names_the_part() {
        let mut emulator = Emulator::new(Options::default());
        let base = emulator.allocate_unwritten(Rank(0), MemoryKind::Device, 256, "w13").unwrap().0;
        let parts = Parts { what: "expert".into(), bytes: 32, first: 5 };
        assert!(emulator.name_parts(base + 1, parts.clone()).is_err());
        emulator.name_parts(base, parts).unwrap();
        let found = emulator.memory_mut().load("load", base + 70, &mut [0; 4]).unwrap_err().to_string();
        assert!(found.starts_with("load of 4 bytes at `w13, expert 7` + 0x6 reads memory that nobody has"), "{found}");
        assert_eq!(emulator.memory_mut().place(base), "`w13, expert 5` + 0x0");
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let mut memory = Memory::default();
        assert!(memory.allocate(u64::MAX, None, describe("a", true)).is_err());
        assert!(memory.allocate(1 << 60, None, describe("a", true)).is_err());
    }
}
