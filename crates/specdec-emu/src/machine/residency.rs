//! What is resident: running launches, their workgroups and waves; starting and ending them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use specdec_core::ids::Rank;

use super::dispatch::{Arguments, Queued};
use super::error::EmulatorError;
use super::group::Group;
use super::scoreboard::Scoreboard;
use super::shared::Shared;
use super::slot::{Slot, WaveState};
use super::statistics::LoadsInFlight;
use super::stream::{self, Entry};
use super::visibility::Origin;
use super::weak;
use crate::wave::{Lanes, LANES};

/// A launch whose workgroups are resident.
#[derive(Debug)]
pub(super) struct Running {
    pub launch: Arc<Queued>,
    arguments: Arguments,
    num_live: u32,
}

/// All resident waves, and what each rank still has to run.
#[derive(Debug, Default)]
pub(super) struct Residency {
    pub slots: Vec<Slot>,
    pub groups: Vec<Group>,
    /// By rank.
    pub running: Vec<Option<Running>>,
    pub queues: Vec<VecDeque<Entry>>,
    free_slots: Vec<usize>,
    free_groups: Vec<usize>,
    /// Register files of ended waves, by size.
    register_files: HashMap<usize, Vec<Vec<Lanes>>>,
}

impl Residency {
    /// Nothing resident; `queues` by rank.
    pub fn new(queues: Vec<VecDeque<Entry>>) -> Self {
        Self { running: queues.iter().map(|_| None).collect(), queues, ..Self::default() }
    }

    /// Does what the stream of every idle rank holds up to its next launch, which becomes resident; adds its waves to
    /// `ready`.
    pub fn start_launches(&mut self, shared: &mut Shared, ready: &mut Vec<u32>) -> Result<(), EmulatorError> {
        for rank in 0..self.queues.len() {
            while self.running[rank].is_none() {
                match self.queues[rank].pop_front() {
                    None => break,
                    Some(Entry::Launch(queued)) => self.start(rank, queued, shared, ready)?,
                    Some(copy) => stream::perform(&copy, Rank(rank as u8), shared)?,
                }
            }
        }
        Ok(())
    }

    fn start(
        &mut self,
        rank: usize,
        queued: Arc<Queued>,
        shared: &mut Shared,
        ready: &mut Vec<u32>,
    ) -> Result<(), EmulatorError> {
        let arguments = queued.place_arguments(&mut shared.memory)?;
        let lds_bytes = queued.kernel().info.lds_bytes + queued.shape.dynamic_lds_bytes;
        let (waves, workgroups) = (queued.shape.waves(), queued.shape.workgroups());
        let registers = queued.vector_registers();
        let entry = queued.module.program.find(queued.kernel().entry).unwrap_or(usize::MAX);
        let kernel = shared.races.as_mut().map(|races| races.start_launch(&queued));
        for workgroup in 0..workgroups {
            let group = self.free_groups.pop().unwrap_or(self.groups.len());
            if group == self.groups.len() {
                self.groups.push(Group::new(0));
            }
            self.groups[group] = Group::new(lds_bytes);
            if let Some(races) = &mut shared.races {
                races.start_group(Rank(rank as u8), &mut self.groups[group], lds_bytes);
            }
            for index in 0..waves {
                let file = self.register_files.get_mut(&registers).and_then(Vec::pop);
                let file = file.unwrap_or_else(|| vec![[0; LANES]; registers]);
                let number = self.free_slots.pop().unwrap_or(self.slots.len());
                let slot = Slot {
                    wave: queued.entry_state(arguments, queued.coordinates(workgroup), index, file),
                    board: Scoreboard::default(),
                    state: WaveState::Ready,
                    origin: Origin { rank: Rank(rank as u8), workgroup, wave: number },
                    index,
                    group,
                    next: entry,
                    mode: queued.kernel().descriptor.mode,
                    slept: (0, u32::MAX),
                    executed: 0,
                };
                if let (Some(races), Some(kernel)) = (&mut shared.races, kernel) {
                    races.start_wave(&slot, waves, kernel);
                }
                if number == self.slots.len() {
                    self.slots.push(slot);
                } else {
                    self.slots[number] = slot;
                }
                self.groups[group].waves.push(number as u32);
                shared.parking.add_wave(number);
                ready.push(number as u32);
            }
        }
        self.running[rank] = Some(Running { launch: queued, arguments, num_live: waves * workgroups });
        Ok(())
    }

    /// The launch that a wave belongs to.
    pub fn launch(&self, wave: usize) -> Option<&Arc<Queued>> {
        let rank = self.slots[wave].origin.rank.0 as usize;
        self.running[rank].as_ref().map(|running| &running.launch)
    }

    /// A wave has ended; whether its launch has too.
    pub fn end_wave(&mut self, wave: usize, shared: &mut Shared) -> Result<bool, EmulatorError> {
        let slot = &mut self.slots[wave];
        if let Some(races) = &mut shared.races {
            races.end_wave(wave, &self.groups[slot.group]);
        }
        slot.state = WaveState::Ended;
        let file = std::mem::take(&mut slot.wave.vgpr);
        self.register_files.entry(file.len()).or_default().push(file);
        let (group_number, rank) = (slot.group, slot.origin.rank.0 as usize);
        let group = &mut self.groups[group_number];
        group.num_ended += 1;
        let Some(running) = &mut self.running[rank] else { return Ok(false) };
        if group.num_ended as usize == group.waves.len() {
            // Numbers are reused only now: until then the waves of the group are still looked at.
            self.free_slots.extend(group.waves.iter().map(|&wave| wave as usize));
            self.free_groups.push(group_number);
            let ended = std::mem::replace(group, Group::new(0));
            let table = &mut shared.statistics.loads_in_flight;
            for (pc, bytes) in ended.loads_in_flight {
                let key = (running.launch.kernel().info.symbol.clone(), pc);
                let entry = LoadsInFlight::add(table.get(&key).copied(), bytes);
                table.insert(key, entry);
            }
        }
        running.num_live -= 1;
        if running.num_live > 0 {
            return Ok(false);
        }
        shared.memory.remove(running.arguments.kernarg)?;
        weak::flush(shared, Rank(rank as u8));
        shared.statistics.launches += 1;
        self.running[rank] = None;
        Ok(true)
    }

    /// Ends everything at once, after an error.
    pub fn abandon(&mut self, shared: &mut Shared) {
        for running in self.running.iter_mut().filter_map(Option::take) {
            weak::flush(shared, running.launch.rank);
            // The arguments are there: `start` put them there and only `end_wave` takes them away.
            let _ = shared.memory.remove(running.arguments.kernarg);
        }
    }
}
