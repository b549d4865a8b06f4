"""Options and fixtures of all tests."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--device`: where kernel tests run."""
    parser.addoption("--device", choices=("emulator", "hip", "cuda"), default="emulator", help="runs the kernels")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what tests count for people to read, from all workers: their `printed` properties."""
    for found in terminalreporter.getreports("passed"):
        for name, text in getattr(found, "user_properties", ()):
            if name == "printed" and found.when == "call":
                terminalreporter.write_line(text)


@pytest.fixture
def real_shapes_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Held by one test of all workers: two launches of the real shapes need more memory than most machines have."""
    # The workers' folders of one session have one parent.
    with (tmp_path_factory.getbasetemp().parent / "real_shapes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
