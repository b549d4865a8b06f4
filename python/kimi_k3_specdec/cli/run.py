"""`kimi-k3-specdec run`: decode, compare every stage, report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..decoding.options import CHECKS, DEVICES, FAULT_KINDS, MEMORIES, SCHEDULES, FaultSpec, RunOptions, parse_layers
from ..errors import UserError
from .messages import DIFFERENT, progress, refusals

HELP = (
    "Decode a seeded model by speculative-verify steps, the served layers in the shipped kernels on every rank.\n\n"
    "Every stage of every layer is compared with the reference on the device's own inputs, and the tokens with a "
    "pure-reference run. `--check races` also reports accesses to memory that nothing orders, whatever the result. "
    "Exit status: 0 equal and no race, 1 different or a race, 2 cannot run."
)

DEFAULTS = RunOptions()


def command(
    geometry: Annotated[
        str, typer.Option(help="k3 (one launch of layers, see --layers), nano or nano-deep.")] = DEFAULTS.geometry,
    ranks: Annotated[int, typer.Option(help="Tensor-parallel ranks.")] = DEFAULTS.ranks,
    requests: Annotated[int, typer.Option(help="Requests of a step.")] = DEFAULTS.requests,
    speculative_tokens: Annotated[
        int, typer.Option(help="Drafts of a request; rows = requests x (drafts + 1).")] = DEFAULTS.speculative_tokens,
    steps: Annotated[int, typer.Option(help="Verify steps.")] = DEFAULTS.steps,
    layers: Annotated[str | None, typer.Option(help="FIRST-LAST: run only these on the device.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, prompts, drafts and state slots.")] = DEFAULTS.seed,
    schedule_seed: Annotated[int, typer.Option(help="Of the order in which waves run.")] = DEFAULTS.schedule_seed,
    device: Annotated[str, typer.Option(help=", ".join(DEVICES))] = DEFAULTS.device,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Use this checkpoint instead of a seeded one.")] = None,
    fault: Annotated[
        str | None,
        typer.Option(help=f"Inject KIND@RANK[:SEED]; KIND: {', '.join(FAULT_KINDS)}.", hidden=True)] = None,
    check: Annotated[
        str | None, typer.Option(help=f"Check more than results: {', '.join(CHECKS)}.")] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help=f"How waves take turns: {', '.join(SCHEDULES)}, or all of them where there are several "
                          "schedules; default: turns, or all.")] = None,
    memory: Annotated[
        str, typer.Option(help="strong: stores are seen at once; weak: as little and late as the hardware may show "
                               "them.")] = DEFAULTS.memory,
    schedules: Annotated[int, typer.Option(help="Run under so many schedules.")] = DEFAULTS.schedules,
    processes: Annotated[
        bool, typer.Option("--processes", help="Run every rank in a process of its own, like vLLM's workers: tokens "
                                               "and states are compared, not stages.")] = DEFAULTS.processes,
    as_json_text: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """See HELP."""
    # Seconds of imports (torch) that other commands and `--help` do without.
    from rich.console import Console

    from ..decoding.report import as_json
    from ..decoding.run import run
    from ..decoding.table import show

    with refusals(debug):
        if device not in DEVICES:
            raise UserError(f"unknown device `{device}`", f"choose one of {', '.join(DEVICES)}")
        if check is not None and check not in CHECKS:
            raise UserError(f"unknown check `{check}`", f"choose one of {', '.join(CHECKS)}")
        if memory not in MEMORIES:
            raise UserError(f"unknown memory `{memory}`", f"choose one of {', '.join(MEMORIES)}")
        kinds = (*SCHEDULES, "all") if schedules > 1 else SCHEDULES
        if schedule is not None and schedule not in kinds:
            raise UserError(f"unknown schedule `{schedule}`", f"choose one of {', '.join(kinds)}")
        options = RunOptions(geometry, ranks, requests, speculative_tokens, steps, parse_layers(layers), seed,
                             schedule_seed, device, checkpoint, FaultSpec.parse(fault) if fault else None, check,
                             schedule or ("all" if schedules > 1 else "turns"), memory, schedules, processes)
        with progress() as report:
            outcome = run(options, report)
    if as_json_text:
        print(json.dumps(as_json(outcome), indent=1))
    else:
        show(outcome, Console())
    if not outcome.is_clean:
        raise typer.Exit(DIFFERENT)
