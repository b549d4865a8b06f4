"""What stands in the place of vLLM's sampling mask holds tokens back, and is otherwise not there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kimi_k3_specdec.vllm_plugin.output import GuardedMask, GuardedSampler, Objection


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


def no_alarm() -> Objection:
    """Nobody objects."""
    return lambda: None


def sampler(mask: Any) -> Any:
    """A callable like vLLM's, with an attribute."""

    class Sampler:
        states = "vLLM's"

        def __call__(self, logits: int, *, batch: int) -> SimpleNamespace:
            return SimpleNamespace(tokens=logits + batch, sampling_mask_tensors=mask)

    return Sampler()


def test_the_mask_of_a_good_step_is_vllms() -> None:
    """Arguments, output, mask and attributes pass through."""
    guarded = GuardedSampler(sampler(Mask()), no_alarm)
    output = guarded(40, batch=2)
    assert (output.tokens, guarded.states) == (42, "vLLM's")
    assert output.sampling_mask_tensors.to_cpu_nonblocking().tolists("counts") == ("host", "counts")


def test_no_mask_stays_none() -> None:
    """vLLM then puts None where it would have put nothing."""
    output = GuardedSampler(sampler(None), no_alarm)(1, batch=1)
    assert output.sampling_mask_tensors.to_cpu_nonblocking().tolists("counts") is None


def test_the_words_are_copied_with_the_tokens() -> None:
    """Not when they are sampled, for a rank may give up until its last launch is through; and read when the copy is
    there, not what has come since.
    """
    words: list[BaseException | None] = [None]

    def copy_alarms() -> Objection:
        copied = words[0]
        return lambda: copied

    output = GuardedSampler(sampler(None), copy_alarms)(1, batch=1)
    before = output.sampling_mask_tensors.to_cpu_nonblocking()
    words[0] = RuntimeError("rank 3 gave up")
    behind = output.sampling_mask_tensors.to_cpu_nonblocking()
    assert before.tolists() is None
    with pytest.raises(RuntimeError, match="rank 3 gave up"):
        behind.tolists()


def test_a_missing_attribute_is_missing() -> None:
    """vLLM asks some samplers whether they have one."""
    assert not hasattr(GuardedSampler(sampler(None), no_alarm), "watermarker")
    assert GuardedMask(no_alarm, None).to_cpu_nonblocking().tolists() is None
