"""`kimi-k3-specdec kernels`: what is shipped, whether it is intact, and what it does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import _native
from ..decoding.options import RunOptions, check_served, parse_layers
from ..errors import UserError
from ..kernels import PACKAGE, inspection, shares
from .messages import DIFFERENT, progress, refusals

if TYPE_CHECKING:
    from rich.table import Table

HELP = "Look at the shipped gfx950 code objects: list, verify, count. None of it needs a GPU."

PROBLEM = 1

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Folder = Annotated[Path, typer.Option(help="Where manifest and code objects are; the installed ones if left out.",
                                      show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print plain values as JSON.")]
Debug = Annotated[bool, typer.Option(help="Show tracebacks.")]

LIST_HELP = (
    "List the code objects: symbol, target, geometry, registers, LDS, spills, sizes, sha256.\n\n"
    "Everything but name and geometry is read from the object itself. Exit status: 0 listed, 1 an object cannot be "
    "read, 2 no manifest."
)
VERIFY_HELP = (
    "Prove that the code objects are the ones that may run, a line each, `ok` or `problem`.\n\n"
    "Target and ABI of the manifest; of each object its sha256, registers and kernels as the manifest has them, no "
    "spill, no scratch_ or flat_ instruction, and every instruction decodes and can be executed. Exit status: 0 all "
    "ok, 1 a problem, 2 no manifest."
)
COUNT_HELP = (
    "Run one launch of layers in the emulator and count, by stage and workgroup, what its instructions do; say how "
    "evenly the weights are shared out, and which exchanges are on the critical path.\n\n"
    "\b\n"
    "  tasks      of all workgroups; in the seams a wave does one\n"
    "  KiB/CTA    weights of a workgroup: the most, the mean, their ratio\n"
    "  other KiB  what else all workgroups load: activations, states, flags\n"
    "  weights    loads marked non-temporal; `other` are all other loads\n"
    "  waits      times that a wave found nothing new and was parked\n"
    "  behind     polls that had to wait for weights of their own wave first\n"
    "  in flight  KiB of weights under way at a barrier, least and most CTA\n\n"
    "Counts are a rank's, the mean of all ranks. Waits depend on --schedule-seed, nothing else does. The balance of 1, "
    "4, 8 and 16 rows is computed from the task tables with a seeded random routing, and the counted run must agree "
    "with its own table. Exit status: 0 counted, 1 different from the reference or from the table, 2 cannot run."
)


@app.command("list", help=LIST_HELP)
def list_objects(folder: Folder = PACKAGE, as_json_text: AsJson = False, debug: Debug = False) -> None:
    """See LIST_HELP."""
    with refusals(debug):
        rows = inspection.listing(folder)
    if as_json_text:
        print(json.dumps(rows, indent=1))
    else:
        _print(_listing(rows))
    for row in rows:
        if row["problem"]:
            _print_line(f"problem: `{row['name']}`: {row['problem']}")
    if any(row["problem"] for row in rows):
        raise typer.Exit(PROBLEM)


def _listing(rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table()
    for column in ("name", "symbol", "target", "geometry"):
        table.add_column(column, overflow="fold")
    for column in ("ranks", "VGPR", "SGPR", "LDS", "spills", "code", "file"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("sha256", overflow="fold")
    for row in rows:
        keys = ("vgprs", "sgprs", "lds_bytes", "spills", "code_bytes", "file_bytes")
        numbers = [f"{row[key]:,}" if row.get(key) is not None else "-" for key in keys]
        table.add_row(row["name"], row.get("symbol", "-"), row.get("target", "-"), str(row["geometry"]),
                      str(row["ranks"]), *numbers, row.get("sha256", "-"))
    return table


@app.command(help=VERIFY_HELP)
def verify(folder: Folder = PACKAGE, as_json_text: AsJson = False, debug: Debug = False) -> None:
    """See VERIFY_HELP."""
    with refusals(debug):
        findings = inspection.verify(folder)
    if as_json_text:
        print(json.dumps([vars(finding) for finding in findings], indent=1))
    else:
        width = max(len(finding.topic) for finding in findings)
        for finding in findings:
            print(f"{finding.state:<7}  {finding.topic:<{width}}  {finding.found}")
            if finding.hint:
                print(f"{'':<7}  {'':<{width}}  hint: {finding.hint}")
    if any(finding.state != "ok" for finding in findings):
        raise typer.Exit(PROBLEM)


@app.command(help=COUNT_HELP)
def count(
    geometry: Annotated[str, typer.Option(help="k3, nano or nano-deep.")] = "nano",
    ranks: Annotated[int | None, typer.Option(help="Tensor-parallel ranks; 8 for k3, 2 for the others if left out.",
                                              show_default=False)] = None,
    requests: Annotated[int, typer.Option(help="Requests of the step.")] = RunOptions.requests,
    speculative_tokens: Annotated[
        int, typer.Option(help="Drafts of a request; rows = requests x (drafts + 1).")] = RunOptions.speculative_tokens,
    layers: Annotated[
        str | None, typer.Option(help="FIRST-LAST, of one launch; 13-13 of k3, 1-1 of the others if left out.",
                                 show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Of weights, inputs and the random routing.")] = RunOptions.seed,
    schedule_seed: Annotated[int, typer.Option(help="Of the order in which waves run.")] = RunOptions.schedule_seed,
    static: Annotated[bool, typer.Option("--static", help="Only what the task tables say; runs nothing.")] = False,
    svg: Annotated[Path | None, typer.Option(help="Draw workgroups x stages into this file.", metavar="FILE")] = None,
    as_json_text: AsJson = False,
    debug: Debug = False,
) -> None:
    """See COUNT_HELP."""
    with refusals(debug):
        if ranks is None:
            ranks = 8 if geometry == "k3" else 2
        options = RunOptions(geometry, ranks, requests, speculative_tokens, layers=parse_layers(layers), seed=seed,
                             schedule_seed=schedule_seed)
        report = _report(options, static=static, svg=svg)
    if as_json_text:
        print(json.dumps(report, indent=1))
    else:
        from .count_table import show

        show(report, _print, _print_line)
    counted = report["counted"]
    if counted is not None and not (counted["equal"] and counted["agrees"]):
        raise typer.Exit(DIFFERENT)


def _report(options: RunOptions, *, static: bool, svg: Path | None) -> dict[str, Any]:
    """Everything that `count` prints, as plain values."""
    if static and svg is not None:
        raise UserError("`--svg` draws what was counted, and `--static` counts nothing", "leave one of them out")
    if svg is not None and not svg.absolute().parent.is_dir():
        raise UserError(f"`{svg}` cannot be written: there is no folder `{svg.absolute().parent}`", "make it first")
    if options.layers is None:
        layer = 13 if options.geometry == "k3" else 1
        options = replace(options, layers=(layer, layer))
    check_served(options)
    served = _native.geometry(options.geometry, options.ranks)["served"]
    whole = served[options.layers[-1]] == "whole"
    report = {
        "geometry": options.geometry, "ranks": options.ranks, "requests": options.requests,
        "speculative_tokens": options.speculative_tokens, "rows": options.rows, "layers": list(options.layers),
        "bars": {"layer": _native.LAYER_BAR, "expert_phase": _native.EXPERT_BAR, "from_rows": _native.EXPERT_BAR_ROWS},
        "balance": shares.widths(options.geometry, options.ranks, options.seed, whole=whole),
        "hops": shares.hops(options.geometry, options.ranks, options.requests, options.rows_per_request, whole=whole),
        "kind": served[options.layers[-1]],
        "counted": None,
    }
    if static:
        return report
    from ..decoding.counting import count as count_run

    with progress() as show_progress:
        report["counted"] = count_run(options, show_progress)
    if svg is not None and report["counted"]["equal"]:
        from .count_svg import draw

        try:
            svg.write_text(draw(report))
        except OSError as error:
            raise UserError(f"`{svg}` cannot be written: {error.strerror}", "name a file that can") from error
    return report


def _console() -> Any:
    from rich.console import Console

    # Columns that are cut help nobody who reads a file.
    console = Console()
    return console if console.is_terminal else Console(width=220)


def _print(table: Any) -> None:
    _console().print(table)


def _print_line(line: str) -> None:
    _console().print(line, markup=False, highlight=False, soft_wrap=True)
