"""The ranks of a device: their memory, their layers, and launches of runs of layers on all of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from .. import _native, kernels
from ..errors import UserError
from ..reference.geometry import Geometry
from ..reference.weights import RankWeights, layer_specs
from .binding import EXPERT_FIELDS, layer_numbers, layer_tensors
from .checks.kda import StateStep
from .checks.layer import Residual
from .checks.run import RunRecord
from .exchanges import LayerExchanges
from .fake_hip import fake_hip
from .options import RunOptions
from .slots import NUM_GROUPS, ROW_PADDING, SlotPlan, StatePages

STALE_INDEX = -77
"""What lies behind a request's q state indices: nobody may read it."""


class RankMemory:
    """One rank's activations and step metadata; they stay where they are."""

    def __init__(self, geometry: Geometry, ranks: int, options: RunOptions) -> None:
        """All of it NaN or stale until a step writes it."""
        rows, shard = options.rows, geometry.shard(ranks)
        nan = torch.nan
        self.prefix = torch.full((rows, geometry.hidden), nan, dtype=torch.bfloat16)
        self.blocks = torch.full((rows, geometry.num_blocks, geometry.hidden), nan, dtype=torch.bfloat16)
        self.delta = torch.full((rows, geometry.hidden), nan, dtype=torch.bfloat16)
        self.core = torch.full((rows, shard.projection), nan, dtype=torch.bfloat16)
        columns = options.rows_per_request + ROW_PADDING
        self.state_indices = torch.full((NUM_GROUPS, options.requests, columns), STALE_INDEX, dtype=torch.int32)
        self.num_accepted = torch.ones(options.requests, dtype=torch.int32)

    def residual(self, has_delta: bool = True) -> Residual:
        """A copy of the stream."""
        return Residual(self.prefix.clone(), self.blocks.clone(), self.delta.clone() if has_delta else None)


@dataclass(frozen=True)
class _Experts:
    """Consecutive experts of one tensor that all exist, or of which none does."""

    rank: int
    address: int
    nbytes: int
    name: str
    first: int
    count: int
    is_filled: bool


def _runs_of_experts(rank: int, tensor: Tensor, name: str, num_experts: int, filled: list[int]) -> list[_Experts]:
    """An expert tensor cut where experts begin or end to exist; the others stay memory that nobody has written."""
    exists = [False] * num_experts
    for expert in filled:
        exists[expert] = True
    nbytes = tensor.shape[0] // num_experts * tensor[0].nbytes
    runs = []
    for is_filled, experts in groupby(range(num_experts), key=exists.__getitem__):
        members = list(experts)
        runs.append(_Experts(rank, tensor.data_ptr() + members[0] * nbytes, len(members) * nbytes, name, members[0],
                             len(members), is_filled))
    return runs


class Machine:
    """All ranks; an engine behind them, on the emulator or on HIP."""

    def __init__(self, options: RunOptions, geometry: Geometry, weights: list[RankWeights], plan: SlotPlan,
                 code_objects: list[bytes], experts: dict[int, list[int]] | None = None, *,
                 count_stages: bool = False) -> None:
        """`weights` are what the device reads, by rank; `code_objects` one for all ranks or one for each.

        `experts`: by layer, those that exist; None: all do. `count_stages` counts what runs by stage, slower.
        """
        self.options, self.geometry, self.plan = options, geometry, plan
        self.is_emulator = options.device == "emulator"
        """Only the emulator keeps what stages exchange, and counts."""
        self.engine = self._unlinked(code_objects, count_stages).link()
        self.runs = self.engine.runs(options.layers)
        self.memory = [RankMemory(geometry, options.ranks, options) for _ in range(options.ranks)]
        self.weights = weights
        self._registered: set[tuple[int, int]] = set()
        self._count_stages = count_stages
        sparse: list[_Experts] = []
        self.served = [layer for first, last in self.runs for layer in range(first, last + 1)]
        shard = geometry.shard(options.ranks)
        self.pages = {
            layer: [StatePages.allocate(shard, plan.num_slots, options.rows_per_request) for _ in weights]
            for layer in self.served if geometry.layer_kind(layer) == "kda"
        }
        for rank, memory in enumerate(self.memory):
            for name, tensor in vars(memory).items():
                self._register(rank, tensor, name)
            memory.state_indices[:, :, :-ROW_PADDING] = torch.stack(plan.state_indices)
            self.engine.bind_groups(rank, [
                (group.data_ptr(), group.stride(0), memory.num_accepted.data_ptr()) for group in memory.state_indices])
            for layer in self.served:
                sparse += self._bind(rank, layer, None if experts is None else experts[layer])
        # Thousands of parts: in the order of their addresses each goes behind those that are there.
        for part in sorted(sparse, key=lambda part: part.address):
            self.engine.register(part.rank, part.address, part.nbytes, part.name, initialised=part.is_filled,
                                 parts=("expert", part.nbytes // part.count, part.first))

    def _unlinked(self, code_objects: list[bytes], count_stages: bool) -> Any:
        options = self.options
        if not self.is_emulator:
            library = fake_hip(options) if options.device == "fake-hip" else None
            return _native.Unlinked(self.geometry.name, options.ranks, code_objects, witness=False, device="hip",
                                    library=library)
        return _native.Unlinked(self.geometry.name, options.ranks, code_objects, schedule_seed=options.schedule_seed,
                                schedule=options.schedule, check=options.check, memory=options.memory,
                                count_stages=count_stages)

    def _bind(self, rank: int, layer: int, experts: list[int] | None) -> list[_Experts]:
        """Registers and binds a layer, but for experts of which not all exist: those are returned."""
        sparse: list[_Experts] = []
        specs = layer_specs(self.geometry, self.options.ranks, layer)
        tensors = layer_tensors(self.weights[rank], layer, specs)
        for field, tensor in tensors.items():
            if field in EXPERT_FIELDS and experts is not None:
                name = f"rank {rank}'s {field} of layer {layer}"
                sparse += _runs_of_experts(rank, tensor, name, self.geometry.num_experts, experts)
            else:
                self._register(rank, tensor, f"{field} of layer {layer}")
        addresses = {field: tensor.data_ptr() for field, tensor in tensors.items()}
        state = None
        if layer in self.pages:
            pages = self.pages[layer][rank]
            state = pages.state
            self._register(rank, pages.pages, f"states of layer {layer}")
            addresses |= {"conv_state": state.conv.data_ptr(), "recurrent_state": state.recurrent.data_ptr()}
        self.engine.bind_layer(rank, layer, addresses, layer_numbers(self.geometry, layer, state))
        return sparse

    def _register(self, rank: int, tensor: Tensor, name: str) -> None:
        """Makes a tensor's memory reachable; what ranks share is registered once."""
        key = (tensor.data_ptr(), tensor.nbytes)
        if key in self._registered:
            return
        self._registered.add(key)
        if self.engine.register(rank, *key, f"rank {rank}'s {name}", owner=tensor) != tensor.data_ptr():
            raise UserError(f"HIP sees rank {rank}'s {name} at another address than the host",
                            "run on GPUs that use the host's addresses, or with --device emulator")

    def launch(self, run: tuple[int, int], before: Residual, cores: list[Tensor] | None, *,
               last_of_step: bool) -> tuple[RunRecord, Exception | None]:
        """Runs layers first..last on every rank; what went in and came out, and the machine's error if it had one."""
        first, last = run
        for rank, memory in enumerate(self.memory):
            memory.prefix.copy_(before.prefix)
            memory.blocks.copy_(before.blocks)
            if before.delta is not None:
                memory.delta.copy_(before.delta)
            if cores is not None:
                memory.core.copy_(cores[rank])
        old = {layer: [p.clone() for p in self.pages[layer]] for layer in range(first, last + 1) if layer in self.pages}
        epoch = self.engine.epoch(0)
        failure = self._launch(run, has_delta=before.delta is not None, last_of_step=last_of_step)
        exchanges = {
            layer: LayerExchanges(self.engine, self.geometry.shard(self.options.ranks), self.options.rows, layer, epoch)
            for layer in (range(first, last + 1) if self.is_emulator else ())
        }
        record = RunRecord(first, last, self.options.requests, before, cores,
                           [memory.residual() for memory in self.memory], self._state_steps(old), exchanges)
        return record, failure

    def _launch(self, run: tuple[int, int], *, has_delta: bool, last_of_step: bool) -> Exception | None:
        for rank, memory in enumerate(self.memory):
            self.engine.launch(
                rank, *run, requests=self.options.requests, speculative_tokens=self.options.speculative_tokens,
                prefix=memory.prefix.data_ptr(), blocks=memory.blocks.data_ptr(),
                blocks_row_stride=memory.blocks.stride(0), block_stride=memory.blocks.stride(1),
                delta=memory.delta.data_ptr(), core=memory.core.data_ptr(), has_delta=has_delta,
                last_of_step=last_of_step)
        try:
            self.engine.synchronize()
        except (_native.MachineError, _native.DeviceFailure) as error:
            return error
        return None

    def _state_steps(self, old: dict[int, list[StatePages]]) -> dict[int, list[StateStep]]:
        """`plan` says what the device was told, unless a fault changed it."""
        accepted = self.accepted
        return {
            layer: [
                StateStep(before.state, now.state, self.plan.indices(layer), accepted, before.pages, now.pages)
                for before, now in zip(pages, self.pages[layer], strict=True)
            ]
            for layer, pages in old.items()
        }

    @property
    def accepted(self) -> Tensor:
        """int32 [R]: what the last `accept` set."""
        return self.memory[0].num_accepted.clone()

    def accept(self, num_accepted: Iterable[int]) -> None:
        """Tells every rank how many tokens of the last step each request keeps."""
        for memory in self.memory:
            memory.num_accepted.copy_(torch.tensor(list(num_accepted), dtype=torch.int32))

    def finish_step(self) -> None:
        """Forgets the step's exchanges."""
        if self.is_emulator:
            self.engine.clear_tap()

    def races(self) -> list[dict[str, Any]]:
        """Every race found so far."""
        return self.engine.races() if self.is_emulator else []

    def statistics(self) -> dict[str, Any]:
        """The emulator's counters; with `count_stages` also `stages`, as `Engine.stage_counts` gives them."""
        if not self.is_emulator:
            return {}
        counted = self.engine.statistics()
        return counted | {"stages": self.engine.stage_counts()} if self._count_stages else counted


def load_code_objects(geometry: str, ranks: int) -> tuple[str, bytes]:
    """Name and bytes of the code object that serves a geometry at a rank count."""
    name = _native.geometry(geometry, ranks)["code_object"]
    return name, kernels.code_object(name)
