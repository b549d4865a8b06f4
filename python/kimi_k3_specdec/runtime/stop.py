"""All ranks stop together, at the same step, with one sentence that says why (spec/runtime.md §9).

What holds: behind every step each rank queues a copy of what its device has to say; the copies that have arrived are
booked, and the ranks show each other their books without waiting: the vote of a step is looked at behind the next one,
and a vote that one rank sees whole is there for all of them, whoever ends meanwhile. A rank that gives up in step n
therefore stops all ranks behind step n + 1 where its report has arrived by the end of step n, as it always has in the
emulator, and behind step n + 2 at the latest elsewhere. No token of step n may leave before the output rank has read
its alarm words behind its last launch of step n: `copy_alarms`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from .alarms import AlarmWords
from .peer import gather
from .runner import Runner

LOOK_SECONDS = 0.05
"""Between two looks at what may be wrong, while books are missing."""

TEXT = "Kimi-K3 specialized decode: {}; stopping the engine (decode_backend=auto runs vLLM's decode)"


class EngineStopped(RuntimeError):
    """Every rank raises it at the same step. `hint` says what to do, `details` has a line for each record."""

    def __init__(self, diagnosis: dict[str, Any]) -> None:
        """`diagnosis` as the executor gives it."""
        super().__init__(TEXT.format(diagnosis["sentence"]))
        self.culprit: int | None = diagnosis["culprit"]
        self.hint: str = diagnosis["hint"]
        self.details: list[str] = diagnosis["details"]


class FailStop:
    """Votes of one rank, step by step."""

    def __init__(self, executor: Any, runner: Runner, device: torch.device) -> None:
        """`executor`: `_native.Executor` of the runner's rank; `device`: where torch keeps this rank's tensors."""
        self._executor, self._runner, self._board = executor, runner, runner.board
        self._words = None
        if not runner.runs_on_host_memory:
            self._words = AlarmWords(runner.engine.addresses(runner.rank)["peer"], device)

    def after_step(self) -> None:
        """Once per step on every rank. Raises EngineStopped on every rank that is still there, at the same step."""
        books = self._executor.after_step()
        if books is None:
            return
        if self._runner.runs_on_host_memory:
            # The copies of the report run when asked to, like everything else.
            self._runner.wait()
            books = self._executor.after_step()
        before = self._board.collect()
        if before is None:
            before = self._wait()
            books = self._executor.after_step()
        if before and not self._executor.verdict(before):
            raise self.stopped(self._told())
        self._board.cast(books)

    def copy_alarms(self) -> Callable[[], bool]:
        """Queues a copy of the alarm words to the calling thread's stream, beside that of the step's tokens. What it
        returns is asked once both have arrived: whether no rank has told this one that it gave up, so that the tokens
        may leave.
        """
        if self._words is not None:
            return self._words.copy()
        return lambda: not any(self._runner.engine.alarms(self._runner.rank))

    def _wait(self) -> bytes:
        """The books of the step before that were missing: waited for as long as nothing is wrong here, as in any
        collective, and as long as a kernel waits once something is.
        """
        deadline = None
        while not self._board.wait(LOOK_SECONDS):
            missing = self._board.missing()
            if any(rank in self._runner.watcher.lost for rank in missing):
                raise self.stopped()
            # Reports that arrive meanwhile may be the first to say that something is wrong.
            self._executor.after_step()
            is_wrong = self._executor.has_failed() or self._executor.is_alarmed() or self._runner.watcher.lost
            if deadline is None and is_wrong:
                deadline = time.monotonic() + self._runner.options.timeout_seconds
            if deadline is not None and time.monotonic() > deadline:
                self._executor.miss(missing)
                raise self.stopped()
        return self._board.collect()

    def _told(self) -> list[list[int]]:
        """The records of every rank: all of them come to the same verdict, and to here, but for those that have ended
        or hang meanwhile.
        """
        options = self._runner.options
        try:
            return gather(self._executor.failure_words(), self._runner.group, options.ranks, options.timeout_seconds)
        except (RuntimeError, TimeoutError):
            return []

    def stopped(self, told: list[list[int]] | None = None) -> EngineStopped:
        """This rank's account of the stop, with the records that other ranks `told`; nothing is launched any more."""
        self._executor.stop()
        missing = sorted(self._runner.watcher.lost)
        diagnosis = self._executor.diagnosis(missing, told or [])
        signal = self._runner.watcher.signal_name
        if signal is not None and not missing and diagnosis["culprit"] is None:
            diagnosis["sentence"] = f"this process was told to end ({signal})"
        return EngineStopped(diagnosis)
