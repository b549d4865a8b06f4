"""An outcome for the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from .outcome import Outcome
from .report import as_json, failure


def show(outcome: Outcome, console: Console) -> None:
    """Prints the run, its stages, and what was wrong."""
    report = as_json(outcome)
    console.print(_summary(outcome, report))
    if report["stages"]:
        console.print(_stages(report))
    if outcome.failure is not None:
        _show_failure(outcome, console)
    for race in outcome.races:
        text = f"{race['message']}\n  reproduce: {race['command']}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _summary(outcome: Outcome, report: dict) -> Table:
    options = outcome.options
    table = Table(title=f"{options.geometry} on {options.ranks} ranks, {report['device']} ({report['target']})",
                  show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    obj = report["code_objects"][0]
    rows = [
        ("rows of a step", f"{options.requests} requests x ({options.speculative_tokens} drafts + 1) = {options.rows}"),
        ("steps compared", str(outcome.steps)),
        ("layers on the device", f"{report['specialized_layers']} of {outcome.num_layers}, "
                                 f"{report['launches_per_step']} launches a step and rank"),
        ("code object", f"{obj['name']}, {obj['vgprs']} VGPRs, {obj['lds_bytes']} bytes of LDS"),
        ("sha256", obj["sha256"]),
        ("emulated", f"{report['wave_instructions']:,} wave instructions, "
                     f"{report['wave_instructions_per_second'] / 1e6:.2f} million a second outside polls, "
                     f"{report['timing']['matrix_instructions_per_second'] / 1e6:.2f} million matrix instructions"
         if outcome.statistics else "not counted, and no stage compared: this device keeps no exchanges"),
        ("time", f"{report['seconds']:.1f} s in all, {report['timing']['emulator_seconds']:.1f} s emulator, "
                 f"{report['timing']['check_seconds']:.1f} s checks"),
        ("peak memory", f"{report['peak_memory_bytes'] / 2**30:.2f} GiB"),
    ]
    for i, (tokens, counts) in enumerate(zip(outcome.tokens, outcome.acceptance, strict=False)):
        accepted = ", ".join(f"{n} x {drafts}" for drafts, n in enumerate(counts) if n)
        rows.append((f"request {i}", f"{len(tokens)} tokens; accepted drafts: {accepted or 'none'}"))
    if outcome.explored:
        found = [explored for explored in outcome.explored if explored.found]
        rows.append(("schedules", f"{len(outcome.explored)} explored, {len(found)} with findings"))
    if options.check is not None:
        rows.append((options.check, f"{len(outcome.races)} found" if outcome.races else "none found"))
    if outcome.near_ties:
        rows.append(("near-ties", str(outcome.near_ties)))
    if outcome.fault is not None:
        rows.append(("injected fault", outcome.fault or "has not struck"))
    for row in rows:
        table.add_row(*row)
    return table


def _stages(report: dict) -> Table:
    table = Table(title="worst error of each stage against its tolerance")
    for header in ("stage", "error", "tolerance", "ratio", "caught from", "values"):
        table.add_column(header, justify="left" if header == "stage" else "right", no_wrap=True)
    for name, stage in report["stages"].items():
        caught = stage["smallest_caught"]
        exact = caught == 0
        smallest = "any bit" if exact else "-" if caught is None else f"{caught:.1e}"
        table.add_row(name, f"{stage['error']:.2e}", "exact" if exact else f"{stage['tolerance']:.2e}",
                      f"{stage['error_over_tolerance']:.3f}", smallest, f"{stage['elements']:,}")
    return table


def _show_failure(outcome: Outcome, console: Console) -> None:
    assert outcome.failure is not None
    found = failure(outcome, outcome.failure)
    console.print(f"different: {found['message']}", markup=False, highlight=False, soft_wrap=True)
    if found["machine_error"] and found["kind"] != "machine":
        console.print(f"the machine then stopped: {found['machine_error']}", markup=False, highlight=False,
                      soft_wrap=True)
    console.print(f"reproduce: {found['reproduce']}", markup=False, highlight=False, soft_wrap=True)
    if found["reproduce_launch"] != found["reproduce"]:
        console.print(f"that launch alone: {found['reproduce_launch']}", markup=False, highlight=False, soft_wrap=True)
