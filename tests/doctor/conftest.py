"""The command as a small application of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from kimi_k3_specdec.cli import doctor

Doctor = Callable[..., Any]


@pytest.fixture
def run_doctor() -> Doctor:
    """Runs `doctor` with these arguments; `facts` (a value, or text as it is) goes to its stdin as `--facts -`."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(help=doctor.HELP)(doctor.command)

    def run(*arguments: str, facts: Any = None) -> Any:
        if facts is None:
            return CliRunner().invoke(app, list(arguments))
        text = facts if isinstance(facts, str | bytes) else json.dumps(facts)
        return CliRunner().invoke(app, ["--facts", "-", *arguments], input=text)

    return run


@pytest.fixture
def judge(run_doctor: Doctor) -> Callable[[Any], tuple[int, dict[str, dict[str, Any]]]]:
    """Exit status and lines, by topic, for facts."""

    def judge(facts: Any) -> tuple[int, dict[str, dict[str, Any]]]:
        result = run_doctor("--json", facts=facts)
        report = json.loads(result.stdout)
        assert result.exit_code == (1 if report["verdict"] == "problem" else 0)
        return result.exit_code, {line["topic"]: line for line in report["lines"]}

    return judge
