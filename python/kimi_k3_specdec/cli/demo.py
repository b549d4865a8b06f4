"""`kimi-k3-specdec demo`: a run that is equal, and a fault that is caught."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ..decoding.options import FaultSpec, RunOptions
from .messages import DIFFERENT, progress, refusals

if TYPE_CHECKING:
    from ..decoding.outcome import Outcome

HELP = "Decode a nano model on two emulated ranks, then inject a fault and show that the checks find it."

def command(
    steps: Annotated[int, typer.Option(help="Verify steps.")] = RunOptions.steps,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn, the fault too.")] = RunOptions.seed,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """See HELP."""
    # Seconds of imports (torch) that other commands and `--help` do without.
    from rich.console import Console

    from ..decoding.run import run
    from ..decoding.table import show

    options = RunOptions(steps=steps, seed=seed)
    fault = FaultSpec("nibble", 1, seed)
    with refusals(debug):
        with progress() as report:
            outcome = run(options, report)
        with progress() as report:
            faulty = run(replace(options, fault=fault), report)
    console = Console()
    show(outcome, console)
    for line in conclusion(outcome, faulty):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if not outcome.is_equal or faulty.is_equal:
        raise typer.Exit(DIFFERENT)


def conclusion(outcome: Outcome, faulty: Outcome) -> tuple[str, str, str]:
    """What ran, how it was checked, which injected fault was caught."""
    options, verdicts = outcome.options, outcome.verdicts
    # Bytes of states that nobody may touch are compared too, but they would drown the rest.
    values = sum(stage.elements for name, stage in verdicts.stages.items() if name != "state_memory")
    ran = (f"ran: {outcome.steps} verify steps of {options.rows} rows, {len(outcome.served)} of {outcome.num_layers} "
           f"layers in `{outcome.code_object}` on {options.ranks} emulated gfx950 ranks")
    state = "equal" if outcome.is_equal else "DIFFERENT"
    checked = (f"checked: {state}; {values:,} values of {len(verdicts.stages)} stages against the reference, worst "
               f"error / tolerance {verdicts.max_ratio:.3f}; {sum(map(len, outcome.tokens))} tokens against a "
               f"pure-reference run")
    if faulty.failure is None:
        return ran, checked, f"NOT caught: {faulty.fault} ({faulty.options.fault})"
    return ran, checked, f"caught: {faulty.fault} ({faulty.options.fault}): {faulty.failure.message}"
