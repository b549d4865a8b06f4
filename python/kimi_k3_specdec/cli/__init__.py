"""The command `kimi-k3-specdec`. No command imports torch before it runs: `--help` and `check` answer at once."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from . import answer

if TYPE_CHECKING:
    import typer

COMMANDS = ("run", "demo", "check", "doctor", "emulate", "kernels")
"""Each is a module of this package with HELP and `command`, or `app` where it has commands of its own."""


def application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands."""
    import typer

    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    # Without it, typer takes a single command for the whole command line.
    app.callback(help="Low-latency speculative decoding of Kimi-K3.")(lambda: None)
    for name in names:
        module = importlib.import_module(f".{name}", __name__)
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name, help=module.HELP)
            continue
        app.command(name, help=module.HELP, cls=getattr(module, "CLASS", None))(module.command)
    return app


def main() -> None:
    """Entry point: exit status 0 equal or served, 1 different or refused, 2 cannot run."""
    try:
        # typer takes milliseconds for each parameter of each command: only those of the one that was called.
        called = sys.argv[1:2]
        if called == ["check"] and (words := answer.plain(sys.argv[2:])):
            # Without typer, which takes most of the time of the rest.
            sys.exit(answer.answer(words[0], None, as_json=words[1]))
        application(called if called and called[0] in COMMANDS else COMMANDS)()
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        sys.exit(130)
