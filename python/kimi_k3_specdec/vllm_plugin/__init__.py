"""The plug-in: the only package of ours that imports vLLM, and only once vLLM has loaded it.

vLLM calls `register` in each of its processes. Nothing is imported here that can fail: vLLM only logs a plug-in whose
import fails, and would then run its own decode without a word.
"""

from __future__ import annotations

ARCHITECTURE = "KimiLinearForCausalLM"
"""Kimi-K3's text model, by the name under which vLLM and its multimodal wrapper look for it."""

MULTIMODAL = "KimiK3ForConditionalGeneration"
"""The wrapper, as whose text model it is served."""


def register() -> None:
    """Makes ours the text model of Kimi-K3. Does not import it, and touches no other model."""
    from . import metrics, registration

    registration.register_model()
    registration.register_check()
    metrics.serve()
