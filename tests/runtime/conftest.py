"""Runs whose ranks are processes: what they start from is made once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from kimi_k3_specdec.decoding.machine import load_code_objects
from kimi_k3_specdec.decoding.options import RunOptions
from kimi_k3_specdec.decoding.prepared import Prepared
from kimi_k3_specdec.decoding.processes import Ended, start
from kimi_k3_specdec.reference.geometry import by_name

from .injections import Injection

Started = Callable[..., tuple[Ended, Prepared]]


SHARED_MEMORY = "/dev/shm"


def is_mapped(name: str) -> bool:
    """Whether a living process, which has nothing to do with these tests, uses a file in shared memory."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if f"{SHARED_MEMORY}/{name}" in maps.read_text():
                return True
        except OSError:
            # It has ended meanwhile.
            continue
    return False


@cache
def prepared(steps: int, ranks: int) -> Prepared:
    """Two requests of four rows."""
    options = RunOptions(steps=steps, ranks=ranks, processes=True)
    name, code_object = load_code_objects(options.geometry, ranks)
    return Prepared(options, by_name(options.geometry), name, code_object, lambda *_: None)


@pytest.fixture
def ranks_as_processes() -> Started:
    """Starts ranks with what happens to them, by rank; nothing is left behind in shared memory."""
    before = set(os.listdir(SHARED_MEMORY))

    def run(faults: Mapping[int, Injection] | None = None, *, steps: int = 4, ranks: int = 2,
            **options: float) -> tuple[Ended, Prepared]:
        made = prepared(steps, ranks)
        return start(made, faults=faults, **options), made

    yield run
    left = {name for name in set(os.listdir(SHARED_MEMORY)) - before if not is_mapped(name)}
    assert not left
