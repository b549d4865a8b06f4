"""`run --processes`: every rank a process, and this one what vLLM's engine core is to its workers."""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ..errors import UserError
from .checks.verdicts import Verdicts
from .outcome import Failure, Outcome, new_outcome
from .prepared import Prepared
from .session import Progress
from .worker import PREPARED, Fault, WorkerOptions, work

SECONDS_TO_END = 5.0
"""vLLM gives its workers as long before it kills them."""


@dataclass
class RankEnd:
    """How one rank ended."""

    said: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Everything that it sent, in order."""
    exit_code: int | None = None
    ended_at: float = 0.0
    """`time.monotonic()`."""

    def last(self, what: str) -> dict[str, Any] | None:
        """The last message of a kind."""
        return next((body for kind, body in reversed(self.said) if kind == what), None)


@dataclass
class Ended:
    """How all ranks ended."""

    ranks: list[RankEnd]
    tokens: list[list[int]] = field(default_factory=list)
    """What rank 0 handed out, by request."""
    steps: int = 0
    """Steps whose tokens those are."""


def start(prepared: Prepared, *, faults: Mapping[int, Fault] | None = None, timeout_seconds: float = 3.0,
          start_epoch: int = 0, progress: Progress = lambda *_: None) -> Ended:
    """Runs every rank to its end. `faults`: by rank, what happens to it; picklable. Ranks that are still there
    SECONDS_TO_END after the first one failed are killed.
    """
    ranks = prepared.options.ranks
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([f"{__package__}.worker"])
    processes: list[BaseProcess] = []
    pipes: dict[Connection, int] = {}
    with tempfile.TemporaryDirectory(prefix="kimi-k3-specdec-") as folder:
        (Path(folder) / PREPARED).write_bytes(pickle.dumps(prepared))
        try:
            for rank in range(ranks):
                own, theirs = context.Pipe()
                options = WorkerOptions(rank, folder, timeout_seconds, start_epoch, (faults or {}).get(rank))
                process = context.Process(target=work, args=(options, theirs), name=f"rank {rank}", daemon=True)
                process.start()
                theirs.close()
                processes.append(process)
                pipes[own] = rank
            return _follow(processes, pipes, progress, prepared.options.steps)
        finally:
            for process in processes:
                process.kill()
                process.join()


def _follow(processes: list[BaseProcess], pipes: dict[Connection, int], progress: Progress, steps: int) -> Ended:
    """Reads what the ranks say until all have ended."""
    ended, failed_at = Ended([RankEnd() for _ in processes]), None
    running = {process.sentinel: rank for rank, process in enumerate(processes)}
    while running:
        left = None if failed_at is None else failed_at + SECONDS_TO_END - time.monotonic()
        if left is not None and left < 0:
            for rank in running.values():
                processes[rank].kill()
            left = None
        for ready in wait([*pipes, *running], left):
            if isinstance(ready, int):
                rank = running.pop(ready)
                processes[rank].join()
                end = ended.ranks[rank]
                end.exit_code, end.ended_at = processes[rank].exitcode, time.monotonic()
                failed = end.exit_code != 0
            else:
                failed = _hear(ready, pipes, ended, progress, steps)
            if failed and failed_at is None:
                failed_at = time.monotonic()
    return ended


def _hear(pipe: Connection, pipes: dict[Connection, int], ended: Ended, progress: Progress, steps: int) -> bool:
    """One message; whether a rank says that it stops."""
    try:
        kind, body = pipe.recv()
    except EOFError:
        del pipes[pipe]
        return False
    ended.ranks[pipes[pipe]].said.append((kind, body))
    if kind == "step":
        ended.tokens, ended.steps = body["tokens"], body["step"]
        progress("verify steps", body["step"], steps)
    return kind == "stopped"


def run_processes(prepared: Prepared, progress: Progress) -> Outcome:
    """`run --processes`. Raises UserError where the options ask for what only one process can do."""
    options = prepared.options
    for value, plain, name in ((options.check, None, "--check"), (options.memory, "strong", "--memory"),
                               (options.fault, None, "--fault"), (options.layers, None, "--layers"),
                               (options.schedules, 1, "--schedules"), (options.schedule, "turns", "--schedule")):
        if value != plain:
            raise UserError(f"{name} works on all ranks in one process", f"leave out {name}, or --processes")
    ended = start(prepared, progress=progress)
    ready, done = ended.ranks[0].last("ready"), ended.ranks[0].last("done")
    outcome = new_outcome(options, prepared.geometry, prepared.name, ready["runs"] if ready else [], Verdicts())
    if done is not None:
        for name in ("tokens", "reference_tokens", "acceptance", "near_ties", "steps", "statistics"):
            setattr(outcome, name, done[name])
    outcome.rank_states_digests = [(end.last("done") or {}).get("states", "") for end in ended.ranks]
    outcome.failure = _failure(ended)
    return outcome


def _failure(ended: Ended) -> Failure | None:
    """Why the run is no success: what a rank said, or how it ended without a word."""
    for rank, end in enumerate(ended.ranks):
        stopped, done = end.last("stopped"), end.last("done")
        if stopped is not None:
            return Failure("stopped", f"rank {rank}: {stopped['sentence']}", ended.steps, hint=stopped["hint"])
        if done is not None and done["failure"] is not None:
            return Failure("token", f"rank {rank}: {done['failure']}", ended.steps)
    for rank, end in enumerate(ended.ranks):
        if end.exit_code != 0:
            return Failure("stopped", f"the process of rank {rank} ended with {end.exit_code}", ended.steps)
    return None
