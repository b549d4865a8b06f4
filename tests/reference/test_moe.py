"""Routing, the experts from checkpoint bytes to the folded latent, and SiTU's forms."""

import math

import pytest
import torch

from kimi_k3_specdec.reference import bf16, moe, mx, situ
from kimi_k3_specdec.reference.geometry import NANO

SHARD = NANO.shard(2)



def test_top_k_is_by_biased_key_with_ties_to_the_lower_id():
    """The weights are un-biased."""
    logits = torch.full((1, 32), -3.0)
    bias = torch.zeros(32)
    logits[0, [20, 4, 9]] = 1.0
    logits[0, 30] = 0.9
    bias[25] = 2.0
    picks = moe.select_experts(logits, bias, 4)
    assert picks.ids.tolist() == [[25, 4, 9, 20]]
    s = [1 / (1 + math.exp(-v)) for v in (-3.0, 1.0, 1.0, 1.0)]
    assert picks.weights[0].tolist() == pytest.approx([v / sum(s) for v in s], rel=1e-6)


def test_nan_ranks_last_with_weight_zero():
    """Garbage rows stay safe."""
    logits = torch.full((2, 32), torch.nan)
    logits[0, [3, 31]] = torch.tensor([-9.0, -10.0])
    picks = moe.select_experts(logits, torch.full((32,), -1.0), 4)
    assert picks.ids.tolist() == [[3, 31, 0, 1], [0, 1, 2, 3]]
    assert picks.weights[0, 2:].tolist() == [0, 0]


def test_weights_are_summed_serially_in_slot_order(rng):
    """So that all ranks get the same bits."""
    logits = torch.randn(5, 32, generator=rng)
    picks = moe.select_experts(logits, torch.randn(32, generator=rng) * 0.1, 4)
    s = 1 / (1 + torch.exp2((-1.4426950408889634 * logits).double()).float())
    for row in range(5):
        serial = torch.zeros(())
        for i in picks.ids[row].tolist():
            serial = serial + s[row, i]
        assert picks.weights[row].equal(s[row, picks.ids[row]] * (1 / serial))
        assert picks.keys[row, picks.ids[row]].equal(picks.keys[row].sort(descending=True).values[:4])


def checkpoint_matrix(tensors, layer, expert, name):
    """float64 matrix of one expert by a table and a loop, from the checkpoint's bytes."""
    base = f"model.layers.{layer}.block_sparse_moe.experts.{expert}.{name}"
    packed, codes = tensors[f"{base}.weight_packed"], tensors[f"{base}.weight_scale"]
    table = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    rows = []
    for row, scales in zip(packed.tolist(), codes.tolist(), strict=True):
        nibbles = [n for byte in row for n in (byte & 15, byte >> 4)]
        rows.append([(-1) ** (n >> 3) * table[n & 7] * 2.0 ** (scales[i // 32] - 127) for i, n in enumerate(nibbles)])
    return torch.tensor(rows, dtype=torch.float64)


def test_loaded_experts_are_the_checkpoints(nano_tensors, nano_tp2):
    """Fused, sliced, shuffled and read back."""
    w1, w2, w3 = (checkpoint_matrix(nano_tensors, 1, 13, n) for n in ("w1", "w2", "w3"))
    for w in nano_tp2:
        own = slice(128 * w.rank, 128 * (w.rank + 1))
        assert w.w13(1)(13).double().equal(torch.cat((w1[own], w3[own])))
        assert w.w2(1)(13).double().equal(w2[:, own])


def test_experts_equal_a_scalar_computation(nano_tensors, nano_tp2, rng):
    """From the checkpoint's bytes to the ordered fold."""
    latent = torch.randn(3, NANO.latent, generator=rng).to(torch.bfloat16)
    logits = torch.randn(3, 32, generator=rng)
    picks = moe.select_experts(logits, torch.zeros(32), 4)
    quantised = moe.quantise_latent(latent)
    w = nano_tp2[1]
    hidden = moe.expert_hidden(quantised, picks.ids, w.w13(1), NANO)
    down = moe.expert_down(hidden.quantised, picks, w.w2(1))
    x = mx.dequantise(quantised).double()
    for row in range(3):
        y = [0.0] * NANO.latent
        for slot, expert in enumerate(picks.ids[row].tolist()):
            gate = checkpoint_matrix(nano_tensors, 1, expert, "w1")[128:] @ x[row]
            up = checkpoint_matrix(nano_tensors, 1, expert, "w3")[128:] @ x[row]
            h = 4 * torch.tanh(gate / 4) / (1 + torch.exp(-gate)) * 25 * torch.tanh(up / 25)
            torch.testing.assert_close(hidden.hidden[row, slot].double(), h, rtol=2e-5, atol=1e-6)
            h4 = mx.dequantise(mx.Mx(*(t[row, slot] for t in hidden.quantised))).double()
            acc = checkpoint_matrix(nano_tensors, 1, expert, "w2")[:, 128:] @ h4
            torch.testing.assert_close(down.acc[row, slot].double(), acc, rtol=1e-6, atol=1e-7)
            c = (down.acc[row, slot] * picks.weights[row, slot]).to(torch.bfloat16)
            y = [(torch.tensor(a) + b.float()).to(torch.bfloat16).item() for a, b in zip(y, c, strict=True)]
        assert down.y[row].tolist() == y


def test_up_adds_before_the_only_rounding_and_only_its_columns(nano_tp2, rng):
    """Other columns pass through."""
    zn = torch.randn(2, NANO.latent, generator=rng).to(torch.bfloat16)
    shared = torch.randn(2, NANO.hidden, generator=rng).to(torch.bfloat16)
    for w in nano_tp2:
        out = moe.up_partial(zn, shared, w.layers[1], SHARD, w.rank)
        own = w.hidden_columns
        exact = shared[:, own].double() + zn.double() @ w.layers[1]["mlp.routed_expert_up_proj.weight"].double().T
        torch.testing.assert_close(out[:, own].double(), exact, rtol=1.01 * 2**-9 * 2, atol=1e-6)
        other = torch.ones(NANO.hidden, dtype=torch.bool)
        other[own] = False
        assert out[:, other].equal(shared[:, other])


def test_all_reduce_is_in_rank_order_with_one_rounding():
    """fp32 inside."""
    parts = [torch.tensor([v]).bfloat16() for v in (2.0**30, -(2.0**30), 1.0)]
    assert bf16.all_reduce(parts).item() == 1.0
    assert bf16.all_reduce([parts[2], parts[0], parts[1]]).item() == 0.0
    thirds = [torch.tensor([1 + 2.0**-7]).bfloat16()] * 2 + [torch.tensor([2.0**-7]).bfloat16()]
    assert bf16.all_reduce(thirds).item() == torch.tensor(2 + 3 * 2.0**-7).bfloat16().item()


def test_situ_forms_agree(rng):
    """Both with the mathematics."""
    gate, up = torch.randn(4096, generator=rng) * 6, torch.randn(4096, generator=rng) * 20
    truth = situ.situ(gate, up, NANO)
    torch.testing.assert_close(situ.situ_experts(gate, up, NANO).double(), truth, rtol=3e-6, atol=1e-6)
    g, u = gate.bfloat16(), up.bfloat16()
    # `1 + tanh` cancels for very negative gates: only absolutely small there.
    torch.testing.assert_close(situ.situ_bf16(g, u, NANO).double(), situ.situ(g, u, NANO), rtol=1.1 * 2**-8, atol=4e-5)
    assert situ.situ(torch.tensor(50.0), torch.tensor(1e4), NANO).item() == pytest.approx(100.0)


def test_dot_is_close_to_exact_and_independent_of_the_rows(rng):
    """Width does not change a row."""
    x = torch.randn(9, 256, generator=rng).to(torch.bfloat16)
    weight = torch.randn(48, 256, generator=rng).to(torch.bfloat16)
    y = bf16.dot(x, weight)
    torch.testing.assert_close(y.double(), x.double() @ weight.double().T, rtol=2**-23, atol=1e-6)
    assert all(bf16.dot(x[i : i + 1], weight)[0].equal(y[i]) for i in range(9))
