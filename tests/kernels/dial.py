"""Streams and weights that give a half of a layer exact, chosen inputs.

With every source 16 times a unit vector the seam's x is exactly that: mean square 1, and 16 (1 - eps / 2) rounds to
16. Token row t then sees column t of every matrix that multiplies x, times 16: results of a single product, exact.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kimi_k3_specdec.reference.layouts import shuffle_scales, shuffle_weight
from kimi_k3_specdec.reference.mx import dequantise, quantise_moe

from .world import Change, Shape, World

UNIT = 16.0
"""The one nonzero value of a row of x: the square root of nano's hidden size."""
FFN_LAYER = 3
"""The half of an MLA layer: its stream is in memory."""
WHOLE_LAYER = 1


def unit_rows(shape: Shape, hidden: int) -> Tensor:
    """f32 [rows, hidden]: x of a dialled world."""
    return UNIT * torch.eye(shape.rows, hidden)


def columns(values: Tensor, hidden: int = 256) -> Tensor:
    """bf16 [N, hidden] whose product with x is `values` f32 [rows, N], transposed; exact if they have 8 bits."""
    out = torch.zeros(values.shape[1], hidden)
    out[:, : values.shape[0]] = values.T / UNIT
    return out.to(torch.bfloat16)


def dialled(shape: Shape, change: Change | None = None, layer: int = FFN_LAYER, **options) -> World:
    """A world of one layer whose first half's x is `unit_rows`; `change` sets the matrices behind it."""

    def with_unit_norm(tensors: dict[str, Tensor], rank: int) -> None:
        first = "post_attention_layernorm" if layer == FFN_LAYER else "input_layernorm"
        tensors[f"{first}.weight"] = torch.ones_like(tensors[f"{first}.weight"])
        if layer == FFN_LAYER:
            tensors["self_attn.o_proj.weight"] = torch.zeros_like(tensors["self_attn.o_proj.weight"])
        if change is not None:
            change(tensors, rank)

    world = World(shape, (layer,), change=with_unit_norm, **options)
    x = unit_rows(shape, world.geometry.hidden)
    world.fill("prefix", x)
    world.fill("delta", torch.zeros_like(x))
    for blocks in world.blocks:
        blocks[:, 0] = x.to(torch.bfloat16)
    return world


def setting(**by_name: Tensor | Callable[[int], Tensor]) -> Change:
    """A change of tensors by the last words of their names (`gate` for `mlp.gate.weight`); a callable gets the rank."""

    def change(tensors: dict[str, Tensor], rank: int) -> None:
        for short, value in by_name.items():
            (name,) = (n for n in tensors if n.removesuffix(".weight").endswith("." + short))
            new = value(rank) if callable(value) else value
            # Own memory: the engine registers every tensor, and slices of one would overlap.
            tensors[name] = new.to(tensors[name].dtype).reshape(tensors[name].shape).clone()

    return change


def experts(dense: Callable[[int], Tensor], part: str) -> Change:
    """A change of one rank's expert matrices `part` (`w13`, `w2`): `dense` gives a rank's f32 [E, N, K].

    Values must be E2M1 multiples of a power of two in each group of 32 of a row: then nothing is rounded.
    """

    def change(tensors: dict[str, Tensor], rank: int) -> None:
        matrices = dense(rank)
        quantised = quantise_moe(matrices)
        assert torch.equal(dequantise(quantised), matrices), "these values do not fit MXFP4"
        tensors[f"mlp.experts.{part}_weight"] = shuffle_weight(quantised.packed)
        tensors[f"mlp.experts.{part}_weight_scale"] = shuffle_scales(quantised.codes.flatten(0, 1))

    return change


def both(*changes: Change) -> Change:
    """All of them, in order."""

    def change(tensors: dict[str, Tensor], rank: int) -> None:
        for one in changes:
            one(tensors, rank)

    return change


def picking(picks: list[list[int]], num_experts: int = 32) -> Tensor:
    """bf16 [E, hidden]: a router with which row t picks `picks[t]` in that order, each with a weight near 1 / k.

    Scores of exactly 1 tie, lower ids first: ascending picks have equal weights.
    """
    logits = torch.full((len(picks), num_experts), -64.0)
    for row, own in enumerate(picks):
        ascending = own == sorted(own)
        logits[row, own] = 64.0 if ascending else torch.linspace(3, 2, len(own))
    return columns(logits)
