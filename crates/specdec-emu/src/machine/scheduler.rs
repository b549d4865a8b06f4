//! One seeded scheduler over all waves of all ranks.

use super::abort;
use super::clock::CORE_CLOCKS_PER_TICK;
use super::emulator::{Options, Stall};
use super::error::EmulatorError;
use super::interpreter::{Interpreter, Yield};
use super::others;
use super::priorities::{Priorities, Schedule};
use super::random::Random;
use super::report;
use super::residency::Residency;
use super::shared::Shared;
use super::slot::WaveState;
use super::weak;

/// While other waves can run, one turn in so many goes to a poll.
const POLL_ODDS: u64 = 64;
/// While waves can run, they look at what other processes stored once in so many turns.
const LOOK_TURNS: u64 = 16;

/// Runs all queued launches of all ranks to their ends.
pub(super) struct Scheduler<'a> {
    pub options: &'a Options,
    pub shared: &'a mut Shared,
    pub residency: Residency,
    /// Turns so far.
    turns: u64,
    /// Waves that can run, and polls that have something new to look at. Those come last and now and then: the
    /// longer they wait, the more stores one look covers.
    ready: Vec<u32>,
    polls: Vec<u32>,
    priorities: Priorities,
    random: Random,
    executed: u64,
    /// When parked polls look again although nothing that they watch has changed.
    pub(super) next_sweep: u64,
    /// Signals when every wave last waited: if a round of polls brings no new one, nothing ever will.
    stalled_at: Option<u64>,
}

impl<'a> Scheduler<'a> {
    /// A scheduler that has run nothing yet.
    pub fn new(options: &'a Options, random: Random, shared: &'a mut Shared, residency: Residency) -> Self {
        let next_sweep = shared.clock.ticks().saturating_add(options.poll_ticks);
        Self {
            options,
            shared,
            residency,
            turns: 0,
            ready: Vec::new(),
            polls: Vec::new(),
            priorities: Priorities::default(),
            random,
            executed: 0,
            next_sweep,
            stalled_at: None,
        }
    }

    /// Runs to the end or to the first error. Gives the random sequence back.
    pub fn run(mut self) -> (Random, Result<(), EmulatorError>) {
        let result = self.run_all();
        if let Some(races) = self.shared.races.as_mut().filter(|_| result.is_err()) {
            races.abandon(&self.residency.groups);
        }
        self.residency.abandon(self.shared);
        self.shared.parking.clear();
        (self.random, result)
    }

    fn run_all(&mut self) -> Result<(), EmulatorError> {
        abort::obey(self.shared)?;
        self.residency.start_launches(self.shared, &mut self.ready)?;
        loop {
            if !self.has_runnable() && !self.resolve_stall()? {
                return Ok(());
            }
            let wave = self.next_wave();
            let quantum = 1 + self.random.below(2 * self.options.quantum.max(1));
            let outcome = self.run_wave(wave, quantum)?;
            self.settle(wave, outcome)?;
            abort::obey(self.shared)?;
            others::end_turn(self.shared);
            self.turns += 1;
            if self.shared.world.is_some() && (self.turns.is_multiple_of(LOOK_TURNS) || !self.has_runnable()) {
                others::look(self.shared);
            }
            self.wake();
        }
    }

    /// Takes the wave whose turn it is; one can run.
    fn next_wave(&mut self) -> usize {
        if self.options.schedule == Schedule::Priorities {
            self.ready.append(&mut self.polls);
            let slots = &self.residency.slots;
            let position = self.priorities.pick(&self.ready, slots, self.executed, &mut self.random);
            return self.ready.swap_remove(position) as usize;
        }
        let takes_poll = !self.polls.is_empty() && (self.ready.is_empty() || self.random.below(POLL_ODDS) == 0);
        let list = if takes_poll { &mut self.polls } else { &mut self.ready };
        let position = self.random.below(list.len() as u64) as usize;
        list.swap_remove(position) as usize
    }

    pub(super) fn has_runnable(&self) -> bool {
        !self.ready.is_empty() || !self.polls.is_empty()
    }

    fn run_wave(&mut self, wave: usize, quantum: u64) -> Result<Yield, EmulatorError> {
        let Some(launch) = self.residency.launch(wave).cloned() else { return Ok(Yield::Ended) };
        let slot = &mut self.residency.slots[wave];
        let before = slot.executed;
        let group = &mut self.residency.groups[slot.group];
        let outcome = Interpreter { slot, group, launch: &launch, shared: self.shared }.run(quantum);
        let executed = self.residency.slots[wave].executed - before;
        self.executed += executed;
        self.shared.clock.work(executed);
        let outcome = outcome.map_err(|error| error.locate(report::location(&self.residency, wave)))?;
        if self.executed > self.options.budget {
            let at = Box::new(report::location(&self.residency, wave));
            return Err(EmulatorError::BudgetPassed { budget: self.options.budget, at });
        }
        Ok(outcome)
    }

    /// Does what a wave's yield asks for.
    fn settle(&mut self, wave: usize, outcome: Yield) -> Result<(), EmulatorError> {
        match outcome {
            Yield::Quantum => self.ready.push(wave as u32),
            Yield::Parked => self.residency.slots[wave].state = WaveState::Parked,
            Yield::Asleep(clocks) => {
                self.residency.slots[wave].state = WaveState::Asleep;
                let tick = self.shared.clock.ticks() + 1 + clocks / CORE_CLOCKS_PER_TICK;
                self.shared.parking.set_timer(wave, tick);
            }
            Yield::Barrier => self.reach_barrier(wave)?,
            Yield::Ended => {
                let group = &self.residency.groups[self.residency.slots[wave].group];
                let index = self.residency.slots[wave].index;
                if group.num_waiting > 0 {
                    let waiting = group.waves.iter().map(|&wave| wave as usize);
                    let waiting = waiting.filter(|&wave| self.residency.slots[wave].state == WaveState::AtBarrier);
                    return Err(self.barrier_not_reached(index, waiting.min().unwrap_or(wave)));
                }
                if self.residency.end_wave(wave, self.shared)? {
                    self.residency.start_launches(self.shared, &mut self.ready)?;
                }
            }
        }
        Ok(())
    }

    fn barrier_not_reached(&self, ended: u32, waiting: usize) -> EmulatorError {
        let at = Box::new(report::location(&self.residency, waiting));
        EmulatorError::BarrierNotReached { wave: ended, at }
    }

    fn reach_barrier(&mut self, wave: usize) -> Result<(), EmulatorError> {
        self.shared.parking.stop_recording(wave);
        let slots = &mut self.residency.slots;
        slots[wave].state = WaveState::AtBarrier;
        let group = &mut self.residency.groups[slots[wave].group];
        group.num_waiting += 1;
        if group.num_ended > 0 {
            let ended = group.waves.iter().find(|&&other| slots[other as usize].state == WaveState::Ended);
            let ended = ended.map_or(0, |&other| slots[other as usize].index);
            return Err(self.barrier_not_reached(ended, wave));
        }
        if (group.num_waiting as usize) < group.waves.len() {
            return Ok(());
        }
        let mut bytes = 0;
        for &other in &group.waves {
            let slot = &mut slots[other as usize];
            slot.state = WaveState::Ready;
            bytes += slot.board.load_bytes;
            self.ready.push(other);
        }
        let first = group.waves.first().map_or(wave, |&first| first as usize);
        let pc = report::waiting_pc(&self.residency, first);
        let group = self.residency.slots[wave].group;
        if let Some(races) = &mut self.shared.races {
            races.barrier(&self.residency.groups[group], &self.residency.slots);
        }
        self.residency.groups[group].pass_barrier(pc, bytes);
        Ok(())
    }

    /// Makes waves ready that a store, a timer or the sweep wakes.
    pub(super) fn wake(&mut self) {
        while let Some(wave) = self.shared.parking.take_woken() {
            self.resume(wave as usize, WaveState::Parked);
        }
        let now = self.shared.clock.ticks();
        while let Some(wave) = self.shared.parking.take_expired(now) {
            self.resume(wave as usize, WaveState::Asleep);
        }
        if now >= self.next_sweep {
            self.wake_polls();
        }
    }

    fn resume(&mut self, wave: usize, from: WaveState) {
        let slot = &mut self.residency.slots[wave];
        if slot.state == from {
            slot.state = WaveState::Ready;
            self.shared.parking.unpark(wave);
            let list = if from == WaveState::Parked { &mut self.polls } else { &mut self.ready };
            list.push(wave as u32);
        }
    }

    fn wake_polls(&mut self) {
        self.next_sweep = self.shared.clock.ticks().saturating_add(self.options.poll_ticks);
        for wave in 0..self.residency.slots.len() {
            self.resume(wave, WaveState::Parked);
        }
    }

    /// No wave is ready: jumps to the next timer, lets every poll look once more, then reports the deadlock or
    /// lets time pass. `false` when all have ended.
    fn resolve_stall(&mut self) -> Result<bool, EmulatorError> {
        weak::settle(self.shared);
        if self.shared.world.is_some() {
            others::tell(self.shared);
            if self.residency.running.iter().all(Option::is_none) {
                return Ok(false);
            }
            return self.wait_for_others().map(|()| true);
        }
        self.wake();
        if self.has_runnable() {
            return Ok(true);
        }
        while let Some(tick) = self.shared.parking.next_timer() {
            self.shared.clock.advance(tick.saturating_sub(self.shared.clock.ticks()));
            self.wake();
            if self.has_runnable() {
                return Ok(true);
            }
        }
        if self.residency.running.iter().all(Option::is_none) {
            return Ok(false);
        }
        let signals = self.shared.parking.num_signals;
        let has_looked = self.stalled_at == Some(signals);
        self.stalled_at = Some(signals);
        match self.options.stall {
            _ if !has_looked => {}
            Stall::Advance(ticks) => self.shared.clock.advance(ticks.max(1)),
            Stall::Error => return Err(report::deadlock(&self.residency, self.shared)),
        }
        self.wake_polls();
        if !self.has_runnable() {
            return Err(report::deadlock(&self.residency, self.shared));
        }
        Ok(true)
    }
}
