"""Captured steps of a small world, replayed with padded requests; the same batches launched eagerly, not padded."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.world import World
from kimi_k3_specdec import _native

KV, FIXED = 11, 22
"""Fingerprints of the binding, as if of addresses."""
VERIFY = 3
"""`Executor.plan`'s number for metadata that has counts."""
ACTIVATIONS = ("prefix", "delta", "bank", "core")


@dataclass(frozen=True)
class Batch:
    """What one step verifies: requests of the world, by number, and what they bring."""

    requests: list[int]
    accepted: list[int]
    activations: dict[str, Tensor]
    """bf16 [rows, ...], as the world's own, but only rows that a request has."""


def draw(world: World, width: int, g: torch.Generator, rng: random.Random) -> Batch:
    """At most `width` rows of the world's requests, in any order, with random activations and accepted counts."""
    q = world.shape.q
    requests = rng.sample(range(world.shape.requests), rng.randint(1, width // q))
    rows, activations = len(requests) * q, {}
    for name in ACTIVATIONS:
        like = getattr(world, name)[0][:rows]
        activations[name] = torch.randn(like.shape, generator=g).to(torch.bfloat16)
    valid = world.geometry.prev_valid_blocks(world.layers[0])
    activations["bank"][:, valid:] = torch.nan
    activations["bank"][:, :, world.geometry.hidden :] = torch.nan
    return Batch(requests, [rng.randint(1, q) for _ in requests], activations)


class Slots:
    """The state slots of a world's requests, whatever place of a batch they come to."""

    def __init__(self, world: World) -> None:
        """As the world has drawn them: request n in place n."""
        self._world, self._home = world, world.indices[0].clone()

    def load(self, batch: Batch) -> None:
        """Writes a batch into the world's persistent tensors, on every rank; the places behind it are padded as vLLM
        pads them: slot 0, one accepted token, and whatever rows are left there.
        """
        world, q, live = self._world, self._world.shape.q, len(batch.requests)
        for rank in range(world.shape.ranks):
            world.indices[rank][:, :live, :q] = self._home[:, batch.requests, :q]
            world.indices[rank][:, live:, :q] = 0
            world.accepted[rank][:live] = torch.tensor(batch.accepted, dtype=torch.int32)
            world.accepted[rank][live:] = 1
            for name, values in batch.activations.items():
                getattr(world, name)[rank][: live * q] = values


def has_delta(world: World, run: tuple[int, int]) -> bool:
    """Behind an MLA layer's attention the prefix holds the delta already."""
    return world.geometry.layer_kind(run[0]) == "kda"


class Eager:
    """A world that launches batches as they are."""

    def __init__(self, world: World) -> None:
        """`world`: of the most requests that a batch has."""
        self.world, self._slots = world, Slots(world)
        self._runs = world.engine.runs((world.layers[0], world.layers[-1]))

    def run(self, batch: Batch) -> None:
        """One step of exactly the batch's rows."""
        world, live = self.world, len(batch.requests)
        self._slots.load(batch)
        for run in self._runs:
            for rank in range(world.shape.ranks):
                blocks = world.blocks[rank]
                world.engine.launch(
                    rank, *run, requests=live, speculative_tokens=world.shape.q - 1,
                    prefix=world.prefix[rank].data_ptr(), blocks=blocks.data_ptr(),
                    blocks_row_stride=blocks.stride(0), block_stride=blocks.stride(1),
                    delta=world.delta[rank].data_ptr(), core=world.core[rank].data_ptr(),
                    has_delta=has_delta(world, run), last_of_step=run == self._runs[-1])
        world.engine.synchronize()


class Replayed:
    """A world whose steps of every width are captured once, on every rank, by executors that keep the books."""

    def __init__(self, world: World) -> None:
        """Captures them."""
        self.world, self.engine, self._slots = world, world.engine, Slots(world)
        requests, q = world.shape.requests, world.shape.q
        self.widths = [n * q for n in range(1, requests + 1)]
        self.executors = [
            _native.Executor(self.engine, rank, list(world.layers), q, self.widths, [], 3.0)
            for rank in range(world.shape.ranks)]
        for rank, executor in enumerate(self.executors):
            executor.bind(KV, FIXED)
            executor.bind_groups([(group.data_ptr(), group.stride(0), world.accepted[rank].data_ptr())
                                  for group in world.indices[rank]])
        for n in range(1, requests + 1):
            self.engine.prepare(n, q - 1)
        self.graphs = {width: [self.capture(rank, width) for rank in range(world.shape.ranks)] for width in self.widths}

    def plan(self, rank: int, width: int, *, is_capture: bool = False, kv: int = KV, fixed: int = FIXED) -> int | None:
        """A step's number of runs."""
        q = self.world.shape.q
        return self.executors[rank].plan(
            width, has_intermediate_tensors=False, has_context=True, graph_mode=0, metadata=VERIFY,
            counts=(0, 0, width // q, q, q), kv=kv, fixed=fixed, is_capture=is_capture)

    def launch(self, rank: int, index: int) -> None:
        """A run of the planned step, over the world's tensors."""
        world, blocks = self.world, self.world.blocks[rank]
        run = self.executors[rank].runs()[index]
        self.executors[rank].set_residuals(world.prefix[rank].data_ptr(), blocks.data_ptr(), blocks.stride(0),
                                           blocks.stride(1), world.delta[rank].data_ptr())
        self.executors[rank].launch(index, world.core[rank].data_ptr(), has_delta(world, run))

    def capture(self, rank: int, width: int) -> tuple[int, int]:
        """Graph numbers: the executor's and the engine's."""
        self.engine.begin_capture(rank)
        runs = self.plan(rank, width, is_capture=True)
        assert runs == len(self.executors[rank].runs())
        for index in range(runs):
            self.launch(rank, index)
        captured, graph = self.engine.end_capture(rank), self.executors[rank].last_graph()
        assert graph is not None
        return graph, captured

    def replay(self, width: int, live_rows: int | None = None, *, kv: int = KV, fixed: int = FIXED,
               ranks: tuple[int, ...] | None = None) -> None:
        """Queues a width's graph, announced."""
        for rank in range(self.world.shape.ranks) if ranks is None else ranks:
            graph, captured = self.graphs[width][rank]
            self.executors[rank].replay(graph, captured, live_rows or width, kv, fixed)

    def books(self, *, run: bool = True) -> list[bytes]:
        """Every rank's for the vote, with the reports of what has been queued if that is `run`."""
        books = [executor.after_step() for executor in self.executors]
        if run:
            self.engine.run()
            books = [executor.after_step() for executor in self.executors]
        return books

    def verdict(self, *, run: bool = True) -> bool:
        """Whether all ranks may go on; all say the same."""
        books = self.books(run=run)
        verdicts = {executor.verdict(b"".join(books)) for executor in self.executors}
        assert len(verdicts) == 1
        return verdicts.pop()

    def why(self) -> str:
        """What a person is told of the stop."""
        return self.executors[0].diagnosis([], [])["sentence"]

    def run(self, batch: Batch, width: int) -> None:
        """One replayed step, padded to `width` rows."""
        self._slots.load(batch)
        self.replay(width, len(batch.requests) * self.world.shape.q)
        assert self.verdict(), self.why()
