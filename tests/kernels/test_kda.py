"""`kda`: convolution window, gates, recurrence with a state per row, gated output; slots and counts that are wrong."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from kimi_k3_specdec._native import DeviceFailure
from kimi_k3_specdec.reference import kda

from .bounds import FEW, dot, nearest, to_bf16
from .dial import WHOLE_LAYER, columns, dialled, setting
from .stream import record
from .world import NO_SLOT, Shape, World, as_bytes, assert_close, assert_same

CHUNK = 16


@dataclass
class Expected:
    """What the recurrence must give, float64, and by how much the device may differ."""

    out: Tensor
    """[S, heads, 128], unrounded."""
    out_slack: Tensor
    states: Tensor
    """[R, q, heads, 128 v, 128 k]."""
    state_slack: Tensor
    """[R, q, heads, 128 v]: 2-norm of a value row's difference."""
    null: Tensor
    """bool [R]."""


def expect(world, step, layer, rank, before) -> Expected:
    """`kda_core` in float64 from the device's own projections, with the two roundings that it does not publish.

    Those, the convolution's and f_b's, are the same but where fp32 noise decides a tie. With |k| = 1 and beta <= 1
    the delta rule never lengthens a row's error, so what such flips move adds up over the tokens: of v directly, of k
    by twice its relative error times what it multiplies, of a decay (slope at most 5 / 4 of its argument) by its
    share of the row. Everything else is fp32 arithmetic: 1e-5 of a row's 2-norm (numerics §10).
    """
    tensors, shard = world.weights[rank].layers[layer], world.shard
    requests, heads = world.shape.requests, shard.heads
    parts = kda.split_projections(step.tensors(layer, "proj", rank)[0], shard)
    window, state, null = kda.start_states(kda.KdaState(*before), world.slots(layer), world.accepted[0])
    conv_in, taps = parts.conv_in.unflatten(0, (requests, -1)), tensors["self_attn.conv1d.weight"]
    exact = kda.short_conv(conv_in, window, taps, exact=True)[0]
    magnitude = kda.short_conv(conv_in.abs(), window.abs(), taps.abs(), exact=True)[0]
    conv, conv_moved = nearest(exact, 2.2 * FEW * (magnitude + exact.abs()))
    g1, g1_moved = nearest(*dot(parts.f_a, tensors["self_attn.f_b_proj.weight"]))
    gates = kda.decay_gates(g1, parts.beta, tensors["self_attn.A_log"], tensors["self_attn.dt_bias"], -5.0, exact=True)
    gates = kda.Gates(*(t.unflatten(0, (requests, -1)) for t in gates))
    out, states = kda.recurrence(conv, gates, state, 1e-6, exact=True)
    out[null], states[null] = 0, 0

    by_head = (t.unflatten(-1, (3, heads, -1)) for t in (conv, conv_moved))
    (q, k, v), (q_moved, k_moved, v_moved) = (t.unbind(2) for t in by_head)
    q_flip, k_flip = (m.norm(dim=-1) / x.norm(dim=-1).clamp(min=1e-3) for m, x in ((q_moved, q), (k_moved, k)))
    rate = torch.exp(tensors["self_attn.A_log"].to(torch.float64))[:, None]
    flips = 1.25 * (rate * g1_moved.unflatten(-1, (heads, -1))).amax(-1).unflatten(0, (requests, -1))
    sizes = torch.cat((state.to(torch.float64)[:, None], states), 1).norm(dim=-1)
    size = torch.maximum(sizes[:, :-1], sizes[:, 1:])
    moved = v_moved + 2 * k_flip[..., None] * (v.abs() + size) + (flips[..., None] + 1e-5) * (size + v.abs())
    state_slack = moved.cumsum(1) + 1e-30
    out_slack = 128**-0.5 * (state_slack + (q_flip[..., None] + 1e-5) * size)
    return Expected(out.flatten(0, 1), out_slack.flatten(0, 1), states, state_slack, null)


def check_core(world, step, layer, before) -> None:
    """Gated output and squares in `core`, recurrent states in memory; `before` by rank."""
    for rank in range(world.shape.ranks):
        where = f"of layer {layer}, rank {rank}"
        tensors, shard = world.weights[rank].layers[layer], world.shard
        expected = expect(world, step, layer, rank, before[rank])
        gate = kda.split_projections(step.tensors(layer, "proj", rank)[0], shard).gate.to(torch.float64)
        factor = torch.sigmoid(gate) * tensors["self_attn.o_norm.weight"].to(torch.float64).repeat(shard.heads)
        gated, squares = step.tensors(layer, "core", rank)
        out = expected.out.flatten(1)
        tolerance = to_bf16(out, expected.out_slack.flatten(1)) * factor.abs() + 4 * FEW * (out * factor).abs()
        assert_close(gated, out * factor, tolerance, f"core {where}")
        # The bf16 o that was squared is what is left without the two factors.
        o = (gated.to(torch.float64) / factor).to(torch.bfloat16).to(torch.float64)
        sums = (o * o).unflatten(1, (shard.heads, -1, CHUNK)).sum(-1)
        assert_close(squares, sums, 2 * FEW * sums, f"squares {where}")
        check_states(world, layer, rank, expected)


def check_states(world, layer, rank, expected) -> None:
    """Every row's state in its slot."""
    found = world.states[layer][rank].state.recurrent
    for request, slots in enumerate(world.slots(layer).tolist()):
        for j, slot in enumerate(slots):
            if slot > 0 and not expected.null[request]:
                error = (found[slot].to(torch.float64) - expected.states[request, j]).norm(dim=-1)
                assert_close(error, torch.zeros_like(error), expected.state_slack[request, j], f"state in slot {slot}")


def check_untouched(world, before, after, layer) -> None:
    """Pages of slots that no row stores to keep every byte, and so does what lies around the states on a page."""
    stored = sorted({slot for slot in world.slots(layer).flatten().tolist() if slot > 0})
    others = [slot for slot in range(world.num_slots) if slot not in stored]
    for rank in range(world.shape.ranks):
        name = f"states of layer {layer} {rank}"
        assert torch.equal(before[name][others], after[name][others]), "a slot that nobody was told to store"
        own = world.states[layer][rank].state
        inside = torch.zeros_like(world.states[layer][rank].pages[0]).view(torch.uint8)
        conv = inside.view(torch.bfloat16).as_strided(own.conv.shape[1:], own.conv.stride()[1:])
        conv.view(torch.int16).fill_(-1)
        inside.view(torch.float32).as_strided(own.recurrent.shape[1:], own.recurrent.stride()[1:],
                                              own.recurrent.storage_offset()).view(torch.int32).fill_(-1)
        around = inside == 0
        assert torch.equal(before[name][:, around], after[name][:, around]), "the page around the states"


def test_core_and_states(recorded):
    """Random steps of all layers and shapes, with different accepted counts in one step."""
    for layer in recorded.states:
        check_core(recorded.world, recorded.step, layer, recorded.states[layer])


def test_other_slots_keep_their_bytes(recorded):
    """Pages, slot 0 and what lies between states are as they were."""
    for layer in recorded.states:
        check_untouched(recorded.world, recorded.before, recorded.after, layer)


@pytest.mark.parametrize("q", [4, 8])
def test_every_accepted_count(q):
    """Counts q, q - 1, ... in one step: each moves the window, and its start state is also a destination."""
    world = World(Shape(2, 16 // q, q), seed=q)
    for first in range(q, 0, -world.shape.requests):
        world.accept([max(1, first - i) for i in range(world.shape.requests)])
        recorded = record(world)
        check_core(world, recorded.step, 1, recorded.states[1])
        check_untouched(world, recorded.before, recorded.after, 1)


def test_all_rows_of_a_request_may_share_a_slot():
    """Start slot == every destination: read before anything is stored, the last row's state stays."""
    world = World(Shape(2, 2, 4))
    world.set_slots(1, 1, [3, 3, 3, 3])
    world.set_slots(1, 0, [5, 6, 7, 8])
    world.accept([2, 3])
    recorded = record(world)
    expected = expect(world, recorded.step, 1, 0, recorded.states[1][0])
    error = (world.states[1][0].state.recurrent[3].double() - expected.states[1, 3]).norm(dim=-1)
    assert_close(error, torch.zeros_like(error), expected.state_slack[1, 3], "the last row's state")
    sums = (expected.out**2).unflatten(-1, (-1, CHUNK)).sum(-1)
    # Twice the relative error of one rounding of o, and what flips move.
    slack = (expected.out_slack * (2 * expected.out.abs() + expected.out_slack)).unflatten(-1, (-1, CHUNK)).sum(-1)
    assert_close(recorded.step.tensors(1, "core")[1], sums, 2.0**-6 * sums + slack, "squares")


def run_pair():
    """Two worlds of equal values; the second's convolution states have their entries innermost."""
    worlds = [World(Shape(2, 2, 4), token_innermost=inner) for inner in (False, True)]
    for world in worlds:
        world.accept([2, 4])
    for rank in range(2):
        for name in ("conv", "recurrent"):
            source, target = (getattr(w.states[1][rank].state, name) for w in worlds)
            target.copy_(source)
    return worlds


def test_both_convolution_layouts_give_the_same_bits():
    """Channels innermost (SD) or entries innermost (DS), pages larger than both states."""
    worlds = run_pair()
    assert worlds[0].states[1][0].state.conv.stride()[1:] != worlds[1].states[1][0].state.conv.stride()[1:]
    steps = [record(world) for world in worlds]
    assert_same(steps[0].step.everything(), steps[1].step.everything())
    for rank in range(2):
        for name in ("conv", "recurrent"):
            first, second = (getattr(w.states[1][rank].state, name) for w in worlds)
            assert torch.equal(as_bytes(first), as_bytes(second))
    check_untouched(worlds[1], steps[1].before, steps[1].after, 1)


def test_null_requests_store_nothing_and_leave_the_real_ones_alone():
    """Padding of a FULL graph: zero slots, one accepted token, stale rows; slot 0 is NaN and never read or stored."""
    alone, padded = World(Shape(2, 2, 2), (1, 2)), World(Shape(2, 4, 2), (1, 2))
    real = [2, 3, 6, 7]
    for rank in range(2):
        for memory in ("prefix", "delta", "bank"):
            getattr(padded, memory)[rank][:8] = torch.nan
            getattr(padded, memory)[rank][real] = getattr(alone, memory)[rank][:4]
        for layer in (1, 2):
            own, other = padded.states[layer][rank], alone.states[layer][rank]
            own.pages[1 : alone.num_slots] = other.pages[1:]
    for layer in (1, 2):
        for request, source in ((0, None), (1, 0), (2, None), (3, 1)):
            padded.set_slots(layer, request, [0, 0] if source is None else alone.slots(layer)[source].tolist())
    before = padded.memory()
    expected, found = alone.run(), padded.run()
    assert_same({k: rows[real] for k, rows in found.everything().items()}, expected.everything())
    for layer in (1, 2):
        for rank in range(2):
            gated, squares = found.tensors(layer, "core", rank)
            assert (gated[[0, 1, 4, 5]] == 0).all() and (squares[[0, 1, 4, 5]] == 0).all()
            own, other = padded.states[layer][rank], alone.states[layer][rank]
            assert torch.equal(as_bytes(own.pages[1 : alone.num_slots]), as_bytes(other.pages[1:]))
        check_untouched(padded, before, padded.memory(), layer)


def test_finite_padding_changes_no_bit_either():
    """Its experts enlarge the union: the real rows' experts are computed in another order, to the same bits."""
    alone, padded = World(Shape(2, 1, 4), (1,)), World(Shape(2, 2, 4), (1,))
    for rank in range(2):
        for memory in ("prefix", "delta", "bank"):
            getattr(padded, memory)[rank][:4] = getattr(alone, memory)[rank][:4]
        padded.states[1][rank].pages[1 : alone.num_slots] = alone.states[1][rank].pages[1:]
    padded.set_slots(1, 0, alone.slots(1)[0].tolist())
    padded.set_slots(1, 1, [0] * 4)
    expected, found = alone.run(), padded.run()
    assert_same({k: rows[:4] for k, rows in found.everything().items()}, expected.everything())


@pytest.mark.parametrize("null", [0, -1, -7])
def test_single_null_slots(null):
    """Each index stands for itself: no store there; a null start gives zeros, the convolution's slot still advances."""
    world = World(Shape(1, 4, 2))
    real = [world.slots(1)[i].tolist() for i in range(4)]
    for request, slots in ((0, [null, real[0][1]]), (1, [real[1][0], null]), (2, [null, null])):
        world.set_slots(1, request, slots)
    # Requests 0 and 1 start from their null column, request 2 has nothing, 3 is whole.
    world.accept([1, 2, 1, 2])
    recorded = record(world)
    gated = recorded.step.tensors(1, "core")[0]
    assert (gated[:6] == 0).all() and (gated[6:] != 0).any()
    conv = kda.split_projections(recorded.step.tensors(1, "proj")[0], world.shard).conv_in
    state, old = world.states[1][0].state, recorded.states[1][0]
    assert torch.equal(state.conv[real[1][0], 2:], conv[2:4]), "request 1's convolution"
    for slot in (real[0][1], real[1][0]):
        assert torch.equal(state.recurrent[slot], old[1][slot]), "a null request stores no recurrent state"
    assert torch.equal(as_bytes(state.conv[real[0][1]]), as_bytes(old[0][real[0][1]]))
    assert torch.equal(recorded.before["states of layer 1 0"][0], recorded.after["states of layer 1 0"][0])


def test_a_null_convolution_slot_has_an_empty_window():
    """Column 0 null, a later start real: slot 0's NaN is not read, the state goes on from the start slot."""
    world = World(Shape(2, 2, 2))
    start = int(world.slots(1)[0, 1])
    world.set_slots(1, 0, [0, start])
    world.accept([2, 1])
    recorded = record(world)
    for rank in range(2):
        assert recorded.step.tensors(1, "core", rank)[0].isfinite().all()
        assert recorded.step.tensors(1, "core", rank)[0][:2].any()
        assert not torch.equal(world.states[1][rank].state.recurrent[start], recorded.states[1][rank][1][start])
    check_untouched(world, recorded.before, recorded.after, 1)


BAD = {"accepted 0": 0, "accepted -1": -1, "accepted q + 1": 5, "accepted huge": 2**31 - 1, "slot at the end": None,
       "last slot of a later row": None}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("ranks", [1, 2])
def test_metadata_out_of_range_is_a_failure_that_names_the_request(what, ranks):
    """The step ends, the record has request and value, nothing of the request is stored."""
    world = World(Shape(ranks, 3, 4))
    bad = BAD[what]
    if bad is not None:
        world.accept([2, bad, 1])
    elif what == "slot at the end":
        bad = world.num_slots
        world.set_slots(1, 1, [bad, 1, 2, 3])
    else:
        bad = NO_SLOT
        world.set_slots(1, 1, [*world.slots(1)[1, :3].tolist(), bad])
    owned = [slot for slot in world.slots(1)[1].tolist() if slot < world.num_slots]
    before = world.memory()
    world.launch((1, 1))
    with pytest.raises(DeviceFailure) as failure:
        world.engine.synchronize()
    culprits = [r for r in failure.value.records if "out of range" in r]
    assert culprits and failure.value.records[0] == culprits[0], "the first record is the culprit's"
    for record_ in culprits:
        assert "stage kda" in record_ and f"request 1: state slot or accepted count {bad} is out of range" in record_
    assert all("out of range" in r or "had failed" in r for r in failure.value.records), failure.value.records
    for name, bits in world.memory().items():
        if name.startswith("states"):
            assert torch.equal(bits[owned], before[name][owned]), "the request's states"
            assert torch.equal(bits[0], before[name][0])


def test_gates_and_betas_at_their_ends():
    """beta 0 and 1, decay e^-5 and 1, q and k of zero: no update, forgetting at once, keeping everything."""
    shape = Shape(1, 2, 2)
    values = torch.zeros(4, 1168 + 1024)
    p = 512
    g = torch.Generator().manual_seed(3)
    values[:, : 4 * p] = torch.randn(4, 4 * p, generator=g).to(torch.bfloat16)
    values[:, : 2 * p] *= torch.tensor([1.0, 0.0, 2.0**20, 2.0**-20])[:, None]
    values[:, 4 * p : 4 * p + 128] = torch.tensor([2.0**20, 1.0, -(2.0**20), 0.0])[:, None]
    values[:, 4 * p + 128 : 4 * p + 132] = torch.tensor([-(2.0**20), 2.0**20, 1.0, 0.0])
    weight = columns(values)[: 4 * p + 144]
    taps = torch.tensor([0.0, 0.0, 0.0, 1.0]).expand(3 * p, 4)
    world = dialled(shape, setting(in_proj_qkvgfab=weight, conv1d=taps, A_log=torch.tensor([-50.0, 0.0, 3.0, 50.0])),
                    WHOLE_LAYER)
    recorded = record(world, has_delta=False)
    assert recorded.step.tensors(1, "core")[0].isfinite().all()
    check_core(world, recorded.step, 1, recorded.states[1])


def test_huge_and_subnormal_states():
    """States of 2**57 and 2**-123 go through the recurrence as any other."""
    world = World(Shape(1, 2, 2))
    slots = world.slots(1)
    recurrent = world.states[1][0].state.recurrent
    recurrent[int(slots[0, 0])] *= 2.0**60
    recurrent[int(slots[1, 0])] *= 2.0**-120
    recorded = record(world)
    check_core(world, recorded.step, 1, recorded.states[1])
