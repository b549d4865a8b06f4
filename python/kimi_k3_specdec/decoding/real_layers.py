"""One launch of layers of the real size: random weights and inputs, all ranks, every stage checked."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from .. import _native
from ..errors import UserError
from ..reference import moe
from ..reference.attn_res import SeamMix
from ..reference.geometry import Geometry
from ..reference.kda import KdaState
from ..reference.model import Model
from ..reference.state import ModelState, Stream, VerifyStep
from ..reference.synthetic import synthetic_layers
from ..reference.weights import RankWeights
from .checks.layer import Residual
from .checks.verdicts import Verdicts
from .digest import Digests, states_digest
from .machine import Machine
from .options import RunOptions
from .outcome import Outcome, check_launch, new_outcome
from .session import Progress
from .slots import SlotPlan

NEAR_PICK = 1e-3
"""Experts whose key is this near to the last pick's exist too: a different order is then a finding, not a fault."""

NEAR_PICK_LATER = 4e-3
"""The same behind the launch's first layer, whose roundings may move the keys of the next."""

STATE_RMS, STREAM_RMS = 0.1, 1.0

COMMON = 0.5
"""Share of its variance that a row's stream has in common with the step's other rows, in launches of several layers:
all of 16 independent rows' experts, twice, on eight ranks, would take more memory than we grant a run."""


class _Reached(Exception):
    """The reference has picked the last layer's experts: nothing behind that is needed."""


@dataclass
class _Inputs:
    """What a launch works on."""

    before: Residual
    cores: list[Tensor] | None
    """By rank, where the launch starts behind an MLA layer's attention."""
    states: dict[int, list[KdaState]]
    """By KDA layer, then by rank."""
    accepted: Tensor
    """int32 [R]."""

    @staticmethod
    def draw(geometry: Geometry, options: RunOptions, plan: SlotPlan, layers: range) -> _Inputs:
        """Random ones."""
        g = Generator().manual_seed(options.seed + 1)
        before = _residual(geometry, options.rows, layers[0], COMMON if len(layers) > 1 else 0.0, g)
        cores = _cores(geometry, options, g) if geometry.layer_kind(layers[0]) == "mla" else None
        accepted = torch.randint(1, options.rows_per_request + 1, (options.requests,), generator=g, dtype=torch.int32)
        kda = [layer for layer in layers if geometry.layer_kind(layer) == "kda"]
        states = {layer: [_fill_state(geometry, options, plan, layer, g) for _ in range(options.ranks)]
                  for layer in kda}
        return _Inputs(before, cores, states, accepted)


def run_layers(options: RunOptions, geometry: Geometry, name: str, code_object: bytes, progress: Progress, *,
               count_stages: bool = False) -> Outcome:
    """Runs the layers of `options.layers` once, in one launch on every rank; `count_stages` counts by stage."""
    layers = _one_launch(options, geometry)
    progress("random weights", 0, 1)
    weights = synthetic_layers(geometry, options.ranks, layers, options.seed)
    plan = SlotPlan.draw(options.requests, options.rows_per_request, 1, options.seed)
    inputs = _Inputs.draw(geometry, options, plan, layers)
    progress("routing of the reference", 0, 1)
    experts = _route(options, weights, plan, layers, inputs)
    progress("device", 0, 1)
    machine = Machine(options, geometry, weights, plan, [code_object], experts, count_stages=count_stages)
    for layer, states in inputs.states.items():
        for pages, state in zip(machine.pages[layer], states, strict=True):
            pages.state.conv.copy_(state.conv)
            pages.state.recurrent.copy_(state.recurrent)
    # The device has them now; at 16 rows they are a few hundred MiB.
    inputs.states.clear()
    machine.accept(inputs.accepted.tolist())
    outcome = new_outcome(options, geometry, name, machine.runs, Verdicts())
    _launch(outcome, machine, weights, inputs, progress)
    return outcome


def _one_launch(options: RunOptions, geometry: Geometry) -> range:
    """The layers to run; raises UserError if they are not those of one launch."""
    if options.layers is None:
        raise UserError(f"a checkpoint of `{geometry.name}` is too large to make here, its layers run a launch at a "
                        "time", "name the layers of one launch, such as --layers 12-13")
    if options.checkpoint is not None or options.fault is not None:
        raise UserError(f"layers of `{geometry.name}` have random weights here: no checkpoint and no fault apply",
                        "leave --checkpoint and --fault out, or use --geometry nano")
    first, last = options.layers
    served = _native.geometry(geometry.name, options.ranks)["served"]
    starts = [layer for layer in range(first + 1, last + 1) if served[layer] == "ffn"]
    if starts:
        raise UserError(f"layers {first}-{last} of `{geometry.name}` are {len(starts) + 1} launches: attention runs in "
                        f"between, before layer {starts[0]}",
                        f"name the layers of one launch, such as --layers {first}-{starts[0] - 1}")
    return range(first, last + 1)


def _launch(outcome: Outcome, machine: Machine, weights: list[RankWeights], inputs: _Inputs,
            progress: Progress) -> None:
    options, run = outcome.options, machine.runs[0]
    progress("kernels", 0, 1)
    record, error = machine.launch(run, inputs.before, inputs.cores, last_of_step=True)
    progress("checks", 0, 1)
    started = time.perf_counter()
    outcome.failure = check_launch(record, weights, outcome.verdicts, error)
    if outcome.failure is None:
        digests = Digests(options.requests, options.rows_per_request)
        digests.add(record)
        outcome.payload_digests, outcome.steps = digests.payloads, 1
        outcome.experts = {layer: int(exchanges.witness(0).picks.unique().numel())
                           for layer, exchanges in record.exchanges.items()}
    outcome.seconds["checks"] = time.perf_counter() - started
    outcome.states_digest = states_digest(machine.pages)
    outcome.statistics = machine.statistics()


def _residual(geometry: Geometry, rows: int, layer: int, common: float, g: Generator) -> Residual:
    """A random stream; blocks that are not written yet are NaN."""
    def rows_of(*width: int) -> Tensor:
        own = torch.randn(rows, *width, geometry.hidden, generator=g)
        shared = torch.randn(1, *width, geometry.hidden, generator=g) if common else 0.0
        return STREAM_RMS * ((1 - common) ** 0.5 * own + common**0.5 * shared)

    prefix, delta = rows_of(), rows_of()
    blocks = rows_of(geometry.num_blocks)
    blocks[:, geometry.prev_valid_blocks(layer) :] = torch.nan
    is_mla = geometry.layer_kind(layer) == "mla"
    return Residual(*(t.to(torch.bfloat16) for t in (prefix, blocks)), None if is_mla else delta.to(torch.bfloat16))


def _cores(geometry: Geometry, options: RunOptions, g: Generator) -> list[Tensor]:
    projection = geometry.shard(options.ranks).projection
    return [torch.randn(options.rows, projection, generator=g).to(torch.bfloat16) for _ in range(options.ranks)]


def _fill_state(geometry: Geometry, options: RunOptions, plan: SlotPlan, layer: int, g: Generator) -> KdaState:
    """Random states in the requests' slots, NaN in all others."""
    state = KdaState.allocate(geometry.shard(options.ranks), plan.num_slots, options.rows_per_request, torch.nan)
    for slot in plan.indices(layer).flatten().tolist():
        state.conv[slot] = torch.randn(state.conv.shape[1:], generator=g).to(torch.bfloat16)
        state.recurrent[slot] = STATE_RMS * torch.randn(state.recurrent.shape[1:], generator=g)
    return state


def _route(options: RunOptions, weights: list[RankWeights], plan: SlotPlan, layers: range,
           inputs: _Inputs) -> dict[int, list[int]]:
    """By layer, the experts that its rows pick, or nearly do, in the reference; made to exist on every rank."""
    experts: dict[int, list[int]] = {}

    def pick(layer: int, stage: str, value: object) -> None:
        if stage != "mlp_res_seam":
            return
        assert isinstance(value, SeamMix)
        experts[layer] = _picked(weights[0], layer, value.x, NEAR_PICK if layer == layers[0] else NEAR_PICK_LATER)
        if layer == layers[-1]:
            raise _Reached

    model = Model(weights, pick)
    states = {layer: [KdaState(s.conv.clone(), s.recurrent.clone()) for s in ranks]
              for layer, ranks in inputs.states.items()}
    before = inputs.before
    stream = Stream(before.prefix, before.blocks.clone(), before.delta)
    step = VerifyStep({layer: plan.indices(layer) for layer in layers}, inputs.accepted,
                      [torch.zeros(0)] * options.requests)
    try:
        if inputs.cores is not None:
            model.mlp_half(layers[0], stream, inputs.cores)
        model.run_layers(stream, step, ModelState(states, {}), layers[len(layers) - len(states) :])
    except _Reached:
        return experts
    raise AssertionError("every layer has an MLP seam")


def _picked(weights: RankWeights, layer: int, x: Tensor, near: float) -> list[int]:
    """Experts whose key is at most `near` below a row's last pick, filled."""
    tensors = weights.layers[layer]
    logits = moe.router_logits(x, tensors["mlp.gate.weight"])
    picks = moe.select_experts(logits, tensors["mlp.gate.e_score_correction_bias"], weights.geometry.top_k)
    last = picks.keys.gather(1, picks.ids)[:, -1:]
    experts = (picks.keys >= last - near).any(0).nonzero()[:, 0].tolist()
    assert weights.fill_expert is not None
    for expert in experts:
        weights.fill_expert(layer, expert)
    return experts
