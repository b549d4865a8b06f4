"""What stands in the place of vLLM's sampling mask holds tokens back, and is otherwise not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kimi_k3_specdec.vllm_plugin.output import GuardedMask, GuardedSampler


class Mask:
    """vLLM's own, which remembers how it was asked."""

    def __init__(self, where: str = "device") -> None:
        """Where its tensors are."""
        self.where = where

    def to_cpu_nonblocking(self) -> Mask:
        """A copy."""
        return Mask("host")

    def tolists(self, num_sampled_tokens: Any) -> tuple[str, Any]:
        """What the scheduler would get."""
        return self.where, num_sampled_tokens


def nothing() -> None:
    """Nobody objects."""


def sampler(mask: Any) -> Any:
    """A callable like vLLM's, with an attribute."""

    class Sampler:
        states = "vLLM's"

        def __call__(self, logits: int, *, batch: int) -> SimpleNamespace:
            return SimpleNamespace(tokens=logits + batch, sampling_mask_tensors=mask)

    return Sampler()


def test_the_mask_of_a_good_step_is_vllms() -> None:
    """Arguments, output, mask and attributes pass through."""
    guarded = GuardedSampler(sampler(Mask()), nothing)
    output = guarded(40, batch=2)
    assert (output.tokens, guarded.states) == (42, "vLLM's")
    assert output.sampling_mask_tensors.to_cpu_nonblocking().tolists("counts") == ("host", "counts")


def test_no_mask_stays_none() -> None:
    """vLLM then puts None where it would have put nothing."""
    output = GuardedSampler(sampler(None), nothing)(1, batch=1)
    assert output.sampling_mask_tensors.to_cpu_nonblocking().tolists("counts") is None


def test_the_words_are_read_when_the_output_is_resolved() -> None:
    """Not when it is sampled, or copied: a rank may give up until its last launch is through."""
    words: list[BaseException | None] = [None]
    output = GuardedSampler(sampler(None), lambda: words[0])(1, batch=1)
    copied = output.sampling_mask_tensors.to_cpu_nonblocking()
    words[0] = RuntimeError("rank 3 gave up")
    with pytest.raises(RuntimeError, match="rank 3 gave up"):
        copied.tolists()


def test_a_missing_attribute_is_missing() -> None:
    """vLLM asks some samplers whether they have one."""
    assert not hasattr(GuardedSampler(sampler(None), nothing), "watermarker")
    assert GuardedMask(nothing, None).tolists() is None
