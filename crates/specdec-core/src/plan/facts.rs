//! The facts that decide how a step runs, as plain values.

use crate::plan::LayerSet;
use crate::replay::KvGeneration;

/// vLLM's run-time mode of CUDA graphs in a forward context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GraphMode {
    /// No graph around the forward, or a FULL capture: the two look the same.
    #[default]
    None,
    /// Pieces between attention operations are captured.
    Piecewise,
    /// A whole forward.
    Full,
}

/// The KV caches that the layers are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvBinding {
    /// None yet, or vLLM took them away.
    Unbound,
    /// Bound, and still where they were.
    Bound(KvGeneration),
    /// Bound, but the layers' caches lie somewhere else by now.
    Moved,
}

/// Counts of one step's KDA metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyCounts {
    /// Requests in prefill.
    pub num_prefills: u32,
    /// Requests that decode without drafts.
    pub num_decodes: u32,
    /// Requests that verify drafts, padded ones included.
    pub num_spec_decodes: u32,
    /// Columns of the state indices: rows that a request verifies.
    pub rows_per_request: u32,
    /// Rows of every request if all have as many.
    pub uniform_rows: Option<u32>,
}

/// What the forward context says of the first KDA layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// `attn_metadata` is no dict: a dummy run without attention, or dual-batch overlap.
    NotADict,
    /// The dict does not hold the first KDA layer.
    NoFirstLayer,
    /// The layer's metadata has no speculative sequence masks.
    NoSpecMasks,
    /// It has.
    Verify(VerifyCounts),
}

/// Everything that decides how a step runs. What comes behind the first deciding fact may hold anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepFacts {
    /// Whether the forward got intermediate tensors of an earlier pipeline stage.
    pub has_intermediate_tensors: bool,
    /// The KV caches.
    pub kv: KvBinding,
    /// Whether there is a forward context.
    pub has_context: bool,
    /// The context's graph mode.
    pub graph_mode: GraphMode,
    /// Token rows, padding included.
    pub width: u32,
    /// The first KDA layer's metadata.
    pub metadata: Metadata,
    /// Layers behind which somebody reads (prefix + delta): auxiliary hidden states of the drafter.
    pub outputs_read: LayerSet,
}
