//! Everything that host and kernels share, declared once. `kernels/include/specdec/abi_generated.hpp` is written from
//! this file (`tests/abi.rs` compares it), so a field cannot mean two things.
//!
//! Addresses are `u64`: the kernels cast them to the address space that they mean. Strides are in elements.

/// Most token rows of a step: the columns of one matrix instruction.
pub const MAX_ROWS: u32 = 16;
/// Most requests of a step (vLLM's `max_num_seqs` up to 8, each at least two rows).
pub const MAX_REQUESTS: u32 = 8;
/// Most tensor-parallel ranks.
pub const MAX_RANKS: u32 = 8;
/// Most experts that one token picks.
pub const MAX_TOP_K: u32 = 16;
/// Most AttnRes blocks in the bank.
pub const MAX_BLOCKS: u32 = 8;
/// Waves of a workgroup.
pub const WAVES: u32 = 8;
/// Lanes of a wave.
pub const WAVE_SIZE: u32 = 64;
/// Work-items of a workgroup.
pub const BLOCK: u32 = WAVES * WAVE_SIZE;
/// Rows of a weight tile, and columns of the token side: one matrix instruction.
pub const TILE: u32 = 16;
/// Columns of the slice that one wave owns in an AttnRes seam, and in the latent norm.
pub const SLICE: u32 = 128;
/// Floats that a seam task publishes: a dot per source, then the lower triangle of the sources' Gram matrix.
pub const SEAM_VALUES: u32 = 64;
/// Sources of a seam that a witness block has room for.
pub const WITNESS_SOURCES: u32 = 16;
/// Value rows of a head that one KDA task owns.
pub const KDA_CHUNK: u32 = 16;
/// Bytes that the E8M0 codes of one pick take in `ExpertHidden`: a word per block of a matrix operand.
pub const HIDDEN_SCALE_BYTES: u32 = 16;
/// Rows of the gate, and of the up matrix, that one shared gate-and-up task owns: half a tile each.
pub const SHARED_COLUMNS: u32 = TILE / 2;
/// Own-column tiles of `SharedDown` that one workgroup can keep for `Up`.
pub const OWN_TILES: u32 = 4;
/// Values that share one MX scale.
pub const MX_GROUP: u32 = 32;
/// Layers that a tag can tell apart.
pub const TAG_LAYERS: u32 = 256;
/// Epochs that a tag can tell apart.
pub const TAG_EPOCHS: u32 = 1 << 24;
/// The tag of a rank that has failed: no epoch and layer give it.
pub const POISON_TAG: u32 = 0xFFFF_FFFF;
/// "No such index" in a `u32` field.
pub const NONE: u32 = 0xFFFF_FFFF;
/// Static LDS that a compute unit of gfx950 grants one workgroup, in bytes.
pub const LDS_BYTES: u32 = 160 * 1024;

/// What of a layer the kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum LayerKind {
    /// A KDA layer: attention seam to the layer's output.
    Whole = 0,
    /// The half of an MLA layer behind its attention: `o_proj` to the layer's output.
    Ffn = 1,
}

/// The stages of a layer in the order in which every workgroup walks them (spec: DESIGN "Tasks").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Stage {
    /// Attention seam: the prefix, and the products of its sources.
    AttentionDots = 0,
    /// Attention seam: softmax over the sources and the normalised mix.
    AttentionMix = 1,
    /// q, k, v, g, `f_a`, beta.
    InProj = 2,
    /// Short convolution, gates, recurrence, gated output.
    Kda = 3,
    /// Output projection, pushed to every rank; the convolution state.
    OProj = 4,
    /// MLP seam: as `AttentionDots`, over the all-reduced attention output.
    MlpDots = 5,
    /// MLP seam: as `AttentionMix`.
    MlpMix = 6,
    /// Router logits and latent (this rank's shares, pushed to every rank), shared gate and up with SiTU.
    MoeIn = 7,
    /// Top-k and the latent's MXFP4 codes, in every workgroup.
    Route = 8,
    /// Picked experts' gate and up with SiTU, quantised.
    ExpertUp = 9,
    /// Picked experts' down, folded in slot order, pushed to every rank.
    ExpertDown = 10,
    /// Shared experts' down: the columns of other ranks pushed, this rank's own kept for `Up`.
    SharedDown = 11,
    /// Latent all-reduce and the squares of its norm.
    LatentNorm = 12,
    /// Up projection of this rank's columns, with the shared part, pushed to every rank.
    Up = 13,
    /// The all-reduced output of a run's last layer, and the step's epoch.
    Output = 14,
}

/// Stages of a layer.
pub const NUM_STAGES: u32 = 15;
/// Words from one workgroup's places to the next one's.
pub const PLACE_STRIDE: u32 = 16;

/// Where a stage's tasks run. Each workgroup has a place in the stage's order: the first `head_ctas` places take tasks
/// `0..head_tasks` in turns, the others the rest in turns. A stage whose tasks are waves has no others, and gives task
/// `t` to wave `t / grid`. Behind the `NUM_STAGES` rows of a table lie the places, `u32 [grid][PLACE_STRIDE]` by stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct StageTasks {
    /// Number of tasks; for `ExpertUp` the tasks of one expert, since the number of experts is routed.
    pub tasks: u32,
    /// Workgroups of the first part.
    pub head_ctas: u32,
    /// Tasks of the first part.
    pub head_tasks: u32,
    /// Zero.
    pub reserved: u32,
}

/// One AttnRes seam (spec/numerics.md §3).
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[repr(C)]
pub struct SeamWeights {
    /// bf16 `[hidden]`: the sources' norm.
    pub norm: u64,
    /// bf16 `[hidden]`: the logit vector.
    pub logit: u64,
    /// bf16 `[hidden]`: the norm of the mix.
    pub output: u64,
    /// Epsilon of the sources' norm.
    pub eps: f32,
    /// Epsilon of the mix's norm.
    pub output_eps: f32,
}

/// Everything about one layer that a launch needs, on one rank (spec/numerics.md §7).
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[repr(C)]
pub struct LayerDescriptor {
    /// Attention seam; unused by `Ffn` layers.
    pub attention_seam: SeamWeights,
    /// MLP seam.
    pub mlp_seam: SeamWeights,
    /// bf16 `[in_proj_rows, hidden]`.
    pub in_proj: u64,
    /// bf16 `[heads * head_dim, head_dim]`.
    pub f_b: u64,
    /// f32 `[3 * heads * head_dim, 4]`.
    pub conv: u64,
    /// f32 `[heads]`.
    pub a_log: u64,
    /// f32 `[heads * head_dim]`.
    pub dt_bias: u64,
    /// bf16 `[head_dim]`.
    pub o_norm: u64,
    /// bf16 `[hidden, heads * head_dim]`.
    pub o_proj: u64,
    /// bf16: this rank's `[experts / ranks, hidden]` rows of the router.
    pub router: u64,
    /// f32 `[experts]`.
    pub router_bias: u64,
    /// bf16: this rank's `[latent / ranks, hidden]` rows.
    pub latent_down: u64,
    /// bf16 `[2 * shared, hidden]`, gate rows then up rows.
    pub shared_gate_up: u64,
    /// bf16 `[hidden, shared]`.
    pub shared_down: u64,
    /// MXFP4 `[experts, 2 * inter, latent / 2]`, shuffled (§7.1), gate rows then up rows.
    pub w13: u64,
    /// E8M0 of `w13`, shuffled (§7.2).
    pub w13_scale: u64,
    /// MXFP4 `[experts, latent, inter / 2]`, shuffled.
    pub w2: u64,
    /// E8M0 of `w2`, shuffled, columns padded to a multiple of 8.
    pub w2_scale: u64,
    /// bf16 `[latent]`.
    pub latent_norm: u64,
    /// bf16: this rank's `[hidden / ranks, latent]` rows.
    pub up: u64,
    /// bf16 convolution state of every slot.
    pub conv_state: u64,
    /// Elements from slot to slot.
    pub conv_slot_stride: u64,
    /// Elements from channel to channel.
    pub conv_channel_stride: u32,
    /// Elements from entry to entry.
    pub conv_token_stride: u32,
    /// f32 recurrent state of every slot, `[heads, head_dim (value), head_dim (key)]` dense.
    pub recurrent_state: u64,
    /// Elements from slot to slot.
    pub recurrent_slot_stride: u64,
    /// Slots that exist; an index at or above it is a recorded failure.
    pub num_slots: u32,
    /// Index into the launch's state groups.
    pub state_group: u32,
    /// `LayerKind`.
    pub kind: u32,
    /// The layer's number in the model.
    pub layer: u32,
    /// Blocks in the bank before this layer.
    pub num_blocks: u32,
    /// Block that this layer writes, or `NONE`.
    pub block_write: u32,
    /// Lower bound of the KDA gate.
    pub gate_lower_bound: f32,
    /// Epsilon of the gated norm.
    pub o_norm_eps: f32,
    /// Epsilon of the latent norm.
    pub latent_eps: f32,
    /// Keeps the size a multiple of 8.
    pub reserved: u32,
}

/// Step metadata of the KDA layers of one cache group (spec/numerics.md §8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct StateGroup {
    /// i32 `[requests, >= q]`: state slots; column 0 is the convolution's slot too.
    pub state_indices: u64,
    /// i32 `[requests]`: tokens accepted from the previous step, `1..=q`.
    pub num_accepted: u64,
    /// Elements from row to row of `state_indices`.
    pub row_stride: u32,
    /// Keeps the size a multiple of 8.
    pub reserved: u32,
}

/// Bits of [`LaunchArgs::flags`].
pub mod launch_flags {
    /// The step's last launch: advances the epoch.
    pub const LAST_OF_STEP: u32 = 1;
    /// The first layer's delta is in memory and must be added to the prefix.
    pub const HAS_DELTA: u32 = 2;
}

/// Arguments of one launch: a run of layers on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[repr(C)]
pub struct LaunchArgs {
    /// `LayerDescriptor [num_layers]`, the run's first layer first.
    pub layers: u64,
    /// `StateGroup []`.
    pub groups: u64,
    /// `StageTasks [NUM_STAGES]` for this width, and the places behind them.
    pub stages: u64,
    /// This rank's scratch.
    pub scratch: u64,
    /// Every rank's peer buffer as this rank reaches it, past the head.
    pub peers: [u64; MAX_RANKS as usize],
    /// `HealthHeader`, and a `FailureRecord` per wave behind it.
    pub health: u64,
    /// u32: a host's request to give up at once; a launch that must not run sets it too.
    pub abort: u64,
    /// Witness buffer, or null (spec: DESIGN "Witness").
    pub witness: u64,
    /// bf16 `[rows, hidden]`, rewritten in place.
    pub prefix: u64,
    /// bf16 block bank, written by block-write layers.
    pub blocks: u64,
    /// bf16 `[rows, hidden]`: in, the previous layer's output; out, the last layer's.
    pub delta: u64,
    /// bf16 `[rows, heads * head_dim]`: input of a first `Ffn` layer's `o_proj`.
    pub core: u64,
    /// Elements from row to row of `blocks`.
    pub blocks_row_stride: u32,
    /// Elements from block to block of `blocks`.
    pub block_stride: u32,
    /// Ticks of the 100 MHz clock after which a wait gives up.
    pub timeout_ticks: u64,
    /// Layers of the run.
    pub num_layers: u32,
    /// Token rows of the step.
    pub rows: u32,
    /// Rows of one request.
    pub rows_per_request: u32,
    /// Requests of the step.
    pub requests: u32,
    /// This rank.
    pub rank: u32,
    /// Workgroups of the grid.
    pub grid: u32,
    /// `launch_flags`.
    pub flags: u32,
    /// Keeps the size a multiple of 8.
    pub reserved: u32,
}

/// Why a wait or a check failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FailureReason {
    /// The time-out passed.
    Timeout = 1,
    /// The producer's rank had failed.
    Poison = 2,
    /// The host asked to give up.
    Abort = 3,
    /// A state slot or an accepted count is out of range.
    Metadata = 4,
    /// The step number that came with the metadata is not this step's.
    StaleMetadata = 5,
    /// Another launch of this rank was still running.
    Busy = 6,
    /// A pair has the right tag and another payload than its source stored; only the start-up test can tell.
    Corrupt = 7,
}

/// The failure of one wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct FailureRecord {
    /// `FailureReason`, or 0: no failure.
    pub reason: u32,
    /// `Stage`.
    pub stage: u32,
    /// Layer.
    pub layer: u32,
    /// Byte offset of the pair or flag inside its buffer (scratch or peer); the request for `Metadata`.
    pub offset: u32,
    /// Tag wanted; the step for `StaleMetadata`, the number of slots for `Metadata`.
    pub wanted: u32,
    /// Tag seen; the metadata's step for `StaleMetadata`, the bad value for `Metadata`.
    pub seen: u32,
    /// Rank that should have stored it.
    pub source: u32,
    /// Low word of the 100 MHz clock.
    pub clock: u32,
}

/// The words of a rank that host and kernels both write, one cache line at the start of its health buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct HealthHeader {
    /// Not 0 once a workgroup has given up; stays.
    pub failed: u32,
    /// Steps that this rank has finished: the number of the step that runs next.
    pub epoch: u32,
    /// 1 while a launch runs.
    pub busy: u32,
    /// Number of the step that the metadata is for; the host writes it in stream order with the metadata.
    pub step: u32,
    /// Zero; keeps what the host reads of a rank in one line.
    pub reserved: [u32; 12],
}

/// Bytes of a rank's health buffer before its records.
pub const HEALTH_HEADER_BYTES: u32 = 64;
/// Bytes of a peer buffer before its pairs: an alarm word per rank, the tag of the step and layer in which that rank
/// gave up, or 0.
pub const PEER_HEAD_BYTES: u32 = 256;

const _: () = assert!(std::mem::size_of::<HealthHeader>() == HEALTH_HEADER_BYTES as usize);

/// FNV-1a of the files that host and kernels compile in: structs, offsets, dimensions, task tables. Host and kernels
/// that were built from different ones refuse each other.
pub const ABI_HASH: u64 = {
    let sources: [&[u8]; 4] = [
        include_bytes!("abi.rs"),
        include_bytes!("geometry.rs"),
        include_bytes!("layout.rs"),
        include_bytes!("tasks.rs"),
    ];
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut file = 0;
    while file < sources.len() {
        let mut i = 0;
        while i < sources[file].len() {
            hash = (hash ^ sources[file][i] as u64).wrapping_mul(0x0100_0000_01b3);
            i += 1;
        }
        file += 1;
    }
    hash
};
