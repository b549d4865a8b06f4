"""`latent_norm`: the routed latent summed over the ranks in rank order, rounded once, and its squares."""

import pytest
import torch

from kimi_k3_specdec.decoding.exchanges import SLICE
from kimi_k3_specdec.reference.bf16 import all_reduce
from kimi_k3_specdec.reference.geometry import NANO

from .dial import FFN_LAYER, both, dialled, experts, picking, setting
from .test_down import equal_hidden
from .test_expert_up import unit_latent
from .world import Shape, assert_close

EXPERTS, LATENT = NANO.num_experts, NANO.latent

# A square fused with a product, then a butterfly of six sums of positive numbers: 8 roundings of 2**-24.
SQUARES = 8 * 2.0**-24


def check_z(step, layer) -> None:
    """z bit for bit on every rank."""
    for rank in range(step.world.shape.ranks):
        z, squares = step.tensors(layer, "latent_z", rank)
        assert torch.equal(z, all_reduce(list(step.tensors(layer, "latent_out", rank)[0]))), f"z of layer {layer}"
        sums = (z.to(torch.float64) ** 2).unflatten(1, (-1, SLICE)).sum(-1)
        assert_close(squares, sums, SQUARES * sums, f"squares of layer {layer}, rank {rank}")


def test_z_and_squares(recorded):
    """Random steps of all layers and shapes."""
    for layer in recorded.world.layers:
        check_z(recorded.step, layer)


def latent_world(values, ranks=2):
    """A world whose `values` f32 [ranks, latent] are in the proportion of the ranks' partials, every row alike."""
    inter = NANO.moe_intermediate // ranks

    def w2(rank):
        dense = torch.zeros(EXPERTS, LATENT, inter)
        dense[5, :, 0] = values[rank]
        return dense

    picks = [[5, 6, 7, 8]] * 2
    change = both(setting(gate=picking(picks), e_score_correction_bias=torch.zeros(EXPERTS),
                          routed_expert_down_proj=unit_latent(2)),
                  experts(lambda rank: equal_hidden(inter), "w13"), experts(w2, "w2"))
    return dialled(Shape(ranks, 1, 2), change)


@pytest.mark.parametrize("second", [-1.0, 2.0**-8, 1.5 * 2.0**-8, 2.0**-30, 0.0])
def test_two_ranks_cancel_tie_and_vanish(second):
    """1 + 2**-8 of it is a tie of bf16, which goes to even; -1 leaves nothing, squares of 0."""
    first = torch.tensor([1.0, 1.5, -1.0, 3.0]).repeat(LATENT // 4)
    step = latent_world(torch.stack((first, first * 0 + second))).run()
    check_z(step, FFN_LAYER)
    partials = step.tensors(FFN_LAYER, "latent_out")[0]
    assert (partials[0] != 0).all()


@pytest.mark.parametrize("size", [2.0**52, 2.0**-50], ids=["huge", "tiny"])
def test_magnitudes(size):
    """Sums of squares near 2**126 and 2**-100 are still normal numbers."""
    step = latent_world(size * torch.stack((torch.ones(LATENT), 0.5 * torch.ones(LATENT)))).run()
    check_z(step, FFN_LAYER)
    assert step.tensors(FFN_LAYER, "latent_z")[1].isfinite().all()


def test_zeros():
    """Nothing from either rank: squares of 0."""
    step = latent_world(torch.zeros(2, LATENT)).run()
    check_z(step, FFN_LAYER)
    assert (step.tensors(FFN_LAYER, "latent_z")[1] == 0).all()
