"""Drafts that are right up to a chosen number of tokens: vLLM's n-gram drafter where nothing else is asked for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

VARIABLE = "KIMI_K3_ON_CPU_DRAFTS"
"""Names a file with the whole sequences, prompts included, that an engine without drafts has made."""


def install() -> None:
    """Replaces the drafts that vLLM's drafter proposes, not when and for whom it does."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    from vllm.v1.worker.gpu.spec_decode.ngram.speculator import NgramGPUSpeculator

    known, stock = json.loads(Path(path).read_text()), NgramGPUSpeculator.propose

    def propose(self: Any, input_batch: Any, *args: Any, **kwargs: Any) -> Any:
        proposed = stock(self, input_batch, *args, **kwargs)
        if kwargs.get("dummy_run"):
            return proposed
        for row, state in enumerate(input_batch.idx_mapping.tolist()):
            length = int(self.req_states.total_len.gpu[state])
            tokens = self.req_states.all_token_ids.gpu[state, :length].tolist()
            proposed[row] = torch.tensor(drafts(known, tokens, proposed.shape[1]))
        return proposed

    NgramGPUSpeculator.propose = propose


def drafts(known: list[list[int]], tokens: list[int], count: int) -> list[int]:
    """`count` drafts behind `tokens`: as many right ones as the length of `tokens` says, then wrong ones."""
    whole = next((sequence for sequence in known if sequence[: len(tokens)] == tokens), tokens)
    right = whole[len(tokens) : len(tokens) + len(tokens) % (count + 1)]
    return (right + [token_beside(tokens[-1]) for _ in range(count)])[:count]


def token_beside(token: int) -> int:
    """One that no step chooses: the checkpoint's successors are even."""
    return token | 1
