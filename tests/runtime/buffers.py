"""A stand-in of vLLM's metadata for graphs."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from kimi_k3_specdec.decoding.backbone import layer_name
from kimi_k3_specdec.decoding.slots import NUM_GROUPS, group_of
from kimi_k3_specdec.reference.geometry import NANO

from . import graphs
from .graphs import Batch

REQUESTS, Q = 4, 4
KDA = [layer for layer in graphs.LAYERS if NANO.layer_kind(layer) == "kda"]


class Buffers:
    """Metadata as vLLM makes it: for FULL graphs in buffers that stay, padded with slot 0 and one accepted token; for
    eager steps elsewhere, in rows that are longer than a request's.
    """

    def __init__(self) -> None:
        """A buffer for each cache group."""
        self.tables, self.num_slots = graphs.slot_tables(REQUESTS, Q, seed=3)
        self.slots = [torch.zeros(REQUESTS, Q, dtype=torch.int32) for _ in range(NUM_GROUPS)]
        self.accepted = [torch.ones(REQUESTS, dtype=torch.int32) for _ in range(NUM_GROUPS)]
        self.eager_slots = [torch.zeros(REQUESTS, 3 * Q, dtype=torch.int32)[:, 2 : 2 + Q] for _ in range(NUM_GROUPS)]

    def memory(self) -> list[Tensor]:
        """The buffers."""
        return [*self.slots, *self.accepted, *self.eager_slots]

    def _of(self, live: int, places: int, slots: list[Tensor]) -> dict[str, Any]:
        def group(index: int) -> SimpleNamespace:
            return SimpleNamespace(
                spec_sequence_masks=torch.arange(places) < live, num_prefills=0, num_decodes=0, num_spec_decodes=live,
                spec_state_indices_tensor=slots[index][:places], uniform_spec_sequence_length=Q,
                num_accepted_tokens=self.accepted[index][:places])

        made = [group(index) for index in range(NUM_GROUPS)]
        return {layer_name(layer): made[group_of(layer)] for layer in KDA}

    def _stage(self, batch: Batch, into: list[Tensor]) -> None:
        live = len(batch.requests)
        for table, slots, accepted in zip(self.tables, into, self.accepted, strict=True):
            slots[:live], slots[live:] = table[batch.requests], 0
            accepted[:live], accepted[live:] = torch.tensor(batch.accepted), 1

    def eager(self, batch: Batch) -> dict[str, Any]:
        """Of exactly the batch."""
        self._stage(batch, self.eager_slots)
        return self._of(len(batch.requests), len(batch.requests), self.eager_slots)

    def capture(self, width: int) -> dict[str, Any]:
        """Nobody's slots."""
        self._stage(Batch([], [], {}), self.slots)
        return self._of(width // Q, width // Q, self.slots)

    def announce(self, decode: Any, batch: Batch, width: int) -> None:
        """As our model state does."""
        decode.begin_replay(self.replay(batch, width), width, len(batch.requests) * Q)

    def replay(self, batch: Batch, width: int) -> dict[str, Any]:
        """Padded."""
        self._stage(batch, self.slots)
        return self._of(len(batch.requests), width // Q, self.slots)


def padded_batches(steps: int, *, eager_every: int = 0) -> Iterator[tuple[Batch, int | None]]:
    """Batches of one to four requests for graphs of two and of four, each with its graph's width; every so many-th is
    to run eagerly.
    """
    g = torch.Generator().manual_seed(1)
    for number in range(steps):
        live = 1 + number % REQUESTS
        is_eager = eager_every and number % eager_every == eager_every - 1
        yield graphs.draw(live, REQUESTS, Q, g), None if is_eager else Q * (2 if live <= 2 else REQUESTS)
