//! Virtual time: a 100 MHz counter that advances with emulated work, so that a slow emulator is no slow machine.

/// The counter behind `s_memrealtime`, shared by all ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    ticks: u64,
    /// Wave instructions executed that do not make a tick yet.
    rest: u64,
    instructions_per_tick: u64,
}

/// Shader clocks (2.4 GHz) in a tick: `s_memtime` and `s_sleep` count those.
pub(super) const CORE_CLOCKS_PER_TICK: u64 = 24;

impl Clock {
    /// A clock at 1: a kernel may take 0 for "not started".
    pub fn new(instructions_per_tick: u64) -> Self {
        Self { ticks: 1, rest: 0, instructions_per_tick: instructions_per_tick.max(1) }
    }

    /// Now, in ticks.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Lets the time of executed wave instructions pass.
    pub fn work(&mut self, instructions: u64) {
        self.rest += instructions;
        self.ticks += self.rest / self.instructions_per_tick;
        self.rest %= self.instructions_per_tick;
    }

    /// Jumps ahead.
    pub fn advance(&mut self, ticks: u64) {
        self.ticks = self.ticks.saturating_add(ticks);
    }
}
