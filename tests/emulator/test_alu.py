"""Every instruction that works on registers alone, against AMD's pseudocode, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from . import special
from .encodings import Instruction
from .expected import Oracle, differences
from .operands import parse
from .rows import described_by_pseudocode
from .state import EXEC, LANES, M0, State, execute, random_state

STATES = 4
ALL = (1 << 64) - 1
# Hardware's rule about lanes that EXEC disables is the table's, not the pseudocode's: tested in test_cross_lane.py.
IGNORES_EXEC = ("v_permlane16_swap_b32", "v_permlane32_swap_b32")


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    """The pseudocode, read once."""
    return Oracle()


def prepared(instruction: Instruction, random: np.random.Generator) -> State:
    """A random state in which the instruction's result is specified."""
    state = random_state(random)
    if instruction.mnemonic in IGNORES_EXEC:
        state.set_pair(EXEC, ALL)
    if "movrel" in instruction.mnemonic:
        state.sgpr[M0] %= 60
    if "scalef32" in instruction.mnemonic:
        # No source says what a scale of NaN or infinity (exponent 255) does.
        exponents = state.vgpr[64:] >> 23 & 0xFF
        state.vgpr[64:] = np.where(exponents == 255, state.vgpr[64:] ^ 0x40000000, state.vgpr[64:])
    return state


def special_differences(instruction: Instruction, before: State, after: State) -> list[str]:
    """Results of the special-function unit beyond their bound."""
    source = parse(instruction.text).operands[1]
    width = 0xFFFF if instruction.mnemonic.endswith("f16") else 0xFFFFFFFF
    found = []
    for lane in range(LANES):
        x, y = int(before.vgpr[source.first, lane]) & width, int(after.vgpr[0, lane]) & width
        is_enabled = before.pair(EXEC) >> lane & 1
        if is_enabled and not special.accepts(instruction.mnemonic, x, y):
            found.append(f"{instruction.text}: of {x:#x} is {y:#x}")
    return found


@pytest.mark.parametrize("instruction", described_by_pseudocode(), ids=lambda row: row.text.split(" ")[0])
def test_equals_the_pseudocode(oracle: Oracle, instruction: Instruction) -> None:
    """Random and edge-case registers, any EXEC: the same registers, SCC and pc, and nothing else written."""
    text = oracle.text(instruction)
    assert text is not None
    random = np.random.default_rng(list(instruction.code))
    found: list[str] = []
    for _ in range(STATES):
        before = prepared(instruction, random)
        after = execute(instruction.code, before)
        if special.function_of(instruction.mnemonic):
            found += special_differences(instruction, before, after)
        else:
            found += differences(instruction, oracle.expect(instruction, text, before), after, before)
    assert not found, "\n".join(found[:8])
