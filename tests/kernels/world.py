"""A nano model's memory on every rank, launches over it, and what those launches handed from stage to stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from kimi_k3_specdec import _native, kernels
from kimi_k3_specdec.decoding.binding import layer_numbers, layer_tensors
from kimi_k3_specdec.decoding.exchanges import LayerExchanges, Witness, parts
from kimi_k3_specdec.reference.geometry import CONV_HISTORY, NANO, Geometry
from kimi_k3_specdec.reference.kda import KdaState
from kimi_k3_specdec.reference.synthetic import synthetic_layers
from kimi_k3_specdec.reference.weights import RankWeights, layer_specs

REGIONS = ("attention_dots", "attention_x", "proj", "core", "attention_out", "mlp_dots", "mlp_x", "logits", "latent",
           "shared_hidden", "expert_hidden", "latent_out", "latent_z", "output")
"""In the order of the stages."""
ATTENTION_REGIONS = REGIONS[:4]
"""What the half of an MLA layer does not store."""

NUM_GROUPS = 2
ROWS_BEHIND = 2
"""Rows behind the step's in every activation: NaN, and nobody may touch them."""
INDICES_BEHIND = 3
"""Entries behind a request's q state indices: no slot, and nobody may read them."""
NO_SLOT = 0x7FFFFFFF
SPARE_SLOTS = 3

Change = Callable[[dict[str, Tensor], int], None]
"""Replaces tensors in one rank's copy of a layer's loaded weights; their memory is shared between tests."""


@dataclass(frozen=True)
class Shape:
    """Ranks, and the requests and rows of a step."""

    ranks: int
    requests: int
    q: int

    @property
    def rows(self) -> int:
        """Token rows."""
        return self.requests * self.q

    def __str__(self) -> str:
        """A test id."""
        return f"tp{self.ranks}-{self.requests}x{self.q}"


@lru_cache
def loaded(geometry: Geometry, ranks: int, layer: int, seed: int) -> list[RankWeights]:
    """One layer's random weights on every rank, all experts filled."""
    return synthetic_layers(geometry, ranks, [layer], seed, range(geometry.num_experts))


@dataclass
class States:
    """One layer's states on one rank, slots on pages that are larger than both."""

    pages: Tensor
    """float32 [slots, page]."""
    state: KdaState
    """Views of the pages, the convolution's as [slots, entries, channels] whatever lies innermost."""

    @staticmethod
    def draw(shard, slots: int, q: int, token_innermost: bool, g: torch.Generator) -> States:
        """Random states in all slots but 0, which is NaN."""
        entries, channels, heads, dim = q + CONV_HISTORY - 1, shard.conv_channels, shard.heads, shard.geometry.head_dim
        conv_words = -(-entries * channels // 2 // 64) * 64
        page = conv_words + heads * dim * dim + 64
        pages = torch.full((slots, page), torch.nan)
        strides = (1, entries) if token_innermost else (channels, 1)
        conv = pages.view(torch.bfloat16).as_strided((slots, entries, channels), (2 * page, *strides))
        recurrent = pages.as_strided((slots, heads, dim, dim), (page, dim * dim, dim, 1), conv_words)
        conv[1:] = torch.randn(slots - 1, entries, channels, generator=g).to(torch.bfloat16)
        recurrent[1:] = 0.1 * torch.randn(slots - 1, heads, dim, dim, generator=g)
        return States(pages, KdaState(conv, recurrent))


class World:
    """Everything that launches of `layers` need, on every rank; tests change what they like before `run`."""

    def __init__(self, shape: Shape, layers: Sequence[int] = (1,), *, geometry: Geometry = NANO, seed: int = 0,
                 change: Change | None = None, token_innermost: bool = False, schedule_seed: int = 0,
                 stall: str = "error", timeout_seconds: float = 3.0, library: Path | None = None) -> None:
        """Random stream and states, alike on all ranks where they are replicated; `change` edits the weights.

        `library`: the HIP to run on; None: the emulator.
        """
        self.shape, self.layers, self.geometry = shape, tuple(layers), geometry
        self.shard = geometry.shard(shape.ranks)
        g = torch.Generator().manual_seed(1000 + seed)
        self.weights = self._weights(seed, change)
        self._activations(g)
        self._metadata(g)
        self.states = {
            layer: [States.draw(self.shard, self.num_slots, shape.q, token_innermost, g) for _ in range(shape.ranks)]
            for layer in self.layers if geometry.layer_kind(layer) == "kda"
        }
        code_object = kernels.code_object(_native.geometry(geometry.name, shape.ranks)["code_object"])
        self.engine = _native.Unlinked(geometry.name, shape.ranks, [code_object], schedule_seed=schedule_seed,
                                       stall=stall, timeout_seconds=timeout_seconds,
                                       device="emulator" if library is None else "hip", library=library).link()
        self._registered: set[int] = set()
        for rank in range(shape.ranks):
            self._bind(rank)

    def _weights(self, seed: int, change: Change | None) -> list[RankWeights]:
        ranks = self.shape.ranks
        out = [RankWeights(self.geometry, ranks, rank, {}, {}) for rank in range(ranks)]
        for layer in self.layers:
            for own, shared in zip(out, loaded(self.geometry, ranks, layer, seed), strict=True):
                tensors = dict(shared.layers[layer])
                if change is not None:
                    change(tensors, own.rank)
                own.layers[layer] = tensors
        return out

    def _activations(self, g: torch.Generator) -> None:
        rows, ranks, hidden = self.shape.rows, self.shape.ranks, self.geometry.hidden
        blocks = self.geometry.num_blocks

        def behind(values: Tensor) -> Tensor:
            tail = torch.full((ROWS_BEHIND, *values.shape[1:]), torch.nan, dtype=torch.bfloat16)
            return torch.cat((values.to(torch.bfloat16), tail))

        prefix, delta = (torch.randn(rows, hidden, generator=g) for _ in range(2))
        bank = torch.full((rows, blocks + 1, hidden + 128), torch.nan)
        valid = self.geometry.prev_valid_blocks(self.layers[0])
        bank[:, :valid, :hidden] = torch.randn(rows, valid, hidden, generator=g)
        self.prefix = [behind(prefix) for _ in range(ranks)]
        self.delta = [behind(delta) for _ in range(ranks)]
        self.bank = [behind(bank) for _ in range(ranks)]
        self.core = [behind(torch.randn(rows, self.shard.projection, generator=g)) for _ in range(ranks)]

    def _metadata(self, g: torch.Generator) -> None:
        requests, q, ranks = self.shape.requests, self.shape.q, self.shape.ranks
        self.num_slots = 1 + NUM_GROUPS * requests * q + SPARE_SLOTS
        slots = 1 + torch.randperm(self.num_slots - 1, generator=g)[: NUM_GROUPS * requests * q]
        indices = torch.full((NUM_GROUPS, requests, q + INDICES_BEHIND), NO_SLOT, dtype=torch.int32)
        indices[:, :, :q] = slots.view(NUM_GROUPS, requests, q)
        self.indices = [indices.clone() for _ in range(ranks)]
        self.accepted = [torch.ones(requests, dtype=torch.int32) for _ in range(ranks)]

    def _bind(self, rank: int) -> None:
        for name in ("prefix", "delta", "bank", "core", "indices", "accepted"):
            self._register(rank, getattr(self, name)[rank], name)
        indices, accepted = self.indices[rank], self.accepted[rank].data_ptr()
        self.engine.bind_groups(rank, [(group.data_ptr(), group.stride(0), accepted) for group in indices])
        for layer in self.layers:
            tensors = layer_tensors(self.weights[rank], layer, layer_specs(self.geometry, self.shape.ranks, layer))
            for field, tensor in tensors.items():
                self._register(rank, tensor, f"{field} of layer {layer}")
            addresses = {field: tensor.data_ptr() for field, tensor in tensors.items()}
            numbers = layer_numbers(self.geometry, layer, None)
            if layer in self.states:
                pages, state = self.states[layer][rank].pages, self.states[layer][rank].state
                self._register(rank, pages, f"states of layer {layer}")
                addresses |= {"conv_state": state.conv.data_ptr(), "recurrent_state": state.recurrent.data_ptr()}
                numbers = layer_numbers(self.geometry, layer, state) | {"state_group": self.group(layer)}
            self.engine.bind_layer(rank, layer, addresses, {name: float(n) for name, n in numbers.items()})

    def _register(self, rank: int, tensor: Tensor, name: str) -> None:
        """Replicated weights are one tensor: registered once."""
        if tensor.data_ptr() not in self._registered:
            self._registered.add(tensor.data_ptr())
            self.engine.register(rank, tensor.data_ptr(), tensor.nbytes, f"rank {rank}'s {name}", owner=tensor)

    @staticmethod
    def group(layer: int) -> int:
        """The cache group of a KDA layer."""
        return layer % NUM_GROUPS

    @property
    def blocks(self) -> list[Tensor]:
        """bf16 [rows, num_blocks, hidden] by rank, views of the banks."""
        return [bank[: self.shape.rows, : self.geometry.num_blocks, : self.geometry.hidden] for bank in self.bank]

    def slots(self, layer: int) -> Tensor:
        """int32 [requests, q]: a layer's state indices."""
        return self.indices[0][self.group(layer), :, : self.shape.q]

    def set_slots(self, layer: int, request: int, slots: Iterable[int]) -> None:
        """Other state indices for one request, on every rank."""
        for indices in self.indices:
            indices[self.group(layer), request, : self.shape.q] = torch.tensor(list(slots), dtype=torch.int32)

    def accept(self, counts: Iterable[int]) -> None:
        """Other accepted counts, on every rank."""
        values = torch.tensor(list(counts), dtype=torch.int32)
        for accepted in self.accepted:
            accepted.copy_(values)

    def fill(self, what: str, values: Tensor) -> None:
        """Other values for the step's rows of `prefix`, `delta`, `core` or `blocks`, on every rank."""
        for memory in getattr(self, what):
            memory[: self.shape.rows] = values.to(torch.bfloat16)

    def adopt(self, request: int, other: World, of: int) -> None:
        """Gives `request` the rows, states and accepted count of another world's request `of`, in its own slots.

        With another q only the rows and entries that both have.
        """
        q = min(self.shape.q, other.shape.q)
        own, theirs = (slice(i * w.shape.q, i * w.shape.q + q) for i, w in ((request, self), (of, other)))
        for rank in range(self.shape.ranks):
            for name in ("prefix", "delta", "bank", "core"):
                getattr(self, name)[rank][own] = getattr(other, name)[rank][theirs]
            self.accepted[rank][request] = other.accepted[rank][of]
            for layer, ranks in self.states.items():
                for slot, source in zip(self.slots(layer)[request, :q], other.slots(layer)[of, :q], strict=True):
                    state, old = ranks[rank].state, other.states[layer][rank].state
                    state.conv[slot, : q + 2] = old.conv[source, : q + 2]
                    state.recurrent[slot] = old.recurrent[source]

    def left_by(self, request: int) -> dict[str, Tensor]:
        """uint8: what launches left in memory of one request: its rows, and the states in its slots, in order."""
        rows, out = slice(request * self.shape.q, (request + 1) * self.shape.q), {}
        for rank in range(self.shape.ranks):
            for name in ("prefix", "delta", "bank"):
                out[f"{name} {rank}"] = as_bytes(getattr(self, name)[rank][rows])
            for layer, ranks in self.states.items():
                slots = self.slots(layer)[request].long()
                out[f"conv of layer {layer} {rank}"] = as_bytes(ranks[rank].state.conv[slots])
                out[f"recurrent of layer {layer} {rank}"] = as_bytes(ranks[rank].state.recurrent[slots])
        return out

    def memory(self) -> dict[str, Tensor]:
        """A copy of all that launches may write, as bytes [rows or slots, ...], by name and rank."""
        out = {f"{name} {rank}": tensor for name in ("prefix", "delta", "bank")
               for rank, tensor in enumerate(getattr(self, name))}
        out |= {f"states of layer {layer} {rank}": own.pages
                for layer, ranks in self.states.items() for rank, own in enumerate(ranks)}
        return {name: as_bytes(tensor).clone() for name, tensor in out.items()}

    def launch(self, run: tuple[int, int], *, has_delta: bool = True, last_of_step: bool = True,
               ranks: Iterable[int] | None = None) -> None:
        """Enqueues one run, on all ranks or some; nothing happens before the engine synchronises."""
        for rank in range(self.shape.ranks) if ranks is None else ranks:
            blocks = self.blocks[rank]
            self.engine.launch(
                rank, *run, requests=self.shape.requests, speculative_tokens=self.shape.q - 1,
                prefix=self.prefix[rank].data_ptr(), blocks=blocks.data_ptr(), blocks_row_stride=blocks.stride(0),
                block_stride=blocks.stride(1), delta=self.delta[rank].data_ptr(), core=self.core[rank].data_ptr(),
                has_delta=has_delta, last_of_step=last_of_step)

    def run(self, *runs: tuple[int, int], has_delta: bool = True) -> Step:
        """One step: the runs, each on all ranks at once, one after another; all layers in one run by default."""
        step = Step(self, self.engine.epoch(0))
        runs = runs or ((self.layers[0], self.layers[-1]),)
        for run in runs:
            self.launch(run, has_delta=has_delta, last_of_step=run == runs[-1])
            self.engine.synchronize()
        return step


class Step:
    """What the layers of one step exchanged."""

    def __init__(self, world: World, epoch: int) -> None:
        """`epoch` is the step's."""
        self.world, self.epoch = world, epoch
        self._layers = {layer: LayerExchanges(world.engine, world.shard, world.shape.rows, layer, epoch)
                        for layer in world.layers}

    def tensors(self, layer: int, region: str, owner: int = 0) -> list[Tensor]:
        """A region's arrays, the step's rows; fails unless exactly those were stored."""
        image = self._layers[layer].image(owner, region)
        assert image is not None, f"nothing in rank {owner}'s {region} of layer {layer}"
        holes = image.holes()
        assert holes.size == 0, f"{region} of layer {layer}, rank {owner}: {image.place(int(holes[0]))} is wrong"
        return image.tensors()

    def stored(self, layer: int, region: str, owner: int = 0) -> bool:
        """Whether anything was stored there."""
        return self._layers[layer].image(owner, region) is not None

    def witness(self, layer: int, rank: int = 0) -> Witness:
        """What `rank` noted down in the last launch that held the layer."""
        return self._layers[layer].witness(rank)

    def by_row(self, layer: int) -> dict[str, Tensor]:
        """uint8 [rows, bytes]: every exchanged array of a layer by region, array and owner, and the witness."""
        whole = self.world.geometry.layer_kind(layer) == "kda"
        out = {}
        for region in REGIONS if whole else REGIONS[len(ATTENTION_REGIONS) :]:
            for owner in range(self.world.shape.ranks):
                arrays = zip(parts(region, self.world.shard), self.tensors(layer, region, owner), strict=True)
                for part, tensor in arrays:
                    name = f"{region}.{part.name} of rank {owner}, layer {layer}"
                    out[name] = as_bytes(tensor.movedim(part.row_axis, 0)).reshape(self.world.shape.rows, -1)
        for rank in range(self.world.shape.ranks):
            witness = self.witness(layer, rank)
            fields = ("mlp_weights", "picks", "pick_weights", "packed", "codes")
            for field in (*fields, *(("attention_weights",) if whole else ())):
                out[f"{field} of rank {rank}, layer {layer}"] = as_bytes(getattr(witness, field))
        return out

    def everything(self) -> dict[str, Tensor]:
        """`by_row` of every layer."""
        return {name: rows for layer in self.world.layers for name, rows in self.by_row(layer).items()}


def as_bytes(tensor: Tensor) -> Tensor:
    """uint8 [first dimension, bytes]: equal bits are equal, NaNs too."""
    return tensor.contiguous().view(torch.uint8).reshape(tensor.shape[0], -1)


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], rows: slice | list[int] = slice(None),
                expected_rows: slice | list[int] | None = None) -> None:
    """Bits of the same names are equal, in all rows or those given."""
    assert found.keys() == expected.keys()
    for name, bits in found.items():
        other = expected[name][rows if expected_rows is None else expected_rows]
        assert torch.equal(bits[rows], other), f"{name} differs in rows {(bits[rows] != other).any(1).nonzero()[:, 0]}"


def assert_close(found: Tensor, expected: Tensor, tolerance: Tensor | float, what: str) -> None:
    """|found - expected| <= tolerance everywhere; a NaN on either side fails."""
    error = (found.to(torch.float64) - expected.to(torch.float64)).abs()
    bad = ~(error <= tolerance)
    if bad.any():
        at = tuple(int(i) for i in bad.nonzero()[0])
        allowed = tolerance if isinstance(tolerance, float) else float(tolerance.expand_as(error)[at])
        raise AssertionError(f"{what} at {list(at)}: {float(found[at]):.9g}, expected {float(expected[at]):.9g} within "
                             f"{allowed:.3g}; {int(bad.sum())} of {bad.numel()} differ")
