"""An outcome as JSON: the same run gives the same bytes, but for what is measured."""

from __future__ import annotations

import math
import resource
from typing import Any

from .. import kernels
from .outcome import Failure, Outcome


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Plain values; what differs between two equal runs is in `timing` and in the fields named there."""
    options, statistics = outcome.options, outcome.statistics
    seconds = statistics.get("seconds", 0.0)
    instructions = statistics.get("wave_instructions", 0)
    timing = {
        # Those of polls are not work: how many there are is the schedule's doing.
        "wave_instructions_per_second": (instructions - statistics.get("poll_instructions", 0)) / seconds if seconds
        else 0.0,
        "matrix_instructions_per_second": statistics.get("mfma", 0) / seconds if seconds else 0.0,
        "seconds": outcome.seconds.get("total", 0.0),
        "emulator_seconds": seconds,
        "check_seconds": outcome.seconds.get("checks", 0.0),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    return {
        "equal": outcome.is_equal,
        "tokens_match_reference": _tokens_match(outcome),
        "max_error_over_tolerance": outcome.verdicts.max_ratio,
        "near_ties": outcome.near_ties,
        "device": options.device,
        "target": kernels.TARGET,
        "geometry": options.geometry,
        "ranks": options.ranks,
        "requests": options.requests,
        "speculative_tokens": options.speculative_tokens,
        "rows": options.rows,
        "steps": outcome.steps,
        "seed": options.seed,
        "schedule_seed": options.schedule_seed,
        "launches_per_step": outcome.launches_per_step,
        "specialized_layers": len(outcome.served),
        "stock_layers": outcome.num_layers - len(outcome.served),
        "tokens": outcome.tokens,
        "reference_tokens": outcome.reference_tokens,
        "acceptance": outcome.acceptance,
        "stages": {name: _stage(verdict) for name, verdict in outcome.verdicts.stages.items()},
        "code_objects": [code_object(outcome.code_object)],
        "wave_instructions": instructions,
        "poll_instructions": statistics.get("poll_instructions", 0),
        "matrix_instructions": statistics.get("mfma", 0),
        "masked_matrix_instructions": statistics.get("masked_mfma", 0),
        "payload_sha256": outcome.payload_digests,
        "states_sha256": outcome.states_digest,
        "rank_states_sha256": outcome.rank_states_digests,
        "fault": outcome.fault,
        "check": options.check,
        "schedule": options.schedule,
        "processes": options.processes,
        "memory": options.memory,
        "races": outcome.races,
        "schedules": [vars(explored) for explored in outcome.explored],
        "failure": None if outcome.failure is None else failure(outcome, outcome.failure),
        "command": options.command(),
        "wave_instructions_per_second": timing["wave_instructions_per_second"],
        "seconds": timing["seconds"],
        "peak_memory_bytes": timing["peak_memory_bytes"],
        "timing": timing,
    }


def _tokens_match(outcome: Outcome) -> bool | None:
    """None where no tokens are made: one layer alone."""
    if not outcome.tokens:
        return None
    failed = outcome.failure is not None and outcome.failure.kind == "token"
    return not failed and (outcome.near_ties > 0 or outcome.tokens == outcome.reference_tokens)


def _stage(verdict: Any) -> dict[str, float | int | None]:
    return {
        "error_over_tolerance": verdict.ratio,
        "error": verdict.error,
        "tolerance": verdict.tolerance,
        "max_error": verdict.max_error,
        "smallest_caught": verdict.smallest_caught if math.isfinite(verdict.smallest_caught) else None,
        "elements": verdict.elements,
    }


def failure(outcome: Outcome, found: Failure) -> dict[str, Any]:
    """Where a run went wrong, and the command that repeats just that."""
    difference = found.difference
    where = {} if difference is None else {
        "rank": difference.rank, "layer": difference.layer, "stage": difference.stage, "row": difference.row,
        "column": difference.column, "found": _number(difference.found), "expected": _number(difference.expected),
        "tolerance": difference.tolerance, "detail": difference.detail,
    }
    return {
        "kind": found.kind, "message": found.message, "step": found.step, **where,
        "machine_error": found.machine_error, "hint": found.hint,
        # The same run up to the step that failed, and one with nothing but the failing launch on the device: faster,
        # but another schedule, should that matter.
        "reproduce": outcome.options.command(steps=found.step + 1),
        "reproduce_launch": outcome.options.command(steps=found.step + 1, layers=found.run),
    }


def _number(value: float | None) -> float | str | None:
    """JSON has no NaN and no infinity."""
    return value if value is None or math.isfinite(value) else str(value)


def code_object(name: str) -> dict[str, Any]:
    """What the manifest says of a code object."""
    entry = next(entry for entry in kernels.manifest()["objects"] if entry["name"] == name)
    symbol = entry["symbols"][0]
    return {"name": name, "sha256": entry["sha256"], "vgprs": symbol["vgprs"], "lds_bytes": symbol["lds_bytes"]}
