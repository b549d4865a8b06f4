"""Objects with the attributes of vLLM's configuration classes, served as they are."""

from __future__ import annotations

import enum
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

MLA = [*range(4, 93, 4), 93]
KDA = [layer for layer in range(1, 94) if layer not in MLA]


class CompilationMode(enum.IntEnum):
    """By name: the values are vLLM's business."""

    NONE = 10
    STOCK_TORCH_COMPILE = 11
    VLLM_COMPILE = 13


class CUDAGraphMode(enum.Enum):
    """By name, as above."""

    NONE = 20
    PIECEWISE = 21
    FULL = 22
    FULL_DECODE_ONLY = (22, 20)
    FULL_AND_PIECEWISE = (22, 21)


class Backend(enum.Enum):
    """Members' values are class paths in vLLM."""

    ROCM_AITER_MLA = "some.module.AiterMLABackend"
    TRITON_MLA = "some.module.TritonMLABackend"


class DtypeOfTorch:
    """Prints as `torch.bfloat16` does."""

    def __init__(self, name: str) -> None:
        """`name` without the module."""
        self.name_of_type = name

    def __str__(self) -> str:
        """As torch."""
        return f"torch.{self.name_of_type}"


def text_config() -> SimpleNamespace:
    """Kimi-K3's text model."""
    kda = {"num_heads": 96, "head_dim": 128, "short_conv_kernel_size": 4, "kda_layers": KDA, "full_attn_layers": MLA}
    return SimpleNamespace(hidden_size=7168, num_experts=896, num_hidden_layers=93, attn_res_block_size=12,
                           first_k_dense_replace=1, moe_layer_freq=1, linear_attn_config=kda)


def served() -> SimpleNamespace:
    """A deployment that is served at DCP8 where VLLM_ROCM_USE_AITER=1: 7 drafts, 2 requests."""
    of = SimpleNamespace
    return of(
        model_config=of(dtype=DtypeOfTorch("bfloat16"), enable_sleep_mode=False, runner_type="generate",
                        hf_text_config=text_config()),
        parallel_config=of(
            tensor_parallel_size=8, pipeline_parallel_size=1, data_parallel_size=1, enable_expert_parallel=False,
            enable_eplb=False, decode_context_parallel_size=8, prefill_context_parallel_size=1, use_ubatching=False,
            cp_kv_cache_interleave_size=1, nnodes=1, enable_fault_tolerance=False,
            enable_batch_sharded_sampling=None),
        cache_config=of(cache_dtype="auto", mamba_cache_dtype="auto", mamba_ssm_cache_dtype="auto",
                        use_replayssm=False, use_kda_recoverssm=False),
        scheduler_config=of(max_num_seqs=2, max_num_batched_tokens=4096),
        speculative_config=of(num_speculative_tokens=7, enable_adaptive_verification=False,
                              uses_dynamic_speculative_decoding=lambda: False),
        compilation_config=of(mode=CompilationMode.VLLM_COMPILE, cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE),
        attention_config=of(backend=None),
        kernel_config=of(moe_backend="auto"),
        kv_transfer_config=None,
        offload_config=of(uva=of(cpu_offload_gb=0.0), prefetch=of(offload_group_size=0)),
        aux_output_config=of(enable_return_routed_experts=False),
        lora_config=None,
        weight_transfer_config=None,
        watermark_config=None,
        additional_config={"decode_backend": "latency_specialized"},
        use_v2_model_runner=True,
    )


def change(path: str, value: Any) -> Callable[[SimpleNamespace], None]:
    """Sets a dotted attribute."""
    *parents, name = path.split(".")

    def apply(config: SimpleNamespace) -> None:
        place = config
        for parent in parents:
            place = getattr(place, parent)
        setattr(place, name, value)

    return apply


STATES = "KDA cache dtypes other than a BF16 conv state and an FP32 recurrent state (mamba cache dtype)"
KV = "KV transfer connectors other than a MoRIIO consumer"


def _kv(connector: str, role: str, module: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(kv_connector=connector, kv_role=role, kv_connector_module_path=module)


CHANGES: tuple[tuple[str, Any, str], ...] = (
    ("parallel_config.tensor_parallel_size", 4, "TP 4 (TP8 only)"),
    ("parallel_config.pipeline_parallel_size", 2, "pipeline parallelism"),
    ("parallel_config.data_parallel_size", 2, "data parallelism"),
    ("parallel_config.enable_expert_parallel", True, "expert parallelism"),
    ("parallel_config.enable_eplb", True, "EPLB"),
    ("parallel_config.decode_context_parallel_size", 2,
     "decode context parallelism other than 1 or 8 (over the TP group)"),
    ("parallel_config.prefill_context_parallel_size", 2, "prefill context parallelism"),
    ("parallel_config.use_ubatching", True, "DBO (dual-batch overlap)"),
    ("lora_config", object(), "LoRA"),
    ("kv_transfer_config", _kv("NixlConnector", "kv_consumer"), KV),
    ("kv_transfer_config", _kv("MoRIIOConnector", "kv_both"), KV),
    ("kv_transfer_config", _kv("MoRIIOConnector", "kv_consumer", "mine"), KV),
    ("aux_output_config.enable_return_routed_experts", True, "routed-expert capture"),
    ("model_config.enable_sleep_mode", True, "sleep mode"),
    ("offload_config.uva.cpu_offload_gb", 4, "CPU weight offload"),
    ("offload_config.prefetch.offload_group_size", 8, "CPU weight offload"),
    ("weight_transfer_config", object(), "weight updates"),
    ("speculative_config.enable_adaptive_verification", True, "adaptive verification"),
    ("speculative_config.uses_dynamic_speculative_decoding", lambda: True, "dynamic speculative decoding"),
    ("model_config.dtype", DtypeOfTorch("float16"), STATES),
    ("cache_config.mamba_cache_dtype", "float32", STATES),
    ("cache_config.mamba_ssm_cache_dtype", "bfloat16", STATES),
    ("cache_config.use_replayssm", True, "ReplaySSM / RecoverSSM"),
    ("cache_config.use_kda_recoverssm", True, "ReplaySSM / RecoverSSM"),
    ("use_v2_model_runner", False, "the V1 model runner (set VLLM_USE_V2_MODEL_RUNNER=1)"),
    ("compilation_config.mode", CompilationMode.STOCK_TORCH_COMPILE,
     "torch.compile (compilation mode STOCK_TORCH_COMPILE)"),
    ("model_config.hf_text_config.hidden_size", 4096,
     "model shapes (4096, 896, 96, 128, 4) (hidden, experts, KDA heads, KDA head dim, conv width; Kimi-K3 is "
     "(7168, 896, 96, 128, 4))"),
    ("model_config.hf_text_config.attn_res_block_size", None, "models without AttnRes"),
    ("scheduler_config.max_num_seqs", 16,
     "max_num_seqs 16 at 7 speculative tokens (max_num_seqs 1, 2, 4 or 8 with max_num_seqs x (k + 1) <= 16)"),
    ("parallel_config.enable_fault_tolerance", True, "fault tolerance"),
    ("parallel_config.enable_batch_sharded_sampling", True, "batch-sharded sampling"),
    ("watermark_config", object(), "watermarking"),
    ("parallel_config.nnodes", 2, "more than one node"),
    ("model_config.runner_type", "pooling", "pooling models"),
    ("kernel_config.moe_backend", "triton", "MoE backend triton (auto or aiter only)"),
)
"""Refused values of fields in the documented order, and the reason that each alone gives."""
