"""`kimi-k3-specdec emulate`: runs a case, described by a file, on the gfx950 emulator."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import _native
from ..emulator.case import run_case
from .input import read
from .messages import DIFFERENT, refusals

HELP = (
    "Run code objects for gfx950 on the emulator: memory, launches and read-backs as CASE.json says.\n\n"
    "The file names allocations at fixed addresses, files to write there, launches (code object, symbol, grid, block, "
    "kernarg bytes) on one or more ranks, and memory to read back into files; docs/emulator.md has the format. File "
    "names are relative to the file's folder (`-` reads stdin: to the current one). All launches run at once. The "
    "figures are printed as one line of JSON.\n\n"
    "Exit status: 0 every wave ended and the read-backs are written; 1 a kernel did what it may not, the error says "
    "where; 2 a bad case. After an error no read-back is written."
)

FILE_HINT = "name a case's JSON file, or `-` for stdin; docs/emulator.md has the format"
MAX_SEED = 2**64 - 1


def command(
    case: Annotated[str, typer.Argument(help="JSON file, `-` for stdin.", metavar="CASE.json", show_default=False)],
    schedule_seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="Seed of the order in which waves run.", metavar="N")] = 0,
    stall: Annotated[
        str,
        typer.Option(help="When every wave waits: `error` lists who waits for what, `advance` lets the clock jump a "
                          "second, so that waits with a time-out give up.", metavar="error|advance"),
    ] = "error",
    budget: Annotated[
        int | None, typer.Option(min=1, max=MAX_SEED, help="Wave instructions after which the run is stopped.",
                                 metavar="N", show_default="2^40")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the figures alone, no warnings; they are JSON in any case.")] = False,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """See HELP."""
    with refusals(debug):
        text, warnings = _native.parse_case(read(case, FILE_HINT))
        for warning in [] if as_json else warnings:
            print(f"warning: {warning}", file=sys.stderr)
        folder = Path() if case == "-" else Path(case).parent
        try:
            figures = run_case(json.loads(text), folder, schedule_seed=schedule_seed, stall=stall, budget=budget)
        except _native.MachineError as error:
            if debug:
                raise
            stopped(error)
    print(json.dumps(figures))


def stopped(error: Any) -> None:
    """What a kernel did, and where."""
    print(f"error: {error}", file=sys.stderr)
    print(f"hint: {error.hint}", file=sys.stderr)
    raise typer.Exit(DIFFERENT)
