//! What all waves of all ranks share while they run.

use super::clock::Clock;
use super::fault::Faults;
use super::memory::Memory;
use super::parking::Parking;
use super::races::Races;
use super::statistics::Statistics;
use super::tap::Tap;

/// Memory, time and what watches them.
#[derive(Debug)]
pub(super) struct Shared {
    pub memory: Memory,
    pub clock: Clock,
    pub parking: Parking,
    pub tap: Tap,
    pub faults: Faults,
    pub statistics: Statistics,
    /// The race check, when it is on.
    pub races: Option<Box<Races>>,
}
