//! A model that the kernels serve, as torch would describe it: the shapes are spec/runtime.md §4.1's, written out.

use std::collections::BTreeMap;

use specdec_core::geometry::{Shard, K3, NANO};
use specdec_core::guards::{
    CacheFacts, Dtype, KindFacts, LayerFacts, ModelFacts, Scalar, Shape, SituMode, TensorFacts,
};
use specdec_core::ids::Layer;

/// Field, shape, type of every tensor of Kimi-K3 on one of eight ranks; those behind the first 15 are KDA's.
pub const K3_TENSORS: [(&str, &[u64], &str); 24] = [
    ("router", &[896, 7168], "bfloat16"),
    ("router_bias", &[896], "float32"),
    ("latent_down", &[3584, 7168], "bfloat16"),
    ("latent_norm", &[3584], "bfloat16"),
    ("shared_gate_up", &[1536, 7168], "bfloat16"),
    ("shared_down", &[7168, 768], "bfloat16"),
    ("up", &[896, 3584], "bfloat16"),
    ("w13", &[896, 768, 1792], "float4_e2m1fn_x2"),
    ("w13_scale", &[896 * 768, 112], "float8_e8m0fnu"),
    ("w2", &[896, 3584, 192], "float4_e2m1fn_x2"),
    ("w2_scale", &[896 * 3584, 16], "float8_e8m0fnu"),
    ("mlp_seam.norm", &[7168], "bfloat16"),
    ("mlp_seam.logit", &[1, 7168], "bfloat16"),
    ("mlp_seam.output", &[7168], "bfloat16"),
    ("o_proj", &[7168, 1536], "bfloat16"),
    ("in_proj", &[6288, 7168], "bfloat16"),
    ("f_b", &[1536, 128], "bfloat16"),
    ("o_norm", &[128], "bfloat16"),
    ("conv", &[4608, 4], "float32"),
    ("a_log", &[12], "float32"),
    ("dt_bias", &[1536], "float32"),
    ("attention_seam.output", &[7168], "bfloat16"),
    ("attention_seam.norm", &[7168], "bfloat16"),
    ("attention_seam.logit", &[1, 7168], "bfloat16"),
];

pub fn shard() -> Shard {
    Shard { geometry: K3, ranks: 8 }
}

pub fn nano() -> Shard {
    Shard { geometry: NANO, ranks: 2 }
}

pub fn tensor(address: u64, shape: &[u64], dtype: &str) -> TensorFacts {
    let strides = (0..shape.len()).map(|at| shape[at + 1..].iter().product()).collect();
    TensorFacts { address, shape: Shape(shape.to_vec()), strides, dtype: Dtype::from(dtype.to_owned()) }
}

pub fn scalar(text: &str) -> Scalar {
    Scalar(Some(text.into()))
}

/// A layer of Kimi-K3, its tensors 4 GiB apart.
pub fn layer(number: u8, kind: KindFacts) -> LayerFacts {
    let count = if kind == KindFacts::Whole { K3_TENSORS.len() } else { 15 };
    let base = (u64::from(number) + 1) << 40;
    let tensors = K3_TENSORS[..count].iter().zip(1_u64..);
    let tensors = tensors.map(|((field, shape, dtype), at)| ((*field).into(), tensor(base + (at << 32), shape, dtype)));
    let eps = ["mlp_seam.eps", "mlp_seam.output_eps", "latent_eps", "attention_seam.eps", "attention_seam.output_eps"];
    let mut numbers: BTreeMap<String, Scalar> = eps.map(|name| (name.to_owned(), scalar("1e-5"))).into();
    numbers.extend([("o_norm_eps".into(), scalar("1e-5")), ("gate_lower_bound".into(), scalar("-5.0"))]);
    LayerFacts {
        layer: Layer(number),
        kind,
        use_latent_moe: true,
        has_shared_experts: true,
        routed_scaling_factor: scalar("1.0"),
        mxfp4_backend: Some("AITER_MXFP4_BF16".into()),
        is_k3_situ_aiter: true,
        situ: SituMode { activation: "a4w4".into(), interleaved: false },
        row_sharded: true,
        shuffled: [("w13".into(), true), ("w2".into(), true)].into(),
        tensors: tensors.collect(),
        numbers,
        kda: ["12", "128", "4"].map(scalar),
        num_blocks: scalar(&number.div_ceil(12).to_string()),
        block_write: if number.is_multiple_of(12) { scalar(&(number / 12).to_string()) } else { Scalar(None) },
    }
}

/// Layers 1 to 3 and 12 of Kimi-K3: KDA, KDA, MLA, a block-write layer.
pub fn model() -> ModelFacts {
    let config = [
        ("moe_router_activation_func", "sigmoid"),
        ("num_experts_per_token", "16"),
        ("activation_situ_beta", "4"),
        ("num_expert_group", "1"),
    ];
    ModelFacts {
        num_kernel_layers: 92,
        config: config.map(|(name, value)| (name.to_owned(), scalar(value))).into(),
        layers: vec![
            layer(1, KindFacts::Whole),
            layer(2, KindFacts::Whole),
            layer(3, KindFacts::Ffn),
            layer(12, KindFacts::Whole),
        ],
    }
}

/// States of a KDA layer at seven drafts, interleaved on pages as vLLM has them; SD: channels innermost.
pub fn cache(name: &str) -> CacheFacts {
    let (slots, channels, entries) = (40, 4608, 10);
    let page = 1 << 21;
    let mut conv = tensor(1 << 40, &[slots, channels, entries], "bfloat16");
    conv.strides = vec![page / 2, 1, channels];
    let mut recurrent = tensor((1 << 40) + (1 << 17), &[slots, 12, 128, 128], "float32");
    recurrent.strides = vec![page / 4, 16384, 128, 1];
    CacheFacts { name: name.into(), conv: Some(conv), recurrent: Some(recurrent) }
}
