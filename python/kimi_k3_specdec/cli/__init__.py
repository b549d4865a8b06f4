"""The command `kimi-k3-specdec`."""

from __future__ import annotations

import sys

import typer

from . import demo, run

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
                  help="Low-latency speculative decoding of Kimi-K3.")
app.command("run", help=run.HELP)(run.command)
app.command("demo", help=demo.HELP)(demo.command)


def main() -> None:
    """Entry point: exit status 0 equal, 1 different, 2 cannot run."""
    try:
        app()
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        sys.exit(130)
