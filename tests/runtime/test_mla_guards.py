"""M1's guards: the MLA layers' weights, scales and caches."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from kimi_k3_specdec.runtime import guards

from . import loaded

BF16, F32, BYTES = torch.bfloat16, torch.float32, torch.uint8
DENSE = {
    "fused_qkv_a_proj": (3648, 7168),
    "q_a_layernorm": (1536,),
    "kv_a_layernorm": (512,),
    "q_b_proj": (2304, 1536),
}
DIMS = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}


@pytest.fixture
def model() -> SimpleNamespace:
    """A model whose one MLA layer of this rank M1 could read."""
    made = loaded.model()
    made.start_layer, made.end_layer = 3, 4
    attention = made.layers[3].self_attn
    for name, value in DIMS.items():
        setattr(attention, name, value)
    for name, shape in DENSE.items():
        loaded.place(attention, f"{name}.weight", loaded.tensor(BF16, shape))
    attention.mla_attn = SimpleNamespace(rotary_emb=None, mla_attn=SimpleNamespace(
        attn_backend=SimpleNamespace(get_name=lambda: "ROCM_AITER_MLA"), kv_cache_dtype="fp8",
        is_aiter_triton_fp4_bmm_enabled=True, indexer=None, dcp_q_replicate=False,
        _q_scale=torch.tensor(1.0), _k_scale=torch.tensor(1.0),
        W_K=loaded.tensor(BYTES, (512, 12, 64)).transpose(0, 1),
        W_K_scale=loaded.tensor(BYTES, (4, 512, 12)).permute(2, 1, 0),
        W_V=loaded.tensor(BYTES, (12, 128, 256)), W_V_scale=loaded.tensor(BYTES, (16, 12, 128)).permute(1, 2, 0),
        kv_cache=loaded.tensor(BYTES, (5, 1536, 576))))
    return made


def test_a_served_layer_has_no_reason(model: SimpleNamespace) -> None:
    """Transposed views of the quantiser included."""
    assert guards.mla_weight_reasons(model) == []
    assert guards.mla_cache_reasons(model) == []


def test_every_reason_is_listed(model: SimpleNamespace) -> None:
    """In one list, in order."""
    attention = model.layers[3].self_attn
    inner = attention.mla_attn.mla_attn
    attention.qk_rope_head_dim, attention.q_a_layernorm.weight = 0, None
    attention.mla_attn.rotary_emb = object()
    inner.attn_backend, inner.kv_cache_dtype, inner.is_aiter_triton_fp4_bmm_enabled = None, "bfloat16", False
    inner._k_scale = torch.ones(12)
    inner.kv_cache = loaded.tensor(BYTES, (5, 1600, 576))[:, :1536]
    assert guards.mla_weight_reasons(model) == [
        "layer 3: attention backend None, M1 reads the metadata of ROCM_AITER_MLA",
        "layer 3: KV cache dtype bfloat16, M1 writes fp8 (E4M3)",
        "layer 3: qk_rope_head_dim 0, M1 is built for 64",
        "layer 3: rotary embedding, which M1 does not know",
        "layer 3 q_a_layernorm: missing",
        "layer 3: no MXFP4 W_UK and W_UV (set VLLM_ROCM_USE_AITER_FP4BMM=1)",
        "layer 3 _k_scale: (12,) torch.float32, M1 reads one torch.float32",
    ]
    assert guards.mla_cache_reasons(model) == [
        "layer 3 kv_cache: (5, 1536, 576) torch.uint8 strides (921600, 576, 1), M1 reads (blocks, block_size, 576) "
        "bytes with pages of block_size x 576"
    ]


def test_a_layer_without_attention_is_refused(model: SimpleNamespace) -> None:
    """Missing attributes are reasons."""
    model.layers[3].self_attn = SimpleNamespace()
    assert guards.mla_weight_reasons(model)[:2] == [
        "layer 3: attention backend None, M1 reads the metadata of ROCM_AITER_MLA",
        "layer 3: KV cache dtype None, M1 writes fp8 (E4M3)",
    ]
