"""One rank in a process of its own, as vLLM's workers are: its own kernels and peers, everything else in the reference.

The process runs the runtime as vLLM would call it: `SpecializedDecode` over a model in vLLM's shape, a plan per step,
stand-ins in the layer loop, `after_step` before the logits. Rank 0 hands out tokens, and only of steps that no rank has
raised the alarm in.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ..reference.model import Model
from ..reference.state import Stream, VerifyStep
from ..runtime import DecodeConfig
from ..runtime.decode import SpecializedDecode
from ..runtime.host import FinalSettings
from ..runtime.peer import barrier
from ..runtime.stop import EngineStopped
from .backbone import backbone, layer_name
from .digest import rank_states_digest
from .outcome import Outcome, new_outcome
from .prepared import Prepared
from .session import Request, Session, Stopped
from .slots import SlotPlan, group_of

COLLECTIVE_SECONDS = 60.0
"""How long a rank waits for another outside the kernels, before it takes it for gone."""

STORE, PREPARED = "store", "prepared"
"""Files of a run's folder: by which the ranks find each other, and what all of them start from."""

Fault = Callable[["RankSession", int], None]
"""Called at the start of every step with the session and the step's number: what a test does to this rank."""


@dataclass(frozen=True)
class WorkerOptions:
    """What a rank's process is started with."""

    rank: int
    folder: str
    timeout_seconds: float
    start_epoch: int = 0
    fault: Fault | None = None


class _Context:
    """vLLM's forward context of one step."""

    cudagraph_runtime_mode = SimpleNamespace(name="NONE")
    attn_metadata: dict[str, SimpleNamespace]


class RankMachine:
    """What `Session` asks of a machine, for served layers that the runtime runs."""

    pages: dict[int, Any] = {}
    """The session's own states are this rank's caches."""

    def __init__(self) -> None:
        """The runtime comes once the session is there."""
        self.decode: SpecializedDecode | None = None
        self.accepted = torch.ones(1, dtype=torch.int32)

    @property
    def runtime(self) -> SpecializedDecode:
        """Built by now."""
        assert self.decode is not None
        return self.decode

    def accept(self, num_accepted: Iterable[int]) -> None:
        """Accepted counts of the step."""
        self.accepted = torch.tensor(list(num_accepted), dtype=torch.int32)

    def finish_step(self) -> None:
        """Before the step's logits, as vLLM's model calls it."""
        self.runtime.after_step()

    def statistics(self) -> dict[str, Any]:
        """The emulator's counters of this rank."""
        return self.runtime.runner.engine.statistics()

    def races(self) -> list[dict[str, Any]]:
        """Not looked for between processes."""
        return []


class RankSession(Session):
    """A session whose served layers run in one rank's kernels; also the host that the runtime decodes for."""

    def __init__(self, options: WorkerOptions, prepared: Prepared, group: Any) -> None:
        """Builds the runtime together with all other ranks."""
        run, own = prepared.options, RankMachine()
        requests = [Request(*parts, tokens=[]) for parts in prepared.parts]
        plan = SlotPlan.draw(run.requests, run.rows_per_request, prepared.longest, run.seed)
        super().__init__(run, Model(prepared.weights), own, plan, requests, None)  # type: ignore[arg-type]
        self.rank, self.ranks, self.group = options.rank, run.ranks, group
        self.stock_group = None if group is None else dist.new_group(backend="gloo")
        self.worker, self._context, self._verify_step = options, _Context(), None
        self.states = {layer: states[options.rank] for layer, states in self.state.kda.items()}
        self.backbone = backbone(prepared.weights[options.rank], self.states)
        config = DecodeConfig(run.rows_per_request, max_num_seqs=run.requests)
        own.decode = self.decode = SpecializedDecode(
            self.backbone, config, self, device=run.device, geometry=run.geometry,
            timeout_seconds=options.timeout_seconds, schedule_seed=run.schedule_seed + options.rank,
            tap=options.fault is not None)
        self.decode.prepare_kv()

    def forward_context(self) -> _Context:
        """The step's."""
        return self._context

    def is_capturing(self) -> bool:
        """Never: there is no stream."""
        return False

    def stream(self) -> None:
        """There is none."""

    def attention_half(self, layer: int, positions: Tensor, prefix: Tensor, blocks: Tensor,
                       delta: Tensor | None) -> Tensor:
        """An MLA layer's attention, in the reference."""
        assert self._verify_step is not None
        stream = Stream(prefix.clone(), blocks, delta)
        cores = self.model.attention_half(layer, stream, self._verify_step, self.state)
        prefix.copy_(stream.prefix)
        return cores[self.rank]

    def state_groups(self) -> dict[str, int]:
        """As the slots are drawn."""
        return {layer_name(layer): group_of(layer) for layer in self.model.geometry.kda_layers}

    def final_settings(self) -> FinalSettings:
        """Nothing changes."""
        return FinalSettings()

    def outputs_read(self) -> list[int]:
        """No drafter reads hidden states."""
        return []

    def metadata(self) -> dict[str, SimpleNamespace]:
        """Of every KDA layer, as vLLM's builder makes it for a pure verify step."""
        run = self.options
        groups = [
            SimpleNamespace(
                spec_sequence_masks=torch.ones(run.requests, dtype=torch.bool), num_prefills=0, num_decodes=0,
                num_spec_decodes=run.requests, spec_state_indices_tensor=indices,
                num_accepted_tokens=self.machine.accepted, uniform_spec_sequence_length=run.rows_per_request)
            for indices in self.plan.state_indices
        ]
        return {layer_name(layer): groups[group_of(layer)] for layer in self.model.geometry.kda_layers}

    def _step(self, step: int, outcome: Outcome) -> None:
        if self.worker.fault is not None:
            self.worker.fault(self, step)
        super()._step(step, outcome)

    def _layers(self, step: int, stream: Stream, verify: VerifyStep) -> None:
        """vLLM's layer loop."""
        self._verify_step, self._context.attn_metadata = verify, self.metadata()
        positions = torch.arange(stream.prefix.shape[0])
        planned = self.decode.plan(positions, None)
        if planned is None:
            # vLLM's own layers begin with an all-reduce, in which a rank waits for all others.
            barrier(self.stock_group)
        for layer in range(self.model.geometry.num_layers):
            stand_in = None if planned is None else planned.layer(layer)
            if stand_in is None:
                self.model.run_layers(stream, verify, self.state, [layer])
            else:
                stream.prefix, stream.blocks, stream.delta = stand_in(positions, stream.prefix, stream.blocks,
                                                                      stream.delta)


def work(options: WorkerOptions, pipe: Connection) -> None:
    """The process: says `ready`, then of every step `step` (rank 0), then `done`, or `stopped` with one sentence."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    folder, session = Path(options.folder), None
    try:
        prepared: Prepared = pickle.loads((folder / PREPARED).read_bytes())
        dist.init_process_group("gloo", init_method=f"file://{folder / STORE}", rank=options.rank,
                                world_size=prepared.options.ranks, timeout=timedelta(seconds=COLLECTIVE_SECONDS))
        session = RankSession(options, prepared, dist.group.WORLD)
        if options.start_epoch:
            session.decode.resume_at(options.start_epoch)
        pipe.send(("ready", {"runs": session.decode.executor.runs()}))
        pipe.send(("done", _decode(session, prepared, pipe)))
    except (EngineStopped, Stopped) as stop:
        _say_why(pipe, stop, stop)
        sys.exit(1)
    except Exception as error:
        # Where another rank has gone, whatever failed here failed for that reason.
        lost = session is not None and session.decode.runner.watcher.lost
        _say_why(pipe, session.decode.fail_stop.stopped() if session is not None and lost else error, error)
        sys.exit(1)
    finally:
        if session is not None:
            session.decode.close()


def _decode(session: RankSession, prepared: Prepared, pipe: Connection) -> dict[str, Any]:
    """All steps, and what came of them."""
    decode = session.decode
    outcome = new_outcome(prepared.options, prepared.geometry, prepared.name, decode.executor.runs(), session.verdicts)
    session.run(outcome, lambda what, done, _: _hand_out(session, pipe, what, done))
    # The vote on the last step too.
    decode.after_step()
    served = {layer: state for layer, state in session.states.items() if layer in decode.kinds}
    return {
        "failure": outcome.failure and outcome.failure.message, "tokens": outcome.tokens,
        "reference_tokens": outcome.reference_tokens, "acceptance": outcome.acceptance,
        "near_ties": outcome.near_ties, "steps": outcome.steps, "counters": decode.counters(),
        "statistics": outcome.statistics, "states": rank_states_digest(served),
    }


def _hand_out(session: RankSession, pipe: Connection, what: str, done: int) -> None:
    """Rank 0 hands out what the steps so far have chosen, if it may."""
    if what == "verify steps" and session.rank == 0 and done > 0 and session.decode.fail_stop.copy_alarms()():
        pipe.send(("step", {"step": done, "tokens": [list(r.device_tokens) for r in session.requests]}))


def _say_why(pipe: Connection, told: BaseException, error: BaseException) -> None:
    pipe.send(("stopped", {"sentence": str(told), "kind": type(error).__name__, "hint": getattr(told, "hint", None),
                           "details": getattr(told, "details", [])}))
