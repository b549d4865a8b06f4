"""SiTU, the activation of every MLP, and the bf16 MLPs that use it (numerics §5)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .attn_res import LOG2_E
from .bf16 import bf, dot, precise, wide
from .geometry import Geometry


def situ(gate: Tensor, up: Tensor, geometry: Geometry) -> Tensor:
    """`b tanh(g/b) sigmoid(g) * l tanh(u/l)` as mathematics has it, in float64: the truth of both forms below."""
    g, u = gate.to(torch.float64), up.to(torch.float64)
    beta, linear = geometry.situ_beta, geometry.situ_linear_beta
    return beta * torch.tanh(g / beta) * torch.sigmoid(g) * linear * torch.tanh(u / linear)


def situ_experts(gate: Tensor, up: Tensor, geometry: Geometry) -> Tensor:
    """The routed experts' form, by exp2 and a reciprocal; float32 in and out (numerics §5, step 6)."""
    beta, linear = geometry.situ_beta, geometry.situ_linear_beta
    sigmoid = 1 / (1 + precise(torch.exp2, -gate * LOG2_E))
    # A power of two, beta divides exactly; 1 / 25 is the float32 nearest to it.
    return ((beta * _tanh(gate * (1 / beta))) * sigmoid * linear) * _tanh(up * torch.tensor(1 / linear))


def situ_bf16(gate: Tensor, up: Tensor, geometry: Geometry) -> Tensor:
    """The shared experts' and the dense MLP's form, fp32 inside; bf16 in and out (numerics §5, step 10)."""
    g, u = wide(gate), wide(up)
    beta, linear = geometry.situ_beta, geometry.situ_linear_beta
    half = beta / 2 * precise(torch.tanh, g / beta)
    return bf((half * (1 + precise(torch.tanh, g / 2))) * (linear * precise(torch.tanh, u / linear)))


def mlp_hidden(x: Tensor, gate_up: Tensor, geometry: Geometry, exact: bool = False) -> Tensor:
    """bf16 [S, I] of `x` bf16 [S, H] and `gate_up` bf16 [2 I, H], gate rows first; float64 when exact."""
    gu = dot(x, gate_up, exact)
    gate, up = (gu if exact else bf(gu)).chunk(2, -1)
    return situ(gate, up, geometry) if exact else situ_bf16(gate, up, geometry)


def shared_hidden(x: Tensor, weights: Mapping[str, Tensor], geometry: Geometry, exact: bool = False) -> Tensor:
    """The shared experts' activations on one rank: bf16 [S, shared intermediate / ranks]."""
    return mlp_hidden(x, weights["mlp.shared_experts.gate_up_proj.weight"], geometry, exact)


def shared_down_partial(hidden: Tensor, weights: Mapping[str, Tensor], exact: bool = False) -> Tensor:
    """This rank's part of the shared experts' output: bf16 [S, H] of `hidden` bf16 [S, I]."""
    y = dot(hidden, weights["mlp.shared_experts.down_proj.weight"], exact)
    return y if exact else bf(y)


def dense_partial(x: Tensor, weights: Mapping[str, Tensor], geometry: Geometry) -> Tensor:
    """This rank's part of layer 0's MLP: bf16 [S, H] of `x` bf16 [S, H]."""
    hidden = mlp_hidden(x, weights["mlp.gate_up_proj.weight"], geometry)
    return bf(dot(hidden, weights["mlp.down_proj.weight"]))


def _tanh(x: Tensor) -> Tensor:
    e = precise(torch.exp2, -2 * LOG2_E * x.abs())
    return torch.sign(x) * ((1 - e) * (1 / (1 + e)))
