"""Drafts that are right until a seeded position: every count of accepted drafts, different per request."""

from __future__ import annotations

import zlib

import torch
from torch import Generator, Tensor

PROMPT_TOKENS = 5
"""Tokens of request 0's prompt at least; each request's is one or two longer than the one before."""


class Drafter:
    """One request's: a step's drafts depend on nothing but the seed, the request's number and the step's."""

    def __init__(self, seed: int, request: int, speculative_tokens: int, vocab: int) -> None:
        """Proposes `speculative_tokens` tokens a step."""
        self._seed, self._request = seed, request
        self._count, self._vocab = speculative_tokens, vocab

    def right_drafts(self, step: int) -> int:
        """How many drafts come before the step's first error, which each position makes with the same probability.

        An error rate of 1 / (positions left + 1) makes 0 to `speculative_tokens` equally likely.
        """
        return int(torch.randint(0, self._count + 1, (), generator=self._generator("error", step)))

    def propose(self, truth: Tensor, step: int) -> Tensor:
        """int64 [k]: the true continuation `truth` [k] up to the step's first error, anything behind it."""
        drafts, right, g = truth.clone(), self.right_drafts(step), self._generator("tokens", step)
        if right < self._count:
            drafts[right] = (truth[right] + torch.randint(1, self._vocab, (), generator=g)) % self._vocab
            drafts[right + 1 :] = torch.randint(0, self._vocab, (self._count - right - 1,), generator=g)
        return drafts

    def _generator(self, what: str, step: int) -> Generator:
        return seeded(what, self._seed, self._request, step)


def seeded(*words: object) -> Generator:
    """A generator that depends on `words` alone."""
    return Generator().manual_seed(zlib.crc32(" ".join(map(str, words)).encode()))


def prompt(seed: int, request: int, tokens: Tensor) -> Tensor:
    """int64 [T] out of `tokens`: a prompt that depends on nothing but the seed and the request's number."""
    g = seeded("prompt", seed, request)
    length = PROMPT_TOKENS + request + int(torch.randint(0, 2, (), generator=g))
    return tokens[torch.randint(0, tokens.shape[0], (length,), generator=g)]
