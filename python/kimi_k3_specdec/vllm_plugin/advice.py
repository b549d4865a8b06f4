"""Says so, once, when no decode step has been ours, and what to change."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger(f"vllm.{__name__}")

PATIENCE_STEPS = 64
"""Decode steps after which it is no longer chance."""

IS_NO_DECODE = ("no KV cache", "no metadata", "forward context", "prefill")
"""Words of the reasons of profiling and prompts, which say nothing of decode steps."""

ADVICE = {
    "PIECEWISE": "set cudagraph_mode to FULL_DECODE_ONLY or FULL_AND_PIECEWISE",
    "row count": "capture sizes must be whole multiples of num_speculative_tokens + 1",
    "drafts": "the drafter must propose num_speculative_tokens for every request",
    "masks": "the drafter must propose num_speculative_tokens for every request",
    "uniform": "the drafter must propose num_speculative_tokens for every request",
}
"""What to change, by a word of the reason."""


class Advice:
    """The decode steps of one engine so far."""

    def __init__(self, decode_rows: int) -> None:
        """`decode_rows`: of the largest decode step; larger ones are prompts."""
        self._decode_rows, self._steps, self._is_done = decode_rows, 0, False

    def look(self, rows: int, counters: dict[str, Any]) -> None:
        """Looks at a step of `rows` rows and at the counters behind it."""
        self._is_done = self._is_done or bool(counters["specialized"])
        if self._is_done or rows > self._decode_rows:
            return
        self._steps += 1
        if self._steps < PATIENCE_STEPS:
            return
        self._is_done = True
        counts = {reason: count for reason, count in counters["stock"].items()
                  if not any(words in reason for words in IS_NO_DECODE)}
        reason = max(counts, key=lambda known: counts[known], default="nothing that decodes")
        what = next((text for word, text in ADVICE.items() if word in reason), "see docs/vllm.md")
        logger.warning("Kimi-K3 specialized decode: none of the first %d decode steps was specialized, because of "
                       "`%s`; %s", self._steps, reason, what)
