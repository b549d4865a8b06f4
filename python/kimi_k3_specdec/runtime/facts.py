"""The facts of a deployment, read off vLLM's configuration objects (spec/runtime.md §1.6). Rust decides.

Any object with vLLM's attributes will do. Enums count by their name, types of torch by theirs; neither vLLM nor torch
is imported.
"""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import platforms

AITER_SWITCHES = {
    "VLLM_ROCM_USE_AITER": False,
    "VLLM_ROCM_USE_AITER_MOE": True,
    "VLLM_ROCM_USE_AITER_MLA": True,
    "VLLM_ROCM_USE_AITER_FP4BMM": False,
}
"""AITER's switches in the environment, with vLLM's defaults."""

OTHER_SWITCHES = {"VLLM_BATCH_INVARIANT": False, "VLLM_MLA_DISABLE": False}
"""vLLM's own."""

SITU_V2 = "VLLM_ROCM_USE_AITER_MOE_SITUV2"

_MISSING = object()


class UnexpectedFieldError(TypeError):
    """A field of vLLM's configuration is missing, or has a type that this release does not know."""

    def __init__(self, path: str, wanted: str, found: object) -> None:
        """Names the field, what was expected and what is there."""
        state = "is missing" if found is _MISSING else f"is {found!r} ({type(found).__name__})"
        super().__init__(f"vllm_config.{path} {state}; expected {wanted}")
        self.path = path
        self.hint = "this release knows vLLM 0.33; install it, or report the field"


@dataclass(frozen=True)
class Kind:
    """What a field may hold: `read` returns the fact, or `_MISSING` for a type that is not expected."""

    wanted: str
    read: Callable[[Any], Any]


def _integer(value: Any) -> Any:
    return value if isinstance(value, int) and not isinstance(value, bool) else _MISSING


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else _MISSING


def _boolean(value: Any) -> Any:
    return value if isinstance(value, bool) else _MISSING


def _text(value: Any) -> Any:
    return value if isinstance(value, str) else _MISSING


def _name(value: Any) -> Any:
    return value.name if isinstance(value, enum.Enum) else _text(value)


def _dtype(value: Any) -> Any:
    text = value if isinstance(value, str) else str(value)
    return text.removeprefix("torch.") if isinstance(value, str) or text.startswith("torch.") else _MISSING


INTEGER, NUMBER, BOOLEAN = Kind("an integer", _integer), Kind("a number", _number), Kind("a boolean", _boolean)
TEXT, NAME, DTYPE = Kind("a string", _text), Kind("an enum member or its name", _name), Kind("a dtype", _dtype)
PRESENT = Kind("an object", lambda value: True)


def optional(kind: Kind) -> Kind:
    """The same, or None."""
    return Kind(f"{kind.wanted} or None", lambda value: None if value is None else kind.read(value))


@dataclass(frozen=True)
class Field:
    """One fact: where it is in vLLM's configuration, and where in ours if that is elsewhere."""

    path: str
    kind: Kind
    fact: str | None = None


FIELDS = (
    Field("parallel_config.tensor_parallel_size", INTEGER),
    Field("parallel_config.pipeline_parallel_size", INTEGER),
    Field("parallel_config.data_parallel_size", INTEGER),
    Field("parallel_config.enable_expert_parallel", BOOLEAN),
    Field("parallel_config.enable_eplb", BOOLEAN),
    Field("parallel_config.decode_context_parallel_size", INTEGER),
    Field("parallel_config.prefill_context_parallel_size", INTEGER),
    Field("parallel_config.use_ubatching", BOOLEAN, "parallel_config.enable_dbo"),
    Field("parallel_config.cp_kv_cache_interleave_size", INTEGER),
    Field("parallel_config.nnodes", INTEGER),
    Field("parallel_config.enable_fault_tolerance", BOOLEAN),
    Field("parallel_config.enable_batch_sharded_sampling", optional(BOOLEAN)),
    Field("lora_config", optional(PRESENT)),
    Field("kv_transfer_config.kv_connector", optional(TEXT)),
    Field("kv_transfer_config.kv_connector_module_path", optional(TEXT)),
    Field("kv_transfer_config.kv_role", optional(TEXT)),
    Field("aux_output_config.enable_return_routed_experts", BOOLEAN),
    Field("model_config.enable_sleep_mode", BOOLEAN),
    Field("model_config.runner_type", TEXT),
    Field("model_config.dtype", DTYPE),
    Field("offload_config.uva.cpu_offload_gb", NUMBER),
    Field("offload_config.prefetch.offload_group_size", INTEGER),
    Field("weight_transfer_config", optional(PRESENT)),
    Field("watermark_config", optional(PRESENT)),
    Field("speculative_config.num_speculative_tokens", INTEGER),
    Field("speculative_config.enable_adaptive_verification", BOOLEAN),
    Field("cache_config.cache_dtype", TEXT),
    Field("cache_config.mamba_cache_dtype", TEXT),
    Field("cache_config.mamba_ssm_cache_dtype", TEXT),
    Field("cache_config.use_replayssm", BOOLEAN),
    Field("cache_config.use_kda_recoverssm", BOOLEAN),
    Field("scheduler_config.max_num_seqs", INTEGER),
    Field("scheduler_config.max_num_batched_tokens", optional(INTEGER)),
    Field("compilation_config.mode", optional(NAME)),
    Field("compilation_config.cudagraph_mode", optional(NAME)),
    Field("attention_config.backend", optional(NAME)),
    Field("kernel_config.moe_backend", TEXT),
    Field("use_v2_model_runner", BOOLEAN),
)
"""Every fact but those of the text model, the switch, the environment and the platform."""

NULLABLE = ("speculative_config", "kv_transfer_config")
"""Sections that are None where the feature is off."""

ABSENT: Mapping[str, Any] = {
    "parallel_config.nnodes": 1,
    "parallel_config.enable_fault_tolerance": False,
    "parallel_config.enable_batch_sharded_sampling": None,
    "aux_output_config.enable_return_routed_experts": False,
    "model_config.enable_sleep_mode": False,
    "model_config.runner_type": "generate",
    "kernel_config.moe_backend": "auto",
    "offload_config.uva.cpu_offload_gb": 0.0,
    "offload_config.prefetch.offload_group_size": 0,
    "weight_transfer_config": None,
    "watermark_config": None,
    "speculative_config.enable_adaptive_verification": False,
    "cache_config.use_replayssm": False,
    "cache_config.use_kda_recoverssm": False,
    "scheduler_config.max_num_batched_tokens": None,
}
"""Fields that a vLLM near 0.33 may lack, and what that means: the feature is off."""

TEXT_FIELDS = ("hidden_size", "num_experts", "num_hidden_layers", "attn_res_block_size", "first_k_dense_replace",
               "moe_layer_freq")
LINEAR_ATTENTION_FIELDS = ("num_heads", "head_dim", "short_conv_kernel_size", "kda_layers", "full_attn_layers")


def read(config: object, field: Field) -> Any:
    """One fact, or the error that names its field; None where a section on the way is None and may be."""
    value: Any = config
    parts = field.path.split(".")
    for depth, part in enumerate(parts):
        if value is None and ".".join(parts[:depth]) in NULLABLE:
            return None
        value = getattr(value, part, _MISSING)
        if value is _MISSING:
            if field.path in ABSENT:
                return ABSENT[field.path]
            raise UnexpectedFieldError(".".join(parts[: depth + 1]), field.kind.wanted, _MISSING)
    fact = field.kind.read(value)
    if fact is _MISSING:
        raise UnexpectedFieldError(field.path, field.kind.wanted, value)
    return fact


def text_config(text: object) -> dict[str, Any]:
    """The text model's facts; any of them may be missing, for models of other kinds."""
    facts: dict[str, Any] = {}
    for name in TEXT_FIELDS:
        value = optional(INTEGER).read(getattr(text, name, None))
        if value is _MISSING:
            raise UnexpectedFieldError(f"model_config.hf_text_config.{name}", "an integer or None", getattr(text, name))
        if value is not None:
            facts[name] = value
    kda = getattr(text, "linear_attn_config", None)
    if kda is not None and not isinstance(kda, Mapping):
        raise UnexpectedFieldError("model_config.hf_text_config.linear_attn_config", "a mapping or None", kda)
    if kda:
        facts["linear_attn_config"] = {name: kda[name] for name in LINEAR_ATTENTION_FIELDS if kda.get(name) is not None}
    return facts


def environment() -> dict[str, Any]:
    """What vLLM reads from the environment: through `vllm.envs` where that is imported, with its defaults otherwise."""
    envs = sys.modules.get("vllm.envs")
    facts: dict[str, Any] = {}
    for name, default in (AITER_SWITCHES | OTHER_SWITCHES).items():
        given = os.environ.get(name, str(default)).lower() in ("true", "1")
        facts[name] = given if envs is None else getattr(envs, name)
    situ = os.environ.get(SITU_V2, "auto") if envs is None else getattr(envs, SITU_V2, "auto")
    facts[SITU_V2] = str(situ)
    for name in ("AITER_SITUV2_A8W4", "VLLM_PLUGINS"):
        facts[name] = os.environ.get(name)
    return facts


def additional_config(config: object) -> dict[str, Any]:
    """vLLM's free-form options; a hashable object of someone else's holds none of ours."""
    extra = getattr(config, "additional_config", None)
    return {str(key): value for key, value in extra.items()} if isinstance(extra, dict) else {}


def deployment(config: object, *, platform: platforms.PlatformFacts | None = None) -> dict[str, Any]:
    """The deployment as the sections that Rust parses; `platform` None: found, unless the kernels run in the emulator.

    Raises `UnexpectedFieldError` for a field that is missing or of another type.
    """
    facts: dict[str, Any] = {}
    for field in FIELDS:
        value = read(config, field)
        *sections, name = (field.fact or field.path).split(".")
        place = facts
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    for section in NULLABLE:
        if getattr(config, section, None) is None:
            facts[section] = None
    spec = getattr(config, "speculative_config", None)
    if spec is not None and getattr(spec, "uses_dynamic_speculative_decoding", lambda: False)():
        facts["speculative_config"]["num_speculative_tokens_per_batch_size"] = True
    model_config = getattr(config, "model_config", None)
    facts["model_config"]["hf_text_config"] = text_config(getattr(model_config, "hf_text_config", None))
    facts["additional_config"] = additional_config(config)
    facts["environment"] = environment()
    if platform is None and facts["additional_config"].get("decode_device") != "emulator":
        platform = platforms.find()
    facts["platform"] = None if platform is None else platform.facts()
    return facts
