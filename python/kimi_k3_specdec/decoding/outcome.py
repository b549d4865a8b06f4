"""What a run found out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..reference.geometry import Geometry
from ..reference.weights import RankWeights
from .checks.run import RunRecord, check_run
from .checks.verdicts import Difference, StageDiffers, Verdicts
from .options import RunOptions


@dataclass
class Failure:
    """Why a run is not equal to the reference."""

    kind: str
    """`stage`, `machine` or `token`."""
    message: str
    step: int
    run: tuple[int, int] | None = None
    """The layers of the launch it happened in."""
    difference: Difference | None = None
    machine_error: str | None = None
    """What the machine said, where it stopped."""
    hint: str | None = None


NEVER_WRITTEN = "memory that nobody has written"
"""In the emulator's words."""


def check_launch(record: RunRecord, weights: list[RankWeights], verdicts: Verdicts,
                 error: Exception | None) -> Failure | None:
    """Checks a launch that may have ended with the machine's `error`; without exchanges that is all that can be said.

    Of a deadlock the first value that was never stored is the cause and the error names those who wait for it; any
    other error is itself the cause of what was not stored. A read of memory that nobody has written, such as an expert
    that the reference did not pick, stops a launch before its witness is complete: the error is then the cause too.
    """
    run, said, hint = (record.first, record.last), None if error is None else str(error), getattr(error, "hint", None)
    if not record.exchanges:
        return None if said is None else Failure("machine", said, verdicts.step, run, None, said, hint)
    try:
        check_run(record, weights, verdicts)
    except StageDiffers as differs:
        found = differs.difference
        is_stored = found.found is not None and (said is None or NEVER_WRITTEN not in said)
        if said is None or is_stored or said.startswith("deadlock"):
            return Failure("stage", str(found), found.step, run, found, said, hint)
        return Failure("machine", said, found.step, run, found, said, hint)
    return None if said is None else Failure("machine", said, verdicts.step, run, None, said, hint)


@dataclass
class Explored:
    """One schedule of an exploration."""

    schedule: str
    seed: int
    found: str | None
    """`different`, `races` or nothing."""
    command: str
    """Repeats it."""


@dataclass
class Outcome:
    """Everything that the report shows."""

    options: RunOptions
    code_object: str
    served: list[int]
    num_layers: int
    launches_per_step: int
    verdicts: Verdicts
    tokens: list[list[int]] = field(default_factory=list)
    reference_tokens: list[list[int]] = field(default_factory=list)
    acceptance: list[list[int]] = field(default_factory=list)
    """By request: how many steps accepted 0, 1, ... drafts."""
    near_ties: int = 0
    steps: int = 0
    """Steps that were compared to their end."""
    failure: Failure | None = None
    fault: str | None = None
    """What was injected, in words."""
    experts: dict[int, int] = field(default_factory=dict)
    """By layer, how many different experts its rows picked; of a launch of real layers."""
    statistics: dict[str, Any] = field(default_factory=dict)
    payload_digests: list[str] = field(default_factory=list)
    states_digest: str = ""
    rank_states_digests: list[str] = field(default_factory=list)
    """By rank, of the states alone: the same whether ranks are processes or not."""
    seconds: dict[str, float] = field(default_factory=dict)
    races: list[dict[str, Any]] = field(default_factory=list)
    """Reports of the race check, each with the command that shows it again."""
    explored: list[Explored] = field(default_factory=list)
    """Every schedule, when more than one was run."""

    @property
    def is_equal(self) -> bool:
        """Whether every value was what it had to be."""
        return self.failure is None

    @property
    def is_clean(self) -> bool:
        """Whether no check found anything."""
        return self.is_equal and not self.races


def new_outcome(options: RunOptions, geometry: Geometry, code_object: str, runs: list[tuple[int, int]],
                verdicts: Verdicts) -> Outcome:
    """An outcome of nothing yet."""
    served = [layer for first, last in runs for layer in range(first, last + 1)]
    return Outcome(options, code_object, served, geometry.num_layers, len(runs), verdicts,
                   acceptance=[[0] * options.rows_per_request for _ in range(options.requests)])
