"""Options of all tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--device`: where kernel tests run."""
    parser.addoption("--device", choices=("emulator", "hip", "cuda"), default="emulator", help="runs the kernels")
