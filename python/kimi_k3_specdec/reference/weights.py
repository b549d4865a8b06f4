"""One rank's weights in the form that vLLM loads them, and the experts read back from it (numerics §7)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from .geometry import MX_GROUP, Geometry, Shard
from .layouts import unshuffle_scales, unshuffle_weight
from .mx import Mx, dequantise

EXPERT_CACHE_BYTES = 192 << 20
"""Dequantised experts kept by one rank: all of nano's, a few of K3's."""

Spec = tuple[torch.dtype, tuple[int, ...]]
"""dtype and shape of a tensor."""


def layer_specs(geometry: Geometry, ranks: int, layer: int) -> dict[str, Spec]:
    """dtype and shape of one layer's loaded tensors on one rank, by attribute path under `model.layers[i]`.

    The table of numerics §7; `mlp.experts` is vLLM's `mlp.experts.routed_experts`, scales are two-dimensional.
    """
    g, s = geometry, geometry.shard(ranks)
    bf16, f32, u8 = torch.bfloat16, torch.float32, torch.uint8
    specs: dict[str, Spec] = {
        f"{name}.weight": (bf16, (g.hidden,))
        for name in ("self_attention_res_norm", "mlp_res_norm", "input_layernorm", "post_attention_layernorm")
    }
    specs |= {f"{n}.weight": (bf16, (1, g.hidden)) for n in ("self_attention_res_proj", "mlp_res_proj")}
    specs["self_attn.o_proj.weight"] = (bf16, (g.hidden, s.projection))
    if g.layer_kind(layer) == "kda":
        specs |= {
            "self_attn.in_proj_qkvgfab.weight": (bf16, (s.in_proj_rows, g.hidden)),
            "self_attn.f_b_proj.weight": (bf16, (s.projection, g.head_dim)),
            "self_attn.conv1d.weight": (f32, (s.conv_channels, 1, g.conv_width)),
            "self_attn.A_log": (f32, (s.heads,)),
            "self_attn.dt_bias": (f32, (s.projection,)),
            "self_attn.o_norm.weight": (bf16, (g.head_dim,)),
        }
    else:
        specs |= {
            "self_attn.fused_qkv_a_proj.weight": (bf16, (s.qkv_a_rows, g.hidden)),
            "self_attn.q_a_layernorm.weight": (bf16, (g.q_lora,)),
            "self_attn.kv_a_layernorm.weight": (bf16, (g.kv_lora,)),
            "self_attn.q_b_proj.weight": (bf16, (s.q_b_rows, g.q_lora)),
            "self_attn.mla_attn.W_UK_T": (bf16, (s.mla_heads, g.nope, g.kv_lora)),
            "self_attn.mla_attn.W_UV": (bf16, (s.mla_heads, g.kv_lora, g.v_dim)),
        }
    if g.is_dense(layer):
        return specs | {
            "mlp.gate_up_proj.weight": (bf16, (2 * s.dense_intermediate, g.hidden)),
            "mlp.down_proj.weight": (bf16, (g.hidden, s.dense_intermediate)),
        }
    scale_rows = [-(-g.num_experts * rows // 256) * 256 for rows in (2 * s.moe_intermediate, g.latent)]
    return specs | {
        "mlp.gate.weight": (bf16, (g.num_experts, g.hidden)),
        "mlp.gate.e_score_correction_bias": (f32, (g.num_experts,)),
        "mlp.routed_expert_down_proj.weight": (bf16, (g.latent, g.hidden)),
        "mlp.routed_expert_norm.weight": (bf16, (g.latent,)),
        "mlp.routed_expert_up_proj.weight": (bf16, (s.hidden_rows, g.latent)),
        "mlp.shared_experts.gate_up_proj.weight": (bf16, (2 * s.shared_intermediate, g.hidden)),
        "mlp.shared_experts.down_proj.weight": (bf16, (g.hidden, s.shared_intermediate)),
        "mlp.experts.w13_weight": (u8, (g.num_experts, 2 * s.moe_intermediate, g.latent // 2)),
        "mlp.experts.w13_weight_scale": (u8, (scale_rows[0], s.w13_scale_columns)),
        "mlp.experts.w2_weight": (u8, (g.num_experts, g.latent, s.moe_intermediate // 2)),
        "mlp.experts.w2_weight_scale": (u8, (scale_rows[1], s.w2_scale_columns)),
    }


def top_specs(geometry: Geometry, ranks: int) -> dict[str, Spec]:
    """dtype and shape of one rank's tensors outside the layers, by attribute path under `model` (and the head)."""
    g, s, bf16 = geometry, geometry.shard(ranks), torch.bfloat16
    return {
        "embed_tokens.weight": (bf16, (s.vocab_rows, g.hidden)),
        "output_attn_res_norm.weight": (bf16, (g.hidden,)),
        "output_attn_res_proj.weight": (bf16, (1, g.hidden)),
        "norm.weight": (bf16, (g.hidden,)),
        "lm_head.weight": (bf16, (s.vocab_rows, g.hidden)),
    }


@dataclass
class RankWeights:
    """What one rank holds; `layers` may lack layers that nobody runs."""

    geometry: Geometry
    ranks: int
    rank: int
    top: dict[str, Tensor]
    """By the names of `top_specs`."""
    layers: dict[int, dict[str, Tensor]]
    """By layer, then by the names of `layer_specs`."""
    fill_expert: Callable[[int, int], None] | None = None
    """Called with (layer, expert) before an expert's bytes are first read: makes it where it was left out."""
    expert_cache_bytes: int = EXPERT_CACHE_BYTES
    """Of dequantised experts that are kept."""
    _experts: OrderedDict[tuple[int, int, str], Tensor] = field(default_factory=OrderedDict, repr=False)
    _cached_bytes: int = 0

    @property
    def shard(self) -> Shard:
        """This rank's sizes."""
        return self.geometry.shard(self.ranks)

    @property
    def router_rows(self) -> slice:
        """Experts whose logit this rank computes, out of the replicated router."""
        return self._own(self.shard.router_rows)

    @property
    def latent_rows(self) -> slice:
        """Latent columns that this rank computes, out of the replicated down projection."""
        return self._own(self.shard.latent_rows)

    @property
    def hidden_columns(self) -> slice:
        """Hidden columns whose up projection this rank holds."""
        return self._own(self.shard.hidden_rows)

    def w13(self, layer: int) -> Callable[[int], Tensor]:
        """Expert -> float32 [2 * I, latent], gate rows first, dequantised from the shuffled bytes."""
        return partial(self._expert, layer, "w13")

    def w2(self, layer: int) -> Callable[[int], Tensor]:
        """Expert -> float32 [latent, I], dequantised from the shuffled bytes."""
        return partial(self._expert, layer, "w2")

    def forget(self, layer: int, experts: Iterable[int]) -> None:
        """Drops cached experts whose bytes someone changed (fault injection)."""
        for expert in experts:
            for part in ("w13", "w2"):
                dropped = self._experts.pop((layer, expert, part), None)
                self._cached_bytes -= 0 if dropped is None else dropped.nbytes

    def _expert(self, layer: int, part: str, expert: int) -> Tensor:
        key = (layer, expert, part)
        if key not in self._experts:
            if self.fill_expert is not None:
                self.fill_expert(layer, expert)
            self._experts[key] = dequantise(expert_mx(self.layers[layer], part, expert))
            self._cached_bytes += self._experts[key].nbytes
            while self._cached_bytes > self.expert_cache_bytes and len(self._experts) > 1:
                self._cached_bytes -= self._experts.popitem(last=False)[1].nbytes
        self._experts.move_to_end(key)
        return self._experts[key]

    def _own(self, size: int) -> slice:
        return slice(self.rank * size, (self.rank + 1) * size)


def expert_mx(layer: dict[str, Tensor], part: str, expert: int) -> Mx:
    """One expert's matrix `part` (`w13` or `w2`), un-shuffled: packed [N, K / 2], codes [N, K / 32] without padding."""
    shuffled = layer[f"mlp.experts.{part}_weight"][expert]
    rows, packed_columns = shuffled.shape
    scales = layer[f"mlp.experts.{part}_weight_scale"][expert * rows : (expert + 1) * rows]
    return Mx(unshuffle_weight(shuffled), unshuffle_scales(scales)[:, : packed_columns * 2 // MX_GROUP])
