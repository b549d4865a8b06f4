"""What a deployment asks for: the decode's settings, the device, and the geometry that its kernels were built for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .. import _native, runtime
from ..runtime import DecodeConfig, PlatformFacts, facts
from ..runtime.guards import GEOMETRY

DEVICE_KEY, HIP, EMULATOR = "decode_device", "hip", "emulator"
EMULATED = ("nano", "nano-deep", GEOMETRY)
"""Geometries that the emulator runs, those that it is meant for first."""


@dataclass(frozen=True)
class Settings:
    """A deployment that is served: what the kernels are started with."""

    config: DecodeConfig
    device: str
    geometry: str


def specialized(vllm_config: Any, *, has_gpus: bool = True) -> Settings | None:
    """The settings, None where vLLM's own decode runs. Raises ValueError with every reason against the deployment.

    `has_gpus`: whether this process may look at them; otherwise nothing is held against them.
    """
    platform = None if has_gpus else _served_platform(vllm_config)
    config = runtime.specialized_decode_config(vllm_config, platform=platform)
    if config is None:
        return None
    if facts.additional_config(vllm_config).get(DEVICE_KEY, HIP) == HIP:
        # The check let no other model through.
        return Settings(config, HIP, GEOMETRY)
    return Settings(config, EMULATOR, _emulated(vllm_config))


def _served_platform(vllm_config: Any) -> PlatformFacts | None:
    if facts.additional_config(vllm_config).get(DEVICE_KEY) == EMULATOR:
        return None
    return PlatformFacts(**json.loads(_native.example_deployment())["platform"])


def _emulated(vllm_config: Any) -> str:
    """The geometry with the model's layers; its widths were compared before."""
    text, ranks = vllm_config.model_config.hf_text_config, vllm_config.parallel_config.tensor_parallel_size
    kinds, hidden = runtime.layer_kinds(text), text.hidden_size
    for name in EMULATED:
        try:
            known = _native.geometry(name, ranks)
        except _native.Refused:
            continue
        if (known["served"], known["dims"]["hidden"], known["dims"]["num_layers"]) == (
                kinds, hidden, text.num_hidden_layers):
            return name
    raise ValueError(
        f"Kimi-K3 specialized decode does not support a model of {text.num_hidden_layers} layers, of which "
        f"{sorted(kinds)} would be served, in the emulator at TP {ranks}: it runs the layers of {', '.join(EMULATED)} "
        "(decode_backend=auto runs vLLM's decode)")
