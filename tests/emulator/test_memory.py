"""Every memory instruction against AMD's pseudocode."""

from __future__ import annotations

import pytest

from .assembly import code_object
from .memory import Run, kernel, lanes_of, mismatches
from .pseudocode import Library
from .rows import memory_rows


@pytest.fixture(scope="module")
def library() -> Library:
    """The pseudocode, read once."""
    return Library()


@pytest.fixture(scope="module")
def code() -> bytes:
    """All kernels in one code object."""
    kernels = {f"k{at}": kernel(row, lanes_of(row)) for at, row in enumerate(memory_rows())}
    return code_object(kernels, num_buffers=3, lds_bytes=4096)


@pytest.mark.parametrize("index", range(len(memory_rows())), ids=lambda at: memory_rows()[at].text.split(" ")[0])
def test_equals_the_pseudocode(code: bytes, library: Library, index: int) -> None:
    """Memory, LDS and registers afterwards, in enabled and disabled lanes."""
    instruction = memory_rows()[index]
    run = Run(instruction, code, f"k{index}", seed=index)
    found = mismatches(instruction, run, library)
    assert not found, "\n".join(found[:8])
