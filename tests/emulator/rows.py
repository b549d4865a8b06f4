"""Which instructions the emulator carries out, and what each is checked against: the table of docs/emulator.md."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from . import special
from .data import load
from .encodings import Instruction, matrix, registers_only
from .expected import Oracle
from .memory import all_of_them
from .pseudocode import Library

# What no pseudocode describes, or only in prose: the test whose vectors were worked out by hand, twice.
CONTROL = "by hand: test_control.py"
BY_HAND = {
    **dict.fromkeys(["s_waitcnt", "s_barrier", "s_endpgm", "s_sleep", "s_memrealtime", "s_memtime", "s_nop"], CONTROL),
    **dict.fromkeys(["s_setprio", "s_icache_inv", "s_dcache_inv", "s_dcache_wb", "s_ttracedata", "ds_nop"], CONTROL),
    **dict.fromkeys(["s_getreg_b32", "s_setreg_b32", "s_setreg_imm32_b32", "buffer_inv", "buffer_wbl2"], CONTROL),
    **dict.fromkeys(["s_endpgm_saved", "v_nop", "v_clrexcp"], CONTROL),
    **dict.fromkeys(["v_accvgpr_mov_b32", "v_accvgpr_read_b32", "v_accvgpr_write_b32"], "by hand: test_lanes.py"),
    **dict.fromkeys(["ds_permute_b32", "ds_bpermute_b32", "ds_swizzle_b32"], "by hand: test_lanes.py"),
    **dict.fromkeys(["ds_read_b64_tr_b16", "ds_read_b64_tr_b8"],
                    "Triton's products, whose other operand is read as it stands: test_foreign_kernels.py"),
    **dict.fromkeys([f"global_load_lds_dword{width}" for width in ("", "x3", "x4")], CONTROL),
    **dict.fromkeys([f"global_load_lds_{kind}" for kind in ("ubyte", "sbyte", "ushort", "sshort")], CONTROL),
}
PSEUDOCODE = "AMD's pseudocode"
CORRECTED = "AMD's pseudocode, corrected as listed below"
SPECIAL = f"the real function, within {special.ULPS} units in the last place"
FORMATS = "AMD's pseudocode; its conversions by the OCP formats"


@dataclass(frozen=True)
class Row:
    """One mnemonic in one encoding; `oracle` is empty where there is none."""

    encoding: str
    mnemonic: str
    oracle: str
    is_carried_out: bool


@cache
def library() -> Library:
    """The pseudocode, read once."""
    return Library()


@cache
def described_by_pseudocode() -> list[Instruction]:
    """The register-only instructions that the emulator carries out and AMD's pseudocode describes."""
    oracle = Oracle()
    rows = [row for row in registers_only() if row.unit == "wave" and row.mnemonic not in BY_HAND]
    return [row for row in rows if oracle.text(row)]


@cache
def memory_rows() -> list[Instruction]:
    """The memory instructions that the emulator carries out and AMD's pseudocode describes."""
    rows = [row for row in all_of_them() if row.unit == "machine" and row.mnemonic not in BY_HAND]
    return [row for row in rows if library().find(row.encoding, row.opcode)]


def matrix_sources() -> dict[str, str]:
    """Where the operand map of each matrix instruction was found."""
    maps = load("matrix_maps")
    return {name: facts["source"] for part in ("instructions", "scaled") for name, facts in maps[part].items()}


def oracle_of(row: Instruction, tested: frozenset[str]) -> str:
    """What an instruction is checked against; empty if nothing is."""
    if row.mnemonic in BY_HAND:
        return BY_HAND[row.mnemonic]
    if row.mnemonic in matrix_sources():
        return f"double precision through operand maps ({matrix_sources()[row.mnemonic]})"
    if row.text not in tested:
        return ""
    if special.function_of(row.mnemonic):
        return SPECIAL
    if row.mnemonic in load("corrections"):
        return CORRECTED
    return FORMATS if any(part in row.mnemonic for part in ("fp8", "bf8", "fp6", "bf6", "fp4")) else PSEUDOCODE


@cache
def table() -> list[Row]:
    """Every opcode that the emulator decodes, whether it carries it out or not."""
    tested = frozenset(row.text for row in [*described_by_pseudocode(), *memory_rows()])
    found: dict[tuple[str, str], Row] = {}
    for row in [*registers_only(), *matrix(), *all_of_them()]:
        oracle = oracle_of(row, tested) if row.unit != "nobody" else ""
        found[row.encoding, row.mnemonic] = Row(row.encoding, row.mnemonic, oracle, row.unit != "nobody")
    return list(found.values())
