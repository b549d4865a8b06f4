"""KDA: convolution, gates and recurrence against scalar code; speculative slots against sequential replay."""

import math

import pytest
import torch

from kimi_k3_specdec.reference import kda
from kimi_k3_specdec.reference.geometry import NANO

SHARD = NANO.shard(2)


def random_proj(rows, rng):
    """An in_proj output, bf16 [rows, in_proj_rows]."""
    return torch.randn(rows, SHARD.in_proj_rows, generator=rng).to(torch.bfloat16)


@pytest.fixture
def weights(nano_tp2):
    """Layer 2 of rank 1: a layer with random heads only."""
    return nano_tp2[1].layers[2]


def test_conv_by_hand(rng):
    """Four taps, SiLU, and the window that remains."""
    x = torch.randn(1, 5, 2, generator=rng).to(torch.bfloat16)
    window = torch.randn(1, 3, 2, generator=rng).to(torch.bfloat16)
    weight = torch.randn(2, 1, 4, generator=rng)
    out, state = kda.short_conv(x, window, weight)
    assert state.equal(torch.cat((window, x), 1)[:, 1:])
    for channel in range(2):
        seq = torch.cat((window, x), 1)[0, :, channel].tolist()
        for j in range(5):
            acc = sum(weight[channel, 0, t].item() * seq[j + t] for t in range(4))
            assert out[0, j, channel].item() == pytest.approx(acc / (1 + math.exp(-acc)), rel=1.1 * 2**-8)


def test_recurrence_by_hand(rng):
    """The delta rule written as matrix algebra."""
    dim, q = 128, 3
    conv = torch.randn(1, q, 3 * dim, generator=rng).to(torch.bfloat16)
    decay, beta = torch.rand(1, q, 1, dim, generator=rng), torch.rand(1, q, 1, generator=rng)
    state = torch.randn(1, 1, dim, dim, generator=rng)
    out, states = kda.recurrence(conv, kda.Gates(decay, beta), state, 1e-6)
    st = state[0, 0].double()
    for j in range(q):
        query, key, value = conv[0, j].double().reshape(3, dim)
        query = query / (query.square().sum() + 1e-6).sqrt() / math.sqrt(dim)
        key = key / (key.square().sum() + 1e-6).sqrt()
        # The delta rule as matrix algebra: S <- S D (I - beta k k^T) + beta v k^T.
        scaled = st @ torch.diag(decay[0, j, 0].double())
        b = beta[0, j, 0].double()
        st = scaled - b * torch.outer(scaled @ key, key) + b * torch.outer(value, key)
        assert (states[0, j, 0].double() - st).norm() <= 1e-5 * st.norm()
        torch.testing.assert_close(out[0, j, 0].double(), st @ query, rtol=1.1 * 2**-8, atol=1e-5)


def test_gates_by_hand_and_bounds(weights, rng):
    """One decay, one beta; decay stays in [e^-5, 1]."""
    g1 = torch.randn(4, SHARD.projection, generator=rng).to(torch.bfloat16) * 5
    beta = torch.randn(4, SHARD.heads, generator=rng).to(torch.bfloat16)
    a_log, bias = weights["self_attn.A_log"], weights["self_attn.dt_bias"]
    gates = kda.decay_gates(g1, beta, a_log, bias, -5.0)
    assert gates.decay.min() >= math.exp(-5) * (1 - 1e-6) and gates.decay.max() <= 1
    column = 128 + 17
    inner = math.exp(a_log[1].item()) * (g1[2, column].item() + bias[column].item())
    assert gates.decay[2, 1, 17].item() == pytest.approx(math.exp(-5 / (1 + math.exp(-inner))), rel=1e-5)
    assert gates.beta[3, 0].item() == pytest.approx(1 / (1 + math.exp(-beta[3, 0].item())), rel=1e-6)


def test_gated_norm_rounds_the_output_before_its_square_sum(weights, rng):
    """The order of roundings in numerics §4.5."""
    proj = random_proj(2, rng)
    core = kda.kda_core(proj, weights, SHARD, *kda.empty_start(SHARD, 1))
    assert core.out.equal(core.out.to(torch.bfloat16).float())
    got = kda.gated_norm(core.gated, core.square_sums, 1e-5)
    gate = kda.split_projections(proj, SHARD).gate.double().unflatten(-1, (SHARD.heads, 128))
    o = core.out.double()
    expected = o / (o.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weights["self_attn.o_norm.weight"].double()
    expected = expected / (1 + torch.exp(-gate))
    torch.testing.assert_close(got.double(), expected.flatten(1), rtol=1.01 * 2**-8, atol=1e-7)


def test_states_and_outputs_equal_sequential_replay_of_accepted_tokens(weights, rng):
    """Verify steps of several widths and accepted counts, against one token at a time of what was accepted."""
    replay = kda.KdaState.allocate(SHARD, 2, 1, fill=torch.nan)
    state = kda.KdaState.allocate(SHARD, 20, 4, fill=torch.nan)
    prompt = random_proj(5, rng)
    core = kda.kda_core(prompt, weights, SHARD, *kda.empty_start(SHARD, 1), keep_states=False)
    kda.store_prefill(replay, core, 1)
    slots = torch.tensor([[3, 9, 4, 7]], dtype=torch.int32)
    kda.store_prefill(state, core, 3)
    one, accepted = torch.ones(1, dtype=torch.int32), 1
    for taken in (4, 1, 2, 3, 4, 4, 1, 1):
        proj = random_proj(4, rng)
        window, start, null = kda.start_states(state, slots, torch.tensor([accepted]))
        step = kda.kda_core(proj, weights, SHARD, window, start, null)
        kda.store_states(state, step, slots, null)
        for row in range(taken):
            window, start, null = kda.start_states(replay, one[:, None], one)
            single = kda.kda_core(proj[row : row + 1], weights, SHARD, window, start, null)
            kda.store_states(replay, single, one[:, None], null)
            assert single.out[0].equal(step.out[row]) and single.gated[0].equal(step.gated[row])
        accepted = taken
        assert state.recurrent[slots[0, taken - 1]].equal(replay.recurrent[1])
        assert state.conv[3, taken - 1 : taken + 2].equal(replay.conv[1, :3])


def test_a_request_does_not_depend_on_the_others(weights, rng):
    """Bit for bit."""
    q, requests = 2, 3
    state = kda.KdaState.allocate(SHARD, 8, q)
    state.conv.copy_(torch.randn(state.conv.shape, generator=rng))
    state.recurrent.copy_(torch.randn(state.recurrent.shape, generator=rng))
    slots = torch.arange(1, 7, dtype=torch.int32).reshape(requests, q)
    accepted, proj = torch.tensor([2, 1, 2]), random_proj(requests * q, rng)
    window, start, null = kda.start_states(state, slots, accepted)
    together = kda.kda_core(proj, weights, SHARD, window, start, null)
    for i in range(requests):
        window, start, null = kda.start_states(state, slots[i : i + 1], accepted[i : i + 1])
        alone = kda.kda_core(proj[i * q : (i + 1) * q], weights, SHARD, window, start, null)
        assert alone.out.equal(together.out[i * q : (i + 1) * q])
        assert alone.states[0].equal(together.states[i])


def test_null_requests_and_null_columns_store_nothing(weights, rng):
    """And give zeros, even from NaN."""
    state = kda.KdaState.allocate(SHARD, 4, 2, fill=torch.nan)
    state.recurrent[2], state.conv[2] = 0.0, 0.0
    before = state.recurrent.clone(), state.conv.clone()
    # A padded request, one whose second column is null, one whose start state is null but whose conv slot is not.
    slots = torch.tensor([[0, 0], [2, 0], [3, 0]], dtype=torch.int32)
    window, start, null = kda.start_states(state, slots, torch.tensor([1, 1, 2]))
    proj = random_proj(6, rng)
    proj[:2] = torch.nan
    core = kda.kda_core(proj, weights, SHARD, window, start, null)
    assert null.tolist() == [True, False, True]
    normed = kda.gated_norm(core.gated, core.square_sums, 1e-5)
    assert not normed[:2].any() and not normed[4:].any() and normed[2:4].isfinite().all()
    kda.store_states(state, core, slots, null)
    changed = [i for i in range(4) if not state.recurrent[i].nan_to_num(9).equal(before[0][i].nan_to_num(9))]
    conv_changed = [i for i in range(4) if not state.conv[i].nan_to_num(9).equal(before[1][i].nan_to_num(9))]
    assert (changed, conv_changed) == ([2], [2, 3])


def test_a_log_is_sliced_by_head_from_a_longer_tensor(nano_tensors, nano_tp2):
    """Entries past the heads are nobody's."""
    stored = nano_tensors["model.layers.1.self_attn.A_log"]
    assert stored.shape == (8,) and not stored[4:].any() and stored[1:4].all()
    for w in nano_tp2:
        assert w.layers[1]["self_attn.A_log"].equal(stored[2 * w.rank : 2 * w.rank + 2])
