//! Why the engine could not do what it was asked for.

use thiserror::Error;

use crate::buffers::MAX_GROUPS;
use crate::health::Failure;
use crate::ids::{Layer, Rank};
use crate::tag::Epoch;
use crate::tasks::StepShapeError;

/// Why a launch or step could not be made, or failed.
#[derive(Debug, Error)]
pub enum EngineError<E: std::error::Error> {
    /// The device's own error.
    #[error(transparent)]
    Device(#[from] E),
    /// The step's shape is not served.
    #[error(transparent)]
    Shape(StepShapeError),
    /// No such rank.
    #[error("{0} is not of this process, which has {1}")]
    UnknownRank(Rank, String),
    /// The wrong number of code objects.
    #[error("{0} code objects for {1} ranks: one for all, or one for each")]
    CodeObjects(usize, usize),
    /// The wrong number of peer handles.
    #[error("{0} peer handles for {1} ranks: one of each, in rank order")]
    Handles(usize, u32),
    /// A layer of the run has no weights yet.
    #[error("{1} of {0} is not bound")]
    Unbound(Rank, Layer),
    /// A layer behind the geometry's last.
    #[error("layer {0} does not exist: the engine's geometry has {1} layers")]
    UnknownLayer(u32, usize),
    /// Too many state groups.
    #[error("{0} state groups: at most {MAX_GROUPS}")]
    Groups(usize),
    /// A shape was launched inside a capture before it was prepared.
    #[error("{0}: the task table of this step's shape was not prepared before the capture began")]
    Unprepared(Rank),
    /// A step is being closed that is not open.
    #[error("{0} has no step open")]
    NoOpenStep(Rank),
    /// A graph or another step was begun inside a step.
    #[error("{0} is in the middle of a step")]
    OpenStep(Rank),
    /// A replayed graph did not do what it was captured for.
    #[error("the start-up test of {rank} ended before step {}, not before step {}", found.0, expected.0)]
    SelfTest {
        /// The rank.
        rank: Rank,
        /// The step that should come next.
        expected: Epoch,
        /// The step that does.
        found: Epoch,
    },
    /// A rank gave up in the step that just ran; no result of it may be used.
    #[error("the step failed on {} workgroups", .0.len())]
    Failed(Vec<Failure>),
    /// An earlier step failed.
    #[error("an earlier step failed: this engine launches nothing any more")]
    Stopped,
}
