"""Our kernels on one MI355X and on eight, without vLLM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kimi_k3_specdec import _native
from runtime.buffers import REQUESTS, Buffers, Q
from runtime.graphs import Model, draw

from .facts import DEVICES, Device
from .peers import exchange

pytestmark = pytest.mark.mi355x


def hip_library() -> Path:
    """The library that the driver would load."""
    return Path(json.loads(_native.probe_hip(""))["library"]["loaded"])


def test_every_rank_reaches_every_rank(machine: list[Device]) -> None:
    """Uncached memory of each device, written and read by all eight in the steps of a captured graph."""
    epochs = exchange("k3", DEVICES)
    assert len(epochs) == DEVICES and len(set(epochs)) == 1 and epochs[0] > 0


def test_the_gpus_bits_are_the_emulators(machine: list[Device]) -> None:
    """Nano's layers in captured graphs of padded batches on the GPU, the same batches eagerly in the emulator."""
    buffers, other, g = Buffers(), Buffers(), torch.Generator().manual_seed(1)
    model = Model(buffers, REQUESTS, Q, buffers.num_slots, hip_library())
    eager = Model(other, REQUESTS, Q, other.num_slots)
    try:
        for requests in (2, REQUESTS):
            model.capture(requests * Q)
        for number in range(200):
            live = 1 + number % REQUESTS
            batch = draw(live, REQUESTS, Q, g)
            model.replay(batch, Q * (2 if live <= 2 else REQUESTS))
            eager.run(batch)
            assert not (found := model.differences(eager, live * Q)), f"step {number}: {found}"
    finally:
        eager.decode.close()
        model.close()
