"""`kimi-k3-specdec check`: would this deployment be served, without vLLM, weights or a GPU."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from .. import _native
from ..errors import UserError
from .examination import show
from .input import read
from .messages import DIFFERENT, refusals

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

FILE_HINT = "name a JSON file, or `-` for stdin; `--example` prints a deployment"


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
        examination = json.loads(_native.examine(deployment_text(file, context.meta.get(SERVE))))
        add_code_object(examination)
    if as_json:
        print(json.dumps(examination, indent=1))
    else:
        show(examination)
    if not examination["served"]:
        raise typer.Exit(DIFFERENT)


def deployment_text(file: str | None, serve_arguments: list[str] | None) -> str:
    """The deployment as JSON, from wherever it was given."""
    if serve_arguments is not None and file is not None:
        raise UserError(f"both `{file}` and `-- ARGUMENTS` are given", "give one of them")
    if serve_arguments is not None:
        from .serve_arguments import deployment

        return json.dumps(deployment(serve_arguments), default=repr)
    if file is None:
        raise UserError("no deployment given", "name a JSON file, `-` for stdin, or `-- ARGUMENTS` of `vllm serve`")
    return read(file, FILE_HINT)


def add_code_object(examination: dict[str, Any]) -> None:
    """The size of the code object that serves the deployment, from the package's manifest."""
    from .. import kernels

    memory = examination["memory"]
    if memory is None:
        return
    try:
        image = kernels.code_object(memory["code_object"])
    except kernels.KernelPackageError as error:
        examination["warnings"].append(f"{error}; {error.hint}")
        return
    memory["buffers"]["code_object_bytes"] = len(image)
    memory["total_bytes"] += len(image)
