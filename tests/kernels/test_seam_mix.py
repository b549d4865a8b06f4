"""`seam_mix`: softmax over the sources, their mix, its norm from the Gram matrix of the sources."""

import pytest
import torch

from kimi_k3_specdec.decoding.exchanges import PREFIX_SOURCE
from kimi_k3_specdec.reference.geometry import NANO_DEEP

from .bounds import HALF_ULP
from .stream import record
from .world import Shape, World, assert_close

OUTPUTS = {"attention": "input_layernorm", "mlp": "post_attention_layernorm"}
EPS = 1e-5

# Softmax weights: absolute, for logits below 2**5 whose relative error is 2**-20 and an exp2 of 1 ulp (numerics §10).
WEIGHT = 1e-5
# The mix of n products and its factors: 16 roundings of 2**-24, relative to the magnitudes mixed.
MIX = 2.0**-20


def check_mix(seam, recorded) -> None:
    """Weights from the device's own dots, x from its own weights."""
    world, hidden = recorded.world, recorded.world.geometry.hidden
    for rank in range(world.shape.ranks):
        where = f"of layer {seam.layer}'s {seam.half} seam, rank {rank}"
        dots = recorded.step.tensors(seam.layer, f"{seam.half}_dots", rank)[0].to(torch.float64).sum(1)
        squares = dots[:, [PREFIX_SOURCE + 1 + s * (s + 1) // 2 + s for s in seam.lanes]]
        logits = dots[:, seam.lanes] / torch.sqrt(squares / hidden + EPS)
        witness = recorded.step.witness(seam.layer, rank)
        found = witness.attention_weights if seam.half == "attention" else witness.mlp_weights
        p = found[:, seam.lanes].to(torch.float64)
        assert_close(p, torch.softmax(logits, -1), WEIGHT, f"weights {where}")

        v = seam.sources.to(torch.float64)
        mixed, magnitude = (p[..., None] * v).sum(1), (p[..., None] * v.abs()).sum(1)
        square = (mixed * mixed).mean(-1, keepdim=True) + EPS
        weight = world.weights[rank].layers[seam.layer][f"{OUTPUTS[seam.half]}.weight"].to(torch.float64)
        factor = weight / torch.sqrt(square)
        # The mean square is a sum of Gram entries, of both signs; each is off by 2**-21 of its magnitudes, the
        # products of weights and the sum by as much again, and a square root halves relative errors.
        relative = 0.5 * (2 * 2.0**-21 + MIX) * (magnitude**2).mean(-1, keepdim=True) / square
        x = mixed * factor
        tolerance = (HALF_ULP + relative) * x.abs() + MIX * magnitude * factor.abs()
        found = recorded.step.tensors(seam.layer, f"{seam.half}_x", rank)[0]
        assert_close(found, x, tolerance, f"x {where}")


def test_weights_and_x(recorded):
    """Both seams of random steps of all layers and shapes."""
    for seam in recorded.seams:
        check_mix(seam, recorded)


def test_every_rank_mixes_the_same_bits(recorded):
    """x is computed by each rank for itself."""
    for seam in recorded.seams:
        copies = [recorded.step.tensors(seam.layer, f"{seam.half}_x", rank)[0]
                  for rank in range(recorded.world.shape.ranks)]
        assert all(torch.equal(copy.view(torch.int16), copies[0].view(torch.int16)) for copy in copies)


def test_three_and_four_blocks():
    """Layers 12 and 13 of nano-deep."""
    recorded = record(World(Shape(1, 1, 3), (12, 13), geometry=NANO_DEEP), (12, 12), (13, 13))
    for seam in recorded.seams:
        check_mix(seam, recorded)


def logit_vector(value: torch.Tensor):
    """A change of both seams' logit vectors to `value` f32 [H], their norms to 1."""

    def change(tensors, rank):
        for name in ("self_attention_res", "mlp_res"):
            tensors[f"{name}_norm.weight"] = torch.ones(256, dtype=torch.bfloat16)
            tensors[f"{name}_proj.weight"] = value.to(torch.bfloat16).reshape(1, -1)
    return change


@pytest.mark.parametrize("sign", [1, -1])
def test_one_source_takes_everything(sign):
    """Logits of +-16 * 2**10: the others' weights are exactly 0, nothing overflows."""
    direction = torch.zeros(256)
    direction[7] = sign * 2.0**10
    world = World(Shape(2, 2, 2), change=logit_vector(direction))
    unit = torch.zeros(4, 256)
    unit[:, 7] = 16
    world.fill("prefix", unit)
    world.fill("delta", torch.zeros(4, 256))
    for blocks in world.blocks:
        blocks[:, 0] = -blocks[:, 0].abs()
        blocks[:, 0, 7] = -16
    recorded = record(world)
    check_mix(recorded.seams[0], recorded)
    weights = recorded.step.witness(1).attention_weights[:, [0, PREFIX_SOURCE]]
    assert torch.equal(weights, torch.tensor([[0.0, 1.0] if sign > 0 else [1.0, 0.0]]).expand(4, 2))


def test_equal_sources_have_equal_weights():
    """Block and prefix alike: the same bits in both weights."""
    world = World(Shape(2, 2, 2))
    world.fill("delta", torch.zeros(4, 256))
    for prefix, blocks in zip(world.prefix, world.blocks, strict=True):
        blocks[:, 0] = prefix[:4]
    recorded = record(world)
    check_mix(recorded.seams[0], recorded)
    weights = recorded.step.witness(1).attention_weights
    assert torch.equal(weights[:, 0], weights[:, PREFIX_SOURCE])


@pytest.mark.parametrize("scale", [2.0**40, 2.0**-20, 0.0], ids=["huge", "tiny", "zero"])
def test_magnitudes(scale):
    """Mean squares of 2**80, of 2**-40, where eps rules, and of nothing: x is 0 then, not 0/0."""
    world = World(Shape(1, 2, 2))
    world.fill("prefix", world.prefix[0][:4] * scale)
    world.fill("delta", world.delta[0][:4] * scale)
    world.blocks[0][:, 0] *= scale
    recorded = record(world)
    check_mix(recorded.seams[0], recorded)
    if scale == 0:
        assert (recorded.step.tensors(1, "attention_x")[0] == 0).all()


@pytest.mark.parametrize("size", [1.0, 2.0**6, 2.0**12])
def test_sources_that_cancel(size):
    """Prefix = -block, equal logits: the mix is 0 and its mean square, a difference of Gram entries, not negative."""
    world = World(Shape(1, 2, 2), change=logit_vector(torch.zeros(256)))
    world.fill("delta", torch.zeros(4, 256))
    world.fill("prefix", world.prefix[0][:4] * size)
    world.blocks[0][:, 0] = -world.prefix[0][:4]
    recorded = record(world)
    assert (recorded.step.tensors(1, "attention_x")[0] == 0).all()


def test_sources_that_nearly_cancel():
    """Weights a little apart: the rounding of the mean square may exceed it, but not make a NaN of finite rows."""
    direction = torch.zeros(256)
    direction[3] = 2.0**-13
    world = World(Shape(1, 8, 2), change=logit_vector(direction))
    world.fill("delta", torch.zeros(16, 256))
    world.fill("prefix", world.prefix[0][:16] * 2.0**10)
    world.blocks[0][:, 0] = -world.prefix[0][:16]
    recorded = record(world)
    x = recorded.step.tensors(1, "attention_x")[0]
    assert x.isfinite().all(), f"{int(x.isnan().any(1).sum())} of 16 rows are NaN"
