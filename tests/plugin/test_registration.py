"""Where the plug-in enters vLLM, against objects with vLLM's names; the engine tests use the real ones."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kimi_k3_specdec.vllm_plugin import ARCHITECTURE, MULTIMODAL, registration, settings, usable


class Registry:
    """vLLM's, as far as we use it."""

    def __init__(self, module: str) -> None:
        """`module`: where it finds Kimi-K3."""
        self.models: dict[str, Any] = {ARCHITECTURE: SimpleNamespace(module_name=module)}

    def register_model(self, name: str, target: str) -> None:
        """By a lazy string."""
        self.models[name] = SimpleNamespace(module_name=target.split(":")[0], class_name=target.split(":")[1])


class Hook:
    """vLLM's for an architecture's configuration."""

    seen: list[Any] = []

    @staticmethod
    def verify_and_update_config(config: Any) -> None:
        """Remembers."""
        Hook.seen.append(config)


def vllm(monkeypatch: pytest.MonkeyPatch, *, is_rocm: bool, module: str = "vllm.models.kimi_k3") -> SimpleNamespace:
    """A stand-in for the imported vLLM."""
    registry, hooks = Registry(module), {MULTIMODAL: Hook}
    modules = {
        "vllm": {"ModelRegistry": registry},
        "vllm.platforms": {"current_platform": SimpleNamespace(is_rocm=lambda: is_rocm)},
        "vllm.model_executor": {}, "vllm.model_executor.models.config": {},
        "vllm.model_executor.models": {
            "config": SimpleNamespace(MODELS_CONFIG_MAP=hooks, VerifyAndUpdateConfig=Hook)},
    }
    for name, content in modules.items():
        made = ModuleType(name)
        made.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, made)
    return SimpleNamespace(registry=registry, hooks=hooks)


@pytest.mark.parametrize(("is_rocm", "module", "ours"), [
    (True, "vllm.models.kimi_k3", "model"), (False, "vllm.models.kimi_k3", "elsewhere"),
    (False, registration.AMD_MODULE, "model")])
def test_the_class_is_of_the_vendors_that_vllm_would_take(monkeypatch: pytest.MonkeyPatch, is_rocm: bool, module: str,
                                                          ours: str) -> None:
    """On a GPU of another vendor it is that vendor's, which refuses when asked."""
    found = vllm(monkeypatch, is_rocm=is_rocm, module=module)
    for _ in range(2):  # vLLM says that a plug-in may be loaded more than once
        registration.register_model()
    model = found.registry.models[ARCHITECTURE]
    assert (model.module_name, model.class_name) == (f"kimi_k3_specdec.vllm_plugin.{ours}", ARCHITECTURE)


def test_the_check_stands_behind_vllms_own_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the text model and the wrapper; what vLLM has there runs first, and once."""
    found = vllm(monkeypatch, is_rocm=True)
    for _ in range(2):
        registration.register_check()
    config = SimpleNamespace(additional_config={})
    Hook.seen.clear()
    for name in (ARCHITECTURE, MULTIMODAL):
        found.hooks[name].verify_and_update_config(config)
    assert Hook.seen == [config, config] and set(found.hooks) == {ARCHITECTURE, MULTIMODAL}


def test_nothing_is_checked_without_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even whether the installation is whole."""
    monkeypatch.setattr(usable, "installation_reasons", lambda: ["broken"])
    registration.check_early(SimpleNamespace(additional_config={"decode_backend": "auto"}))
    with pytest.raises(ValueError, match="cannot run here: broken"):
        registration.check_early(SimpleNamespace(additional_config={"decode_backend": "latency_specialized"}))


def test_gpus_run_kimi_k3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for no device means them; the check before lets no other shapes through."""
    config = object()
    monkeypatch.setattr(settings.runtime, "specialized_decode_config", lambda vllm_config, platform: config)
    for extra in ({}, {"decode_device": "hip"}):
        asked = SimpleNamespace(additional_config={"decode_backend": "latency_specialized"} | extra)
        assert settings.specialized(asked) == settings.Settings(config, "hip", "k3")
