"""What only our guards look at, and what becomes of a model that they accept: descriptors with the right addresses."""

from __future__ import annotations

import struct
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kimi_k3_specdec import _native
from kimi_k3_specdec.reference.geometry import NANO
from kimi_k3_specdec.reference.weights import layer_specs
from kimi_k3_specdec.runtime import guards, layers

from . import loaded, loaded_cases

SERVED = tuple(range(1, loaded.NUM_LAYERS))
WHOLE = [layer for layer in SERVED if layer + 1 not in loaded.FULL_ATTENTION]


@pytest.fixture(autouse=True)
def _no_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VLLM_ROCM_USE_AITER_MOE_SITUV2", "VLLM_SSM_CONV_STATE_LAYOUT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", loaded_cases.OURS)
def test_missing_attributes_are_reasons(name: str) -> None:
    """Where vLLM's guards end in an exception."""
    case = loaded_cases.OURS[name]
    assert guards.weight_reasons(case.apply(loaded.model())) == list(case.ours)


@pytest.mark.parametrize("switch", ["a8w4", "a16w4", "0", "A8W4", "fp8"])
def test_other_activations_are_refused_by_name(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's switch counts where vLLM's ops are not there to ask."""
    monkeypatch.setenv("VLLM_ROCM_USE_AITER_MOE_SITUV2", switch)
    named = {"0": "a16w4"}.get(switch, switch.lower())
    expected = [f"layer {layer}: SiTU activation {named} (kernels read the a4w4 layout)" for layer in SERVED]
    assert guards.weight_reasons(loaded.model()) == expected


@pytest.mark.parametrize("switch", ["auto", "a4w4", "1"])
def test_our_activation_is_served(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By each of its names."""
    monkeypatch.setenv("VLLM_ROCM_USE_AITER_MOE_SITUV2", switch)
    assert guards.weight_reasons(loaded.model()) == []


def test_interleaved_rows_are_refused_by_the_loaded_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's ops say how the weights were shuffled, whatever the environment says now."""
    ops = SimpleNamespace(get_fused_moe_situv2_activation=lambda: "a8w4",
                          is_fused_moe_situv2_gate_up_interleaved=lambda: True)
    monkeypatch.setitem(sys.modules, "vllm._aiter_ops", SimpleNamespace(rocm_aiter_ops=ops))
    monkeypatch.setenv("VLLM_ROCM_USE_AITER_MOE_SITUV2", "a4w4")
    model = loaded.model()
    model.start_layer = 12
    assert guards.weight_reasons(model) == [
        "layer 12: SiTU activation a8w4 (kernels read the a4w4 layout)",
        "layer 12 w13_weight: gate and up rows interleaved, kernels read gate rows, then up rows (a4w4 layout)",
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=4), st.booleans())
def test_strided_means_what_torch_means(dimensions: list[tuple[int, int]], dense: bool) -> None:
    """The word stands in a message where torch says that a tensor is not contiguous, and nowhere else."""
    shape = tuple(size for size, _ in dimensions)
    tensor = torch.empty(200, dtype=torch.bfloat16).as_strided(shape, tuple(stride for _, stride in dimensions))
    tensor = tensor.contiguous() if dense else tensor
    model = loaded.model()
    model.start_layer, model.layers[12].self_attn.o_proj.weight = 12, tensor
    (reason,) = guards.weight_reasons(model)
    found = f"{shape} torch.bfloat16{'' if tensor.is_contiguous() else ' strided'}"
    assert reason == f"layer 12 o_proj: {found}, kernel reads contiguous (7168, 1536) torch.bfloat16"


def nano_model(ranks: int) -> SimpleNamespace:
    """Nano's layers, with the shapes that the reference loads."""
    mla = tuple(layer + 1 for layer in range(NANO.num_layers) if NANO.layer_kind(layer) == "mla")
    text = loaded.config(NANO.num_layers, mla, 4, hidden_size=256, num_experts=32, num_experts_per_token=4)
    made: dict[int, Any] = {}
    for layer in range(1, NANO.num_layers):
        is_kda = NANO.layer_kind(layer) == "kda"
        specs = {path: spec for path, spec in layer_specs(NANO, ranks, layer).items() if "mla_attn" not in path}
        made[layer] = loaded.layer(layer, specs, is_kda=is_kda, heads=4 // ranks, head_dim=128,
                                   backend=loaded.Backend.__getitem__, block=4)
    return SimpleNamespace(config=text, layers=made, start_layer=0, end_layer=NANO.num_layers)


@pytest.mark.parametrize("ranks", [1, 2])
def test_nano_is_served_by_its_own_shapes(ranks: int) -> None:
    """The geometry decides, not a table of Kimi-K3."""
    model = nano_model(ranks)
    assert guards.weight_reasons(model, geometry="nano", ranks=ranks) == []
    assert len(guards.weight_reasons(model, geometry="nano", ranks=3 - ranks)) > len(model.layers)
    with pytest.raises(_native.Refused, match="unknown geometry"):
        guards.weight_reasons(model, geometry="pico", ranks=ranks)


def bound(rank: int = 0, model: SimpleNamespace | None = None) -> _native.CheckedLayers:
    """Every layer of a model with states; groups in turns."""
    model = model or loaded.model()
    states = loaded_cases.states()
    caches = {name: states for name in layers.kda_names(model).values()}
    groups = {name: layer % 3 for layer, name in layers.kda_names(model).items()}
    return guards.bind(guards.check_model(model, rank), model, caches, loaded_cases.NUM_SPEC, groups)


def words(checked: _native.CheckedLayers, layer: int) -> tuple[int, ...]:
    """A layer's descriptor as 64-bit words."""
    content, count = checked.descriptors_bytes(), len(checked.layers)
    size = len(content) // count
    at = checked.layers.index(layer) * size
    return struct.unpack(f"<{size // 8}Q", content[at : at + size])


def test_a_served_model_becomes_descriptors() -> None:
    """Addresses are the tensors', those of this rank's rows where every rank loads all."""
    model = loaded.model()
    base = loaded.pool().data_ptr()
    attention = model.layers[2].self_attn
    attention.f_b_proj.weight = loaded.tensor(torch.bfloat16, (1536, 128), 4096)
    model.layers[2].mlp.gate.weight = loaded.tensor(torch.bfloat16, (896, 7168), 1 << 20)
    for rank in (0, 5):
        checked = bound(rank, model)
        assert checked.layers == list(SERVED)
        found = words(checked, 2)
        assert base + 4096 in found
        assert base + (1 << 20) + rank * 112 * 7168 * 2 in found
        assert base + rank * 448 * 7168 * 2 in found, "latent down"
    assert loaded_cases.states()[1].data_ptr() in words(bound(), 2)
    assert loaded_cases.states()[1].data_ptr() not in words(bound(), 3), "an MLA layer's half has no states"


def test_fingerprints_tell_what_moved() -> None:
    """Equal for the same tensors, another one when one of them lies elsewhere."""
    before = bound().fingerprint
    assert bound().fingerprint == before
    moved = loaded.model()
    moved.layers[12].mlp.experts.routed_experts.w2_weight_scale = loaded.tensor(loaded.E8M0, (896 * 3584, 16), 4)
    assert bound(model=moved).fingerprint != before
    assert _native.fingerprint([1, 2]) != _native.fingerprint([2, 1])


def test_what_is_refused_becomes_no_descriptor() -> None:
    """Neither weights nor states, nor a KDA layer without either."""
    model = loaded.model()
    model.layers[7].self_attn.o_proj.weight = None
    with pytest.raises(_native.Refused, match="^layer 7 o_proj: missing$"):
        guards.check_model(model, 0)
    served = loaded.model()
    checked = guards.check_model(served, 0)
    names = layers.kda_names(served)
    states = {name: loaded_cases.states(entries=6) for name in names.values()}
    with pytest.raises(_native.Refused, match="^model.layers.1.self_attn: 6 conv state entries, 10 needed"):
        guards.bind(checked, served, states, 7, dict.fromkeys(names.values(), 0))
    with pytest.raises(_native.Refused, match="layer 1 cannot be bound: no address `conv_state`"):
        guards.bind(checked, served, {}, 7, {})
    with pytest.raises(_native.Refused, match="rank 8 of 8"):
        guards.check_model(served, 8)


@pytest.mark.parametrize("layout", ["SD", "DS"])
def test_states_are_viewed_alike_in_both_layouts(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM stores [slots, entries, channels] (SD) or [slots, channels, entries] (DS)."""
    monkeypatch.setenv("VLLM_SSM_CONV_STATE_LAYOUT", layout)
    model = loaded.model()
    conv, recurrent = loaded_cases.states(layout=layout)
    for layer in WHOLE:
        stored = conv if layout == "DS" else conv.transpose(1, 2)
        model.layers[layer].self_attn.kv_cache = (stored, recurrent)
    del model.layers[5].self_attn.kv_cache
    caches = layers.kda_caches(model)
    assert list(caches) == [f"model.layers.{layer}.self_attn" for layer in WHOLE if layer != 5]
    assert guards.cache_reasons(caches, num_spec=7) == []
    monkeypatch.setenv("VLLM_SSM_CONV_STATE_LAYOUT", "SD" if layout == "DS" else "DS")
    confused = guards.cache_reasons(layers.kda_caches(model), num_spec=7)
    assert confused[0].endswith("conv state (8, 10, 4608), kernels read (slots, 4608, entries)")


def test_state_groups_take_views_of_a_block_table() -> None:
    """Rows may be longer than a request's; anything else is refused, every reason at once."""
    table, counts = torch.zeros(8, 40, dtype=torch.int32), torch.ones(8, dtype=torch.int32)
    group = guards.state_group("kda", 2, 4, table[2:, 3:9], counts)
    assert group == (table.data_ptr() + (2 * 40 + 3) * 4, 40, counts.data_ptr())
    assert guards.state_group("kda", 1, 4, table[2:, 3:9], counts) == group, "the same memory, for one request less"
    assert guards.state_group("kda", 1, 4, table[2:3, 3:9], counts)[1] == 4, "one row has no stride of its own"
    with pytest.raises(_native.Refused) as refused:
        guards.state_group("kda", 2, 4, table.T, counts.to(torch.int64)[:1])
    assert str(refused.value) == (
        "kda: spec_state_indices_tensor stride 1 a row, kernels need 4 to 4294967295; "
        "kda: spec_state_indices_tensor stride 40 a column, kernels need 1; "
        "kda: num_accepted_tokens torch.int64, kernels read torch.int32; "
        "kda: num_accepted_tokens (1,), (2,) or more needed")
    with pytest.raises(_native.Refused, match=r"spec_state_indices_tensor \(1, 4\), \(2, 4\) or more needed"):
        guards.state_group("kda", 2, 4, table[:1, :4], counts)
    with pytest.raises(_native.Refused, match="no spec_state_indices_tensor"):
        guards.state_group("kda", 2, 4, None, counts)


def test_states_that_are_not_there_are_left_out() -> None:
    """Before a KV cache is bound, and for attributes that a layer lacks."""
    model = loaded.model()
    assert layers.kda_caches(model) == {}
    del model.layers[1].self_attn.prefix
    model.layers[1].self_attn.kv_cache = (None, torch.empty(0))
    model.layers[2].self_attn.kv_cache = torch.empty(0)
    assert guards.cache_reasons(layers.kda_caches(model)) == [
        "layer 1: a slot's recurrent state must be dense",
        "layer 1: no conv state",
        "layer 1: recurrent state (0,), kernels read (slots, 12, 128, 128)",
    ]
