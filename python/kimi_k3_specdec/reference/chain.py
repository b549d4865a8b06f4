"""Makes random weights behave: decisive routing, wide greedy margins, tokens that depend on context.

Purely random weights are chaotic here: one bf16 flip moves an MXFP4 nibble, that flips an expert, that flips a token
(numerics §10), and a correct kernel could not be told from a wrong one by its tokens. So a few directions of the hidden
space get a meaning. Every token belongs to two clusters, each of which likes its own experts, and to two classes.
One KDA head near the bottom and one near the top pass on the class of the token one and two before; the two flags and
the token itself choose the next token among four successors. All other weights stay random.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from .geometry import Geometry

NUM_CLUSTERS = 8
"""Values of each of a token's two clusters."""

ACTIVE_DIVISOR = 4
"""One token id in so many is a successor of others; their private directions are orthogonal."""

PART = 0.5
"""RMS of each meaningful direction in an embedding."""

PRIVATE = 1.0
"""RMS of a token's own direction in its embedding."""

SIGNAL_SHARE = 0.6
"""A typical share of the embedding in a normed layer input, to scale the router by."""

EMBEDDING_LOGIT, FINAL_EMBEDDING_LOGIT = 1.8, 0.5
"""What AttnRes gives the embedding's block in advance, so that its meaning survives many layers."""

ROUTER_NOISE = 0.2
"""The share of the router that stays random: routing depends, a little, on context."""

FLAG = 1.0
"""RMS of a flag in the residual stream."""

SUCCESSOR_LOGIT, FLAG_LOGIT, NOISE_LOGIT = 14.0, 14.0, 0.3
"""Logits per unit share in the final hidden state: of the token, of each flag, of everything else."""


class Directions:
    """An orthogonal basis of the hidden space, rows of RMS 1, the first few with a meaning."""

    def __init__(self, geometry: Geometry, g: Generator) -> None:
        """Draws the basis; `hidden` must exceed the active tokens by the meaningful directions."""
        h = geometry.hidden
        basis = torch.linalg.qr(torch.randn(h, h, generator=g, dtype=torch.float64))[0].T * math.sqrt(h)
        self.constant = basis[0]
        self.classes = basis[1:3]
        self.flags = basis[3:5]
        self.clusters = basis[5 : 5 + 2 * NUM_CLUSTERS].unflatten(0, (2, NUM_CLUSTERS))
        self.private = basis[5 + 2 * NUM_CLUSTERS :]


def active_tokens(geometry: Geometry) -> Tensor:
    """int64 ids of the tokens that others lead to; prompts of these have wide margins from the start."""
    free = geometry.hidden - 5 - 2 * NUM_CLUSTERS
    count = min(geometry.vocab // ACTIVE_DIVISOR, free // 4 * 4)
    return torch.arange(count) * (geometry.vocab // count)


def install(tensors: dict[str, Tensor], geometry: Geometry, g: Generator) -> None:
    """Gives `tensors` of a checkpoint their meaning: embedding, head, routers, AttnRes projections, two KDA heads."""
    d = Directions(geometry, g)
    active = active_tokens(geometry)
    private = _private_directions(geometry, d, active, g)
    signs = torch.randint(0, 2, (2, geometry.vocab), generator=g) * 2.0 - 1
    clusters = torch.randint(0, NUM_CLUSTERS, (2, geometry.vocab), generator=g)
    embed = PRIVATE * private + PART * d.constant
    for kind in range(2):
        embed = embed + PART * (signs[kind, :, None] * d.classes[kind] + d.clusters[kind][clusters[kind]])
    tensors["model.embed_tokens.weight"] = embed.to(torch.bfloat16)
    tensors["lm_head.weight"] = _head(geometry, d, active, private, g).to(torch.bfloat16)
    for layer in range(1, geometry.num_layers):
        name = f"model.layers.{layer}.block_sparse_moe.gate.weight"
        routed = _router(geometry, d, g)
        tensors[name] = (ROUTER_NOISE * tensors[name].to(torch.float32) + routed).to(torch.bfloat16)
    for name in (n for n in tensors if n.endswith("_res_proj.weight")):
        favour = FINAL_EMBEDDING_LOGIT if "output" in name else EMBEDDING_LOGIT
        own = favour / (geometry.hidden * PART * SIGNAL_SHARE) * d.constant
        tensors[name] = (tensors[name].to(torch.float32) + own).to(torch.bfloat16)
    kda_layers = [i for i in geometry.kda_layers if i > 0]
    for flag, (layer, head) in enumerate(((kda_layers[0], 0), (kda_layers[-1], geometry.kda_heads - 1))):
        _flag_head(tensors, geometry, d, layer, head, flag, g)


def _private_directions(geometry: Geometry, d: Directions, active: Tensor, g: Generator) -> Tensor:
    mixing = torch.randn(geometry.vocab, d.private.shape[0], generator=g, dtype=torch.float64)
    private = mixing @ d.private / math.sqrt(d.private.shape[0])
    private[active] = d.private[: active.shape[0]]
    return private


def _head(geometry: Geometry, d: Directions, active: Tensor, private: Tensor, g: Generator) -> Tensor:
    """[vocab, H]: an active token adds its own direction to four successors, one for each pair of flags."""
    h, quarter = geometry.hidden, active.shape[0] // 4
    head = NOISE_LOGIT / math.sqrt(h) * torch.randn(geometry.vocab, h, generator=g, dtype=torch.float64)
    for pair in range(4):
        members = active[pair * quarter : (pair + 1) * quarter]
        successor = members[torch.randperm(active.shape[0], generator=g) % quarter]
        head.index_add_(0, successor, SUCCESSOR_LOGIT / h * private[active])
        for flag in range(2):
            head[members] += (1 - 2 * (pair >> flag & 1)) * FLAG_LOGIT / h * d.flags[flag]
    return head


def _router(geometry: Geometry, d: Directions, g: Generator) -> Tensor:
    """[E, H]: each cluster has its favourites in one half of the experts, at levels that keep slots apart."""
    half = geometry.num_experts // 2
    levels = torch.logit(torch.linspace(0.9, 0.45, geometry.top_k, dtype=torch.float64))
    gate = torch.zeros(geometry.num_experts, geometry.hidden, dtype=torch.float64)
    for kind in range(2):
        own = levels[kind::2]
        for direction in d.clusters[kind]:
            level = torch.full((half,), -2.0, dtype=torch.float64)
            level[torch.randperm(half, generator=g)[: own.shape[0]]] = own
            gate[kind * half : (kind + 1) * half] += level[:, None] * direction
    return gate / (geometry.hidden * PART * SIGNAL_SHARE)


def _flag_head(tensors: dict[str, Tensor], geometry: Geometry, d: Directions, layer: int, head: int, flag: int,
               g: Generator) -> None:
    """One head whose query and key are constant, whose value is the class of the token flag + 1 before.

    It forgets everything else at once; the gated norm makes its output +-1, o_proj turns that into the flag.
    """
    prefix, dim = f"model.layers.{layer}.self_attn", geometry.head_dim
    rows = slice(head * dim, (head + 1) * dim)
    scale = 1 / (geometry.hidden * PART * SIGNAL_SHARE)
    # silu(x) - silu(-x) = x needs as many channels of either sign.
    pattern = torch.where(torch.randperm(dim, generator=g) % 2 == 0, 1.0, -1.0).to(torch.float64)
    for name, direction in (("q", d.constant), ("k", d.constant), ("v", d.classes[flag])):
        weight = 2 * pattern[:, None] * direction * scale
        tensors[f"{prefix}.{name}_proj.weight"][rows] = weight.to(torch.bfloat16)
        taps = torch.zeros(geometry.conv_width)
        taps[-1 - (flag + 1 if name == "v" else 0)] = 1
        tensors[f"{prefix}.{name}_conv1d.weight"][rows] = taps
    tensors[f"{prefix}.b_proj.weight"][head] = (3 * d.constant * scale).to(torch.bfloat16)
    tensors[f"{prefix}.A_log"][head] = 0
    tensors[f"{prefix}.dt_bias"][rows] = 4
    # Of RMS 1 after the norm and halved by the gate, `pattern` sums to about 0.4 a channel.
    column = FLAG / (0.4 * dim) * d.flags[flag][:, None] * pattern
    tensors[f"{prefix}.o_proj.weight"][:, rows] = column.to(torch.bfloat16)
