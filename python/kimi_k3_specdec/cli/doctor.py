"""`kimi-k3-specdec doctor`: what this machine has, and what of it keeps Kimi-K3 from being served."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import _native
from ..doctor import Places, gather
from ..errors import UserError
from .input import read
from .messages import refusals

if TYPE_CHECKING:
    from rich.table import Table

HELP = (
    "Say what this machine has and what of it keeps Kimi-K3 from being served: GPUs, drivers, peer memory, versions, "
    "environment variables, code objects.\n\n"
    "Each line is `ok`, `problem`, or `not here` for what is absent or cannot be known, with what was found and what "
    "to do. Needs no GPU. Exit status: 0 no problem, 1 a problem, 2 the facts cannot be read."
)

PROBLEM = 1
FACTS_HINT = "pass what `doctor --print-facts` prints, as a file or `-` for stdin"


def command(
    facts: Annotated[
        str | None,
        typer.Option(help="Judge the facts of this JSON file, not this machine's; `-` reads stdin.", metavar="FILE"),
    ] = None,
    print_facts: Annotated[
        bool, typer.Option("--print-facts", help="Print the facts as JSON, to edit and give back, and stop.")] = False,
    as_json_text: Annotated[bool, typer.Option("--json", help="Print facts, lines and verdict as JSON.")] = False,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """See HELP."""
    with refusals(debug):
        if print_facts and as_json_text:
            raise UserError("`--print-facts` and `--json` exclude each other", "`--json` prints the facts too")
        text = json.dumps(gather(Places(), warn)) if facts is None else read(facts, FACTS_HINT)
        judged = json.loads(_native.doctor(text))
    for warning in judged["warnings"]:
        warn(warning)
    if print_facts:
        print(json.dumps(judged["facts"], indent=1))
        return
    if as_json_text:
        print(json.dumps({key: judged[key] for key in ("facts", "lines", "verdict")}, indent=1))
    else:
        show(judged)
    if judged["verdict"] == "problem":
        raise typer.Exit(PROBLEM)


def warn(sentence: str) -> None:
    """Something that was not read, for the user to know."""
    print(f"warning: {sentence}", file=sys.stderr)


def show(judged: dict[str, Any]) -> None:
    """The lines: a table for a terminal, aligned text otherwise."""
    from rich.console import Console

    console = Console()
    lines = judged["lines"]
    if console.is_terminal:
        console.print(_table(lines))
    else:
        width = max(len(line["topic"]) for line in lines)
        for line in lines:
            print(f"{line['state']:<8}  {line['topic']:<{width}}  {line['found']}")
            if line["hint"] is not None:
                print(f"{'':<8}  {'':<{width}}  hint: {line['hint']}")
    print(conclusion(judged))


def _table(lines: list[dict[str, Any]]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for header in ("state", "topic", "found"):
        table.add_column(header, no_wrap=header != "found", overflow="fold")
    styles = {"ok": "green", "problem": "bold red", "not here": "dim"}
    for line in lines:
        hint = "" if line["hint"] is None else f"\nhint: {escape(line['hint'])}"
        state = f"[{styles[line['state']]}]{line['state']}[/]"
        table.add_row(state, escape(line["topic"]), f"{escape(line['found'])}{hint}")
    return table


def conclusion(judged: dict[str, Any]) -> str:
    """What the lines come to, as a sentence."""
    problems = sum(line["state"] == "problem" for line in judged["lines"])
    return {
        "ok": "ok: nothing found that keeps Kimi-K3 from being served",
        "problem": f"problem: {problems} of {len(judged['lines'])} lines, see their hints",
        "not here": "not here: no GPU to serve on; nothing else is a problem",
    }[judged["verdict"]]
