"""Facts kept as data beside the tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import tomllib


@cache
def load(name: str) -> dict[str, Any]:
    """One of the TOML files of this folder."""
    return tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))
