//! Faults that a test injects, to show that a check finds them.

use specdec_core::ids::Rank;

use super::tap::Tap;
use super::visibility::LaneAddresses;
use crate::op::Op;
use crate::wave::Lanes;

/// One fault; it fires once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The instruction does nothing.
    SkipInstruction {
        /// Rank that executes it.
        rank: Rank,
        /// Mnemonic.
        op: Op,
        /// Executions of that mnemonic on that rank that come before; 0 is the first.
        occurrence: u64,
    },
    /// A store into a tap region is changed on its way.
    CorruptStore {
        /// The region's rank and id.
        region: (Rank, u32),
        /// Rank that stores.
        rank: Rank,
        /// Element stores of that rank into that region that come before; 0 is the first.
        occurrence: u64,
        /// Bits to flip, from the element's first byte on.
        xor: u64,
    },
}

/// Injected faults and what became of them.
#[derive(Debug, Default)]
pub(super) struct Faults {
    injected: Vec<(Fault, bool)>,
    pub has_skips: bool,
    pub has_corruptions: bool,
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
        self.has_skips = live.clone().any(|fault| matches!(fault, Fault::SkipInstruction { .. }));
        self.has_corruptions = live.any(|fault| matches!(fault, Fault::CorruptStore { .. }));
    }

    /// Whether this execution is to be skipped.
    pub fn skips(&mut self, on: Rank, executed: Op) -> bool {
        let mut is_skipped = false;
        for (fault, has_fired) in self.injected.iter_mut().filter(|(_, has_fired)| !has_fired) {
            let Fault::SkipInstruction { rank, op, occurrence } = fault else { continue };
            if *rank == on && *op == executed {
                *has_fired = *occurrence == 0;
                *occurrence = occurrence.saturating_sub(1);
                is_skipped |= *has_fired;
            }
        }
        if is_skipped {
            self.refresh();
        }
        is_skipped
    }

    /// Flips bits of the lane stores that faults hit.
    pub fn corrupt(&mut self, by: Rank, tap: &Tap, lanes: &LaneAddresses, data: &mut [Lanes]) {
        for (fault, has_fired) in self.injected.iter_mut().filter(|(_, has_fired)| !has_fired) {
            let Fault::CorruptStore { region, rank, occurrence, xor } = fault else { continue };
            if *rank != by {
                continue;
            }
            for lane in lanes.active().filter(|&lane| tap.is_data_of(lanes.at[lane], region.0, region.1)) {
                if *occurrence > 0 {
                    *occurrence -= 1;
                    continue;
                }
                for (word, bits) in data.iter_mut().zip([*xor as u32, (*xor >> 32) as u32]) {
                    word[lane] ^= bits;
                }
                *has_fired = true;
                break;
            }
        }
        self.refresh();
    }
}
