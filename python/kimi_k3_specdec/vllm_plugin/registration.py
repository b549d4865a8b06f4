"""Where the plug-in enters vLLM: the model's name, and the check of a deployment before any process is started."""

from __future__ import annotations

from typing import Any

from . import ARCHITECTURE, MULTIMODAL, usable

AMD_MODULE = "vllm.models.kimi_k3.amd.linear"


def register_model() -> None:
    """Ours in place of vLLM's, by a string: nothing of the model is imported before its name is looked up.

    Where vLLM would run another vendor's model, the class is that one, which refuses when the switch is on.
    """
    from vllm import ModelRegistry
    from vllm.platforms import current_platform

    known = getattr(ModelRegistry.models.get(ARCHITECTURE), "module_name", None)
    module = "model" if current_platform.is_rocm() or known == AMD_MODULE else "elsewhere"
    if known is not None and not known.startswith(f"{__package__}."):
        ModelRegistry.register_model(ARCHITECTURE, f"{__package__}.{module}:{ARCHITECTURE}")


def register_check() -> None:
    """Refuses a deployment while vLLM builds its configuration: in the user's process, not in a worker's log."""
    from vllm.model_executor.models import config

    for architecture in (ARCHITECTURE, MULTIMODAL):
        known = config.MODELS_CONFIG_MAP.get(architecture)
        if getattr(known, "is_ours", False):
            continue
        config.MODELS_CONFIG_MAP[architecture] = _checked(known or config.VerifyAndUpdateConfig)


def _checked(known: type[Any]) -> type[Any]:
    """`known`, an architecture's configuration hook, with our check behind it."""

    class Checked(known):  # type: ignore[misc, valid-type]
        is_ours = True

        @staticmethod
        def verify_and_update_config(vllm_config: Any) -> None:
            """vLLM's, then ours."""
            known.verify_and_update_config(vllm_config)
            check_early(vllm_config)

    return Checked


def check_early(vllm_config: Any) -> None:
    """Raises ValueError with every reason that the configuration shows so far. GPUs are judged in the workers: to look
    at one here would start its driver in a process that forks.
    """
    if not usable.is_asked_for(vllm_config):
        return
    usable.require()
    from . import settings

    settings.specialized(vllm_config, has_gpus=False)
