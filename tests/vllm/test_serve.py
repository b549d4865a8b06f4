"""`vllm serve` with our kernels in the emulator, over HTTP, with OpenAI's client."""

from __future__ import annotations

import json
import time

import engine
import pytest
import server
from rig import OURS, SETTLE_SECONDS, Rig

pytestmark = pytest.mark.vllm

STALL = {"rank": 1, "step": 2, "seconds": 6}
WITHIN_SECONDS = 30
"""A wait of three seconds in the emulator's time, and the engine's end."""


def test_streams_have_the_same_tokens_and_metrics_show(rig: Rig) -> None:
    """Two clients at once."""
    case = rig.case | {"additional_config": OURS, "variables": rig.known(1)}
    with server.Server(rig.folder / "served", case).running() as served:
        answers = served.ask_case()
        assert [answer["seen"] for answer in answers] == rig.stock(1), served.log[-6000:]
        assert [answer["finish_reason"] for answer in answers] == ["length", "length"]
        time.sleep(SETTLE_SECONDS)
        lines = served.get("/metrics").splitlines()
    counted = [line for line in lines if line.startswith("kimi_k3_specdec_specialized_steps_total{")]
    assert sum(float(line.split()[-1]) for line in counted) >= 2
    assert any(line.startswith('kimi_k3_specdec_epoch{rank="0"}') for line in lines)
    assert engine.alive(rig.folder / "served") == []


def test_a_stalled_rank_ends_in_an_error(rig: Rig) -> None:
    """The clients have the tokens of the steps before, an error soon, and no process is left."""
    case = rig.case | {"ranks": 2, "additional_config": OURS, "variables": {"KIMI_K3_ON_CPU_STALL": json.dumps(STALL)}}
    with server.Server(rig.folder / "stalled-server", case).running() as served:
        started = time.monotonic()
        answers = served.ask_case()
        assert time.monotonic() - started < WITHIN_SECONDS
        for answer, right in zip(answers, rig.stock(2), strict=True):
            assert "error" in answer, answer
            assert answer["seen"] == right[: len(answer["seen"])] and len(answer["seen"]) < len(right)
        assert "rank 1 is stuck or late: rank 0 waited" in served.log or "rank 1 failed" in served.log
    assert engine.alive(rig.folder / "stalled-server") == []
