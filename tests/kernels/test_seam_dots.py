"""`seam_dots`: the prefix takes in the last output, blocks are written, products of the sources are published."""

import pytest
import torch

from kimi_k3_specdec.decoding.exchanges import PREFIX_SOURCE, SEAM_VALUES, SLICE
from kimi_k3_specdec.reference.attn_res import logit_vector
from kimi_k3_specdec.reference.geometry import NANO_DEEP

from .stream import Seam, record
from .world import Shape, World, as_bytes, assert_close, assert_same

NAMES = {"attention": "self_attention_res", "mlp": "mlp_res"}

# A slice's product: one multiplication, one fused addition and a butterfly of six sums, 2**-24 each, relative to the
# magnitudes of the products.
DOTS = 8 * 2.0**-24


def check_dots(seam: Seam, recorded) -> None:
    """All products of a seam on every rank; lanes without a source are 0."""
    rows, n, hidden = seam.sources.shape
    v = seam.sources.to(torch.float64).reshape(rows, n, hidden // SLICE, SLICE).transpose(1, 2)
    tensors = recorded.world.weights[0].layers[seam.layer]
    name = NAMES[seam.half]
    a = logit_vector(tensors[f"{name}_norm.weight"], tensors[f"{name}_proj.weight"], exact=True)
    a = a.reshape(hidden // SLICE, SLICE, 1)
    expected, magnitude = torch.zeros(2, rows, hidden // SLICE, SEAM_VALUES, dtype=torch.float64)
    for out, values, direction in ((expected, v, a), (magnitude, v.abs(), a.abs())):
        products, gram = (values @ direction)[..., 0], values @ values.transpose(2, 3)
        for t, lane in enumerate(seam.lanes):
            out[..., lane] = products[..., t]
            for s, other in enumerate(seam.lanes[: t + 1]):
                out[..., PREFIX_SOURCE + 1 + lane * (lane + 1) // 2 + other] = gram[..., t, s]
    for rank in range(recorded.world.shape.ranks):
        (found,) = recorded.step.tensors(seam.layer, f"{seam.half}_dots", rank)
        assert_close(found, expected, DOTS * magnitude, f"{seam.half} dots of layer {seam.layer}, rank {rank}")


def check_memory(recorded) -> None:
    """Prefix, blocks and delta bit for bit; what is not the step's keeps its bytes."""
    world, rows = recorded.world, recorded.world.shape.rows
    for rank in range(world.shape.ranks):
        assert torch.equal(as_bytes(world.prefix[rank][:rows]), as_bytes(recorded.prefix))
        assert torch.equal(as_bytes(world.blocks[rank]), as_bytes(recorded.blocks)), "the bank"
        for name in ("prefix", "delta", "bank"):
            key = f"{name} {rank}"
            assert torch.equal(recorded.after[key][rows:], recorded.before[key][rows:]), "rows behind the step"
        bank = [recorded.before, recorded.after]
        bank = [m[f"bank {rank}"].view(torch.int16).view(world.bank[rank].shape) for m in bank]
        assert torch.equal(bank[0][:, :, world.geometry.hidden :], bank[1][:, :, world.geometry.hidden :])
        assert torch.equal(bank[0][:, world.geometry.num_blocks :], bank[1][:, world.geometry.num_blocks :])


def test_products_of_all_sources(recorded):
    """Both seams of random steps of all layers and shapes."""
    for seam in recorded.seams:
        check_dots(seam, recorded)


def test_prefix_and_blocks_in_memory(recorded):
    """After all layers, on every rank."""
    check_memory(recorded)


def test_an_mla_half_has_no_attention_seam(recorded):
    """Nor anything else of an attention."""
    for layer in (3, 5):
        for region in ("attention_dots", "attention_x", "proj", "core"):
            assert not recorded.step.stored(layer, region)


def test_without_a_delta_its_memory_is_not_read():
    """NaN there must not show."""
    world = World(Shape(2, 2, 2))
    world.fill("delta", torch.full_like(world.delta[0][:4], torch.nan))
    recorded = record(world, has_delta=False)
    assert not recorded.seams[0].prefix.isnan().any()
    check_dots(recorded.seams[0], recorded)
    check_memory(recorded)


@pytest.mark.parametrize("has_delta", [True, False])
def test_a_block_write_layer_stores_the_updated_prefix_and_restarts_it(has_delta):
    """Layer 4 of nano, with block 1 unwritten before."""
    world = World(Shape(2, 2, 2), (4,))
    old, delta = world.prefix[0][:4].clone(), world.delta[0][:4].clone()
    assert world.blocks[0][:, 1].isnan().all(), "nobody wrote block 1 yet"
    recorded = record(world, has_delta=has_delta)
    stored = (old.float() + delta.float()).to(torch.bfloat16) if has_delta else old
    assert torch.equal(world.blocks[1][:, 1], stored)
    attention, mlp = recorded.seams
    assert (attention.blocks.shape[1], mlp.blocks.shape[1]) == (1, 2), "the new block is a source of the MLP seam only"
    partials = recorded.step.tensors(4, "attention_out")[0].float()
    assert torch.equal(mlp.prefix, (partials[0] + partials[1]).to(torch.bfloat16)), "nothing of the old prefix is left"
    check_dots(attention, recorded)
    check_dots(mlp, recorded)
    check_memory(recorded)


def test_three_and_four_blocks():
    """Layers 12 and 13 of nano-deep."""
    world = World(Shape(1, 1, 3), (12, 13), geometry=NANO_DEEP)
    recorded = record(world, (12, 12), (13, 13))
    assert [seam.blocks.shape[1] for seam in recorded.seams] == [3, 4, 4]
    for seam in recorded.seams:
        check_dots(seam, recorded)
    check_memory(recorded)


@pytest.mark.parametrize("scale", [2.0**40, 2.0**-55, 0.0], ids=["huge", "tiny", "zero"])
def test_magnitudes(scale):
    """Squares of the tiny ones are 2**-110: above the smallest normal number, below every epsilon."""
    world = World(Shape(1, 2, 2))
    world.fill("prefix", world.prefix[0][:4] * scale)
    world.fill("delta", world.delta[0][:4] * scale)
    world.blocks[0][:, 0] *= scale
    recorded = record(world)
    check_dots(recorded.seams[0], recorded)
    check_memory(recorded)


def test_a_poisoned_row_stays_alone():
    """NaN in one row's prefix; all other rows' exchanges and memory keep their bits."""
    clean, poisoned = (World(Shape(2, 2, 2), (1, 2)) for _ in range(2))
    for prefix in poisoned.prefix:
        prefix[1] = torch.nan
    others = [0, 2, 3]
    steps = [world.run() for world in (clean, poisoned)]
    # Of its own request, row 0 comes before it; later rows of a request see its state.
    assert_same(steps[1].everything(), steps[0].everything(), others)
    for rank in range(2):
        assert torch.equal(clean.delta[rank][others], poisoned.delta[rank][others])
        assert poisoned.delta[rank][1].isnan().all()
        picks = steps[1].witness(2, rank).picks
        assert ((picks >= 0) & (picks < 32)).all()
