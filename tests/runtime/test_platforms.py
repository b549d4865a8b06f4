"""The GPUs, by whoever of vLLM and torch is imported."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from kimi_k3_specdec.runtime import PlatformFacts, platform_reasons, platforms


def modules(monkeypatch: pytest.MonkeyPatch, *, vllm: object = None, torch: object = None) -> None:
    """Stands in for what is imported."""
    for name, module in (("vllm.platforms", vllm), ("torch", torch)):
        if module is None:
            monkeypatch.delitem(sys.modules, name, raising=False)
        else:
            monkeypatch.setitem(sys.modules, name, module)


def rocm_torch(gfx: str = "gfx950:sramecc+:xnack-", compute_units: int = 256) -> ModuleType:
    """A torch of ROCm with one kind of GPU."""
    torch = ModuleType("torch")
    properties = SimpleNamespace(gcnArchName=gfx, multi_processor_count=compute_units)
    torch.version = SimpleNamespace(hip="7.2", cuda=None)
    torch.cuda = SimpleNamespace(current_device=lambda: 0, get_device_properties=lambda _: properties)
    return torch


def vllm_platforms(device_type: str) -> SimpleNamespace:
    """vLLM's current platform."""
    return SimpleNamespace(
        current_platform=SimpleNamespace(is_rocm=lambda: device_type == "rocm", device_type=device_type))


def test_without_either_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused by default."""
    modules(monkeypatch)
    assert platforms.find() == platforms.UNKNOWN
    assert platform_reasons() == ["this platform (ROCm only)"]


def test_torch_says_what_vllm_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm's build names the GPU; CUDA's and the CPU's are no ROCm."""
    modules(monkeypatch, torch=rocm_torch())
    assert platforms.find() == PlatformFacts("rocm", "gfx950", 256)
    assert platform_reasons() == []
    modules(monkeypatch, torch=SimpleNamespace(version=SimpleNamespace(hip=None, cuda="13.0")))
    assert platforms.find() == PlatformFacts("cuda")
    modules(monkeypatch, torch=SimpleNamespace(version=SimpleNamespace(hip=None, cuda=None)))
    assert platforms.find() == PlatformFacts("cpu")


def test_vllm_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its platform counts whatever torch was built for."""
    modules(monkeypatch, vllm=vllm_platforms("cpu"), torch=rocm_torch())
    assert platforms.find() == PlatformFacts("cpu")
    modules(monkeypatch, vllm=vllm_platforms("rocm"), torch=rocm_torch(compute_units=32))
    assert platform_reasons() == ["32 CUs (a partitioned GPU; the kernels need 256)"]
    modules(monkeypatch, vllm=vllm_platforms("rocm"), torch=rocm_torch("gfx942", 304))
    assert platform_reasons() == ["this GPU (gfx950 / MI355X only)"]
