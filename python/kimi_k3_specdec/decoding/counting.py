"""What the kernels do in one launch of layers, by stage and workgroup, beside what the task tables say they should."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _native
from ..kernels import shares
from ..reference.geometry import by_name
from .machine import load_code_objects
from .options import RunOptions
from .outcome import Outcome
from .real_layers import run_layers
from .session import Progress

OTHER_BINS = ("between_stages", "scrub")
"""What is counted behind the stages: the loop over the layers, and the clearing of old rows."""

SUMMED = ("instructions", "mfma", "weight_loads", "vector_loads", "lds_dma", "vector_stores", "atomics", "scalar_loads",
          "lds", "weight_bytes", "other_bytes", "stored_bytes", "waitcnts", "barriers", "polls", "parks",
          "polls_behind_weights")
"""Counters that are given as a rank's sum, the mean of all ranks."""


def count(options: RunOptions, progress: Progress) -> dict[str, Any]:
    """Runs `options.layers` once and reports, as plain values."""
    name, code_object = load_code_objects(options.geometry, options.ranks)
    outcome = run_layers(options, by_name(options.geometry), name, code_object, progress, count_stages=True)
    if outcome.failure is not None:
        return {"equal": False, "failure": outcome.failure.message, "agrees": False}
    expected = _expected(outcome)
    stages = _stages(outcome, expected)
    layer = np.sum([stage["cta_bytes"] for stage in stages], axis=0)
    phase = np.sum([stage["cta_bytes"] for stage in stages if stage["stage"] in _native.EXPERT_PHASE], axis=0)
    return {
        "equal": True,
        "failure": None,
        "experts": outcome.experts,
        "stages": stages,
        "counted_layer": shares.spread(layer.tolist()),
        "counted_expert_phase": shares.spread(phase.tolist()),
        "cta_bytes": layer.tolist(),
        "agrees": all(stage["agrees"] for stage in stages),
        "code_object": name,
        "wave_instructions": outcome.statistics["wave_instructions"],
        "masked_mfma": outcome.statistics["masked_mfma"],
        "emulator_seconds": outcome.statistics["seconds"],
    }


def _expected(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """By stage: tasks, tasks and bytes of weights by workgroup, summed over the launch's layers, from the tables."""
    options, totals = outcome.options, {}
    served = _native.geometry(options.geometry, options.ranks)["served"]
    for layer, experts in outcome.experts.items():
        found = shares.share(options.geometry, options.ranks, options.requests, options.rows_per_request, experts,
                             whole=served[layer] == "whole")
        for stage in found["stages"]:
            # Only the last layer's output has waves of its own: the next layer's first stage takes the others.
            if stage["stage"] == "output" and layer != max(outcome.experts):
                continue
            total = totals.setdefault(stage["stage"], {"tasks": 0, "cta_bytes": 0, "cta_tasks": 0})
            total["tasks"] += stage["tasks"]
            for key in ("cta_bytes", "cta_tasks"):
                total[key] = total[key] + np.array(stage[key], dtype=np.uint64)
    return totals


def _stages(outcome: Outcome, expected: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    counted, ranks = outcome.statistics["stages"], outcome.options.ranks
    names = (*_native.stage_names(), *OTHER_BINS)
    arrays = {key: np.frombuffer(data, np.uint64).reshape(ranks, len(names), -1) for key, data in counted.items()}
    grid = arrays["instructions"].shape[2]
    nothing = {"tasks": 0, "cta_bytes": np.zeros(grid, np.uint64), "cta_tasks": np.zeros(grid, np.uint64)}
    rows = []
    for index, name in enumerate(names):
        if not arrays["instructions"][:, index].any():
            continue
        planned = expected.get(name, nothing)
        weights = arrays["weight_bytes"][:, index]
        # A workgroup without a task passes by; the two stages behind one wait share its barrier.
        waiting = arrays["weights_in_flight"][:, index][arrays["barriers"][:, index] > 0]
        rows.append({
            "stage": name,
            "tasks": planned["tasks"],
            # What a workgroup loads is the same on every rank, or the tables would not say it.
            "agrees": bool((weights == planned["cta_bytes"]).all()),
            "cta_bytes": weights.max(0).tolist(),
            "cta_instructions": arrays["instructions"][:, index].max(0).tolist(),
            "weights": shares.spread(weights.max(0).tolist()),
            "weights_in_flight": [int(waiting.min()), int(waiting.max())] if waiting.any() else None,
            **{key: round(float(arrays[key][:, index].sum()) / ranks) for key in SUMMED},
        })
    return rows

