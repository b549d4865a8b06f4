"""Stand-ins for a loaded Kimi-K3, made of torch tensors and plain objects, and the changes of it that the guards judge.

Plain torch: vLLM's own guards are asked about the same objects, in a Python that need not have our package
(`tests/agreement/record_guards.py`). All tensors are views of one pool that nobody touches: real shapes cost nothing.
"""

from __future__ import annotations

import enum
import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

BF16, F32, BYTES = torch.bfloat16, torch.float32, torch.uint8
FP4, E8M0 = torch.float4_e2m1fn_x2, torch.float8_e8m0fnu
NUM_LAYERS, BLOCK = 13, 12
FULL_ATTENTION = (4, 8)
"""Counted from 1, as vLLM's config has it."""

Spec = tuple[torch.dtype, tuple[int, ...]]

COMMON: Mapping[str, Spec] = {
    "mlp.gate.weight": (BF16, (896, 7168)),
    "mlp.gate.e_score_correction_bias": (F32, (896,)),
    "mlp.routed_expert_down_proj.weight": (BF16, (3584, 7168)),
    "mlp.routed_expert_norm.weight": (BF16, (3584,)),
    "mlp.shared_experts.gate_up_proj.weight": (BF16, (1536, 7168)),
    "mlp.shared_experts.down_proj.weight": (BF16, (7168, 768)),
    "mlp.routed_expert_up_proj.weight": (BF16, (896, 3584)),
    "mlp.experts.w13_weight": (FP4, (896, 768, 1792)),
    "mlp.experts.w13_weight_scale": (E8M0, (896 * 768, 112)),
    "mlp.experts.w2_weight": (FP4, (896, 3584, 192)),
    "mlp.experts.w2_weight_scale": (E8M0, (896 * 3584, 16)),
    "mlp_res_norm.weight": (BF16, (7168,)),
    "mlp_res_proj.weight": (BF16, (1, 7168)),
    "post_attention_layernorm.weight": (BF16, (7168,)),
    "self_attn.o_proj.weight": (BF16, (7168, 1536)),
}
"""Attributes of a decoder layer -> type and shape on one of eight ranks (spec/runtime.md §4.1), and of KDA layers: """

KDA: Mapping[str, Spec] = {
    "self_attn.in_proj_qkvgfab.weight": (BF16, (6288, 7168)),
    "self_attn.f_b_proj.weight": (BF16, (1536, 128)),
    "self_attn.o_norm.weight": (BF16, (128,)),
    "self_attn.conv1d.weight": (F32, (4608, 1, 4)),
    "self_attn.A_log": (F32, (12,)),
    "self_attn.dt_bias": (F32, (1536,)),
    "input_layernorm.weight": (BF16, (7168,)),
    "self_attention_res_norm.weight": (BF16, (7168,)),
    "self_attention_res_proj.weight": (BF16, (1, 7168)),
}

CONFIG = {"hidden_size": 7168, "num_experts": 896, "num_experts_per_token": 16, "moe_renormalize": True,
          "moe_router_activation_func": "sigmoid", "num_expert_group": 1, "topk_group": 1, "hidden_act": "situ",
          "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0}


class Backend(enum.Enum):
    """Two of vLLM's MXFP4 backends, by its names."""

    AITER_MXFP4_BF16 = "AITER_MXFP4_BF16"
    TRITON = "TRITON"


@cache
def pool() -> torch.Tensor:
    """uint8: more memory than any tensor takes, none of it touched."""
    return torch.empty(1 << 31, dtype=BYTES)


def tensor(dtype: torch.dtype, shape: tuple[int, ...], offset: int = 0) -> torch.Tensor:
    """A contiguous tensor, `offset` bytes behind a 64-byte boundary."""
    nbytes = math.prod(shape) * dtype.itemsize
    return pool()[offset : offset + nbytes].view(dtype).view(shape)


def place(owner: Any, path: str, value: Any) -> None:
    """Sets the attribute at a dotted path; objects on the way are made; a number is an entry of a mapping."""
    *parents, last = path.split(".")
    for name in parents:
        if isinstance(owner, dict):
            owner = owner[int(name)]
            continue
        if getattr(owner, name, None) is None:
            setattr(owner, name, SimpleNamespace())
        owner = getattr(owner, name)
    if value is ABSENT:
        delattr(owner, last)
    else:
        setattr(owner, last, value)


def layer(index: int, tensors: Mapping[str, Spec], *, is_kda: bool, heads: int, head_dim: int,
          backend: Callable[[str], Any], block: int = BLOCK) -> SimpleNamespace:
    """A decoder layer with these tensors and whatever else vLLM's has."""
    made = SimpleNamespace(layer_idx=index, is_block_write_layer=index % block == 0, block_write_idx=index // block,
                           prev_valid_blocks=-(-index // block))
    place(made, "mlp.use_latent_moe", True)
    place(made, "mlp.routed_scaling_factor", 1.0)
    place(made, "mlp.routed_output_transform.row_sharded", True)
    place(made, "mlp.experts.routed_experts.quant_method", SimpleNamespace(
        mxfp4_backend=backend("AITER_MXFP4_BF16"), is_k3_situ_aiter=True))
    for path, (dtype, shape) in tensors.items():
        value = tensor(dtype, shape)
        value.is_shuffled = path.endswith(("w13_weight", "w2_weight"))
        place(made, path.replace("mlp.experts.", "mlp.experts.routed_experts."), value)
    norms = ["mlp_res_norm", "post_attention_layernorm", "mlp.routed_expert_norm"]
    if is_kda:
        norms += ["self_attention_res_norm", "input_layernorm"]
        attention = made.self_attn
        attention.prefix = f"model.layers.{index}.self_attn"
        attention.local_num_heads, attention.head_dim, attention.conv_size = heads, head_dim, 4
        attention.o_norm.eps, attention.gate_lower_bound = 1e-5, -5.0
    for norm in norms:
        place(made, f"{norm}.variance_epsilon", 1e-5)
    return made


def config(num_layers: int = NUM_LAYERS, mla: tuple[int, ...] = FULL_ATTENTION, block: int = BLOCK,
           **changes: Any) -> SimpleNamespace:
    """A text model's configuration; `mla` counts from 1."""
    kda = [number for number in range(1, num_layers + 1) if number not in mla]
    attention = {"kda_layers": kda, "full_attn_layers": list(mla), "num_heads": 96, "head_dim": 128,
                 "short_conv_kernel_size": 4}
    return SimpleNamespace(**CONFIG | changes, num_hidden_layers=num_layers, attn_res_block_size=block,
                           first_k_dense_replace=1, moe_layer_freq=1, linear_attn_config=attention,
                           is_kda_layer=lambda index: index + 1 in kda)


def model(backend: Callable[[str], Any] = Backend.__getitem__) -> SimpleNamespace:
    """The first 13 layers of Kimi-K3 on one of eight ranks, as vLLM's `KimiLinearModel` holds them."""
    text = config()
    layers = {
        index: layer(index, COMMON | (KDA if text.is_kda_layer(index) else {}), is_kda=text.is_kda_layer(index),
                     heads=12, head_dim=128, backend=backend)
        for index in range(1, NUM_LAYERS)
    }
    return SimpleNamespace(config=text, layers=layers, start_layer=0, end_layer=NUM_LAYERS)


@dataclass(frozen=True)
class New:
    """Another tensor in the place of one."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int = 0

    def made(self, backend: Callable[[str], Any]) -> torch.Tensor:
        """The tensor."""
        return tensor(self.dtype, self.shape, self.offset)


@dataclass(frozen=True)
class Strided:
    """The same tensor with a gap behind every element."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    def made(self, backend: Callable[[str], Any]) -> torch.Tensor:
        """The tensor."""
        return tensor(self.dtype, (*self.shape[:-1], 2 * self.shape[-1]))[..., ::2]


@dataclass(frozen=True)
class Named:
    """A backend by its name."""

    name: str

    def made(self, backend: Callable[[str], Any]) -> Any:
        """vLLM's, or ours."""
        return backend(self.name)


ABSENT = "<absent>"
"""As a change's value: the attribute is taken away."""


@dataclass(frozen=True)
class Case:
    """Changes of the served model by dotted path, and what we say besides what vLLM says: it stands behind."""

    changes: Mapping[str, Any]
    ours: tuple[str, ...] = ()

    def apply(self, served: SimpleNamespace, backend: Callable[[str], Any] = Backend.__getitem__) -> SimpleNamespace:
        """`served`, changed."""
        for path, value in self.changes.items():
            place(served, path, value.made(backend) if hasattr(value, "made") else value)
        return served


def sources_hash() -> str:
    """Of everything that a recorded answer depends on besides vLLM."""
    here = Path(__file__).resolve().parent
    names = ("loaded.py", "loaded_cases.py")
    return hashlib.sha256(b"".join((here / name).read_bytes() for name in names)).hexdigest()
