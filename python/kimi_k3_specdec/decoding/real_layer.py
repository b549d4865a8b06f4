"""One layer of the real size: random weights and inputs, all ranks, every stage checked."""

from __future__ import annotations

import time

import torch
from torch import Generator, Tensor

from ..errors import UserError
from ..reference import moe
from ..reference.geometry import Geometry
from ..reference.kda import KdaState
from ..reference.model import Model
from ..reference.state import ModelState, Stream, VerifyStep
from ..reference.synthetic import synthetic_layer
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

STATE_RMS, STREAM_RMS = 0.1, 1.0


class _Reached(Exception):
    """The reference has come to the MoE half's input."""

    def __init__(self, x: Tensor) -> None:
        """`x` bf16 [S, H]."""
        self.x = x


def run_layer(options: RunOptions, geometry: Geometry, name: str, code_object: bytes, progress: Progress) -> Outcome:
    """Runs the one layer of `options.layers` once."""
    if options.layers is None or options.layers[0] != options.layers[1]:
        raise UserError(f"a checkpoint of `{geometry.name}` is too large to make here, its layers run one at a time",
                      "name one layer, such as --layers 13-13")
    if options.checkpoint is not None or options.fault is not None:
        raise UserError(f"one layer of `{geometry.name}` has random weights: no checkpoint and no fault apply to it",
                      "leave --checkpoint and --fault out, or use --geometry nano")
    layer = options.layers[0]
    progress("random weights", 0, 1)
    weights = synthetic_layer(geometry, options.ranks, layer, options.seed)
    plan = SlotPlan.draw(options.requests, options.rows_per_request, 1, options.seed)
    g = Generator().manual_seed(options.seed + 1)
    before = _residual(geometry, options.rows, layer, g)
    cores = _cores(geometry, options, g) if geometry.layer_kind(layer) == "mla" else None
    accepted = torch.randint(1, options.rows_per_request + 1, (options.requests,), generator=g, dtype=torch.int32)
    states = [_fill_state(geometry, options, plan, layer, g) for _ in weights] if cores is None else []
    progress("routing of the reference", 0, 1)
    experts = _experts(options, geometry, weights, plan, layer, before, cores, states, accepted)
    progress("device", 0, 1)
    machine = Machine(options, geometry, weights, plan, [code_object], {layer: experts})
    for pages, state in zip(machine.pages.get(layer, []), states, strict=True):
        pages.state.conv.copy_(state.conv)
        pages.state.recurrent.copy_(state.recurrent)
    machine.accept(accepted.tolist())
    verdicts = Verdicts()
    outcome = new_outcome(options, geometry, name, machine.runs, verdicts)
    _launch(outcome, machine, weights, before, cores, progress)
    return outcome


def _launch(outcome: Outcome, machine: Machine, weights: list[RankWeights], before: Residual,
            cores: list[Tensor] | None, progress: Progress) -> None:
    options, run = outcome.options, machine.runs[0]
    progress("kernels", 0, 1)
    record, error = machine.launch(run, before, cores, last_of_step=True)
    progress("checks", 0, 1)
    started = time.perf_counter()
    outcome.failure = check_launch(record, weights, outcome.verdicts, error)
    if outcome.failure is None:
        digests = Digests(options.requests, options.rows_per_request)
        digests.add(record)
        outcome.payload_digests, outcome.steps = digests.payloads, 1
    outcome.seconds["checks"] = time.perf_counter() - started
    outcome.states_digest = states_digest(machine.pages)
    outcome.statistics = machine.statistics()


def _residual(geometry: Geometry, rows: int, layer: int, g: Generator) -> Residual:
    """A random stream; blocks that are not written yet are NaN."""
    prefix, delta = (STREAM_RMS * torch.randn(rows, geometry.hidden, generator=g) for _ in range(2))
    blocks = STREAM_RMS * torch.randn(rows, geometry.num_blocks, geometry.hidden, generator=g)
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


def _experts(options: RunOptions, geometry: Geometry, weights: list[RankWeights], plan: SlotPlan, layer: int,
             before: Residual, cores: list[Tensor] | None, states: list[KdaState], accepted: Tensor) -> list[int]:
    """Experts that the rows pick, or nearly do, in the reference; made to exist on every rank."""
    def stop(_: int, stage: str, value: object) -> None:
        if stage == "mlp_res_seam":
            raise _Reached(value.x)

    model = Model(weights, stop)
    copies = [KdaState(s.conv.clone(), s.recurrent.clone()) for s in states]
    stream = Stream(before.prefix, before.blocks.clone(), before.delta)
    step = VerifyStep({layer: plan.indices(layer)}, accepted, [torch.zeros(0)] * options.requests)
    try:
        if cores is None:
            cores = model.attention_half(layer, stream, step, ModelState({layer: copies}, {}))
        model.mlp_half(layer, stream, cores)
        raise AssertionError("the MLP seam comes first")
    except _Reached as reached:
        x = reached.x
    tensors = weights[0].layers[layer]
    logits = moe.router_logits(x, tensors["mlp.gate.weight"])
    picks = moe.select_experts(logits, tensors["mlp.gate.e_score_correction_bias"], geometry.top_k)
    last = picks.keys.gather(1, picks.ids)[:, -1:]
    experts = (picks.keys >= last - NEAR_PICK).any(0).nonzero()[:, 0].tolist()
    for expert in experts:
        fill = weights[0].fill_expert
        assert fill is not None
        fill(layer, expert)
    return experts
