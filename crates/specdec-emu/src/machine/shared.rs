//! What all waves of all ranks share while they run.

use super::abort::Abort;
use super::clock::Clock;
use super::fault::Faults;
use super::memory::Memory;
use super::parking::Parking;
use super::profile::Profile;
use super::races::Races;
use super::statistics::Statistics;
use super::tap::Tap;
use super::weak::Weak;
use super::world::World;

/// Memory, time and what watches them.
#[derive(Debug)]
pub(super) struct Shared {
    pub memory: Memory,
    pub clock: Clock,
    pub parking: Parking,
    pub tap: Tap,
    pub faults: Faults,
    pub statistics: Statistics,
    /// What other threads ask for.
    pub abort: Abort,
    /// The processes that share memory and time with this one.
    pub world: Option<Box<World>>,
    /// Counts by label, when they are wanted.
    pub profile: Option<Box<Profile>>,
    /// The race check, when it is on.
    pub races: Option<Box<Races>>,
    /// Stores in flight and old copies, when memory is weak.
    pub weak: Option<Box<Weak>>,
}

impl Shared {
    /// Whether somebody wants to know what a wave is about to do.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.races.is_some() || self.weak.is_some()
    }
}
