//! What the check knows of each resident wave: its clock, its operations, what it polls.

use std::ops::Range;
use std::sync::Arc;

use super::clock::{Clock, Seen, WaveId};
use super::report::RaceKind;
use super::shadow::Record;
use super::site::{AccessKind, Scope, Sites};

/// A load of a polling loop whose iteration is not over.
#[derive(Clone, Debug)]
pub(super) struct Polled {
    pub address: u64,
    pub record: Record,
    /// The stores that it found there.
    pub seen: Vec<Record>,
    /// What the last of them published.
    pub release: Option<Arc<Clock>>,
}

/// One resident wave.
#[derive(Clone, Debug, Default)]
pub(super) struct WaveState {
    pub id: WaveId,
    /// Serial number of its workgroup, and of its launch on the rank.
    pub group: u32,
    launch: u32,
    /// Number of its kernel.
    pub kernel: u32,
    /// Vector memory operations so far, this launch's and those before.
    pub issued: u32,
    completed: u32,
    /// Step that it executes.
    pub step: u32,
    /// Row of the watched table that it last read from.
    pub row: Option<u32>,
    clock: Clock,
    /// The last clock that it published, with its operations then.
    released: Option<(Seen, Arc<Clock>)>,
    polled: Vec<Polled>,
}

impl WaveState {
    fn seen(&self) -> Seen {
        Seen { completed: self.completed, issued: self.issued }
    }
}

/// All waves, and what outlives them.
#[derive(Debug, Default)]
pub(super) struct Waves {
    /// By wave number of the machine.
    slots: Vec<WaveState>,
    /// Rank and launch of each workgroup, by serial number.
    groups: Vec<(u16, u32)>,
    /// By rank: what its launches so far have done and learnt.
    ended: Vec<Clock>,
    num_launches: u32,
    /// Tables whose rows say what a wave works on: addresses and bytes of a row.
    tables: Vec<(Range<u64>, u64)>,
}

impl Waves {
    /// Watches a table.
    pub fn add_table(&mut self, table: Range<u64>, row_bytes: u64) {
        self.tables.push((table, row_bytes.max(1)));
    }

    /// Begins a launch.
    pub fn start_launch(&mut self) {
        self.num_launches += 1;
    }

    /// Begins a workgroup of the launch that was begun last.
    pub fn start_group(&mut self, rank: u16) {
        self.groups.push((rank, self.num_launches));
        self.ended.resize(self.ended.len().max(rank as usize + 1), Clock::default());
    }

    /// Begins a wave of the workgroup that was begun last.
    pub fn start(&mut self, slot: usize, id: WaveId, kernel: u32) {
        let clock = self.ended[id.rank as usize].clone();
        let issued = clock.get(id).issued;
        let group = self.groups.len() as u32 - 1;
        self.slots.resize(self.slots.len().max(slot + 1), WaveState::default());
        let launch = self.num_launches;
        self.slots[slot] =
            WaveState { id, group, launch, kernel, issued, completed: issued, clock, ..WaveState::default() };
    }

    /// Ends a wave: nothing of it is in flight any more for what follows on its rank.
    pub fn end(&mut self, slot: usize) {
        let wave = &mut self.slots[slot];
        let seen = Seen { completed: wave.issued, issued: wave.issued };
        let mut clock = std::mem::take(&mut wave.clock);
        clock.learn(wave.id, seen);
        self.ended[wave.id.rank as usize].join(&clock);
    }

    /// Forgets the waves of launches that did not end.
    pub fn abandon(&mut self) {
        self.slots.clear();
    }

    /// A wave is about to execute a step.
    pub fn turn(&mut self, slot: usize, step: u32) {
        self.slots[slot].step = step;
    }

    /// A wave issues a vector memory operation while so many of its earlier ones are in flight.
    pub fn issue(&mut self, slot: usize, step: u32, outstanding: u32) {
        let wave = &mut self.slots[slot];
        wave.completed = wave.issued - outstanding.min(wave.issued);
        wave.issued += 1;
        wave.step = step;
    }

    /// A wave.
    pub fn at(&self, slot: usize) -> &WaveState {
        &self.slots[slot]
    }

    /// Operations that a wave has waited for.
    pub fn completed(&self, slot: usize) -> u32 {
        self.slots[slot].completed
    }

    /// A wave reads an address by a scalar load: if it lies in a watched table, its row says what follows.
    pub fn note_row(&mut self, slot: usize, address: u64) {
        if let Some((table, row_bytes)) = self.tables.iter().find(|(table, _)| table.contains(&address)) {
            self.slots[slot].row = Some(((address - table.start) / row_bytes) as u32);
        }
    }

    /// Remembers a load of a polling loop.
    pub fn poll(&mut self, slot: usize, polled: Polled) {
        self.slots[slot].polled.push(polled);
    }

    /// Whether this step's loads are among those that wait for the end of their iteration: then it was another one.
    pub fn has_polled(&self, slot: usize, step: u32, sites: &Sites) -> bool {
        self.slots[slot].polled.iter().any(|polled| sites.site(polled.record.site).step == step)
    }

    /// The iteration is over; what it loaded.
    pub fn take_polled(&mut self, slot: usize) -> Vec<Polled> {
        std::mem::take(&mut self.slots[slot].polled)
    }

    /// A wave learns what another one published.
    pub fn learn(&mut self, slot: usize, release: &Clock) {
        let wave = &mut self.slots[slot];
        if wave.clock.join(release) {
            wave.released = None;
        }
    }

    /// What a wave publishes now.
    pub fn release(&mut self, slot: usize) -> Arc<Clock> {
        let wave = &mut self.slots[slot];
        let seen = wave.seen();
        match &wave.released {
            Some((then, clock)) if *then == seen => clock.clone(),
            _ => {
                let mut clock = wave.clock.clone();
                clock.learn(wave.id, seen);
                let clock = Arc::new(clock);
                wave.released = Some((seen, clock.clone()));
                clock
            }
        }
    }

    /// Waves meet at a barrier, each with so many operations in flight.
    pub fn barrier(&mut self, waves: &[(usize, u32)]) {
        let mut joined = Clock::default();
        for &(slot, outstanding) in waves {
            let wave = &mut self.slots[slot];
            wave.completed = wave.issued - outstanding.min(wave.issued);
            joined.join(&wave.clock);
            joined.learn(wave.id, wave.seen());
        }
        for &(slot, _) in waves {
            let wave = &mut self.slots[slot];
            wave.clock.clone_from(&joined);
            wave.released = None;
        }
    }

    /// What is missing for an earlier access to be ordered before a wave's next one.
    pub fn judge_order(&self, slot: usize, earlier: &Record) -> Option<RaceKind> {
        let wave = &self.slots[slot];
        if earlier.id == wave.id {
            return None;
        }
        let seen = wave.clock.get(earlier.id);
        // Waves of a workgroup share the cache that their operations pass in order: issued is enough.
        if earlier.stamp <= seen.completed || (earlier.group == wave.group && earlier.stamp <= seen.issued) {
            None
        } else if earlier.stamp <= seen.issued {
            Some(RaceKind::InFlight)
        } else {
            Some(RaceKind::Unordered)
        }
    }

    /// The scope that an earlier access and a wave's next one must have to meet.
    fn needed_scope(&self, slot: usize, earlier: &Record, sites: &Sites) -> Scope {
        let wave = &self.slots[slot];
        let (rank, launch) = self.groups[earlier.group as usize];
        if earlier.group == wave.group || sites.kernels[wave.kernel as usize].has_fences {
            Scope::Plain
        } else if rank != wave.id.rank {
            Scope::System
        } else if launch != wave.launch {
            // A launch's end writes back, the next one's start invalidates.
            Scope::Plain
        } else {
            Scope::Device
        }
    }

    /// What is missing for an ordered load to see a store.
    pub fn judge_scope(&self, slot: usize, store: &Record, scope: Scope, sites: &Sites) -> Option<RaceKind> {
        let needed = self.needed_scope(slot, store, sites);
        if sites.site(store.site).scope < needed {
            Some(RaceKind::PlainStore)
        } else {
            (scope < needed).then_some(RaceKind::PlainLoad)
        }
    }

    /// What is missing for a wave's load to see a store.
    pub fn judge_load(&self, slot: usize, store: &Record, scope: Scope, sites: &Sites) -> Option<RaceKind> {
        self.judge_order(slot, store).or_else(|| self.judge_scope(slot, store, scope, sites))
    }

    /// What is missing for a wave's store to overwrite an earlier one for good: a dirty line may be written back later.
    pub fn judge_overwrite(&self, slot: usize, store: &Record, sites: &Sites) -> Option<RaceKind> {
        self.judge_order(slot, store).or_else(|| {
            let needed = self.needed_scope(slot, store, sites);
            (sites.site(store.site).scope < needed).then_some(RaceKind::PlainStore)
        })
    }

    /// Whether a store is one that a poll may accept.
    pub fn is_publishing(store: &Record, sites: &Sites) -> bool {
        matches!(sites.site(store.site).kind, AccessKind::Publish | AccessKind::Atomic)
    }
}
