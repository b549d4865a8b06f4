"""The pure-reference run: greedy tokens and logits of every request, one token a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..reference.model import Model, greedy
from ..reference.state import ModelState, Prefill, VerifyStep


@dataclass
class Truth:
    """One request's continuation."""

    prompt: Tensor
    """int64 [T]."""
    tokens: Tensor
    """int64 [n]: greedy, the first after the prompt."""
    logits: Tensor
    """float32 [n, vocab]: of each of them."""


def continue_prompts(model: Model, prompts: list[Tensor], num_tokens: int,
                     first_step: Callable[[], None] = lambda: None) -> list[Truth]:
    """`num_tokens` greedy tokens of every prompt; all requests share the steps, a row does not depend on the others.

    `first_step` is called after the first step behind the prompts.
    """
    requests, longest = len(prompts), max(len(p) for p in prompts)
    state = ModelState.allocate(model.geometry, len(model.weights), state_slots=requests + 1,
                                kv_slots=requests * (longest + num_tokens), max_q=1)
    places = torch.arange(requests * (longest + num_tokens)).view(requests, -1)
    rows = []
    for i, prompt in enumerate(prompts):
        logits = model.prefill(prompt, Prefill(i + 1, places[i, : len(prompt)]), state)[-1]
        rows.append([logits])
    indices = torch.arange(1, requests + 1, dtype=torch.int32)[:, None]
    accepted = torch.ones(requests, dtype=torch.int32)
    while len(rows[0]) < num_tokens:
        tokens = torch.stack([greedy(r[-1]) for r in rows])[:, None]
        done = len(rows[0])
        step = VerifyStep(indices, accepted, [places[i, : len(p) + done] for i, p in enumerate(prompts)])
        for own, logits in zip(rows, model.verify_step(tokens, step, state), strict=True):
            own.append(logits[0])
        if done == 1:
            first_step()
    stacked = [torch.stack(r) for r in rows]
    return [Truth(p, greedy(logits), logits) for p, logits in zip(prompts, stacked, strict=True)]
