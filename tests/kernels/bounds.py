"""Exact values and how far fp32 arithmetic may be from them."""

from __future__ import annotations

import torch
from torch import Tensor

DOT = 2.0**-20
"""Of an fp32 dot product, relative to its products' magnitudes: 16 roundings of 2**-24 (numerics §10)."""
HALF_ULP = 2.0**-8
"""Of one rounding to bf16, relative: 8 significant bits."""
FEW = 2.0**-22
"""Four fp32 roundings, relative."""


def dot(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """`x` [S, K] times `weight` [N, K] transposed in float64, and the slack of fp32 accumulation."""
    wide, matrix = x.to(torch.float64), weight.to(torch.float64)
    return wide @ matrix.T, DOT * (wide.abs() @ matrix.abs().T)


def to_bf16(exact: Tensor, slack: Tensor) -> Tensor:
    """The tolerance of a bf16 value against `exact`: the rounding of anything within `slack`."""
    return HALF_ULP * (exact.abs() + slack) + slack


def nearest(exact: Tensor, slack: Tensor) -> tuple[Tensor, Tensor]:
    """`exact` rounded to bf16, and by how much the rounding of anything within `slack` may differ; float64.

    Zero but for values so near to a tie that fp32 noise decides.
    """
    value, low, high = (v.to(torch.bfloat16).to(torch.float64) for v in (exact, exact - slack, exact + slack))
    return value, torch.maximum(high - value, value - low)
