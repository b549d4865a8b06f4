//! What every instruction of a running kernel belongs to, counted: only when a machine is asked to, since it slows
//! every instruction down.
//!
//! A pc is attributed once, when counting starts. Code that serves two places of a program has two bins, and the wave
//! knows which of them it is in: that is its phase.

use std::collections::VecDeque;
use std::sync::Arc;

use super::action::{Action, VectorKind};
use super::interpreter::Interpreter;
use super::program::Step;
use super::slot::Slot;
use super::visibility::Origin;

/// What an instruction belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The bin in each phase of a wave.
    pub bins: [u8; 2],
    /// The phase that a wave is in from here on; `None` leaves it.
    pub phase: Option<u8>,
    /// Part of a loop that polls.
    pub is_poll: bool,
}

/// What one workgroup did in one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Wave instructions.
    pub instructions: u64,
    /// Matrix instructions.
    pub mfma: u64,
    /// Vector loads marked non-temporal: weights.
    pub weight_loads: u64,
    /// Other vector loads.
    pub vector_loads: u64,
    /// Vector loads into LDS, of either kind.
    pub lds_dma: u64,
    /// Vector stores.
    pub vector_stores: u64,
    /// Global and buffer atomics.
    pub atomics: u64,
    /// Scalar loads.
    pub scalar_loads: u64,
    /// LDS instructions.
    pub lds: u64,
    /// Bytes that non-temporal loads brought.
    pub weight_bytes: u64,
    /// Bytes that other vector and scalar loads brought.
    pub other_bytes: u64,
    /// Bytes that vector stores and atomics wrote.
    pub stored_bytes: u64,
    /// `s_waitcnt`.
    pub waitcnts: u64,
    /// Barriers, once for every wave.
    pub barriers: u64,
    /// Times that a wave found nothing new and slept.
    pub polls: u64,
    /// Times that it was parked until something changed.
    pub parks: u64,
    /// Waits of a poll that had to complete weights first.
    pub polls_behind_weights: u64,
    /// Most bytes of weights that were in flight at a barrier.
    pub weights_in_flight: u64,
}

#[derive(Clone, Debug, Default)]
struct WaveState {
    phase: usize,
    bin: usize,
    /// Bytes of weights of each vector memory operation in flight.
    in_flight: VecDeque<u64>,
}

/// The waves of one workgroup on their way to a barrier.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    waves: usize,
    bytes: u64,
}

/// Counts of all workgroups of all ranks.
#[derive(Debug, Default)]
pub struct Profile {
    num_bins: usize,
    /// By the guest address of a code object's image: a label for each of its instructions.
    labels: Vec<(u64, Arc<[Label]>)>,
    waves: Vec<WaveState>,
    arrivals: Vec<Vec<Arrivals>>,
    /// By rank, then by workgroup and bin.
    counts: Vec<Vec<Counts>>,
}

/// Bytes that were loaded and stored, so far or by one instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bytes {
    loaded: u64,
    stored: u64,
}

impl Interpreter<'_> {
    /// The labels of this wave's code object, if it is counted.
    pub(super) fn labels(&self) -> Option<Arc<[Label]>> {
        self.shared.profile.as_ref()?.labels(self.launch.module.image)
    }

    /// All ranks' bytes so far.
    pub(super) fn bytes(&self) -> Bytes {
        let statistics = &self.shared.statistics;
        Bytes { loaded: statistics.bytes_loaded, stored: statistics.bytes_stored }
    }

    /// Counts the instruction that has just been executed; `before` are the bytes before it.
    pub(super) fn note(&mut self, labels: &[Label], step: &Step, before: Bytes) {
        let now = self.bytes();
        let bytes = Bytes { loaded: now.loaded - before.loaded, stored: now.stored - before.stored };
        let label = labels.get(self.slot.next).copied();
        if let (Some(profile), Some(label)) = (&mut self.shared.profile, label) {
            profile.note(label, step, self.slot, bytes, self.group.waves.len());
        }
    }
}

impl Profile {
    /// Counts into bins `0..num_bins`.
    pub fn new(num_bins: usize) -> Self {
        Self { num_bins, ..Self::default() }
    }

    pub(super) fn attribute(&mut self, image: u64, labels: Vec<Label>) {
        self.labels.retain(|(known, _)| *known != image);
        self.labels.push((image, labels.into()));
    }

    /// The labels of a code object, by step.
    pub(super) fn labels(&self, image: u64) -> Option<Arc<[Label]>> {
        self.labels.iter().find(|(known, _)| *known == image).map(|(_, labels)| labels.clone())
    }

    /// What a workgroup did in a bin.
    pub fn counts(&self, rank: usize, workgroup: usize, bin: usize) -> Counts {
        let of_rank = self.counts.get(rank);
        of_rank.and_then(|counts| counts.get(workgroup * self.num_bins + bin)).copied().unwrap_or_default()
    }

    /// Workgroups of a rank that did anything.
    pub fn workgroups(&self, rank: usize) -> usize {
        self.counts.get(rank).map_or(0, |counts| counts.len() / self.num_bins.max(1))
    }

    /// Starts counting anew.
    pub fn clear(&mut self) {
        self.counts.clear();
    }

    fn cell(&mut self, rank: usize, workgroup: usize, bin: usize) -> &mut Counts {
        let index = workgroup * self.num_bins + bin.min(self.num_bins - 1);
        if self.counts.len() <= rank {
            self.counts.resize_with(rank + 1, Vec::new);
        }
        let counts = &mut self.counts[rank];
        if counts.len() <= index {
            counts.resize((workgroup + 1) * self.num_bins, Counts::default());
        }
        &mut counts[index]
    }

    /// A wave has executed an instruction.
    pub(super) fn note(&mut self, label: Label, step: &Step, slot: &Slot, bytes: Bytes, num_waves: usize) {
        let wave = slot.origin.wave;
        if self.waves.len() <= wave {
            self.waves.resize_with(wave + 1, WaveState::default);
        }
        let state = &mut self.waves[wave];
        if slot.executed == 1 {
            *state = WaveState::default();
        }
        state.phase = label.phase.map_or(state.phase, usize::from);
        let bin = usize::from(label.bins[state.phase.min(1)]);
        state.bin = bin;
        let is_weights = step.inst.mods.nt;
        if matches!(step.action, Action::Vector(..) | Action::WriteBack) {
            state.in_flight.push_back(if is_weights { bytes.loaded } else { 0 });
        }
        let mut completed = 0;
        while state.in_flight.len() > slot.board.num_vector() {
            completed += state.in_flight.pop_front().unwrap_or(0);
        }
        let held: u64 = match step.action {
            Action::Barrier => state.in_flight.iter().sum(),
            _ => 0,
        };
        let (rank, workgroup) = (slot.origin.rank.0 as usize, slot.origin.workgroup as usize);
        let passed = match step.action {
            Action::Barrier => self.arrive(rank, workgroup, held, num_waves),
            _ => None,
        };
        let counts = self.cell(rank, workgroup, bin);
        counts.add(step, is_weights, bytes);
        counts.polls_behind_weights +=
            u64::from(label.is_poll && completed > 0 && matches!(step.action, Action::Wait { .. }));
        counts.weights_in_flight = counts.weights_in_flight.max(passed.unwrap_or(0));
    }

    /// A wave that has slept is parked.
    pub(super) fn park(&mut self, origin: Origin) {
        if let Some(bin) = self.waves.get(origin.wave).map(|state| state.bin) {
            self.cell(origin.rank.0 as usize, origin.workgroup as usize, bin).parks += 1;
        }
    }

    /// A wave is at a barrier with so many bytes of weights in flight; the workgroup's when it is the last.
    fn arrive(&mut self, rank: usize, workgroup: usize, bytes: u64, num_waves: usize) -> Option<u64> {
        if self.arrivals.len() <= rank {
            self.arrivals.resize_with(rank + 1, Vec::new);
        }
        let arrivals = &mut self.arrivals[rank];
        if arrivals.len() <= workgroup {
            arrivals.resize(workgroup + 1, Arrivals::default());
        }
        let arrived = &mut arrivals[workgroup];
        arrived.waves += 1;
        arrived.bytes += bytes;
        (arrived.waves >= num_waves).then(|| std::mem::take(arrived).bytes)
    }
}

impl Counts {
    /// Every counter with its name.
    pub const fn named(&self) -> [(&'static str, u64); 18] {
        [
            ("instructions", self.instructions),
            ("mfma", self.mfma),
            ("weight_loads", self.weight_loads),
            ("vector_loads", self.vector_loads),
            ("lds_dma", self.lds_dma),
            ("vector_stores", self.vector_stores),
            ("atomics", self.atomics),
            ("scalar_loads", self.scalar_loads),
            ("lds", self.lds),
            ("weight_bytes", self.weight_bytes),
            ("other_bytes", self.other_bytes),
            ("stored_bytes", self.stored_bytes),
            ("waitcnts", self.waitcnts),
            ("barriers", self.barriers),
            ("polls", self.polls),
            ("parks", self.parks),
            ("polls_behind_weights", self.polls_behind_weights),
            ("weights_in_flight", self.weights_in_flight),
        ]
    }

    fn add(&mut self, step: &Step, is_weights: bool, bytes: Bytes) {
        self.instructions += 1;
        self.mfma += u64::from(step.is_mfma);
        match step.action {
            Action::Vector(_, VectorKind::Load(_) | VectorKind::LoadToLds(_)) => {
                self.lds_dma += u64::from(matches!(step.action, Action::Vector(_, VectorKind::LoadToLds(_))));
                if is_weights {
                    self.weight_loads += 1;
                    self.weight_bytes += bytes.loaded;
                } else {
                    self.vector_loads += 1;
                    self.other_bytes += bytes.loaded;
                }
            }
            Action::Vector(_, VectorKind::Store(_)) => self.vector_stores += 1,
            Action::Vector(_, VectorKind::Atomic(..)) => self.atomics += 1,
            Action::ScalarLoad { .. } => {
                self.scalar_loads += 1;
                self.other_bytes += bytes.loaded;
            }
            Action::Local(_) | Action::CrossLane(_) => self.lds += 1,
            Action::Wait { .. } => self.waitcnts += 1,
            Action::Barrier => self.barriers += 1,
            Action::Sleep => self.polls += 1,
            _ => {}
        }
        self.stored_bytes += bytes.stored;
    }
}
