//! What the books do not allow, in words that also travel between ranks.

use serde::Serialize;
use thiserror::Error;

use crate::health::stage_name;
use crate::replay::{GraphId, KvGeneration};
use crate::tag::Epoch;

/// Words of an error in a rank's report.
pub const ERROR_WORDS: usize = 4;

/// A step that must not run, or did not do what it had to. After any of them the ledger accepts nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize)]
pub enum LedgerError {
    /// The ledger has reported an error already.
    #[error("an earlier step failed: nothing is launched any more")]
    Stopped,
    /// The caches are not where the current binding has them.
    #[error("the KV caches have moved since {0} was made")]
    StaleBinding(KvGeneration),
    /// Weights, metadata buffers or peers are not where they were at the binding.
    #[error("weights, metadata buffers or peer memory have moved since {0} was made")]
    PointersMoved(KvGeneration),
    /// A plan of another binding.
    #[error("the step was planned over {planned}, but {current} is current")]
    OtherBinding {
        /// The plan's.
        planned: KvGeneration,
        /// The ledger's.
        current: KvGeneration,
    },
    /// A graph of another binding.
    #[error("graph {} was captured over {captured}, but {current} is current", graph.0)]
    CapturedBeforeRebind {
        /// The graph.
        graph: GraphId,
        /// Its binding.
        captured: KvGeneration,
        /// The ledger's.
        current: KvGeneration,
    },
    /// No such graph.
    #[error("graph {} was never captured, or is forgotten", .0.0)]
    UnknownGraph(GraphId),
    /// A step was left in the middle.
    #[error("step {} was neither launched to its end nor closed", .0.0)]
    Abandoned(Epoch),
    /// A step's end without its beginning.
    #[error("no step is open, step {} would be the next", .0.0)]
    NothingOpen(Epoch),
    /// A report of a step that nobody expects.
    #[error("the device reports on step {}, which is not in flight", .0.0)]
    NotInFlight(Epoch),
    /// The device's reports stay away.
    #[error("no report has come since step {}", .0.0)]
    Unreported(Epoch),
    /// The device is behind: a step, or its end, did not run.
    #[error("behind step {} the device is {by} steps short: a step was skipped or never ended", epoch.0)]
    Skipped {
        /// The step reported on.
        epoch: Epoch,
        /// Missing steps.
        by: u32,
    },
    /// The device is ahead: something ran that nobody expected.
    #[error("behind step {} the device is {by} steps ahead: a step ran twice or unplanned", epoch.0)]
    Doubled {
        /// The step reported on.
        epoch: Epoch,
        /// Steps too many.
        by: u32,
    },
    /// The step ran on another step's metadata.
    #[error("step {} ran on the metadata of step {seen}", epoch.0)]
    StaleMetadata {
        /// The step.
        epoch: Epoch,
        /// Number in the metadata that the device saw.
        seen: u32,
    },
    /// A wait or check on the device failed.
    #[error("step {} failed on the device at layer {layer}, stage {}", epoch.0, stage_name(*stage))]
    GaveUp {
        /// The step.
        epoch: Epoch,
        /// Layer of the first failing wait.
        layer: u32,
        /// Its stage.
        stage: u32,
    },
}

impl LedgerError {
    /// What to do about it.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::StaleBinding(_) | Self::OtherBinding { .. } => {
                "call prepare_kv after every change of the KV caches, before the next step"
            }
            Self::CapturedBeforeRebind { .. } | Self::UnknownGraph(_) => "capture the graphs again behind prepare_kv",
            Self::PointersMoved(_) => "keep weights and buffers in place: no sleep mode, no reload, no weight transfer",
            Self::Abandoned(_) | Self::NothingOpen(_) => {
                "close a step that ends early with the ledger's `close_abandoned` and the kernels' close entry"
            }
            Self::NotInFlight(_) | Self::Unreported(_) => "report every step once, in order, at most one step later",
            Self::Skipped { .. } | Self::Doubled { .. } => {
                "no result of this step may be used; restart the engine, and look for a second stream or a replay that \
                 nobody announced"
            }
            Self::StaleMetadata { .. } => {
                "no result of this step may be used; restart the engine, and see `kimi-k3-specdec doctor` for ROCm \
                 versions whose graph replays read stale memory"
            }
            Self::Stopped | Self::GaveUp { .. } => "no result of this step may be used; restart the engine",
        }
    }

    /// The error as words for other ranks; the first is not 0.
    pub const fn to_words(self) -> [u32; ERROR_WORDS] {
        match self {
            Self::Stopped => [1, 0, 0, 0],
            Self::StaleBinding(generation) => [2, generation.0, 0, 0],
            Self::PointersMoved(generation) => [3, generation.0, 0, 0],
            Self::OtherBinding { planned, current } => [4, planned.0, current.0, 0],
            Self::CapturedBeforeRebind { graph, captured, current } => [5, graph.0, captured.0, current.0],
            Self::UnknownGraph(graph) => [6, graph.0, 0, 0],
            Self::Abandoned(epoch) => [7, epoch.0, 0, 0],
            Self::NothingOpen(epoch) => [8, epoch.0, 0, 0],
            Self::NotInFlight(epoch) => [9, epoch.0, 0, 0],
            Self::Unreported(epoch) => [10, epoch.0, 0, 0],
            Self::Skipped { epoch, by } => [11, epoch.0, by, 0],
            Self::Doubled { epoch, by } => [12, epoch.0, by, 0],
            Self::StaleMetadata { epoch, seen } => [13, epoch.0, seen, 0],
            Self::GaveUp { epoch, layer, stage } => [14, epoch.0, layer, stage],
        }
    }

    /// The error in another rank's words; `None` if there is none. A number that this version does not know is `Stopped`.
    pub const fn from_words(words: [u32; ERROR_WORDS]) -> Option<Self> {
        let [code, a, b, c] = words;
        Some(match code {
            0 => return None,
            2 => Self::StaleBinding(KvGeneration(a)),
            3 => Self::PointersMoved(KvGeneration(a)),
            4 => Self::OtherBinding { planned: KvGeneration(a), current: KvGeneration(b) },
            5 => Self::CapturedBeforeRebind { graph: GraphId(a), captured: KvGeneration(b), current: KvGeneration(c) },
            6 => Self::UnknownGraph(GraphId(a)),
            7 => Self::Abandoned(Epoch(a)),
            8 => Self::NothingOpen(Epoch(a)),
            9 => Self::NotInFlight(Epoch(a)),
            10 => Self::Unreported(Epoch(a)),
            11 => Self::Skipped { epoch: Epoch(a), by: b },
            12 => Self::Doubled { epoch: Epoch(a), by: b },
            13 => Self::StaleMetadata { epoch: Epoch(a), seen: b },
            14 => Self::GaveUp { epoch: Epoch(a), layer: b, stage: c },
            _ => Self::Stopped,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_error_survives_the_way_to_another_rank() {
        let mut sentences = BTreeSet::new();
        for code in 1..=14 {
            let words = [code, 7, 8, 9];
            let error = LedgerError::from_words(words).unwrap_or(LedgerError::Stopped);
            assert_eq!(error.to_words()[0], code);
            assert_eq!(LedgerError::from_words(error.to_words()), Some(error));
            assert!(!error.hint().is_empty() && sentences.insert(error.to_string()), "{error}");
        }
        assert_eq!(LedgerError::from_words([0; 4]), None);
        assert_eq!(LedgerError::from_words([99, 1, 2, 3]), Some(LedgerError::Stopped));
    }
}
