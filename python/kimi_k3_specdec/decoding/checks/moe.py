"""The MoE half's dense stages and its routing (numerics §5, steps 3 to 5 and 9 to 11)."""

from __future__ import annotations

import torch
from torch import Tensor

from ...reference import moe, situ
from ...reference.bf16 import all_reduce
from ..exchanges import SLICE
from .bounds import DOT, after_rounding, gemv, rounded
from .layer import LayerCheck

KEY_GAP = 4e-6
"""Two selection keys nearer than this may change places (numerics §10)."""

PICK_WEIGHT = 1e-5
"""Of a pick's weight, relative (numerics §10)."""

F32 = 2.0**-22
"""A few fp32 roundings, relative; of tanh, formed as (1 - e) / (1 + e), absolute."""


def check_moe_in(check: LayerCheck) -> None:
    """Router logits, latent and shared experts' activations from the device's own x."""
    shard, verdicts = check.shard, check.verdicts
    for rank in check.ranks:
        own = check.weights[rank].router_rows
        x, weight = check.region("mlp_x")[rank][0], check.tensors(rank)["mlp.gate.weight"][own]
        y, slack = gemv(x, weight)
        verdicts.close("logits", check.layer, rank, check.region("logits")[rank][0][:, own], y, slack,
                       detail=f"of rank {rank}'s {shard.router_rows} experts")
    for rank in check.ranks:
        own = check.weights[rank].latent_rows
        weight = check.tensors(rank)["mlp.routed_expert_down_proj.weight"][own]
        y, slack = gemv(check.region("mlp_x")[rank][0], weight)
        verdicts.close("latent", check.layer, rank, check.region("latent")[rank][0][:, own], y,
                       after_rounding(y, slack), detail=f"of rank {rank}'s {shard.latent_rows} columns")
    for rank in check.ranks:
        weight = check.tensors(rank)["mlp.shared_experts.gate_up_proj.weight"]
        y, slack = rounded(*gemv(check.region("mlp_x")[rank][0], weight))
        hidden, hidden_slack = situ_bound(*y.chunk(2, -1), *slack.chunk(2, -1), check)
        verdicts.close("shared_hidden", check.layer, rank, check.region("shared_hidden")[rank][0], hidden,
                       after_rounding(hidden, hidden_slack))


def situ_bound(gate: Tensor, up: Tensor, gate_slack: Tensor, up_slack: Tensor,
               check: LayerCheck) -> tuple[Tensor, Tensor]:
    """SiTU in float64 and its slack: of its inputs, and of three fp32 factors that may cancel near 0 and -12."""
    g = check.geometry
    beta, linear = g.situ_beta, g.situ_linear_beta
    hidden = situ.situ(gate, up, g)
    first, second = beta * torch.tanh(gate / beta) * torch.sigmoid(gate), linear * torch.tanh(up / linear)
    # |d first / d gate| <= 1.1 and |d second / d up| <= 1; a factor that cancels is off by F32 of its own scale.
    first_slack = 1.1 * gate_slack + F32 * beta * (torch.sigmoid(gate) + torch.tanh(gate / beta).abs())
    second_slack = up_slack + F32 * linear
    return hidden, first_slack * second.abs() + second_slack * first.abs() + first_slack * second_slack


def check_route(check: LayerCheck) -> None:
    """Picks, weights and the latent's MXFP4 form from the device's own logits and latent, on every rank."""
    for rank in check.ranks:
        _check_picks(check, rank)
    for rank in check.ranks:
        _check_pick_weights(check, rank)
    for rank in check.ranks:
        quantised = moe.quantise_latent(check.region("latent")[rank][0])
        witness = check.witnesses[rank]
        check.verdicts.exact("latent_scales", check.layer, rank, witness.codes, quantised.codes)
        check.verdicts.exact("latent_codes", check.layer, rank, witness.packed, quantised.packed)


def _check_picks(check: LayerCheck, rank: int) -> None:
    """Slots in descending order of key, nothing left out that is larger; both to within `KEY_GAP`."""
    logits = check.region("logits")[rank][0]
    bias = check.tensors(rank)["mlp.gate.e_score_correction_bias"]
    picks = check.witnesses[rank].picks
    expected = moe.select_experts(logits, bias, check.geometry.top_k)
    in_range = (picks >= 0) & (picks < check.geometry.num_experts)
    distinct = picks.sort(-1).values.diff(dim=-1) != 0
    if not in_range.all() or not distinct.all():
        check.verdicts.exact("picks", check.layer, rank, picks, expected.ids)
    keys = torch.sigmoid(logits.to(torch.float64)) + bias.to(torch.float64)
    picked = keys.gather(1, picks)
    # What comes next in the order: the next slot, and behind the last one the best that was left out.
    left = keys.scatter(1, picks, -torch.inf).amax(-1, keepdim=True)
    above = torch.cat((picked[:, 1:], left), 1) - picked
    swapped = above.clamp(min=0) * (picks != expected.ids)
    check.verdicts.close("picks", check.layer, rank, swapped, torch.zeros_like(swapped),
                         torch.full_like(swapped, KEY_GAP), scale=picked, detail="by how much a later key is larger")


def _check_pick_weights(check: LayerCheck, rank: int) -> None:
    witness = check.witnesses[rank]
    score = torch.sigmoid(check.region("logits")[rank][0].to(torch.float64)).gather(1, witness.picks)
    weights = score / score.sum(-1, keepdim=True)
    check.verdicts.close("pick_weights", check.layer, rank, witness.pick_weights, weights, PICK_WEIGHT * weights)


def check_latent_z(check: LayerCheck) -> None:
    """The routed latent's all-reduce, bit for bit, and its squares."""
    for rank in check.ranks:
        z, squares = check.region("latent_z")[rank]
        expected = all_reduce(list(check.region("latent_out")[rank][0]))
        check.verdicts.exact("latent_z", check.layer, rank, z, expected)
        sums = (z.to(torch.float64) ** 2).unflatten(1, (-1, SLICE)).sum(-1)
        check.verdicts.close("latent_squares", check.layer, rank, squares, sums, 2 * F32 * sums)


def check_output(check: LayerCheck) -> None:
    """Every rank's term of the layer's output: shared experts, and the up projection in the rank's own columns."""
    g = check.geometry
    for rank in check.ranks:
        tensors, own = check.tensors(rank), check.weights[rank].hidden_columns
        shared, slack = gemv(check.region("shared_hidden")[rank][0],
                             tensors["mlp.shared_experts.down_proj.weight"])
        z, squares = check.region("latent_z")[rank]
        scale = torch.rsqrt(squares.to(torch.float64).sum(-1, keepdim=True) / g.latent + g.rms_eps)
        zn = z.to(torch.float64) * scale * tensors["mlp.routed_expert_norm.weight"].to(torch.float64)
        up, up_slack = gemv(*_split(rounded(zn, 2 * F32 * zn.abs()), tensors["mlp.routed_expert_up_proj.weight"]))
        # A rank keeps its own columns' shared part as bf16 until the up projection is added.
        kept, kept_slack = rounded(shared[:, own], slack[:, own])
        tolerance = after_rounding(shared, slack)
        shared[:, own] = kept + up
        tolerance[:, own] = after_rounding(shared[:, own], kept_slack + up_slack + DOT / 16 * kept.abs())
        found = check.region("output")[rank][0][rank]
        check.verdicts.close("output", check.layer, rank, found, shared, tolerance)


def _split(value: tuple[Tensor, Tensor], weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return value[0], weight, value[1]
