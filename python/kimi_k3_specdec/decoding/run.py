"""One run from its options to its outcome: checks what was asked for, makes what it needs, decodes."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import torch

from ..reference import checkpoint
from ..reference.chain import active_tokens
from ..reference.geometry import Geometry, by_name
from ..reference.model import Model
from ..reference.weights import RankWeights
from .drafter import Drafter, prompt
from .faults import Fault, Trace
from .machine import Machine, load_code_objects
from .options import RunOptions, check_served
from .oracle import Truth, continue_prompts
from .outcome import Outcome, new_outcome
from .real_layers import run_layers
from .session import Progress, Request, Session
from .slots import SlotPlan

WHOLE_MODEL_BYTES = 1 << 30
"""A geometry whose layers are larger is run a launch at a time, without a checkpoint."""


def run(options: RunOptions, progress: Progress) -> Outcome:
    """Runs what `options` say. Raises UserError, or an error with a `hint`, when that cannot start."""
    started = time.perf_counter()
    check_served(options)
    geometry = by_name(options.geometry)
    # Threads cost more than they give on tensors of nano's size.
    torch.set_num_threads(torch.get_num_threads() if is_real(geometry) else 1)
    name, code_object = load_code_objects(options.geometry, options.ranks)
    if is_real(geometry):
        outcome = run_layers(options, geometry, name, code_object, progress)
    else:
        outcome = _run_model(options, geometry, name, code_object, progress)
    outcome.seconds["total"] = time.perf_counter() - started
    return outcome


def is_real(geometry: Geometry) -> bool:
    """Whether the model is too large to be made as a checkpoint here."""
    return geometry.hidden * geometry.hidden * geometry.num_layers > WHOLE_MODEL_BYTES


def _run_model(options: RunOptions, geometry: Geometry, name: str, code_object: bytes, progress: Progress) -> Outcome:
    with ExitStack() as stack:
        progress("checkpoint", 0, 1)
        weights = _weights(options, geometry, stack)
    trace: Trace = {}
    progress("pure-reference run", 0, 1)
    requests = _requests(options, geometry, weights, trace)
    fault = None if options.fault is None else Fault(options.fault, options, geometry)
    device_weights = weights if fault is None else fault.device_weights(weights, trace)
    longest = max(r.truth.prompt.shape[0] + r.truth.tokens.shape[0] for r in requests)
    plan = SlotPlan.draw(options.requests, options.rows_per_request, longest + options.rows_per_request, options.seed)
    progress("device", 0, 1)
    machine = Machine(options, geometry, device_weights, plan, [code_object])
    session = Session(options, Model(weights), machine, plan, requests, fault)
    outcome = new_outcome(options, geometry, name, machine.runs, session.verdicts)
    session.run(outcome, progress)
    outcome.fault = None if fault is None else fault.described(machine)
    return outcome


def _weights(options: RunOptions, geometry: Geometry, stack: ExitStack) -> list[RankWeights]:
    """Every rank's loaded weights, of the checkpoint asked for or of a seeded one that lives as long as `stack`."""
    if options.checkpoint is not None:
        return checkpoint.load(options.checkpoint, geometry, options.ranks)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kimi-k3-specdec-")))
    checkpoint.make(folder / geometry.name, geometry, options.seed)
    return checkpoint.load(folder / geometry.name, geometry, options.ranks)


def _requests(options: RunOptions, geometry: Geometry, weights: list[RankWeights], trace: Trace) -> list[Request]:
    """Requests whose every right draft is known: as many true tokens as their steps may emit."""
    k = options.speculative_tokens
    drafters = [Drafter(options.seed, i, k, geometry.vocab) for i in range(options.requests)]
    prompts = [prompt(options.seed, i, active_tokens(geometry)) for i in range(options.requests)]
    # The prompt's own token, what the steps emit, and the drafts of the last one.
    needed = 1 + k + max(sum(d.right_drafts(step) + 1 for step in range(options.steps)) for d in drafters)
    latest: Trace = {}
    model = Model(weights, lambda layer, stage, value: latest.__setitem__((layer, stage), value))
    truths: list[Truth] = continue_prompts(model, prompts, needed, first_step=lambda: trace.update(latest))
    return [Request(*parts, tokens=[]) for parts in zip(truths, drafters, strict=True)]
