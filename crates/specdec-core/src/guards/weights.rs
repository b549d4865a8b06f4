//! Reasons against the loaded weights, upstream's first (spec/runtime.md §4.1, §4.3).

use super::facts::{KindFacts, LayerFacts, ModelFacts};
use super::needs::{needed, NeededTensor, Part, KDA_NUMBERS, NUMBERS};
use super::reason::{is_placed, WeightReason};
use super::tensor::TensorFacts;
use crate::abi::MAX_BLOCKS;
use crate::config::SituV2;
use crate::geometry::{Shard, CONV_WIDTH};

const BACKEND: &str = "AITER_MXFP4_BF16";
/// Marked as shuffled by whoever shuffles them.
const SHUFFLED: [(&str, &str); 2] = [("w13", "w13_weight"), ("w2", "w2_weight")];
/// What the kernels take for granted and no tensor shows, by the names of vLLM's text config.
const CONSTANTS: [(&str, &str); 7] = [
    ("moe_router_activation_func", "sigmoid"),
    ("moe_renormalize", "True"),
    ("num_expert_group", "1"),
    ("topk_group", "1"),
    ("hidden_act", "situ"),
    ("activation_situ_beta", "4.0"),
    ("activation_situ_linear_beta", "25.0"),
];
const TOP_K: &str = "num_experts_per_token";

/// Every reason why the kernels of `shard` cannot read the loaded model; empty: they can.
pub fn weight_reasons(shard: &Shard, model: &ModelFacts) -> Vec<WeightReason> {
    if model.num_kernel_layers == 0 {
        return vec![WeightReason::NoKernelLayer];
    }
    let mut reasons = Reasons { ours: constants(shard, model), ..Reasons::default() };
    for layer in &model.layers {
        reasons.layer(shard, layer);
    }
    reasons.all()
}

/// The reasons against one layer.
pub fn layer_reasons(shard: &Shard, layer: &LayerFacts) -> Vec<WeightReason> {
    let mut reasons = Reasons::default();
    reasons.layer(shard, layer);
    reasons.all()
}

/// A constant that the config leaves out is not judged: a model of another version need not name it.
fn constants(shard: &Shard, model: &ModelFacts) -> Vec<WeightReason> {
    let top_k = shard.geometry.top_k.to_string();
    let needed = CONSTANTS.iter().copied().chain([(TOP_K, top_k.as_str())]);
    let differs = needed.filter_map(|(name, needed)| {
        let found = model.config.get(name).filter(|found| found.0.is_some())?;
        let same = match (found.value(), needed.parse::<f64>()) {
            (Some(found), Ok(needed)) => found == needed,
            _ => found.to_string() == needed,
        };
        (!same).then(|| WeightReason::ModelConstant { name, found: found.clone(), needed: needed.into() })
    });
    differs.collect()
}

#[derive(Default)]
struct Reasons {
    upstream: Vec<WeightReason>,
    ours: Vec<WeightReason>,
}

/// How far upstream's guards get with a layer, and what of it can be judged at all.
#[derive(Clone, Copy)]
struct Structure {
    moe: bool,
    backend: bool,
    kda: bool,
}

impl Structure {
    fn of(shard: &Shard, layer: &LayerFacts) -> Self {
        let [heads, head_dim, conv_size] = &layer.kda;
        Self {
            moe: layer.use_latent_moe && layer.has_shared_experts,
            backend: layer.mxfp4_backend.as_deref() == Some(BACKEND) && layer.is_k3_situ_aiter,
            kda: heads.is(shard.heads()) && head_dim.is(shard.geometry.head_dim) && conv_size.is(CONV_WIDTH),
        }
    }

    /// Whether a tensor of that part can be there.
    const fn has(self, part: Part) -> bool {
        match part {
            Part::Moe => self.moe,
            Part::Experts => self.moe && self.backend,
            Part::Layer => true,
            Part::Kda => self.kda,
        }
    }
}

impl Reasons {
    fn all(self) -> Vec<WeightReason> {
        [self.upstream, self.ours].concat()
    }

    fn layer(&mut self, shard: &Shard, facts: &LayerFacts) {
        let (layer, structure) = (facts.layer, Structure::of(shard, facts));
        // Upstream leaves a layer at either of these; what it does not reach is ours to say.
        let reached = structure.moe && structure.backend;
        if structure.moe {
            if !facts.routed_scaling_factor.is(1) {
                let found = facts.routed_scaling_factor.clone();
                self.upstream.push(WeightReason::ScalingFactor { layer, found });
            }
            if !structure.backend {
                self.upstream.push(WeightReason::MoeBackend { layer });
            }
        } else {
            self.upstream.push(WeightReason::LatentMoe { layer });
        }
        let mut first_kda = facts.kind == KindFacts::Whole && !structure.kda;
        for tensor in needed(facts.kind.into()) {
            if tensor.part == Part::Kda && std::mem::take(&mut first_kda) {
                self.at(reached).push(WeightReason::KdaSizes { layer });
            }
            if structure.has(tensor.part) {
                self.tensor(shard, facts, tensor, reached);
            }
        }
        self.own(facts, structure);
    }

    const fn at(&mut self, reached: bool) -> &mut Vec<WeightReason> {
        if reached {
            &mut self.upstream
        } else {
            &mut self.ours
        }
    }

    /// Shape, type and order; then, for a tensor that has them, its place.
    fn tensor(&mut self, shard: &Shard, facts: &LayerFacts, tensor: &NeededTensor, reached: bool) {
        let (layer, label, experts) = (facts.layer, tensor.label, tensor.part == Part::Experts);
        let Some(found) = facts.tensors.get(tensor.field) else {
            self.at(reached).push(if experts {
                WeightReason::NoExperts { layer, label }
            } else {
                WeightReason::Missing { layer, label }
            });
            return;
        };
        let shape = tensor.shape(shard, facts.row_sharded);
        let fits = found.shape == shape || (experts && same_rows(found, &shape.0));
        if !fits || !tensor.reads(&found.dtype) || !found.is_contiguous() {
            let dtype = tensor.dtype();
            let reason = WeightReason::Tensor { layer, label, found: found.clone(), shape, dtype };
            // Upstream takes the experts' tensors as they are.
            self.at(reached && !experts).push(reason);
        } else if !is_placed(found.address, tensor.alignment) {
            let (address, alignment) = (found.address, tensor.alignment);
            self.ours.push(WeightReason::Placement { layer, label, address, alignment });
        }
    }

    /// What upstream's guards do not look at, besides the tensors.
    fn own(&mut self, facts: &LayerFacts, structure: Structure) {
        let layer = facts.layer;
        if structure.has(Part::Experts) {
            self.ours.extend(
                situ_activation(&facts.situ.activation).map(|found| WeightReason::SituActivation { layer, found }),
            );
            if facts.situ.interleaved {
                self.ours.push(WeightReason::GateUpInterleaved { layer });
            }
            for (field, label) in SHUFFLED {
                if facts.tensors.contains_key(field) && facts.shuffled.get(field) != Some(&true) {
                    self.ours.push(WeightReason::NotShuffled { layer, label });
                }
            }
        }
        let kda = if facts.kind == KindFacts::Whole { &KDA_NUMBERS[..] } else { &[] };
        for &(field, label) in NUMBERS.iter().chain(kda) {
            let found = facts.numbers.get(field).cloned().unwrap_or_default();
            let exists = field != "latent_eps" || structure.moe;
            if exists && !found.value().is_some_and(is_epsilon) {
                self.ours.push(WeightReason::Epsilon { layer, label, found });
            }
        }
        if facts.kind == KindFacts::Whole {
            let found = facts.numbers.get("gate_lower_bound").cloned().unwrap_or_default();
            if !found.value().is_some_and(|bound| is_number(bound) && bound < 0.0) {
                self.ours.push(WeightReason::GateLowerBound { layer, found });
            }
        }
        if blocks(facts).is_none() {
            let (num_blocks, block_write) = (facts.num_blocks.clone(), facts.block_write.clone());
            self.ours.push(WeightReason::Blocks { layer, num_blocks, block_write });
        }
    }
}

/// Blocks before a layer and the one that it writes, if the kernels can hold them: the next one, and only with KDA.
pub fn blocks(facts: &LayerFacts) -> Option<(u32, Option<u32>)> {
    let before = facts.num_blocks.integer().filter(|count| (1..=MAX_BLOCKS).contains(count))?;
    if facts.block_write.0.is_none() {
        return Some((before, None));
    }
    let writes = facts.kind == KindFacts::Whole && before < MAX_BLOCKS && facts.block_write.is(before);
    writes.then_some((before, Some(before)))
}

/// vLLM's name of an activation that is none of ours.
fn situ_activation(switch: &str) -> Option<String> {
    match SituV2::try_from(switch.to_owned()) {
        Ok(SituV2::Auto | SituV2::A4w4) => None,
        Ok(other) => Some(other.name().into()),
        Err(_) => Some(switch.into()),
    }
}

/// Whether the kernels' reciprocal square root of a row of zeros is a number, in their precision.
fn is_epsilon(value: f64) -> bool {
    is_number(value) && value > 0.0
}

/// Whether a number is one in the kernels' precision too.
#[expect(clippy::cast_possible_truncation, reason = "whether the narrower number is finite is the question")]
fn is_number(value: f64) -> bool {
    let narrow = value as f32;
    narrow.is_normal()
}

/// Whether a tensor holds the rows that a table's two-dimensional shape counts, by expert.
fn same_rows(found: &TensorFacts, shape: &[u64]) -> bool {
    match (found.shape.0.as_slice(), shape) {
        ([experts, rows, columns], [all, width]) => experts.saturating_mul(*rows) == *all && columns == width,
        _ => false,
    }
}

/// Bytes of the rows of lower ranks, where the kernels of a rank read their own rows only.
pub fn slice_offset(tensor: &NeededTensor, shard: &Shard, rank: u8, found: &TensorFacts, row_sharded: bool) -> u64 {
    let Some(rows) = tensor.slice(shard, row_sharded) else { return 0 };
    let row_bytes: u64 = found.shape.0.iter().skip(1).product::<u64>() * found.dtype.bytes();
    u64::from(rank) * u64::from(rows) * row_bytes
}
