"""All ranks stop together, at the same step, with one sentence that says why (spec/runtime.md §9).

What holds: behind every step each rank queues a copy of what its device has to say; the copies that have arrived are
booked, and the ranks exchange their books without waiting: the vote of a step is looked at behind the next one. A rank
that gives up in step n therefore stops all ranks behind step n + 1 where its report has arrived by the end of step n,
as it always has in the emulator, and behind step n + 2 at the latest elsewhere. No token of step n may leave before the
output rank has read its alarm words behind its last launch of step n: `copy_alarms`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .alarms import AlarmWords
from .peer import Gathering, gather
from .runner import Runner

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
        self._executor, self._runner = executor, runner
        self._vote: Gathering | None = None
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
        self._check()
        self._vote = Gathering(books, self._runner.group, self._runner.options.ranks)

    def copy_alarms(self) -> Callable[[], bool]:
        """Queues a copy of the alarm words to the calling thread's stream, beside that of the step's tokens. What it
        returns is asked once both have arrived: whether no rank has told this one that it gave up, so that the tokens
        may leave.
        """
        if self._words is not None:
            return self._words.copy()
        return lambda: not any(self._runner.engine.alarms(self._runner.rank))

    def _check(self) -> None:
        """Looks at the vote behind the step before."""
        if self._vote is None:
            return
        try:
            books = self._vote.wait(self._patience())
        except (RuntimeError, TimeoutError) as lost:
            # A rank has gone or hangs, and nothing collective works any more.
            raise self.stopped() from lost
        if not self._executor.verdict(books):
            raise self.stopped(self._told())

    def _patience(self) -> float | None:
        """Seconds to wait for the other ranks' books: for ever while nothing is wrong here, as for any collective."""
        is_wrong = self._executor.has_failed() or self._executor.is_alarmed() or self._runner.watcher.lost
        return self._runner.options.timeout_seconds if is_wrong else None

    def _told(self) -> list[list[int]]:
        """The records of every rank: all of them came to the same verdict, so all are here."""
        try:
            return gather(self._executor.failure_words(), self._runner.group, self._runner.options.ranks)
        except RuntimeError:
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
