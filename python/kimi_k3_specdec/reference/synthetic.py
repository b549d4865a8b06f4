"""Random weights of some layers on every rank, in loaded form, without a checkpoint: for layers of the real size.

Values are made of random bits: a bf16 of a sign, one of two exponents and seven mantissa bits has a known RMS, and
a gigabyte of them takes about a second. Experts are filled when they are first picked; the others' memory is never
touched, so that it does not exist.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Generator, Tensor

from .geometry import MX_GROUP, Geometry
from .layouts import SCALE_FILLER, shuffle_scales
from .random_weights import GAINS, generator
from .weights import RankWeights, layer_specs

REPLICATED = ("res_norm.weight", "res_proj.weight", "layernorm.weight", "mlp.gate.weight", "correction_bias",
              "routed_expert_down_proj.weight", "routed_expert_norm.weight", "o_norm.weight")
"""Endings of the names of tensors that every rank holds whole."""

ROW_PARALLEL = ("self_attn.o_proj.weight", "mlp.shared_experts.down_proj.weight", "mlp.down_proj.weight")
"""Names of the matrices of which a rank holds a slice of K, their outputs being summed over the ranks."""

_LOADED_GAINS = {"in_proj_qkvgfab": 1.5, "gate_up_proj": 3.0, "fused_qkv_a_proj": 1.0} | GAINS

EXPERT_CACHE_BYTES = 48 << 20
"""Of dequantised experts, on each rank: all of a small layer's, and few of a large one's, which are many anyway."""

_NIBBLE_RMS = math.sqrt(sum(v * v for v in (0, 0.5, 1, 1.5, 2, 3, 4, 6)) / 8)


@dataclass
class ExpertFiller:
    """Fills experts of the layers of all ranks on demand, each from its own seed, at most once."""

    weights: list[RankWeights]
    seed: int
    filled: set[tuple[int, int]] = field(default_factory=set)

    def fill(self, layer: int, experts: Iterable[int]) -> None:
        """Makes `experts` of `layer` exist on every rank."""
        for expert in experts:
            if (layer, expert) not in self.filled:
                self.filled.add((layer, expert))
                for w in self.weights:
                    self._fill_one(w, layer, expert)

    def _fill_one(self, w: RankWeights, layer: int, expert: int) -> None:
        g = generator(self.seed, f"{layer}.experts.{expert}.{w.rank}")
        tensors = w.layers[layer]
        for part, gain, inputs in (("w13", 2.0, w.geometry.latent), ("w2", 0.3, w.geometry.moe_intermediate)):
            packed = tensors[f"mlp.experts.{part}_weight"][expert]
            random_bits(packed, g)
            rows, columns = packed.shape[0], packed.shape[1] * 2 // MX_GROUP
            # Codes of two neighbouring exponents around the one that gives a dot product the wanted size.
            code = 127 + round(math.log2(gain / (_NIBBLE_RMS * math.sqrt(inputs))))
            scales = torch.empty(rows, -(-columns // 8) * 8, dtype=torch.uint8)
            random_bits(scales, g)
            scales.bitwise_and_(1).add_(code - 1)
            scales[:, columns:] = SCALE_FILLER
            padded = tensors[f"mlp.experts.{part}_weight_scale"]
            # Whole 32-row groups of one expert are contiguous in the shuffled order.
            padded[expert * rows : (expert + 1) * rows] = shuffle_scales(scales)[:rows]


def synthetic_layers(geometry: Geometry, ranks: int, layers: Iterable[int], seed: int,
                     experts: Iterable[int] = ()) -> list[RankWeights]:
    """Random loaded weights of `layers` on every rank; no tensors outside them.

    `experts` of each are filled at once, others when the reference first reads them (`RankWeights.fill_expert`): run it
    before a device that needs the same ones.
    """
    weights = [RankWeights(geometry, ranks, rank, {}, {}, expert_cache_bytes=EXPERT_CACHE_BYTES)
               for rank in range(ranks)]
    filler = ExpertFiller(weights, seed)
    for layer in layers:
        for w in weights:
            w.layers[layer] = _tensors(w, layer, seed, weights[0])
        if not geometry.is_dense(layer):
            filler.fill(layer, experts)
    for w in weights:
        w.fill_expert = lambda i, expert: filler.fill(i, (expert,))
    return weights


def _tensors(w: RankWeights, layer: int, seed: int, first: RankWeights) -> dict[str, Tensor]:
    """One layer of one rank; what every rank holds whole is rank 0's, its `first`."""
    tensors = {}
    for name, spec in layer_specs(w.geometry, w.ranks, layer).items():
        if name.endswith(REPLICATED) and w.rank > 0:
            tensors[name] = first.layers[layer][name]
        else:
            tensors[name] = _tensor(name, *spec, w.ranks, generator(seed, f"{layer}.{name}.{w.rank}"))
    if w.geometry.layer_kind(layer) == "kda":
        _finish_in_proj(w, tensors, tensors if w.rank == 0 else first.layers[layer])
    return tensors


def _finish_in_proj(w: RankWeights, tensors: dict[str, Tensor], first: dict[str, Tensor]) -> None:
    """Zeroes the padding rows and repeats rank 0's f_a, as loading would (numerics §4.1)."""
    name, s = "self_attn.in_proj_qkvgfab.weight", w.shard
    f_a = slice(4 * s.projection, 4 * s.projection + w.geometry.head_dim)
    tensors[name][f_a] = first[name][f_a]
    tensors[name][s.in_proj_used :] = 0


def _tensor(name: str, dtype: torch.dtype, shape: tuple[int, ...], ranks: int, g: Generator) -> Tensor:
    if dtype == torch.uint8:
        return torch.empty(shape, dtype=dtype)
    if dtype == torch.float32:
        return _small(name, shape, g)
    if name.endswith("norm.weight"):
        return (1 + 0.1 * torch.randn(shape, generator=g)).to(dtype)
    inputs = shape[-2] if len(shape) == 3 else shape[-1]
    if name in ROW_PARALLEL:
        inputs *= ranks
    gain = _LOADED_GAINS.get(name.split(".")[-2], 1.0)
    return _random_bf16(shape, gain / math.sqrt(inputs), g)


def _small(name: str, shape: tuple[int, ...], g: Generator) -> Tensor:
    if name.endswith("dt_bias"):
        return 7 * torch.rand(shape, generator=g) - 6
    scale = {"self_attn.conv1d.weight": 0.5, "self_attn.A_log": 0.5}.get(name, 0.1)
    return scale * torch.randn(shape, generator=g)


def _random_bf16(shape: tuple[int, ...], rms: float, g: Generator) -> Tensor:
    """Signs, seven mantissa bits and one of two exponents, so that the RMS is `rms` within a factor of sqrt(2)."""
    out = torch.empty(shape, dtype=torch.bfloat16)
    bits = out.view(torch.int16)
    random_bits(bits, g)
    # Uniform over [1, 2) x {1/2, 1} has RMS 1.21.
    exponent = 127 + round(math.log2(rms / 1.21))
    # Kept: sign, mantissa and the lowest exponent bit, which chooses between the two.
    bits.bitwise_and_(-0x7F01).add_((exponent - 1) << 7)
    return out


def random_bits(out: Tensor, g: Generator) -> None:
    """Fills contiguous `out` of any integer dtype with random bytes."""
    flat = out.view(torch.uint8).flatten()
    whole = flat.shape[0] // 8 * 8
    flat[:whole].view(torch.int64).random_(-(1 << 63), None, generator=g)
    flat[whole:].random_(0, 256, generator=g)
