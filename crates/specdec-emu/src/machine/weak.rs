//! Weak memory: shows a kernel as little of its stores, and as old copies, as the model allows.
//!
//! Without it every store takes effect at once. With it, a store is in flight until its wave has waited for it, and
//! lands before that only by chance, in any order but that of stores to the same bytes. A plain store lands in the
//! copy that its workgroup's XCD has of the line, and reaches memory when the launch ends, when the line is evicted by
//! chance, or when a wider-scoped access of the XCD meets it. A plain load reads that copy, which stays as it was when
//! it was taken. A wrong kernel then computes wrong results; a right one does not notice.

use std::collections::{HashMap, HashSet};

use specdec_core::device::MemoryKind;
use specdec_core::ids::Rank;

use super::error::EmulatorError;
use super::lane_copy;
use super::random::Random;
use super::shared::Shared;
use super::slot::Slot;
use super::visibility::{in_lane, Access, LaneAddresses, Origin};
use crate::wave::{Lanes, LANES};

/// XCDs of a device; workgroups go round them.
const XCDS: u32 = 8;
/// Bytes of a line of an XCD's copies.
const LINE_BYTES: u64 = 64;
/// One lane store in so many lands at once.
const LAND_ODDS: u64 = 4;
/// At one instruction in so many, some of a workgroup's stores land.
const TICK_ODDS: u64 = 8;
/// At one copied load in so many, the line is evicted first.
const EVICT_ODDS: u64 = 32;

/// One lane's store on its way.
#[derive(Clone, Copy, Debug)]
struct Store {
    wave: usize,
    /// Number among the wave's vector memory operations.
    operation: u64,
    address: u64,
    bytes: [u8; 16],
    len: u8,
    is_plain: bool,
}

impl Store {
    fn words(&self) -> impl Iterator<Item = u64> {
        self.address / 4..=(self.address + u64::from(self.len) - 1) / 4
    }

    fn overlaps(&self, address: u64, bytes: usize) -> bool {
        self.address < address + bytes as u64 && address < self.address + u64::from(self.len)
    }
}

/// A workgroup, whose waves see each other's stores: they share a cache.
type GroupKey = (Rank, u32);
/// An XCD and a line.
type LineKey = (Rank, u32, u64);

/// What an XCD has of a line: a bit a byte.
#[derive(Clone, Copy, Debug)]
struct Line {
    bytes: [u8; LINE_BYTES as usize],
    valid: u64,
    dirty: u64,
}

/// Stores in flight and the copies of all XCDs.
#[derive(Debug)]
pub(super) struct Weak {
    random: Random,
    in_flight: HashMap<GroupKey, Vec<Store>>,
    lines: HashMap<LineKey, Line>,
    /// Operations so far, by wave number of the machine.
    operations: Vec<u64>,
    /// Bases of the allocations that were stored to: of others there are no copies that could be old.
    stored: HashSet<u64>,
}

fn line_key(origin: Origin, address: u64) -> LineKey {
    (origin.rank, origin.workgroup % XCDS, address / LINE_BYTES)
}

impl Weak {
    /// Memory of a seed.
    pub fn new(seed: u64) -> Self {
        let random = Random::new(seed ^ 0x5745_414b);
        Self {
            random,
            in_flight: HashMap::new(),
            lines: HashMap::new(),
            operations: Vec::new(),
            stored: HashSet::new(),
        }
    }

    /// A wave issues a vector memory operation.
    pub fn issue(&mut self, wave: usize) {
        self.operations.resize(self.operations.len().max(wave + 1), 0);
        self.operations[wave] += 1;
    }
}

/// Takes the weak memory out of `shared` for the time of `work`.
fn with<T>(shared: &mut Shared, work: impl FnOnce(&mut Weak, &mut Shared) -> T) -> Option<T> {
    let mut weak = shared.weak.take()?;
    let result = work(&mut weak, shared);
    shared.weak = Some(weak);
    Some(result)
}

/// A wave waits until only so many of its operations are in flight: the others' stores land.
pub(super) fn wait(shared: &mut Shared, slot: &Slot, outstanding: u64) {
    let wave = slot.origin.wave;
    with(shared, |weak, shared| {
        let last = weak.operations.get(wave).map_or(0, |count| count.saturating_sub(outstanding));
        weak.land(shared, slot.origin, |store| store.wave == wave && store.operation <= last);
    });
}

/// What is in flight lands: nobody can go on otherwise.
pub(super) fn settle(shared: &mut Shared) {
    with(shared, |weak, shared| {
        let groups: Vec<GroupKey> = weak.in_flight.keys().copied().collect();
        for (rank, workgroup) in groups {
            weak.land(shared, Origin { rank, workgroup, wave: 0 }, |_| true);
        }
    });
}

/// A launch of a rank ends, or starts: everything of it lands, its XCDs write back and forget their copies.
pub(super) fn flush(shared: &mut Shared, rank: Rank) {
    with(shared, |weak, shared| {
        let groups: Vec<GroupKey> = weak.in_flight.keys().copied().filter(|group| group.0 == rank).collect();
        for (rank, workgroup) in groups {
            weak.land(shared, Origin { rank, workgroup, wave: 0 }, |_| true);
        }
        let keys: Vec<LineKey> = weak.lines.keys().copied().filter(|key| key.0 == rank).collect();
        for key in keys {
            weak.evict(shared, key);
        }
    });
}

/// Stores a lane's bytes, some time.
pub(super) fn store(shared: &mut Shared, access: &Access, data: &[Lanes]) -> Result<(), EmulatorError> {
    let stored = with(shared, |weak, shared| {
        for lane in access.lanes.active() {
            let address = access.lanes.at[lane];
            let (index, _) = in_lane(lane, shared.memory.check("store", address, access.bytes as u64))?;
            let allocation = shared.memory.at(index);
            weak.stored.insert(allocation.base);
            let is_cached = allocation.kind == MemoryKind::Device;
            let operation = weak.operations.get(access.origin.wave).copied().unwrap_or(0);
            let store = Store {
                wave: access.origin.wave,
                operation,
                address,
                bytes: lane_copy::pack(data, lane),
                len: access.bytes as u8,
                is_plain: is_cached && !access.policy.sc1,
            };
            let group = (access.origin.rank, access.origin.workgroup);
            weak.in_flight.entry(group).or_default().push(store);
            if weak.random.below(LAND_ODDS) == 0 {
                weak.land(shared, access.origin, |other| other.overlaps(address, access.bytes));
            }
        }
        weak.tick(shared, access.origin);
        Ok(())
    });
    stored.unwrap_or(Ok(()))
}

/// Loads a lane's bytes into consecutive registers, from memory or from an old copy.
pub(super) fn load(shared: &mut Shared, access: &Access, out: &mut [Lanes]) -> Result<(), EmulatorError> {
    let loaded = with(shared, |weak, shared| {
        weak.tick(shared, access.origin);
        if let Some((low, high)) = access.lanes.bounds() {
            let bytes = (high - low) as usize + access.bytes;
            weak.land(shared, access.origin, |store| store.overlaps(low, bytes));
        }
        for lane in access.lanes.active() {
            let mut value = [0; 16];
            in_lane(lane, weak.read(shared, access, access.lanes.at[lane], &mut value[..access.bytes]))?;
            for (word, chunk) in out.iter_mut().zip(value.chunks_exact(4)) {
                word[lane] = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
            }
        }
        Ok(())
    });
    loaded.unwrap_or(Ok(()))
}

/// Before a read-modify-write, which memory itself executes: what the wave's side has of these bytes goes there.
pub(super) fn prepare_atomic(shared: &mut Shared, access: &Access) {
    with(shared, |weak, shared| {
        for lane in access.lanes.active() {
            let address = access.lanes.at[lane];
            weak.land(shared, access.origin, |store| store.overlaps(address, access.bytes));
            weak.evict(shared, line_key(access.origin, address));
        }
    });
}

impl Weak {
    /// Now and then some of a workgroup's stores land.
    fn tick(&mut self, shared: &mut Shared, origin: Origin) {
        if self.random.below(TICK_ODDS) == 0 {
            let chosen = self.random.below(4);
            self.land(shared, origin, |store| store.address / LINE_BYTES % 4 == chosen);
        }
    }

    /// Lands the chosen stores of a workgroup, later ones to the same bytes staying behind earlier ones.
    fn land(&mut self, shared: &mut Shared, origin: Origin, is_chosen: impl Fn(&Store) -> bool) {
        let Some(stores) = self.in_flight.get_mut(&(origin.rank, origin.workgroup)) else { return };
        if !stores.iter().any(&is_chosen) {
            return;
        }
        let all = std::mem::take(stores);
        let mut landing = vec![false; all.len()];
        let mut words = HashSet::new();
        for (store, lands) in all.iter().zip(&mut landing).rev() {
            *lands = is_chosen(store) || store.words().any(|word| words.contains(&word));
            if *lands {
                words.extend(store.words());
            }
        }
        let kept = all.iter().zip(&landing).filter(|(_, lands)| !**lands).map(|(store, _)| *store).collect();
        *stores = kept;
        for (store, _) in all.iter().zip(&landing).filter(|(_, lands)| **lands) {
            self.perform(shared, origin, store);
        }
    }

    fn perform(&mut self, shared: &mut Shared, origin: Origin, store: &Store) {
        let value = &store.bytes[..usize::from(store.len)];
        for (address, &byte) in (store.address..).zip(value) {
            let key = line_key(origin, address);
            let bit = 1 << (address % LINE_BYTES);
            if store.is_plain {
                let empty = Line { bytes: [0; LINE_BYTES as usize], valid: 0, dirty: 0 };
                let line = self.lines.entry(key).or_insert(empty);
                line.bytes[(address % LINE_BYTES) as usize] = byte;
                line.valid |= bit;
                line.dirty |= bit;
            } else if let Some(line) = self.lines.get_mut(&key) {
                line.bytes[(address % LINE_BYTES) as usize] = byte;
                line.dirty &= !bit;
            }
        }
        if !store.is_plain {
            publish(shared, store.address, value);
        }
    }

    /// Writes a line back and forgets it.
    fn evict(&mut self, shared: &mut Shared, key: LineKey) {
        let Some(line) = self.lines.remove(&key) else { return };
        for (at, &byte) in line.bytes.iter().enumerate().filter(|&(at, _)| line.dirty >> at & 1 != 0) {
            publish(shared, key.2 * LINE_BYTES + at as u64, &[byte]);
        }
    }

    fn read(
        &mut self,
        shared: &mut Shared,
        access: &Access,
        address: u64,
        value: &mut [u8],
    ) -> Result<(), EmulatorError> {
        let origin = access.origin;
        let (index, _) = shared.memory.check("load", address, value.len() as u64)?;
        let is_cached = shared.memory.at(index).kind == MemoryKind::Device && !access.policy.sc1;
        let keys = [line_key(origin, address), line_key(origin, address + value.len() as u64 - 1)];
        if !is_cached || self.random.below(EVICT_ODDS) == 0 {
            for key in keys {
                self.evict(shared, key);
            }
        }
        if !is_cached || !self.stored.contains(&shared.memory.at(index).base) {
            return shared.memory.load("load", address, value);
        }
        for (address, byte) in (address..).zip(value) {
            let at = (address % LINE_BYTES) as usize;
            let key = line_key(origin, address);
            if self.lines.get(&key).is_none_or(|line| line.valid >> at & 1 == 0) {
                let mut fresh = [0];
                shared.memory.load("load", address, &mut fresh)?;
                let empty = Line { bytes: [0; LINE_BYTES as usize], valid: 0, dirty: 0 };
                let line = self.lines.entry(key).or_insert(empty);
                line.bytes[at] = fresh[0];
                line.valid |= 1 << at;
            }
            *byte = self.lines.get(&key).map_or(0, |line| line.bytes[at]);
        }
        Ok(())
    }
}

/// Bytes arrive in memory, and whoever polls them looks.
fn publish(shared: &mut Shared, address: u64, value: &[u8]) {
    // The store was checked when it was issued; memory that was freed since needs it no more.
    if shared.memory.store("store", address, value).is_ok() {
        let lanes = LaneAddresses { at: [address; LANES], mask: 1 };
        shared.parking.signal(&lanes, value.len() as u64);
    }
}
