"""Memory that stays where the emulator was told it is, for what vLLM's tensors hold for one step.

The emulator checks every access against what was registered; vLLM's activations and metadata come and go.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Registered:
    """Storages that the emulator was told of, each once, until `clear`."""

    def __init__(self, engine: Any, rank: int) -> None:
        """None yet."""
        self._engine, self._rank = engine, rank
        self._storages: dict[int, Any] = {}

    def add(self, tensor: Tensor, name: str) -> None:
        """Makes a tensor's whole storage reachable; it stays alive as long as it is registered."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._storages:
            self._storages[storage.data_ptr()] = storage
            self._engine.register(self._rank, storage.data_ptr(), storage.nbytes(), f"rank {self._rank}'s {name}",
                                  owner=storage)

    def clear(self) -> None:
        """The memory is its owners' again."""
        for address in self._storages:
            self._engine.unregister(address)
        self._storages = {}


class MetadataStaging:
    """Copies of the steps' metadata, by cache group."""

    def __init__(self, engine: Any, rank: int, rows: int) -> None:
        """For steps of up to `rows` rows, so of at most as many requests."""
        self._memory, self._rows = Registered(engine, rank), rows
        self._groups: dict[int, tuple[Tensor, Tensor]] = {}

    def hold(self, group: int, slots: Tensor, accepted: Tensor, requests: int, q: int) -> tuple[Tensor, Tensor]:
        """The group's int32 [requests, q] and [requests], copied."""
        if group not in self._groups:
            held = torch.zeros(self._rows, self._rows, dtype=torch.int32), torch.ones(self._rows, dtype=torch.int32)
            for tensor in held:
                self._memory.add(tensor, f"metadata of group {group}")
            self._groups[group] = held
        own_slots, own_accepted = self._groups[group]
        own_slots[:requests, :q].copy_(slots[:requests, :q])
        own_accepted[:requests].copy_(accepted[:requests])
        return own_slots, own_accepted


class Staging:
    """Activations of the steps of one width."""

    def __init__(self, engine: Any, rank: int, rows: int, dims: dict[str, int]) -> None:
        """bf16 [rows, hidden], [rows, blocks, hidden] and [rows, heads * head_dim]; `dims` of the rank's shard."""
        bf16, hidden = torch.bfloat16, dims["hidden"]
        self.prefix, self.delta = (torch.zeros(rows, hidden, dtype=bf16) for _ in range(2))
        self.blocks = torch.zeros(rows, dims["num_blocks"], hidden, dtype=bf16)
        self.core = torch.zeros(rows, dims["proj"], dtype=bf16)
        self._memory = Registered(engine, rank)
        for name, tensor in (("prefix", self.prefix), ("delta", self.delta), ("blocks", self.blocks),
                             ("core", self.core)):
            self._memory.add(tensor, f"{name} of {rows} rows")

    def fill(self, prefix: Tensor, blocks: Tensor, delta: Tensor | None, core: Tensor | None) -> None:
        """Copies a run's inputs in."""
        self.prefix.copy_(prefix)
        self.blocks[:, : blocks.shape[1]].copy_(blocks)
        if delta is not None:
            self.delta.copy_(delta)
        if core is not None:
            self.core.copy_(core)

    def give(self, prefix: Tensor, blocks: Tensor, delta: Tensor) -> None:
        """Copies a run's outputs out."""
        prefix.copy_(self.prefix)
        blocks.copy_(self.blocks[:, : blocks.shape[1]])
        delta.copy_(self.delta)
