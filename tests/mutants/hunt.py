"""Runs a mutant under some schedules and says what found it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

from kimi_k3_specdec.decoding.explore import schedules
from kimi_k3_specdec.decoding.options import RunOptions
from kimi_k3_specdec.decoding.outcome import Outcome
from kimi_k3_specdec.decoding.prepared import Prepared

OPTIONS = RunOptions(requests=2, speculative_tokens=1, steps=2, check="races", schedule="all", schedules=4)
"""Two steps, so that both parities and what a step leaves behind take part."""

MOST_SCHEDULES = 32
"""Where a race is wanted: an access that is far too early ends a run with a located error before the check has two
accesses to compare."""


@dataclass(frozen=True)
class Find:
    """What one schedule showed."""

    by: tuple[str, ...]
    """Of `races`, `result` and `error`."""
    message: str
    command: str

    @staticmethod
    def of(outcome: Outcome) -> Find | None:
        """None when nothing was found."""
        failure = outcome.failure
        by = ["races"] if outcome.races else []
        if failure is not None:
            # A deadlock is told as the value that never came, with the machine's located error beside it.
            by += ["error"] if failure.machine_error is not None else ["result"]
        message = outcome.races[0]["message"] if outcome.races else failure.message if failure else ""
        return Find(tuple(by), message, outcome.options.command()) if by else None

    def __str__(self) -> str:
        """A column of the table."""
        right = "" if {"result", "error"} & set(self.by) else ", the result being right"
        return " and ".join(self.by) + right


def hunt(prepared: Prepared, code_object: bytes, *, wants_race: bool) -> list[Find]:
    """What the schedules show, up to the first that suffices: a race where one is wanted, else anything."""
    mutated = copy.copy(prepared)
    mutated.code_object = code_object
    finds = []
    for options in schedules(replace(OPTIONS, schedules=MOST_SCHEDULES) if wants_race else OPTIONS):
        find = Find.of(mutated.decode(options, lambda *_: None))
        finds += [find] if find else []
        if find and ("races" in find.by or not wants_race):
            break
    return finds
