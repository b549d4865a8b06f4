//! The text model's configuration, as the checkpoint's `config.json` has it, and which of its layers the kernels run.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU8;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::abi::LayerKind;
use crate::ids::Layer;

/// The text model; a missing field is `null`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TextConfig {
    /// Hidden size.
    pub hidden_size: Option<u32>,
    /// Routed experts.
    pub num_experts: Option<u32>,
    /// Decoder layers.
    pub num_hidden_layers: Option<u8>,
    /// Layers of an `AttnRes` block.
    pub attn_res_block_size: Option<NonZeroU8>,
    /// Layers before the first that has experts.
    pub first_k_dense_replace: u8,
    /// Every n-th layer has experts.
    pub moe_layer_freq: Option<NonZeroU8>,
    /// KDA.
    pub linear_attn_config: Option<LinearAttnConfig>,
}

/// KDA; a missing field is `null`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LinearAttnConfig {
    /// KDA heads.
    pub num_heads: Option<u32>,
    /// Width of a head.
    pub head_dim: Option<u32>,
    /// Width of the short convolution.
    pub short_conv_kernel_size: Option<u32>,
    /// KDA layers, counted from 1.
    pub kda_layers: Vec<u16>,
    /// MLA layers, counted from 1.
    pub full_attn_layers: Vec<u16>,
}

/// Hidden size, routed experts, KDA heads, KDA head dim, convolution width; prints as Python prints a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shapes(pub [Option<u32>; 5]);

impl fmt::Display for Shapes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(|n| n.map_or_else(|| "None".into(), |n| n.to_string())).collect();
        write!(f, "({})", parts.join(", "))
    }
}

impl TextConfig {
    /// The shapes that the kernels are compiled for.
    pub fn shapes(&self) -> Shapes {
        let kda = self.linear_attn_config.as_ref();
        Shapes([
            self.hidden_size,
            self.num_experts,
            kda.and_then(|kda| kda.num_heads),
            kda.and_then(|kda| kda.head_dim),
            kda.and_then(|kda| kda.short_conv_kernel_size),
        ])
    }

    /// Whether the layer's attention is KDA.
    pub fn is_kda(&self, layer: Layer) -> bool {
        self.linear_attn_config.as_ref().is_some_and(|kda| kda.kda_layers.contains(&(u16::from(layer.0) + 1)))
    }
}

/// What the kernels run of each layer (spec/runtime.md §1.8): layers with experts and `AttnRes`, behind layer 0, except
/// MLA layers that write a block.
pub fn layer_kinds(text: &TextConfig) -> BTreeMap<Layer, LayerKind> {
    let (Some(block), Some(_), Some(num_layers)) = (text.attn_res_block_size, text.num_experts, text.num_hidden_layers)
    else {
        return BTreeMap::new();
    };
    let every = text.moe_layer_freq.map_or(1, NonZeroU8::get);
    let has_experts = |layer: &Layer| layer.0 >= text.first_k_dense_replace && layer.0.is_multiple_of(every);
    let kind =
        |layer: Layer| LayerKind::of(text.is_kda(layer), layer.0.is_multiple_of(block.get())).map(|kind| (layer, kind));
    (1..num_layers).map(Layer).filter(has_experts).filter_map(kind).collect()
}
