"""Kimi Delta Attention: short convolution, gates, delta-rule recurrence, gated norm (numerics §4).

Every function takes one rank's tensors. States have a slot per speculative token, so that rejecting tokens costs
nothing: the next step starts from the slot of the last accepted one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .bf16 import bf, dot, precise, total, wide
from .geometry import CONV_HISTORY, Shard

SQUARE_SUM_VALUES = 16
"""Value rows whose squared outputs one partial sum covers: the chunk of a kernel task (numerics §4.4)."""


class Projections(NamedTuple):
    """The columns of an in_proj output (numerics §4.1); bf16 [S, ...]."""

    conv_in: Tensor
    """q, k, v: [S, 3 * projection], the channels of the convolution."""
    gate: Tensor
    """[S, projection], of the output."""
    f_a: Tensor
    """[S, head_dim], the low-rank input of the decay; the same on every rank."""
    beta: Tensor
    """[S, heads]."""


class Gates(NamedTuple):
    """Per token: `decay` [S, heads, head_dim] in (exp(lower_bound), 1), `beta` [S, heads]; float32."""

    decay: Tensor
    beta: Tensor


@dataclass
class KdaState:
    """One layer's state on one rank; views with any slot stride will do (numerics §8).

    `conv` bf16 [slots, q + 2, 3 * projection], oldest token first; `recurrent` float32
    [slots, heads, 128 values, 128 keys]. Slot 0 is reserved: never stored to.
    """

    conv: Tensor
    recurrent: Tensor

    @staticmethod
    def allocate(shard: Shard, slots: int, max_q: int, fill: float = 0.0) -> KdaState:
        """States of `slots` slots for up to `max_q` rows a request, filled with `fill`."""
        dim = shard.geometry.head_dim
        return KdaState(
            torch.full((slots, max_q + CONV_HISTORY - 1, shard.conv_channels), fill, dtype=torch.bfloat16),
            torch.full((slots, shard.heads, dim, dim), fill, dtype=torch.float32),
        )


@dataclass
class KdaCore:
    """What `kda_core` computes for R requests x q rows (S = R * q) on one rank; float32 unless said."""

    conv_out: Tensor
    """bf16 [S, 3 * projection]."""
    conv_window: Tensor
    """bf16 [R, q + 2, 3 * projection]: the new conv state of each request."""
    g1: Tensor
    """bf16 [S, projection]: f_b's output."""
    gates: Gates
    states: Tensor
    """[R, q, heads, 128, 128]: the recurrent state after each token, [R, 1, ...] if only the last was asked for."""
    out: Tensor
    """[S, heads, 128]: o, already rounded to bf16."""
    gated: Tensor
    """[S, heads, 128]: o * o_norm * sigmoid(gate), not yet divided by o's RMS."""
    square_sums: Tensor
    """[S, heads, 8]: sums of o^2 over chunks of 16 values."""


def in_proj(x: Tensor, weight: Tensor, exact: bool = False) -> Tensor:
    """bf16 [S, rows] of `x` bf16 [S, H] and the fused, padded weight bf16 [rows, H]; unrounded when `exact`."""
    y = dot(x, weight, exact)
    return y if exact else bf(y)


def split_projections(proj: Tensor, shard: Shard) -> Projections:
    """Views of `proj` [S, in_proj_rows] by content; the padding rows are left out."""
    p = shard.projection
    parts = proj.split([3 * p, p, shard.geometry.head_dim, shard.heads, shard.in_proj_rows - shard.in_proj_used], -1)
    return Projections(*parts[:4])


def conv_window(conv: Tensor, slots: Tensor, num_accepted: Tensor) -> Tensor:
    """bf16 [R, 3, C]: the inputs before each request's first row, from `conv` [slots, q + 2, C] (numerics §4.2).

    `slots`, `num_accepted` integer [R]. The window starts at num_accepted - 1: what was rejected lies after it.
    """
    first = num_accepted.to(torch.int64)[:, None] - 1
    return conv[slots.to(torch.int64).clamp(min=0)[:, None], first + torch.arange(CONV_HISTORY)]


def short_conv(conv_in: Tensor, window: Tensor, weight: Tensor, exact: bool = False) -> tuple[Tensor, Tensor]:
    """Causal convolution and SiLU of bf16 [R, q, C] after `window` bf16 [R, 3, C]; `weight` float32 [C, 1, 4].

    Returns bf16 [R, q, C] (float64 when exact) and the new state bf16 [R, q + 2, C].
    """
    q = conv_in.shape[1]
    sequence = torch.cat((window, conv_in), dim=1)
    seq, taps = wide(sequence, exact), wide(weight[:, 0], exact)
    acc = torch.zeros((), dtype=seq.dtype)
    for tap in range(CONV_HISTORY + 1):
        acc = acc + taps[:, tap] * seq[:, tap : tap + q]
    out = acc / (1 + precise(torch.exp, -acc))
    return (out if exact else bf(out)), sequence[:, 1:]


def decay_gates(g1: Tensor, beta: Tensor, a_log: Tensor, dt_bias: Tensor, lower_bound: float,
                exact: bool = False) -> Gates:
    """Gates of `g1` bf16 [S, projection], `beta` bf16 [S, heads], `a_log` float32 [heads], `dt_bias` [projection]."""
    heads = a_log.shape[0]
    biased = (wide(g1, exact) + wide(dt_bias, exact)).unflatten(-1, (heads, -1))
    rate = precise(torch.exp, wide(a_log, exact))[:, None]
    log_decay = lower_bound * precise(torch.sigmoid, rate * biased)
    return Gates(precise(torch.exp, log_decay), precise(torch.sigmoid, wide(beta, exact)))


def recurrence(conv_out: Tensor, gates: Gates, state: Tensor, l2_eps: float, keep_states: bool = True,
               exact: bool = False) -> tuple[Tensor, Tensor]:
    """The delta rule over q tokens (numerics §4.4).

    `conv_out` bf16 [R, q, 3 * heads * 128], `gates` [R, q, ...], `state` float32 [R, heads, 128 v, 128 k].
    Returns o [R, q, heads, 128], rounded to bf16 but for `exact`, and the states after each token
    [R, q, heads, 128, 128] (only the last one, [R, 1, ...], without `keep_states`).
    """
    heads, dim = state.shape[1:3]
    q, k, v = wide(conv_out, exact).unflatten(-1, (3, heads, dim)).unbind(2)
    qn = q * (precise(torch.rsqrt, total(q * q, exact) + l2_eps) * dim**-0.5)[..., None]
    kn = k * precise(torch.rsqrt, total(k * k, exact) + l2_eps)[..., None]
    st = wide(state, exact)
    outs, states = [], []
    for j in range(conv_out.shape[1]):
        key = kn[:, j, :, None, :]
        st = st * gates.decay[:, j, :, None, :]
        u = (v[:, j] - (st * key).sum(-1)) * gates.beta[:, j, :, None]
        st = st + u[..., None] * key
        o = (st * qn[:, j, :, None, :]).sum(-1)
        outs.append(o if exact else bf(o).to(torch.float32))
        if keep_states:
            states.append(st)
    return torch.stack(outs, 1), torch.stack(states if keep_states else [st], 1)


def kda_core(
    proj: Tensor,
    weights: Mapping[str, Tensor],
    shard: Shard,
    window: Tensor,
    state: Tensor,
    null: Tensor | None = None,
    keep_states: bool = True,
    exact: bool = False,
) -> KdaCore:
    """From in_proj's output bf16 [S, in_proj_rows] to what o_proj's stage scales and rounds; writes nothing.

    `window` bf16 [R, 3, C] and `state` float32 [R, heads, 128, 128] are where each request starts; S = R * q.
    `null` bool [R]: requests of a padded batch, whose outputs are zero. `weights`: this layer's, by loaded name.
    """
    g, requests = shard.geometry, window.shape[0]
    parts = split_projections(proj, shard)
    q = proj.shape[0] // requests
    conv_out, new_window = short_conv(
        parts.conv_in.unflatten(0, (requests, q)), window, weights["self_attn.conv1d.weight"], exact
    )
    g1 = dot(parts.f_a, weights["self_attn.f_b_proj.weight"], exact)
    g1 = g1 if exact else bf(g1)
    gates = decay_gates(
        g1, parts.beta, weights["self_attn.A_log"], weights["self_attn.dt_bias"], g.gate_lower_bound, exact
    )
    by_request = Gates(*(t.unflatten(0, (requests, q)) for t in gates))
    out, states = recurrence(conv_out, by_request, state, g.l2_eps, keep_states, exact)
    out = out.flatten(0, 1)
    gate = precise(torch.sigmoid, wide(parts.gate, exact)).unflatten(-1, (shard.heads, g.head_dim))
    gated = out * wide(weights["self_attn.o_norm.weight"], exact) * gate
    if null is not None:
        # Selected, not multiplied: a null row's stale inputs may be NaN.
        dead = null.repeat_interleave(q)[:, None, None]
        out, gated = (torch.where(dead, torch.zeros((), dtype=t.dtype), t) for t in (out, gated))
    square_sums = total((out * out).unflatten(-1, (-1, SQUARE_SUM_VALUES)), exact)
    return KdaCore(conv_out.flatten(0, 1), new_window, g1, gates, states, out, gated, square_sums)


def gated_norm(gated: Tensor, square_sums: Tensor, eps: float, exact: bool = False) -> Tensor:
    """o_proj's input (numerics §4.5): bf16 [S, heads * 128] of `gated` [S, heads, 128], `square_sums` [S, heads, n]."""
    scale = precise(torch.rsqrt, total(square_sums, exact) / gated.shape[-1] + eps)
    core = (wide(gated, exact) * scale[..., None]).flatten(1)
    return core if exact else bf(core)


def start_states(state: KdaState, indices: Tensor, num_accepted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What each request starts from: window bf16 [R, 3, C], state float32 [R, heads, 128, 128], null bool [R].

    `indices` integer [R, q] are `spec_state_indices`, `num_accepted` [R] counts the last step's accepted tokens.
    Copies, so that storing over the same slots afterwards is safe.
    """
    accepted = num_accepted.to(torch.int64)
    start = indices.to(torch.int64).gather(1, accepted[:, None] - 1)[:, 0]
    window = conv_window(state.conv, indices[:, 0], accepted)
    return window, state.recurrent[start.clamp(min=0)], start <= 0


def store_states(state: KdaState, core: KdaCore, indices: Tensor, null: Tensor) -> None:
    """Stores a step's states in place: the conv state in column 0's slot, token j's in column j's (numerics §4.4).

    Indices <= 0 store nothing; a null request stores no recurrent state, but its conv state if column 0 is > 0.
    """
    rows = core.conv_window.shape[1]
    for i, slots in enumerate(indices.tolist()):
        if slots[0] > 0:
            state.conv[slots[0], :rows] = core.conv_window[i]
        for j, slot in enumerate(slots):
            if slot > 0 and not null[i]:
                state.recurrent[slot] = core.states[i, j]


def store_prefill(state: KdaState, core: KdaCore, slot: int) -> None:
    """Stores a prompt's end in column 0's slot: the last 3 inputs at positions 0..2, and the last state."""
    state.conv[slot, :CONV_HISTORY] = core.conv_window[0, -CONV_HISTORY:]
    state.recurrent[slot] = core.states[0, -1]


def o_proj_partial(core: Tensor, weight: Tensor, exact: bool = False) -> Tensor:
    """This rank's bf16 [S, H] part of o_proj, for KDA and MLA: `core` bf16 [S, P], `weight` bf16 [H, P]."""
    y = dot(core, weight, exact)
    return y if exact else bf(y)


def empty_start(shard: Shard, requests: int) -> tuple[Tensor, Tensor]:
    """The window and the state before the first token of a prompt: zeros."""
    dim = shard.geometry.head_dim
    return (
        torch.zeros(requests, CONV_HISTORY, shard.conv_channels, dtype=torch.bfloat16),
        torch.zeros(requests, shard.heads, dim, dim),
    )
