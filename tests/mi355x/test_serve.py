"""Kimi-K3 served by eight MI355X: the tokens of vLLM's own decode, in graphs; what it gains; how it stops."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from . import serving
from .serving import OURS, STOCK, Answer, Deployment

pytestmark = pytest.mark.mi355x

DRAFTER = json.loads(os.environ.get("SPECDEC_MI355X_DRAFTER", '{"method": "ngram", "prompt_lookup_max": 3}'))
PROMPTS = [
    "The three laws of thermodynamics are",
    "def quicksort(values):\n    ",
    "List the prime numbers below one hundred: 2, 3, 5, 7,",
    "Translate into German: The weather will be fine tomorrow, and we shall",
    "1, 1, 2, 3, 5, 8, 13, 21,",
    "Once upon a time, in a village at the edge of the forest,",
    "SELECT name, COUNT(*) FROM orders",
    "Water boils at a lower temperature on a mountain because",
]
TOKENS = 128
WIDTHS = ((1, 3), (1, 7), (1, 15), (2, 3), (2, 7), (4, 3), (8, 1))
"""Requests and drafted tokens."""
WAIT_SECONDS, SLACK_SECONDS = 3, 15


def answers(deployment: Deployment, folder: Path) -> tuple[list[Answer], dict[str, dict[str, float]]]:
    """Every prompt's, and our metrics behind them."""
    with serving.serving(deployment, folder) as server:
        found = [answer for first in range(0, len(PROMPTS), deployment.requests)
                 for answer in server.ask(PROMPTS[first : first + deployment.requests], TOKENS)]
        time.sleep(1)
        return found, serving.ours(server.get("/metrics"))


@pytest.mark.parametrize(("requests", "tokens"), [(2, 3), (8, 1)])
def test_tokens_are_those_of_vllms_own_decode(model: str, tmp_path: Path, requests: int, tokens: int) -> None:
    """Greedy, on fixed prompts; verify steps ran in our kernels, by replayed graphs.

    Both sum in bf16 in orders of their own, so a near tie may fall either way, and from there on two texts are two
    texts: what counts is how many prompts agree to the end.
    """
    own, metrics = answers(Deployment(model, OURS, requests, tokens, DRAFTER), tmp_path)
    theirs, none = answers(Deployment(model, STOCK, requests, tokens, DRAFTER), tmp_path)
    assert not [answer.error for answer in own + theirs if answer.error] and none == {}
    equal = sum(a.tokens == b.tokens for a, b in zip(own, theirs, strict=True))
    assert equal >= len(PROMPTS) - 2, f"{equal} of {len(PROMPTS)} prompts agree"
    specialized, stock = (sum(metrics[name].values()) for name in ("specialized_steps", "stock_steps"))
    assert specialized > stock and metrics["failed_waits"] == {str(rank): 0.0 for rank in range(8)}


def test_a_rank_that_stands_still_stops_all(model: str, tmp_path: Path) -> None:
    """The client has an error soon, no token that differs, and the log names the rank."""
    deployment = Deployment(model, OURS, 1, 3, DRAFTER)
    with serving.serving(deployment, tmp_path) as server:
        [right] = server.ask(PROMPTS[:1], TOKENS)
        stopped = serving.stop_rank(server.process.pid, 5)
        began = time.monotonic()
        [answer] = server.ask(PROMPTS[:1], TOKENS)
        assert answer.error is not None and time.monotonic() - began < WAIT_SECONDS + SLACK_SECONDS
        assert answer.tokens == right.tokens[: len(answer.tokens)]
        assert "rank 5" in server.log
        server.process.wait(60)
        assert not Path(f"/proc/{stopped}").exists(), "vLLM ends a worker that does not end"


def test_throughput_by_width(model: str, tmp_path: Path) -> None:
    """Prints tokens a second of every width beside vLLM's own; decides nothing."""
    rows = []
    for requests, tokens in WIDTHS:
        row: dict[str, object] = {"requests": requests, "tokens": tokens, "rows": requests * (tokens + 1)}
        for backend in (OURS, STOCK):
            found, _ = answers(Deployment(model, backend, requests, tokens, DRAFTER), tmp_path)
            assert not [answer.error for answer in found if answer.error]
            row[backend] = requests * sum(len(a.tokens) - 1 for a in found) / sum(a.seconds for a in found)
        rows.append(row)
    Path("mi355x-throughput.json").write_text(json.dumps(rows, indent=1))
    print("\n" + serving.table(rows))
