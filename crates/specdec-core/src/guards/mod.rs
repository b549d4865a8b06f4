//! Whether what vLLM has loaded and bound is what the kernels read (spec/runtime.md §4), from plain descriptions of
//! tensors. Upstream's reasons come first, in upstream's order and words; behind them those that its guards cannot
//! see. A descriptor of a layer of vLLM's is made of nothing else: [`CheckedLayer`].

mod caches;
mod checked;
mod facts;
mod fingerprint;
mod metadata;
mod mla;
mod needs;
mod reason;
mod scalar;
mod tensor;
mod weights;

pub use caches::cache_reasons;
pub use checked::{CheckedCache, CheckedLayer, CheckedWeights};
pub use facts::{CacheFacts, KindFacts, LayerFacts, MlaFacts, ModelFacts, SituMode};
pub use fingerprint::binding_fingerprint;
pub use metadata::{state_group, MetadataReason};
pub use mla::{mla_cache_reasons, mla_weight_reasons, MlaReason};
pub use needs::{needed, NeededTensor, Part, KDA_NUMBERS, NUMBERS, TENSORS};
pub use reason::{CacheReason, WeightReason};
pub use scalar::Scalar;
pub use tensor::{Dtype, Shape, TensorFacts};
pub use weights::weight_reasons;
