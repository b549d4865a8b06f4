"""Shared by the reference's tests: one nano checkpoint, loaded for one and for two ranks."""

from __future__ import annotations

import pytest
import torch

from kimi_k3_specdec.reference.geometry import NANO
from kimi_k3_specdec.reference.loader import rank_weights
from kimi_k3_specdec.reference.random_weights import checkpoint_tensors


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Small tensors are slower on several threads."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def nano_tensors():
    """The checkpoint tensors of nano at seed 0, by name."""
    return checkpoint_tensors(NANO, 0)


@pytest.fixture(scope="session")
def nano_tp2(nano_tensors):
    """Loaded weights of two ranks."""
    return rank_weights(nano_tensors.__getitem__, NANO, 2)


@pytest.fixture(scope="session")
def nano_tp1(nano_tensors):
    """Loaded weights of one rank."""
    return rank_weights(nano_tensors.__getitem__, NANO, 1)


@pytest.fixture
def rng():
    """A fresh seeded generator."""
    return torch.Generator().manual_seed(7)
