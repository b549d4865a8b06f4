"""A fault on one rank is caught, and the report says where."""

from __future__ import annotations

import shlex
from functools import partial
from typing import Any

import pytest

from kimi_k3_specdec import _native
from kimi_k3_specdec.decoding.options import FAULT_KINDS

from .conftest import report

STAGES = {
    "nibble": {"expert_hidden", "expert_scales", "latent_out"},
    "scale": {"expert_hidden", "expert_scales", "latent_out"},
    "conv-index": {"core"},
    "k-step": {"proj", "attention_out"},
    "tag": {"attention_out", "logits", "latent", "latent_out", "output"},
}
"""Where each fault must be found: the first stage that it can change."""


def caught(kind: str, seed: int) -> dict[str, Any]:
    """The failure that a fault on rank `seed % 2` leads to."""
    found = report("--steps", 4, "--fault", f"{kind}@{seed % 2}:{seed}", exit_code=1)
    failure = found["failure"]
    assert failure["kind"] == "stage" and failure["rank"] == seed % 2, failure
    assert failure["stage"] in STAGES[kind], failure
    assert {"layer", "row", "column", "found", "expected"} <= set(failure)
    assert found["max_error_over_tolerance"] > 1
    return failure


@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_caught_and_reproduced(kind: str) -> None:
    """The first command that the report gives repeats it; the second, on another schedule, finds the same stage."""
    failure = caught(kind, 1)
    place = ("step", "layer", "stage", "rank")
    for key, names in (("reproduce", (*place, "row", "column", "message")), ("reproduce_launch", place)):
        words = shlex.split(failure[key])
        assert words[:2] == ["kimi-k3-specdec", "run"]
        again = report(*words[2:], exit_code=1)["failure"]
        assert {n: again[n] for n in names} == {n: failure[n] for n in names}, key


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_twenty_seeds(kind: str) -> None:
    """Caught in 20 of 20."""
    for seed in range(20):
        caught(kind, seed)


def test_a_lost_tag_names_the_waiters() -> None:
    """The machine's own error is in the report too."""
    failure = caught("tag", 1)
    assert "deadlock" in failure["machine_error"] and failure["hint"]
    assert failure["found"] is None and "never stored" in failure["detail"]


def test_an_error_of_the_machine_is_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what was not stored: here a budget far too small."""
    monkeypatch.setattr(_native, "Unlinked", partial(_native.Unlinked, budget=20_000))
    failure = report("--steps", 1, exit_code=1)["failure"]
    assert failure["kind"] == "machine" and failure["message"].startswith("instruction budget passed")
    assert failure["layer"] == 1 and failure["hint"]
