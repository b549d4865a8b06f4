"""The table of deployments on which our reasons and vLLM's are compared: plain data, read without vLLM.

Each case is a change of one served deployment, `SERVED`. A case says it in vLLM's own words where they allow it
(``args``, keywords of `EngineArgs`); what `EngineArgs` refuses or cannot say is set on the built `VllmConfig`
(``attributes``), so that every reason appears alone as well as among others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

FULL_ATTENTION = [*range(4, 93, 4), 93]
"""MLA layers, counted from 1; the others are KDA."""

TEXT: dict[str, Any] = {
    "architectures": ["KimiLinearForCausalLM"],
    "model_type": "kimi_linear",
    "dtype": "bfloat16",
    "vocab_size": 163840,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_hidden_layers": 93,
    "num_attention_heads": 96,
    "num_key_value_heads": 96,
    "hidden_act": "situ",
    "activation_situ_beta": 4.0,
    "activation_situ_linear_beta": 25.0,
    "moe_intermediate_size": 3072,
    "num_experts": 896,
    "num_experts_per_token": 16,
    "num_shared_experts": 2,
    "routed_expert_hidden_size": 3584,
    "latent_moe_use_norm": True,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "mla_use_nope": True,
    "mla_use_output_gate": True,
    "attn_res_block_size": 12,
    "linear_attn_config": {
        "kda_layers": [layer for layer in range(1, 94) if layer not in FULL_ATTENTION],
        "full_attn_layers": FULL_ATTENTION,
        "num_heads": 96,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
    },
    "max_position_embeddings": 131072,
}
"""Kimi-K3's text model as its `config.json` states it, as far as a config class looks at it."""


def drafts(count: int, **more: Any) -> dict[str, Any]:
    """`speculative_config` of ``count`` drafts from the prompt."""
    return {"method": "ngram", "num_speculative_tokens": count, "prompt_lookup_max": 4, **more}


SERVED: dict[str, Any] = {
    "skip_tokenizer_init": True,
    "tensor_parallel_size": 8,
    "decode_context_parallel_size": 8,
    "max_num_seqs": 1,
    "max_model_len": 4096,
    "speculative_config": drafts(7),
    "additional_config": {"decode_backend": "latency_specialized"},
}
"""Keywords of `EngineArgs` (without ``model``) of the deployment that every case changes."""

ENVIRONMENT = {"VLLM_ROCM_USE_AITER": "1"}
PLATFORM = {"kind": "rocm", "gfx": "gfx950", "compute_units": 256}


@dataclass(frozen=True)
class Built:
    """An attribute's value that is an object: a class of `vllm.config` with its keyword arguments."""

    class_name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """What a deployment changes of `SERVED`.

    ``text`` changes `TEXT`, and None takes a key out. ``attributes`` maps dotted paths below `VllmConfig` to
    values, set after building. ``environment`` adds variables, and None unsets one. ``platform`` changes `PLATFORM`.
    """

    args: dict[str, Any] = field(default_factory=dict)
    text: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str | None] = field(default_factory=dict)
    platform: dict[str, Any] = field(default_factory=dict)


def connector(name: str | None, role: str | None, module: str | None = None) -> Case:
    """A KV connector. Set after building: vLLM imports the connector while it builds, and some need more packages."""
    arguments = {"kv_connector": name, "kv_role": role, "kv_connector_module_path": module}
    return Case(attributes={"kv_transfer_config": Built("KVTransferConfig", arguments)})


def kda(**changes: Any) -> dict[str, Any]:
    """`linear_attn_config` with changes, in which None takes a key out."""
    merged = {**TEXT["linear_attn_config"], **changes}
    return {"linear_attn_config": {key: value for key, value in merged.items() if value is not None}}


def env(value: str | None, *names: str) -> dict[str, str | None]:
    """The AITER switches that end in ``names`` (the empty one: the master switch), set to ``value``."""
    return {f"VLLM_ROCM_USE_AITER{name}": value for name in names}


M1_ARGS = {"decode_context_parallel_size": 1, "kv_cache_dtype": "fp8"}
M1_ENVIRONMENT = {"VLLM_ROCM_USE_AITER_FP4BMM": "1"}


def m1(**changes: Any) -> Case:
    """Decode without context parallelism and with all that M1 needs, then ``changes`` of the arguments."""
    return Case(args={**M1_ARGS, **changes}, environment=M1_ENVIRONMENT)


def parallel_cases() -> dict[str, Case]:
    """Rows 1 to 9 of spec/runtime.md, section 1.2."""
    return {
        **{f"tp-{n}": Case({"tensor_parallel_size": n, "decode_context_parallel_size": 1}) for n in (1, 2, 4, 16)},
        "tp-4-dcp-4": Case({"tensor_parallel_size": 4, "decode_context_parallel_size": 4}),
        "tp-4-dcp-8": Case(
            {"tensor_parallel_size": 4, "decode_context_parallel_size": 4},
            attributes={"parallel_config.decode_context_parallel_size": 8},
        ),
        "tp-16-dcp-16": Case({"tensor_parallel_size": 16, "decode_context_parallel_size": 16}),
        "pipeline-2": Case({"pipeline_parallel_size": 2}),
        "data-2": Case({"data_parallel_size": 2}),
        "experts-parallel": Case({"enable_expert_parallel": True}),
        "experts-balanced": Case({"enable_expert_parallel": True, "enable_eplb": True}),
        "eplb-alone": Case(attributes={"parallel_config.enable_eplb": True}),
        "dcp-2": Case({"decode_context_parallel_size": 2}),
        "dcp-4": Case({"decode_context_parallel_size": 4}),
        "prefill-2": Case({"prefill_context_parallel_size": 2, "decode_context_parallel_size": 1}),
        "prefill-2-dcp-8": Case(attributes={"parallel_config.prefill_context_parallel_size": 2}),
        "dbo-v1-runner": Case({"enable_dbo": True}),
        "dbo-alone": Case(attributes={"parallel_config.enable_dbo": True}, environment=v2_runner("1")),
        "micro-batches-1": Case(attributes={"parallel_config.ubatch_size": 1}),
        "micro-batches-2": Case(attributes={"parallel_config.ubatch_size": 2}, environment=v2_runner("1")),
        "lora": Case(attributes={"lora_config": Built("LoRAConfig", {})}),
    }


def v2_runner(value: str | None) -> dict[str, str | None]:
    """The variable that chooses the model runner."""
    return {"VLLM_USE_V2_MODEL_RUNNER": value}


def environment_cases() -> dict[str, Case]:
    """Row 10, each AITER switch in each of its spellings, and the experts' modes."""
    modes = {value: {"VLLM_ROCM_USE_AITER_MOE_SITUV2": value} for value in ("auto", "a4w4", "a8w4", "a16w4", "0", "1")}
    return {
        "aiter-unset": Case(environment=env(None, "")),
        "aiter-0": Case(environment=env("0", "")),
        "aiter-true": Case(environment=env("True", "")),
        "aiter-yes-is-off": Case(environment=env("yes", "")),
        "aiter-empty-is-off": Case(environment=env("", "")),
        "aiter-moe-0": Case(environment=env("0", "_MOE")),
        "aiter-moe-false": Case(environment=env("false", "_MOE")),
        "aiter-mla-0-dcp-8": Case(environment=env("0", "_MLA")),
        "aiter-fp4bmm-1-dcp-8": Case(environment=env("1", "_FP4BMM")),
        "aiter-all-off": Case(environment=env("0", "", "_MOE", "_MLA", "_FP4BMM")),
        **{f"experts-mode-{value}": Case(environment=changes) for value, changes in modes.items()},
        "experts-mode-upper-case": Case(environment={"VLLM_ROCM_USE_AITER_MOE_SITUV2": "A8W4"}),
    }


def feature_cases() -> dict[str, Case]:
    """Rows 11 to 15, and what we refuse beyond the seed's rows."""
    watermark = {"key": 1, "algorithm": "dual_key_gumbel"}
    return {
        "kv-moriio-consumer": connector("MoRIIOConnector", "kv_consumer"),
        "kv-moriio-producer": connector("MoRIIOConnector", "kv_producer"),
        "kv-moriio-both": connector("MoRIIOConnector", "kv_both"),
        "kv-moriio-from-elsewhere": connector("MoRIIOConnector", "kv_consumer", "connectors.moriio"),
        "kv-nixl-consumer": connector("NixlConnector", "kv_consumer"),
        "kv-nothing-set": connector(None, None),
        "kv-offloading": Case({"kv_transfer_config": {"kv_connector": "OffloadingConnector", "kv_role": "kv_both"}}),
        "kv-offloading-size": Case({"kv_offloading_size": 4}),
        "routed-experts": Case({"enable_return_routed_experts": True, **M1_ARGS}, environment=M1_ENVIRONMENT),
        "routed-experts-dcp-8": Case(attributes={"aux_output_config.enable_return_routed_experts": True}),
        "sleep-mode": Case(attributes={"model_config.enable_sleep_mode": True}),
        "offload-uva": Case({"cpu_offload_gb": 4}),
        "offload-uva-half-a-gib": Case({"cpu_offload_gb": 0.5}),
        "offload-prefetch": Case({"offload_backend": "prefetch", "offload_group_size": 8}),
        "offload-both": Case({"cpu_offload_gb": 1, "offload_group_size": 8}),
        "weight-transfer": Case({"weight_transfer_config": {"backend": "nccl"}}),
        "fault-tolerance": Case(attributes={"parallel_config.enable_fault_tolerance": True}),
        "nodes-2": Case(attributes={"parallel_config.nnodes": 2}),
        "pooling": Case(attributes={"model_config.runner_type": "pooling"}),
        "experts-backend-aiter": Case(attributes={"kernel_config.moe_backend": "aiter"}),
        "experts-backend-triton": Case(attributes={"kernel_config.moe_backend": "triton"}),
        "batch-invariant": Case(environment={"VLLM_BATCH_INVARIANT": "1"}),
        "mla-disable": Case(M1_ARGS, environment={**M1_ENVIRONMENT, "VLLM_MLA_DISABLE": "1"}),
        "sampling-sharded": Case(
            {"enable_batch_sharded_sampling": True, "max_num_seqs": 8, "speculative_config": drafts(1)}
        ),
        "sampling-sharded-one-request": Case(attributes={"parallel_config.enable_batch_sharded_sampling": True}),
        "watermark": Case(attributes={"watermark_config": Built("WatermarkConfig", watermark)}),
        "watermark-over-v1-switch": Case(
            attributes={"watermark_config": Built("WatermarkConfig", watermark)}, environment=v2_runner("0")
        ),
    }


def drafting_cases() -> dict[str, Case]:
    """Rows 16 to 19 and 26a: drafts a request against requests, at the context parallelism of `SERVED`."""
    pairs = [
        *((1, count) for count in (1, 2, 3, 4, 5, 6, 8, 15, 16, 20)),
        *((2, count) for count in (1, 3, 7, 8)),
        *((3, count) for count in (1, 4)),
        *((4, count) for count in (1, 3, 4, 7)),
        *((8, count) for count in (1, 2)),
        *((16, count) for count in (1, 7)),
    ]
    return {
        **{f"seqs-{n}-drafts-{k}": Case({"max_num_seqs": n, "speculative_config": drafts(k)}) for n, k in pairs},
        "seqs-by-default": Case({"max_num_seqs": None}),
        "seqs-8-active-1": Case({"max_num_seqs": 8, "max_num_active_seqs": 1}),
        "no-drafts": Case({"speculative_config": None}),
        "no-drafts-seqs-16": Case({"speculative_config": None, "max_num_seqs": 16}),
        "adaptive-verification": Case({"speculative_config": drafts(7, enable_adaptive_verification=True)}),
        "dynamic-drafts": Case(
            {"speculative_config": drafts(7, num_speculative_tokens_per_batch_size=[[1, 4, 7], [5, 64, 3]])}
        ),
        "synthetic-acceptance": Case(
            {"speculative_config": drafts(7, rejection_sample_method="synthetic", synthetic_acceptance_length=3.0)}
        ),
    }


def state_cases() -> dict[str, Case]:
    """Rows 20 to 23: states, runner, compilation and graphs."""
    types = ("auto", "float32", "float16", "bfloat16")
    pairs = [(conv, state) for conv in types for state in types if (conv, state) != ("auto", "auto")]
    graphs = ("NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE")
    return {
        **{f"states-{c}-{s}": Case({"mamba_cache_dtype": c, "mamba_ssm_cache_dtype": s}) for c, s in pairs},
        "model-float16": Case({"dtype": "float16"}),
        "model-float32": Case({"dtype": "float32"}),
        "model-float16-states-bfloat16": Case({"dtype": "float16", "mamba_cache_dtype": "bfloat16"}),
        "replay": Case(attributes={"cache_config.use_replayssm": True}),
        "recover": Case(attributes={"cache_config.use_kda_recoverssm": True}),
        "replay-and-recover": Case(
            attributes={"cache_config.use_replayssm": True, "cache_config.use_kda_recoverssm": True}
        ),
        "runner-v1": Case(environment=v2_runner("0")),
        "runner-v2": Case(environment=v2_runner("1")),
        **{f"compilation-mode-{mode}": Case({"compilation_config": {"mode": mode}}) for mode in range(4)},
        **{f"graphs-{mode.lower()}": Case({"compilation_config": {"cudagraph_mode": mode}}) for mode in graphs},
        "eager": Case({"enforce_eager": True}),
        "interleave-16": Case({"cp_kv_cache_interleave_size": 16}),
        "interleave-by-old-name": Case({"dcp_kv_cache_interleave_size": 16}),
    }


def text_cases() -> dict[str, Case]:
    """Rows 24 and 25: other models."""
    return {
        "no-attn-res": Case(text={"attn_res_block_size": None}),
        "hidden-6144": Case(text={"hidden_size": 6144}),
        "experts-384": Case(text={"num_experts": 384}),
        "no-experts": Case(text={"num_experts": None}),
        "kda-heads-64": Case(text=kda(num_heads=64)),
        "kda-head-dim-64": Case(text=kda(head_dim=64)),
        "conv-width-3": Case(text=kda(short_conv_kernel_size=3)),
        "no-kda": Case(attributes={"model_config.hf_text_config.linear_attn_config": None}),
        "kda-without-shapes": Case(text=kda(num_heads=None, head_dim=None, short_conv_kernel_size=None)),
        "layers-48": Case(text={"num_hidden_layers": 48}),
        "dense-5": Case(text={"first_k_dense_replace": 5}),
        "experts-every-2nd": Case(text={"moe_layer_freq": 2}),
        "block-13": Case(text={"attn_res_block_size": 13}),
    }


def m1_cases() -> dict[str, Case]:
    """Rows 26b to 26d: no context parallelism, where M1 must serve, and M1's own needs at both context sizes."""
    kv_types = ("auto", "bfloat16", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla")
    backends = ("ROCM_AITER_MLA", "TRITON_MLA", "ROCM_AITER_TRITON_MLA")
    pairs = [(1, 3), (2, 7), (2, 3), (1, 1), (1, 5), (1, 15), (4, 3), (8, 1), (3, 3)]
    return {
        "m1": m1(),
        **{f"m1-seqs-{n}-drafts-{k}": m1(max_num_seqs=n, speculative_config=drafts(k)) for n, k in pairs},
        **{f"m1-kv-{name}": m1(kv_cache_dtype=name) for name in kv_types},
        **{f"m1-backend-{name.lower()}": m1(attention_backend=name) for name in backends},
        "m1-no-fp4bmm": Case(M1_ARGS),
        "m1-no-mla": Case(M1_ARGS, environment={**M1_ENVIRONMENT, **env("0", "_MLA")}),
        "m1-no-aiter": Case(M1_ARGS, environment={**M1_ENVIRONMENT, **env("0", "")}),
        "m1-nothing": Case({"decode_context_parallel_size": 1}, environment=env("0", "_MLA")),
        "m1-drafts-4-another-gpu": Case({**M1_ARGS, "speculative_config": drafts(4)}, environment=M1_ENVIRONMENT,
                                        platform={"gfx": "gfx942", "compute_units": 304}),
        "dcp-8-kv-fp8": Case({"kv_cache_dtype": "fp8"}),
        "dcp-8-kv-fp8_e5m2": Case({"kv_cache_dtype": "fp8_e5m2"}),
        "dcp-8-backend-triton": Case({"attention_backend": "TRITON_MLA"}),
        "dcp-8-backend-by-kind": Case({"attention_config": {"backend_per_kind": {"mla_attention": "TRITON_MLA"}}}),
    }


def platform_cases() -> dict[str, Case]:
    """Row 27 and the switch itself."""
    switches: dict[str, dict[str, Any]] = {
        "auto": {"decode_backend": "auto"},
        "absent": {},
        "misspelled-value": {"decode_backend": "latency-specialized"},
        "misspelled-key": {"decode_backends": "latency_specialized"},
        "not-a-string": {"decode_backend": True},
        "among-others": {"decode_backend": "latency_specialized", "kda_prefill_backend": "auto"},
    }
    return {
        "platform-cuda": Case(platform={"kind": "cuda", "gfx": None, "compute_units": 132}),
        "platform-cpu": Case(platform={"kind": "cpu", "gfx": None, "compute_units": None}),
        "gpu-gfx942": Case(platform={"gfx": "gfx942", "compute_units": 304}),
        "gpu-partitioned": Case(platform={"compute_units": 64}),
        "gpu-masked": Case(platform={"compute_units": 255}),
        **{f"switch-{name}": Case({"additional_config": value}) for name, value in switches.items()},
        "switch-emulator": Case(
            {
                "decode_context_parallel_size": 1,
                "additional_config": {"decode_backend": "latency_specialized", "decode_device": "emulator"},
            },
            platform={"kind": "cpu", "gfx": None, "compute_units": None},
        ),
    }


def together(cases: Iterable[Case]) -> Case:
    """All changes at once; of two changes of the same thing the later one stays."""
    changes: dict[str, dict[str, Any]] = {}
    for case in cases:
        for part in fields(case):
            changes.setdefault(part.name, {}).update(getattr(case, part.name))
    return Case(**changes)


TOGETHER = {
    "together-topology": ("pipeline-2", "dcp-2", "runner-v1"),
    "together-tp-4": ("tp-4", "aiter-0", "weight-transfer", "seqs-16-drafts-7"),
    "together-partitioned": ("kv-nixl-consumer", "offload-uva", "seqs-1-drafts-16", "compilation-mode-1",
                             "gpu-partitioned"),
    "together-ours": ("fault-tolerance", "sampling-sharded-one-request", "watermark", "experts-mode-a8w4", "data-2"),
    "together-no-drafts": ("no-drafts", "tp-2", "lora", "recover", "no-attn-res", "gpu-gfx942"),
    "together-dcp-4": ("experts-balanced", "dcp-4", "states-auto-bfloat16", "dynamic-drafts", "hidden-6144",
                       "aiter-moe-0"),
    "together-dcp-1": ("tp-4", "m1-nothing", "pipeline-2", "data-2", "sleep-mode", "offload-prefetch",
                       "dynamic-drafts", "model-float16"),
    "together-most": ("tp-2", "pipeline-2", "data-2", "experts-balanced", "lora", "aiter-unset", "kv-moriio-both",
                      "sleep-mode", "offload-both", "states-float32-float32", "no-attn-res", "platform-cuda"),
}
"""Deployments with several problems at once, by the cases that they combine."""


def table() -> dict[str, Case]:
    """Every case by name, the served deployment first."""
    groups = (parallel_cases(), environment_cases(), feature_cases(), drafting_cases(), state_cases(), text_cases(),
              m1_cases(), platform_cases())
    cases = {"served": Case()} | {name: case for group in groups for name, case in group.items()}
    return cases | {name: together(cases[part] for part in parts) for name, parts in TOGETHER.items()}


def table_hash() -> str:
    """sha256 over the canonical JSON of the table and of what it changes."""
    everything = [SERVED, TEXT, ENVIRONMENT, PLATFORM, {name: asdict(case) for name, case in table().items()}]
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()
