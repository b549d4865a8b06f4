"""MLA on a CPU with the block sizes of a hybrid model, and the short convolution with accepted counts."""

from __future__ import annotations

from typing import Any


def install() -> None:
    """CPU_MLA takes any block size, for the decode operator of ours does; the convolution is Triton's, prompts torch's.
    """
    from vllm.v1.attention.backend import MultipleOf
    from vllm.v1.attention.backends.mla.cpu_mla import CPUMLABackend

    CPUMLABackend.supports_block_size = classmethod(lambda cls, size: True)
    CPUMLABackend.get_supported_kernel_block_sizes = staticmethod(lambda spec=None: [MultipleOf(16)])
    convolution = _triton_convolution()
    from vllm.model_executor.layers.mamba.ops.cpu.causal_conv1d import causal_conv1d_fn_cpu

    convolution.causal_conv1d_fn = causal_conv1d_fn_cpu


def _triton_convolution() -> Any:
    """vLLM's module as it is on a GPU: the CPU's update does not know of accepted counts."""
    from vllm.platforms import current_platform

    current_platform.is_cpu = lambda: False
    try:
        import vllm.model_executor.layers.mamba.ops.causal_conv1d as module
    finally:
        del current_platform.is_cpu
    return module
