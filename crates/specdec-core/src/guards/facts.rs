//! What Python reads off vLLM's objects, without judging it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::scalar::Scalar;
use super::tensor::TensorFacts;
use crate::abi::LayerKind;
use crate::ids::Layer;

/// [`LayerKind`] by the name that Python gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the variants of LayerKind")]
pub enum KindFacts {
    Whole,
    Ffn,
}

impl From<KindFacts> for LayerKind {
    fn from(kind: KindFacts) -> Self {
        match kind {
            KindFacts::Whole => Self::Whole,
            KindFacts::Ffn => Self::Ffn,
        }
    }
}

/// How vLLM runs the routed experts' activation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SituMode {
    /// The switch, as vLLM resolves it or as the environment has it: `auto`, `a4w4`, `a8w4`, `a16w4`.
    pub activation: String,
    /// Whether w13 was loaded with its gate and up rows interleaved.
    pub interleaved: bool,
}

/// One layer that the kernels run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "they are vLLM's own switches")]
pub struct LayerFacts {
    /// Number in the model.
    pub layer: Layer,
    /// What the kernels run of it.
    pub kind: KindFacts,
    /// `mlp.use_latent_moe`.
    pub use_latent_moe: bool,
    /// Whether `mlp.shared_experts` is there.
    pub has_shared_experts: bool,
    /// `mlp.routed_scaling_factor`.
    #[serde(default)]
    pub routed_scaling_factor: Scalar,
    /// Name of the experts' `quant_method.mxfp4_backend`.
    #[serde(default)]
    pub mxfp4_backend: Option<String>,
    /// The experts' `quant_method.is_k3_situ_aiter`.
    pub is_k3_situ_aiter: bool,
    /// SiTU as the process runs it.
    pub situ: SituMode,
    /// Whether `up` holds this rank's rows only.
    pub row_sharded: bool,
    /// Whether `w13` and `w2` bear the mark of the shuffled layout.
    pub shuffled: BTreeMap<String, bool>,
    /// By the fields of `TENSORS`; a missing one is left out.
    pub tensors: BTreeMap<String, TensorFacts>,
    /// Epsilons and the gate's lower bound, by the fields of `LayerDescriptor`.
    pub numbers: BTreeMap<String, Scalar>,
    /// KDA's `local_num_heads`, `head_dim`, `conv_size`.
    #[serde(default)]
    pub kda: [Scalar; 3],
    /// `prev_valid_blocks`.
    #[serde(default)]
    pub num_blocks: Scalar,
    /// `block_write_idx` of a layer that writes a block.
    #[serde(default)]
    pub block_write: Scalar,
}

/// The loaded model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelFacts {
    /// Layers of the whole model that the kernels would run, this rank's or not.
    pub num_kernel_layers: u32,
    /// What the build takes for granted, by the names of vLLM's text config.
    #[serde(default)]
    pub config: BTreeMap<String, Scalar>,
    /// This rank's, in layer order.
    pub layers: Vec<LayerFacts>,
}

/// The states of one KDA layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheFacts {
    /// Name of the layer in vLLM's metadata.
    pub name: String,
    /// Convolution state, viewed `[slots, channels, entries]`; left out: not there.
    #[serde(default)]
    pub conv: Option<TensorFacts>,
    /// Recurrent state `[slots, heads, head_dim, head_dim]`.
    #[serde(default)]
    pub recurrent: Option<TensorFacts>,
}

/// An MLA layer as M1 reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MlaFacts {
    /// Number in the model.
    pub layer: Layer,
    /// Name of the attention backend.
    #[serde(default)]
    pub backend: Option<String>,
    /// `kv_cache_dtype`.
    #[serde(default)]
    pub kv_cache_dtype: Option<String>,
    /// `q_lora_rank`, `kv_lora_rank`, `qk_nope_head_dim`, `qk_rope_head_dim`, `v_head_dim` by name.
    #[serde(default)]
    pub dims: BTreeMap<String, Scalar>,
    /// Whether the batched products are AITER's MXFP4 ones.
    pub fp4_bmm: bool,
    /// Features that M1 does not know and the layer has: `indexer`, `rotary_emb`, `dcp_q_replicate`.
    #[serde(default)]
    pub features: Vec<String>,
    /// `_q_scale` and `_k_scale` by name.
    #[serde(default)]
    pub scales: BTreeMap<String, TensorFacts>,
    /// By attribute.
    #[serde(default)]
    pub tensors: BTreeMap<String, TensorFacts>,
    /// The cache `[blocks, block_size, 576]`, once it is bound.
    #[serde(default)]
    pub kv_cache: Option<TensorFacts>,
}
