//! What the runtime takes of a rank's memory beside weights, states and activations, which are vLLM's.

use std::mem::size_of;

use serde::Serialize;

use crate::abi::{LayerDescriptor, StateGroup};
use crate::engine::REPORT_BYTES;
use crate::geometry::Shard;
use crate::health;
use crate::layout::Layout;

/// Most state groups (KDA cache groups) of a model.
pub const MAX_GROUPS: u64 = 64;
/// A word that other agents poll has a cache line of its own, with room.
const WORD_BYTES: u64 = 64;

/// Bytes of each buffer of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RankBuffers {
    /// Exchanges inside the rank.
    pub scratch_bytes: u64,
    /// Exchanges between ranks: uncached, mapped by every rank.
    pub peer_bytes: u64,
    /// The header, and failure records.
    pub health_bytes: u64,
    /// The host's word to give up, pinned host memory.
    pub abort_bytes: u64,
    /// What the device says at the end of a step, pinned host memory.
    pub report_bytes: u64,
    /// Layer descriptors.
    pub descriptor_bytes: u64,
    /// State groups.
    pub state_group_bytes: u64,
}

impl RankBuffers {
    /// The buffers of one rank.
    pub fn new(shard: &Shard) -> Self {
        let layout = Layout::new(shard);
        Self {
            scratch_bytes: layout.scratch_bytes,
            peer_bytes: layout.peer_bytes(),
            health_bytes: health::bytes(shard.geometry.grid),
            abort_bytes: WORD_BYTES,
            report_bytes: REPORT_BYTES,
            descriptor_bytes: size_of::<LayerDescriptor>() as u64 * u64::from(shard.geometry.num_layers),
            state_group_bytes: size_of::<StateGroup>() as u64 * MAX_GROUPS,
        }
    }

    /// All of them.
    pub const fn total(&self) -> u64 {
        self.scratch_bytes
            + self.peer_bytes
            + self.health_bytes
            + self.abort_bytes
            + self.report_bytes
            + self.descriptor_bytes
            + self.state_group_bytes
    }
}
