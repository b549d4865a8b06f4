"""Our kernels on one MI355X and on eight, without vLLM."""

from __future__ import annotations

import pytest

from runtime.buffers import REQUESTS, Buffers, Q, padded_batches
from runtime.graphs import Model, compare

from .facts import DEVICES, Device
from .peers import exchange, hip_library

pytestmark = pytest.mark.mi355x


def test_every_rank_reaches_every_rank(machine: list[Device]) -> None:
    """Uncached memory of each device, written and read by all eight in the steps of a captured graph."""
    epochs = exchange("k3", DEVICES)
    assert len(epochs) == DEVICES and len(set(epochs)) == 1 and epochs[0] > 0


def test_the_gpus_bits_are_the_emulators(machine: list[Device]) -> None:
    """Nano's layers in captured graphs of padded batches on the GPU, the same batches eagerly in the emulator."""
    buffers, other = Buffers(), Buffers()
    model = Model(buffers, REQUESTS, Q, buffers.num_slots, hip_library())
    eager = Model(other, REQUESTS, Q, other.num_slots)
    try:
        for requests in (2, REQUESTS):
            model.capture(requests * Q)
        assert compare(model, eager, padded_batches(200)) == {}
    finally:
        eager.close()
        model.close()
