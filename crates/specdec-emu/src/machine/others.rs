//! Waiting for other processes: what the scheduler does when no wave of this one can run.

use super::abort;
use super::emulator::Stall;
use super::error::EmulatorError;
use super::report;
use super::scheduler::Scheduler;
use super::shared::Shared;
use super::slot::WaveState;

/// After a turn: others learn the clock and that something was stored.
#[inline]
pub(super) fn end_turn(shared: &mut Shared) {
    if let Some(world) = &shared.world {
        world.publish(shared.clock.ticks());
        tell(shared);
    }
}

/// Others learn that something was stored to what they share, if it was.
pub(super) fn tell(shared: &mut Shared) {
    if let Some(world) = shared.world.as_ref().filter(|_| shared.memory.has_stored_shared) {
        world.tell();
        shared.memory.has_stored_shared = false;
    }
}

/// Wakes polls of lines that others have changed since the last look; the count of stores at which it looked.
pub(super) fn look(shared: &mut Shared) -> u64 {
    let Some(world) = &mut shared.world else { return 0 };
    let stores = world.stores();
    if world.seen != stores {
        world.seen = stores;
        shared.parking.signal_remote(&shared.memory);
    }
    stores
}

impl Scheduler<'_> {
    /// Sleeps until a wave can run: something that it polls was stored, or its time has come.
    pub(super) fn wait_for_others(&mut self) -> Result<(), EmulatorError> {
        // Waves that only wait for each other at barriers wait for no other process.
        let looks_again = |state| matches!(state, WaveState::Parked | WaveState::Asleep);
        if !self.residency.slots.iter().any(|slot| looks_again(slot.state)) {
            return Err(report::deadlock(&self.residency, self.shared));
        }
        loop {
            let rings = self.shared.world.as_ref().map_or(0, |world| world.rings());
            let stores = look(self.shared);
            abort::obey(self.shared)?;
            self.wake();
            if self.has_runnable() {
                if let Some(world) = &mut self.shared.world {
                    world.wake();
                    world.run(self.shared.clock.ticks());
                }
                return Ok(());
            }
            self.wait_once(rings, stores)?;
        }
    }

    /// Advances to the next event if the others allow it, else says what is waited for and sleeps.
    fn wait_once(&mut self, rings: u32, stores: u64) -> Result<(), EmulatorError> {
        let timer = self.shared.parking.next_timer();
        let event = timer.map_or(self.next_sweep, |timer| timer.min(self.next_sweep));
        let ticks = self.shared.clock.ticks();
        let is_strict = self.options.stall == Stall::Error && timer.is_none();
        let Some(world) = &mut self.shared.world else { return Ok(()) };
        world.wait(ticks, event, stores, timer.is_none());
        let Some((limit, is_deadlock)) = world.limit(stores) else { return Ok(()) };
        if is_strict && (is_deadlock || world.is_deadlocked(stores)) {
            world.report_deadlock(stores);
            return Err(report::deadlock(&self.residency, self.shared));
        }
        let reached = limit.unwrap_or(u64::MAX).min(event);
        if reached < event {
            if reached > ticks {
                world.wait(reached, event, stores, timer.is_none());
            }
            world.sleep(rings);
        }
        self.shared.clock.advance(reached.saturating_sub(ticks));
        Ok(())
    }
}
