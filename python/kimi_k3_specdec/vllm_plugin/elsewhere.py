"""Kimi-K3 where vLLM runs no AMD GPU: vLLM's own class, which refuses when the switch is on."""

from __future__ import annotations

from typing import Any

from vllm.models.kimi_k3 import KimiLinearForCausalLM as Upstream

from . import usable


class KimiLinearForCausalLM(Upstream):
    """vLLM's, unchanged where it is asked for nothing else."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        """Raises ValueError when the switch is on: upstream's class would ignore it."""
        if usable.is_asked_for(vllm_config):
            raise ValueError("Kimi-K3 specialized decode does not support this platform: vLLM runs no AMD model here "
                             "(decode_backend=auto runs vLLM's decode)")
        super().__init__(vllm_config=vllm_config, prefix=prefix)
