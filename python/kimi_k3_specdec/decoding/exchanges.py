"""What a layer's stages handed each other, as tensors: the tap's bytes by region, and the witness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._native import (
    HIDDEN_SCALE_BYTES,
    KDA_CHUNK,
    MAX_BLOCKS,
    MAX_ROWS,
    MAX_TOP_K,
    SEAM_VALUES,
    SLICE,
    WITNESS_SOURCES,
)
from ..reference.geometry import MX_GROUP, Shard

PREFIX_SOURCE = MAX_BLOCKS
"""Index of the prefix among a seam's sources, behind every block that may exist."""

ROW_REGIONS = ("attention_dots", "attention_x", "proj", "core", "mlp_dots", "mlp_x", "shared_hidden", "expert_hidden",
               "latent_z")
PAIR_REGIONS = ("attention_out", "logits", "latent", "latent_out", "output")
ATTENTION_REGIONS = ("attention_dots", "attention_x", "proj", "core")
"""What an MLA layer's half does not store."""


@dataclass(frozen=True)
class Part:
    """One array of a region."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    """With `MAX_ROWS` (or that many rows' picks) at `row_axis`."""
    row_axis: int = 0
    rows_per_row: int = 1
    """Entries of the row axis that one token row has."""

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole array."""
        return math.prod(self.shape) * self.dtype.itemsize


@lru_cache
def parts(region: str, shard: Shard) -> tuple[Part, ...]:
    """The arrays of a region in the order in which they lie there."""
    g, s = shard.geometry, shard
    bf16, f32, u8 = torch.bfloat16, torch.float32, torch.uint8
    slices, chunks, picks = g.hidden // SLICE, g.head_dim // KDA_CHUNK, MAX_ROWS * g.top_k
    dots = (Part("dots", f32, (MAX_ROWS, slices, SEAM_VALUES)),)
    hidden = (Part("x", bf16, (MAX_ROWS, g.hidden)),)
    partials = (Part("partials", bf16, (s.ranks, MAX_ROWS, g.hidden), 1),)
    return {
        "attention_dots": dots,
        "attention_x": hidden,
        "proj": (Part("proj", bf16, (MAX_ROWS, s.in_proj_rows)),),
        "core": (Part("gated", f32, (MAX_ROWS, s.projection)), Part("squares", f32, (MAX_ROWS, s.heads, chunks))),
        "mlp_dots": dots,
        "mlp_x": hidden,
        "shared_hidden": (Part("hidden", bf16, (MAX_ROWS, s.shared_intermediate)),),
        "expert_hidden": (Part("packed", u8, (picks, s.moe_intermediate // 2), 0, g.top_k),
                          Part("codes", u8, (picks, HIDDEN_SCALE_BYTES), 0, g.top_k)),
        "latent_z": (Part("z", bf16, (MAX_ROWS, g.latent)), Part("squares", f32, (MAX_ROWS, g.latent // SLICE))),
        "attention_out": partials,
        "logits": (Part("logits", f32, (MAX_ROWS, g.num_experts)),),
        "latent": (Part("latent", bf16, (MAX_ROWS, g.latent)),),
        "latent_out": (Part("partials", bf16, (s.ranks, MAX_ROWS, g.latent), 1),),
        "output": partials,
    }[region]


def hidden_scale_order(shard: Shard) -> Tensor:
    """int64 [groups]: where in a pick's 16 bytes the code of each group of 32 lies: by block, then by step."""
    group = torch.arange(shard.moe_intermediate // MX_GROUP)
    return group % 4 * 4 + group // 4


@lru_cache
def coverage(region: str, shard: Shard, rows: int) -> np.ndarray:
    """bool [bytes]: what a step of `rows` rows stores in a region, and nothing else."""
    masks = []
    for part in parts(region, shard):
        mask = np.zeros((*part.shape, part.dtype.itemsize), bool)
        stored = [slice(None)] * mask.ndim
        stored[part.row_axis] = slice(rows * part.rows_per_row)
        if part.name == "codes":
            stored[1] = hidden_scale_order(shard).numpy()
        mask[tuple(stored)] = True
        masks.append(mask.reshape(-1))
    return np.concatenate(masks)


@dataclass
class Image:
    """One region of one owner as it was stored in one layer of one step."""

    region: str
    shard: Shard
    rows: int
    data: bytes
    written: bytes

    def holes(self) -> np.ndarray:
        """int [n]: bytes that should have been stored and were not, or the other way round."""
        wanted = coverage(self.region, self.shard, self.rows)
        return np.flatnonzero(np.frombuffer(self.written, bool) != wanted)

    def place(self, byte: int) -> tuple[Part, tuple[int, ...]]:
        """The array and index that a byte belongs to."""
        for part in parts(self.region, self.shard):
            if byte < part.num_bytes:
                return part, tuple(int(i) for i in np.unravel_index(byte // part.dtype.itemsize, part.shape))
            byte -= part.num_bytes
        raise IndexError(byte)

    def tensors(self) -> list[Tensor]:
        """Every array, only the step's rows."""
        flat = torch.frombuffer(bytearray(self.data), dtype=torch.uint8)
        out, first = [], 0
        for part in parts(self.region, self.shard):
            array = flat[first : first + part.num_bytes].view(part.dtype).view(part.shape)
            out.append(array.narrow(part.row_axis, 0, self.rows * part.rows_per_row))
            first += part.num_bytes
        return out


@dataclass
class Witness:
    """Values of one layer that live only in registers, on one rank; all rows of the step."""

    attention_weights: Tensor
    """float32 [S, 16]: blocks first, the prefix at `PREFIX_SOURCE`."""
    mlp_weights: Tensor
    picks: Tensor
    """int64 [S, top_k]."""
    pick_weights: Tensor
    """float32 [S, top_k]."""
    packed: Tensor
    """uint8 [S, latent / 2]."""
    codes: Tensor
    """uint8 [S, latent / 32]."""

    @staticmethod
    def parse(block: bytes, shard: Shard, rows: int) -> Witness:
        """Reads one layer's block as `WitnessLayout` lays it out."""
        g = shard.geometry
        flat, at = torch.frombuffer(bytearray(block), dtype=torch.uint8), 0

        def take(dtype: torch.dtype, *shape: int) -> Tensor:
            nonlocal at
            count = math.prod(shape) * dtype.itemsize
            at += count
            return flat[at - count : at].view(dtype).view(shape)

        mix = take(torch.float32, 2, MAX_ROWS, WITNESS_SOURCES)[:, :rows]
        picks = take(torch.int32, MAX_ROWS, MAX_TOP_K)[:rows, : g.top_k].to(torch.int64)
        weights = take(torch.float32, MAX_ROWS, MAX_TOP_K)[:rows, : g.top_k]
        packed = take(torch.uint8, MAX_ROWS, g.latent // 2)[:rows]
        codes = take(torch.uint8, MAX_ROWS, g.latent // MX_GROUP)[:rows]
        return Witness(mix[0], mix[1], picks, weights, packed, codes)


class LayerExchanges:
    """All images of one layer in one step, fetched on demand and kept."""

    def __init__(self, engine: Any, shard: Shard, rows: int, layer: int, epoch: int) -> None:
        """`engine` is `_native.Engine`, `epoch` the step's."""
        self.shard, self.rows, self.layer, self.epoch = shard, rows, layer, epoch
        self._engine = engine
        self._images: dict[tuple[int, str], Image | None] = {}

    def image(self, owner: int, region: str) -> Image | None:
        """None if nothing was stored."""
        key = (owner, region)
        if key not in self._images:
            found = self._engine.tap(owner, region, self.layer, self.epoch)
            self._images[key] = None if found is None else Image(region, self.shard, self.rows, *found)
        return self._images[key]

    def witness(self, rank: int) -> Witness:
        """What `rank` noted down."""
        block = self._engine.witness(rank, self.layer)
        if block is None:
            raise RuntimeError(f"rank {rank} has no witness of layer {self.layer}")
        return Witness.parse(block, self.shard, self.rows)
