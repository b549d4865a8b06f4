"""KDA's own stages (numerics §4): projections, gated output, the states in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...reference import kda
from ...reference.kda import KdaState
from ..exchanges import KDA_CHUNK
from .bounds import DOT, after_rounding, gemv, rounded
from .layer import LayerCheck

F32 = 2.0**-22
"""A few fp32 roundings, relative."""


@dataclass
class StateStep:
    """One rank's states of one layer around a launch, and where it was told to work."""

    before: KdaState
    after: KdaState
    indices: Tensor
    """int [R, q]."""
    num_accepted: Tensor
    """int [R]."""
    unused_before: Tensor
    """uint8 [slots, bytes]: whole pages, for what nobody may touch."""
    unused_after: Tensor


def check_in_proj(check: LayerCheck) -> None:
    """q, k, v, g, f_a, beta from the device's own x."""
    for rank in check.ranks:
        weight = check.tensors(rank)["self_attn.in_proj_qkvgfab.weight"]
        exact, slack = gemv(check.region("attention_x")[rank][0], weight)
        found = check.region("proj")[rank][0]
        check.verdicts.close("proj", check.layer, rank, found, exact, after_rounding(exact, slack))


@dataclass
class CoreBound:
    """What the recurrence must give, float64, and how far the device may be from it."""

    out: Tensor
    """[S, heads, 128], unrounded."""
    out_slack: Tensor
    states: Tensor
    """[R, q, heads, 128 v, 128 k]."""
    state_slack: Tensor
    """[R, q, heads, 128 v]: of a value row's difference in 2-norm."""


def core_bound(proj: Tensor, weights: dict[str, Tensor], check: LayerCheck, window: Tensor, state: Tensor) -> CoreBound:
    """Exact recurrence over the inputs as the device rounds them, with first-order error bounds.

    Two roundings in front of the recurrence are not stored anywhere, the convolution's and f_b's. They equal the
    reference's but where fp32 noise decides a tie; that, and fp32 arithmetic, is carried through as norms of value
    rows: with |k| <= 1 and 0 <= beta <= 1 the delta rule never makes a row's error longer.
    """
    shard, g = check.shard, check.geometry
    heads, requests = shard.heads, window.shape[0]
    split = kda.split_projections(proj, shard)
    conv_in = split.conv_in.unflatten(0, (requests, -1))
    taps = weights["self_attn.conv1d.weight"]
    exact, _ = kda.short_conv(conv_in, window, taps, exact=True)
    # |silu'| <= 1.1; the four products' magnitudes bound the sum's roundings.
    magnitude = kda.short_conv(conv_in.abs(), window.abs(), taps.abs(), exact=True)[0]
    conv, conv_slack = rounded(exact, F32 * 2.2 * (magnitude.abs() + exact.abs()))
    g1, g1_slack = rounded(*gemv(split.f_a, weights["self_attn.f_b_proj.weight"]))
    rate, bias = (weights[f"self_attn.{n}"].to(torch.float64) for n in ("A_log", "dt_bias"))
    gates = kda.decay_gates(g1, split.beta, rate, bias, g.gate_lower_bound, exact=True)
    by_request = kda.Gates(*(t.unflatten(0, (requests, -1)) for t in gates))
    out, states = kda.recurrence(conv, by_request, state, g.l2_eps, exact=True)

    inner = torch.exp(rate)[:, None] * (g1 + bias).unflatten(-1, (heads, -1))
    moved = torch.exp(rate)[:, None] * g1_slack.unflatten(-1, (heads, -1)) + 2 * F32 * inner.abs()
    slope = abs(g.gate_lower_bound) * torch.sigmoid(inner) * torch.sigmoid(-inner)
    decay_slack = gates.decay * (slope * moved + 4 * F32 * (1 + abs(g.gate_lower_bound)))
    error, out_slack = _propagate(conv.unflatten(-1, (3, heads, -1)), conv_slack.unflatten(-1, (3, heads, -1)),
                                  by_request, decay_slack.unflatten(0, (requests, -1)), state, states)
    return CoreBound(out.flatten(0, 1), out_slack.flatten(0, 1), states, error)


def _propagate(conv: Tensor, slack: Tensor, gates: kda.Gates, decay_slack: Tensor, state: Tensor,
               states: Tensor) -> tuple[Tensor, Tensor]:
    """Slack of every state row [R, q, heads, 128] and of o, from [R, q, 3, heads, 128] and the exact states."""
    size = conv.norm(dim=-1).clamp(min=1e-3)
    moved = slack.norm(dim=-1) / size + 2 * F32
    query_slack, key_slack = moved[:, :, 0, :, None], moved[:, :, 1, :, None]
    scale = conv.shape[-1] ** -0.5
    value, value_slack = conv[:, :, 2].abs(), slack[:, :, 2]
    beta = gates.beta[..., None]
    before = state.to(torch.float64).norm(dim=-1)
    norms = states.norm(dim=-1)
    error, errors, outs = torch.zeros_like(before), [], []
    for j in range(conv.shape[1]):
        update = value[:, j] + before
        error = gates.decay[:, j].amax(-1, keepdim=True) * error + before * decay_slack[:, j].amax(-1, keepdim=True)
        error = error + beta[:, j] * (value_slack[:, j] + 2 * update * key_slack[:, j] + DOT * update)
        error = error + 2 * F32 * (before + norms[:, j] + update)
        before = norms[:, j]
        errors.append(error)
        outs.append(scale * (error + before * (query_slack[:, j] + DOT)))
    return torch.stack(errors, 1), torch.stack(outs, 1)


def check_kda(check: LayerCheck, steps: list[StateStep]) -> None:
    """Gated outputs, their squares and both states; `steps` by rank."""
    bounds = [_check_core(check, rank, step) for rank, step in enumerate(steps)]
    for rank, (step, bound) in enumerate(zip(steps, bounds, strict=True)):
        _check_recurrent(check, rank, step, bound)
    for rank, step in enumerate(steps):
        _check_conv_state(check, rank, step)
    for rank, step in enumerate(steps):
        _check_untouched(check, rank, step)


def _check_core(check: LayerCheck, rank: int, step: StateStep) -> CoreBound:
    g, weights, proj = check.geometry, check.tensors(rank), check.region("proj")[rank][0]
    window, state, null = kda.start_states(step.before, step.indices, step.num_accepted)
    assert not null.any(), "a run has no padded requests"
    bound = core_bound(proj, weights, check, window, state)
    gate = torch.sigmoid(kda.split_projections(proj, check.shard).gate.to(torch.float64))
    factor = (gate.unflatten(-1, (check.shard.heads, -1)) * weights["self_attn.o_norm.weight"].to(torch.float64))
    gated, squares = check.region("core")[rank]
    expected = bound.out * factor
    # o is rounded to bf16 before it is scaled by two fp32 factors.
    tolerance = after_rounding(bound.out, bound.out_slack) * factor.abs() + 4 * F32 * expected.abs()
    check.verdicts.close("core", check.layer, rank, gated, expected.flatten(1), tolerance.flatten(1))
    # Dividing the factors out again shows the bf16 o, whose squares the same task summed over 16 values in fp32.
    out = (gated.to(torch.float64).view_as(factor) / factor).to(torch.bfloat16).to(torch.float64)
    product = (out * factor).flatten(1)
    check.verdicts.close("core_rounding", check.layer, rank, gated, product, 4 * F32 * product.abs())
    sums = (out * out).unflatten(-1, (g.head_dim // KDA_CHUNK, KDA_CHUNK)).sum(-1).flatten(1)
    check.verdicts.close("core_squares", check.layer, rank, squares.flatten(1), sums, 2 * F32 * sums)
    return bound


def _check_recurrent(check: LayerCheck, rank: int, step: StateStep, bound: CoreBound) -> None:
    """Each value row of each token's state, by the 2-norm of its difference."""
    for i, slots in enumerate(step.indices.tolist()):
        for j, slot in enumerate(slots):
            if slot <= 0:
                continue
            difference = (step.after.recurrent[slot].to(torch.float64) - bound.states[i, j]).norm(dim=-1)
            zero = torch.zeros_like(difference).reshape(1, -1)
            check.verdicts.close("recurrent_state", check.layer, rank, difference.reshape(1, -1), zero,
                                 bound.state_slack[i, j].reshape(1, -1),
                                 rows=torch.tensor([i * len(slots) + j]),
                                 scale=bound.states[i, j].norm(dim=-1).reshape(1, -1),
                                 detail=f"2-norm of a value row, slot {slot}")


def _check_conv_state(check: LayerCheck, rank: int, step: StateStep) -> None:
    """[state[a + 1], state[a + 2], x_0 .. x_{q-1}] of each request's own slot, bit for bit (numerics §4.2)."""
    q = step.indices.shape[1]
    conv_in = kda.split_projections(check.region("proj")[rank][0], check.shard).conv_in.unflatten(0, (-1, q))
    for i, slots in enumerate(step.indices.tolist()):
        if slots[0] <= 0:
            continue
        kept = step.before.conv[slots[0], int(step.num_accepted[i]) :][:2]
        expected = torch.cat((kept, conv_in[i]))
        check.verdicts.exact("conv_state", check.layer, rank, step.after.conv[slots[0], : q + 2], expected,
                             rows=torch.full((q + 2,), i * q), detail=f"request {i}, slot {slots[0]}")


def _check_untouched(check: LayerCheck, rank: int, step: StateStep) -> None:
    """Every byte of every page but the states that this step stores."""
    allowed = step.indices[step.indices > 0].unique().tolist()
    others = torch.ones(step.unused_before.shape[0], dtype=torch.bool)
    others[allowed] = False
    check.verdicts.exact("state_memory", check.layer, rank, step.unused_after[others], step.unused_before[others],
                         rows=others.nonzero()[:, 0], detail="a slot that nobody may touch")
    # Slots of later columns hold a recurrent state; their convolution part belongs to nobody.
    later = step.indices[:, 1:][step.indices[:, 1:] > 0].unique()
    check.verdicts.exact("state_memory", check.layer, rank, step.after.conv[later].flatten(1),
                         step.before.conv[later].flatten(1), rows=later, detail="a convolution state of no request")


def check_o_proj(check: LayerCheck, cores: list[Tensor] | None) -> None:
    """Every rank's part of o_proj: `cores` bf16 [S, P] by rank for an MLA layer, else the device's gated outputs."""
    g = check.geometry
    for rank in check.ranks:
        slack = None
        if cores is None:
            gated, squares = check.region("core")[rank]
            exact = kda.gated_norm(gated.unflatten(1, (-1, g.head_dim)), squares, g.o_norm_eps, exact=True)
            x, slack = rounded(exact, 2 * F32 * exact.abs())
        else:
            x = cores[rank]
        y, y_slack = gemv(x, check.tensors(rank)["self_attn.o_proj.weight"], slack)
        found = check.region("attention_out")[rank][0][rank]
        check.verdicts.close("attention_out", check.layer, rank, found, y, after_rounding(y, y_slack))
