"""What a run needs and no schedule changes: weights, prompts and their true continuations, slots."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from ..reference import checkpoint
from ..reference.chain import active_tokens
from ..reference.geometry import Geometry
from ..reference.model import Model
from ..reference.weights import RankWeights
from .drafter import Drafter, prompt
from .faults import Fault, Trace
from .machine import Machine
from .options import RunOptions
from .oracle import Truth, continue_prompts
from .outcome import Outcome, new_outcome
from .session import Progress, Request, Session
from .slots import SlotPlan


class Prepared:
    """A run up to the device; `decode` does the rest, as often as one likes."""

    def __init__(self, options: RunOptions, geometry: Geometry, name: str, code_object: bytes,
                 progress: Progress) -> None:
        """Makes or loads the checkpoint and runs the reference."""
        self.options, self.geometry, self.name, self.code_object = options, geometry, name, code_object
        with ExitStack() as stack:
            progress("checkpoint", 0, 1)
            self.weights = _weights(options, geometry, stack)
        self._trace: Trace = {}
        progress("pure-reference run", 0, 1)
        self.parts = _parts(options, geometry, self.weights, self._trace)

    @property
    def longest(self) -> int:
        """Tokens of the longest request, with a step's rows behind its last."""
        longest = max(truth.prompt.shape[0] + truth.tokens.shape[0] for truth, _ in self.parts)
        return longest + self.options.rows_per_request

    def decode(self, options: RunOptions, progress: Progress) -> Outcome:
        """One run; `options` may differ from those at the start in what concerns the schedule."""
        requests = [Request(*parts, tokens=[]) for parts in self.parts]
        fault = None if options.fault is None else Fault(options.fault, options, self.geometry)
        weights = self.weights
        device_weights = weights if fault is None else fault.device_weights(weights, self._trace)
        plan = SlotPlan.draw(options.requests, options.rows_per_request, self.longest, options.seed)
        progress("device", 0, 1)
        machine = Machine(options, self.geometry, device_weights, plan, [self.code_object])
        session = Session(options, Model(weights), machine, plan, requests, fault)
        outcome = new_outcome(options, self.geometry, self.name, machine.runs, session.verdicts)
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


def _parts(options: RunOptions, geometry: Geometry, weights: list[RankWeights],
           trace: Trace) -> list[tuple[Truth, Drafter]]:
    """What requests are made of, their every right draft known: as many true tokens as their steps may emit."""
    k = options.speculative_tokens
    drafters = [Drafter(options.seed, i, k, geometry.vocab) for i in range(options.requests)]
    prompts = [prompt(options.seed, i, active_tokens(geometry)) for i in range(options.requests)]
    # The prompt's own token, what the steps emit, and the drafts of the last one.
    needed = 1 + k + max(sum(d.right_drafts(step) + 1 for step in range(options.steps)) for d in drafters)
    latest: Trace = {}
    model = Model(weights, lambda layer, stage, value: latest.__setitem__((layer, stage), value))
    truths: list[Truth] = continue_prompts(model, prompts, needed, first_step=lambda: trace.update(latest))
    return list(zip(truths, drafters, strict=True))
