//! What the machine tells the check beside accesses: turns, barriers, sleeps, launches.

use std::ops::Range;
use std::sync::Arc;

use specdec_core::ids::Rank;

use super::clock::WaveId;
use super::local::{LocalRace, LocalShadow, LocalTurn};
use super::report::RaceKind;
use super::shadow::Record;
use super::site::{AccessKind, Scope, Site};
use super::waves::{Polled, Waves};
use super::Races;
use crate::machine::dispatch::Queued;
use crate::machine::group::Group;
use crate::machine::slot::Slot;

impl Races {
    /// Watches a table whose rows say what a wave works on: see `Emulator::watch_rows`.
    pub fn add_table(&mut self, table: Range<u64>, row_bytes: u64) {
        self.waves.add_table(table, row_bytes);
    }

    /// Forgets what was known of a range: other memory is there now.
    pub fn forget(&mut self, start: u64, bytes: u64) {
        self.shadow.forget(start, bytes);
    }

    /// A launch begins; the number of its kernel.
    pub fn start_launch(&mut self, launch: &Arc<Queued>) -> u32 {
        self.waves.start_launch();
        self.sites.kernel(launch)
    }

    /// A workgroup of that launch begins.
    pub fn start_group(&mut self, rank: Rank, group: &mut Group, lds_bytes: u32) {
        group.lds.races = Some(Box::new(LocalShadow::new(lds_bytes as usize).into()));
        self.waves.start_group(u16::from(rank.0));
    }

    /// A wave of that workgroup begins.
    pub fn start_wave(&mut self, slot: &Slot, waves: u32, kernel: u32) {
        let number = (slot.origin.workgroup * waves + slot.index) as u16;
        let id = WaveId { rank: u16::from(slot.origin.rank.0), number };
        self.waves.start(slot.origin.wave, id, kernel);
    }

    /// A wave ends.
    pub fn end_wave(&mut self, wave: usize, group: &Group) {
        self.take_local(group);
        self.accept(wave);
        self.waves.end(wave);
    }

    /// What is resident is given up, after an error.
    pub fn abandon(&mut self, groups: &[Group]) {
        for group in groups {
            self.take_local(group);
        }
        self.waves.abandon();
        self.shadow = super::Shadow::default();
    }

    /// A wave is about to use LDS, or to load scalars.
    pub fn turn(&mut self, slot: &Slot) {
        self.waves.turn(slot.origin.wave, slot.next as u32);
    }

    /// A wave is about to issue a vector memory operation.
    pub fn issue(&mut self, slot: &Slot) {
        let (wave, step) = (slot.origin.wave, slot.next as u32);
        let kernel = self.waves.at(wave).kernel;
        let is_polling = self.sites.kernels[kernel as usize].polls(step);
        if !is_polling || self.waves.has_polled(wave, step, &self.sites) {
            self.accept(wave);
        }
        self.waves.issue(wave, step, slot.board.num_vector() as u32);
    }

    /// Whether the step that a wave issues belongs to a polling loop.
    pub(super) fn is_polling(&self, wave: usize) -> bool {
        let at = self.waves.at(wave);
        self.sites.kernels[at.kernel as usize].polls(at.step)
    }

    /// The lanes of `exec` sleep: what they polled was not what they wait for. Lanes that have left the loop have what
    /// they waited for.
    pub fn sleep(&mut self, wave: usize, exec: u64) {
        let mut polled = self.waves.take_polled(wave);
        polled.retain(|polled| exec >> polled.record.lane & 1 == 0);
        self.accept_all(wave, polled);
    }

    /// A wave goes on without having slept: what it polled was what it waited for.
    fn accept(&mut self, wave: usize) {
        let polled = self.waves.take_polled(wave);
        self.accept_all(wave, polled);
    }

    fn accept_all(&mut self, wave: usize, polled: Vec<Polled>) {
        let mut last = std::ptr::null();
        for release in polled.iter().filter_map(|polled| polled.release.as_ref()) {
            if Arc::as_ptr(release) != last {
                last = Arc::as_ptr(release);
                self.waves.learn(wave, release);
            }
        }
        for polled in polled {
            let word = self.shadow.word(polled.address);
            let scope = self.sites.site(polled.record.site).scope;
            let mut found = Vec::new();
            for write in word.writes.iter().filter(|write| write.mask & polled.record.mask != 0) {
                if !polled.seen.contains(write) && write.id != polled.record.id {
                    found.push((RaceKind::Unordered, polled.record, *write));
                } else if Waves::is_publishing(write, &self.sites) {
                    let kind = self.waves.judge_scope(wave, write, scope, &self.sites);
                    found.extend(kind.map(|kind| (kind, *write, polled.record)));
                } else {
                    let kind = self.waves.judge_load(wave, write, scope, &self.sites);
                    found.extend(kind.map(|kind| (kind, *write, polled.record)));
                }
            }
            word.read(polled.record);
            for (kind, first, second) in found {
                self.sight(kind, first, second, polled.address);
            }
        }
    }

    /// All waves of a workgroup have reached a barrier.
    pub fn barrier(&mut self, group: &Group, slots: &[Slot]) {
        let waves: Vec<(usize, u32)> =
            group.waves.iter().map(|&wave| (wave as usize, slots[wave as usize].board.num_vector() as u32)).collect();
        for &(wave, _) in &waves {
            self.accept(wave);
        }
        self.waves.barrier(&waves);
        self.take_local(group);
    }

    /// What was found in a workgroup's LDS.
    fn take_local(&mut self, group: &Group) {
        let Some(local) = &group.lds.races else { return };
        for race in std::mem::take(&mut local.borrow_mut().races) {
            self.sight_local(group, &race);
        }
    }

    fn sight_local(&mut self, group: &Group, race: &LocalRace) {
        let mut record = |turn: LocalTurn, writes: bool| {
            let wave = self.waves.at(group.waves[turn.wave as usize] as usize);
            let kind = if writes { AccessKind::LdsWrite } else { AccessKind::LdsRead };
            let (kernel, row) = (wave.kernel, wave.row);
            let site = Site { kernel, step: turn.step, row, kind, scope: Scope::Plain };
            Record { id: wave.id, stamp: 0, site: self.sites.number(site), group: wave.group, lane: u8::MAX, mask: 0xF }
        };
        let (first, second) = (record(race.first, race.first_writes), record(race.second, race.second_writes));
        for _ in 0..race.count {
            self.sight(RaceKind::Lds, first, second, race.address);
        }
    }
}
