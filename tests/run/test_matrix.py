"""Every width, several seeds and schedules, and long runs of layers; minutes each."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import report

pytestmark = pytest.mark.slow


def equal(*words: object) -> dict[str, Any]:
    """The report of a run that must be equal."""
    found = report(*words)
    assert found["equal"] and found["max_error_over_tolerance"] <= 1
    assert found["tokens_match_reference"] is not False and found["near_ties"] == 0
    return found


@pytest.mark.parametrize(("requests", "tokens"), [
    (1, 1), (1, 3), (2, 3), (1, 7), (4, 1), (2, 7), (4, 3), (8, 1), (1, 15)])
def test_widths(requests: int, tokens: int) -> None:
    """All widths of the first release."""
    equal("--requests", requests, "--speculative-tokens", tokens)


@pytest.mark.parametrize("seed", range(1, 5))
def test_seeds(seed: int) -> None:
    """Other weights, prompts, drafts and slots."""
    equal("--seed", seed)


@pytest.mark.parametrize(("requests", "tokens"), [(2, 3), (1, 15)])
def test_schedules(requests: int, tokens: int) -> None:
    """Twenty orders of waves: tokens, states and payloads bit for bit the same."""
    words = ("--requests", requests, "--speculative-tokens", tokens, "--steps", 4)
    first = equal(*words)
    for seed in range(1, 20):
        other = equal(*words, "--schedule-seed", seed)
        for key in ("tokens", "payload_sha256", "states_sha256"):
            assert other[key] == first[key], (seed, key)


@pytest.mark.parametrize(("requests", "tokens"), [(2, 3), (1, 7)])
def test_long_runs(requests: int, tokens: int) -> None:
    """Nine KDA layers behind an MLA half in one launch, with block writes inside."""
    found = equal("--geometry", "nano-deep", "--requests", requests, "--speculative-tokens", tokens, "--steps", 4)
    assert found["launches_per_step"] == 3 and found["specialized_layers"] == 13


def test_a_request_does_not_depend_on_the_others() -> None:
    """Request 0's payloads at widths 2, 4, 8 and 16."""
    runs = [equal("--requests", n, "--speculative-tokens", 1) for n in (1, 2, 4, 8)]
    assert len({found["payload_sha256"][0] for found in runs}) == 1
    assert all(found["payload_sha256"][: 2] == runs[1]["payload_sha256"] for found in runs[1:])
