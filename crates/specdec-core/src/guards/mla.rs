//! Reasons against the MLA layers, which only M1 reads (spec/runtime.md §4.4, §10): the half behind the attention is
//! `weight_reasons`' to judge.

use thiserror::Error;

use super::facts::MlaFacts;
use super::reason::{is_placed, mismatch, placement};
use super::scalar::Scalar;
use super::tensor::{Dtype, Shape, TensorFacts};
use crate::config::FP8_KV;
use crate::geometry::Shard;
use crate::ids::Layer;

const BACKEND: &str = "ROCM_AITER_MLA";
const KV_LORA: u32 = 512;
const NOPE: u32 = 128;
const ROPE: u32 = 64;
const VALUE: u32 = 128;
const DIMS: [(&str, u32); 4] =
    [("kv_lora_rank", KV_LORA), ("qk_nope_head_dim", NOPE), ("qk_rope_head_dim", ROPE), ("v_head_dim", VALUE)];
const Q_LORA: &str = "q_lora_rank";
/// Values of an MXFP4 group.
const GROUP: u32 = crate::abi::MX_GROUP;
/// Bytes of a token in the cache.
const ROW: u64 = (KV_LORA + ROPE) as u64;
/// Bytes that a lane loads at a time.
const LOAD: u64 = 16;

/// A reason against an MLA layer's weights or cache.
#[derive(Clone, Debug, PartialEq, Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum MlaReason {
    #[error("{layer}: attention backend {}, M1 reads the metadata of {BACKEND}", .found.as_deref().unwrap_or("None"))]
    Backend { layer: Layer, found: Option<String> },
    #[error("{layer}: KV cache dtype {}, M1 writes fp8 (E4M3)", .found.as_deref().unwrap_or("None"))]
    CacheDtype { layer: Layer, found: Option<String> },
    #[error("{layer}: {name} {found}, M1 is built for {needed}")]
    Dimension { layer: Layer, name: &'static str, found: Scalar, needed: String },
    #[error("{layer}: {feature}, which M1 does not know")]
    Feature { layer: Layer, feature: String },
    #[error("{layer}: no MXFP4 W_UK and W_UV (set VLLM_ROCM_USE_AITER_FP4BMM=1)")]
    NoFp4Bmm { layer: Layer },
    #[error("{layer} {label}: missing")]
    Missing { layer: Layer, label: &'static str },
    #[error("{layer} {label}: {}", mismatch(.found, .shape, .dtype))]
    Tensor { layer: Layer, label: &'static str, found: TensorFacts, shape: Shape, dtype: Dtype },
    #[error("{layer} {label}: {} {}, M1 reads {shape} {dtype} by its strides", .found.shape, .found.dtype)]
    View { layer: Layer, label: &'static str, found: TensorFacts, shape: Shape, dtype: Dtype },
    #[error("{layer} {label}: {} {}, M1 reads one torch.float32", .found.shape, .found.dtype)]
    Scale { layer: Layer, label: &'static str, found: TensorFacts },
    #[error("{layer} {label}: {}", placement(*.address, LOAD))]
    Placement { layer: Layer, label: &'static str, address: u64 },
    #[error(
        "{layer} kv_cache: {} {} strides {}, M1 reads (blocks, block_size, {ROW}) bytes with pages of block_size x {ROW}",
        .found.shape, .found.dtype, Shape(.found.strides.clone())
    )]
    Pages { layer: Layer, found: TensorFacts },
}

/// Every reason why M1 cannot read the loaded MLA layers; empty: it can, or there is none.
pub fn mla_weight_reasons(shard: &Shard, layers: &[MlaFacts]) -> Vec<MlaReason> {
    layers.iter().flat_map(|facts| layer_reasons(shard, facts)).collect()
}

/// The same of their bound caches.
pub fn mla_cache_reasons(layers: &[MlaFacts]) -> Vec<MlaReason> {
    let mut reasons = Vec::new();
    for facts in layers {
        let layer = facts.layer;
        let Some(cache) = &facts.kv_cache else {
            reasons.push(MlaReason::Missing { layer, label: "kv_cache" });
            continue;
        };
        let bytes = matches!(cache.dtype, Dtype::Uint8 | Dtype::Float8E4m3fn);
        let rows = cache.shape.0.len() == 3 && cache.size(2) == ROW && cache.stride(2) == 1 && cache.stride(1) == ROW;
        if !bytes || !rows || cache.stride(0) != cache.size(1).saturating_mul(ROW) {
            reasons.push(MlaReason::Pages { layer, found: cache.clone() });
        } else if !is_placed(cache.address, LOAD) {
            reasons.push(MlaReason::Placement { layer, label: "kv_cache", address: cache.address });
        }
    }
    reasons
}

fn layer_reasons(shard: &Shard, facts: &MlaFacts) -> Vec<MlaReason> {
    let layer = facts.layer;
    let mut reasons = Vec::new();
    if facts.backend.as_deref() != Some(BACKEND) {
        reasons.push(MlaReason::Backend { layer, found: facts.backend.clone() });
    }
    if !facts.kv_cache_dtype.as_deref().is_some_and(|found| FP8_KV.contains(&found)) {
        reasons.push(MlaReason::CacheDtype { layer, found: facts.kv_cache_dtype.clone() });
    }
    let dimension = |name: &str| facts.dims.get(name).cloned().unwrap_or_default();
    for (name, needed) in DIMS.into_iter().filter(|(name, needed)| !dimension(name).is(*needed)) {
        reasons.push(MlaReason::Dimension { layer, name, found: dimension(name), needed: needed.to_string() });
    }
    reasons.extend(facts.features.iter().map(|feature| MlaReason::Feature { layer, feature: feature.clone() }));
    // A whole number of matrix steps: no other rank is one.
    let q_lora = dimension(Q_LORA).integer().filter(|rank| *rank > 0 && rank.is_multiple_of(NOPE));
    let Some(q_lora) = q_lora else {
        let needed = format!("a multiple of {NOPE}");
        reasons.push(MlaReason::Dimension { layer, name: Q_LORA, found: dimension(Q_LORA), needed });
        return reasons;
    };
    dense(shard, facts, q_lora, &mut reasons);
    if facts.fp4_bmm {
        views(shard, facts, &mut reasons);
    } else {
        reasons.push(MlaReason::NoFp4Bmm { layer });
    }
    for label in ["_q_scale", "_k_scale"] {
        match facts.scales.get(label) {
            None => reasons.push(MlaReason::Missing { layer, label }),
            Some(found) if found.elements() == 1 && found.dtype == Dtype::Float32 => {}
            Some(found) => reasons.push(MlaReason::Scale { layer, label, found: found.clone() }),
        }
    }
    reasons
}

fn dense(shard: &Shard, facts: &MlaFacts, q_lora: u32, reasons: &mut Vec<MlaReason>) {
    let (layer, heads, hidden) = (facts.layer, shard.heads(), shard.geometry.hidden);
    let needed: [(&'static str, &[u32]); 4] = [
        ("fused_qkv_a_proj", &[q_lora + KV_LORA + ROPE + heads * VALUE, hidden]),
        ("q_a_layernorm", &[q_lora]),
        ("kv_a_layernorm", &[KV_LORA]),
        ("q_b_proj", &[heads * (NOPE + ROPE), q_lora]),
    ];
    for (label, sizes) in needed {
        let (shape, dtype) = (sizes_of(sizes), Dtype::Bfloat16);
        match facts.tensors.get(label) {
            None => reasons.push(MlaReason::Missing { layer, label }),
            Some(found) if found.shape != shape || found.dtype != dtype || !found.is_contiguous() => {
                reasons.push(MlaReason::Tensor { layer, label, found: found.clone(), shape, dtype });
            }
            Some(found) if !is_placed(found.address, LOAD) => {
                reasons.push(MlaReason::Placement { layer, label, address: found.address });
            }
            Some(_) => {}
        }
    }
}

/// Strides of these are the quantiser's: transposed views.
fn views(shard: &Shard, facts: &MlaFacts, reasons: &mut Vec<MlaReason>) {
    let (layer, heads) = (facts.layer, shard.heads());
    let needed: [(&'static str, [u32; 3]); 4] = [
        ("W_K", [heads, KV_LORA, NOPE / 2]),
        ("W_K_scale", [heads, KV_LORA, NOPE / GROUP]),
        ("W_V", [heads, VALUE, KV_LORA / 2]),
        ("W_V_scale", [heads, VALUE, KV_LORA / GROUP]),
    ];
    for (label, sizes) in needed {
        let (shape, dtype) = (sizes_of(&sizes), Dtype::Uint8);
        match facts.tensors.get(label) {
            None => reasons.push(MlaReason::Missing { layer, label }),
            Some(found) if found.shape != shape || found.dtype != dtype => {
                reasons.push(MlaReason::View { layer, label, found: found.clone(), shape, dtype });
            }
            Some(_) => {}
        }
    }
}

fn sizes_of(sizes: &[u32]) -> Shape {
    Shape(sizes.iter().copied().map(u64::from).collect())
}
