//! What the event graph can find wrong.

use thiserror::Error;

use super::graph::Site;
use crate::layout::Region;
use crate::protocol::Exchange;
use crate::tasks::StepShapeError;

/// A defect of the protocol or of a task table. One stands for all of its kind between the same two stages: `pairs`
/// counts them, the sites are the first one's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Hazard {
    /// The planner refuses the shape.
    #[error("no task table: {0}")]
    Plan(#[from] StepShapeError),
    /// A wait for something that a later stage produces.
    #[error("{region}: {reader} waits for {writer}, which comes later in the walk", region = region.name())]
    WaitsForLater {
        /// What is waited for.
        region: Region,
        /// Who waits.
        reader: Site,
        /// Who produces.
        writer: Site,
    },
    /// Events that wait for each other.
    #[error("{events} events wait for each other or behind such; the first is {first}")]
    Deadlock {
        /// The first in the walk.
        first: Site,
        /// How many.
        events: usize,
    },
    /// A read or wait of a cell that nobody writes.
    #[error("{exchange}: {reader} reads cell {cell}, which nobody writes for it ({pairs} such cells)")]
    NeverWritten {
        /// What is read.
        exchange: Exchange,
        /// Who reads.
        reader: Site,
        /// Cell, in the exchange's own numbering.
        cell: u32,
        /// Such cells, over all readers.
        pairs: usize,
    },
    /// A read that nothing orders behind the write that it needs.
    #[error("{exchange}: {reader} may read before {writer} has written ({pairs} such pairs)")]
    ReadTooEarly {
        /// What is read.
        exchange: Exchange,
        /// Who reads.
        reader: Site,
        /// Who writes what it needs.
        writer: Site,
        /// Such pairs.
        pairs: usize,
    },
    /// A read that nothing orders before the next write.
    #[error("{exchange}: {writer} may overwrite what {reader} has not read yet ({pairs} such pairs)")]
    Overwritten {
        /// What is read.
        exchange: Exchange,
        /// Who reads.
        reader: Site,
        /// Who writes next.
        writer: Site,
        /// Such pairs.
        pairs: usize,
    },
    /// Two writes under one tag: a wait for the second is content with the first.
    #[error("{exchange}: {first} and {second} write one cell under one tag")]
    TagReused {
        /// What is written.
        exchange: Exchange,
        /// One writer.
        first: Site,
        /// The other.
        second: Site,
    },
    /// A step's end clears what a peer may have pushed already.
    #[error("{}: {clearer} may clear what {writer} has already pushed ({pairs} such pairs)", region.name())]
    Cleared {
        /// What is cleared.
        region: Region,
        /// Who clears.
        clearer: Site,
        /// Who pushes.
        writer: Site,
        /// Such pairs.
        pairs: usize,
    },
    /// A producer's flag is not in the layout.
    #[error("{region}: {producers} producers have flags, the layout holds {flags}", region = region.name())]
    FlagOutside {
        /// Whose flags.
        region: Region,
        /// Producers.
        producers: u32,
        /// Flags of the layout.
        flags: u32,
    },
    /// A workgroup keeps more own tiles than its LDS holds.
    #[error("own_sums: a workgroup keeps {tiles} tiles, its LDS holds {held}")]
    OwnTilesOutside {
        /// Tiles of the fullest workgroup.
        tiles: u32,
        /// Tiles that fit.
        held: u32,
    },
}

impl Hazard {
    /// How many defects this one stands for.
    pub const fn pairs(&self) -> usize {
        match self {
            Self::NeverWritten { pairs, .. }
            | Self::ReadTooEarly { pairs, .. }
            | Self::Overwritten { pairs, .. }
            | Self::Cleared { pairs, .. } => *pairs,
            _ => 1,
        }
    }

    /// Takes in another defect of the same kind.
    pub(super) fn count(&mut self, other: &Self) {
        let more = other.pairs();
        if let Self::NeverWritten { pairs, .. }
        | Self::ReadTooEarly { pairs, .. }
        | Self::Overwritten { pairs, .. }
        | Self::Cleared { pairs, .. } = self
        {
            *pairs += more;
        }
    }
}
