//! The race check: does something order every two accesses to the same bytes, and can the second see the first?
//!
//! See docs/emulator.md, "Visibility and races", for the model. In short:
//!
//! * A wave's vector memory operations are numbered. What a wave knows of another is a pair of counts: operations
//!   performed (waited for by `vmcnt`) and operations issued.
//! * Waves learn from each other at barriers, from launch to launch of a rank, and where a poll accepts a word: a load
//!   of a loop that sleeps, in an iteration that did not end in `s_sleep`. What it learns is what the storing wave
//!   knew, and had performed, when it issued the store.
//! * Two accesses to the same bytes, at least one a store, are a race unless the earlier wave's operation is among
//!   what the later wave knows to be performed. Polls that were not accepted race with nothing.
//! * Even ordered, a store must be of the scope of its readers and a load of that of its writer.

mod asking;
mod clock;
mod local;
mod polling;
mod report;
mod shadow;
mod site;
mod summary;
mod turns;
mod waves;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub use report::{RaceAccess, RaceKind, RaceReport};
pub use site::{AccessKind, Scope};

pub(super) use local::{LocalShadow, LocalTurn};

use self::clock::Clock;
use self::shadow::{words, Record, Shadow};
use self::site::{Site, Sites};
use self::waves::{Polled, Waves};
use super::memory::Memory;
use super::visibility::Access;
use crate::wave::Lanes;

/// What two accesses show a race, and where it was seen first.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    kind: RaceKind,
    first: Record,
    second: Record,
    address: u64,
    count: u64,
}

/// The check's whole state.
#[derive(Debug, Default)]
pub(super) struct Races {
    waves: Waves,
    shadow: Shadow,
    sites: Sites,
    sightings: HashMap<(RaceKind, u32, u32), Sighting>,
    /// Bases of the allocations that were stored to: only their loads are remembered. Most memory, weights above all,
    /// never is.
    stored: HashSet<u64>,
}

impl Races {
    /// A vector load, before it reads.
    pub fn load(&mut self, access: &Access, memory: &Memory) {
        let Some((low, _)) = access.lanes.bounds() else { return };
        if !self.is_stored(memory, low) {
            return;
        }
        let scope = Scope::of(access.policy);
        let wave = access.origin.wave;
        let is_poll = self.is_polling(wave) && scope > Scope::Plain;
        let kind = if is_poll { AccessKind::Accept } else { AccessKind::Load };
        let record = self.record(wave, kind, scope);
        for lane in access.lanes.active() {
            for (address, mask) in words(access.lanes.at[lane], access.bytes) {
                let record = Record { lane: lane as u8, mask, ..record };
                if is_poll {
                    let word = self.shadow.word(address);
                    let polled = Polled { address, record, seen: word.writes.clone(), release: word.release.clone() };
                    self.waves.poll(wave, polled);
                } else {
                    self.read(wave, address, record, scope);
                }
            }
        }
    }

    /// A scalar load, before it reads.
    pub fn scalar_load(&mut self, wave: usize, address: u64, bytes: usize, memory: &Memory) {
        self.waves.note_row(wave, address);
        if !self.is_stored(memory, address) {
            return;
        }
        let mut record = self.record(wave, AccessKind::ScalarLoad, Scope::Plain);
        record.stamp = self.waves.completed(wave);
        for (address, mask) in words(address, bytes) {
            self.read(wave, address, Record { mask, ..record }, Scope::Plain);
        }
    }

    /// A vector store, before it writes.
    pub fn store(&mut self, access: &Access, data: &[Lanes], memory: &Memory) {
        self.note_stored(access, memory);
        let scope = Scope::of(access.policy);
        // One instruction that a poll may accept: one or two words.
        let publishes = scope > Scope::Plain && matches!(access.bytes, 4 | 8);
        let kind = if publishes { AccessKind::Publish } else { AccessKind::Store };
        let wave = access.origin.wave;
        let record = self.record(wave, kind, scope);
        let release = publishes.then(|| self.waves.release(wave));
        for lane in access.lanes.active() {
            let start = access.lanes.at[lane];
            for (address, mask) in words(start, access.bytes) {
                let record = Record { lane: lane as u8, mask, ..record };
                let value = || {
                    let index = address.saturating_sub(start) as usize / 4;
                    data.get(index).map(|register| register[lane])
                };
                self.write(wave, address, record, release.clone(), |_| is_same(memory, address, mask, value()));
            }
        }
    }

    /// A read-modify-write: accepts what it finds and publishes what it leaves.
    pub fn atomic(&mut self, access: &Access, memory: &Memory) {
        self.note_stored(access, memory);
        let scope = Scope::of_atomic(access.policy);
        let wave = access.origin.wave;
        let record = self.record(wave, AccessKind::Atomic, scope);
        for lane in access.lanes.active() {
            for (address, mask) in words(access.lanes.at[lane], access.bytes) {
                if let Some(release) = self.shadow.word(address).release.clone() {
                    self.waves.learn(wave, &release);
                }
                let release = self.waves.release(wave);
                let record = Record { lane: lane as u8, mask, ..record };
                let sites = &self.sites;
                let is_atomic = |site: u32| sites.site(site).kind == AccessKind::Atomic;
                let atomics: Vec<bool> =
                    self.shadow.word(address).writes.iter().map(|write| is_atomic(write.site)).collect();
                self.write(wave, address, record, Some(release), |index| atomics.get(index).copied().unwrap_or(false));
            }
        }
    }

    fn is_stored(&self, memory: &Memory, address: u64) -> bool {
        memory.find(address).is_some_and(|index| self.stored.contains(&memory.at(index).base))
    }

    fn note_stored(&mut self, access: &Access, memory: &Memory) {
        for index in access.lanes.active().filter_map(|lane| memory.find(access.lanes.at[lane])) {
            self.stored.insert(memory.at(index).base);
        }
    }

    fn record(&mut self, wave: usize, kind: AccessKind, scope: Scope) -> Record {
        let at = self.waves.at(wave);
        let site = Site { kernel: at.kernel, step: at.step, row: at.row, kind, scope };
        let site = self.sites.number(site);
        Record { id: at.id, stamp: at.issued, site, group: at.group, lane: 0, mask: 0xF }
    }

    /// Judges a load of a word against its last stores, and remembers it.
    fn read(&mut self, wave: usize, address: u64, new: Record, scope: Scope) {
        let word = self.shadow.word(address);
        let mut found = None;
        for write in word.writes.iter().filter(|write| write.mask & new.mask != 0) {
            found = found.or_else(|| self.waves.judge_load(wave, write, scope, &self.sites).map(|kind| (kind, *write)));
        }
        word.read(new);
        if let Some((kind, write)) = found {
            self.sight(kind, write, new, address);
        }
    }

    /// Judges a store against the word's last stores and the loads since, and remembers it. A store that changes
    /// nothing is no race with any.
    fn write(
        &mut self,
        wave: usize,
        address: u64,
        new: Record,
        release: Option<Arc<Clock>>,
        is_harmless: impl Fn(usize) -> bool,
    ) {
        let word = self.shadow.word(address);
        let mut found = Vec::new();
        for (index, write) in word.writes.iter().enumerate().filter(|(_, write)| write.mask & new.mask != 0) {
            if let Some(kind) = self.waves.judge_overwrite(wave, write, &self.sites) {
                if !is_harmless(index) {
                    found.push((kind, *write));
                }
            }
        }
        for read in word.reads.iter().filter(|read| read.mask & new.mask != 0) {
            if let Some(kind) = self.waves.judge_order(wave, read) {
                if !is_harmless(usize::MAX) {
                    found.push((kind, *read));
                }
            }
        }
        word.write(new, release);
        for (kind, old) in found {
            self.sight(kind, old, new, address);
        }
    }

    fn sight(&mut self, kind: RaceKind, first: Record, second: Record, address: u64) {
        let key = (kind, first.site, second.site);
        let sighting = self.sightings.entry(key).or_insert(Sighting { kind, first, second, address, count: 0 });
        sighting.count += 1;
    }
}

/// Whether a store of `value` to the bytes of a word leaves them as they are.
fn is_same(memory: &Memory, address: u64, mask: u8, value: Option<u32>) -> bool {
    let Some(value) = value.filter(|_| mask == 0xF) else { return false };
    let mut old = [0; 4];
    memory.load("load", address, &mut old).is_ok() && u32::from_le_bytes(old) == value
}
