"""AttnRes: a softmax mix of earlier blocks and the running prefix, in place of the residual stream (numerics §3)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .bf16 import bf, precise, total, wide

LOG2_E = 1.4426950408889634
"""log2(e): the kernels have exp2 only (numerics §2)."""


class SeamDots(NamedTuple):
    """What a mix needs of its n sources besides themselves; float32 (float64 when exact)."""

    gram: Tensor
    """[S, n, n] dot products between the sources; the diagonal is each source's sum of squares."""
    logit: Tensor
    """[S, n] dot products with `norm weight * projection`, not yet scaled by the source's RMS."""


class SeamMix(NamedTuple):
    """The result of a mix."""

    weights: Tensor
    """[S, n] softmax weights, float32 (float64 when exact)."""
    x: Tensor
    """bf16 [S, H]: mixed and normed, or only mixed where there is no output norm (float64 when exact)."""


def sources(prefix: Tensor, blocks: Tensor, num_blocks: int) -> Tensor:
    """bf16 [S, num_blocks + 1, H]: the first blocks of `blocks` [S, B, H], then `prefix` [S, H] as the last."""
    return torch.cat((blocks[:, :num_blocks], prefix[:, None]), dim=1)


def logit_vector(norm: Tensor, proj: Tensor, exact: bool = False) -> Tensor:
    """`a` [H]: the product of two bf16 vectors, which float32 holds exactly; `proj` is [1, H]."""
    return wide(norm, exact) * wide(proj.reshape(-1), exact)


def seam_dots(source: Tensor, norm: Tensor, proj: Tensor, exact: bool = False) -> SeamDots:
    """The dot products over H of sources bf16 [S, n, H] with one another and with the logit vector."""
    v, a = source.to(torch.float64), logit_vector(norm, proj, exact=True)
    return SeamDots(wide(v @ v.transpose(1, 2), exact), wide(v @ a, exact))


def softmax_weights(dots: SeamDots, hidden: int, eps: float) -> Tensor:
    """[S, n]: logit_s = (v_s . a) * rsqrt(mean(v_s^2) + eps), no other scale, then a softmax by exp2."""
    square_sums = dots.gram.diagonal(dim1=1, dim2=2)
    logit = dots.logit * precise(torch.rsqrt, square_sums / hidden + eps) * LOG2_E
    weight = precise(torch.exp2, logit - logit.amax(-1, keepdim=True))
    return weight / weight.sum(-1, keepdim=True)


def seam_mix(source: Tensor, weights: Tensor, out_norm: Tensor | None, eps: float, exact: bool = False) -> SeamMix:
    """Mixes raw sources bf16 [S, n, H] by `weights` [S, n]; the mix stays fp32 through the norm and rounds once."""
    p = wide(weights, exact)
    mixed = torch.zeros(source.shape[0], source.shape[2], dtype=p.dtype)
    for s in range(source.shape[1]):
        mixed = mixed + p[:, s, None] * wide(source[:, s], exact)
    if out_norm is not None:
        scale = precise(torch.rsqrt, total(mixed.to(torch.float64) ** 2, exact) / mixed.shape[-1] + eps)
        mixed = mixed * scale[:, None] * wide(out_norm, exact)
    return SeamMix(p, mixed if exact else bf(mixed))


def seam(
    source: Tensor, norm: Tensor, proj: Tensor, out_norm: Tensor | None, eps: float, exact: bool = False
) -> SeamMix:
    """The mix function M of numerics §3: dots, softmax weights and mix of sources bf16 [S, n, H]."""
    dots = seam_dots(source, norm, proj, exact)
    return seam_mix(source, softmax_weights(dots, source.shape[2], eps), out_norm, eps, exact)


def advance_prefix(prefix: Tensor, delta: Tensor | None) -> Tensor:
    """`bf(prefix + delta)`, both bf16 [S, H]: it is rounded before it is a source and before it is stored."""
    return prefix if delta is None else bf(prefix.to(torch.float32) + delta.to(torch.float32))
