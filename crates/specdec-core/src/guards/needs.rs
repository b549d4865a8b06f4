//! The tensors of a layer: one table for the guards, for the descriptors and for Python.

use super::tensor::{Dtype, Shape};
use crate::abi::LayerKind;
use crate::geometry::{Shard, CONV_WIDTH};

/// Where in a layer a tensor belongs: what else must be there for it to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Of the latent experts' surroundings, unquantised.
    Moe,
    /// Of the routed experts, MXFP4.
    Experts,
    /// Of every layer.
    Layer,
    /// Of a KDA layer's attention, and of its seam.
    Kda,
}

/// One tensor that the kernels read.
#[derive(Debug)]
pub struct NeededTensor {
    /// Field of `LayerDescriptor`.
    pub field: &'static str,
    /// Name in messages.
    pub label: &'static str,
    /// Attributes from the decoder layer to it. `mlp.experts` is vLLM's `mlp.experts.routed_experts` where that is.
    pub path: &'static str,
    /// Part of the layer.
    pub part: Part,
    /// Bytes that the kernels load at a time: the address is a multiple.
    pub alignment: u64,
    types: &'static [Dtype],
    shape: fn(&Shard) -> Vec<u32>,
    /// Rows of one rank, where every rank loads all rows and the kernels of each read its own.
    pub own_rows: Option<fn(&Shard) -> u32>,
}

const BF16: &[Dtype] = &[Dtype::Bfloat16];
const F32: &[Dtype] = &[Dtype::Float32];
const FP4: &[Dtype] = &[Dtype::Float4E2m1fnX2, Dtype::Uint8];
const E8M0: &[Dtype] = &[Dtype::Float8E8m0fnu, Dtype::Uint8];
/// E8M0 codes that a row of `w13_scale` or `w2_scale` is padded to a multiple of.
const SCALE_COLUMNS: u32 = 8;

macro_rules! tensors {
    ($($part:ident $field:literal $label:literal $path:literal $types:ident $alignment:literal
       |$shard:ident| [$($size:expr),*] $(, own $own:ident)?;)*) => {
        &[$(NeededTensor {
            field: $field,
            label: $label,
            path: $path,
            part: Part::$part,
            alignment: $alignment,
            types: $types,
            shape: |$shard| vec![$($size),*],
            own_rows: own!($($own)?),
        },)*]
    };
}
macro_rules! own {
    () => {
        None
    };
    ($own:ident) => {
        Some(Shard::$own)
    };
}

/// Every tensor, in the order of upstream's reasons (spec/runtime.md §4.1).
pub const TENSORS: &[NeededTensor] = tensors! {
    Moe "router" "gate" "mlp.gate.weight" BF16 16
        |s| [s.geometry.experts, s.geometry.hidden], own router_rows;
    Moe "router_bias" "gate bias" "mlp.gate.e_score_correction_bias" F32 4 |s| [s.geometry.experts];
    Moe "latent_down" "latent down" "mlp.routed_expert_down_proj.weight" BF16 16
        |s| [s.geometry.latent, s.geometry.hidden], own latent_rows;
    Moe "latent_norm" "latent norm" "mlp.routed_expert_norm.weight" BF16 16 |s| [s.geometry.latent];
    Moe "shared_gate_up" "shared gate_up" "mlp.shared_experts.gate_up_proj.weight" BF16 16
        |s| [2 * s.shared(), s.geometry.hidden];
    Moe "shared_down" "shared down" "mlp.shared_experts.down_proj.weight" BF16 16
        |s| [s.geometry.hidden, s.shared()];
    Moe "up" "up_proj" "mlp.routed_expert_up_proj.weight" BF16 16
        |s| [s.geometry.hidden, s.geometry.latent], own up_rows;
    Experts "w13" "w13_weight" "mlp.experts.w13_weight" FP4 16
        |s| [s.geometry.experts, 2 * s.inter(), s.geometry.latent / 2];
    Experts "w13_scale" "w13_weight_scale" "mlp.experts.w13_weight_scale" E8M0 4
        |s| [s.geometry.experts * 2 * s.inter(), scale_columns(s.geometry.latent)];
    Experts "w2" "w2_weight" "mlp.experts.w2_weight" FP4 16
        |s| [s.geometry.experts, s.geometry.latent, s.inter() / 2];
    Experts "w2_scale" "w2_weight_scale" "mlp.experts.w2_weight_scale" E8M0 4
        |s| [s.geometry.experts * s.geometry.latent, scale_columns(s.inter())];
    Layer "mlp_seam.norm" "mlp_res_norm" "mlp_res_norm.weight" BF16 4 |s| [s.geometry.hidden];
    Layer "mlp_seam.logit" "mlp_res_proj" "mlp_res_proj.weight" BF16 4 |s| [1, s.geometry.hidden];
    Layer "mlp_seam.output" "post_attention_layernorm" "post_attention_layernorm.weight" BF16 4
        |s| [s.geometry.hidden];
    Layer "o_proj" "o_proj" "self_attn.o_proj.weight" BF16 16 |s| [s.geometry.hidden, s.proj()];
    Kda "in_proj" "in_proj" "self_attn.in_proj_qkvgfab.weight" BF16 16 |s| [s.in_proj_rows(), s.geometry.hidden];
    Kda "f_b" "f_b_proj" "self_attn.f_b_proj.weight" BF16 16 |s| [s.proj(), s.geometry.head_dim];
    Kda "o_norm" "o_norm" "self_attn.o_norm.weight" BF16 2 |s| [s.geometry.head_dim];
    Kda "conv" "conv1d" "self_attn.conv1d.weight" F32 16 |s| [3 * s.proj(), CONV_WIDTH];
    Kda "a_log" "A_log" "self_attn.A_log" F32 4 |s| [s.heads()];
    Kda "dt_bias" "dt_bias" "self_attn.dt_bias" F32 16 |s| [s.proj()];
    Kda "attention_seam.output" "input_layernorm" "input_layernorm.weight" BF16 4 |s| [s.geometry.hidden];
    Kda "attention_seam.norm" "self_attention_res_norm" "self_attention_res_norm.weight" BF16 4
        |s| [s.geometry.hidden];
    Kda "attention_seam.logit" "self_attention_res_proj" "self_attention_res_proj.weight" BF16 4
        |s| [1, s.geometry.hidden];
};

/// Numbers that every layer has, with the tensor whose norm each belongs to.
pub const NUMBERS: [(&str, &str); 3] = [
    ("mlp_seam.eps", "mlp_res_norm"),
    ("mlp_seam.output_eps", "post_attention_layernorm"),
    ("latent_eps", "latent norm"),
];
/// The same of KDA layers. The gate's lower bound has a rule of its own.
pub const KDA_NUMBERS: [(&str, &str); 3] = [
    ("attention_seam.eps", "self_attention_res_norm"),
    ("attention_seam.output_eps", "input_layernorm"),
    ("o_norm_eps", "o_norm"),
];

fn scale_columns(values: u32) -> u32 {
    (values / crate::abi::MX_GROUP).next_multiple_of(SCALE_COLUMNS)
}

/// The tensors of a layer of that kind, in the order of `TENSORS`.
pub fn needed(kind: LayerKind) -> impl Iterator<Item = &'static NeededTensor> {
    TENSORS.iter().filter(move |tensor| kind == LayerKind::Whole || tensor.part != Part::Kda)
}

impl NeededTensor {
    /// Shape as loaded; `row_sharded`: `up` holds this rank's rows only.
    pub fn shape(&self, shard: &Shard, row_sharded: bool) -> Shape {
        let mut sizes: Vec<u64> = (self.shape)(shard).into_iter().map(u64::from).collect();
        if let (Some(own), Some(rows), true) = (self.own_rows, sizes.first_mut(), self.is_sharded(row_sharded)) {
            *rows = u64::from(own(shard));
        }
        Shape(sizes)
    }

    /// Rows of this rank inside the tensor as loaded, if the kernels read only those.
    pub fn slice(&self, shard: &Shard, row_sharded: bool) -> Option<u32> {
        self.own_rows.filter(|_| !self.is_sharded(row_sharded)).map(|own| own(shard))
    }

    /// The type that messages name.
    pub fn dtype(&self) -> Dtype {
        self.types.first().cloned().unwrap_or(Dtype::Uint8)
    }

    /// Whether the kernels read that type: its bytes are the same.
    pub fn reads(&self, dtype: &Dtype) -> bool {
        self.types.contains(dtype)
    }

    /// Whether the tensor has no other form than the table's.
    fn is_sharded(&self, row_sharded: bool) -> bool {
        row_sharded && self.field == "up"
    }
}
