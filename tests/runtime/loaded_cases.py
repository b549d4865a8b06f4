"""The changes of a served model and of its states on which our guards are compared with vLLM's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from .loaded import ABSENT, BF16, BYTES, COMMON, F32, KDA, Case, Named, New, Strided, tensor

HALF = torch.float16
SLOTS, CHANNELS, HEADS, DIM, NUM_SPEC = 8, 4608, 12, 128, 7
ENTRIES = 3 + NUM_SPEC
PAGE = 1 << 20
"""Bytes of a slot's page."""

LOADED = "kernels load 16 bytes at a time: a multiple is needed"
AT = "layers.2"
EXPERTS = f"{AT}.mlp.experts.routed_experts"
VIEWED = ("self_attn.conv1d.weight", "self_attn.A_log", "self_attn.dt_bias")


def _tensor_cases() -> dict[str, Case]:
    cases = {}
    for path, (dtype, shape) in (COMMON | KDA).items():
        if path.startswith("mlp.experts."):
            continue
        cases[f"{path} other shape"] = Case({f"{AT}.{path}": New(dtype, (*shape[:-1], 4 * shape[-1]))})
        cases[f"{path} other type"] = Case({f"{AT}.{path}": New(HALF, shape)})
        cases[f"{path} strided"] = Case({f"{AT}.{path}": Strided(dtype, shape)})
        if path not in VIEWED:  # vLLM's guards cannot look at those
            cases[f"{path} missing"] = Case({f"{AT}.{path}": None})
    return cases


def _expert_cases() -> dict[str, Case]:
    cases = {}
    for name in ("w13_weight", "w13_weight_scale", "w2_weight", "w2_weight_scale"):
        dtype, shape = COMMON[f"mlp.experts.{name}"]
        shuffled = (f"layer 2 {name}: not marked is_shuffled, kernels read AITER's shuffled layout",)
        marks = () if name.endswith("scale") else shuffled
        needed = f"kernel reads contiguous {shape} {dtype}"
        cases[f"{name} missing"] = Case({f"{EXPERTS}.{name}": None})
        cases[f"{name} absent"] = Case({f"{EXPERTS}.{name}": ABSENT})
        cases[f"{name} other shape"] = Case(
            {f"{EXPERTS}.{name}": New(dtype, (896, 5))}, (f"layer 2 {name}: (896, 5) {dtype}, {needed}", *marks))
        cases[f"{name} other type"] = Case(
            {f"{EXPERTS}.{name}": New(torch.int8, shape)}, (f"layer 2 {name}: {shape} torch.int8, {needed}", *marks))
        cases[f"{name} as bytes"] = Case({f"{EXPERTS}.{name}": New(BYTES, shape)}, marks)
    return cases


WEIGHTS: Mapping[str, Case] = {
    "served": Case({}),
    "no AttnRes": Case({"config.attn_res_block_size": None}),
    "another rank's layers": Case({"start_layer": 3, "end_layer": 5, f"{AT}.self_attn.o_proj.weight": None}),
    "no latent MoE": Case({f"{AT}.mlp.use_latent_moe": False}),
    "no latent MoE attribute": Case({f"{AT}.mlp.use_latent_moe": ABSENT}),
    "no shared experts": Case({f"{AT}.mlp.shared_experts": None}),
    "scaling factor": Case({f"{AT}.mlp.routed_scaling_factor": 2.446}),
    "integer scaling factor": Case({f"{AT}.mlp.routed_scaling_factor": 2}),
    "small scaling factor": Case({f"{AT}.mlp.routed_scaling_factor": 1e-07}),
    "integer scaling factor of one": Case({f"{AT}.mlp.routed_scaling_factor": 1}),
    "another backend": Case({f"{EXPERTS}.quant_method.mxfp4_backend": Named("TRITON")}),
    "another activation": Case({f"{EXPERTS}.quant_method.is_k3_situ_aiter": False}),
    "no quantisation": Case({f"{EXPERTS}.quant_method": None}),
    "no backend attribute": Case({f"{EXPERTS}.quant_method.mxfp4_backend": ABSENT}),
    "KDA heads": Case({f"{AT}.self_attn.local_num_heads": 96}),
    "KDA head dim": Case({f"{AT}.self_attn.head_dim": 64}),
    "KDA conv size": Case({f"{AT}.self_attn.conv_size": 3}),
    "whole up projection": Case({f"{AT}.mlp.routed_output_transform.row_sharded": False,
                                 f"{AT}.mlp.routed_expert_up_proj.weight": New(BF16, (7168, 3584))}),
    "shard taken for the whole": Case({f"{AT}.mlp.routed_output_transform": None}),
    "many at once": Case(
        {
            "layers.1.mlp.routed_scaling_factor": 2.5,
            "layers.1.mlp.gate.weight": Strided(BF16, (896, 7168)),
            "layers.1.input_layernorm.weight": New(F32, (7168,)),
            "layers.3.mlp.shared_experts": None,
            "layers.7.self_attn.o_proj.weight": None,
            "layers.12.mlp.experts.routed_experts.w2_weight": None,
            "layers.12.self_attn.conv_size": 5,
            "layers.12.self_attention_res_norm.variance_epsilon": 0.0,
        },
        ("layer 12 self_attention_res_norm: epsilon 0.0, kernels need a finite one above 0",),
    ),
    "hidden behind the backend": Case(
        {f"{EXPERTS}.quant_method.mxfp4_backend": Named("TRITON"), f"{AT}.self_attn.o_proj.weight": None},
        ("layer 2 o_proj: missing",),
    ),
    "address": Case({f"{AT}.self_attn.o_proj.weight": New(BF16, (7168, 1536), 8)},
                    (f"layer 2 o_proj: address {{}}, {LOADED}",)),
    "epsilon": Case({f"{AT}.mlp.routed_expert_norm.variance_epsilon": float("nan")},
                    ("layer 2 latent norm: epsilon nan, kernels need a finite one above 0",)),
    "no lower bound": Case({f"{AT}.self_attn.gate_lower_bound": None},
                           ("layer 2: gate_lower_bound None, kernels need a finite one below 0",)),
    "block out of turn": Case(
        {"layers.12.block_write_idx": 0},
        ("layer 12: AttnRes blocks 1 before it and 0 written, kernels hold 8 and write the next",)),
    "top-k": Case({"config.num_experts_per_token": 8}, ("model: num_experts_per_token 8 (kernels are built for 16)",)),
    "SiTU beta": Case({"config.activation_situ_beta": 3.5},
                      ("model: activation_situ_beta 3.5 (kernels are built for 4.0)",)),
    **_tensor_cases(),
    **_expert_cases(),
}
"""Each is a change of layer 2, a KDA layer, unless it says otherwise. `{}` stands for an address."""

OURS: Mapping[str, Case] = {
    "no conv1d": Case({f"{AT}.self_attn.conv1d": ABSENT}, ("layer 2 conv1d: missing",)),
    "no gate": Case({f"{AT}.mlp.gate": ABSENT}, ("layer 2 gate: missing", "layer 2 gate bias: missing")),
    "no dt_bias": Case({f"{AT}.self_attn.dt_bias": None}, ("layer 2 dt_bias: missing",)),
    "no scaling factor": Case({f"{AT}.mlp.routed_scaling_factor": ABSENT}, ("layer 2: routed_scaling_factor None",)),
    "no heads": Case({f"{AT}.self_attn.local_num_heads": ABSENT}, ("layer 2: KDA heads/head_dim/conv_size",)),
    "no such view": Case({f"{AT}.self_attn.conv1d.weight": New(F32, (4607, 3))},
                         ("layer 2 conv1d: (4607, 3) torch.float32, kernel reads contiguous (4608, 4) torch.float32",)),
}
"""Where vLLM's guards end in an AttributeError or RuntimeError."""

States = tuple[torch.Tensor, torch.Tensor]


def states(slots: int = SLOTS, *, layout: str = "SD", entries: int = ENTRIES) -> States:
    """A KDA layer's states on pages as vLLM lays them out: conv [slots, channels, entries], a view, and recurrent."""
    pages = tensor(BYTES, (slots, PAGE))
    token, channel = (CHANNELS, 1) if layout == "SD" else (1, entries)
    conv = pages.view(BF16).as_strided((slots, CHANNELS, entries), (PAGE // 2, channel, token))
    start = CHANNELS * (entries + 6) * 2
    recurrent = pages.view(F32).as_strided(
        (slots, HEADS, DIM, DIM), (PAGE // 4, DIM * DIM, DIM, 1), start // 4)
    return conv, recurrent


StatesCase = tuple[Callable[[], States], tuple[str, ...]]
"""Makes the states; what we say besides what vLLM says."""


def _recurrent(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], States]:
    conv, recurrent = states()
    return lambda: (conv, change(recurrent))


def _conv(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[], States]:
    conv, recurrent = states()
    return lambda: (change(conv), recurrent)


NAME = "model.layers.1.self_attn"
STATES: Mapping[str, StatesCase] = {
    "SD": (states, ()),
    "DS": (lambda: states(layout="DS"), ()),
    "float32 conv state": (_conv(lambda conv: tensor(F32, tuple(conv.shape))), ()),
    "bf16 recurrent state": (_recurrent(lambda state: tensor(BF16, tuple(state.shape))), ()),
    "keys and values exchanged": (_recurrent(lambda state: state.transpose(-1, -2)), ()),
    "gap between heads": (
        _recurrent(lambda state: tensor(F32, (SLOTS, HEADS, 2 * DIM, DIM))[:, :, :DIM]), ()),
    "whole model's heads": (
        _recurrent(lambda _: tensor(F32, (SLOTS, 96, DIM, DIM))),
        (f"{NAME}: recurrent state (8, 96, 128, 128), kernels read (slots, 12, 128, 128)",)),
    "flat heads": (
        _recurrent(lambda _: tensor(F32, (SLOTS, HEADS, DIM * DIM))),
        (f"{NAME}: recurrent state (8, 12, 16384), kernels read (slots, 12, 128, 128)",)),
    "layouts confused": (
        _conv(lambda conv: conv.transpose(-1, -2)),
        (f"{NAME}: conv state (8, 10, 4608), kernels read (slots, 4608, entries)",)),
    "room for fewer drafts": (
        lambda: states(entries=6), (f"{NAME}: 6 conv state entries, 10 needed at 7 speculative tokens",)),
    "fewer slots of one": (
        _conv(lambda conv: conv[:5]), (f"{NAME}: 5 slots of conv state and 8 of recurrent state",)),
    "one slot": (lambda: states(slots=1), ()),
    "expanded": (
        _conv(lambda conv: conv[:1].expand(SLOTS, -1, -1)),
        (f"{NAME}: conv state overlaps itself: shape (8, 4608, 10), strides (0, 1, 4608)",)),
    "misaligned": (
        _recurrent(lambda _: tensor(F32, (SLOTS, HEADS, DIM, DIM), 8)),
        (f"{NAME}: recurrent state address {{}}, {LOADED}",)),
    "misaligned slots": (
        _recurrent(lambda _: tensor(F32, (SLOTS, HEADS * DIM * DIM + 2))[:, :-2].unflatten(1, (HEADS, DIM, DIM))),
        (f"{NAME}: recurrent state stride 196610 a slot, kernels load 16 bytes at a time: a multiple of 4 elements",)),
}
