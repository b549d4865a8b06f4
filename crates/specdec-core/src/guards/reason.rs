//! Why loaded weights or bound caches are refused: each message as users see it.

use thiserror::Error;

use super::scalar::Scalar;
use super::tensor::{Dtype, Shape, TensorFacts};
use crate::ids::Layer;

/// A reason against the loaded weights. Up to `KdaSizes` the words are upstream's (spec/runtime.md §4.1), the rest is
/// ours.
#[derive(Clone, Debug, PartialEq, Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum WeightReason {
    #[error("no layer has an AttnRes latent MoE")]
    NoKernelLayer,
    #[error("{layer}: needs a latent MoE with shared experts")]
    LatentMoe { layer: Layer },
    #[error("{layer}: routed_scaling_factor {found}")]
    ScalingFactor { layer: Layer, found: Scalar },
    #[error("{layer}: MoE backend must be AITER_MXFP4_BF16 (K3 SiTU)")]
    MoeBackend { layer: Layer },
    #[error("{layer} {label}: missing")]
    Missing { layer: Layer, label: &'static str },
    #[error("{layer} {label}: {}", mismatch(.found, .shape, .dtype))]
    Tensor { layer: Layer, label: &'static str, found: TensorFacts, shape: Shape, dtype: Dtype },
    #[error("{layer}: experts have no {label}")]
    NoExperts { layer: Layer, label: &'static str },
    #[error("{layer}: KDA heads/head_dim/conv_size")]
    KdaSizes { layer: Layer },
    #[error("model: {name} {found} (kernels are built for {needed})")]
    ModelConstant { name: &'static str, found: Scalar, needed: String },
    #[error("{layer}: SiTU activation {found} (kernels read the a4w4 layout)")]
    SituActivation { layer: Layer, found: String },
    #[error("{layer} w13_weight: gate and up rows interleaved, kernels read gate rows, then up rows (a4w4 layout)")]
    GateUpInterleaved { layer: Layer },
    #[error("{layer} {label}: not marked is_shuffled, kernels read AITER's shuffled layout")]
    NotShuffled { layer: Layer, label: &'static str },
    #[error("{layer} {label}: {}", placement(*.address, *.alignment))]
    Placement { layer: Layer, label: &'static str, address: u64, alignment: u64 },
    #[error("{layer} {label}: epsilon {found}, kernels need a finite one above 0")]
    Epsilon { layer: Layer, label: &'static str, found: Scalar },
    #[error("{layer}: gate_lower_bound {found}, kernels need a finite one below 0")]
    GateLowerBound { layer: Layer, found: Scalar },
    #[error(
        "{layer}: AttnRes blocks {num_blocks} before it and {block_write} written, kernels hold {} and write the next",
        crate::abi::MAX_BLOCKS
    )]
    Blocks { layer: Layer, num_blocks: Scalar, block_write: Scalar },
}

/// A reason against the KDA states of a layer. Up to `NotDense` the words are upstream's (spec/runtime.md §4.2), the
/// rest is ours.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum CacheReason {
    #[error("{name}: conv state {found}, needs bf16")]
    ConvDtype { name: String, found: Dtype },
    #[error("{name}: recurrent state {found}, needs fp32")]
    RecurrentDtype { name: String, found: Dtype },
    #[error("{name}: a slot's recurrent state must be dense")]
    NotDense { name: String },
    #[error("{name}: no {state} state")]
    Missing { name: String, state: &'static str },
    #[error("{name}: {state} state {found}, kernels read (slots, {needed})")]
    StateShape { name: String, state: &'static str, found: Shape, needed: String },
    #[error("{name}: {entries} conv state entries, {needed} needed at {num_spec} speculative tokens")]
    ConvEntries { name: String, entries: u64, needed: u64, num_spec: u32 },
    #[error("{name}: {conv} slots of conv state and {recurrent} of recurrent state")]
    SlotsDiffer { name: String, conv: u64, recurrent: u64 },
    #[error("{name}: {found} slots, kernels serve 1 to {}", i32::MAX)]
    Slots { name: String, found: u64 },
    #[error("{name}: {state} state overlaps itself: shape {shape}, strides {strides}")]
    Overlap { name: String, state: &'static str, shape: Shape, strides: Shape },
    #[error("{name}: conv state stride {found} a {dimension} ({limit} at most)")]
    Stride { name: String, dimension: &'static str, found: u64, limit: u64 },
    #[error("{name}: {state} state {}", placement(*.address, *.alignment))]
    Placement { name: String, state: &'static str, address: u64, alignment: u64 },
    #[error(
        "{name}: recurrent state stride {found} a slot, kernels load 16 bytes at a time: a multiple of 4 elements"
    )]
    SlotAlignment { name: String, found: u64 },
}

/// A tensor's shape and type against those that a kernel reads, in upstream's words.
pub fn mismatch(found: &TensorFacts, shape: &Shape, dtype: &Dtype) -> String {
    let strided = if found.is_contiguous() { "" } else { " strided" };
    format!("{} {}{strided}, kernel reads contiguous {shape} {dtype}", found.shape, found.dtype)
}

/// What is wrong with an address.
pub fn placement(address: u64, alignment: u64) -> String {
    match address {
        0 => "no memory (address 0)".into(),
        _ => format!("address {address:#x}, kernels load {alignment} bytes at a time: a multiple is needed"),
    }
}

/// Whether kernels that load `alignment` bytes at a time can start there.
pub const fn is_placed(address: u64, alignment: u64) -> bool {
    address != 0 && address.is_multiple_of(alignment)
}
