//! A layer whose weights and states have passed every check: the only way from vLLM's tensors to a descriptor.

use std::collections::BTreeMap;

use super::caches::cache_reasons;
use super::facts::{CacheFacts, LayerFacts};
use super::needs::{needed, KDA_NUMBERS, NUMBERS};
use super::reason::{CacheReason, WeightReason};
use super::weights::{blocks, layer_reasons, slice_offset};
use crate::abi::{LayerDescriptor, LayerKind};
use crate::binding::{self, BindingError, Place};
use crate::geometry::Shard;
use crate::ids::{Layer, Rank};

/// Addresses and numbers by the fields of `LayerDescriptor`.
#[derive(Clone, Debug, Default, PartialEq)]
struct Fields {
    addresses: BTreeMap<String, u64>,
    numbers: BTreeMap<String, f64>,
}

/// The weights of a layer, each where this rank's kernels read it.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedWeights {
    place: Place,
    fields: Fields,
}

impl CheckedWeights {
    /// Checks one layer as `rank` has loaded it; every reason otherwise.
    pub fn check(shard: &Shard, rank: Rank, facts: &LayerFacts) -> Result<Self, Vec<WeightReason>> {
        let reasons = layer_reasons(shard, facts);
        let (Some((num_blocks, block_write)), true) = (blocks(facts), reasons.is_empty()) else { return Err(reasons) };
        let mut fields = Fields::default();
        for tensor in needed(facts.kind.into()) {
            let Some(found) = facts.tensors.get(tensor.field) else { continue };
            let offset = slice_offset(tensor, shard, rank.0, found, facts.row_sharded);
            fields.addresses.insert(tensor.field.into(), found.address + offset);
        }
        let kind = LayerKind::from(facts.kind);
        let kda = if kind == LayerKind::Whole { &KDA_NUMBERS[..] } else { &[] };
        let names = NUMBERS.iter().chain(kda).map(|(field, _)| *field);
        let bound = (kind == LayerKind::Whole).then_some("gate_lower_bound");
        for name in names.chain(bound) {
            if let Some(value) = facts.numbers.get(name).and_then(super::Scalar::value) {
                fields.numbers.insert(name.into(), value);
            }
        }
        Ok(Self { place: Place { kind, layer: facts.layer, num_blocks, block_write }, fields })
    }

    /// The layer.
    pub const fn layer(&self) -> Layer {
        self.place.layer
    }

    /// What the kernels run of it.
    pub const fn kind(&self) -> LayerKind {
        self.place.kind
    }
}

/// The states of a KDA layer.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedCache(Fields);

impl CheckedCache {
    /// Checks one layer's states, with room for `num_spec` drafts a request; every reason otherwise.
    pub fn check(shard: &Shard, num_spec: u32, facts: &CacheFacts) -> Result<Self, Vec<CacheReason>> {
        let reasons = cache_reasons(shard, Some(num_spec), std::slice::from_ref(facts));
        let (Some(conv), Some(recurrent), true) = (&facts.conv, &facts.recurrent, reasons.is_empty()) else {
            return Err(reasons);
        };
        let addresses = [("conv_state", conv.address), ("recurrent_state", recurrent.address)];
        let numbers = [
            ("conv_slot_stride", conv.stride(0)),
            ("conv_channel_stride", conv.stride(1)),
            ("conv_token_stride", conv.stride(2)),
            ("recurrent_slot_stride", recurrent.stride(0)),
            ("num_slots", conv.size(0)),
        ];
        Ok(Self(Fields {
            addresses: addresses.map(|(name, address)| (name.into(), address)).into(),
            numbers: numbers.map(|(name, number)| (name.into(), binding::number(number))).into(),
        }))
    }
}

/// A layer that the kernels may run: its descriptor holds checked addresses and nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedLayer(LayerDescriptor);

impl CheckedLayer {
    /// Weights and, of a KDA layer, states with the index of its group of state slots.
    pub fn bind(weights: &CheckedWeights, states: Option<(&CheckedCache, u32)>) -> Result<Self, BindingError> {
        let mut fields = weights.fields.clone();
        if let Some((cache, group)) = states {
            fields.addresses.extend(cache.0.addresses.clone());
            fields.numbers.extend(cache.0.numbers.clone());
            fields.numbers.insert("state_group".into(), f64::from(group));
        }
        binding::descriptor_at(&weights.place, &fields.addresses, &fields.numbers).map(Self)
    }

    /// What the kernels read.
    pub const fn descriptor(&self) -> &LayerDescriptor {
        &self.0
    }

    /// The layer.
    #[expect(clippy::cast_possible_truncation, reason = "written from a `Layer`")]
    pub const fn layer(&self) -> Layer {
        Layer(self.0.layer as u8)
    }
}
