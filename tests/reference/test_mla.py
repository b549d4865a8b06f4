"""Latent attention against textbook attention with explicit keys and values, and the cache's rules."""

import torch

from kimi_k3_specdec.reference import mla
from kimi_k3_specdec.reference.geometry import NANO
from kimi_k3_specdec.reference.state import flat_slots

SHARD = NANO.shard(2)


def naive_core(x, weights, kv_b):
    """Full causal attention of rows `x` in float64 without absorption, cache or intermediate rounding."""
    g, heads = NANO, SHARD.mla_heads
    w = {name: t.double() for name, t in weights.items() if t.dtype == torch.bfloat16}

    def norm(v, name):
        return v / (v.square().mean(-1, keepdim=True) + 1e-5).sqrt() * w[name]

    a = x.double() @ w["self_attn.fused_qkv_a_proj.weight"].T
    q_c, kv_c, k_pe, gate = a.split([g.q_lora, g.kv_lora, g.rope, SHARD.mla_projection], -1)
    query = (norm(q_c, "self_attn.q_a_layernorm.weight") @ w["self_attn.q_b_proj.weight"].T).unflatten(-1, (heads, -1))
    kv = (norm(kv_c, "self_attn.kv_a_layernorm.weight") @ kv_b.double().T).unflatten(-1, (heads, -1))
    key = torch.cat((kv[..., : g.nope], k_pe[:, None].expand(-1, heads, -1)), -1)
    score = torch.einsum("thd,shd->hts", query, key) * g.softmax_scale
    score = score.masked_fill(torch.ones(len(x), len(x)).triu(1).bool(), -torch.inf)
    out = torch.einsum("hts,shv->thv", score.softmax(-1), kv[..., g.nope :])
    return out.flatten(1) / (1 + torch.exp(-gate))


def test_absorbed_attention_equals_naive_attention(nano_tp2, nano_tensors, rng):
    """Both cache types, both ranks."""
    x = torch.randn(9, NANO.hidden, generator=rng).to(torch.bfloat16)
    for w in nano_tp2:
        weights = w.layers[3]
        kv_b = nano_tensors["model.layers.3.self_attn.kv_b_proj.weight"].chunk(2)[w.rank]
        expected = naive_core(x, weights, kv_b)
        # Six bf16 roundings in a row; E4M3 has a step of 2^-3 and softmax averages it.
        for kv_dtype, bound in (("bf16", 1e-2), ("fp8", 8e-2)):
            cache = mla.LatentCache.allocate(NANO, 16, kv_dtype)
            slots = torch.arange(9) + 2
            front = mla.mla_front(x, weights, SHARD)
            cache.store(front.latent, slots)
            core = mla.mla_core(front, cache, weights, SHARD, [slots]).double()
            assert (core - expected).norm() <= bound * expected.norm()


def test_rows_see_their_past_only_and_requests_are_independent(nano_tp2, rng):
    """The causal mask over scattered slots."""
    weights = nano_tp2[0].layers[5]
    cache = mla.LatentCache.allocate(NANO, 64)
    x = torch.randn(4, NANO.hidden, generator=rng).to(torch.bfloat16)
    cache.store(torch.randn(64, 576, generator=rng).to(torch.bfloat16), torch.arange(64))
    slots = [torch.tensor([40, 3, 9, 50, 21]), torch.tensor([7, 8])]
    front = mla.mla_front(x, weights, SHARD)
    cache.store(front.latent, torch.cat([s[-2:] for s in slots]))
    core = mla.mla_core(front, cache, weights, SHARD, slots)
    alone = mla.mla_front(x[:2], weights, SHARD)
    assert mla.mla_core(alone, cache, weights, SHARD, slots[:1]).equal(core[:2])
    cache.rows[21] = 0
    changed = mla.mla_core(front, cache, weights, SHARD, slots)
    assert changed[0].equal(core[0]) and not changed[1].equal(core[1]) and changed[2:].equal(core[2:])


def test_fp8_saturates_and_rounds_to_even():
    """E4M3 without infinities."""
    x = torch.tensor([1e6, -500.0, 448.0, 464.0, 1.0625, 1.1875, 2.0**-10])
    # Steps of 1/8 above 1; the smallest subnormal is 2^-9, half of it ties to zero.
    assert mla.fp8(x).float().tolist() == [448, -448, 448, 448, 1.0, 1.25, 0.0]


def test_cache_ignores_negative_slots_and_keeps_bytes(rng):
    """A slot of -1 is padding."""
    cache = mla.LatentCache.allocate(NANO, 4)
    latent = torch.randn(3, 576, generator=rng).to(torch.bfloat16)
    cache.store(latent, torch.tensor([2, -1, 0]))
    assert not cache.rows[1].any() and not cache.rows[3].any()
    assert cache.rows[2].equal(latent[0].to(torch.float8_e4m3fn).view(torch.uint8))
    assert cache.gather(torch.tensor([-1])).equal(cache.gather(torch.tensor([0])))


def test_flat_slots_walk_the_block_table():
    """Block times size plus offset."""
    assert flat_slots(torch.tensor([5, 2, 9]), 4, 6).tolist() == [20, 21, 22, 23, 8, 9]


def test_absorb_splits_every_head():
    """Keys first, then values."""
    kv_b = torch.arange(2 * 256 * 512.0).reshape(512, 512).to(torch.bfloat16)
    w_uk_t, w_uv = mla.absorb(kv_b, NANO)
    assert w_uk_t.shape == (2, 128, 512) and w_uv.shape == (2, 512, 128)
    assert w_uk_t[1, 7, 9] == kv_b[256 + 7, 9] and w_uv[1, 9, 7] == kv_b[256 + 128 + 7, 9]
