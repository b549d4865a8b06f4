"""Regions and witness as Python reads them are as Rust lays them out."""

from __future__ import annotations

import pytest
import torch

from kimi_k3_specdec import _native
from kimi_k3_specdec.decoding.exchanges import (
    MAX_ROWS,
    PAIR_REGIONS,
    ROW_REGIONS,
    Image,
    Witness,
    coverage,
    hidden_scale_order,
    parts,
)
from kimi_k3_specdec.reference.geometry import Shard, by_name

BUILDS = [("nano", 1), ("nano", 2), ("nano-deep", 2), ("k3", 8)]


@pytest.mark.parametrize(("geometry", "ranks"), BUILDS)
def test_regions(geometry: str, ranks: int) -> None:
    """Names, forms and sizes."""
    known, shard = _native.geometry(geometry, ranks)["regions"], by_name(geometry).shard(ranks)
    assert {name for name, (_, form) in known.items() if form == "rows"} == set(ROW_REGIONS)
    assert {name for name, (_, form) in known.items() if form == "pairs"} == set(PAIR_REGIONS)
    for name, (size, _) in known.items():
        assert sum(part.num_bytes for part in parts(name, shard)) == size, name
        assert coverage(name, shard, MAX_ROWS).size == size


@pytest.mark.parametrize(("geometry", "ranks"), BUILDS)
def test_witness(geometry: str, ranks: int) -> None:
    """A marked byte at each offset comes out in the field of that name, and the block has no more."""
    layout, shard = _native.geometry(geometry, ranks)["witness"], by_name(geometry).shard(ranks)
    block = bytearray(layout["bytes"])
    for name in ("mix", "picks", "pick_weights", "codes", "scales"):
        block[layout[name]] = 1
    witness = Witness.parse(bytes(block), shard, 2)
    for field in (witness.attention_weights, witness.picks, witness.pick_weights, witness.packed, witness.codes):
        assert field[0, 0] != 0 and torch.count_nonzero(field) == 1
    assert torch.count_nonzero(witness.mlp_weights) == 0
    end = bytearray(layout["bytes"])
    end[-1] = 1
    assert Witness.parse(bytes(end), shard, MAX_ROWS).codes[-1, -1] == 1


def test_the_scales_of_a_pick_cover_each_block_once() -> None:
    """Four blocks of 32 to a matrix instruction; K3 has three of those, nano one."""
    assert hidden_scale_order(_shard("nano", 2)).tolist() == [0, 4, 8, 12]
    assert hidden_scale_order(_shard("k3", 8)).tolist() == [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14]


def test_a_hole_has_a_place() -> None:
    """The array and index of the first byte that is not as it should be."""
    shard = _shard("nano", 2)
    written = bytearray(coverage("core", shard, 3).tobytes())
    image = Image("core", shard, 3, bytes(len(written)), bytes(written))
    assert image.holes().size == 0
    squares = parts("core", shard)[0].num_bytes
    written[squares + 4 * 9] ^= 1
    image = Image("core", shard, 3, bytes(len(written)), bytes(written))
    part, index = image.place(int(image.holes()[0]))
    assert (part.name, index) == ("squares", (0, 1, 1))


def _shard(geometry: str, ranks: int) -> Shard:
    return by_name(geometry).shard(ranks)
