"""The decision whether a deployment runs the specialised decode, with the names that vLLM's model files know.

Each function takes vLLM's `vllm_config`, or any object with its attributes. Facts are read here, decisions are Rust's
(`specdec-core::config`); spec/runtime.md §1 has every message.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import _native
from . import facts
from .facts import UnexpectedFieldError
from .platforms import PlatformFacts

__all__ = [
    "AUTO", "DCP", "DCP_SIZES", "FFN", "FP8_KV", "K3_SHAPES", "M1C_QLENS", "MAX_ROWS", "MAX_SEQS", "SPECIALIZED", "TP",
    "WHOLE", "DecodeConfig", "PlatformFacts", "UnexpectedFieldError", "decode_backend", "layer_kinds", "m1_reasons",
    "m1c_serves", "piecewise_graphs_only", "platform_reasons", "specialized_decode_config", "step_reasons",
    "text_shapes", "unsupported", "unsupported_facts",
]

AUTO, SPECIALIZED = _native.AUTO, _native.SPECIALIZED
(TP,) = _native.TENSOR_PARALLEL_SIZES
DCP_SIZES = _native.DCP_SIZES
DCP = max(DCP_SIZES)
MAX_ROWS, MAX_SEQS, FP8_KV, M1C_QLENS = _native.MAX_ROWS, _native.MAX_SEQS, _native.FP8_KV, _native.M1C_QLENS
K3_SHAPES = _native.K3_SHAPES
WHOLE, FFN = "whole", "ffn"

m1c_serves = _native.m1c_serves


@dataclass(frozen=True)
class DecodeConfig:
    """Settings of a served deployment.

    `q`: rows that a request verifies; `m1`: whether M1's prerequisites are met; `interleave`: tokens of KV that a
    context-parallel rank holds in a row; `max_num_seqs`: requests of a step.
    """

    q: int
    m1: bool = True
    interleave: int = 1
    max_num_seqs: int = 1

    @property
    def widths(self) -> tuple[int, ...]:
        """Row counts that launches serve: whole requests, at most MAX_ROWS rows."""
        return tuple(_native.widths(self.q, self.max_num_seqs))


def decode_backend(vllm_config: object) -> str:
    """The value of the switch `additional_config["decode_backend"]`: the one place that reads it."""
    return facts.additional_config(vllm_config).get("decode_backend", AUTO)


def specialized_decode_config(vllm_config: object, *, platform: PlatformFacts | None = None) -> DecodeConfig | None:
    """Settings of the specialised decode, None for vLLM's own.

    Raises `ValueError` for another value of the switch, and for a deployment that is not served, with every reason.
    """
    backend = decode_backend(vllm_config)
    if backend == AUTO:
        return None
    if backend != SPECIALIZED:
        raise ValueError(_native.unknown_backend(repr(backend)))
    settings, lines = _native.decode_config(_deployment(vllm_config, platform))
    for level, line in lines:
        getattr(_logger(), level)(line)
    return DecodeConfig(*settings)


def unsupported(vllm_config: object, *, platform: PlatformFacts | None = None) -> list[str]:
    """Every reason why the deployment cannot run the specialised decode, in the documented order; empty: it can.

    `platform`: the GPUs' facts, for a process that does not see them; None: found.
    """
    return _native.unsupported(_deployment(vllm_config, platform))


def unsupported_facts(deployment: Mapping[str, Any]) -> list[str]:
    """The same for facts that were read elsewhere: the sections of `kimi-k3-specdec check`."""
    return _native.unsupported(json.dumps(deployment))


def step_reasons(vllm_config: object, check_m1c: bool = True) -> list[str]:
    """The first reason why the deployment's steps do not fit the launches, if any; `check_m1c`: M1c's limits too."""
    return _native.step_reasons(_deployment(vllm_config, PlatformFacts("not asked")), check_m1c)


def m1_reasons(vllm_config: object) -> list[str]:
    """Everything that M1 lacks."""
    return _native.m1_reasons(_deployment(vllm_config, PlatformFacts("not asked")))


def platform_reasons(platform: PlatformFacts | None = None) -> list[str]:
    """The first reason why the GPUs are not served, if any; `platform` None: those of this process."""
    deployment = json.loads(_native.example_deployment())
    deployment["platform"] = (platform or facts.platforms.find()).facts()
    return _native.platform_reasons(json.dumps(deployment))


def piecewise_graphs_only(vllm_config: object) -> bool:
    """Whether decode steps are captured in pieces only, so that none is specialised."""
    mode = facts.read(vllm_config, facts.Field("compilation_config.cudagraph_mode", facts.optional(facts.NAME)))
    return _native.piecewise_graphs_only(mode)


def text_shapes(text: object) -> tuple[int | None, ...]:
    """Hidden size, routed experts, KDA heads, KDA head dim and convolution width of a text model; None: missing."""
    return tuple(_native.text_shapes(json.dumps(facts.text_config(text))))


def layer_kinds(config: object) -> dict[int, str]:
    """Served decoder layer (0-based) -> WHOLE or FFN, of a text model's configuration."""
    return dict(_native.layer_kinds(json.dumps(facts.text_config(config))))


def _deployment(vllm_config: object, platform: PlatformFacts | None) -> str:
    # What JSON does not know (objects in `additional_config`) is nobody's switch of ours.
    return json.dumps(facts.deployment(vllm_config, platform=platform), default=repr)


def _logger() -> logging.Logger:
    """A child of vLLM's logger where vLLM runs: only that one has a handler there."""
    return logging.getLogger(f"vllm.{__name__}" if "vllm.logger" in sys.modules else __name__)
