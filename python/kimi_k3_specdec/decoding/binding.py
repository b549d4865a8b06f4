"""Which loaded tensor each field of a layer's descriptor means, and where its memory is."""

from __future__ import annotations

from torch import Tensor

from .. import _native
from ..errors import UserError
from ..reference.geometry import Geometry
from ..reference.kda import KdaState
from ..reference.weights import RankWeights
from .slots import group_of

FIELDS = {field: path for field, _, path, _ in _native.LAYER_TENSORS}
"""Descriptor field -> loaded tensor."""

KDA_FIELDS = tuple(field for field, _, _, only_kda in _native.LAYER_TENSORS if only_kda)
"""Those that an MLA layer's half does not have."""

EXPERT_FIELDS = ("w13", "w13_scale", "w2", "w2_scale")
"""Those whose first dimension is the experts: [E, ...] or [E * rows, ...]."""


def layer_tensors(weights: RankWeights, layer: int, specs: dict) -> dict[str, Tensor]:
    """Field -> this rank's tensor as the kernels read it; `specs` are `layer_specs` of the geometry.

    Raises UserError that lists every tensor of another dtype or shape, or that is not contiguous.
    """
    loaded = weights.layers[layer]
    problems, out = [], {}
    is_kda = weights.geometry.layer_kind(layer) == "kda"
    for field, name in FIELDS.items():
        if field in KDA_FIELDS and not is_kda:
            continue
        tensor, (dtype, shape) = loaded.get(name), specs[name]
        if tensor is None:
            problems.append(f"`{name}` is missing")
        elif (tensor.dtype, tuple(tensor.shape)) != (dtype, shape):
            problems.append(f"`{name}` is {tensor.dtype} {list(tensor.shape)}, {dtype} {list(shape)} is needed")
        elif not tensor.is_contiguous():
            problems.append(f"`{name}` is not contiguous")
        else:
            out[field] = tensor
    if problems:
        raise UserError(f"layer {layer}'s weights on rank {weights.rank} do not fit: {'; '.join(problems)}",
                      "pass what the loader makes of this geometry's checkpoint")
    out["router"] = out["router"][weights.router_rows]
    out["latent_down"] = out["latent_down"][weights.latent_rows]
    return out


def layer_numbers(geometry: Geometry, layer: int, state: KdaState | None) -> dict[str, float]:
    """Descriptor numbers by field; `state` of a KDA layer."""
    eps = geometry.rms_eps
    numbers = {"latent_eps": eps, "mlp_seam.eps": eps, "mlp_seam.output_eps": eps}
    if state is None:
        return numbers
    slot, token, channel = state.conv.stride()
    return numbers | {
        "attention_seam.eps": eps,
        "attention_seam.output_eps": eps,
        "conv_slot_stride": slot,
        "conv_token_stride": token,
        "conv_channel_stride": channel,
        "recurrent_slot_stride": state.recurrent.stride(0),
        "num_slots": state.conv.shape[0],
        "state_group": group_of(layer),
        "gate_lower_bound": geometry.gate_lower_bound,
        "o_norm_eps": geometry.o_norm_eps,
    }
