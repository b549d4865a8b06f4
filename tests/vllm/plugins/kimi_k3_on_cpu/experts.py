"""MXFP4 experts laid out in memory as AITER lays them out, and computed in torch by AITER's arithmetic.

Loading, sharding and the call are vLLM's; only what AITER would do is ours, by the reference's layouts and numbers.
"""

from __future__ import annotations

from typing import Any

METHOD = "kimi_k3_test_mxfp4"
"""`quant_method` in the checkpoint's configuration."""


def install() -> None:
    """Registers the method, and lets the factory of unquantised experts keep its own."""
    from vllm.model_executor.layers.quantization import register_quantization_config

    from .mxfp4 import AiterLayoutConfig

    register_quantization_config(METHOD)(AiterLayoutConfig)


def shuffled(weight: Any, scale: Any) -> tuple[Any, Any]:
    """uint8 weights [experts, N, K / 2] and scales [experts, N, K / 32] in AITER's order and types."""
    import torch

    from kimi_k3_specdec.reference import layouts

    rows = scale.reshape(-1, scale.shape[-1])
    return (layouts.shuffle_weight(weight).contiguous().view(torch.float4_e2m1fn_x2),
            layouts.shuffle_scales(rows).contiguous().view(torch.float8_e8m0fnu))


def expert(weight: Any, scale: Any, index: int) -> Any:
    """One expert's float32 [N, K] out of what `shuffled` made."""
    import torch

    from kimi_k3_specdec.reference import layouts
    from kimi_k3_specdec.reference.mx import Mx, dequantise

    packed = layouts.unshuffle_weight(weight.view(torch.uint8)[index])
    rows = packed.shape[0]
    own = scale.view(torch.uint8)[index * rows : (index + 1) * rows]
    return dequantise(Mx(packed, layouts.unshuffle_scales(own)[:, : packed.shape[1] // 16].contiguous()))
