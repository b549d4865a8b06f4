"""The refusals that need the loaded model or its bound caches (spec/runtime.md §4). Extraction is `layers`', judgement
Rust's (`specdec-core::guards`): upstream's reasons first, in its words and order, then those that it cannot see.

`geometry` and `ranks` name the build whose shapes are needed; Kimi-K3 on eight ranks unless the emulator runs another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from .. import _native
from . import TP, layers
from .layers import States
from .peer import tp_agree

GEOMETRY = "k3"
WEIGHTS, CACHES = "the loaded weights", "the KV caches"
"""What `agree` names."""


def weight_reasons(model: object, *, geometry: str = GEOMETRY, ranks: int = TP) -> list[str]:
    """Every reason why the kernels cannot read vLLM's loaded `KimiLinearModel` (§4.1, §4.3); empty: they can."""
    return _native.weight_reasons(geometry, ranks, json.dumps(layers.model_facts(model)))


def cache_reasons(caches: Mapping[str, States], *, num_spec: int | None = None, geometry: str = GEOMETRY,
                  ranks: int = TP) -> list[str]:
    """Every reason why the kernels cannot use the KDA states, by layer name (§4.2).

    Convolution states bf16 [slots, channels, entries], views; recurrent states f32 [slots, heads, head_dim, head_dim].
    `num_spec`: drafts of a request, for which the convolution states need 3 + num_spec entries; None: not judged.
    """
    return _native.cache_reasons(geometry, ranks, num_spec, json.dumps(layers.cache_facts(caches)))


def mla_weight_reasons(model: object, *, geometry: str = GEOMETRY, ranks: int = TP) -> list[str]:
    """Every reason why M1 cannot read the served MLA layers (§4.4); only a deployment with M1 asks."""
    return _native.mla_weight_reasons(geometry, ranks, json.dumps(layers.mla_facts(model)))


def mla_cache_reasons(model: object) -> list[str]:
    """Every reason why M1 cannot use the MLA layers' caches, bytes [blocks, block_size, 576] without gaps between."""
    return _native.mla_cache_reasons(json.dumps(layers.mla_facts(model)))


def check_model(model: object, rank: int, *, geometry: str = GEOMETRY, ranks: int = TP) -> _native.CheckedModel:
    """The served layers' weights as `rank` reads them. Raises `Refused` with the reasons of `weight_reasons`."""
    return _native.CheckedModel(geometry, ranks, rank, json.dumps(layers.model_facts(model)))


def bind(checked: _native.CheckedModel, model: object, caches: Mapping[str, States], num_spec: int,
         groups: Mapping[str, int]) -> _native.CheckedLayers:
    """Weights and states of every served layer, for `Engine.bind_layers`.

    `groups`: the index of each KDA layer's group of state slots, by the layer's name (layers of one cache group share
    their metadata, §3.2). Raises `Refused` with the reasons of `cache_reasons`, or for a layer without states or group.
    """
    named = {layer: (name, groups[name]) for layer, name in layers.kda_names(model).items() if name in groups}
    return checked.bind(num_spec, json.dumps(layers.cache_facts(caches)), named)


def state_group(name: str, requests: int, rows_per_request: int, indices: Tensor | None,
                counts: Tensor | None) -> tuple[int, int, int]:
    """One group's step metadata for `Engine.bind_groups`: address and row stride of the state slots, address of counts.

    `indices`: `spec_state_indices_tensor` int32 [>= requests, >= rows_per_request], perhaps a view with longer rows;
    `counts`: `num_accepted_tokens` int32 [>= requests] (spec/numerics.md §8). Raises `Refused` with every reason.
    """
    return _native.state_group(name, requests, rows_per_request, _described(indices), _described(counts))


def _described(tensor: Tensor | None) -> tuple[int, Any, Any, str] | None:
    return None if tensor is None else (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), str(tensor.dtype))


def attempt(check: Callable[[], list[str]]) -> list[str]:
    """The reasons that `check` finds; an error of its own is one too: the other ranks wait in `agree`."""
    try:
        return check()
    except Exception as error:  # whatever it is, the other ranks must hear of it
        return [f"{type(error).__name__}: {error}"]


def agree(reasons: list[str], group: Any, what: str) -> None:
    """Raises ValueError on every rank of `group` if any rank has `reasons` against `what`: a rank that refused alone
    would leave the others waiting inside a kernel (§4.5). Every rank calls it at the same point.
    """
    if tp_agree(not reasons, group):
        return
    why = "; ".join(reasons) or "another TP rank refused"
    raise ValueError(f"Kimi-K3 specialized decode does not support {what}: {why} "
                     "(decode_backend=auto runs vLLM's decode)")
