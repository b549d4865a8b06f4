"""Descriptions of the tensors of vLLM's decoder layers (spec/runtime.md §4.1, §4.2). Rust judges them.

Any object with vLLM's attributes will do, and a missing attribute is left out: it becomes a reason, not an error.
Nothing of vLLM is imported. Addresses are in bytes, strides in elements.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from .. import _native
from . import WHOLE, facts, layer_kinds

States = tuple[Any, Any]
"""A KDA layer's convolution state as [slots, channels, entries] (a view) and its recurrent state."""

EXPERTS = "mlp.experts"
CONV_WIDTH = _native.K3_SHAPES[-1]
VIEWED = {"conv": (-1, CONV_WIDTH), "a_log": (-1,), "dt_bias": (-1,)}
"""Tensors that the kernels read in another shape than the loaded one."""

NUMBERS = {
    "mlp_seam.eps": "mlp_res_norm.variance_epsilon",
    "mlp_seam.output_eps": "post_attention_layernorm.variance_epsilon",
    "latent_eps": "mlp.routed_expert_norm.variance_epsilon",
}
"""Number of a descriptor -> attributes from the decoder layer, of every layer ..."""

KDA_NUMBERS = {
    "attention_seam.eps": "self_attention_res_norm.variance_epsilon",
    "attention_seam.output_eps": "input_layernorm.variance_epsilon",
    "o_norm_eps": "self_attn.o_norm.eps",
    "gate_lower_bound": "self_attn.gate_lower_bound",
}
"""... and of KDA layers."""

CONFIG = ("num_experts_per_token", "moe_router_activation_func", "moe_renormalize", "num_expert_group", "topk_group",
          "hidden_act", "activation_situ_beta", "activation_situ_linear_beta")
"""What the kernels take for granted and no tensor shows, in the text model's configuration."""

MLA_DIMS = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
MLA_TENSORS = {
    "fused_qkv_a_proj": "fused_qkv_a_proj.weight",
    "q_a_layernorm": "q_a_layernorm.weight",
    "kv_a_layernorm": "kv_a_layernorm.weight",
    "q_b_proj": "q_b_proj.weight",
}
MLA_BMMS = ("W_K", "W_K_scale", "W_V", "W_V_scale")


def find(owner: object, path: str) -> Any:
    """The attribute at a dotted path, or None where any of it is missing; experts are vLLM's routed ones."""
    value: Any = owner
    if path.startswith(f"{EXPERTS}."):
        experts = find(owner, EXPERTS)
        value, path = getattr(experts, "routed_experts", experts), path.removeprefix(f"{EXPERTS}.")
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


def tensor_facts(tensor: object) -> dict[str, Any] | None:
    """Address, shape, strides and type of a tensor; None for anything else."""
    if not isinstance(tensor, Tensor):
        return None
    return {"address": tensor.data_ptr(), "shape": list(tensor.shape), "strides": list(tensor.stride()),
            "dtype": str(tensor.dtype).removeprefix("torch.")}


def scalar(value: object) -> str | None:
    """A value as Python prints it; None: there is none."""
    return value if value is None or isinstance(value, str) else str(value)


def situ_mode() -> dict[str, Any]:
    """How this process runs SiTU, and whether it loads w13 with gate and up rows interleaved: as AITER's switches are
    where vLLM's ops are imported and know, by the environment otherwise.
    """
    ops = getattr(sys.modules.get("vllm._aiter_ops"), "rocm_aiter_ops", None)

    def ask(name: str) -> Any:
        return getattr(ops, name, lambda: None)()

    activation = ask("get_fused_moe_situv2_activation")
    return {"activation": activation or facts.environment()[facts.SITU_V2],
            "interleaved": bool(ask("is_fused_moe_situv2_gate_up_interleaved"))}


def layer_facts(layer: object, index: int, kind: str, situ: Mapping[str, Any]) -> dict[str, Any]:
    """One decoder layer that the kernels run as `kind`; `situ` as `situ_mode` gives it."""
    mlp, attention = getattr(layer, "mlp", None), getattr(layer, "self_attn", None)
    experts = find(layer, EXPERTS)
    experts = getattr(experts, "routed_experts", experts)
    backend = find(experts, "quant_method.mxfp4_backend")
    tensors, shuffled = {}, {}
    for field, _, path, only_kda in _native.LAYER_TENSORS:
        if only_kda and kind != WHOLE:
            continue
        tensor = find(layer, path)
        if (described := tensor_facts(_viewed(field, tensor))) is not None:
            tensors[field] = described
            shuffled[field] = bool(getattr(tensor, "is_shuffled", False))
    numbers = NUMBERS | KDA_NUMBERS if kind == WHOLE else NUMBERS
    writes = bool(getattr(layer, "is_block_write_layer", False))
    return {
        "layer": index,
        "kind": kind,
        "use_latent_moe": bool(getattr(mlp, "use_latent_moe", False)),
        "has_shared_experts": getattr(mlp, "shared_experts", None) is not None,
        "routed_scaling_factor": scalar(getattr(mlp, "routed_scaling_factor", None)),
        "mxfp4_backend": scalar(getattr(backend, "name", backend)),
        "is_k3_situ_aiter": bool(find(experts, "quant_method.is_k3_situ_aiter")),
        "situ": dict(situ),
        "row_sharded": bool(find(mlp, "routed_output_transform.row_sharded")),
        "shuffled": shuffled,
        "tensors": tensors,
        "numbers": {field: scalar(find(layer, path)) for field, path in numbers.items()},
        "kda": [scalar(getattr(attention, name, None)) for name in ("local_num_heads", "head_dim", "conv_size")],
        "num_blocks": scalar(getattr(layer, "prev_valid_blocks", None)),
        "block_write": scalar(getattr(layer, "block_write_idx", None)) if writes else None,
    }


def _viewed(field: str, tensor: object) -> object:
    if field not in VIEWED or not isinstance(tensor, Tensor):
        return tensor
    try:
        return tensor.view(VIEWED[field])
    except RuntimeError:  # no such view: refused in the shape that it has
        return tensor


def own_kinds(model: object) -> dict[int, str]:
    """This rank's served layers -> WHOLE or FFN, of vLLM's `KimiLinearModel`."""
    first, end = getattr(model, "start_layer", 0), getattr(model, "end_layer", sys.maxsize)
    return {layer: kind for layer, kind in layer_kinds(model.config).items() if first <= layer < end}


def model_facts(model: object) -> dict[str, Any]:
    """vLLM's loaded `KimiLinearModel`: its configuration's constants and this rank's served layers."""
    situ = situ_mode()
    return {
        "num_kernel_layers": len(layer_kinds(model.config)),
        "config": {name: scalar(getattr(model.config, name, None)) for name in CONFIG},
        "layers": [layer_facts(model.layers[layer], layer, kind, situ) for layer, kind in own_kinds(model).items()],
    }


def is_conv_state_dim_first() -> bool:
    """Whether vLLM stores convolution states as [channels, entries] a slot (DS) instead of [entries, channels] (SD)."""
    envs = sys.modules.get("vllm.envs")
    layout = getattr(envs, "VLLM_SSM_CONV_STATE_LAYOUT", None) if envs else os.environ.get("VLLM_SSM_CONV_STATE_LAYOUT")
    return layout == "DS"


def kda_names(model: object) -> dict[int, str]:
    """Served KDA layer -> its name in vLLM's metadata; `layer N` for one that has none."""
    whole = [layer for layer, kind in own_kinds(model).items() if kind == WHOLE]
    return {layer: find(model.layers[layer], "self_attn.prefix") or f"layer {layer}" for layer in whole}


def kda_caches(model: object) -> dict[str, States]:
    """The states that vLLM has bound to each served KDA layer, by its name; a layer without a pair of them is left out.

    Convolution state bf16 [slots, channels, entries], a view in both layouts; recurrent state f32
    [slots, heads, head_dim, head_dim] (spec/runtime.md §2.2).
    """
    dim_first, caches = is_conv_state_dim_first(), {}
    for layer, name in kda_names(model).items():
        states = find(model.layers[layer], "self_attn.kv_cache")
        if isinstance(states, (list, tuple)) and len(states) == len(("conv", "recurrent")):
            conv, recurrent = states
            is_stored = isinstance(conv, Tensor) and conv.dim() > 1
            caches[name] = (conv.transpose(-1, -2) if is_stored and not dim_first else conv, recurrent)
    return caches


def cache_facts(caches: Mapping[str, States]) -> list[dict[str, Any]]:
    """States by layer name, as `kda_caches` gives them."""
    return [{"name": name, "conv": tensor_facts(conv), "recurrent": tensor_facts(recurrent)}
            for name, (conv, recurrent) in caches.items()]


def mla_facts(model: object) -> list[dict[str, Any]]:
    """The served MLA layers as M1 would read them (spec/runtime.md §4.4)."""
    return [_mla_layer(getattr(model.layers[layer], "self_attn", None), layer)
            for layer, kind in own_kinds(model).items() if kind != WHOLE]


def _mla_layer(attention: object, index: int) -> dict[str, Any]:
    wrapper = getattr(attention, "mla_attn", None)
    inner = getattr(wrapper, "mla_attn", None)
    backend = find(inner, "attn_backend.get_name")
    tensors = {label: tensor_facts(find(attention, path)) for label, path in MLA_TENSORS.items()}
    tensors |= {name: tensor_facts(getattr(inner, name, None)) for name in MLA_BMMS}
    scales = {name: tensor_facts(getattr(inner, name, None)) for name in ("_q_scale", "_k_scale")}
    features = {"an indexer": getattr(inner, "indexer", None), "rotary embedding": getattr(wrapper, "rotary_emb", None),
                "dcp_q_replicate": getattr(inner, "dcp_q_replicate", None)}
    return {
        "layer": index,
        "backend": backend() if callable(backend) else None,
        "kv_cache_dtype": scalar(getattr(inner, "kv_cache_dtype", None)),
        "dims": {name: scalar(getattr(attention, name, None)) for name in MLA_DIMS},
        "fp4_bmm": bool(getattr(inner, "is_aiter_triton_fp4_bmm_enabled", False)),
        "features": [name for name, value in features.items() if value is not None and value is not False],
        "scales": {name: described for name, described in scales.items() if described},
        "tensors": {name: described for name, described in tensors.items() if described},
        "kv_cache": tensor_facts(getattr(inner, "kv_cache", None)),
    }
