"""The routed experts (numerics §5, steps 6 to 8), from the device's own codes and picks."""

from __future__ import annotations

import torch
from torch import Tensor

from ...reference import moe
from ...reference.geometry import MX_GROUP
from ...reference.moe import ExpertWeight
from ...reference.mx import E2M1_VALUES, Mx, dequantise, e8m0_scale, moe_code, unpack_nibbles
from ..exchanges import hidden_scale_order
from .bounds import rounded
from .layer import LayerCheck
from .moe import situ_bound

MX_DOT = 2.0**-21
"""fp32 accumulation of MXFP4 products, relative to their magnitudes. Most of these sums are exact."""

TIE = 1e-6
"""Relative distance from a tie at which a code or a nibble may fall either way (numerics §10)."""

_MAGNITUDES = E2M1_VALUES[:8].to(torch.float64)
_UPPER = torch.cat(((_MAGNITUDES[:-1] + _MAGNITUDES[1:]) / 2, torch.tensor([torch.inf], dtype=torch.float64)))


def check_expert_hidden(check: LayerCheck) -> None:
    """Gate and up of every pick, SiTU, and the MXFP4 form that the device stored."""
    for rank in check.ranks:
        _check_hidden(check, rank)


def _check_hidden(check: LayerCheck, rank: int) -> None:
    g, witness = check.geometry, check.witnesses[rank]
    rows, top_k, inter = check.rows, g.top_k, check.shard.moe_intermediate
    latent = dequantise(Mx(witness.packed, witness.codes)).to(torch.float64)
    inputs = latent[:, None].expand(rows, top_k, -1)
    y, slack = picked_gemv(witness.picks, inputs, check.weights[rank].w13(check.layer))
    hidden, hidden_slack = situ_bound(*y.chunk(2, -1), *slack.chunk(2, -1), check)
    found = stored_hidden(check, rank)
    groups = hidden.unflatten(-1, (-1, MX_GROUP))
    group_slack = hidden_slack.unflatten(-1, (-1, MX_GROUP)) + TIE * groups.abs()
    amax = groups.abs().amax(-1)
    # A code is the smallest power of two at or above amax / 6: amax may be off by what its own element may.
    at = groups.abs().argmax(-1, keepdim=True)
    moved = group_slack.gather(-1, at)[..., 0]
    codes = [moe_code((amax + sign * moved).clamp(min=0).to(torch.float32)) for sign in (-1, 1)]
    outside = torch.maximum(codes[0].to(torch.int16) - found.codes.to(torch.int16),
                            found.codes.to(torch.int16) - codes[1].to(torch.int16)).clamp(min=0)
    check.verdicts.exact("expert_scales", check.layer, rank, outside.flatten(1), torch.zeros_like(outside).flatten(1),
                         detail=f"exponents off, {inter // MX_GROUP} groups a slot")
    # By how far a value lies outside what rounds to the nibble that was stored.
    scale = e8m0_scale(found.codes)[..., None]
    nibbles = unpack_nibbles(found.packed).unflatten(-1, (-1, MX_GROUP)).to(torch.int64)
    value = groups / scale
    low, high = nibble_interval(nibbles)
    beyond = torch.maximum(low - value, value - high).clamp(min=0)
    check.verdicts.close("expert_hidden", check.layer, rank, beyond.flatten(1), torch.zeros_like(beyond).flatten(1),
                         (group_slack / scale).flatten(1), scale=value.flatten(1),
                         detail=f"beyond a tie, {inter} columns a slot")


def nibble_interval(nibbles: Tensor) -> tuple[Tensor, Tensor]:
    """The values that round to each nibble: lower and upper end, float64."""
    index, negative = nibbles & 7, nibbles >= 8
    upper = _UPPER[index]
    lower = torch.where(index > 0, _UPPER[index - 1], 0.0)
    return torch.where(negative, -upper, lower), torch.where(negative, -lower, upper)


def stored_hidden(check: LayerCheck, rank: int) -> Mx:
    """The activations as the device stored them: packed [S, top_k, I / 2], codes [S, top_k, I / 32]."""
    packed, codes = check.region("expert_hidden")[rank]
    codes = codes[:, hidden_scale_order(check.shard)]
    return Mx(*(t.unflatten(0, (check.rows, -1)) for t in (packed, codes)))


def check_latent_out(check: LayerCheck) -> None:
    """Every pick's down projection, folded in slot order with a rounding after each."""
    for rank in check.ranks:
        witness = check.witnesses[rank]
        inputs = dequantise(stored_hidden(check, rank)).to(torch.float64)
        acc, slack = picked_gemv(witness.picks, inputs, check.weights[rank].w2(check.layer))
        weights = witness.pick_weights.to(torch.float64)[..., None]
        y = moe.fold_picks(acc, witness.pick_weights).to(torch.float64)
        # Equal contributions give equal sums. One that fp32 noise may round otherwise moves the sum by as much, and
        # each of the additions behind it may then round otherwise as well.
        part = acc * weights
        _, moved = rounded(part, slack * weights + 2.0**-23 * part.abs())
        size = part.abs().cumsum(1)
        any_moved = (moved > 0).cumsum(1) > 0
        tolerance = moved.sum(1) + (any_moved * size * 2.0**-7).sum(1)
        found = check.region("latent_out")[rank][0][rank]
        check.verdicts.close("latent_out", check.layer, rank, found, y, tolerance)


def picked_gemv(picks: Tensor, inputs: Tensor, matrix: ExpertWeight) -> tuple[Tensor, Tensor]:
    """Each pick's matrix times its `inputs` float64 [S, top_k, K]: exact [S, top_k, N], and its slack."""
    out = slack = None
    for expert in picks.unique().tolist():
        row, slot = (picks == expert).nonzero(as_tuple=True)
        weight, x = matrix(expert), inputs[row, slot]
        result = x @ weight.to(torch.float64).T
        magnitude = x.abs().to(torch.float32) @ weight.abs().T
        if out is None:
            out = torch.empty(*picks.shape, result.shape[-1], dtype=torch.float64)
            slack = torch.empty_like(out)
        out[row, slot] = result
        slack[row, slot] = MX_DOT * magnitude.to(torch.float64)
    assert out is not None and slack is not None, "every row picks an expert"
    return out, slack
