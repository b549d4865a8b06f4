//! Reasons against the bound KDA states, upstream's first (spec/runtime.md §4.2).

use super::facts::CacheFacts;
use super::reason::{is_placed, CacheReason};
use super::tensor::{is_dense, Dtype, Shape, TensorFacts};
use crate::geometry::{Shard, CONV_WIDTH};

/// Bytes of a recurrent state that a lane loads at a time.
const RECURRENT_BYTES: u64 = 16;
/// The same of a convolution state.
const CONV_BYTES: u64 = 2;

/// Every reason why the kernels of `shard` cannot use the KDA layers' states; empty: they can. `num_spec`: drafts of a
/// request, which the convolution states have room for; `None`: not judged.
pub fn cache_reasons(shard: &Shard, num_spec: Option<u32>, caches: &[CacheFacts]) -> Vec<CacheReason> {
    let upstream = caches.iter().flat_map(|cache| upstream_reasons(shard, cache));
    let ours = caches.iter().flat_map(|cache| own_reasons(shard, num_spec, cache));
    upstream.chain(ours).collect()
}

fn upstream_reasons(shard: &Shard, cache: &CacheFacts) -> Vec<CacheReason> {
    let name = || cache.name.clone();
    let mut reasons = Vec::new();
    if let Some(conv) = cache.conv.as_ref().filter(|conv| conv.dtype != Dtype::Bfloat16) {
        reasons.push(CacheReason::ConvDtype { name: name(), found: conv.dtype.clone() });
    }
    let Some(recurrent) = &cache.recurrent else { return reasons };
    if recurrent.dtype != Dtype::Float32 {
        reasons.push(CacheReason::RecurrentDtype { name: name(), found: recurrent.dtype.clone() });
    } else if !is_slot_dense(shard, recurrent) {
        reasons.push(CacheReason::NotDense { name: name() });
    }
    reasons
}

/// Elements of one slot's recurrent state.
fn slot_elements(shard: &Shard) -> u64 {
    u64::from(shard.proj()) * u64::from(shard.geometry.head_dim)
}

fn is_slot_dense(shard: &Shard, recurrent: &TensorFacts) -> bool {
    let (Some(shape), Some(strides)) = (recurrent.shape.0.get(1..), recurrent.strides.get(1..)) else { return false };
    shape.iter().product::<u64>() == slot_elements(shard) && is_dense(shape, strides)
}

fn own_reasons(shard: &Shard, num_spec: Option<u32>, cache: &CacheFacts) -> Vec<CacheReason> {
    let name = || cache.name.clone();
    let mut reasons = Vec::new();
    let mut state = |state, tensor: &Option<TensorFacts>, needed: String, fits: fn(&Shard, &[u64]) -> bool| {
        match tensor {
            None => reasons.push(CacheReason::Missing { name: name(), state }),
            Some(tensor) if fits(shard, &tensor.shape.0) && tensor.strides.len() == tensor.shape.0.len() => {
                return Some(tensor.clone())
            }
            Some(tensor) => {
                let found = tensor.shape.clone();
                reasons.push(CacheReason::StateShape { name: name(), state, found, needed });
            }
        }
        None
    };
    let (channels, heads, dim) = (3 * shard.proj(), shard.heads(), shard.geometry.head_dim);
    let conv = state(
        "conv",
        &cache.conv,
        format!("{channels}, entries"),
        |shard, shape| matches!(shape, [_, channels, _] if *channels == u64::from(3 * shard.proj())),
    );
    let recurrent = state("recurrent", &cache.recurrent, format!("{heads}, {dim}, {dim}"), |shard, shape| {
        let (heads, dim) = (u64::from(shard.heads()), u64::from(shard.geometry.head_dim));
        shape.get(1..) == Some(&[heads, dim, dim])
    });
    if let Some(conv) = &conv {
        conv_reasons(&cache.name, num_spec, conv, &mut reasons);
    }
    if let Some(recurrent) = &recurrent {
        recurrent_reasons(shard, &cache.name, recurrent, &mut reasons);
    }
    if let (Some(conv), Some(recurrent)) = (conv, recurrent) {
        slot_reasons(&cache.name, conv.size(0), recurrent.size(0), &mut reasons);
    }
    reasons
}

fn conv_reasons(name: &str, num_spec: Option<u32>, conv: &TensorFacts, reasons: &mut Vec<CacheReason>) {
    let entries = conv.size(2);
    if let Some(num_spec) = num_spec {
        let needed = u64::from(CONV_WIDTH - 1) + u64::from(num_spec);
        if entries != needed {
            reasons.push(CacheReason::ConvEntries { name: name.into(), entries, needed, num_spec });
        }
    }
    // The kernels multiply entries and strides in 32 bits, channels and slots in 64.
    let last = entries.saturating_sub(1).max(1);
    let limits = [("channel", 1, u64::from(u32::MAX)), ("entry", 2, u64::from(u32::MAX) / last)];
    for (dimension, index, limit) in limits {
        let found = conv.stride(index);
        if found > limit {
            reasons.push(CacheReason::Stride { name: name.into(), dimension, found, limit });
        }
    }
    if overlaps(conv) {
        reasons.push(overlap(name, "conv", conv));
    }
    placement(name, "conv", conv.address, CONV_BYTES, reasons);
}

fn recurrent_reasons(shard: &Shard, name: &str, recurrent: &TensorFacts, reasons: &mut Vec<CacheReason>) {
    let found = recurrent.stride(0);
    if recurrent.size(0) > 1 && found < slot_elements(shard) {
        reasons.push(overlap(name, "recurrent", recurrent));
    }
    if recurrent.dtype == Dtype::Float32 && !(found * Dtype::Float32.bytes()).is_multiple_of(RECURRENT_BYTES) {
        reasons.push(CacheReason::SlotAlignment { name: name.into(), found });
    }
    placement(name, "recurrent", recurrent.address, RECURRENT_BYTES, reasons);
}

fn slot_reasons(name: &str, conv: u64, recurrent: u64, reasons: &mut Vec<CacheReason>) {
    if conv != recurrent {
        reasons.push(CacheReason::SlotsDiffer { name: name.into(), conv, recurrent });
    }
    let found = conv.min(recurrent);
    // One is enough: for one request vLLM profiles its graphs on the reserved slot alone.
    if found < 1 || i32::try_from(found).is_err() {
        reasons.push(CacheReason::Slots { name: name.into(), found });
    }
}

fn placement(name: &str, state: &'static str, address: u64, alignment: u64, reasons: &mut Vec<CacheReason>) {
    if !is_placed(address, alignment) {
        reasons.push(CacheReason::Placement { name: name.into(), state, address, alignment });
    }
}

fn overlap(name: &str, state: &'static str, tensor: &TensorFacts) -> CacheReason {
    let (shape, strides) = (tensor.shape.clone(), Shape(tensor.strides.clone()));
    CacheReason::Overlap { name: name.into(), state, shape, strides }
}

/// Whether two indices may mean one element: sorted by stride, each dimension must step over all of the one before.
fn overlaps(tensor: &TensorFacts) -> bool {
    let mut dimensions: Vec<(u64, u64)> =
        tensor.strides.iter().copied().zip(tensor.shape.0.iter().copied()).filter(|(_, size)| *size > 1).collect();
    dimensions.sort_unstable();
    let mut extent = 1_u64;
    dimensions.into_iter().any(|(stride, size)| {
        let inside = stride < extent;
        extent = extent.saturating_add(stride.saturating_mul(size - 1));
        inside
    })
}
