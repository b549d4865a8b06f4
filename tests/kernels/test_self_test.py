"""The step without layers: peers, graphs and the words that a replay reads, before anything depends on them."""

import re

import pytest

from kimi_k3_specdec._native import DeviceFailure

from .test_begin import LAYERS
from .test_protocol import SHAPE
from .world import Shape, World


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_start_up_test_passes_and_counts_its_steps(ranks):
    """On every rank; real steps follow it."""
    world = World(Shape(ranks, 2, 2), LAYERS)
    world.engine.self_test()
    assert [world.engine.epoch(rank) for rank in range(ranks)] == [8] * ranks
    world.run((1, 2))


@pytest.mark.parametrize("culprit", [0, 1])
def test_the_start_up_test_finds_a_replay_that_sees_old_words(culprit):
    """As a graph does whose small copies arrive late."""
    world = World(SHAPE, LAYERS)
    world.engine.lose_copy(culprit, 3)
    with pytest.raises(DeviceFailure, match=f"rank {culprit}, .*read metadata of step 2 in step 3"):
        world.engine.self_test()


@pytest.mark.parametrize("what", ["drop", "payload"])
def test_the_start_up_test_finds_peer_memory_that_does_not_hold_what_was_stored(what):
    """A pair that never comes, and one with another payload, which no layer could tell from a right one."""
    world = World(SHAPE, LAYERS, stall="advance")
    if what == "drop":
        world.engine.drop_store(1, "attention_out", 0, 300)
        sentence = "waited in vain for rank"
    else:
        world.engine.corrupt_store(1, "attention_out", 0, 300, 1 << 5)
        sentence = "rank 0, .* where rank 1 had stored"
    with pytest.raises(DeviceFailure) as failure:
        world.engine.self_test()
    assert any(re.search(sentence, record) for record in failure.value.records)
