"""Whether the emulator and AMD's pseudocode agree on an instruction that works on registers alone."""

from __future__ import annotations

import numpy as np

from . import special
from .encodings import Instruction
from .expected import Oracle, differences
from .modifiers import kind_of, width_of
from .operands import parse
from .state import EXEC, LANES, M0, State, execute, random_state

STATES = 6
ALL = (1 << 64) - 1
# Hardware's rule about lanes that EXEC disables is the table's, not the pseudocode's: tested in test_cross_lane.py.
IGNORES_EXEC = ("v_permlane16_swap_b32", "v_permlane32_swap_b32")


def prepared(instruction: Instruction, random: np.random.Generator) -> State:
    """A random state in which the instruction's result is specified."""
    state = random_state(random)
    if instruction.mnemonic in IGNORES_EXEC:
        state.set_pair(EXEC, ALL)
    if "movrel" in instruction.mnemonic:
        state.sgpr[M0] %= 60
    if random.integers(3) == 0:
        # Equal sources, in all scalar registers and in some lanes.
        state.sgpr[8:10] = state.sgpr[24:26] = state.sgpr[16:18]
        is_equal = random.integers(0, 2, (32, LANES)) == 0
        state.vgpr[64:96] = np.where(is_equal, state.vgpr[32:64], state.vgpr[64:96])
    if "scalef32" in instruction.mnemonic:
        # Scales around one, where values halfway between two codes stay so.
        register = 96 if "v96" in instruction.text else 64
        near = random.integers(124, 131, LANES).astype(np.uint32) << 23
        state.vgpr[register] = np.where(random.integers(0, 3, LANES) > 0, near, state.vgpr[register])
    if random.integers(3) == 0:
        corner(state, random, kind_of(instruction.mnemonic))
    return state


# Zeros, ones, infinities, NaNs quiet and signalling, smallest, largest: combinations that random bits seldom make.
CORNERS = {
    "f16": [0x0000, 0x8000, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E01, 0x7C01, 0x0001, 0x7BFF],
    "f64": [0x00000000, 0x80000000, 0x3FF00000, 0xBFF00000, 0x7FF00000, 0xFFF00000, 0x7FF80001, 0x7FEFFFFF],
}
SINGLE = [0, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00001, 0x7F800001, 1, 0x7F7FFFFF]


def corner(state: State, random: np.random.Generator, kind: str) -> None:
    """Fills the sources with special values of a kind, two to a register where they are half as wide."""
    choices = np.array(CORNERS.get(kind, SINGLE), np.uint32)
    picked = choices[random.integers(0, len(choices), state.vgpr[32:].shape)]
    if kind == "f16":
        picked = picked | choices[random.integers(0, len(choices), picked.shape)] << 16
    if kind == "f64":
        picked[::2] = random.integers(0, 2, picked[::2].shape)
    state.vgpr[32:] = picked


def special_differences(instruction: Instruction, before: State, after: State) -> list[str]:
    """Results of the special-function unit beyond their bound."""
    source = parse(instruction.text).operands[1]
    width = width_of(instruction.mnemonic)
    found = []
    for lane in range(LANES):
        x, y = (
            (int(vgpr[first, lane]) | int(vgpr[first + 1, lane]) << 32) & ((1 << width) - 1)
            for vgpr, first in ((before.vgpr, source.first), (after.vgpr, 0))
        )
        is_enabled = before.pair(EXEC) >> lane & 1
        if is_enabled and not special.accepts(instruction.mnemonic, x, y):
            found.append(f"{instruction.text}: of {x:#x} is {y:#x}")
    return found


def assert_agreement(oracle: Oracle, instruction: Instruction) -> None:
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
