"""`down`: the picked experts' down projection, folded in slot order, and the shared experts' down projection."""

import pytest
import torch

from kimi_k3_specdec.reference import moe
from kimi_k3_specdec.reference.geometry import NANO
from kimi_k3_specdec.reference.mx import dequantise

from .bounds import DOT, dot, nearest, to_bf16
from .dial import FFN_LAYER, both, columns, dialled, experts, picking, setting
from .test_expert_up import stored, unit_latent
from .world import Shape, assert_close

EXPERTS, LATENT, TOP_K = NANO.num_experts, NANO.latent, NANO.top_k


def routed_terms(step, layer, rank):
    """Every pick's exact sum float64 [S, top_k, latent], the bound of its fp32 noise, and its weights."""
    witness, world = step.witness(layer, rank), step.world
    hidden = dequantise(stored(step, layer, rank)).to(torch.float64)
    matrix = world.weights[rank].w2(layer)
    pairs = [[(hidden[row, slot], matrix(e).to(torch.float64)) for slot, e in enumerate(picks)]
             for row, picks in enumerate(witness.picks.tolist())]
    acc = torch.stack([torch.stack([h @ w.T for h, w in row]) for row in pairs])
    noise = torch.stack([torch.stack([h.abs() @ w.abs().T for h, w in row]) for row in pairs])
    return acc, noise, witness.pick_weights


def check_latent_out(step, layer) -> None:
    """`y = bf(y + bf(acc * w))` in slot order, the same bits but where fp32 noise moves a term across a tie."""
    for rank in range(step.world.shape.ranks):
        acc, noise, weights = routed_terms(step, layer, rank)
        expected = moe.fold_picks(acc, weights).to(torch.float64)
        # A sum of E2M1 products has a few bits, so that most are exact; a term that may round otherwise moves the
        # fold by as much, and each of the additions behind it by one more rounding, 2**-7 of the sum so far.
        part = acc * weights.to(torch.float64)[..., None]
        _, moved = nearest(part, DOT * noise * weights[..., None] + 2.0**-23 * part.abs())
        unsure = (moved > 0).cumsum(1) > 0
        tolerance = moved.sum(1) + (unsure * part.abs().cumsum(1) * 2.0**-7).sum(1)
        for owner in range(step.world.shape.ranks):
            found = step.tensors(layer, "latent_out", owner)[0][rank]
            assert_close(found, expected, tolerance, f"rank {rank}'s part of layer {layer} at rank {owner}")


def check_shared(step, layer) -> None:
    """The shared part of other ranks' columns; own columns carry `up` too, see `test_up`."""
    world = step.world
    for rank in range(world.shape.ranks):
        hidden = step.tensors(layer, "shared_hidden", rank)[0]
        exact, slack = dot(hidden, world.weights[rank].layers[layer]["mlp.shared_experts.down_proj.weight"])
        foreign = torch.ones(world.geometry.hidden, dtype=torch.bool)
        foreign[world.weights[rank].hidden_columns] = False
        for owner in range(world.shape.ranks):
            found = step.tensors(layer, "output", owner)[0][rank]
            assert_close(found[:, foreign], exact[:, foreign], to_bf16(exact, slack)[:, foreign],
                         f"rank {rank}'s shared part of layer {layer}")


def test_routed_partials(recorded):
    """Random steps of all layers and shapes."""
    for layer in recorded.world.layers:
        check_latent_out(recorded.step, layer)


def test_shared_partials(recorded):
    """Random steps of all layers and shapes."""
    for layer in recorded.world.layers:
        check_shared(recorded.step, layer)


def equal_hidden(inter: int):
    """w13 of every expert with which a latent of 1 gives the same hidden in all columns."""
    dense = torch.zeros(EXPERTS, 2 * inter, LATENT)
    dense[:, :, :4] = 4
    return dense


FOLDED = {"large first": [256.0, 1, -256, 1], "large inside": [1.0, 256, -256, 1], "small first": [1.0, 1, 256, -256],
          "cancelling": [3.0, -3, 0.5, -0.5], "huge": [2.0**100, -(2.0**100), 2.0**60, 2.0**90],
          "tiny": [2.0**-80, 2.0**-90, -(2.0**-80), 0]}


@pytest.mark.parametrize("what", FOLDED)
@pytest.mark.parametrize("ranks", [1, 2])
def test_slot_order_decides_the_roundings(what, ranks):
    """Terms in the proportions of `FOLDED`: a different order, or one rounding less, gives other bits."""
    inter, terms = NANO.moe_intermediate // ranks, torch.tensor(FOLDED[what])

    def w2(rank):
        dense = torch.zeros(EXPERTS, LATENT, inter)
        for slot, expert in enumerate((2, 11, 20, 29)):
            dense[expert, :, 17] = terms[slot]
        return dense

    picks = [[2, 11, 20, 29]] * 4
    change = both(setting(gate=picking(picks), e_score_correction_bias=torch.zeros(EXPERTS),
                          routed_expert_down_proj=unit_latent(4)),
                  experts(lambda rank: equal_hidden(inter), "w13"), experts(w2, "w2"))
    step = dialled(Shape(ranks, 2, 2), change).run()
    check_latent_out(step, FFN_LAYER)
    for rank in range(ranks):
        acc, _, weights = routed_terms(step, FFN_LAYER, rank)
        assert (weights == 0.25).all()
        found = step.tensors(FFN_LAYER, "latent_out")[0][rank]
        assert torch.equal(found, moe.fold_picks(acc, weights)), "products of one term each leave nothing to noise"
        if what == "large first":
            other = moe.fold_picks(acc.flip(1), weights)
            assert not torch.equal(found, other), "this case cannot tell orders apart"


@pytest.mark.parametrize("shape", [Shape(1, 8, 2), Shape(2, 8, 2), Shape(2, 1, 2)], ids=str)
@pytest.mark.parametrize("how", ["same", "different"])
def test_smallest_and_largest_unions(shape, how):
    """A wave takes every 8th expert of the union: none, one, or four."""
    picks = [[3, 16, 17, 28]] * shape.rows
    if how == "different":
        picks = [sorted((row % 8 + 8 * k) % EXPERTS for k in range(TOP_K)) for row in range(shape.rows)]
    step = dialled(shape, setting(gate=picking(picks), e_score_correction_bias=torch.zeros(EXPERTS))).run()
    assert step.witness(FFN_LAYER).picks.tolist() == picks
    check_latent_out(step, FFN_LAYER)


def test_a_zero_row_among_others():
    """Row 2 has no latent: its terms are 0, not what the scale of a missing row makes of garbage."""
    latent = torch.randn(4, LATENT, generator=torch.Generator().manual_seed(8)).to(torch.bfloat16).float()
    latent[2] = 0
    step = dialled(Shape(2, 2, 2), setting(routed_expert_down_proj=columns(latent))).run()
    check_latent_out(step, FFN_LAYER)
    assert (step.tensors(FFN_LAYER, "latent_out")[0][:, 2] == 0).all()
