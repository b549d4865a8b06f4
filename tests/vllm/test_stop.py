"""A rank stalls while an engine serves: the client gets an error, no token of the failed step, and nothing is left."""

from __future__ import annotations

import json
import re
from typing import Any

import engine
import pytest
from rig import OURS, Rig

pytestmark = pytest.mark.vllm

STALLED_RANK, STALLED_STEP = 1, 3
STALL_SECONDS = 6
"""Twice as long as the others wait, in the emulator's time, which is about twice the clock's here."""

WAIT_SECONDS = 3
SLACK_SECONDS = 20
"""Of a machine that does something else too; without a stop of ours, vLLM waits for five minutes."""


def stalled(rig: Rig, name: str, **variables: str) -> engine.Outcome:
    """An engine of two ranks whose rank 1 stands still in the middle of its third step of ours. No draft is right, so a
    step gives one token.
    """
    stall = {"rank": STALLED_RANK, "step": STALLED_STEP, "seconds": STALL_SECONDS}
    return rig.run(name, ranks=2, stream=True, additional_config=OURS,
                   variables={"KIMI_K3_ON_CPU_STALL": json.dumps(stall)} | variables)


def before(tokens: list[list[int]]) -> list[list[int]]:
    """Of the right tokens, those of the prompts and of the steps before the failed one."""
    return [own[:STALLED_STEP] for own in tokens]


def check(rig: Rig, outcome: engine.Outcome) -> None:
    """What any stop must show."""
    assert outcome.seen == before(rig.stock(2))
    assert outcome.answer["failed_after_seconds"] < WAIT_SECONDS + SLACK_SECONDS
    assert re.search(r"rank 1 .*: ranks? 0.* waited.* for its attention_\w+ of stage \w+, .* at layer \d+, stage \w+",
                     outcome.error)
    assert outcome.leftovers == []


def test_the_output_rank_stops_at_once(rig: Rig) -> None:
    """In the step in which it knows, whatever the others are doing."""
    outcome = stalled(rig, "stalled")
    check(rig, outcome)
    for rank in (0, 1):
        assert f"Worker_TP{rank}" in outcome.log
        assert re.search(rf"rank {rank}: rank {rank}, layer \d+, stage \w+, CTA \d+ (waited in vain for|saw that) rank",
                         outcome.log)
    assert "hint: look at" in outcome.log


def test_tokens_are_held_back_where_reports_are_late(rig: Rig) -> None:
    """As on a GPU: the failed step is sampled before any rank's books show it."""
    check(rig, stalled(rig, "late", KIMI_K3_ON_CPU_LATE="1"))


def test_a_vllm_that_goes_past_the_guard_does_not_start(rig: Rig) -> None:
    """At start-up an output with an alarm must raise."""
    outcome = rig.run("maskless", additional_config=OURS, variables={"KIMI_K3_ON_CPU_MASKLESS": "1"})
    assert "tokens" not in outcome.answer
    assert "hands out tokens without asking for their sampling mask" in outcome.error


def test_nothing_else_would_hold_them(rig: Rig) -> None:
    """Without the guard the failed step's tokens leave, and they are wrong: so the two tests above can fail."""
    seen = stalled(rig, "unguarded", KIMI_K3_ON_CPU_LATE="1", KIMI_K3_ON_CPU_UNGUARDED="1").seen
    right: Any = rig.stock(2)
    assert [own[:STALLED_STEP] for own in seen] == before(right)
    leaked = [own[: STALLED_STEP + 1] for own in seen]
    assert leaked != [own[: STALLED_STEP + 1] for own in right] and all(len(own) > STALLED_STEP for own in leaked)
