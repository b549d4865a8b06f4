"""Shared by the kernels' tests: recorded steps of all nano layers, one for each shape."""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch

from .stream import Recorded, record
from .world import Shape, World

SHAPES = (Shape(1, 1, 2), Shape(1, 3, 3), Shape(1, 2, 8), Shape(2, 1, 16), Shape(2, 2, 4), Shape(2, 8, 2))
"""1 and 2 ranks, 1 to 8 requests, 2 to 16 rows; 9 rows are no multiple of anything."""
LAYERS = (1, 2, 3, 4, 5)
RUNS = ((1, 2), (3, 4), (5, 5))


@pytest.fixture(scope="session", autouse=True)
def one_thread(request):
    """Small tensors are slower on several threads. Devices that the extension lacks skip everything."""
    if request.config.getoption("--device") != "emulator":
        pytest.skip("the extension drives the emulator only")
    torch.set_num_threads(1)


@lru_cache
def _recorded(shape: Shape) -> Recorded:
    world = World(shape, LAYERS, seed=shape.requests)
    # Every count that a request can have: the convolution's window and the start state move with it.
    world.accept([1 + i % shape.q for i in range(shape.requests - 1, -1, -1)])
    return record(world, *RUNS)


@pytest.fixture(params=SHAPES, ids=str)
def recorded(request) -> Recorded:
    """One step of all served layers on random inputs; shared: tests only read it."""
    return _recorded(request.param)
