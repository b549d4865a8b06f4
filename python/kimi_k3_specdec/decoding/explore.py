"""The same run under many schedules, each replayed by one command."""

from __future__ import annotations

from dataclasses import replace

from .options import SCHEDULES, RunOptions
from .outcome import Explored, Outcome
from .prepared import Prepared
from .session import Progress


def schedules(options: RunOptions) -> list[RunOptions]:
    """The runs of an exploration: seeds from the one asked for on, every kind of schedule in turn."""
    if options.schedules == 1:
        return [options]
    kinds = SCHEDULES if options.schedule == "all" else (options.schedule,)
    return [replace(options, schedule=kinds[i % len(kinds)], schedule_seed=options.schedule_seed + i, schedules=1)
            for i in range(options.schedules)]


def explore(prepared: Prepared, progress: Progress) -> Outcome:
    """Runs every schedule. The outcome is the first that is different, else the last, with the races of all."""
    runs = schedules(prepared.options)
    if len(runs) == 1:
        return prepared.decode(runs[0], progress)
    explored: list[Explored] = []
    races: dict[tuple, dict] = {}
    shown: Outcome | None = None
    for i, options in enumerate(runs):
        progress("schedules", i, len(runs))
        outcome = prepared.decode(options, lambda *_: None)
        found = None if outcome.is_clean else "different" if not outcome.is_equal else "races"
        explored.append(Explored(options.schedule, options.schedule_seed, found, options.command()))
        for race in outcome.races:
            place = (race["kind"], *race["first"]["source"], "", *race["second"]["source"])
            known = races.setdefault(place, race | {"count": 0})
            known["count"] += race["count"]
        if shown is None or shown.is_equal:
            shown = outcome
    progress("schedules", len(runs), len(runs))
    assert shown is not None, "an exploration has schedules"
    shown.explored, shown.races = explored, list(races.values())
    return shown
