"""Lets the vLLM of PyPI, built for CUDA, run Kimi-K3's AMD classes on a CPU: stand-ins for what is missing. Tests only.

vLLM's own code runs everywhere else: scheduler, Model Runner V2, speculation, KDA metadata, the model classes.
"""

from __future__ import annotations

import os

SWITCH = "KIMI_K3_ON_CPU"
"""Set in the environment of an engine that needs the stand-ins."""

AMD_CLASS = "vllm.models.kimi_k3.amd.linear:KimiLinearForCausalLM"

_is_done = False


def register() -> None:
    """vLLM's entry point, once a process."""
    global _is_done
    if _is_done or os.environ.get(SWITCH) != "1":
        return
    _is_done = True
    from vllm import ModelRegistry

    from . import attention, auxiliary, drafter, experts, faults, interpreter, operators, recurrence

    for part in (operators, interpreter, attention, recurrence, experts, drafter, faults, auxiliary):
        part.install()
    # The CPU platform would pick the classes for NVIDIA.
    ModelRegistry.register_model("KimiLinearForCausalLM", AMD_CLASS)
