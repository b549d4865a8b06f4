"""A wave's registers, random ones for tests, and the emulator's answer to one instruction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kimi_k3_specdec import _native

LANES = 64
VCC, M0, EXEC = 106, 124, 126
# Where arithmetic goes wrong, in 16 and 32 bits: zeros, denormals, limits, infinities, NaNs, shift counts.
EDGES = np.array(
    [0, 1, 2, 31, 32, 63, 64, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80000001]
    + [0x007FFFFF, 0x00800000, 0x80800000, 0x3F800000, 0xBF800000, 0x3F7FFFFF, 0x3F800001, 0x40000000, 0xC0000000]
    + [0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFC12345, 0x3F000000, 0xBF000000]
    + [0x4B000000, 0x4B800001, 0x4F000000, 0x4F800000, 0xCF000000, 0x3FC00000, 0x40200000, 0x3C003C00, 0x7C007C00]
    # Halfway between neighbours of fp4, fp8, f16 and bf16.
    + [0x3E800000, 0x3F400000, 0x3FA00000, 0x3FE00000, 0x40600000, 0x40A00000, 0x3F880000, 0x3F980000]
    + [0x3F801000, 0x3F803000, 0x3F808000, 0x3F818000]
    + [0x03FF0400, 0x7BFF8001, 0xFC007E01, 0x3800B800, 0x7FF00000, 0x7FEFFFFF, 0x3FF00000, 0xFFF80000, 0x00100000],
    dtype=np.uint32,
)


@dataclass
class State:
    """`sgpr` u32 [128] by operand number, `vgpr` u32 [registers, 64], SCC, and the pc in bytes."""

    sgpr: np.ndarray
    vgpr: np.ndarray
    scc: bool = False
    pc: int = 0

    def copy(self) -> State:
        """A state of its own."""
        return State(self.sgpr.copy(), self.vgpr.copy(), self.scc, self.pc)

    def pair(self, register: int) -> int:
        """A 64-bit scalar register pair."""
        return int(self.sgpr[register]) | int(self.sgpr[register + 1]) << 32

    def set_pair(self, register: int, value: int) -> None:
        """Writes a 64-bit scalar register pair."""
        self.sgpr[register], self.sgpr[register + 1] = value & 0xFFFFFFFF, value >> 32


def patterns(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Half edge cases; the rest random bits, small numbers, and floats of moderate size."""
    bits = random.integers(0, 1 << 32, shape, dtype=np.uint32)
    small = bits >> random.integers(0, 32, shape, dtype=np.uint32)
    moderate = (random.standard_normal(shape) * 2.0 ** random.integers(-12, 12, shape)).astype(np.float32)
    edges = EDGES[random.integers(0, len(EDGES), shape)]
    halves = edges & 0xFFFF | random.integers(0, 1 << 16, shape, dtype=np.uint32) << 16
    pick = random.integers(0, 8, shape)
    choices = [edges, bits, small, halves]
    return np.select([pick < 3, pick == 3, pick == 4, pick == 5], choices, moderate.view(np.uint32))


def random_state(random: np.random.Generator, num_vectors: int = 128) -> State:
    """A state with patterns in all registers, and any, all or one of the lanes enabled."""
    state = State(patterns(random, (128,)), patterns(random, (num_vectors, LANES)), bool(random.integers(2)))
    masks = [(1 << 64) - 1, int(random.integers(0, 1 << 64, dtype=np.uint64)), 1 << int(random.integers(64))]
    state.set_pair(EXEC, masks[random.integers(3)])
    state.pc = 4 * int(random.integers(0x10000))
    return state


def execute(code: bytes, state: State) -> State:
    """What the emulator makes of one instruction."""
    sgpr, vgpr, scc, pc = _native.execute(code, state.sgpr.tobytes(), state.vgpr.tobytes(), state.scc, state.pc)
    scalars, vectors = (np.frombuffer(registers, np.uint32).copy() for registers in (sgpr, vgpr))
    return State(scalars, vectors.reshape(-1, LANES), scc, pc)
