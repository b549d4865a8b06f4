"""What the checks of one layer share: exchanges, weights, the residual stream so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from ...reference.geometry import Geometry, Shard
from ...reference.weights import RankWeights
from ..exchanges import ATTENTION_REGIONS, PAIR_REGIONS, Image, LayerExchanges, Witness
from .verdicts import Verdicts, bits


@dataclass
class Residual:
    """The stream as it must be by the launch's inputs and the pairs that the ranks pushed."""

    prefix: Tensor
    """bf16 [S, H]."""
    blocks: Tensor
    """bf16 [S, num_blocks, H]; unwritten ones hold what they held."""
    delta: Tensor | None
    """bf16 [S, H]: the last layer's output, not yet added."""

    def clone(self) -> Residual:
        """A copy that shares nothing."""
        return Residual(self.prefix.clone(), self.blocks.clone(), None if self.delta is None else self.delta.clone())


@dataclass
class LayerCheck:
    """One layer of one launch on all ranks."""

    layer: int
    kind: str
    """`whole`, or `ffn`: the half of an MLA layer behind its attention."""
    weights: list[RankWeights]
    exchanges: LayerExchanges
    residual: Residual
    verdicts: Verdicts
    requests: int
    _checked: dict[str, list[list[Tensor]]] = field(default_factory=dict)

    @property
    def shard(self) -> Shard:
        """One rank's sizes."""
        return self.weights[0].shard

    @property
    def geometry(self) -> Geometry:
        """The model's sizes."""
        return self.shard.geometry

    @property
    def ranks(self) -> range:
        """Every rank."""
        return range(len(self.weights))

    @property
    def rows(self) -> int:
        """Token rows of the step."""
        return self.exchanges.rows

    def tensors(self, rank: int) -> dict[str, Tensor]:
        """This layer's loaded weights of `rank`."""
        return self.weights[rank].layers[self.layer]

    @cached_property
    def witnesses(self) -> list[Witness]:
        """By rank."""
        return [self.exchanges.witness(rank) for rank in self.ranks]

    def region(self, name: str) -> list[list[Tensor]]:
        """A region's arrays by owning rank, after a look at what was stored: all of the step's rows, nothing else.

        Pairs must also be the same in every owner's buffer.
        """
        if name not in self._checked:
            images = [self._covered(owner, name) for owner in self.ranks]
            self._checked[name] = [image.tensors() for image in images]
            if name in PAIR_REGIONS:
                self._compare_owners(name)
        return self._checked[name]

    def nothing_stored(self, name: str) -> None:
        """A stage that this layer does not have stored nothing."""
        for owner in self.ranks:
            image = self.exchanges.image(owner, name)
            if image is not None and any(image.written):
                self.verdicts.refuse(name, self.layer, owner, 0, 0, "stored by a layer that has no such stage")

    def check_absent(self) -> None:
        """An MLA layer's half leaves the regions of its attention alone."""
        if self.kind == "ffn":
            for name in ATTENTION_REGIONS:
                self.nothing_stored(name)

    def _covered(self, owner: int, name: str) -> Image:
        image = self.exchanges.image(owner, name)
        if image is None:
            self.verdicts.refuse(name, self.layer, owner, 0, 0, f"nothing in rank {owner}'s {name}")
        holes = image.holes()
        if holes.size:
            part, index = image.place(int(holes[0]))
            row = index[part.row_axis] // part.rows_per_row
            column = index[-1] if len(index) == part.row_axis + 2 else _flat(index[part.row_axis + 1 :], part.shape)
            what = "never stored" if row < self.rows else "past the step's rows"
            source = self._source(name, part.row_axis, index)
            detail = f"{what}: {part.name} {list(index)} of rank {owner}'s {name}, {holes.size} bytes in all"
            self.verdicts.refuse(name, self.layer, owner if source is None else source, row, column, detail)
        return image

    def _source(self, name: str, row_axis: int, index: tuple[int, ...]) -> int | None:
        """The rank that pushes a pair; None for what stays inside its owner."""
        if name not in PAIR_REGIONS:
            return None
        if row_axis == 1:
            return index[0]
        return index[-1] // (self.shard.router_rows if name == "logits" else self.shard.latent_rows)

    def _compare_owners(self, name: str) -> None:
        first = self._checked[name][0][0]
        for owner in self.ranks[1:]:
            other = self._checked[name][owner][0]
            if not torch.equal(bits(first), bits(other)):
                index = tuple(int(i) for i in (bits(first) != bits(other)).nonzero()[0])
                axis = first.dim() - 2
                self.verdicts.refuse(name, self.layer, self._source(name, axis, index) or 0, index[axis], index[-1],
                                     f"rank {owner}'s copy against rank 0's", float(other[index]), float(first[index]))


def _flat(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    column = 0
    for i, size in zip(index, shape[-len(index) :], strict=True):
        column = column * size + i
    return column
