"""Nothing depends on who runs when, nor on how a step's layers are cut into launches."""

import pytest
import torch

from .world import Shape, World, assert_same

LAYERS = (1, 2, 3, 4, 5)


def outcome(world: World, *runs):
    """Every exchange and all memory of one step."""
    step = world.run(*runs)
    return step.everything(), world.memory()


@pytest.mark.parametrize("shape", [Shape(1, 3, 3), Shape(2, 2, 4)], ids=str)
def test_ten_schedules_give_the_same_bytes(shape):
    """Waves and workgroups in ten random orders."""
    expected = outcome(World(shape, LAYERS), (1, 2), (3, 4), (5, 5))
    for seed in range(1, 10):
        found = outcome(World(shape, LAYERS, schedule_seed=seed), (1, 2), (3, 4), (5, 5))
        for mine, first in zip(found, expected, strict=True):
            assert_same(mine, first)


@pytest.mark.parametrize("shape", [Shape(1, 2, 4), Shape(2, 1, 3), Shape(2, 8, 2)], ids=str)
@pytest.mark.parametrize("layers", [(1, 2), (3, 4)], ids=str)
def test_a_run_is_its_layers_one_by_one(shape, layers):
    """Between launches the output goes through memory, inside a run it is taken from the pairs: the same bits."""
    together, apart = World(shape, layers), World(shape, layers)
    first, last = layers
    found, expected = outcome(together, (first, last)), outcome(apart, (first, first), (last, last))
    for mine, other in zip(found, expected, strict=True):
        assert_same(mine, other)


def test_steps_follow_each_other_without_a_trace():
    """The third step on used regions gives what it gives on fresh ones."""
    shape = Shape(2, 2, 2)
    used, fresh = World(shape, LAYERS), World(shape, LAYERS)
    start = {name: [t.clone() for t in getattr(used, name)] for name in ("prefix", "delta", "bank")}
    states = {layer: [own.pages.clone() for own in ranks] for layer, ranks in used.states.items()}
    for _ in range(3):
        for name, tensors in start.items():
            for memory, old in zip(getattr(used, name), tensors, strict=True):
                memory.copy_(old)
        for layer, ranks in used.states.items():
            for own, old in zip(ranks, states[layer], strict=True):
                own.pages.copy_(old)
        found = outcome(used, (1, 2), (3, 4), (5, 5))
    for mine, other in zip(found, outcome(fresh, (1, 2), (3, 4), (5, 5)), strict=True):
        assert_same(mine, other)
    assert used.engine.epoch(0) == 3 and torch.equal(used.prefix[0][:4], used.prefix[1][:4])
