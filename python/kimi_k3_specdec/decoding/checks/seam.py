"""The AttnRes seams (numerics §3): products of the sources, softmax weights, mixed and normed x."""

from __future__ import annotations

import torch
from torch import Tensor

from ...reference import attn_res
from ..exchanges import PREFIX_SOURCE, SEAM_VALUES, SLICE
from .bounds import BF16
from .layer import LayerCheck

DOTS = 2.0**-21
"""Of a slice's dot product, relative to its products' magnitudes: a product, a fused add and six sums round."""

WEIGHT = 1e-5
"""Of a softmax weight, absolute (numerics §10)."""

MIX = 2.0**-20
"""Of the mix of at most 9 fp32 products and three factors, relative to the magnitudes: 16 roundings of 2**-24."""

SEAMS = {
    "attention": ("self_attention_res", "input_layernorm"),
    "mlp": ("mlp_res", "post_attention_layernorm"),
}


def check_seam(check: LayerCheck, seam: str, num_blocks: int) -> None:
    """`seam` is `attention` or `mlp`; the sources are the residual's blocks and its prefix, already advanced."""
    source = attn_res.sources(check.residual.prefix, check.residual.blocks, num_blocks)
    lanes = [*range(num_blocks), PREFIX_SOURCE]
    for rank in check.ranks:
        _check_dots(check, seam, rank, source, lanes)
    for rank in check.ranks:
        _check_mix(check, seam, rank, source, lanes)


def gram_lane(t: int, s: int) -> int:
    """Where a task publishes the product of sources t >= s."""
    return PREFIX_SOURCE + 1 + t * (t + 1) // 2 + s


def _weights(check: LayerCheck, seam: str, rank: int) -> tuple[Tensor, Tensor, Tensor]:
    name, output = SEAMS[seam]
    tensors = check.tensors(rank)
    return tensors[f"{name}_norm.weight"], tensors[f"{name}_proj.weight"], tensors[f"{output}.weight"]


def expected_dots(source: Tensor, norm: Tensor, proj: Tensor, lanes: list[int]) -> tuple[Tensor, Tensor]:
    """Exact values of a dots region and their tolerance, float64 [S, slices, 64]: lanes without a source are 0."""
    rows, n, hidden = source.shape
    by_slice = source.to(torch.float64).unflatten(2, (hidden // SLICE, SLICE)).transpose(1, 2)
    direction = attn_res.logit_vector(norm, proj, exact=True).unflatten(0, (-1, SLICE))[None, :, :, None]
    values, tolerance = (torch.zeros(rows, hidden // SLICE, SEAM_VALUES, dtype=torch.float64) for _ in range(2))
    below = torch.tril_indices(n, n)
    where = [gram_lane(lanes[t], lanes[s]) for t, s in below.T.tolist()]
    for out, v, a, scale in ((values, by_slice, direction, 1.0), (tolerance, by_slice.abs(), direction.abs(), DOTS)):
        out[..., lanes] = scale * (v @ a)[..., 0]
        out[..., where] = scale * (v @ v.transpose(2, 3))[..., below[0], below[1]]
    return values, tolerance


def _check_dots(check: LayerCheck, seam: str, rank: int, source: Tensor, lanes: list[int]) -> None:
    norm, proj, _ = _weights(check, seam, rank)
    stage = f"{seam}_dots"
    values, tolerance = expected_dots(source, norm, proj, lanes)
    found = check.region(stage)[rank][0]
    check.verdicts.close(stage, check.layer, rank, found.flatten(1), values.flatten(1), tolerance.flatten(1))


def _check_mix(check: LayerCheck, seam: str, rank: int, source: Tensor, lanes: list[int]) -> None:
    """Softmax weights from the device's own dots; x from its own weights."""
    g = check.geometry
    dots = check.region(f"{seam}_dots")[rank][0].to(torch.float64).sum(1)
    square_sums = dots[:, [gram_lane(lane, lane) for lane in lanes]]
    logit = dots[:, lanes] * torch.rsqrt(square_sums / g.hidden + g.rms_eps)
    witness = check.witnesses[rank]
    found = (witness.attention_weights if seam == "attention" else witness.mlp_weights)[:, lanes]
    weights = torch.softmax(logit, -1)
    check.verdicts.close(f"{seam}_weights", check.layer, rank, found, weights, torch.full_like(weights, WEIGHT))

    v, p = source.to(torch.float64), found.to(torch.float64)
    *_, output = _weights(check, seam, rank)
    mixed, magnitude = (p[..., None] * v).sum(1), (p[..., None] * v.abs()).sum(1)
    square = (mixed * mixed).mean(-1) + g.rms_eps
    factor = torch.rsqrt(square)[:, None] * output.to(torch.float64)
    x = mixed * factor
    # The device gets the mean square from the Gram matrix, where terms of both signs cancel; each entry is off by its
    # slices' roundings, and a square root halves relative errors.
    weighted = v.abs() * p[..., None]
    gram = (weighted.sum(1) ** 2).mean(-1)
    relative = 0.5 * (DOTS + MIX + g.hidden // SLICE * 2.0**-24) * gram / square
    tolerance = BF16 * x.abs() + relative[:, None] * x.abs() + MIX * magnitude * factor.abs()
    check.verdicts.close(f"{seam}_x", check.layer, rank, check.region(f"{seam}_x")[rank][0], x, tolerance)
