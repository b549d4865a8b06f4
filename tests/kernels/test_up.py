"""`up`: the normalised latent times this rank's rows, added to the shared part before the only rounding."""

import pytest
import torch

from kimi_k3_specdec.reference.geometry import NANO

from .bounds import FEW, dot, nearest, to_bf16
from .dial import FFN_LAYER, columns, dialled, experts, setting
from .world import Shape, World, assert_close

EPS = 1e-5


def check_own_columns(step, layer) -> None:
    """The columns that a rank owns, in every owner's buffer, from the device's own z and shared hidden."""
    world = step.world
    for rank in range(world.shape.ranks):
        tensors, own = world.weights[rank].layers[layer], world.weights[rank].hidden_columns
        # The shared part is kept as bf16: the same but where fp32 noise decides a tie.
        hidden, down = step.tensors(layer, "shared_hidden", rank)[0], tensors["mlp.shared_experts.down_proj.weight"]
        shared, moved = nearest(*dot(hidden, down[own]))
        z, squares = step.tensors(layer, "latent_z", rank)
        scale = 1 / torch.sqrt(squares.to(torch.float64).sum(-1, keepdim=True) / NANO.latent + EPS)
        zn = z.to(torch.float64) * scale * tensors["mlp.routed_expert_norm.weight"].to(torch.float64)
        # A sum of two slices, a quotient, a root of 1 ulp and two products.
        zn, zn_moved = nearest(zn, 2 * FEW * zn.abs())
        weight = tensors["mlp.routed_expert_up_proj.weight"]
        up, slack = dot(zn, weight)
        slack = slack + zn_moved @ weight.to(torch.float64).abs().T + moved + 2.0**-24 * (shared.abs() + up.abs())
        for owner in range(world.shape.ranks):
            found = step.tensors(layer, "output", owner)[0][rank][:, own]
            assert_close(found, shared + up, to_bf16(shared + up, slack), f"rank {rank}'s columns of layer {layer}")


def test_own_columns(recorded):
    """Random steps of all layers and shapes."""
    for layer in recorded.world.layers:
        check_own_columns(recorded.step, layer)


def no_experts(rank):
    """w2 of zeros: the latent vanishes."""
    return torch.zeros(NANO.num_experts, NANO.latent, NANO.moe_intermediate // 2)


def test_without_a_latent_only_the_shared_part_is_left():
    """z = 0 has no RMS: 0 * rsqrt(eps) is 0, and the shared part passes unchanged."""
    step = dialled(Shape(2, 2, 2), experts(no_experts, "w2")).run()
    check_own_columns(step, FFN_LAYER)
    assert (step.tensors(FFN_LAYER, "latent_z")[0] == 0).all()


def test_without_shared_experts_only_the_latent_is_left():
    """Own columns carry the latent, the others 0."""
    step = dialled(Shape(2, 2, 2), setting(gate_up_proj=torch.zeros(512, 256))).run()
    check_own_columns(step, FFN_LAYER)
    for rank in range(2):
        assert (step.tensors(FFN_LAYER, "shared_hidden", rank)[0] == 0).all()
        foreign = torch.ones(256, dtype=torch.bool)
        foreign[step.world.weights[rank].hidden_columns] = False
        assert (step.tensors(FFN_LAYER, "output")[0][rank][:, foreign] == 0).all()


@pytest.mark.parametrize("weight", [2.0**20, 2.0**-20, 0.0], ids=["large", "small", "zero"])
def test_norm_weights(weight):
    """The latent's norm scales what is added to the shared part: it drowns it, drowns in it, or is not there."""
    step = dialled(Shape(2, 2, 2), setting(routed_expert_norm=torch.full((256,), weight))).run()
    check_own_columns(step, FFN_LAYER)


def test_parts_that_cancel():
    """One rounding: of shared + up, not of two rounded values. The up rows are set to undo the shared part."""
    latent = torch.zeros(2, 256)
    latent[:, 3] = 1.0
    plain = dialled(Shape(2, 1, 2), setting(routed_expert_down_proj=columns(latent)))
    step = plain.run()
    z = step.tensors(FFN_LAYER, "latent_z")[0].to(torch.float64)[0]
    zn = z / torch.sqrt((z * z).mean() + EPS)
    norm = plain.weights[0].layers[FFN_LAYER]["mlp.routed_expert_norm.weight"].to(torch.float64)
    at = int((zn * norm).abs().argmax())

    def up(rank):
        tensors = plain.weights[rank].layers[FFN_LAYER]
        hidden = step.tensors(FFN_LAYER, "shared_hidden", rank)[0]
        own = dot(hidden, tensors["mlp.shared_experts.down_proj.weight"][plain.weights[rank].hidden_columns])[0][0]
        rows = torch.zeros(128, 256)
        rows[:, at] = -own / (zn * norm)[at]
        return rows

    world = dialled(Shape(2, 1, 2), setting(routed_expert_down_proj=columns(latent), routed_expert_up_proj=up))
    cancelled = world.run()
    check_own_columns(cancelled, FFN_LAYER)
    for rank in range(2):
        own = plain.weights[rank].hidden_columns
        left, before = (s.tensors(FFN_LAYER, "output")[0][rank][0, own].abs().max() for s in (cancelled, step))
        assert left < 2.0**-6 * before, "hardly anything is left of row 0"


@pytest.mark.parametrize("shape", [Shape(1, 1, 3), Shape(2, 1, 16)], ids=str)
def test_rows_behind_the_step_are_no_input(shape):
    """Their z and squares are stale: read past the step's rows they would be another step's."""
    world = World(shape, (5,))
    world.run()
    check_own_columns(world.run(), 5)
