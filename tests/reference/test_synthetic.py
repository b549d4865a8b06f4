"""Synthetic layers: the loaded shapes, sane sizes, experts that exist only when picked."""

import pytest
import torch

from kimi_k3_specdec.reference.geometry import K3, NANO
from kimi_k3_specdec.reference.kda import KdaState
from kimi_k3_specdec.reference.mla import LatentCache
from kimi_k3_specdec.reference.model import Model
from kimi_k3_specdec.reference.state import ModelState, Stream, VerifyStep
from kimi_k3_specdec.reference.synthetic import synthetic_layers
from kimi_k3_specdec.reference.weights import expert_mx, layer_specs


@pytest.mark.parametrize("layer", [2, 3])
def test_a_layer_runs_and_its_values_are_of_order_one(layer, rng):
    """KDA and MLA."""
    weights = synthetic_layers(NANO, 2, [layer], seed=5)
    for w in weights:
        found = {n: (t.dtype, tuple(t.shape)) for n, t in w.layers[layer].items()}
        assert found == layer_specs(NANO, 2, layer)

    def bf16(*shape):
        return torch.randn(shape, generator=rng).to(torch.bfloat16)

    stages = {}
    model = Model(weights, lambda layer, stage, value: stages.__setitem__(stage, value))
    state = ModelState(
        {layer: [KdaState.allocate(NANO.shard(2), 5, 2) for _ in range(2)]}, {layer: LatentCache.allocate(NANO, 8)}
    )
    stream = Stream(bf16(4, 256), bf16(4, 2, 256), bf16(4, 256))
    slots = torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)
    step = VerifyStep(slots, torch.ones(2, dtype=torch.int32), [torch.arange(4), 4 + torch.arange(4)])
    model.run_layers(stream, step, state, [layer])
    assert 0.01 < stream.delta.float().std() < 10
    assert 0.1 < stages["expert_hidden"][0].hidden.std() < 20
    assert 0.5 < stages["router_logits"].std() < 4


def test_replicated_tensors_are_shared_and_sharded_ones_differ():
    """As loading would have it."""
    first, second = (w.layers[2] for w in synthetic_layers(NANO, 2, [2], seed=5))
    assert first["mlp.gate.weight"] is second["mlp.gate.weight"]
    assert not first["self_attn.o_proj.weight"].equal(second["self_attn.o_proj.weight"])
    name = "self_attn.in_proj_qkvgfab.weight"
    assert first[name][1024:1152].equal(second[name][1024:1152]) and not first[name][1154:].any()
    assert not first[name][:1024].equal(second[name][:1024])


def test_experts_are_made_on_demand_and_alike_in_any_order():
    """Each has its own seed."""
    early = synthetic_layers(NANO, 2, [2], seed=5, experts=(3, 7))
    late = synthetic_layers(NANO, 2, [2], seed=5)
    for rank in range(2):
        for expert in (7, 3):
            assert late[rank].w13(2)(expert).equal(early[rank].w13(2)(expert))
            codes = expert_mx(late[rank].layers[2], "w2", expert).codes
            assert codes.shape == (256, 4) and (codes.max() - codes.min()) <= 1
    other = synthetic_layers(NANO, 2, [2], seed=6, experts=(3,))
    assert not other[0].w13(2)(3).equal(early[0].w13(2)(3))


def test_changed_bytes_are_read_again_after_forget():
    """For fault injection."""
    w = synthetic_layers(NANO, 2, [2], seed=5, experts=(3,))[0]
    before = w.w13(2)(3)
    w.layers[2]["mlp.experts.w13_weight"][3] ^= 8
    assert w.w13(2)(3) is before
    w.forget(2, (3,))
    assert w.w13(2)(3).ne(before).any()


def test_k3_shards_have_the_published_shapes():
    """Without making one."""
    specs = layer_specs(K3, 8, 13)
    assert specs["mlp.experts.w13_weight"] == (torch.uint8, (896, 768, 1792))
    assert specs["mlp.experts.w13_weight_scale"] == (torch.uint8, (896 * 768, 112))
    assert specs["mlp.experts.w2_weight"] == (torch.uint8, (896, 3584, 192))
    assert specs["mlp.experts.w2_weight_scale"] == (torch.uint8, (896 * 3584, 16))
    assert specs["self_attn.in_proj_qkvgfab.weight"] == (torch.bfloat16, (6288, 7168))
    assert layer_specs(K3, 8, 15)["self_attn.fused_qkv_a_proj.weight"] == (torch.bfloat16, (3648, 7168))
