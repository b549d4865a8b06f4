"""Tags of one epoch cycle ago are gone before they come round again (DESIGN "Tags")."""

import pytest
import torch

from .test_protocol import TAG_EPOCHS, failed, waits
from .world import Shape, World, assert_same

WIDE, NARROW = Shape(2, 4, 2), Shape(2, 1, 2)
ROUNDS = 64
"""Narrow steps: twice what clears every row of both halves."""


def a_cycle_later(world: World) -> None:
    """A wide step, then the last narrow ones of the 2**24 that follow it; the next step has the wide one's tags."""
    world.run()
    world.shape = NARROW
    for step in range(ROUNDS):
        world.engine.resume_at(TAG_EPOCHS - ROUNDS + step)
        world.run()
    world.shape = WIDE


def test_a_pair_of_the_last_cycle_is_not_taken_for_this_ones():
    """Every workgroup has a row of which rank 1 sends nothing in this step: none may get past its first seam."""
    world = World(WIDE, (3,), stall="advance")
    a_cycle_later(world)
    world.launch((3, 3), ranks=[0])
    waiting = {w["cta"] for w in waits(failed(world)) if w["stage"] == "mlp_dots" and w["source"] == "1"}
    assert waiting == {str(cta) for cta in range(8)}


@pytest.mark.parametrize("schedule_seed", range(3))
def test_a_flag_of_the_last_cycle_is_not_taken_for_this_ones(schedule_seed):
    """A whole layer gives what it gives in a new world: no wave has read rows behind a flag of the last cycle."""
    world, fresh = (World(WIDE, (1,), schedule_seed=schedule_seed) for _ in range(2))
    start = [tensor.clone() for tensor in rewritten(world)]
    a_cycle_later(world)
    # Other values than a cycle ago, or what stale flags let through would be right.
    for each in (world, fresh):
        for tensor, values in zip(rewritten(each), start, strict=True):
            tensor.copy_(values)
        for prefix in each.prefix:
            prefix.neg_()
    fresh.engine.resume_at(TAG_EPOCHS)
    world.run()
    fresh.run()
    assert_same(world.memory(), fresh.memory())


def rewritten(world: World) -> list[torch.Tensor]:
    """What launches change in place."""
    states = (own.pages for ranks in world.states.values() for own in ranks)
    return [*world.prefix, *world.delta, *world.bank, *states]
