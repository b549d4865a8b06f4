"""What a model keeps between steps, and what a step is told about it (numerics §8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from .geometry import Geometry
from .kda import KdaState
from .mla import KvDtype, LatentCache


@dataclass
class Stream:
    """What layers hand on: the residual stream's replacement, the same on every rank.

    Functions replace `prefix` and `delta` by new tensors and write `blocks` in place.
    """

    prefix: Tensor
    """bf16 [S, H]."""
    blocks: Tensor
    """bf16 [S, num_blocks, H]; only blocks already written may be read."""
    delta: Tensor | None
    """bf16 [S, H]: the last layer's MLP output, not yet added; None before layer 0."""


@dataclass
class ModelState:
    """Every layer's states, on every rank."""

    kda: dict[int, list[KdaState]]
    """By KDA layer, then by rank."""
    mla: dict[int, LatentCache]
    """By MLA layer; one cache, as all ranks hold the same rows."""

    @staticmethod
    def allocate(geometry: Geometry, ranks: int, *, state_slots: int, kv_slots: int, max_q: int,
                 kv_dtype: KvDtype = "fp8", fill: float = 0.0) -> ModelState:
        """States for all layers: `state_slots` recurrent ones (0 reserved), `kv_slots` cached tokens.

        `max_q` is the most rows a request has in a step; `fill` is what unwritten KDA states hold.
        """
        shard = geometry.shard(ranks)
        return ModelState(
            {i: [KdaState.allocate(shard, state_slots, max_q, fill) for _ in range(ranks)]
             for i in geometry.kda_layers},
            {i: LatentCache.allocate(geometry, kv_slots, kv_dtype) for i in geometry.mla_layers},
        )


def flat_slots(block_table: Tensor, block_size: int, length: int) -> Tensor:
    """int64 [length]: the flat cache slots of one request's tokens, from its blocks int [n] (numerics §6.4)."""
    position = torch.arange(length)
    return block_table.to(torch.int64)[position // block_size] * block_size + position % block_size


@dataclass
class VerifyStep:
    """A uniform verify step: R requests of q rows, row t of request i being row i * q + t."""

    state_indices: Tensor | Mapping[int, Tensor]
    """`spec_state_indices_tensor` int [R, q], of all layers or by layer: column 0 is the conv slot, column
    num_accepted - 1 the start state, column j where token j's state goes; <= 0 is null."""
    num_accepted: Tensor
    """int [R], 1..q: the previous step's accepted tokens, the always accepted first included."""
    token_slots: list[Tensor]
    """For each request the flat cache slots int64 of all its tokens, this step's q included."""
    slot_mapping: Tensor | None = None
    """int64 [S]: where each row's latent goes, -1 nowhere; the last q of `token_slots` when None."""

    def indices(self, layer: int) -> Tensor:
        """`layer`'s state indices: cache groups have their own."""
        return self.state_indices if isinstance(self.state_indices, Tensor) else self.state_indices[layer]

    def latent_slots(self, q: int) -> Tensor:
        """int64 [S]: where each row's latent goes."""
        return torch.cat([s[-q:] for s in self.token_slots]) if self.slot_mapping is None else self.slot_mapping


@dataclass
class Prefill:
    """One whole prompt of T tokens, from empty states."""

    state_slot: int | Mapping[int, int]
    """Where its end goes, of all layers or by layer: column 0's slot of the first verify step."""
    token_slots: Tensor
    """int64 [T]: flat cache slots of the tokens."""

    def slot(self, layer: int) -> int:
        """`layer`'s state slot."""
        return self.state_slot if isinstance(self.state_slot, int) else self.state_slot[layer]
