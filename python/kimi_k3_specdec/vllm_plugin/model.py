"""vLLM's Kimi-K3 for AMD GPUs, with our decode where the switch asks for it. With any other it is vLLM's unchanged."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor
from vllm.models.kimi_k3.amd.linear import KimiLinearForCausalLM as Upstream

from . import usable


class KimiLinearForCausalLM(Upstream):
    """The text model. Upstream's own specialized decode is never asked: it sees a configuration without the switch."""

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        """Raises ValueError with every reason against the deployment, before any weight is allocated."""
        settings_of_ours = None
        if usable.is_asked_for(vllm_config):
            usable.require()
            from . import settings

            settings_of_ours = settings.specialized(vllm_config)
        super().__init__(vllm_config=_without_switch(vllm_config), prefix=prefix)
        self.vllm_config = vllm_config
        self.specialized_settings = settings_of_ours
        self.specialized_host: Any = None
        self.init_specialized_decode(None if settings_of_ours is None else settings_of_ours.config)

    def build_specialized_decode(self) -> None:
        """Called by the model state once the weights are loaded, on every rank. Raises on every rank or on none."""
        from .start import build

        self.specialized_decode, self.specialized_host = build(self.model, self.vllm_config, self.specialized_settings)

    def get_model_state_cls(self) -> type:
        """vLLM's, or ours where ours decodes."""
        if self.specialized_settings is None:
            return super().get_model_state_cls()
        from .state import SpecializedModelState

        return SpecializedModelState

    def plan_specialized_decode(self, positions: Tensor, intermediate_tensors: Any) -> Any:
        """This step's plan, None for vLLM's layers."""
        decode = self.specialized_decode
        if decode is None:
            return None
        self.specialized_host.see_step(positions.shape[-1])
        return decode.plan(positions, intermediate_tensors)

    def after_specialized_decode_step(self) -> None:
        """Once per step, before its logits."""
        if self.specialized_decode is not None:
            self.specialized_host.after_step(self.specialized_decode)


def _without_switch(vllm_config: Any) -> Any:
    """The same configuration for upstream, which would take our switch for its own; everything below stays shared."""
    extra = vllm_config.additional_config
    if not isinstance(extra, dict) or usable.BACKEND_KEY not in extra:
        return vllm_config
    hidden = copy.copy(vllm_config)
    hidden.additional_config = {key: value for key, value in extra.items() if key != usable.BACKEND_KEY}
    return hidden
