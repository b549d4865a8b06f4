"""A concrete assembly line for every mnemonic and every combination of modifiers of isa.toml."""

from __future__ import annotations

from functools import cache

from .data import load
from .encodings import registers_only
from .memory import all_of_them

# What neither enumeration prints by itself: forms that need a modifier, control, and matrix instructions.
OPERANDS = {
    "v_mov_b32_dpp": "v0, v32 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
    "v_add_u32_sdwa": "v0, v32, v64 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_1",
    "v_mul_lo_u16_sdwa": "v0, v32, v64 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0 src1_sel:DWORD",
    "v_mul_u32_u24_sdwa": "v0, v32, v64 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:DWORD",
    "v_sub_u16_sdwa": "v0, v32, v64 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD",
    "v_mfma_f32_16x16x32_bf16": "v[0:3], v[32:35], v[64:67], v[96:99]",
    "v_mfma_scale_f32_16x16x128_f8f6f4": "v[0:3], v[32:35], v[64:67], v[96:99], v100, v101 "
    "op_sel_hi:[0,0,0] cbsz:4 blgp:4",
    "s_memrealtime": "s[8:9]",
    "s_waitcnt": "vmcnt(0) lgkmcnt(0)",
    "s_branch": "5",
    "s_sleep": "1",
    "s_nop": "0",
    "s_endpgm": "",
    "s_barrier": "",
    "buffer_load_dword": "v64, v32, s[12:15], 8 offen offset:8",
    "buffer_store_short": "v64, v32, s[12:15], 8 offen offset:8",
}
# Modifiers that stand on the operands.
SIGNS = {
    "v_cndmask_b32_e64 neg": "v_cndmask_b32_e64 v0, -v32, v64, s[24:25]",
    "v_fma_f32 neg": "v_fma_f32 v0, -v32, v64, -v96",
    "v_mul_f32_e64 abs": "v_mul_f32_e64 v0, |v32|, v64",
    "s_waitcnt lgkmcnt": "s_waitcnt lgkmcnt(0)",
    "s_waitcnt vmcnt": "s_waitcnt vmcnt(0)",
}


@cache
def printed() -> dict[str, str]:
    """A line by its mnemonic as LLVM prints it."""
    found: dict[str, str] = {}
    for row in [*all_of_them(), *registers_only()]:
        found[row.text.split(" ")[0]] = row.text
    return {**found, **{name: f"{name} {operands}".strip() for name, operands in OPERANDS.items()}}


def line_of(mnemonic: str) -> str:
    """A line of a mnemonic, without modifiers that it does not need."""
    return printed()[mnemonic]


def line_with(combination: str) -> str:
    """A line of a combination of modifiers."""
    if combination in SIGNS:
        return SIGNS[combination]
    mnemonic, _, modifiers = combination.partition(" ")
    if mnemonic.startswith("buffer_"):
        address = "v32" if "offen" in modifiers else "off"
        data = line_of(mnemonic).split(" ")[1]
        policy = modifiers.removeprefix("offen")
        addressing = " offen offset:8" if "offen" in modifiers else " offset:8"
        return f"{mnemonic} {data} {address}, s[12:15], 8{addressing} {policy}".rstrip()
    operands = [operand.split(" ")[0] for operand in line_of(mnemonic).partition(" ")[2].split(", ")]
    return f"{mnemonic} {', '.join(operands)} {modifiers}"


@cache
def all_lines() -> dict[str, str]:
    """The line of every entry of isa.toml."""
    listed = load("isa")
    lines = {name: line_of(name) for name in listed["mnemonics"]}
    return {**lines, **{combination: line_with(combination) for combination in listed["modifiers"]}}
