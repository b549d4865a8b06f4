"""`o_proj`: the gated norm's scale, the output projection pushed to every rank, the convolution state."""

import pytest
import torch

from kimi_k3_specdec.reference import kda

from .bounds import FEW, dot, nearest, to_bf16
from .stream import record
from .world import Shape, World, as_bytes, assert_close

EPS = 1e-5


def check_partials(step, layer, rank, tokens, moved=None) -> None:
    """What `rank` pushed, in every owner's buffer; `tokens` [S, P] may be off by `moved`."""
    world = step.world
    weight = world.weights[rank].layers[layer]["self_attn.o_proj.weight"]
    exact, slack = dot(tokens, weight)
    if moved is not None:
        slack = slack + moved @ weight.to(torch.float64).abs().T
    for owner in range(world.shape.ranks):
        found = step.tensors(layer, "attention_out", owner)[0][rank]
        assert_close(found, exact, to_bf16(exact, slack), f"rank {rank}'s part of layer {layer} at rank {owner}")


def normalised(step, layer, rank):
    """o_proj's input from the device's own `core`, and by how much fp32 noise may move its rounding."""
    gated, squares = (t.to(torch.float64) for t in step.tensors(layer, "core", rank))
    heads = step.world.shard.heads
    scale = 1 / torch.sqrt(squares.sum(-1, keepdim=True) / 128 + EPS)
    exact = (gated.unflatten(1, (heads, -1)) * scale).flatten(1)
    # Eight squares summed, a quotient, a root of 1 ulp and a product: 12 roundings.
    return nearest(exact, 3 * FEW * exact.abs())


def test_partials_of_whole_layers(recorded):
    """From the device's own core and squares."""
    for layer in recorded.world.states:
        for rank in range(recorded.world.shape.ranks):
            check_partials(recorded.step, layer, rank, *normalised(recorded.step, layer, rank))


def test_partials_of_an_mla_half_come_from_memory(recorded):
    """Its input is vLLM's attention output."""
    world = recorded.world
    for layer in (3, 5):
        for rank in range(world.shape.ranks):
            check_partials(recorded.step, layer, rank, world.core[rank][: world.shape.rows])


def test_core_memory_is_not_read_by_a_whole_layer():
    """NaN there must not show."""
    world = World(Shape(2, 1, 2))
    for core in world.core:
        core.fill_(torch.nan)
    assert not world.run().tensors(1, "attention_out")[0].isnan().any()


@pytest.mark.parametrize("scale", [2.0**40, 2.0**-60, 0.0], ids=["huge", "tiny", "zero"])
def test_magnitudes_of_core(scale):
    """Products of 2**40 and 2**-60, and of nothing."""
    world = World(Shape(2, 1, 3), (5,))
    for core in world.core:
        core[:3] *= scale
    step = world.run()
    for rank in range(2):
        check_partials(step, 5, rank, world.core[rank][:3])


def check_conv_states(recorded, layer) -> None:
    """[state[a + 1], state[a + 2], x_0 .. x_{q - 1}], a copy of bytes."""
    world = recorded.world
    q = world.shape.q
    for rank in range(world.shape.ranks):
        proj = recorded.step.tensors(layer, "proj", rank)[0]
        rows = kda.split_projections(proj, world.shard).conv_in.unflatten(0, (-1, q))
        now, old = world.states[layer][rank].state.conv, recorded.states[layer][rank][0]
        stored = world.slots(layer)[:, 0].tolist()
        for request, slot in enumerate(stored):
            first = int(world.accepted[rank][request])
            expected = torch.cat((old[slot, first : first + 2], rows[request]))
            assert torch.equal(as_bytes(now[slot]), as_bytes(expected)), f"request {request} of layer {layer}"
        others = [slot for slot in range(world.num_slots) if slot not in stored]
        assert torch.equal(as_bytes(now[others]), as_bytes(old[others])), "only column 0 is a convolution's slot"


def test_convolution_states(recorded):
    """Random steps of all layers and shapes."""
    for layer in recorded.states:
        check_conv_states(recorded, layer)


@pytest.mark.parametrize("token_innermost", [False, True])
@pytest.mark.parametrize("accepted", [1, 2, 3, 4])
def test_convolution_state_after_each_count(accepted, token_innermost):
    """The two entries that are kept move with the accepted count, in both layouts."""
    world = World(Shape(1, 4, 4), token_innermost=token_innermost)
    world.accept([accepted, 5 - accepted, 1, 4])
    check_conv_states(record(world), 1)


def test_a_row_of_zeros_divides_by_epsilon_only():
    """A null request's core is 0 and stays 0 behind the norm."""
    world = World(Shape(2, 2, 2))
    world.set_slots(1, 0, [0, 0])
    step = world.run()
    for rank in range(2):
        check_partials(step, 1, rank, *normalised(step, 1, rank))
        assert (step.tensors(1, "attention_out")[0][rank][:2] == 0).all()
