"""A rank that stands still in the middle of a step, and engines without our stops, to see what each of them holds."""

from __future__ import annotations

import json
import os
from typing import Any

STALL_VARIABLE = "KIMI_K3_ON_CPU_STALL"
"""`{"rank": r, "step": n, "seconds": s}`: rank r stalls in its n-th specialized step."""
LATE_VARIABLE, UNGUARDED_VARIABLE = "KIMI_K3_ON_CPU_LATE", "KIMI_K3_ON_CPU_UNGUARDED"
"""No rank stops in the step in which it fails, as where reports arrive late; and no output is guarded."""
MASKLESS_VARIABLE = "KIMI_K3_ON_CPU_MASKLESS"
"""vLLM hands out tokens without a look at their sampling mask, as another version might."""

TICKS_PER_SECOND = 100_000_000
INSTRUCTION, OCCURRENCE = "s_barrier", 40
"""Before which a wave stands still."""


def install() -> None:
    """Where the variables ask for it, and our package is there."""
    if text := os.environ.get(STALL_VARIABLE):
        _stall(**json.loads(text))
    if os.environ.get(LATE_VARIABLE):
        from kimi_k3_specdec.vllm_plugin.host import VllmHost

        VllmHost._stop_early = lambda self, decode: None
    if os.environ.get(MASKLESS_VARIABLE):
        from vllm.v1.worker.gpu.async_utils import AsyncOutput

        stock = AsyncOutput.__init__

        def without_mask(self: Any, model_runner_output: Any, sampler_output: Any, *args: Any, **kwargs: Any) -> None:
            sampler_output.sampling_mask_tensors = None
            stock(self, model_runner_output, sampler_output, *args, **kwargs)

        AsyncOutput.__init__ = without_mask
    if os.environ.get(UNGUARDED_VARIABLE):
        from kimi_k3_specdec.vllm_plugin import state
        from kimi_k3_specdec.vllm_plugin.output import GuardedSampler

        state.require_guard = lambda device: None
        GuardedSampler.__call__ = lambda self, *args, **kwargs: self._sampler(*args, **kwargs)


def _stall(rank: int, step: int, seconds: float) -> None:
    from kimi_k3_specdec.runtime.decode import SpecializedDecode

    stock = SpecializedDecode.plan

    def plan(self: Any, positions: Any, intermediate_tensors: Any) -> Any:
        planned = stock(self, positions, intermediate_tensors)
        if planned is not None and self.host.rank == rank:
            self.steps_seen = getattr(self, "steps_seen", 0) + 1
            if self.steps_seen == step:
                self.runner.engine.stall(rank, INSTRUCTION, OCCURRENCE, int(seconds * TICKS_PER_SECOND))
        return planned

    SpecializedDecode.plan = plan
