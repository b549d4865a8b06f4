//! A resident wave: its registers and everything that the machine keeps beside them.

use super::scoreboard::Scoreboard;
use super::visibility::Origin;
use crate::wave::Wave;

/// Why a wave is not running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaveState {
    Ready,
    /// It polls and nothing that it polls has changed.
    Parked,
    /// It sleeps until its timer.
    Asleep,
    AtBarrier,
    Ended,
}

/// One resident wave.
#[derive(Debug)]
pub(super) struct Slot {
    pub wave: Wave,
    pub board: Scoreboard,
    pub state: WaveState,
    pub origin: Origin,
    /// Number in the workgroup.
    pub index: u32,
    /// Workgroup, as the scheduler numbers them.
    pub group: usize,
    /// Number of the next instruction in the program.
    pub next: usize,
    /// MODE register.
    pub mode: u32,
    /// Instructions executed when the last `s_sleep` ended, and that instruction's pc.
    pub slept: (u64, u32),
    /// Instructions executed.
    pub executed: u64,
}
