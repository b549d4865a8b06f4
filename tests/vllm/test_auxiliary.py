"""Hidden states that a drafter asks for inside a run: the run ends there, and they are what vLLM's layers give."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from rig import OURS, Rig

pytestmark = pytest.mark.vllm

NUMBERS = [1, 2, 5]
"""vLLM's: number n is the output of layer n - 1. Of nano's runs (1, 2), (3, 4), (5, 5) the first is cut."""

FREE_RUNNING = 0.1
"""Relative error of layers that run from their own inputs, MXFP4 codes included (numerics §10)."""


def states(rig: Rig, name: str, **changes: Any) -> tuple[str, list[dict[str, Any]]]:
    """An engine's log, and of each of its steps the positions and the hidden states."""
    path = rig.folder / f"{name}.pt"
    variables = rig.known(1) | {"KIMI_K3_ON_CPU_AUXILIARY": json.dumps({"numbers": NUMBERS, "path": str(path)})}
    outcome = rig.run(name, variables=variables, **changes)
    assert outcome.tokens == rig.stock(1)
    return outcome.log, torch.load(path)


def test_runs_end_where_hidden_states_are_read(rig: Rig) -> None:
    """Four launches a step instead of three; every verify step's states within the tolerance of stock's."""
    _, stock = states(rig, "auxiliary-stock")
    log, ours = states(rig, "auxiliary-ours", additional_config=OURS)
    assert "5 layers in 4 launches a step [(1, 1), (2, 2), (3, 4), (5, 5)]" in log
    compared = 0
    for own, theirs in zip(ours, stock, strict=True):
        assert torch.equal(own["positions"], theirs["positions"])
        if own["positions"].numel() not in (4, 8):
            continue
        for index, (state, wanted) in enumerate(zip(own["states"], theirs["states"], strict=True)):
            assert relative(state, wanted) < FREE_RUNNING
            # Two layers differ by more than that, so one in the place of another would show.
            assert all(relative(state, other) > FREE_RUNNING for other in theirs["states"][index + 1 :])
            compared += 1
    assert compared >= 3 * len(NUMBERS)


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest row's relative error."""
    found, wanted = found.double(), wanted.double()
    return float(((found - wanted).norm(dim=-1) / wanted.norm(dim=-1)).max())
