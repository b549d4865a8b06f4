"""Messages to stderr, and which errors are the user's to solve."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .. import _native
from ..errors import UserError

if TYPE_CHECKING:
    from ..decoding.session import Progress as Report

CANNOT_RUN = 2
DIFFERENT = 1

REFUSED = (UserError, _native.Refused, _native.MachineError)
"""Errors that say what to do; any other is a defect of this package."""


@contextmanager
def refusals(debug: bool) -> Iterator[None]:
    """Turns a refusal into `error:`, `hint:` and exit status 2; `debug` lets it through with its traceback."""
    try:
        yield
    except REFUSED as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        print(f"hint: {getattr(error, 'hint', 'run again with --debug for the traceback')}", file=sys.stderr)
        raise SystemExit(CANNOT_RUN) from None
    except Exception as error:
        import typer

        if debug or isinstance(error, typer.Exit):
            raise
        print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
        print("hint: this is a defect of kimi-k3-specdec; report it with the traceback that --debug shows",
              file=sys.stderr)
        raise SystemExit(CANNOT_RUN) from None


@contextmanager
def progress() -> Iterator[Report]:
    """A progress bar on stderr, where that is a terminal; otherwise silence."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=1)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)
