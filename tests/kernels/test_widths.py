"""A row's bits depend on nothing that shares the step: every exchange, and what is left in memory."""

import pytest

from .world import Shape, World, assert_same

LAYERS = (1, 2, 3, 4, 5)
RUNS = ((1, 2), (3, 4), (5, 5))


def lone(ranks: int, q: int, seed: int):
    """One request alone and its step; the last count that its rows allow."""
    world = World(Shape(ranks, 1, q), LAYERS, seed=seed)
    world.accept([min(q, 1 + seed)])
    before = World(Shape(ranks, 1, q), LAYERS, seed=seed)
    before.accept([min(q, 1 + seed)])
    return before, world, world.run(*RUNS).everything()


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("q", [2, 4, 8])
def test_any_batch_gives_a_request_the_same_bits(ranks, q):
    """1 to 8 requests, so 2 to 16 rows; first, last and in between; other experts, states and slots around it."""
    before, alone, expected = lone(ranks, q, seed=q)
    requests = 2
    while requests * q <= 16:
        for position in sorted({0, requests // 2, requests - 1}):
            world = World(Shape(ranks, requests, q), LAYERS, seed=q)
            world.accept([1 + (i + position) % q for i in range(requests)])
            world.adopt(position, before, 0)
            rows = slice(position * q, (position + 1) * q)
            assert_same({name: bits[rows] for name, bits in world.run(*RUNS).everything().items()}, expected)
            assert_same(world.left_by(position), alone.left_by(0))
        requests *= 2


@pytest.mark.parametrize("q", [3, 4, 8, 16])
def test_more_drafts_change_no_earlier_row(q):
    """Rows of a request see those before them only: the first two are the same with 1 draft and with 15."""
    before, _, expected = lone(2, 2, seed=1)
    world = World(Shape(2, 1, q), LAYERS, seed=1)
    world.adopt(0, before, 0)
    assert_same({name: bits[:2] for name, bits in world.run(*RUNS).everything().items()}, expected)


EVERY_SHAPE = [(requests, q) for q in range(2, 17) for requests in range(1, 9) if requests * q <= 16]


@pytest.mark.parametrize(("requests", "q"), EVERY_SHAPE, ids=lambda n: str(n))
def test_every_shape_that_a_launch_serves(requests, q):
    """2 to 16 rows of 1 to 8 requests: the first two rows of the last request are those of a request alone."""
    before, alone = (World(Shape(2, 1, 2), (1,)) for _ in range(2))
    world = World(Shape(2, requests, q), (1,))
    world.accept([1 + i % q for i in range(requests)])
    world.adopt(requests - 1, before, 0)
    rows = slice((requests - 1) * q, (requests - 1) * q + 2)
    assert_same({name: bits[rows] for name, bits in world.run().by_row(1).items()}, alone.run().by_row(1))
