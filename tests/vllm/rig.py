"""What all tests of engines share: a checkpoint, its prompts, and what vLLM alone makes of them."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import engine

OURS = {"decode_backend": "latency_specialized", "decode_device": "emulator"}
DRAFTS = 3
TOKENS = 8
SETTLE_SECONDS = 1.2
"""The ranks write their counters every half second."""


class Rig:
    """One checkpoint and its engines."""

    def __init__(self, folder: Path) -> None:
        """`folder` holds everything."""
        self.folder = folder
        self.case: dict[str, Any] = {"model": str(engine.checkpoint(folder / "nano")), "prompts": engine.prompts(),
                                     "tokens": TOKENS}

    def run(self, name: str, *, with_ours: bool = True, **changes: Any) -> engine.Outcome:
        """One engine."""
        return engine.run(self.folder / name, self.case | changes, with_ours=with_ours)

    @cache
    def stock(self, ranks: int) -> list[list[int]]:
        """Tokens of vLLM's own decode, without drafts."""
        return self.run(f"stock{ranks}", ranks=ranks, drafts=0).tokens

    def known(self, ranks: int) -> dict[str, str]:
        """The variable by which the drafter knows what comes next."""
        sequences = [prompt + tokens for prompt, tokens in zip(self.case["prompts"], self.stock(ranks), strict=True)]
        path = self.folder / f"known{ranks}.json"
        path.write_text(json.dumps(sequences))
        return {"KIMI_K3_ON_CPU_DRAFTS": str(path)}
