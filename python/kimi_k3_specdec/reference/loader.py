"""From checkpoint tensors to each rank's loaded form: fused, sliced, shuffled (numerics §7)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .geometry import Geometry
from .layouts import shuffle_scales, shuffle_weight
from .mla import absorb
from .weights import RankWeights

Fetch = Callable[[str], Tensor]
"""Gives a checkpoint tensor by name."""


def rank_weights(fetch: Fetch, geometry: Geometry, ranks: int, layers: range | None = None) -> list[RankWeights]:
    """Every rank's loaded weights of `layers` (all by default), out of tensors whose shapes are known to fit."""
    geometry.shard(ranks)
    chosen = range(geometry.num_layers) if layers is None else layers
    return [
        RankWeights(geometry, ranks, rank, _top(fetch, ranks, rank),
                    {i: LayerLoader(fetch, geometry, ranks, rank, i).load() for i in chosen})
        for rank in range(ranks)
    ]


def _top(fetch: Fetch, ranks: int, rank: int) -> dict[str, Tensor]:
    names = ("output_attn_res_norm.weight", "output_attn_res_proj.weight", "norm.weight")
    return {n: fetch(f"model.{n}") for n in names} | {
        "embed_tokens.weight": fetch("model.embed_tokens.weight").chunk(ranks)[rank],
        "lm_head.weight": fetch("lm_head.weight").chunk(ranks)[rank],
    }


class LayerLoader:
    """Makes one layer's tensors on one rank."""

    def __init__(self, fetch: Fetch, geometry: Geometry, ranks: int, rank: int, layer: int) -> None:
        """`fetch` gives the whole checkpoint's tensors."""
        self.geometry, self.ranks, self.rank, self.layer = geometry, ranks, rank, layer
        self.shard = geometry.shard(ranks)
        self._fetch = fetch

    def load(self) -> dict[str, Tensor]:
        """The tensors that `layer_specs` lists."""
        g = self.geometry
        names = ("self_attention_res_norm", "mlp_res_norm", "input_layernorm", "post_attention_layernorm",
                 "self_attention_res_proj", "mlp_res_proj")
        tensors = {f"{n}.weight": self._whole(f"{n}.weight") for n in names}
        tensors["self_attn.o_proj.weight"] = self._columns("self_attn.o_proj.weight")
        tensors |= self._kda() if g.layer_kind(self.layer) == "kda" else self._mla()
        return tensors | (self._dense() if g.is_dense(self.layer) else self._moe())

    def _whole(self, name: str) -> Tensor:
        return self._fetch(f"model.layers.{self.layer}.{name}")

    def _rows(self, name: str) -> Tensor:
        return self._whole(name).chunk(self.ranks, 0)[self.rank]

    def _columns(self, name: str) -> Tensor:
        return self._whole(name).chunk(self.ranks, 1)[self.rank].contiguous()

    def _kda(self) -> dict[str, Tensor]:
        s, a = self.shard, "self_attn"
        fused = [self._rows(f"{a}.{n}_proj.weight") for n in "qkvg"]
        fused += [self._whole(f"{a}.f_a_proj.weight"), self._rows(f"{a}.b_proj.weight")]
        fused.append(torch.zeros(s.in_proj_rows - s.in_proj_used, self.geometry.hidden, dtype=torch.bfloat16))
        return {
            f"{a}.in_proj_qkvgfab.weight": torch.cat(fused),
            f"{a}.f_b_proj.weight": self._rows(f"{a}.f_b_proj.weight"),
            f"{a}.conv1d.weight": torch.cat([self._rows(f"{a}.{n}_conv1d.weight") for n in "qkv"]),
            # Entries past the real heads are zero and belong to nobody: a slice, not an equal chunk of the whole.
            f"{a}.A_log": self._whole(f"{a}.A_log")[self.rank * s.heads : (self.rank + 1) * s.heads],
            f"{a}.dt_bias": self._rows(f"{a}.dt_bias"),
            f"{a}.o_norm.weight": self._whole(f"{a}.o_norm.weight"),
        }

    def _mla(self) -> dict[str, Tensor]:
        a = "self_attn"
        fused = (self._whole(f"{a}.q_a_proj.weight"), self._whole(f"{a}.kv_a_proj_with_mqa.weight"),
                 self._rows(f"{a}.g_proj.weight"))
        w_uk_t, w_uv = absorb(self._rows(f"{a}.kv_b_proj.weight"), self.geometry)
        return {
            f"{a}.fused_qkv_a_proj.weight": torch.cat(fused),
            f"{a}.q_a_layernorm.weight": self._whole(f"{a}.q_a_layernorm.weight"),
            f"{a}.kv_a_layernorm.weight": self._whole(f"{a}.kv_a_layernorm.weight"),
            f"{a}.q_b_proj.weight": self._rows(f"{a}.q_b_proj.weight"),
            f"{a}.mla_attn.W_UK_T": w_uk_t,
            f"{a}.mla_attn.W_UV": w_uv,
        }

    def _mlp(self, prefix: str, name: str) -> dict[str, Tensor]:
        gate_up = [self._rows(f"{prefix}.{n}_proj.weight") for n in ("gate", "up")]
        return {
            f"{name}.gate_up_proj.weight": torch.cat(gate_up),
            f"{name}.down_proj.weight": self._columns(f"{prefix}.down_proj.weight"),
        }

    def _dense(self) -> dict[str, Tensor]:
        return self._mlp("mlp", "mlp")

    def _moe(self) -> dict[str, Tensor]:
        m = "block_sparse_moe"
        whole = ("gate.weight", "gate.e_score_correction_bias", "routed_expert_down_proj.weight",
                 "routed_expert_norm.weight")
        tensors = {f"mlp.{n}": self._whole(f"{m}.{n}") for n in whole}
        tensors["mlp.routed_expert_up_proj.weight"] = self._rows(f"{m}.routed_expert_up_proj.weight")
        tensors |= self._mlp(f"{m}.shared_experts", "mlp.shared_experts")
        for part, names, take in (("w13", ("w1", "w3"), self._rows), ("w2", ("w2",), self._columns)):
            for suffix, loaded in (("packed", "weight"), ("scale", "weight_scale")):
                experts = torch.stack([
                    torch.cat([take(f"{m}.experts.{e}.{n}.weight_{suffix}") for n in names])
                    for e in range(self.geometry.num_experts)
                ])
                shuffled = shuffle_weight(experts) if suffix == "packed" else shuffle_scales(experts.flatten(0, 1))
                tensors[f"mlp.experts.{part}_{loaded}"] = shuffled
        return tensors
