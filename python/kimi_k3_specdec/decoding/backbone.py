"""One rank's reference weights in the shape of vLLM's `KimiLinearModel`: what the runtime finds its tensors by."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ..reference.geometry import Geometry
from ..reference.kda import KdaState
from ..reference.weights import RankWeights

ROUTED = "mlp.experts.routed_experts"
"""Where vLLM keeps what the reference calls `mlp.experts`."""
SHUFFLED = ("mlp.experts.w13_weight", "mlp.experts.w2_weight")


def backbone(weights: RankWeights, states: dict[int, KdaState]) -> SimpleNamespace:
    """The model as this rank has loaded it; `states`, by KDA layer, are the caches bound to it."""
    g = weights.geometry
    layers = {layer: _layer(weights, layer, states.get(layer)) for layer in sorted(weights.layers)}
    return SimpleNamespace(config=_text_config(g), layers=layers, start_layer=0, end_layer=g.num_layers)


def layer_name(layer: int) -> str:
    """A layer's attention in vLLM's metadata."""
    return f"model.layers.{layer}.self_attn"


def _layer(weights: RankWeights, index: int, state: KdaState | None) -> SimpleNamespace:
    g, made = weights.geometry, SimpleNamespace()
    for path, tensor in weights.layers[index].items():
        tensor.is_shuffled = path in SHUFFLED
        _place(made, path.replace("mlp.experts", ROUTED), tensor)
    for norm in ("mlp_res_norm", "post_attention_layernorm", "self_attention_res_norm", "input_layernorm"):
        _place(made, f"{norm}.variance_epsilon", g.rms_eps)
    made.is_block_write_layer = g.is_block_write(index)
    made.block_write_idx, made.prev_valid_blocks = index // g.attn_res_block_size, g.prev_valid_blocks(index)
    if not g.is_dense(index):
        mlp = made.mlp
        mlp.use_latent_moe, mlp.routed_scaling_factor = True, 1.0
        mlp.routed_expert_norm.variance_epsilon = g.rms_eps
        mlp.routed_output_transform = SimpleNamespace(row_sharded=True)
        mlp.experts.routed_experts.quant_method = SimpleNamespace(
            mxfp4_backend=SimpleNamespace(name="AITER_MXFP4_BF16"), is_k3_situ_aiter=True)
    if state is not None:
        attention = made.self_attn
        attention.prefix, attention.kv_cache = layer_name(index), (state.conv, state.recurrent)
        attention.local_num_heads, attention.head_dim = weights.shard.heads, g.head_dim
        attention.conv_size, attention.gate_lower_bound = g.conv_width, g.gate_lower_bound
        attention.o_norm.eps = g.o_norm_eps
    return made


def _place(owner: Any, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        if not hasattr(owner, name):
            setattr(owner, name, SimpleNamespace())
        owner = getattr(owner, name)
    setattr(owner, last, value)


def _text_config(g: Geometry) -> SimpleNamespace:
    """The text model's configuration, as far as the runtime reads it."""
    kda = [layer + 1 for layer in g.kda_layers]
    attention = {"kda_layers": kda, "full_attn_layers": [layer + 1 for layer in g.mla_layers],
                 "num_heads": g.kda_heads, "head_dim": g.head_dim, "short_conv_kernel_size": g.conv_width}
    return SimpleNamespace(
        hidden_size=g.hidden, num_experts=g.num_experts, num_experts_per_token=g.top_k, num_hidden_layers=g.num_layers,
        attn_res_block_size=g.attn_res_block_size, first_k_dense_replace=1, moe_layer_freq=1,
        moe_router_activation_func="sigmoid", moe_renormalize=True, num_expert_group=1, topk_group=1, hidden_act="situ",
        activation_situ_beta=g.situ_beta, activation_situ_linear_beta=g.situ_linear_beta, linear_attn_config=attention)
