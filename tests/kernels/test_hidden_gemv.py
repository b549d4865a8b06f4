"""`hidden_gemv`: in_proj, and behind the MLP seam router logits, latent and the shared experts' hidden."""

import pytest
import torch

from kimi_k3_specdec.reference.geometry import NANO
from kimi_k3_specdec.reference.situ import situ

from .bounds import FEW, dot, nearest, to_bf16
from .dial import WHOLE_LAYER, columns, dialled, setting
from .world import Shape, World, assert_close, assert_same


def test_projections(recorded):
    """q, k, v, g, f_a and beta from the device's own x; padding rows of the weight give 0."""
    world = recorded.world
    for layer in world.states:
        for rank in range(world.shape.ranks):
            x = recorded.step.tensors(layer, "attention_x", rank)[0]
            exact, slack = dot(x, world.weights[rank].layers[layer]["self_attn.in_proj_qkvgfab.weight"])
            found = recorded.step.tensors(layer, "proj", rank)[0]
            assert_close(found, exact, to_bf16(exact, slack), f"proj of layer {layer}, rank {rank}")
            assert (found[:, world.shard.in_proj_used :] == 0).all(), "padding rows"


def test_logits_and_latent(recorded):
    """Every rank's share, as it arrived in every rank's buffer."""
    world = recorded.world
    for layer in world.layers:
        # The whole matrices: every rank computes its share from its own copy of the same x.
        tensors = world.weights[0].layers[layer]
        x = recorded.step.tensors(layer, "mlp_x")[0]
        logits, logits_slack = dot(x, tensors["mlp.gate.weight"])
        latent, latent_slack = dot(x, tensors["mlp.routed_expert_down_proj.weight"])
        for owner in range(world.shape.ranks):
            where = f"of layer {layer}, rank {owner}'s copy"
            found = recorded.step.tensors(layer, "logits", owner)[0]
            assert_close(found, logits, logits_slack, f"logits {where}")
            found = recorded.step.tensors(layer, "latent", owner)[0]
            assert_close(found, latent, to_bf16(latent, latent_slack), f"latent {where}")


def situ_slack(gate, up, gate_slack, up_slack):
    """Of bf16(situ): 1.1 and 1 bound the factors' slopes; tanh as (1 - e) / (1 + e) and 1 + tanh(g / 2), which cancel,
    are off by `FEW` of 1, times their betas."""
    first = 4 * torch.tanh(gate / 4) * torch.sigmoid(gate)
    second = 25 * torch.tanh(up / 25)
    first_slack = 1.1 * gate_slack + 4 * FEW * (torch.sigmoid(gate) + torch.tanh(gate / 4).abs())
    second_slack = up_slack + 25 * FEW
    return first_slack * second.abs() + second_slack * first.abs() + first_slack * second_slack


def test_shared_hidden(recorded):
    """SiTU of the rounded gate and up, from the device's own x."""
    world = recorded.world
    for layer in world.layers:
        for rank in range(world.shape.ranks):
            x = recorded.step.tensors(layer, "mlp_x", rank)[0]
            y, slack = nearest(*dot(x, world.weights[rank].layers[layer]["mlp.shared_experts.gate_up_proj.weight"]))
            (gate, up), (gate_slack, up_slack) = y.chunk(2, -1), slack.chunk(2, -1)
            expected = situ(gate, up, NANO)
            found = recorded.step.tensors(layer, "shared_hidden", rank)[0]
            tolerance = to_bf16(expected, situ_slack(gate, up, gate_slack, up_slack))
            assert_close(found, expected, tolerance, f"shared hidden of layer {layer}, rank {rank}")


@pytest.mark.parametrize("shape", [Shape(1, 8, 2), Shape(2, 1, 3)], ids=str)
def test_every_weight_row_and_column_is_where_it_belongs(shape):
    """One product a result, of values that all differ from their neighbours: any swap of rows or steps shows."""
    g = torch.Generator().manual_seed(5)
    weight = torch.randn(3000, 256, generator=g).to(torch.bfloat16)
    used = NANO.shard(shape.ranks).in_proj_rows
    world = dialled(shape, setting(in_proj_qkvgfab=lambda rank: weight[rank : rank + used]), WHOLE_LAYER)
    step = world.run(has_delta=False)
    for rank in range(shape.ranks):
        expected = (16 * weight[rank : rank + used, : shape.rows].float()).T
        assert torch.equal(step.tensors(WHOLE_LAYER, "proj", rank)[0].float(), expected)
    world = dialled(shape, setting(gate=weight[:32], routed_expert_down_proj=weight[32:288]))
    step = world.run()
    for owner in range(shape.ranks):
        assert torch.equal(step.tensors(3, "logits", owner)[0], (16 * weight[:32, : shape.rows].float()).T)
        assert torch.equal(step.tensors(3, "latent", owner)[0].float(), (16 * weight[32:288, : shape.rows].float()).T)


EXTREMES = torch.tensor([0.0, 2.0**-100, 1e-3, 0.5, 1.0, 4.0, 12.0, 20.0, 88.0, 200.0, 2.0**60, 2.0**120])


def test_shared_activation_from_nothing_to_saturation():
    """Every gate with every up, both signs: +-inf in exp2's argument must end as 0 or the betas' product, never NaN."""
    values = torch.cat((EXTREMES, -EXTREMES))
    n = len(values)
    gate, up = torch.zeros(4, 512), torch.zeros(4, 512)
    gate[0, : n * 10], up[0, : n * 10] = values.repeat_interleave(10), values[:10].repeat(n)
    gate[1, : n * 14], up[1, : n * 14] = values.repeat_interleave(14), values[10:].repeat(n)
    world = dialled(Shape(1, 2, 2), setting(gate_up_proj=columns(torch.cat((gate, up), 1))))
    found = world.run().tensors(3, "shared_hidden")[0]
    g, u = (v.to(torch.bfloat16).double() for v in (gate, up))
    expected, zero = situ(g, u, NANO), torch.zeros_like(g)
    assert_close(found, expected, to_bf16(expected, situ_slack(g, u, zero, zero)), "shared hidden")
    assert found.abs().max() == 100


def test_a_nan_row_leaves_the_others_alone():
    """A row of NaN in x is a token column of its own: no other column of any product sees it."""
    clean, poisoned = (World(Shape(2, 4, 2), (3,)) for _ in range(2))
    for prefix in poisoned.prefix:
        prefix[5] = torch.nan
    others = [0, 1, 2, 3, 4, 6, 7]
    steps = [world.run() for world in (clean, poisoned)]
    assert_same(steps[1].everything(), steps[0].everything(), others)
    for region in ("logits", "latent", "shared_hidden"):
        assert steps[1].tensors(3, region)[0][5].isnan().all()
