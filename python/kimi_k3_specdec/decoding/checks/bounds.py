"""How far a correct kernel may be from the exact value (numerics §10)."""

from __future__ import annotations

import torch
from torch import Tensor

BF16 = 2.0**-8
"""Largest relative error of one rounding to bf16: half a unit in the last of 8 significant bits."""

DOT = 2.0**-20
"""fp32 accumulation of a dot product, relative to the sum of the products' magnitudes: 16 roundings of 2**-24."""

WEIGHT_CHUNK = 1 << 21
"""Weights widened at a time, so that a K3 projection does not cost its size in float64."""


def rounded(exact: Tensor, slack: Tensor) -> tuple[Tensor, Tensor]:
    """The bf16 value of `exact`, known only to within `slack`, and how far the device's may be from it; float64.

    The second is zero but for values so near to a tie that fp32 noise decides their rounding.
    """
    value, low, high = (x.to(torch.bfloat16).to(torch.float64) for x in (exact, exact - slack, exact + slack))
    return value, torch.maximum(high - value, value - low)


def gemv(x: Tensor, weight: Tensor, x_slack: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Exact `x` [S, K] times `weight` [N, K] transposed, and its slack before rounding; float64 [S, N].

    `x_slack` [S, K]: how far the device's inputs may be from `x`.
    """
    wide = x.to(torch.float64)
    # The magnitudes only scale a bound: float32 is enough for them.
    magnitude = wide.abs().to(torch.float32)
    moved = None if x_slack is None or not bool(x_slack.any()) else x_slack.to(torch.float32)
    out = torch.empty(x.shape[0], weight.shape[0], dtype=torch.float64)
    slack = torch.empty(x.shape[0], weight.shape[0])
    step = max(16, WEIGHT_CHUNK // weight.shape[1])
    for first in range(0, weight.shape[0], step):
        part = weight[first : first + step]
        out[:, first : first + step] = wide @ part.to(torch.float64).T
        absolute = part.to(torch.float32).abs_().T
        slack[:, first : first + step] = DOT * (magnitude @ absolute)
        if moved is not None:
            slack[:, first : first + step] += moved @ absolute
    return out, slack.to(torch.float64)


def after_rounding(exact: Tensor, slack: Tensor) -> Tensor:
    """The tolerance of a bf16 value against `exact`, unrounded: one rounding of anything within `slack`."""
    return BF16 * (exact.abs() + slack) + slack
