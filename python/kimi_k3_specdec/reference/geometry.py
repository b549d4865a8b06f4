"""Every dimension of the model, and one rank's share of it (numerics §1 and §11)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

LayerKind = Literal["kda", "mla"]

MX_GROUP = 32
"""Consecutive K values that share one E8M0 scale (numerics §1.1)."""

CONV_HISTORY = 3
"""Inputs before the current token that the short convolution sees: its width less one."""


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """The whole model's dimensions; layers are 0-based here, 1-based in the checkpoint's config."""

    name: str
    num_layers: int
    mla_layers: tuple[int, ...]
    attn_res_block_size: int
    hidden: int
    vocab: int
    kda_heads: int
    a_log_entries: int
    """Entries of a checkpoint's `A_log`, at least `kda_heads`; the rest is zero (numerics §4.3)."""
    mla_heads: int
    q_lora: int
    kv_lora: int = 512
    nope: int = 128
    rope: int = 64
    v_dim: int = 128
    head_dim: int = 128
    conv_width: int = CONV_HISTORY + 1
    num_experts: int
    top_k: int
    latent: int
    moe_intermediate: int
    shared_intermediate: int
    """Of all shared experts together, as they are fused to one MLP."""
    num_shared_experts: int = 2
    dense_intermediate: int
    rms_eps: float = 1e-5
    o_norm_eps: float = 1e-5
    l2_eps: float = 1e-6
    gate_lower_bound: float = -5.0
    situ_beta: float = 4.0
    situ_linear_beta: float = 25.0

    @property
    def num_blocks(self) -> int:
        """AttnRes blocks that the buffer holds (numerics §1.1)."""
        return -(-self.num_layers // self.attn_res_block_size)

    @property
    def kda_layers(self) -> tuple[int, ...]:
        """Layers that are not MLA."""
        return tuple(i for i in range(self.num_layers) if i not in self.mla_layers)

    @property
    def latent_row(self) -> int:
        """Values of one cached MLA token: the compressed KV, then the never rotated "rope" part."""
        return self.kv_lora + self.rope

    @property
    def q_head_dim(self) -> int:
        """Values of one MLA query head before absorption."""
        return self.nope + self.rope

    @property
    def softmax_scale(self) -> float:
        """MLA's, without any yarn factor (numerics §1.1)."""
        return self.q_head_dim**-0.5

    def layer_kind(self, layer: int) -> LayerKind:
        """`kda` or `mla`."""
        return "mla" if layer in self.mla_layers else "kda"

    def is_dense(self, layer: int) -> bool:
        """Only layer 0 has a dense MLP (`first_k_dense_replace` is 1)."""
        return layer == 0

    def prev_valid_blocks(self, layer: int) -> int:
        """Blocks written before `layer`: the sources of its attention seam besides the prefix."""
        return -(-layer // self.attn_res_block_size)

    def is_block_write(self, layer: int) -> bool:
        """Whether `layer` stores its prefix as a block and restarts it (numerics §3)."""
        return layer % self.attn_res_block_size == 0

    def mlp_valid_blocks(self, layer: int) -> int:
        """Blocks that are sources of the MLP seam: one more than before where `layer` wrote one."""
        return self.prev_valid_blocks(layer) + self.is_block_write(layer)

    def shard(self, ranks: int) -> Shard:
        """One rank's view; raises ValueError that lists every divisibility rule of numerics §11 that fails."""
        reasons = divisibility_reasons(self, ranks)
        if reasons:
            raise ValueError(f"geometry `{self.name}` cannot be split over {ranks} ranks: " + "; ".join(reasons))
        return Shard(self, ranks)


@dataclass(frozen=True)
class Shard:
    """Sizes of one rank's tensors (numerics §1.2); all ranks are alike, so it holds no rank number."""

    geometry: Geometry
    ranks: int

    @cached_property
    def heads(self) -> int:
        """Local KDA heads."""
        return self.geometry.kda_heads // self.ranks

    @cached_property
    def projection(self) -> int:
        """Local width of q, of k, of v and of the output gate; K of o_proj."""
        return self.heads * self.geometry.head_dim

    @property
    def conv_channels(self) -> int:
        """Local channels of the short convolution: q, k, v in that order."""
        return 3 * self.projection

    @property
    def in_proj_used(self) -> int:
        """Rows of the fused in_proj that mean something (numerics §4.1)."""
        return 4 * self.projection + self.geometry.head_dim + self.heads

    @property
    def in_proj_rows(self) -> int:
        """`in_proj_used`, padded with zero rows to whole 16-row tiles."""
        return _round_up(self.in_proj_used, 16)

    @property
    def mla_heads(self) -> int:
        """Local MLA heads."""
        return self.geometry.mla_heads // self.ranks

    @property
    def mla_projection(self) -> int:
        """Local width of MLA's output gate and core."""
        return self.mla_heads * self.geometry.v_dim

    @property
    def qkv_a_rows(self) -> int:
        """Rows of the fused q_a, kv_a (both replicated) and gate (sharded) projection."""
        return self.geometry.q_lora + self.geometry.latent_row + self.mla_projection

    @property
    def q_b_rows(self) -> int:
        """Rows of q_b: local heads times the query head dimension."""
        return self.mla_heads * self.geometry.q_head_dim

    @property
    def router_rows(self) -> int:
        """Experts whose logit this rank computes; their weights are sliced otherwise (numerics §2)."""
        return self.geometry.num_experts // self.ranks

    @property
    def latent_rows(self) -> int:
        """Latent columns that this rank computes before the all-gather."""
        return self.geometry.latent // self.ranks

    @property
    def hidden_rows(self) -> int:
        """Hidden columns that this rank's up projection owns."""
        return self.geometry.hidden // self.ranks

    @property
    def moe_intermediate(self) -> int:
        """Local slice of every routed expert's intermediate."""
        return self.geometry.moe_intermediate // self.ranks

    @property
    def w13_scale_columns(self) -> int:
        """E8M0 codes of one row of w13, padding included."""
        return _round_up(self.geometry.latent // MX_GROUP, 8)

    @property
    def w2_scale_valid(self) -> int:
        """E8M0 codes of one row of w2 that mean something."""
        return self.moe_intermediate // MX_GROUP

    @property
    def w2_scale_columns(self) -> int:
        """`w2_scale_valid`, padded to 8 with codes that nobody may use (numerics §7)."""
        return _round_up(self.w2_scale_valid, 8)

    @property
    def shared_intermediate(self) -> int:
        """Local slice of the fused shared experts."""
        return self.geometry.shared_intermediate // self.ranks

    @property
    def dense_intermediate(self) -> int:
        """Local slice of layer 0's MLP."""
        return self.geometry.dense_intermediate // self.ranks

    @property
    def vocab_rows(self) -> int:
        """Local rows of the embedding and of the head."""
        return self.geometry.vocab // self.ranks


def divisibility_reasons(g: Geometry, ranks: int) -> list[str]:
    """Every rule of numerics §11 that `g` breaks at `ranks`; empty when it can run."""
    if ranks < 1:
        return [f"the rank count is {ranks}, it must be at least 1"]
    # what, its size in the whole model, the divisor one rank's share must have
    shares = [
        ("hidden", g.hidden, 16),
        ("KDA heads", g.kda_heads, 1),
        ("MLA heads", g.mla_heads, 1),
        ("KDA projection (K of o_proj)", g.kda_heads * g.head_dim, 128),
        ("MLA heads x v (K of o_proj)", g.mla_heads * g.v_dim, 128),
        ("experts", g.num_experts, 16),
        ("latent", g.latent, 16),
        ("routed intermediate", g.moe_intermediate, 128),
        ("shared intermediate", g.shared_intermediate, 128),
        ("dense intermediate", g.dense_intermediate, 128),
        ("vocab", g.vocab, 1),
    ]
    reasons = [
        f"{what} {size} is not a multiple of {ranks} ranks x {multiple}" if multiple > 1
        else f"{what} {size} is not a multiple of {ranks} ranks"
        for what, size, multiple in shares
        if size % (ranks * multiple)
    ]
    whole = [
        ("hidden", g.hidden, 128), ("q_lora", g.q_lora, 128), ("kv_lora", g.kv_lora, 128),
        ("nope", g.nope, 128), ("latent", g.latent, 256), ("rope", g.rope, 16),
    ]
    reasons += [f"{what} {size} is not a multiple of {multiple}" for what, size, multiple in whole if size % multiple]
    reasons += [f"{what} is {size}, it must be 128" for what, size in (("KDA head dim", g.head_dim), ("v dim", g.v_dim))
                if size != 128]
    if g.kda_heads * g.head_dim != g.mla_heads * g.v_dim:
        reasons.append(f"KDA projection {g.kda_heads * g.head_dim} differs from MLA heads x v {g.mla_heads * g.v_dim}")
    if not 1 <= g.top_k <= min(16, g.num_experts):
        reasons.append(f"top_k is {g.top_k}, it must be 1 to {min(16, g.num_experts)}")
    if g.conv_width != CONV_HISTORY + 1:
        reasons.append(f"conv width is {g.conv_width}, it must be {CONV_HISTORY + 1}")
    writers = [i for i in g.mla_layers if g.is_block_write(i)]
    reasons += [f"layer {i} writes a block and is MLA, only a KDA layer can" for i in writers]
    return reasons


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


K3 = Geometry(
    name="k3", num_layers=93, mla_layers=(*range(3, 92, 4), 92), attn_res_block_size=12, hidden=7168, vocab=163840,
    kda_heads=96, a_log_entries=128, mla_heads=96, q_lora=1536, num_experts=896, top_k=16, latent=3584,
    moe_intermediate=3072, shared_intermediate=6144, dense_intermediate=33792,
)
"""Kimi-K3 as published (numerics §1.1)."""

NANO = Geometry(
    name="nano", num_layers=6, mla_layers=(3, 5), attn_res_block_size=4, hidden=256, vocab=512,
    kda_heads=4, a_log_entries=8, mla_heads=4, q_lora=128, num_experts=32, top_k=4, latent=256,
    moe_intermediate=256, shared_intermediate=512, dense_intermediate=512,
)
"""Small enough to emulate, with every feature of K3 (numerics §11)."""

NANO_DEEP = replace(NANO, name="nano-deep", num_layers=14, mla_layers=(3, 13))
"""`NANO` with a run of nine KDA layers, block writes inside it."""


def by_name(name: str) -> Geometry:
    """The geometry called `name`; raises ValueError that lists the known ones."""
    known = {g.name: g for g in (K3, NANO, NANO_DEEP)}
    if name not in known:
        raise ValueError(f"unknown geometry `{name}`: known are " + ", ".join(f"`{n}`" for n in known))
    return known[name]
