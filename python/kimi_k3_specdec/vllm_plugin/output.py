"""No token of a failed step leaves the output rank: what vLLM hands out waits for the alarm words of its step.

vLLM copies a sampler's output to the host and resolves it before anything leaves the worker: of the sampling mask it
calls `to_cpu_nonblocking` with the tokens' copy, and `tolists` once that copy is there, which is behind the last launch
of the step. Ours stands in its place and holds the real one: the alarm words are copied with the tokens, on the same
stream, and it raises where a rank has given up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Objection = Callable[[], BaseException | None]
"""Asked once the copies have arrived: why the step's tokens may not leave; None: they may."""

CopyAlarms = Callable[[], Objection]
"""Queues a copy of the alarm words to the current stream."""


class GuardedMask:
    """In the place of a step's sampling mask, None included."""

    def __init__(self, copy_alarms: CopyAlarms, mask: Any) -> None:
        """`mask`: vLLM's own."""
        self._copy_alarms, self._mask = copy_alarms, mask

    def to_cpu_nonblocking(self) -> CopiedMask:
        """With the copy of the tokens, on its stream."""
        return CopiedMask(self._copy_alarms(), None if self._mask is None else self._mask.to_cpu_nonblocking())


class CopiedMask:
    """The same on its way to the host."""

    def __init__(self, objection: Objection, mask: Any) -> None:
        """`mask`: the copy of vLLM's own."""
        self._objection, self._mask = objection, mask

    def tolists(self, num_sampled_tokens: Any = None) -> Any:
        """vLLM's own answer. Raises the objection instead, before vLLM has handed out a token."""
        if (error := self._objection()) is not None:
            raise error
        return None if self._mask is None else self._mask.tolists(num_sampled_tokens)


class GuardedSampler:
    """A sampler, or a rejection sampler, of vLLM whose outputs are guarded; everything else is its own."""

    def __init__(self, sampler: Any, copy_alarms: CopyAlarms) -> None:
        """`sampler`: vLLM's."""
        self._sampler, self._copy_alarms = sampler, copy_alarms

    def __getattr__(self, name: str) -> Any:
        """vLLM reads and sets up its sampler through attributes."""
        return getattr(self._sampler, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's output, guarded."""
        output = self._sampler(*args, **kwargs)
        output.sampling_mask_tensors = GuardedMask(self._copy_alarms, output.sampling_mask_tensors)
        return output
