"""Where states and cached tokens live: slots per request and cache group, pages that hold a layer's states."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ..reference.geometry import CONV_HISTORY, Geometry, Shard
from ..reference.kda import KdaState
from ..reference.state import flat_slots

NUM_GROUPS = 3
"""KDA cache groups; layers of one group share slots, groups do not (numerics §8)."""

SPARE_SLOTS = 2
"""Slots that no request owns, besides the reserved slot 0."""

KV_BLOCK = 8
"""Tokens of a block of the MLA cache."""

ROW_PADDING = 1
"""Entries behind a request's q in its row of state indices: the row stride may exceed q."""

POISON = 0xFF
"""Every byte of states that were never stored: NaN in both formats."""


@dataclass
class SlotPlan:
    """State slots of every request in every group, and its MLA cache blocks."""

    num_slots: int
    state_indices: list[Tensor]
    """By group: int32 [R, q], slots of a request's rows; column 0 is its convolution state's too."""
    block_tables: Tensor
    """int [R, blocks]."""

    @staticmethod
    def draw(requests: int, rows_per_request: int, tokens: int, seed: int) -> SlotPlan:
        """A seeded permutation; each request may cache up to `tokens` tokens."""
        g = Generator().manual_seed(seed)
        per_group = requests * rows_per_request
        num_slots = 1 + NUM_GROUPS * per_group + SPARE_SLOTS
        order = 1 + torch.randperm(num_slots - 1, generator=g).to(torch.int32)
        groups = [order[i * per_group : (i + 1) * per_group].view(requests, rows_per_request)
                  for i in range(NUM_GROUPS)]
        blocks = -(-tokens // KV_BLOCK)
        tables = torch.randperm(requests * blocks, generator=g).view(requests, blocks)
        return SlotPlan(num_slots, groups, tables)

    @property
    def kv_slots(self) -> int:
        """Cached tokens that the MLA caches must hold."""
        return self.block_tables.numel() * KV_BLOCK

    def indices(self, layer: int) -> Tensor:
        """`layer`'s state indices."""
        return self.state_indices[group_of(layer)]

    def by_layer(self, geometry: Geometry) -> dict[int, Tensor]:
        """Every KDA layer's state indices, for the reference."""
        return {layer: self.indices(layer) for layer in geometry.kda_layers}

    def token_slots(self, request: int, length: int) -> Tensor:
        """int64 [length]: flat cache slots of the request's first tokens."""
        return flat_slots(self.block_tables[request], KV_BLOCK, length)


def group_of(layer: int) -> int:
    """The cache group of a KDA layer."""
    return layer % NUM_GROUPS


@dataclass
class StatePages:
    """One layer's states on one rank, slot by slot on pages as vLLM's cache has them; all poison at first."""

    pages: Tensor
    """uint8 [slots, page bytes]: the convolution's state, the recurrent state, padding."""
    state: KdaState
    """Views of the pages."""

    @staticmethod
    def allocate(shard: Shard, slots: int, rows_per_request: int) -> StatePages:
        """Pages of `slots` slots for requests of that many rows a step."""
        heads, dim, channels = shard.heads, shard.geometry.head_dim, shard.conv_channels
        entries = rows_per_request + CONV_HISTORY - 1
        conv_bytes = -(-entries * channels * 2 // 256) * 256
        page_bytes = conv_bytes + heads * dim * dim * 4 + 256
        pages = torch.full((slots, page_bytes), POISON, dtype=torch.uint8)
        return StatePages(pages, _views(pages, entries, channels, conv_bytes, heads, dim))

    def clone(self) -> StatePages:
        """A copy of everything."""
        pages, conv, recurrent = self.pages.clone(), self.state.conv, self.state.recurrent
        conv_bytes = recurrent.storage_offset() * 4
        return StatePages(pages, _views(pages, conv.shape[1], conv.shape[2], conv_bytes, *recurrent.shape[1:3]))


def _views(pages: Tensor, entries: int, channels: int, conv_bytes: int, heads: int, dim: int) -> KdaState:
    slots, page_bytes = pages.shape
    conv = pages.view(torch.bfloat16).as_strided((slots, entries, channels), (page_bytes // 2, channels, 1))
    recurrent = pages.view(torch.float32).as_strided(
        (slots, heads, dim, dim), (page_bytes // 4, dim * dim, dim, 1), conv_bytes // 4)
    return KdaState(conv, recurrent)
