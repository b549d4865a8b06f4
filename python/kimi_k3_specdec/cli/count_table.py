"""What `kernels count` found, for the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.table import Table

KIB = 1024
COLUMNS = (
    ("instructions", "instructions"), ("MFMA", "mfma"), ("weights", "weight_loads"), ("other", "vector_loads"),
    ("to LDS", "lds_dma"), ("stores", "vector_stores"), ("atomics", "atomics"), ("scalar", "scalar_loads"),
    ("LDS", "lds"), ("waits", "parks"), ("behind", "polls_behind_weights"),
)
"""Header and counter."""


def show(report: dict[str, Any], print_table: Callable[[Table], None], print_line: Callable[[str], None]) -> None:
    """Prints stages, balance, hops, and what of it misses its bar."""
    counted = report["counted"]
    if counted is not None and not counted["equal"]:
        print_line(f"different: {counted['failure']}")
    elif counted is not None:
        print_table(_stages(report))
        print_line(conclusion(report))
    print_table(_balance(report))
    for line in missed(report):
        print_line(line)
    print_line(hops(report))


def _stages(report: dict[str, Any]) -> Table:
    first, last = report["layers"]
    table = Table(title=f"{report['geometry']} on {report['ranks']} ranks, layers {first}-{last}, "
                        f"{report['requests']} requests x ({report['speculative_tokens']} drafts + 1) = "
                        f"{report['rows']} rows")
    headers = ("stage", "tasks", "KiB/CTA max", "mean", "ratio", "other KiB", *(name for name, _ in COLUMNS),
               "in flight KiB")
    for header in headers:
        table.add_column(header, justify="left" if header == "stage" else "right")
    for stage in report["counted"]["stages"]:
        weights, flight = stage["weights"], stage["weights_in_flight"]
        shared = ("-",) * 3 if weights["max"] == 0 else (
            f"{weights['max'] / KIB:,.0f}", f"{weights['mean'] / KIB:,.1f}", f"{weights['ratio']:.2f}")
        counts = (f"{stage[key]:,}" if stage[key] else "-" for _, key in COLUMNS)
        table.add_row(stage["stage"], f"{stage['tasks']:,}" if stage["tasks"] else "-", *shared,
                      f"{stage['other_bytes'] / KIB:,.0f}", *counts,
                      "-" if flight is None else f"{flight[0] / KIB:,.0f} to {flight[1] / KIB:,.0f}")
    return table


def conclusion(report: dict[str, Any]) -> str:
    """The counted launch as a whole, as a sentence."""
    counted = report["counted"]
    layer, phase = counted["counted_layer"], counted["counted_expert_phase"]
    experts = ", ".join(str(n) for n in counted["experts"].values())
    wrong = [stage["stage"] for stage in counted["stages"] if not stage["agrees"]]
    agreement = (f"NOT what the task table says in {', '.join(wrong)}" if wrong
                 else "in every stage and workgroup what the task table says")
    return (f"counted: equal to the reference; {experts} experts; {layer['max'] / KIB:,.0f} KiB of weights on the "
            f"workgroup with the most, max / mean {layer['ratio']:.3f}, expert phase {phase['ratio']:.3f}; {agreement}")


def _balance(report: dict[str, Any]) -> Table:
    bars = report["bars"]
    table = Table(title=f"bytes of weights a workgroup, max / mean, {report['kind']} layer, random routing")
    for header in ("rows", "step", "experts", "KiB max", "mean", f"layer (bar {bars['layer']:.2f})",
                   f"expert phase (bar {bars['expert_phase']:.2f})"):
        table.add_column(header, justify="right")
    for width in report["balance"]:
        layer, phase = width["layer"], width["expert_phase"]
        # One row is no verify step: a launch refuses it, and only its shares are known.
        step = f"{width['requests']} x {width['rows_per_request']}" + (" (no step)" if width["rows"] == 1 else "")
        table.add_row(str(width["rows"]), step, str(width["experts"]), f"{layer['max'] / KIB:,.0f}",
                      f"{layer['mean'] / KIB:,.1f}", _judged(layer["ratio"], width["layer_holds"]),
                      _judged(phase["ratio"], width["expert_phase_holds"]))
    return table


def _judged(ratio: float, holds: bool | None) -> str:
    return f"{ratio:.3f} {'no bar' if holds is None else 'ok' if holds else 'MISSED'}"


def missed(report: dict[str, Any]) -> list[str]:
    """A sentence for each bar that a width misses."""
    bars, lines = report["bars"], []
    for width in report["balance"]:
        for key, bar, what in (("layer", bars["layer"], "the layer"),
                               ("expert_phase", bars["expert_phase"], "the expert phase")):
            if width[f"{key}_holds"] is False:
                lines.append(f"missed: at {width['rows']} rows {what} has max / mean {width[key]['ratio']:.3f}, more "
                             f"than {bar:.2f}")
    return lines


def hops(report: dict[str, Any]) -> str:
    """The critical path, as a sentence."""
    found = report["hops"]
    names = ", ".join(hop["region"] + (" (between ranks)" if hop["between_ranks"] else "") for hop in found)
    return f"{len(found)} hops on the critical path of a {report['kind']} layer: {names}"
