"""vLLM's quantisation classes for `experts`: of module level, because workers unpickle them."""

from __future__ import annotations

from typing import Any

import torch
import vllm.model_executor.layers.fused_moe.modular_kernel as modular
from torch import Tensor
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.experts.cpu_moe import CPUUnquantizedExperts
from vllm.model_executor.layers.fused_moe.fused_moe_method_base import FusedMoEMethodBase
from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import Mxfp4MoeBackend
from vllm.model_executor.layers.quantization.mxfp4 import Mxfp4Config, Mxfp4MoEMethod
from vllm.model_executor.layers.quantization.utils.quant_utils import kMxfp4Static
from vllm.model_executor.utils import replace_parameter

from kimi_k3_specdec.reference.mx import dequantise, quantise_moe

from .experts import METHOD, expert, shuffled


class AiterLayoutConfig(Mxfp4Config):
    """vLLM's MXFP4 with our experts."""

    @classmethod
    def get_name(cls) -> str:
        """As the checkpoint names it."""
        return METHOD

    def _make_moe_method(self, moe: Any) -> FusedMoEMethodBase:
        return AiterLayoutMethod(moe)


class AiterLayoutMethod(Mxfp4MoEMethod):
    """As on an MI355X, without asking the platform for AITER."""

    def __init__(self, moe: Any) -> None:
        """The attributes that vLLM's own sets, of the backend that it would choose there."""
        FusedMoEMethodBase.__init__(self, moe)
        self.weight_dtype, self.activation_key = "mxfp4", None
        self.is_k3_situ_aiter, self.is_k3_situ_int4_gfx942 = True, False
        self.mxfp4_backend, self.experts_cls = Mxfp4MoeBackend.AITER_MXFP4_BF16, TorchExperts
        self.max_capture_size, self._cache_permute_indices = moe.max_capture_size, {}
        self.moe_kernel: Any = None
        self.w13_precision_config = self.w2_precision_config = None

    def process_weights_after_loading(self, layer: Any) -> None:
        """Into AITER's order."""
        for name in ("w13", "w2"):
            made = shuffled(getattr(layer, f"{name}_weight").data, getattr(layer, f"{name}_weight_scale").data)
            replace_parameter(layer, f"{name}_weight", made[0])
            replace_parameter(layer, f"{name}_weight_scale", made[1])
            getattr(layer, f"{name}_weight").is_shuffled = True
        self._build_moe_kernel(layer)


class TorchExperts(CPUUnquantizedExperts, modular.FusedMoEExpertsModular):
    """The experts' arithmetic: MXFP4 in and between, products folded in bf16 in the order of the picks."""

    @staticmethod
    def _supports_current_device() -> bool:
        return True

    @staticmethod
    def _supports_activation(activation: MoEActivation) -> bool:
        return activation == MoEActivation.SITU

    @staticmethod
    def _supports_quant_scheme(weight_key: Any, activation_key: Any) -> bool:
        return (weight_key, activation_key) == (kMxfp4Static, None)

    @classmethod
    def _supports_grouped_gemm(cls, moe_config: Any) -> tuple[bool, str | None]:
        return True, None

    def process_weights_after_loading(self, layer: Any) -> None:
        """They are as they should be."""

    def apply(self, output: Tensor, hidden_states: Tensor, w1: Tensor, w2: Tensor, topk_weights: Tensor,
              topk_ids: Tensor, activation: Any, *args: Any, **kwargs: Any) -> None:
        """Every row of `hidden_states` bf16 [rows, latent] through its picks, into `output`."""
        beta, linear = self.moe_config.activation_situ_beta, self.moe_config.activation_situ_linear_beta
        x = dequantise(quantise_moe(hidden_states))
        used = {index: (expert(w1, self.w1_scale, index), expert(w2, self.w2_scale, index))
                for index in topk_ids.unique().tolist()}
        for row, picks in enumerate(topk_ids.tolist()):
            folded = torch.zeros(output.shape[1], dtype=torch.bfloat16)
            for slot, index in enumerate(picks):
                up, down = used[index]
                gate, value = (up @ x[row]).chunk(2)
                hidden = beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * linear * torch.tanh(value / linear)
                product = down @ dequantise(quantise_moe(hidden))
                folded = (folded.float() + (product * topk_weights[row, slot].float()).bfloat16().float()).bfloat16()
            output[row] = folded
