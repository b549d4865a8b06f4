"""How the tests run the command: in this process, with its output captured."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kimi_k3_specdec.cli import application

Run = Callable[..., dict[str, Any]]

MEASURED = ("timing", "seconds", "wave_instructions_per_second", "peak_memory_bytes")
"""Fields of the JSON report that two equal runs may differ in."""


def invoke(*words: object) -> Result:
    """`kimi-k3-specdec WORDS`."""
    return CliRunner().invoke(application(), [str(w) for w in words])


def report(*words: object, exit_code: int = 0) -> dict[str, Any]:
    """The JSON of `kimi-k3-specdec run WORDS`, which ends with `exit_code`."""
    result = invoke("run", "--json", *words)
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def report_of_a_process(*words: object) -> dict[str, Any]:
    """The same of a process of its own: its peak is its own, and its memory goes with it."""
    command = [sys.executable, "-m", "kimi_k3_specdec", "run", "--json", *(str(w) for w in words)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout)


def refused(*words: object) -> str:
    """The error of a run that is refused."""
    result = invoke("run", *words)
    assert result.exit_code == 2, result.output
    assert result.stdout == "" and "Traceback" not in result.stderr
    error, hint = result.stderr.split("\nhint: ")
    assert error.startswith("error: ") and hint.strip()
    return error


@pytest.fixture(scope="session")
def default_report() -> dict[str, Any]:
    """One default run, for all tests that only read its report."""
    return report("--steps", 4)
