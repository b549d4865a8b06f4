"""Control instructions, by hand: waits, barriers, the end, the clock.

Derived twice from the CDNA3 manual's chapters on program control and data dependency: once as what must happen, once
as what must not (a result used before its wait, a partner that has not come, code after the end).
"""

from __future__ import annotations

import numpy as np
import pytest

from kimi_k3_specdec import _native

from .assembly import code_object

START = "s_load_dwordx4 s[4:7], s[0:1], 0x0\nv_lshlrev_b32_e32 v1, 2, v0\ns_waitcnt lgkmcnt(0)\n"
DATA = np.arange(1024, dtype=np.uint32) + 1000


def result(body: str, block: int = 64, lds_bytes: int = 0) -> np.ndarray:
    """Runs a kernel: s[4:5] holds 1000 and on, s[6:7] takes 1024 words, v1 is four times the work-item."""
    code = code_object({"f": START + body}, num_buffers=2, lds_bytes=lds_bytes)
    return np.frombuffer(_native.run_kernel(code, "f", block, [DATA.tobytes(), bytes(4096)])[1], np.uint32)


STORE = "\nglobal_store_dword v1, v2, s[6:7]"


def test_waitcnt_makes_a_load_usable() -> None:
    """vmcnt(0) for vector loads, lgkmcnt(0) for scalar ones."""
    loaded = result("global_load_dword v2, v1, s[4:5]\ns_waitcnt vmcnt(0)" + STORE)
    assert (loaded[:64] == DATA[:64]).all()
    scalar = result("s_load_dword s8, s[4:5], 0x10\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v2, s8" + STORE)
    assert scalar[5] == DATA[4]


def test_waitcnt_counts_loads_in_order() -> None:
    """vmcnt(1) waits for all but the last load: the first may be used, the second may not."""
    loads = "global_load_dword v2, v1, s[4:5]\nglobal_load_dword v3, v1, s[4:5] offset:256\ns_waitcnt vmcnt(1)\n"
    found = result(loads + "v_mov_b32_e32 v4, v2\nglobal_store_dword v1, v4, s[6:7]")
    assert (found[:64] == DATA[:64]).all()
    with pytest.raises(_native.MachineError):
        result(loads + "v_mov_b32_e32 v4, v3\nglobal_store_dword v1, v4, s[6:7]")


@pytest.mark.parametrize("counter", ["lgkmcnt(0)", ""])
def test_waitcnt_of_the_other_counter_does_not_help(counter: str) -> None:
    """A vector load is not finished by lgkmcnt."""
    with pytest.raises(_native.MachineError):
        result(f"global_load_dword v2, v1, s[4:5]\ns_waitcnt {counter or 'expcnt(0)'}\nv_add_u32_e32 v2, 1, v2" + STORE)


def test_barrier_orders_waves() -> None:
    """Four waves pass their lane numbers on through LDS."""
    body = (
        "ds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)\ns_barrier\nv_xor_b32_e32 v3, 0x100, v1\nds_read_b32 v2, v3\n"
        "s_waitcnt lgkmcnt(0)" + STORE
    )
    found = result(body, block=256, lds_bytes=1024)
    assert (found[:256] == np.arange(256) ^ 64).all()


@pytest.mark.parametrize("end", ["s_endpgm", "s_endpgm_saved"])
def test_endpgm_ends_the_wave(end: str) -> None:
    """What follows is not carried out; what was stored before stays."""
    found = result("v_mov_b32_e32 v2, 7" + STORE + f"\n{end}\nv_mov_b32_e32 v2, 9" + STORE)
    assert (found[:64] == 7).all()


def test_sleep_and_hints_change_no_register() -> None:
    """The wave goes on behind them."""
    hints = ["s_sleep 1", "s_nop 3", "s_setprio 2", "s_icache_inv", "s_dcache_inv", "s_dcache_wb", "buffer_inv sc1"]
    hints += ["buffer_wbl2 sc1", "s_ttracedata", "ds_nop"]
    found = result("v_mov_b32_e32 v2, v0\n" + "\n".join(hints) + "\ns_waitcnt vmcnt(0) lgkmcnt(0)" + STORE)
    assert (found[:64] == np.arange(64)).all()


@pytest.mark.parametrize("clock", ["s_memrealtime", "s_memtime"])
def test_clocks_advance(clock: str) -> None:
    """A second reading after some work is not before the first."""
    work = "s_movk_i32 s12, 0x4000\n.Lloop:\ns_sub_u32 s12, s12, 1\ns_cmp_lg_u32 s12, 0\ns_cbranch_scc1 .Lloop\n"
    body = f"{clock} s[8:9]\ns_waitcnt lgkmcnt(0)\n{work}{clock} s[10:11]\ns_waitcnt lgkmcnt(0)\n"
    body += "s_sub_u32 s8, s10, s8\ns_subb_u32 s9, s11, s9\nv_mov_b32_e32 v2, s8" + STORE
    body += "\nv_mov_b32_e32 v2, s9\nglobal_store_dword v1, v2, s[6:7] offset:256"
    found = result(body)
    # 49152 instructions in the loop: some time, and far from a wrap of the lower half.
    assert 0 < found[0] < 1 << 24 and found[64] == 0


def test_registers_of_the_hardware_are_read_and_written() -> None:
    """The denormal bits of the mode: f64's on, as a descriptor says unless asked; then what was written."""
    body = "s_getreg_b32 s8, hwreg(HW_REG_MODE, 4, 4)\ns_setreg_imm32_b32 hwreg(HW_REG_MODE, 6, 2), 1\n"
    body += "s_getreg_b32 s9, hwreg(HW_REG_MODE, 4, 4)\ns_movk_i32 s11, 2\ns_setreg_b32 hwreg(HW_REG_MODE, 6, 2), s11\n"
    body += "s_getreg_b32 s10, hwreg(HW_REG_MODE, 4, 4)\n"
    for at, register in enumerate(("s8", "s9", "s10")):
        body += f"v_mov_b32_e32 v2, {register}\nglobal_store_dword v1, v2, s[6:7] offset:{256 * at}\n"
    found = result(body)
    assert [found[0], found[64], found[128]] == [0b1100, 0b0100, 0b1000]


def test_lds_dma_goes_lane_after_lane_from_m0() -> None:
    """Buffer and global loads into LDS: whole dwords, at M0 plus the offset plus the lane's place."""
    setup = "s_mov_b32 s12, s4\ns_and_b32 s13, s5, 0xffff\ns_movk_i32 s14, 0x1000\ns_mov_b32 s15, 0x20000\n"
    setup += "s_movk_i32 m0, 0x100\nv_xor_b32_e32 v4, 0x3c, v1\n"
    read = "\ns_waitcnt vmcnt(0)\nds_read_b32 v2, v1 offset:256\ns_waitcnt lgkmcnt(0)" + STORE
    for load in ("buffer_load_dword v4, s[12:15], 0 offen lds", "global_load_lds_dword v4, s[4:5]"):
        found = result(setup + load + read, lds_bytes=2048)
        assert (found[:64] == DATA[np.arange(64) ^ 15]).all()
    wide = "v_lshlrev_b32_e32 v4, 4, v0\n"
    read = "\ns_waitcnt vmcnt(0)\nv_lshlrev_b32_e32 v5, 4, v0\nds_read_b32 v2, v5 offset:268\ns_waitcnt lgkmcnt(0)"
    read += STORE
    for load in ("buffer_load_dwordx4 v4, s[12:15], 0 offen lds", "global_load_lds_dwordx4 v4, s[4:5]"):
        found = result(setup + wide + load + read, lds_bytes=2048)
        assert (found[:64] == DATA[4 * np.arange(64) + 3]).all()


NARROW = {"ubyte": (1, 1, False), "sbyte": (1, 1, True), "ushort": (2, 2, False), "sshort": (2, 2, True)}


@pytest.mark.parametrize("form", NARROW)
def test_lds_dma_of_less_than_a_dword_fills_a_dword(form: str) -> None:
    """Each lane's byte or half goes, extended, into a dword of its own."""
    width, alignment, signed = NARROW[form]
    body = "v_lshlrev_b32_e32 v4, 1, v0\nv_mov_b32_e32 v5, 0x80c0\nglobal_store_short v4, v5, s[6:7] offset:1024\n"
    body += f"s_movk_i32 m0, 0x100\ns_waitcnt vmcnt(0)\nglobal_load_lds_{form} v4, s[6:7] offset:1024\n"
    body += "s_waitcnt vmcnt(0)\nds_read_b32 v2, v1 offset:1280\ns_waitcnt lgkmcnt(0)" + STORE
    found = result(body, lds_bytes=4096)
    wanted = {(1, False): 0xC0, (1, True): 0xFFFFFFC0, (2, False): 0x80C0, (2, True): 0xFFFF80C0}[width, signed]
    assert (found[:64] == wanted).all() and alignment == width


def test_lds_dma_of_three_dwords() -> None:
    """Lane after lane, twelve bytes each."""
    body = "v_mul_u32_u24_e32 v4, 12, v0\ns_mov_b32 m0, 0\nglobal_load_lds_dwordx3 v4, s[4:5]\ns_waitcnt vmcnt(0)\n"
    body += "ds_read_b32 v2, v4 offset:8\ns_waitcnt lgkmcnt(0)" + STORE
    assert (result(body, lds_bytes=1024)[:64] == DATA[3 * np.arange(64) + 2]).all()
