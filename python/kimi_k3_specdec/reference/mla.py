"""Multi-head latent attention over a compressed cache, without rotation (numerics §6).

Every function takes one rank's tensors. The cache holds one row per token, the same on every rank. A prompt is
attended exactly as decode rows are, through the quantised cache, so that prefill and decode agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from .bf16 import bf, dot, precise, rms_norm, wide
from .geometry import Geometry, Shard

KvDtype = Literal["fp8", "bf16"]

FP8_MAX = 448.0
"""Largest E4M3 value: conversions saturate to it explicitly (numerics §10)."""


def fp8(x: Tensor) -> Tensor:
    """`x` as E4M3, nearest even, saturating; `torch.float8_e4m3fn`."""
    return x.to(torch.float32).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


@dataclass
class LatentCache:
    """One MLA layer's cache: `rows` [slots, 576], uint8 bytes of E4M3 values, or bf16 (numerics §6.2)."""

    rows: Tensor

    @staticmethod
    def allocate(geometry: Geometry, slots: int, kv_dtype: KvDtype = "fp8") -> LatentCache:
        """A cache of `slots` flat token slots, zeroed."""
        dtype = torch.uint8 if kv_dtype == "fp8" else torch.bfloat16
        return LatentCache(torch.zeros(slots, geometry.latent_row, dtype=dtype))

    @property
    def is_fp8(self) -> bool:
        """Whether rows, and so queries, are E4M3."""
        return self.rows.dtype == torch.uint8

    def quantise(self, x: Tensor) -> Tensor:
        """`x` as the cache and the query hold it; the scales of q and k are 1 (numerics §6.1)."""
        return fp8(x) if self.is_fp8 else bf(x)

    def store(self, latent: Tensor, slot_mapping: Tensor) -> None:
        """Writes `latent` [S, 576] at flat slots int64 [S]; a negative slot writes nothing."""
        kept = slot_mapping >= 0
        rows = self.quantise(latent)[kept]
        self.rows[slot_mapping[kept]] = rows.view(torch.uint8) if self.is_fp8 else rows

    def gather(self, slots: Tensor) -> Tensor:
        """float32 [n, 576] at flat slots int64 [n]; a negative slot reads slot 0 (padding, nobody's token)."""
        rows = self.rows[slots.clamp(min=0)]
        return (rows.view(torch.float8_e4m3fn) if self.is_fp8 else rows).to(torch.float32)


@dataclass
class MlaFront:
    """What attention needs of S rows on one rank, not yet quantised."""

    query: Tensor
    """bf16 [S, heads, 576]: the absorbed query, then its "rope" part."""
    latent: Tensor
    """bf16 [S, 576]: the normed compressed KV, then the un-normed "rope" part."""
    gate: Tensor
    """bf16 [S, heads * v]."""


def mla_front(x: Tensor, weights: Mapping[str, Tensor], shard: Shard) -> MlaFront:
    """From the attention seam's `x` bf16 [S, H] to query, cache row and gate (numerics §6.1)."""
    g = shard.geometry
    a = bf(dot(x, weights["self_attn.fused_qkv_a_proj.weight"]))
    q_c, kv_c, k_pe, gate = a.split([g.q_lora, g.kv_lora, g.rope, shard.mla_projection], -1)
    qn = rms_norm(q_c, weights["self_attn.q_a_layernorm.weight"], g.rms_eps)
    cn = rms_norm(kv_c, weights["self_attn.kv_a_layernorm.weight"], g.rms_eps)
    query = bf(dot(qn, weights["self_attn.q_b_proj.weight"])).unflatten(-1, (shard.mla_heads, g.q_head_dim))
    absorbed = _per_head(query[..., : g.nope], weights["self_attn.mla_attn.W_UK_T"])
    return MlaFront(torch.cat((absorbed, query[..., g.nope :]), -1), torch.cat((cn, k_pe), -1), gate)


def attend(query: Tensor, cached: Tensor, scale: float, kv_lora: int) -> Tensor:
    """One request's attention: bf16 [q, heads, kv_lora].

    `query` as the cache holds it [q, heads, 576]; `cached` float32 [n, 576], the rows of all its n tokens, the last q
    of them the query's own: row t sees positions < n - q + t + 1.
    """
    q, n = query.shape[0], cached.shape[0]
    keys = cached.to(torch.float64)
    score = (query.to(torch.float64) @ keys.T).to(torch.float32) * scale
    visible = torch.arange(n) < (n - q + 1 + torch.arange(q))[:, None]
    p = torch.softmax(score.masked_fill(~visible[:, None], -torch.inf).to(torch.float64), -1)
    return bf((p @ keys[:, :kv_lora]).to(torch.float32))


def mla_back(att: Tensor, gate: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """o_proj's input bf16 [S, heads * v] of `att` bf16 [S, heads, kv_lora] and `gate` bf16 [S, heads * v]."""
    value = _per_head(att, weights["self_attn.mla_attn.W_UV"]).flatten(1)
    return bf(wide(value) * precise(torch.sigmoid, wide(gate)))


def mla_core(front: MlaFront, cache: LatentCache, weights: Mapping[str, Tensor], shard: Shard,
             token_slots: list[Tensor]) -> Tensor:
    """Attention and back for R requests of equal length q, their rows already stored: bf16 [S, heads * v].

    `token_slots`: for each request, the flat cache slots int64 [seq_len] of all its tokens, this step's included.
    """
    g, q = shard.geometry, front.query.shape[0] // len(token_slots)
    queries = cache.quantise(front.query).to(torch.float32).unflatten(0, (-1, q))
    att = [
        attend(query, cache.gather(slots), g.softmax_scale, g.kv_lora)
        for query, slots in zip(queries, token_slots, strict=True)
    ]
    return mla_back(torch.cat(att), front.gate, weights)


def absorb(kv_b: Tensor, geometry: Geometry) -> tuple[Tensor, Tensor]:
    """W_UK_T [heads, nope, kv_lora] and W_UV [heads, kv_lora, v], views of `kv_b` [heads * (nope + v), kv_lora]."""
    per_head = kv_b.unflatten(0, (-1, geometry.nope + geometry.v_dim))
    return per_head[:, : geometry.nope], per_head[:, geometry.nope :].transpose(1, 2)


def _per_head(x: Tensor, weight: Tensor) -> Tensor:
    """bf16 [S, heads, N] of `x` bf16 [S, heads, K] and one matrix a head, `weight` bf16 [heads, K, N]."""
    y = torch.einsum("shk,hkn->shn", x.to(torch.float64), weight.to(torch.float64))
    return bf(y.to(torch.float32))
