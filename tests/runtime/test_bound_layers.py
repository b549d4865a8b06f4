"""Layers bound through the guards decode as they should: nano's weights as vLLM holds them, on the emulator."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kimi_k3_specdec import _native
from kimi_k3_specdec.decoding.machine import Machine, load_code_objects
from kimi_k3_specdec.decoding.options import RunOptions
from kimi_k3_specdec.decoding.run import run
from kimi_k3_specdec.decoding.slots import group_of
from kimi_k3_specdec.reference.geometry import NANO
from kimi_k3_specdec.reference.weights import RankWeights, layer_specs
from kimi_k3_specdec.runtime import guards, layers

from . import loaded

OPTIONS = RunOptions(steps=1, requests=2, speculative_tokens=1)


def decoder_layer(weights: RankWeights, layer: int) -> SimpleNamespace:
    """One layer of a rank's weights as vLLM's decoder layer has them."""
    is_kda = weights.geometry.layer_kind(layer) == "kda"
    specs = {path: (tensor.dtype, tuple(tensor.shape)) for path, tensor in weights.layers[layer].items()
             if "mla_attn" not in path}
    made = loaded.layer(layer, specs, is_kda=is_kda, heads=weights.shard.heads, head_dim=128,
                        backend=loaded.Backend.__getitem__, block=weights.geometry.attn_res_block_size)
    for path in specs:
        tensor = weights.layers[layer][path]
        tensor.is_shuffled = True
        loaded.place(made, path.replace("mlp.experts.", "mlp.experts.routed_experts."), tensor)
    return made


def model_of(weights: RankWeights, layer: int) -> SimpleNamespace:
    """A model of which this rank serves that layer only."""
    g = weights.geometry
    text = loaded.config(g.num_layers, tuple(mla + 1 for mla in g.mla_layers), g.attn_res_block_size,
                         num_experts_per_token=g.top_k)
    return SimpleNamespace(config=text, layers={layer: decoder_layer(weights, layer)}, start_layer=layer,
                           end_layer=layer + 1)


def through_guards(reads_as: Callable[[int], int]) -> Callable[..., list]:
    """`Machine._bind`, and then again through the guards, which rewrites all of the descriptor."""
    bind = Machine._bind

    def again(self: Machine, rank: int, layer: int, experts: list[int] | None) -> list:
        sparse = bind(self, rank, layer, experts)
        model = model_of(self.weights[rank], layer)
        geometry = {"geometry": self.geometry.name, "ranks": self.options.ranks}
        if layer in self.pages:
            state = self.pages[layer][rank].state
            model.layers[layer].self_attn.kv_cache = (state.conv, state.recurrent)
        caches = layers.kda_caches(model)
        assert guards.weight_reasons(model, **geometry) == []
        checked = guards.check_model(model, reads_as(rank), **geometry)
        bound = guards.bind(checked, model, caches, self.options.speculative_tokens,
                            dict.fromkeys(caches, group_of(layer)))
        self.engine.bind_layers(rank, bound)
        return sparse

    return again


def test_layers_that_the_guards_bind_decode_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stage of every layer is compared with the reference."""
    monkeypatch.setattr(Machine, "_bind", through_guards(lambda rank: rank))
    outcome = run(OPTIONS, lambda *_: None)
    assert outcome.is_equal and outcome.failure is None, outcome.failure


def test_another_ranks_rows_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that a rank reads are its own: with the other's the run fails."""
    monkeypatch.setattr(Machine, "_bind", through_guards(lambda rank: 1 - rank))
    outcome = run(OPTIONS, lambda *_: None)
    assert not outcome.is_equal and outcome.failure is not None


def test_a_layer_behind_the_engines_geometry_is_refused() -> None:
    """Its descriptor would be written behind the table's end."""
    _, code_object = load_code_objects("nano", 2)
    engine = _native.Unlinked("nano", 2, [code_object]).link()
    text = loaded.config(14, (4, 14), 4, num_experts_per_token=4)
    specs = {path: spec for path, spec in layer_specs(NANO, 2, 3).items() if "mla_attn" not in path}
    half = loaded.layer(13, specs, is_kda=False, heads=2, head_dim=128, backend=loaded.Backend.__getitem__, block=4)
    model = SimpleNamespace(config=text, layers={13: half}, start_layer=13, end_layer=14)
    checked = guards.check_model(model, 0, geometry="nano", ranks=2)
    bound = guards.bind(checked, model, {}, 3, {})
    with pytest.raises(_native.Refused, match="layer 13 does not exist: the engine's geometry has 6 layers"):
        engine.bind_layers(0, bound)
