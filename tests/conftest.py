"""Options of all tests."""

from __future__ import annotations

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
