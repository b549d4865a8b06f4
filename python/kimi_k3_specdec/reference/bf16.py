"""Roundings and dot products that every stage shares (numerics §2).

A tensor's dtype says what was rounded: a value that must be bf16 is a `torch.bfloat16` tensor, everything
else is float32. `exact=True`, where a function has it, computes in float64 and rounds nothing, for tolerances.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_WEIGHT_CHUNK = 1 << 22
"""Weight values widened at a time, so that a K3 projection does not cost its size in float64."""


def bf(x: Tensor) -> Tensor:
    """`x` rounded to bf16, nearest even."""
    return x.to(torch.bfloat16)


def wide(x: Tensor, exact: bool = False) -> Tensor:
    """`x` as float32, or float64 when `exact`; both hold every bf16 and fp32 value."""
    return x.to(torch.float64 if exact else torch.float32)


def total(x: Tensor, exact: bool = False) -> Tensor:
    """The sum over the last dimension, accumulated in float64, as float32 (float64 when `exact`)."""
    return wide(x.to(torch.float64).sum(-1), exact)


def precise(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`function` of `x`, evaluated in float64 and rounded to `x`'s dtype.

    torch's float32 exp, tanh and the like differ by an ulp between the vector loop and its scalar tail, so that a row
    would depend on where it lies in a tensor.
    """
    return function(x.to(torch.float64)).to(x.dtype)


def dot(x: Tensor, weight: Tensor, exact: bool = False) -> Tensor:
    """`x` [..., K] times `weight` [N, K] transposed: [..., N] float32 (float64 when `exact`).

    The contract is "accumulate in fp32, in any order". Products of bf16 values are exact in float64 and so is, but for
    2**-53, their sum: accumulating there gives the fp32 result nearest to the truth, the same for any number of rows
    and threads.
    """
    rows = x.reshape(-1, x.shape[-1]).to(torch.float64)
    out = torch.empty(rows.shape[0], weight.shape[0], dtype=torch.float64 if exact else torch.float32)
    step = max(1, _WEIGHT_CHUNK // weight.shape[1])
    for first in range(0, weight.shape[0], step):
        out[:, first : first + step] = rows @ weight[first : first + step].to(torch.float64).T
    return out.reshape(*x.shape[:-1], weight.shape[0])


def all_reduce(partials: Sequence[Tensor] | Tensor) -> Tensor:
    """bf16 partials of every rank, summed in fp32 in rank order, rounded once (numerics §2, place 8)."""
    acc = partials[0].to(torch.float32)
    for partial in partials[1:]:
        acc = acc + partial.to(torch.float32)
    return bf(acc)


def rms_norm(x: Tensor, weight: Tensor, eps: float, exact: bool = False) -> Tensor:
    """`bf(x * rsqrt(mean(x^2) + eps) * weight)`, one rounding; float64 and unrounded when `exact`."""
    v = wide(x, exact)
    scale = precise(torch.rsqrt, total(v.to(torch.float64) ** 2, exact) / x.shape[-1] + eps)
    out = v * scale[..., None] * wide(weight, exact)
    return out if exact else bf(out)
