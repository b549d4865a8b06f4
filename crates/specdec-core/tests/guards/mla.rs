//! Every message against MLA layers that M1 would read.

use specdec_core::guards::{mla_cache_reasons, mla_weight_reasons, Dtype, MlaFacts};
use specdec_core::ids::Layer;

use crate::model::{scalar, shard, tensor};

fn facts() -> MlaFacts {
    let dims = [
        ("q_lora_rank", "1536"),
        ("kv_lora_rank", "512"),
        ("qk_nope_head_dim", "128"),
        ("qk_rope_head_dim", "64"),
        ("v_head_dim", "128"),
    ];
    let tensors: [(&str, &[u64], &str); 8] = [
        ("fused_qkv_a_proj", &[3648, 7168], "bfloat16"),
        ("q_a_layernorm", &[1536], "bfloat16"),
        ("kv_a_layernorm", &[512], "bfloat16"),
        ("q_b_proj", &[2304, 1536], "bfloat16"),
        ("W_K", &[12, 512, 64], "uint8"),
        ("W_K_scale", &[12, 512, 4], "uint8"),
        ("W_V", &[12, 128, 256], "uint8"),
        ("W_V_scale", &[12, 128, 16], "uint8"),
    ];
    MlaFacts {
        layer: Layer(3),
        backend: Some("ROCM_AITER_MLA".into()),
        kv_cache_dtype: Some("fp8".into()),
        dims: dims.map(|(name, value)| (name.to_owned(), scalar(value))).into(),
        fp4_bmm: true,
        features: vec![],
        scales: ["_q_scale", "_k_scale"].map(|name| (name.to_owned(), tensor(64, &[], "float32"))).into(),
        tensors: tensors.map(|(name, shape, dtype)| (name.to_owned(), tensor(1 << 30, shape, dtype))).into(),
        kv_cache: Some(tensor(1 << 40, &[9, 1536, 576], "uint8")),
    }
}

fn after(change: impl FnOnce(&mut MlaFacts)) -> Vec<String> {
    let mut facts = facts();
    change(&mut facts);
    let layers = [facts];
    let cache = mla_cache_reasons(&layers);
    mla_weight_reasons(&shard(), &layers).iter().chain(&cache).map(ToString::to_string).collect()
}

#[test]
fn every_message() {
    assert_eq!(after(|_| ()), [""; 0]);
    let own = |change: fn(&mut MlaFacts), reason: &str| assert_eq!(after(change), [reason]);
    own(
        |facts| facts.backend = Some("TRITON_MLA".into()),
        "layer 3: attention backend TRITON_MLA, M1 reads the metadata of ROCM_AITER_MLA",
    );
    own(|facts| facts.kv_cache_dtype = Some("auto".into()), "layer 3: KV cache dtype auto, M1 writes fp8 (E4M3)");
    own(
        |facts| drop(facts.dims.insert("qk_rope_head_dim".into(), scalar("32"))),
        "layer 3: qk_rope_head_dim 32, M1 is built for 64",
    );
    own(|facts| facts.features = vec!["an indexer".into()], "layer 3: an indexer, which M1 does not know");
    own(|facts| facts.fp4_bmm = false, "layer 3: no MXFP4 W_UK and W_UV (set VLLM_ROCM_USE_AITER_FP4BMM=1)");
    own(|facts| drop(facts.tensors.remove("q_b_proj")), "layer 3 q_b_proj: missing");
    own(
        |facts| drop(facts.tensors.insert("q_b_proj".into(), tensor(64, &[9], "bfloat16"))),
        "layer 3 q_b_proj: (9,) torch.bfloat16, kernel reads contiguous (2304, 1536) torch.bfloat16",
    );
    own(
        |facts| drop(facts.tensors.insert("W_V".into(), tensor(64, &[12, 512, 128], "bfloat16"))),
        "layer 3 W_V: (12, 512, 128) torch.bfloat16, M1 reads (12, 128, 256) torch.uint8 by its strides",
    );
    own(
        |facts| drop(facts.scales.insert("_k_scale".into(), tensor(64, &[12], "float32"))),
        "layer 3 _k_scale: (12,) torch.float32, M1 reads one torch.float32",
    );
    own(
        |facts| facts.kv_cache.iter_mut().for_each(|cache| cache.strides[0] += 64),
        "layer 3 kv_cache: (9, 1536, 576) torch.uint8 strides (884800, 576, 1), M1 reads (blocks, block_size, 576) \
         bytes with pages of block_size x 576",
    );
    own(|facts| facts.kv_cache = None, "layer 3 kv_cache: missing");
    own(
        |facts| facts.kv_cache.iter_mut().for_each(|cache| cache.address = 8),
        "layer 3 kv_cache: address 0x8, kernels load 16 bytes at a time: a multiple is needed",
    );
    own(
        |facts| drop(facts.dims.insert("q_lora_rank".into(), scalar("100"))),
        "layer 3: q_lora_rank 100, M1 is built for a multiple of 128",
    );
    let strided = after(|facts| facts.kv_cache.iter_mut().for_each(|cache| cache.dtype = Dtype::Bfloat16));
    assert!(strided[0].starts_with("layer 3 kv_cache: (9, 1536, 576) torch.bfloat16 strides"), "{strided:?}");
}
