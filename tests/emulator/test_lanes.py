"""Moves between lanes and register files, by hand: from the manual's text, once as a formula and once as vectors."""

from __future__ import annotations

import numpy as np
import pytest

from .assembly import assembled
from .state import EXEC, State, execute

LANES = np.arange(64)
ALL = (1 << 64) - 1
ODD = 0xAAAAAAAAAAAAAAAA


def state(exec_mask: int = ALL, num_vectors: int = 264) -> State:
    """v1 holds the lane's number times four, v2 its number plus 1000, v0 a filler."""
    fresh = State(np.zeros(128, np.uint32), np.zeros((num_vectors, 64), np.uint32))
    fresh.set_pair(EXEC, exec_mask)
    fresh.vgpr[0], fresh.vgpr[1], fresh.vgpr[2] = 7, 4 * LANES, LANES + 1000
    return fresh


def run(line: str, before: State) -> np.ndarray:
    """v0 afterwards."""
    return execute(assembled(line).code, before).vgpr[0]


def test_bpermute_reads_any_lane() -> None:
    """A lane reads the one whose number times four its address is; disabled lanes read as zero and keep theirs."""
    before = state()
    before.vgpr[1] = 4 * (63 - LANES)
    assert (run("ds_bpermute_b32 v0, v1, v2", before) == 1063 - LANES).all()
    assert (run("ds_bpermute_b32 v0, v1, v2 offset:8", before) == (65 - LANES) % 64 + 1000).all()
    before.set_pair(EXEC, ODD)
    found = run("ds_bpermute_b32 v0, v1, v2", before)
    # 63 - lane is even for odd lanes: every lane that is read is disabled.
    assert (found[1::2] == 0).all() and (found[::2] == 7).all()


def test_permute_writes_any_lane() -> None:
    """The highest lane wins; a lane that nobody writes becomes zero."""
    before = state()
    before.vgpr[1] = 4 * (LANES // 2)
    found = run("ds_permute_b32 v0, v1, v2", before)
    assert found[:4].tolist() == [1001, 1003, 1005, 1007] and (found[32:] == 0).all()
    before.set_pair(EXEC, ODD >> 1)
    assert run("ds_permute_b32 v0, v1, v2", before)[:4].tolist() == [1000, 7, 1004, 7]


SWIZZLES = [
    # quad permutation 3, 2, 1, 0
    ("offset:swizzle(QUAD_PERM,3,2,1,0)", [3, 2, 1, 0, 7, 6, 5, 4]),
    # and 0x1e, or 1, xor 2 within 32 lanes: 0 -> 3, 1 -> 3, 2 -> 1, 3 -> 1, ...
    ("offset:2110", [3, 3, 1, 1, 7, 7, 5, 5]),
    ("offset:swizzle(SWAP,4)", [4, 5, 6, 7, 0, 1, 2, 3]),
    ("offset:swizzle(REVERSE,8)", [7, 6, 5, 4, 3, 2, 1, 0]),
    ("offset:swizzle(BROADCAST,4,2)", [2, 2, 2, 2, 6, 6, 6, 6]),
]


@pytest.mark.parametrize(("pattern", "sources"), SWIZZLES)
def test_swizzle(pattern: str, sources: list[int]) -> None:
    """The first eight lanes by hand; lanes 32 on do the same among themselves."""
    before = state()
    before.vgpr[1] = LANES
    found = run(f"ds_swizzle_b32 v0, v1 {pattern}", before)
    assert found[:8].tolist() == sources
    assert (found[32:40] == np.array(sources) + 32).all()


def test_rotation() -> None:
    """Left by three lanes of 32: lane 0 reads lane 3; right: lane 3 reads lane 0. 0xc000 + direction, amount, keep."""
    before = state()
    before.vgpr[1] = LANES
    left = run(f"ds_swizzle_b32 v0, v1 offset:{0xC000 | 3 << 5}", before)
    assert left[:3].tolist() == [3, 4, 5] and left[31] == 2 and left[63] == 34
    right = run(f"ds_swizzle_b32 v0, v1 offset:{0xC000 | 1 << 10 | 3 << 5}", before)
    assert right[3:6].tolist() == [0, 1, 2] and right[0] == 29


def test_accumulation_registers_are_a_second_file() -> None:
    """Written, moved and read back, in enabled lanes only."""
    first = execute(assembled("v_accvgpr_write_b32 a1, v2").code, state())
    assert (first.vgpr[257] == LANES + 1000).all()
    first.set_pair(EXEC, ODD)
    second = execute(assembled("v_accvgpr_mov_b32 a2, a1").code, first)
    assert (second.vgpr[258] == np.where(LANES % 2, LANES + 1000, 0)).all()
    second.set_pair(EXEC, ALL)
    third = execute(assembled("v_accvgpr_read_b32 v0, a2").code, second)
    assert (third.vgpr[0] == np.where(LANES % 2, LANES + 1000, 0)).all()


def test_swap_under_a_mask() -> None:
    """A lane whose partner is disabled keeps its value; with `bound_ctrl` it reads zero, with `fi` the partner's."""
    low_half = (1 << 32) - 1
    before = state(low_half)
    plain = execute(assembled("v_permlane32_swap_b32_e32 v1, v2").code, before)
    assert (plain.vgpr[1] == before.vgpr[1]).all() and (plain.vgpr[2] == before.vgpr[2]).all()
    bound = execute(assembled("v_permlane32_swap_b32_e64 v1, v2 bound_ctrl:1").code, before)
    assert (bound.vgpr[2][:32] == 0).all() and (bound.vgpr[2][32:] == before.vgpr[2][32:]).all()
    inactive = execute(assembled("v_permlane32_swap_b32_e64 v1, v2 fi:1").code, before)
    assert (inactive.vgpr[2][:32] == before.vgpr[1][32:]).all()


def test_nothing_happens() -> None:
    """v_nop and v_clrexcp, in both encodings."""
    for line in ("v_nop", "v_clrexcp", "s_nop 2"):
        before = state()
        after = execute(assembled(line).code, before)
        assert (after.vgpr == before.vgpr).all() and (after.sgpr == before.sgpr).all()
