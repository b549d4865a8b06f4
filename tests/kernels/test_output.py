"""`output`: the last layer's output in memory, and the step's epoch."""

import pytest
import torch

from kimi_k3_specdec.reference.bf16 import all_reduce

from .world import Shape, World, as_bytes


def test_delta_in_memory(recorded):
    """The sum of every rank's pairs in rank order, rounded once, the same on all ranks."""
    world, rows = recorded.world, recorded.world.shape.rows
    for rank in range(world.shape.ranks):
        expected = all_reduce(list(recorded.step.tensors(5, "output", rank)[0]))
        assert torch.equal(as_bytes(world.delta[rank][:rows]), as_bytes(expected))
        assert torch.equal(recorded.after[f"delta {rank}"][rows:], recorded.before[f"delta {rank}"][rows:])


def test_only_the_last_layer_of_a_run_leaves_its_output():
    """Layer 1's output goes to layer 2 as pairs; memory keeps the delta that came in until layer 2 is done."""
    world = World(Shape(2, 2, 2), (1, 2))
    step = world.run((1, 2))
    for rank in range(2):
        found = world.delta[rank][:4]
        assert torch.equal(found, all_reduce(list(step.tensors(2, "output", rank)[0])))
        assert not torch.equal(found, all_reduce(list(step.tensors(1, "output", rank)[0])))


@pytest.mark.parametrize("last", [True, False])
def test_the_last_launch_of_a_step_ends_the_epoch(last):
    """And no other."""
    world = World(Shape(2, 1, 2), (3,))
    world.launch((3, 3), last_of_step=last)
    world.engine.synchronize()
    assert [world.engine.epoch(rank) for rank in range(2)] == [int(last)] * 2


def test_a_launch_without_delta_still_writes_it():
    """`has_delta` is about the input only."""
    world = World(Shape(1, 1, 2))
    for delta in world.delta:
        delta.fill_(torch.nan)
    world.run(has_delta=False)
    assert world.delta[0][:2].isfinite().all() and world.delta[0][2:].isnan().all()
