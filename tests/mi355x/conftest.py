"""The machine, or why this is none."""

from __future__ import annotations

import os

import pytest

from .facts import Device, devices, why_not

MODEL_VARIABLE = "SPECDEC_MI355X_MODEL"


@pytest.fixture(scope="session")
def machine() -> list[Device]:
    """Eight MI355X; skips with every reason elsewhere."""
    try:
        from hip import hip
    except ImportError as error:
        pytest.skip(f"hip-python does not load: {error} (pip install 'kimi-k3-specdec[mi355x]')")
    try:
        reasons = why_not(hip)
    except (RuntimeError, OSError) as error:
        pytest.skip(f"no HIP here: {str(error).strip().splitlines()[0]}")
    if reasons:
        pytest.skip("; ".join(reasons))
    return devices(hip)


@pytest.fixture(scope="session")
def model(machine: list[Device]) -> str:
    """The checkpoint of Kimi-K3 to serve."""
    path = os.environ.get(MODEL_VARIABLE)
    if not path:
        pytest.skip(f"{MODEL_VARIABLE} does not name a checkpoint of Kimi-K3")
    return path
