"""Every instruction that works on registers alone, against AMD's pseudocode, bit for bit."""

from __future__ import annotations

import pytest

from .agreement import assert_agreement
from .encodings import Instruction
from .expected import Oracle
from .rows import described_by_pseudocode


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    """The pseudocode, read once."""
    return Oracle()


@pytest.mark.parametrize("instruction", described_by_pseudocode(), ids=lambda row: row.text.split(" ")[0])
def test_equals_the_pseudocode(oracle: Oracle, instruction: Instruction) -> None:
    """Random and edge-case registers, any EXEC: the same registers, SCC and pc, and nothing else written."""
    assert_agreement(oracle, instruction)
