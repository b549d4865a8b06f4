"""Prefill, then verify steps: the served layers on the device, everything else in the reference, all of it checked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..reference.kda import KdaState
from ..reference.mla import LatentCache
from ..reference.model import Model, greedy
from ..reference.state import ModelState, Prefill, Stream, VerifyStep
from .checks.layer import Residual
from .checks.verdicts import Verdicts
from .digest import Digests, rank_states_digest, states_digest
from .drafter import Drafter
from .faults import Fault
from .machine import Machine
from .options import RunOptions
from .oracle import Truth
from .outcome import Failure, Outcome, check_launch
from .slots import SlotPlan, StatePages

Progress = Callable[[str, int, int], None]
"""Called with (what, done, total)."""


class Stopped(Exception):
    """The run ends here: `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        """The message is the failure's."""
        super().__init__(failure.message)
        self.failure = failure


@dataclass
class Request:
    """One request as it decodes."""

    truth: Truth
    drafter: Drafter
    tokens: list[int]
    """Emitted so far, as the reference has them; the last one is not in the caches yet."""
    device_tokens: list[int] = field(default_factory=list)
    """What the device's logits chose."""
    accepted: int = 1
    """Tokens that the last step kept."""

    @property
    def cached(self) -> int:
        """Tokens in the caches."""
        return self.truth.prompt.shape[0] + len(self.tokens) - 1


class Session:
    """All requests of a run, on one machine."""

    def __init__(self, options: RunOptions, model: Model, machine: Machine, plan: SlotPlan, requests: list[Request],
                 fault: Fault | None) -> None:
        """`model` holds the reference's weights; `machine` may hold faulty ones."""
        self.options, self.model, self.machine, self.plan = options, model, machine, plan
        self.requests, self.fault = requests, fault
        self.verdicts = Verdicts()
        self.digests = Digests(options.requests, options.rows_per_request)
        self.near_ties = 0
        self.check_seconds = 0.0
        g = model.geometry
        pages = {
            layer: machine.pages.get(layer) or self._own_pages(layer) for layer in g.kda_layers
        }
        kda: dict[int, list[KdaState]] = {layer: [p.state for p in ranks] for layer, ranks in pages.items()}
        self.state = ModelState(kda, {layer: LatentCache.allocate(g, plan.kv_slots) for layer in g.mla_layers})

    def _own_pages(self, layer: int) -> list[StatePages]:
        """States of a layer that the reference runs."""
        shard = self.model.shard
        assert layer in self.model.geometry.kda_layers
        return [StatePages.allocate(shard, self.plan.num_slots, self.options.rows_per_request)
                for _ in self.model.weights]

    def run(self, outcome: Outcome, progress: Progress) -> None:
        """Fills in `outcome`."""
        try:
            for i, request in enumerate(self.requests):
                progress("prefill", i, len(self.requests))
                self._prefill(i, request)
            for step in range(self.options.steps):
                progress("verify steps", step, self.options.steps)
                self._step(step, outcome)
                outcome.steps += 1
            progress("verify steps", self.options.steps, self.options.steps)
        except Stopped as stop:
            outcome.failure = stop.failure
        outcome.near_ties = self.near_ties
        outcome.tokens = [r.device_tokens for r in self.requests]
        outcome.reference_tokens = [r.truth.tokens[: len(r.tokens)].tolist() for r in self.requests]
        outcome.payload_digests = self.digests.payloads
        outcome.states_digest = states_digest(self.machine.pages)
        outcome.rank_states_digests = [
            rank_states_digest({layer: ranks[rank].state for layer, ranks in self.machine.pages.items()})
            for rank in range(self.options.ranks)]
        outcome.statistics = self.machine.statistics()
        outcome.races = [race | {"command": self.options.command()} for race in self.machine.races()]
        outcome.seconds["checks"] = self.check_seconds

    def _prefill(self, index: int, request: Request) -> None:
        """The prompt, in the reference: states in column 0's slots, the first token."""
        length = request.truth.prompt.shape[0]
        slots = {layer: int(i[index, 0]) for layer, i in self.plan.by_layer(self.model.geometry).items()}
        logits = self.model.prefill(request.truth.prompt, Prefill(slots, self.plan.token_slots(index, length)),
                                    self.state)
        request.tokens.append(int(greedy(logits[-1])))
        request.device_tokens.append(request.tokens[0])

    def _step(self, step: int, outcome: Outcome) -> None:
        k, q = self.options.speculative_tokens, self.options.rows_per_request
        rows = []
        for request in self.requests:
            emitted = len(request.tokens)
            drafts = request.drafter.propose(request.truth.tokens[emitted : emitted + k], step)
            rows.append(torch.cat((torch.tensor(request.tokens[-1:]), drafts)))
        tokens = torch.stack(rows)
        accepted = torch.tensor([r.accepted for r in self.requests], dtype=torch.int32)
        self.machine.accept(accepted.tolist())
        verify = VerifyStep(self.plan.by_layer(self.model.geometry), accepted,
                            [self.plan.token_slots(i, r.cached + q) for i, r in enumerate(self.requests)])
        self.verdicts.step = step
        stream = self.model.begin(tokens.flatten())
        self._layers(step, stream, verify)
        self.machine.finish_step()
        logits = self.model.logits(self.model.final_mix(stream)).unflatten(0, tokens.shape)
        for i, request in enumerate(self.requests):
            accepted_drafts = self._verify(step, i, request, tokens[i], logits[i])
            outcome.acceptance[i][accepted_drafts] += 1

    def _layers(self, step: int, stream: Stream, verify: VerifyStep) -> None:
        """All layers of a step; runs of served ones on the device."""
        runs = {first: (first, last) for first, last in self.machine.runs}
        layer = 0
        while layer < self.model.geometry.num_layers:
            if layer in runs:
                run = runs[layer]
                self._device_run(step, stream, verify, run, last_of_step=run == self.machine.runs[-1])
                layer = run[1] + 1
            else:
                self.model.run_layers(stream, verify, self.state, [layer])
                layer += 1

    def _device_run(self, step: int, stream: Stream, verify: VerifyStep, run: tuple[int, int], *,
                    last_of_step: bool) -> None:
        cores = None
        if self.model.geometry.layer_kind(run[0]) == "mla":
            cores = self.model.attention_half(run[0], stream, verify, self.state)
        if self.fault is not None:
            self.fault.before_run(self.machine, step, run)
        before = Residual(stream.prefix, stream.blocks, stream.delta)
        record, error = self.machine.launch(run, before, cores, last_of_step=last_of_step)
        started = time.perf_counter()
        failure = check_launch(record, self.model.weights, self.verdicts, error)
        if failure is not None:
            raise Stopped(failure)
        self.digests.add(record)
        self.check_seconds += time.perf_counter() - started
        after = record.after[0]
        stream.prefix, stream.blocks, stream.delta = after.prefix, after.blocks, after.delta

    def _verify(self, step: int, index: int, request: Request, tokens: Tensor, logits: Tensor) -> int:
        """Greedy verification of one request's rows against its own truth; the number of accepted drafts.

        A token that differs is a failure unless the reference's two best logits are nearer than twice the row's
        largest difference; then the reference's token goes on.
        """
        emitted = len(request.tokens)
        chosen = greedy(logits)
        for row in range(tokens.shape[0]):
            truth, reference = int(request.truth.tokens[emitted + row]), request.truth.logits[emitted + row]
            token = int(chosen[row])
            if token != truth:
                request.device_tokens.append(token)
                best = reference.topk(2).values
                difference = float((logits[row] - reference).abs().max())
                if float(best[0] - best[1]) >= 2 * difference:
                    message = (f"step {step}, request {index}, row {row}: token {token}, the reference has {truth} "
                               f"(its margin {float(best[0] - best[1]):.4g}, largest difference {difference:.4g})")
                    raise Stopped(Failure("token", message, step))
                self.near_ties += 1
            else:
                request.device_tokens.append(token)
            request.tokens.append(truth)
            if row + 1 == tokens.shape[0] or int(tokens[row + 1]) != truth:
                request.accepted = row + 1
                return row
        raise AssertionError("the last row always ends the loop")
