"""Seeded random tensors of a whole checkpoint, scaled so that a model of them behaves like one (numerics §7).

Routing and greedy margins are made decisive by `chain`; everything else is random.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from .chain import install
from .geometry import MX_GROUP, Geometry
from .mx import quantise_moe
from .weights import Spec


def generator(seed: int, name: str) -> Generator:
    """A generator for one tensor: its values depend on `seed` and `name`, not on what was made before."""
    return Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))


def checkpoint_specs(geometry: Geometry) -> dict[str, Spec]:
    """dtype and shape of every checkpoint tensor, by the checkpoint's names."""
    g = geometry
    bf16 = torch.bfloat16
    specs: dict[str, Spec] = {
        "model.embed_tokens.weight": (bf16, (g.vocab, g.hidden)),
        "model.output_attn_res_norm.weight": (bf16, (g.hidden,)),
        "model.output_attn_res_proj.weight": (bf16, (1, g.hidden)),
        "model.norm.weight": (bf16, (g.hidden,)),
        "lm_head.weight": (bf16, (g.vocab, g.hidden)),
    }
    for layer in range(g.num_layers):
        parts = _seam_specs(g) | (_kda_specs(g) if g.layer_kind(layer) == "kda" else _mla_specs(g))
        parts |= _mlp_specs(g, "mlp", g.dense_intermediate) if g.is_dense(layer) else _moe_specs(g)
        specs |= {f"model.layers.{layer}.{name}": spec for name, spec in parts.items()}
    return specs


def _seam_specs(g: Geometry) -> dict[str, Spec]:
    norms = ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm")
    projections = ("self_attention_res_proj", "mlp_res_proj")
    return {f"{n}.weight": (torch.bfloat16, (g.hidden,)) for n in norms} | {
        f"{n}.weight": (torch.bfloat16, (1, g.hidden)) for n in projections
    }


def _kda_specs(g: Geometry) -> dict[str, Spec]:
    bf16, f32, p = torch.bfloat16, torch.float32, g.kda_heads * g.head_dim
    specs = {f"{n}_proj.weight": (bf16, (p, g.hidden)) for n in "qkvg"}
    specs |= {f"{n}_conv1d.weight": (f32, (p, 1, g.conv_width)) for n in "qkv"}
    specs |= {
        "f_a_proj.weight": (bf16, (g.head_dim, g.hidden)),
        "f_b_proj.weight": (bf16, (p, g.head_dim)),
        "b_proj.weight": (bf16, (g.kda_heads, g.hidden)),
        "A_log": (f32, (g.a_log_entries,)),
        "dt_bias": (f32, (p,)),
        "o_norm.weight": (bf16, (g.head_dim,)),
        "o_proj.weight": (bf16, (g.hidden, p)),
    }
    return {f"self_attn.{name}": spec for name, spec in specs.items()}


def _mla_specs(g: Geometry) -> dict[str, Spec]:
    bf16, h = torch.bfloat16, g.mla_heads
    specs = {
        "q_a_proj.weight": (g.q_lora, g.hidden),
        "q_a_layernorm.weight": (g.q_lora,),
        "q_b_proj.weight": (h * g.q_head_dim, g.q_lora),
        "kv_a_proj_with_mqa.weight": (g.latent_row, g.hidden),
        "kv_a_layernorm.weight": (g.kv_lora,),
        "kv_b_proj.weight": (h * (g.nope + g.v_dim), g.kv_lora),
        "g_proj.weight": (h * g.v_dim, g.hidden),
        "o_proj.weight": (g.hidden, h * g.v_dim),
    }
    return {f"self_attn.{name}": (bf16, shape) for name, shape in specs.items()}


def _mlp_specs(g: Geometry, prefix: str, intermediate: int) -> dict[str, Spec]:
    shapes = {"gate": (intermediate, g.hidden), "up": (intermediate, g.hidden), "down": (g.hidden, intermediate)}
    return {f"{prefix}.{n}_proj.weight": (torch.bfloat16, shape) for n, shape in shapes.items()}


def _moe_specs(g: Geometry) -> dict[str, Spec]:
    m, bf16, u8 = "block_sparse_moe", torch.bfloat16, torch.uint8
    specs = {
        f"{m}.gate.weight": (bf16, (g.num_experts, g.hidden)),
        f"{m}.gate.e_score_correction_bias": (torch.float32, (g.num_experts,)),
        f"{m}.routed_expert_down_proj.weight": (bf16, (g.latent, g.hidden)),
        f"{m}.routed_expert_norm.weight": (bf16, (g.latent,)),
        f"{m}.routed_expert_up_proj.weight": (bf16, (g.hidden, g.latent)),
    } | _mlp_specs(g, f"{m}.shared_experts", g.shared_intermediate)
    inter = g.moe_intermediate
    for expert in range(g.num_experts):
        for name in ("w1", "w3", "w2"):
            rows, columns = (g.latent, inter) if name == "w2" else (inter, g.latent)
            specs[f"{m}.experts.{expert}.{name}.weight_packed"] = (u8, (rows, columns // 2))
            specs[f"{m}.experts.{expert}.{name}.weight_scale"] = (u8, (rows, columns // MX_GROUP))
    return specs


# Standard deviation of a row's dot product with an input of RMS 1. The MLPs' up projections reach into the bend of
# 25 tanh(u / 25), the gates of the router spread the scores, v lifts o^2 to the order of o_norm's eps.
GAINS = {
    "v_proj": 4.0, "b_proj": 1.5, "f_b_proj": 1.5, "gate": 1.5, "o_proj": 0.3,
    "gate_proj": 2.0, "up_proj": 6.0, "down_proj": 0.03, "w1": 2.0, "w3": 6.0, "w2": 0.3, "routed_expert_up_proj": 0.06,
    "self_attention_res_proj": 1.0, "mlp_res_proj": 1.0, "output_attn_res_proj": 0.3,
}


def checkpoint_tensors(geometry: Geometry, seed: int) -> dict[str, Tensor]:
    """Every tensor of a seeded checkpoint, as `checkpoint_specs` lists them."""
    tensors: dict[str, Tensor] = {}
    for name, (dtype, shape) in checkpoint_specs(geometry).items():
        if name.endswith(".weight_scale"):
            continue
        if name.endswith(".weight_packed"):
            base = name.removesuffix("_packed")
            dense = _linear(base, (shape[0], shape[1] * 2), generator(seed, base))
            tensors[name], tensors[f"{base}_scale"] = quantise_moe(dense)
        else:
            tensors[name] = _maker(name)(name, shape, generator(seed, name)).to(dtype)
    for name in (n for n in tensors if n.endswith(".A_log")):
        tensors[name][geometry.kda_heads :] = 0
    install(tensors, geometry, generator(seed, "chain"))
    return tensors


def _maker(name: str) -> Callable[[str, tuple[int, ...], Generator], Tensor]:
    if name.endswith("norm.weight"):
        return lambda _, shape, g: 1 + 0.1 * torch.randn(shape, generator=g)
    if name.endswith("conv1d.weight"):
        return lambda _, shape, g: torch.randn(shape, generator=g) / 2
    special: dict[str, Callable[[str, tuple[int, ...], Generator], Tensor]] = {
        "embed_tokens.weight": lambda _, shape, g: torch.randn(shape, generator=g),
        # Decays from forgetting within a token to keeping for hundreds.
        "A_log": lambda _, shape, g: 0.5 * torch.randn(shape, generator=g),
        "dt_bias": lambda _, shape, g: 7 * torch.rand(shape, generator=g) - 6,
        "e_score_correction_bias": lambda _, shape, g: 0.02 * torch.randn(shape, generator=g),
    }
    return next((make for suffix, make in special.items() if name.endswith(suffix)), _linear)


def _linear(name: str, shape: tuple[int, ...], g: Generator) -> Tensor:
    gain = GAINS.get(name.split(".")[-2], 1.0)
    return torch.randn(shape, generator=g) * (gain / math.sqrt(shape[1]))

