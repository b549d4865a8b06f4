"""`kimi-k3-specdec check`: would this deployment be served, without vLLM, weights or a GPU."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from typer.core import TyperCommand

from .. import _native
from .answer import answer
from .messages import refusals

HELP = (
    "Say whether a deployment is served by the specialised decode, and everything to change where it is not.\n\n"
    "FILE holds the sections of vLLM's configuration as JSON (`--example` prints one, `--schema` their schema); `-` "
    "reads stdin. Where vLLM is installed, `check -- ARGUMENTS` takes the arguments of `vllm serve` instead. "
    "Exit status: 0 served, 1 refused, 2 bad input."
)

SERVE = "kimi_k3_specdec.serve"
"""Key of the words behind `--` in the command's context."""


class CheckCommand(TyperCommand):
    """Keeps what stands behind `--` away from our own parser: it is vLLM's."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
        """Parses the words before `--`."""
        if "--" in args:
            at = args.index("--")
            args, ctx.meta[SERVE] = args[:at], args[at + 1 :]
        return super().parse_args(ctx, args)


CLASS = CheckCommand


def command(
    context: typer.Context,
    file: Annotated[str | None, typer.Argument(help="JSON file, `-` for stdin.", metavar="FILE")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
    example: Annotated[bool, typer.Option("--example", help="Print a served deployment and stop.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of the input and stop.")] = False,
    debug: Annotated[bool, typer.Option(help="Show tracebacks.")] = False,
) -> None:
    """See HELP."""
    with refusals(debug):
        if example or schema:
            sys.stdout.write(_native.example_deployment() if example else _native.deployment_schema() + "\n")
            return
    raise SystemExit(answer(file, context.meta.get(SERVE), as_json=as_json, debug=debug))
