"""The whole nano model: prefill against decode, speculation against none, two ranks against one."""

import dataclasses

import pytest
import torch

from kimi_k3_specdec.reference import attn_res
from kimi_k3_specdec.reference.chain import active_tokens
from kimi_k3_specdec.reference.geometry import NANO, NANO_DEEP
from kimi_k3_specdec.reference.loader import rank_weights
from kimi_k3_specdec.reference.model import Model, greedy, greedy_generate
from kimi_k3_specdec.reference.random_weights import checkpoint_tensors
from kimi_k3_specdec.reference.state import ModelState, Prefill, VerifyStep

ONE = torch.ones(1, dtype=torch.int32)


@pytest.fixture(scope="module")
def model(nano_tp2):
    """Nano on two ranks."""
    return Model(nano_tp2)


def prompt(length, seed):
    """Random tokens that have orthogonal embeddings."""
    ids = active_tokens(NANO)
    return ids[torch.randint(0, len(ids), (length,), generator=torch.Generator().manual_seed(seed))]


def allocate(model, **sizes):
    """Empty states whose unwritten slots would poison whatever reads them."""
    return ModelState.allocate(model.geometry, 2, fill=torch.nan, **sizes)


@pytest.mark.parametrize("kv_dtype", ["fp8", "bf16"])
def test_prefill_then_decode_equals_one_prefill(model, kv_dtype):
    """Logits and states, bit for bit."""
    tokens = prompt(10, 1)
    states = [allocate(model, state_slots=2, kv_slots=10, max_q=1, kv_dtype=kv_dtype) for _ in range(2)]
    whole = model.prefill(tokens, Prefill(1, torch.arange(10)), states[0])
    parts = [model.prefill(tokens[:6], Prefill(1, torch.arange(6)), states[1])]
    for n in range(6, 10):
        step = VerifyStep(ONE[:, None], ONE, [torch.arange(n + 1)])
        parts.append(model.verify_step(tokens[n].reshape(1, 1), step, states[1])[0])
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=0)
    for layer in NANO.kda_layers:
        for whole_state, state in zip(states[0].kda[layer], states[1].kda[layer], strict=True):
            assert state.recurrent[1].equal(whole_state.recurrent[1])
            assert state.conv[1, :3].equal(whole_state.conv[1, :3])
    assert all(states[0].mla[i].rows.equal(states[1].mla[i].rows) for i in NANO.mla_layers)


def speculate(model, prompts, q, num_tokens, truth, seed):
    """Verify steps with drafts that are wrong from a random position on, other requests and slots each step.

    Cache groups have their own slots. Returns the emitted tokens of each request, accepted counts and the state.
    """
    rng = torch.Generator().manual_seed(seed)
    requests = len(prompts)
    state = allocate(model, state_slots=2 * requests * q + 1, kv_slots=64 * requests, max_q=q)
    odd = (1 + torch.randperm(2 * requests * q, generator=rng)).to(torch.int32).reshape(2, requests, q)
    indices = {layer: odd[layer % 2] for layer in NANO.kda_layers}
    emitted = []
    for i, tokens in enumerate(prompts):
        slots = {layer: int(index[i, 0]) for layer, index in indices.items()}
        last = model.prefill(tokens, Prefill(slots, 64 * i + torch.arange(len(tokens))), state)[-1]
        emitted.append([int(greedy(last))])
    accepted, counts = torch.ones(requests, dtype=torch.int32), []
    while min(map(len, emitted)) < num_tokens:
        known = [t[len(e) - 1 :] + [0] * q for t, e in zip(truth, emitted, strict=True)]
        drafts = torch.tensor([t[:q] for t in known])
        right = torch.randint(0, q, (requests,), generator=rng)
        for i in range(requests):
            drafts[i, 1 + right[i] :] = (drafts[i, 1 + right[i] :] + 4) % NANO.vocab
        lengths = [len(p) + len(e) - 1 + q for p, e in zip(prompts, emitted, strict=True)]
        step = VerifyStep(indices, accepted, [64 * i + torch.arange(n) for i, n in enumerate(lengths)])
        best = greedy(model.verify_step(drafts, step, state)).tolist()
        for i in range(requests):
            n = next((j for j in range(q - 1) if drafts[i, j + 1] != best[i][j]), q - 1)
            emitted[i] += best[i][: n + 1]
            accepted[i] = n + 1
        counts.append(accepted.tolist())
    return emitted, counts, state, indices, accepted


@pytest.mark.parametrize(("requests", "q"), [(1, 2), (2, 4), (3, 3), (1, 8)])
def test_speculation_emits_what_decode_does(model, requests, q):
    """Whatever was rejected."""
    prompts = [prompt(4 + i, 10 + i) for i in range(requests)]
    truth = [greedy_generate(model, p, 20)[0].tolist() for p in prompts]
    emitted, counts, *_ = speculate(model, prompts, q, 9, truth, seed=q)
    for e, t in zip(emitted, truth, strict=True):
        n = min(len(e), len(t))
        assert e[:n] == t[:n]
    flat = [c for row in counts for c in row]
    assert min(flat) < max(flat), "both rejection and acceptance must occur"
    assert requests == 1 or any(len(set(row)) > 1 for row in counts)


def test_speculative_states_equal_those_of_a_prefill(model):
    """Of the accepted tokens only."""
    prompts = [prompt(4, 10), prompt(6, 11)]
    truth = [greedy_generate(model, p, 20)[0].tolist() for p in prompts]
    emitted, _, state, indices, accepted = speculate(model, prompts, 4, 9, truth, seed=3)
    for i, tokens in enumerate(prompts):
        history = torch.cat((tokens, torch.tensor(emitted[i][:-1])))
        fresh = allocate(model, state_slots=2, kv_slots=len(history), max_q=1)
        model.prefill(history, Prefill(1, torch.arange(len(history))), fresh)
        last = int(accepted[i]) - 1
        for layer in NANO.kda_layers:
            slots = indices[layer][i]
            for got, expected in zip(state.kda[layer], fresh.kda[layer], strict=True):
                assert got.recurrent[slots[last]].equal(expected.recurrent[1])
                assert got.conv[slots[0], last : last + 3].equal(expected.conv[1, :3])
        for layer in NANO.mla_layers:
            rows = state.mla[layer].rows[64 * i : 64 * i + len(history)]
            assert rows.equal(fresh.mla[layer].rows)


def test_a_padded_request_changes_nothing(model):
    """Its slot 0 is not written either."""
    tokens = prompt(5, 20)
    logits = []
    for padded in (False, True):
        state = allocate(model, state_slots=3, kv_slots=8, max_q=2)
        model.prefill(tokens[:3], Prefill(1, 1 + torch.arange(3)), state)
        slots, accepted = torch.tensor([[1, 2]], dtype=torch.int32), ONE
        step = VerifyStep(slots, accepted, [1 + torch.arange(5)])
        drafts = tokens[3:].reshape(1, 2)
        if padded:
            step = VerifyStep(
                torch.cat((slots, torch.zeros_like(slots))), torch.cat((accepted, ONE)),
                [1 + torch.arange(5), torch.zeros(2, dtype=torch.int64)], torch.tensor([4, 5, -1, -1]),
            )
            drafts = torch.cat((drafts, torch.tensor([[7, 7]])))
        logits.append(model.verify_step(drafts, step, state))
        assert all(s.recurrent[0].isnan().all() and s.conv[0].isnan().all() for s in state.kda[1])
    assert logits[1][0].equal(logits[0][0])


def test_two_ranks_are_close_to_one(model, nano_tp1):
    """In logits; equal in tokens."""
    tokens = torch.cat((prompt(4, 30), greedy_generate(model, prompt(4, 30), 20)[0]))
    one = Model(nano_tp1)
    logits = [
        m.prefill(tokens, Prefill(1, torch.arange(24)),
                  ModelState.allocate(NANO, ranks, state_slots=2, kv_slots=24, max_q=1))
        for m, ranks in ((model, 2), (one, 1))
    ]
    # bf16 partials move MXFP4 nibbles: no tight bound exists (numerics §10), the tokens are the same.
    assert (logits[0] - logits[1]).norm() <= 0.1 * logits[1].norm()
    assert greedy(logits[0][3:]).equal(greedy(logits[1][3:]))


@pytest.mark.parametrize(("geometry", "seed"), [(NANO, 0), (NANO, 1), (NANO_DEEP, 2)])
def test_checkpoints_are_decisive(geometry, seed):
    """Wide margins, varied tokens and experts."""
    picks = []
    weights = rank_weights(checkpoint_tensors(geometry, seed).__getitem__, geometry, 2)
    model = Model(weights, lambda layer, stage, value: picks.append(value) if stage == "picks" else None)
    tokens, logits = greedy_generate(model, prompt(6, seed), 18)
    top = logits.topk(2).values
    assert (top[:, 0] - top[:, 1]).min() > 0.3
    assert len(set(tokens.tolist())) > 8
    keys = torch.cat([p.keys for p in picks]).sort(-1, descending=True).values
    gap = keys[:, geometry.top_k - 1] - keys[:, geometry.top_k]
    assert gap.median() > 0.1
    assert torch.cat([p.ids for p in picks]).unique().numel() > 24


def test_tokens_depend_on_the_conv_state(model):
    """The same two last tokens after other ones lead elsewhere, for some first token."""
    base = prompt(5, 40)
    following = set()
    for first in active_tokens(NANO)[:12].tolist():
        tokens = base.clone()
        tokens[2] = first
        following.add(int(greedy_generate(model, tokens, 1)[0]))
    assert len(following) > 1


def test_block_writes_and_restarts(model):
    """After layer 4 the prefix is only its attention's output; block 1 is the prefix before it."""
    seen = {}
    traced = Model(model.weights, lambda layer, stage, value: seen.__setitem__((layer, stage), value))
    stream = traced.begin(prompt(3, 50))
    assert stream.blocks.isnan().all()
    state = allocate(model, state_slots=2, kv_slots=3, max_q=1)
    step = Prefill(1, torch.arange(3))
    embedding = stream.prefix
    traced.run_layers(stream, step, state, range(4))
    assert stream.blocks[:, 0].equal(embedding) and stream.blocks[:, 1].isnan().all()
    expected = attn_res.advance_prefix(stream.prefix, stream.delta)
    traced.run_layers(stream, step, state, [4])
    assert stream.blocks[:, 1].equal(expected) and stream.prefix.equal(seen[4, "attn"])
    assert seen[4, "self_attention_res_seam"].weights.shape == (3, 2)
    assert seen[4, "mlp_res_seam"].weights.shape == (3, 3)


def test_layers_can_run_alone(nano_tp2):
    """A model of one layer needs that layer's weights only."""
    only = [dataclasses.replace(w, top={}, layers={2: w.layers[2]}) for w in nano_tp2]
    stream = Model(nano_tp2).begin(prompt(2, 60))
    stream.blocks[:, 0] = stream.prefix
    state = allocate(Model(nano_tp2), state_slots=2, kv_slots=2, max_q=1)
    Model(only).run_layers(stream, Prefill(1, torch.arange(2)), state, [2])
    assert stream.delta.isfinite().all()
