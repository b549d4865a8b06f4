//! How the clocks of processes keep together: pure rules over what each process says of itself.
//!
//! Every process of a world has a clock of its own, in ticks of 10 ns, which emulated work moves. The invariant: *a
//! process that waits never lets its clock pass what another could still do earlier.* Another process
//!
//! - that runs waves can store at its own clock at the earliest;
//! - that waits too, and has looked at everything stored so far, does nothing before its next event: a timer, or the next
//!   look of its polls. One that has not looked yet counts as running;
//! - that is in host code counts as moving with the wall clock since it went there, so that a rank which never launches
//!   makes others wait as long as on a real machine;
//! - that has ended bounds nobody.
//!
//! So a slow emulator is no slow rank, a wait times out no earlier than on a real machine, and when all wait, or all others
//! are dead, the earliest event comes at once. When a process begins to run it first catches up with the slowest other,
//! but by no more than the wall time that it was away; when it ends a run it catches up with the slowest other. Neither
//! happens inside a wait, and both keep one step's difference from adding to the next one's.

/// Nanoseconds in a tick.
const TICK_NS: u64 = 10;

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Host code: launching nothing since `since_ns` of the wall clock.
    Host {
        /// When its clock stood at its ticks.
        since_ns: u64,
    },
    /// Waves run.
    Running,
    /// Every wave waits.
    Waiting {
        /// When the first of them goes on by itself.
        event: u64,
        /// Stores to shared memory that it has looked at.
        seen: u64,
        /// Whether that event only looks again, so that no timer will ever end the wait.
        is_stuck: bool,
    },
    /// It has ended or left the world.
    Gone,
}

/// A process: its clock and what it is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its clock, in ticks.
    pub ticks: u64,
    /// What it is doing.
    pub doing: Doing,
}

/// Ticks that the wall clock makes from one time to another.
fn wall_ticks(since_ns: u64, now_ns: u64) -> u64 {
    now_ns.saturating_sub(since_ns) / TICK_NS
}

impl Member {
    /// Its clock now; `None` for one that has gone.
    pub fn clock(&self, now_ns: u64) -> Option<u64> {
        match self.doing {
            Doing::Host { since_ns } => Some(self.ticks.saturating_add(wall_ticks(since_ns, now_ns))),
            Doing::Running | Doing::Waiting { .. } => Some(self.ticks),
            Doing::Gone => None,
        }
    }

    /// The earliest time at which it could still store; `stores` is how many there have been.
    fn bound(&self, stores: u64, now_ns: u64) -> Option<u64> {
        match self.doing {
            Doing::Waiting { event, seen, .. } if seen == stores => Some(event.max(self.ticks)),
            _ => self.clock(now_ns),
        }
    }
}

/// How far a process that waits may let its clock go; `None`: as far as it likes. `stores` is how many stores to shared
/// memory there have been.
pub fn limit(others: &[Member], stores: u64, now_ns: u64) -> Option<u64> {
    others.iter().filter_map(|other| other.bound(stores, now_ns)).min()
}

/// Whether nobody but the asking process, which waits for a store, could ever make one.
pub fn is_deadlock(others: &[Member], stores: u64) -> bool {
    others.iter().all(|other| match other.doing {
        Doing::Waiting { seen, is_stuck, .. } => is_stuck && seen == stores,
        Doing::Gone => true,
        Doing::Host { .. } | Doing::Running => false,
    })
}

fn slowest(others: &[Member], now_ns: u64) -> Option<u64> {
    others.iter().filter_map(|other| other.clock(now_ns)).min()
}

/// The clock with which a process begins to run: its own was `ticks` when it went to host code at `since_ns`.
pub fn at_start(ticks: u64, since_ns: u64, others: &[Member], now_ns: u64) -> u64 {
    let by_wall = ticks.saturating_add(wall_ticks(since_ns, now_ns));
    ticks.max(slowest(others, now_ns).map_or(by_wall, |slowest| slowest.min(by_wall)))
}

/// The clock with which a process ends a run.
pub fn at_end(ticks: u64, others: &[Member], now_ns: u64) -> u64 {
    slowest(others, now_ns).map_or(ticks, |slowest| slowest.max(ticks))
}
