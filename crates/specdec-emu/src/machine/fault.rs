//! Faults that a test injects, to show that a check finds them.

use specdec_core::ids::Rank;

use super::lane_copy;
use super::tap::Tap;
use super::visibility::LaneAddresses;
use crate::op::Op;
use crate::wave::Lanes;

/// Element stores of one rank into one tap region: of those, one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorePlace {
    /// The region's rank and id.
    pub region: (Rank, u32),
    /// Rank that stores.
    pub rank: Rank,
    /// Element stores of that rank into that region that come before; 0 is the first.
    pub occurrence: u64,
}

/// What becomes of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// These bits are flipped on its way, from the element's first byte on.
    Corrupt(u64),
    /// It never arrives.
    Drop,
    /// It arrives when so many more launches of its rank have ended.
    Delay(u64),
}

/// One fault; it fires once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An instruction does nothing.
    SkipInstruction {
        /// Rank that executes it.
        rank: Rank,
        /// Mnemonic.
        op: Op,
        /// Executions of that mnemonic on that rank that come before; 0 is the first.
        occurrence: u64,
    },
    /// A wave stands still before an instruction.
    Stall {
        /// Rank that executes it.
        rank: Rank,
        /// Mnemonic.
        op: Op,
        /// Executions of that mnemonic on that rank that come before; 0 is the first.
        occurrence: u64,
        /// For so long, in ticks of 10 ns.
        ticks: u64,
    },
    /// A store into a tap region goes wrong.
    Store(StorePlace, StoreFault),
    /// A copy that the host queued has no effect: the device goes on seeing what was there before.
    LoseCopy {
        /// Rank on whose stream it is.
        rank: Rank,
        /// Copies of the host on that stream that come before; 0 is the first.
        occurrence: u64,
    },
}

/// What a fault makes of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strike {
    Skip,
    /// Stand still for so many ticks, then execute it.
    Stall(u64),
}

/// A store that arrives late.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Late {
    rank: Rank,
    launches: u64,
    address: u64,
    bytes: Vec<u8>,
}

/// Injected faults and what became of them.
#[derive(Debug, Default)]
pub(super) struct Faults {
    injected: Vec<(Fault, bool)>,
    late: Vec<Late>,
    pub strikes_instructions: bool,
    pub strikes_stores: bool,
}

impl Faults {
    /// Adds a fault; its handle for [`Faults::has_fired`].
    pub fn inject(&mut self, fault: Fault) -> usize {
        self.injected.push((fault, false));
        self.refresh();
        self.injected.len() - 1
    }

    /// Whether a fault has fired.
    pub fn has_fired(&self, handle: usize) -> bool {
        self.injected.get(handle).is_some_and(|&(_, has_fired)| has_fired)
    }

    fn refresh(&mut self) {
        let mut live = self.injected.iter().filter(|(_, has_fired)| !has_fired).map(|(fault, _)| fault);
        self.strikes_instructions =
            live.clone().any(|fault| matches!(fault, Fault::SkipInstruction { .. } | Fault::Stall { .. }));
        self.strikes_stores = live.any(|fault| matches!(fault, Fault::Store(..)));
    }

    /// What becomes of this execution.
    pub fn strike(&mut self, on: Rank, executed: Op) -> Option<Strike> {
        let mut strike = None;
        for (fault, has_fired) in self.injected.iter_mut().filter(|(_, has_fired)| !has_fired) {
            let (rank, op, occurrence, what) = match fault {
                Fault::SkipInstruction { rank, op, occurrence } => (rank, op, occurrence, Strike::Skip),
                Fault::Stall { rank, op, occurrence, ticks } => (rank, op, occurrence, Strike::Stall(*ticks)),
                Fault::Store(..) | Fault::LoseCopy { .. } => continue,
            };
            if *rank == on && *op == executed {
                *has_fired = *occurrence == 0;
                *occurrence = occurrence.saturating_sub(1);
                strike = if *has_fired { Some(what) } else { strike };
            }
        }
        if strike.is_some() {
            self.refresh();
        }
        strike
    }

    /// Flips bits of the lane stores that faults hit, or takes their lanes away.
    pub fn strike_store(&mut self, by: Rank, tap: &Tap, lanes: &mut LaneAddresses, bytes: usize, data: &mut [Lanes]) {
        for (fault, has_fired) in self.injected.iter_mut().filter(|(_, has_fired)| !has_fired) {
            let Fault::Store(place, what) = fault else { continue };
            if place.rank != by {
                continue;
            }
            let (rank, id) = place.region;
            let mut hits = lanes.active().filter(|&lane| tap.is_data_of(lanes.at[lane], rank, id));
            let Some(lane) = hits.find(|_| {
                let is_it = place.occurrence == 0;
                place.occurrence = place.occurrence.saturating_sub(1);
                is_it
            }) else {
                continue;
            };
            drop(hits);
            *has_fired = true;
            match *what {
                StoreFault::Corrupt(xor) => {
                    for (word, bits) in data.iter_mut().zip([xor as u32, (xor >> 32) as u32]) {
                        word[lane] ^= bits;
                    }
                }
                StoreFault::Drop => lanes.mask &= !(1 << lane),
                StoreFault::Delay(launches) => {
                    let bytes = lane_copy::pack(data, lane)[..bytes].to_vec();
                    self.late.push(Late { rank: by, launches, address: lanes.at[lane], bytes });
                    lanes.mask &= !(1 << lane);
                }
            }
        }
        self.refresh();
    }

    /// A launch of `rank` has ended: the stores that arrive now.
    pub fn take_late(&mut self, rank: Rank) -> Vec<(u64, Vec<u8>)> {
        let mut arrived = Vec::new();
        self.late.retain_mut(|late| {
            if late.rank != rank {
                return true;
            }
            late.launches = late.launches.saturating_sub(1);
            if late.launches == 0 {
                arrived.push((late.address, std::mem::take(&mut late.bytes)));
            }
            late.launches > 0
        });
        arrived
    }

    /// Whether this copy of the host is lost.
    pub fn loses_copy(&mut self, on: Rank) -> bool {
        let mut is_lost = false;
        for (fault, has_fired) in self.injected.iter_mut().filter(|(_, has_fired)| !has_fired) {
            let Fault::LoseCopy { rank, occurrence } = fault else { continue };
            if *rank == on {
                *has_fired = *occurrence == 0;
                *occurrence = occurrence.saturating_sub(1);
                is_lost |= *has_fired;
            }
        }
        is_lost
    }
}
