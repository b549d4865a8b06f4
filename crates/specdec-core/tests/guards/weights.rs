//! Every message against loaded weights, word for word, and the order of several.

use specdec_core::guards::{weight_reasons, Dtype, KindFacts, LayerFacts, ModelFacts, Scalar};
use specdec_core::ids::Layer;

use crate::model::{layer, model, nano, scalar, shard, tensor, K3_TENSORS};

fn reasons(model: &ModelFacts) -> Vec<String> {
    weight_reasons(&shard(), model).iter().map(ToString::to_string).collect()
}

/// Reasons after one change of layer 2, a KDA layer.
fn after(change: impl FnOnce(&mut LayerFacts)) -> Vec<String> {
    let mut model = model();
    change(&mut model.layers[1]);
    reasons(&model)
}

#[test]
fn a_served_model_has_none() {
    assert_eq!(reasons(&model()), [""; 0]);
    let other_rank = ModelFacts { layers: vec![], ..model() };
    assert_eq!(reasons(&other_rank), [""; 0]);
}

#[test]
fn a_model_without_kernel_layers_is_refused() {
    let empty = ModelFacts { num_kernel_layers: 0, layers: vec![], ..model() };
    assert_eq!(reasons(&empty), ["no layer has an AttnRes latent MoE"]);
}

#[test]
fn upstreams_structural_messages() {
    let none = "layer 2: needs a latent MoE with shared experts";
    assert_eq!(after(|layer| layer.use_latent_moe = false), [none]);
    assert_eq!(after(|layer| layer.has_shared_experts = false), [none]);
    let factor = "layer 2: routed_scaling_factor 2.446";
    assert_eq!(after(|layer| layer.routed_scaling_factor = scalar("2.446")), [factor]);
    let factor = "layer 2: routed_scaling_factor None";
    assert_eq!(after(|layer| layer.routed_scaling_factor = Scalar(None)), [factor]);
    let backend = "layer 2: MoE backend must be AITER_MXFP4_BF16 (K3 SiTU)";
    assert_eq!(after(|layer| layer.mxfp4_backend = Some("TRITON".into())), [backend]);
    assert_eq!(after(|layer| layer.mxfp4_backend = None), [backend]);
    assert_eq!(after(|layer| layer.is_k3_situ_aiter = false), [backend]);
    for at in 0..3 {
        assert_eq!(after(|layer| layer.kda[at] = scalar("3")), ["layer 2: KDA heads/head_dim/conv_size"]);
    }
}

/// (field, label, needed shape as Python prints it) of upstream's `need` rows, in its order.
const NEED: [(&str, &str, &str); 20] = [
    ("router", "gate", "(896, 7168)"),
    ("router_bias", "gate bias", "(896,)"),
    ("latent_down", "latent down", "(3584, 7168)"),
    ("latent_norm", "latent norm", "(3584,)"),
    ("shared_gate_up", "shared gate_up", "(1536, 7168)"),
    ("shared_down", "shared down", "(7168, 768)"),
    ("up", "up_proj", "(896, 3584)"),
    ("mlp_seam.norm", "mlp_res_norm", "(7168,)"),
    ("mlp_seam.logit", "mlp_res_proj", "(1, 7168)"),
    ("mlp_seam.output", "post_attention_layernorm", "(7168,)"),
    ("o_proj", "o_proj", "(7168, 1536)"),
    ("in_proj", "in_proj", "(6288, 7168)"),
    ("f_b", "f_b_proj", "(1536, 128)"),
    ("o_norm", "o_norm", "(128,)"),
    ("conv", "conv1d", "(4608, 4)"),
    ("a_log", "A_log", "(12,)"),
    ("dt_bias", "dt_bias", "(1536,)"),
    ("attention_seam.output", "input_layernorm", "(7168,)"),
    ("attention_seam.norm", "self_attention_res_norm", "(7168,)"),
    ("attention_seam.logit", "self_attention_res_proj", "(1, 7168)"),
];

fn dtype_of(field: &str) -> &'static str {
    K3_TENSORS.iter().find(|row| row.0 == field).map_or("", |row| row.2)
}

#[test]
fn every_tensor_missing_or_other_than_needed() {
    for (field, label, shape) in NEED {
        let dtype = dtype_of(field);
        let missing = after(|layer| drop(layer.tensors.remove(field)));
        assert_eq!(missing, [format!("layer 2 {label}: missing")]);
        let other = after(|layer| layer.tensors.extend([(field.to_owned(), tensor(1 << 50, &[5, 6], "float16"))]));
        let needed = format!("kernel reads contiguous {shape} torch.{dtype}");
        assert_eq!(other, [format!("layer 2 {label}: (5, 6) torch.float16, {needed}")]);
        let typed = after(|layer| {
            layer.tensors.entry(field.into()).and_modify(|found| found.dtype = Dtype::Other("float64".into()));
        });
        assert_eq!(typed, [format!("layer 2 {label}: {shape} torch.float64, {needed}")]);
        let strided = after(|layer| {
            layer.tensors.entry(field.into()).and_modify(|found| {
                let innermost = found.strides.len() - 1;
                found.strides[innermost] = 2;
            });
        });
        assert_eq!(strided, [format!("layer 2 {label}: {shape} torch.{dtype} strided, {needed}")]);
    }
}

#[test]
fn a_whole_up_projection_is_read_when_it_is_not_sharded() {
    let whole = after(|layer| {
        layer.row_sharded = false;
        layer.tensors.insert("up".into(), tensor(1 << 50, &[7168, 3584], "bfloat16"));
    });
    assert_eq!(whole, [""; 0]);
    let shard = after(|layer| layer.row_sharded = false);
    let needed = "kernel reads contiguous (7168, 3584) torch.bfloat16";
    assert_eq!(shard, [format!("layer 2 up_proj: (896, 3584) torch.bfloat16, {needed}")]);
}

#[test]
fn experts_missing_or_other_than_needed() {
    for (field, label, shape, needed) in [
        ("w13", "w13_weight", "(896, 768, 1792)", "torch.float4_e2m1fn_x2"),
        ("w13_scale", "w13_weight_scale", "(688128, 112)", "torch.float8_e8m0fnu"),
        ("w2", "w2_weight", "(896, 3584, 192)", "torch.float4_e2m1fn_x2"),
        ("w2_scale", "w2_weight_scale", "(3211264, 16)", "torch.float8_e8m0fnu"),
    ] {
        let missing = after(|layer| drop(layer.tensors.remove(field)));
        assert_eq!(missing, [format!("layer 2: experts have no {label}")]);
        let other = after(|layer| layer.tensors.extend([(field.to_owned(), tensor(1 << 50, &[896, 7], "uint8"))]));
        let reason = format!("layer 2 {label}: (896, 7) torch.uint8, kernel reads contiguous {shape} {needed}");
        assert_eq!(other, [reason]);
        let bytes = after(|layer| {
            layer.tensors.entry(field.into()).and_modify(|found| found.dtype = Dtype::Uint8);
        });
        assert_eq!(bytes, [""; 0], "plain bytes are the same bytes");
    }
    let by_expert = tensor(1 << 50, &[896, 768, 112], "float8_e8m0fnu");
    assert_eq!(after(|layer| drop(layer.tensors.insert("w13_scale".into(), by_expert))), [""; 0]);
}

#[test]
fn what_upstream_cannot_see() {
    let own = |change: fn(&mut LayerFacts), reason: &str| assert_eq!(after(change), [reason]);
    own(
        |layer| layer.situ.activation = "a16w4".into(),
        "layer 2: SiTU activation a16w4 (kernels read the a4w4 layout)",
    );
    own(
        |layer| layer.situ.interleaved = true,
        "layer 2 w13_weight: gate and up rows interleaved, kernels read gate rows, then up rows (a4w4 layout)",
    );
    own(
        |layer| layer.shuffled.extend([("w2".into(), false)]),
        "layer 2 w2_weight: not marked is_shuffled, kernels read AITER's shuffled layout",
    );
    own(
        |layer| {
            layer.tensors.entry("in_proj".into()).and_modify(|found| found.address = 0x1008);
        },
        "layer 2 in_proj: address 0x1008, kernels load 16 bytes at a time: a multiple is needed",
    );
    own(
        |layer| {
            layer.tensors.entry("w2".into()).and_modify(|found| found.address = 0);
        },
        "layer 2 w2_weight: no memory (address 0)",
    );
    own(
        |layer| drop(layer.numbers.insert("mlp_seam.eps".into(), scalar("0.0"))),
        "layer 2 mlp_res_norm: epsilon 0.0, kernels need a finite one above 0",
    );
    own(
        |layer| drop(layer.numbers.insert("o_norm_eps".into(), scalar("nan"))),
        "layer 2 o_norm: epsilon nan, kernels need a finite one above 0",
    );
    own(
        |layer| drop(layer.numbers.insert("latent_eps".into(), scalar("1e-50"))),
        "layer 2 latent norm: epsilon 1e-50, kernels need a finite one above 0",
    );
    own(
        |layer| drop(layer.numbers.remove("gate_lower_bound")),
        "layer 2: gate_lower_bound None, kernels need a finite one below 0",
    );
    own(
        |layer| layer.num_blocks = scalar("9"),
        "layer 2: AttnRes blocks 9 before it and None written, kernels hold 8 and write the next",
    );
    own(
        |layer| layer.block_write = scalar("0"),
        "layer 2: AttnRes blocks 1 before it and 0 written, kernels hold 8 and write the next",
    );
}

#[test]
fn constants_that_no_tensor_shows() {
    for (name, found, reason) in [
        ("num_experts_per_token", "8", "model: num_experts_per_token 8 (kernels are built for 16)"),
        (
            "moe_router_activation_func",
            "softmax",
            "model: moe_router_activation_func softmax (kernels are built for sigmoid)",
        ),
        ("activation_situ_linear_beta", "5.0", "model: activation_situ_linear_beta 5.0 (kernels are built for 25.0)"),
        ("moe_renormalize", "False", "model: moe_renormalize False (kernels are built for True)"),
    ] {
        let mut model = model();
        model.config.insert(name.into(), scalar(found));
        assert_eq!(reasons(&model), [reason]);
    }
}

#[test]
fn upstreams_reasons_come_first_and_ours_behind_all_of_them() {
    let mut model = model();
    model.layers[0].situ.activation = "a8w4".into();
    model.layers[0].tensors.remove("o_proj");
    model.layers[1].mxfp4_backend = None;
    model.layers[1].tensors.remove("in_proj");
    model.layers[2].use_latent_moe = false;
    model.layers[2].tensors.remove("mlp_seam.norm");
    model.layers[3].kda[0] = scalar("96");
    let found = reasons(&model);
    let expected = [
        "layer 1 o_proj: missing",
        "layer 2: MoE backend must be AITER_MXFP4_BF16 (K3 SiTU)",
        "layer 3: needs a latent MoE with shared experts",
        "layer 12: KDA heads/head_dim/conv_size",
        "layer 1: SiTU activation a8w4 (kernels read the a4w4 layout)",
        "layer 2 in_proj: missing",
        "layer 3 mlp_res_norm: missing",
    ];
    assert_eq!(found, expected, "those that upstream's early exits hide are ours to say");
}

#[test]
fn nano_is_judged_by_its_own_shapes() {
    let model = ModelFacts { layers: vec![layer(3, KindFacts::Ffn)], config: [].into(), ..model() };
    let found: Vec<String> = weight_reasons(&nano(), &model).iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 15, "each of Kimi-K3's tensors is another one: {found:#?}");
    assert!(found.contains(
        &"layer 3 gate: (896, 7168) torch.bfloat16, kernel reads contiguous (32, 256) torch.bfloat16".into()
    ));
    assert_eq!(model.layers[0].layer, Layer(3));
}
