"""Faults that a check must find: each on one rank, where and when decided by its seed."""

from __future__ import annotations

import random
from dataclasses import replace

import torch

from ..reference.geometry import MX_GROUP, Geometry
from ..reference.layouts import scale_offset, weight_offset
from ..reference.moe import ExpertHidden, Selection
from ..reference.mx import Mx, dequantise
from ..reference.weights import RankWeights, expert_mx
from .machine import Machine
from .options import FaultSpec, RunOptions
from .slots import group_of

KSTEP_INSTRUCTION = "v_mfma_f32_16x16x32_bf16"

LIVE_STEPS = {"kda": 64, "mla": 16}
"""Matrix instructions at the start of a launch that surely work on a tile that exists.

Nano's in_proj gives each workgroup nine tiles of eight K steps, o_proj two; later ones may belong to no tile, and
leaving one of those out is no fault.
"""

PAIRS = {"attention_out": "hidden", "logits": "router", "latent": "latent_rows", "latent_out": "latent",
         "output": "hidden"}
"""Pair region -> what a row of it holds of one rank."""

Trace = dict[tuple[int, str], object]
"""The reference's stages of the first step, by (layer, stage)."""


class Fault:
    """One fault of a run. `words` says what it is, once that is known."""

    def __init__(self, spec: FaultSpec, options: RunOptions, geometry: Geometry) -> None:
        """Draws what the seed decides before the run."""
        self.spec, self.geometry = spec, geometry
        self._random = random.Random(f"{spec.kind} {spec.seed}")
        self._step = min(spec.seed % 2, options.steps - 1)
        self._options = options
        self.words = ""
        self._handle: int | None = None

    def device_weights(self, weights: list[RankWeights], trace: Trace) -> list[RankWeights]:
        """What the device reads in place of `weights`: the same but for one expert's nibble or scale."""
        if self.spec.kind not in ("nibble", "scale"):
            return weights
        layer = self._random.choice([i for i in range(1, self.geometry.num_layers)])
        picks, latent, hidden = (trace[layer, name] for name in ("picks", "quantised_latent", "expert_hidden"))
        assert isinstance(picks, Selection) and isinstance(latent, Mx) and isinstance(hidden, list)
        row, slot = (self._random.randrange(n) for n in picks.ids.shape)
        expert, part = int(picks.ids[row, slot]), self._random.choice(("w13", "w2"))
        own = weights[self.spec.rank]
        rank_hidden = hidden[self.spec.rank]
        assert isinstance(rank_hidden, ExpertHidden)
        x = dequantise(latent)[row] if part == "w13" else dequantise(rank_hidden.quantised)[row, slot]
        tensors = dict(own.layers[layer])
        change = self._flip_nibble if self.spec.kind == "nibble" else self._raise_scale
        change(tensors, layer, part, expert, x)
        changed = replace(own, layers=own.layers | {layer: tensors})
        return [changed if w is own else w for w in weights]

    def _flip_nibble(self, tensors: dict[str, torch.Tensor], layer: int, part: str, expert: int,
                     x: torch.Tensor) -> None:
        """The sign of the nibble that matters most to the first row that picks the expert."""
        weight = dequantise(expert_mx(tensors, part, expert))
        n, k = divmod(int((weight * x).abs().argmax()), weight.shape[1])
        name = f"mlp.experts.{part}_weight"
        packed = tensors[name] = tensors[name].clone()
        at = weight_offset(n, k // 2, packed.shape[2])
        packed[expert].view(-1)[at] ^= 0x8 << 4 * (k % 2)
        self.words = f"the sign bit of {part}[{expert}, {n}, {k}] of layer {layer}"

    def _raise_scale(self, tensors: dict[str, torch.Tensor], layer: int, part: str, expert: int,
                     x: torch.Tensor) -> None:
        """One more for the scale whose group matters most to the first row that picks the expert."""
        weight = dequantise(expert_mx(tensors, part, expert))
        terms = (weight * x).unflatten(1, (-1, MX_GROUP)).sum(-1).abs()
        n, group = divmod(int(terms.argmax()), terms.shape[1])
        name = f"mlp.experts.{part}_weight_scale"
        scales = tensors[name] = tensors[name].clone()
        scales.view(-1)[scale_offset(expert * weight.shape[0] + n, group, scales.shape[1])] += 1
        self.words = f"the scale of {part}[{expert}, {n}], group {group}, of layer {layer}, + 1"

    def described(self, machine: Machine) -> str:
        """What was injected, in words; empty if nothing has struck."""
        waits = self._handle is not None and not machine.engine.fault_fired(self._handle)
        return "" if waits else self.words

    def before_run(self, machine: Machine, step: int, run: tuple[int, int]) -> None:
        """Injects what strikes in this launch."""
        if step != self._step or self.words:
            return
        strike = {"conv-index": self._conv_index, "k-step": self._k_step, "tag": self._tag}.get(self.spec.kind)
        if strike is not None:
            strike(machine, run)

    def _conv_index(self, machine: Machine, run: tuple[int, int]) -> None:
        layer = self._once("layer", [i for i in self.geometry.kda_layers if i > 0])
        if not run[0] <= layer <= run[1]:
            return
        request = self._random.randrange(self._options.requests)
        row = machine.memory[self.spec.rank].state_indices[group_of(layer), request]
        right = int(row[0])
        row[0] = self._random.choice([slot for slot in range(1, machine.plan.num_slots) if slot != right])
        self.words = f"conv state index {int(row[0])} for {right}, request {request}, step {self._step}"

    def _k_step(self, machine: Machine, run: tuple[int, int]) -> None:
        if run[0] != self._first_layer(machine):
            return
        occurrence = self._random.randrange(LIVE_STEPS[self.geometry.layer_kind(run[0])])
        self._handle = machine.engine.skip_instruction(self.spec.rank, KSTEP_INSTRUCTION, occurrence)
        self.words = f"K step {occurrence} of layer {run[0]} left out, step {self._step}"

    def _tag(self, machine: Machine, run: tuple[int, int]) -> None:
        if run[0] != self._first_layer(machine):
            return
        g, shard = self.geometry, self.geometry.shard(self._options.ranks)
        region = self._random.choice(sorted(PAIRS))
        width = {"hidden": g.hidden // 2, "router": shard.router_rows, "latent_rows": shard.latent_rows // 2,
                 "latent": g.latent // 2}[PAIRS[region]]
        owner, occurrence = self._random.randrange(shard.ranks), self._random.randrange(self._options.rows * width)
        bit = self._random.randrange(32)
        self._handle = machine.engine.corrupt_store(self.spec.rank, region, owner, occurrence, 1 << 32 + bit)
        self.words = (f"bit {bit} of the tag of pair store {occurrence} into rank {owner}'s {region}, layer {run[0]}, "
                      f"step {self._step}")

    def _first_layer(self, machine: Machine) -> int:
        """A layer that starts one of the geometry's runs, whichever of them the device serves here."""
        return self._once("first", [first for first, _ in machine.engine.runs(None)])

    def _once(self, what: str, choices: list[int]) -> int:
        """The same choice however often it is asked for."""
        return random.Random(f"{self.spec.kind} {self.spec.seed} {what}").choice(choices)
