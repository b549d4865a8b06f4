"""The MoE half of a layer: router, latent, MXFP4 experts, up projection (numerics §5).

Functions take one rank's tensors, `weights` being that rank's tensors of the layer by their loaded names; the
functions whose first argument is a sequence fold what all ranks contributed, in rank order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .attn_res import LOG2_E
from .bf16 import all_reduce, bf, dot, precise, rms_norm, wide
from .geometry import Geometry, Shard
from .mx import Mx, dequantise, quantise_moe
from .situ import situ, situ_experts

NAN_KEY = -3e38
"""Selection key of a NaN: it ranks last, whatever the others are (numerics §5, step 3)."""

ExpertWeight = Callable[[int], Tensor]
"""Gives one expert's dequantised float32 [N, K] matrix, as `RankWeights.w13` and `.w2` do."""


class Selection(NamedTuple):
    """The picked experts of each row, in slot order."""

    ids: Tensor
    """int64 [S, top_k]."""
    weights: Tensor
    """float32 [S, top_k], of sum 1."""
    keys: Tensor
    """float32 [S, E]: what was sorted, for near-tie checks."""


@dataclass
class ExpertHidden:
    """The activations of every pick on one rank."""

    gate_up: Tensor
    """float32 [S, top_k, 2 * I]: never rounded to bf16 (float64 when exact)."""
    hidden: Tensor
    """float32 [S, top_k, I], before quantisation (float64 when exact)."""
    quantised: Mx
    """packed uint8 [S, top_k, I / 2], codes uint8 [S, top_k, I / 32]."""


@dataclass
class ExpertDown:
    """The routed experts' output on one rank."""

    acc: Tensor
    """float32 [S, top_k, latent]: each pick's down projection (float64 when exact)."""
    y: Tensor
    """bf16 [S, latent]: the picks folded in slot order."""


def router_logits(x: Tensor, gate: Tensor, exact: bool = False) -> Tensor:
    """float32 [S, n] of `x` bf16 [S, H] and `gate` bf16 [n, H], this rank's rows of the router; never bf16."""
    return dot(x, gate, exact)


def latent_down(x: Tensor, weight: Tensor, exact: bool = False) -> Tensor:
    """bf16 [S, n] of `x` bf16 [S, H] and `weight` bf16 [n, H], this rank's rows of the latent down projection."""
    y = dot(x, weight, exact)
    return y if exact else bf(y)


def select_experts(logits: Tensor, bias: Tensor, top_k: int) -> Selection:
    """Top-k of sigmoid + bias, ties to the lower id, and renormalised un-biased weights (numerics §5, step 3).

    `logits` float32 [S, E] of all ranks, `bias` float32 [E]. Plain fp32 steps in the kernels' order.
    """
    s = 1 / (1 + precise(torch.exp2, -LOG2_E * logits))
    keys = s + bias
    bad = keys.isnan()
    keys = torch.where(bad, NAN_KEY, keys)
    s = torch.where(bad, 0.0, s)
    # A stable descending sort keeps equal keys in id order.
    ids = keys.sort(dim=-1, descending=True, stable=True).indices[:, :top_k]
    picked = s.gather(1, ids)
    denominator = torch.zeros(s.shape[0])
    for slot in range(top_k):
        denominator = denominator + picked[:, slot]
    return Selection(ids, picked * (1 / denominator)[:, None], keys)


def quantise_latent(latent: Tensor) -> Mx:
    """The experts' input: `latent` bf16 [S, latent] as MXFP4 (numerics §5, step 5)."""
    return quantise_moe(latent)


def expert_hidden(latent: Mx, ids: Tensor, w13: ExpertWeight, geometry: Geometry, exact: bool = False) -> ExpertHidden:
    """Gate, up, SiTU and re-quantisation of every pick (numerics §5, steps 6 and 7).

    `latent` packed [S, latent / 2], `ids` int64 [S, top_k]. Products of two MXFP4 values and their sums are exact in
    float64 unless scales in one row differ by more than about 2**40.
    """
    x = dequantise(latent).to(torch.float64)
    gate_up = _per_pick(ids, w13, lambda row, _: x[row])
    if exact:
        hidden = situ(*gate_up.chunk(2, -1), geometry)
    else:
        gate_up = gate_up.to(torch.float32)
        hidden = situ_experts(*gate_up.chunk(2, -1), geometry)
    return ExpertHidden(gate_up, hidden, quantise_moe(hidden.to(torch.float32)))


def expert_down(hidden: Mx, selection: Selection, w2: ExpertWeight, exact: bool = False) -> ExpertDown:
    """Down projection and the ordered fold `y = bf(y + bf(acc * w))` (numerics §5, step 8).

    `hidden` packed [S, top_k, I / 2]. The rounding after each add is part of the contract.
    """
    x = dequantise(hidden).to(torch.float64)
    acc = wide(_per_pick(selection.ids, w2, lambda row, slot: x[row, slot]), exact)
    return ExpertDown(acc, fold_picks(acc, selection.weights))


def fold_picks(acc: Tensor, weights: Tensor) -> Tensor:
    """bf16 [S, latent] of `acc` [S, top_k, latent] and `weights` float32 [S, top_k], in slot order."""
    y = torch.zeros(acc.shape[0], acc.shape[2], dtype=torch.bfloat16)
    for slot in range(acc.shape[1]):
        part = bf(wide(acc[:, slot]) * weights[:, slot, None])
        y = bf(wide(y) + wide(part))
    return y


def latent_reduce(partials: Sequence[Tensor]) -> Tensor:
    """z bf16 [S, latent]: every rank's y, summed in fp32 in rank order (numerics §5, step 9)."""
    return all_reduce(partials)


def latent_norm(z: Tensor, weight: Tensor, eps: float) -> Tensor:
    """zn bf16 [S, latent]: RMSNorm of the combined latent."""
    return rms_norm(z, weight, eps)


def up_partial(zn: Tensor, shared: Tensor, weights: Mapping[str, Tensor], shard: Shard, rank: int,
               exact: bool = False) -> Tensor:
    """This rank's term of the final sum, bf16 [S, H] (numerics §5, step 11).

    `shared` bf16 [S, H] is the shared experts' partial; the up projection is added in fp32 to the hidden columns that
    this rank owns, before their only rounding.
    """
    own = slice(rank * shard.hidden_rows, (rank + 1) * shard.hidden_rows)
    out = wide(shared, exact).clone()
    out[:, own] += dot(zn, weights["mlp.routed_expert_up_proj.weight"], exact)
    return out if exact else bf(out)


def final_sum(partials: Sequence[Tensor]) -> Tensor:
    """The layer's output bf16 [S, H], the next delta: `up_partial` of every rank in rank order."""
    return all_reduce(partials)


def _per_pick(ids: Tensor, matrix: ExpertWeight, row_of: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """float64 [S, top_k, N]: each picked expert's matrix times `row_of(rows, slots)` of the rows that picked it."""
    out = None
    for expert in ids.unique().tolist():
        row, slot = (ids == expert).nonzero(as_tuple=True)
        result = row_of(row, slot) @ matrix(expert).to(torch.float64).T
        if out is None:
            out = torch.empty(*ids.shape, result.shape[-1], dtype=torch.float64)
        out[row, slot] = result
    return out
