"""Modifiers of sources and results, around the pseudocode; and the same facts again as vectors worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from .agreement import assert_agreement
from .assembly import assembled
from .expected import Oracle
from .state import EXEC, State, execute

DPP = ["quad_perm:[1,0,3,2]", "quad_perm:[3,3,0,1]", "row_shl:1", "row_shl:15", "row_shr:4", "row_ror:3", "row_mirror"]
DPP += ["row_half_mirror", "row_bcast:15", "row_bcast:31", "row_newbcast:5", "wave_shl:1", "wave_shr:1", "wave_rol:1"]
DPP += ["wave_ror:1"]
MASKS = ["row_mask:0xf bank_mask:0xf", "row_mask:0xa bank_mask:0x5", "row_mask:0xf bank_mask:0xf bound_ctrl:0"]
SELECTS = ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"]


def dpp_lines() -> list[str]:
    """Every control with every kind of mask, on a move, a sum and signed floats."""
    lines = [f"v_mov_b32_dpp v0, v32 {control} {mask}" for control in DPP for mask in MASKS]
    lines += [f"v_add_u32_dpp v0, v32, v64 {control} {MASKS[at % 3]}" for at, control in enumerate(DPP)]
    lines += [f"v_sub_f32_dpp v0, -v32, |v64| {control} {MASKS[at % 3]}" for at, control in enumerate(DPP)]
    return lines + ["v_max_f16_dpp v0, |v32|, -v64 row_shr:1 row_mask:0xf bank_mask:0xf"]


def sdwa_lines() -> list[str]:
    """Every selection of each source and of the destination, the rest of which is zero, sign or kept."""
    form = "dst_sel:{} dst_unused:{} src0_sel:{} src1_sel:{}"
    lines = []
    for at, select in enumerate(SELECTS):
        unused = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")[at % 3]
        other = SELECTS[-1 - at]
        lines.append("v_add_u32_sdwa v0, v32, v64 " + form.format(select, "UNUSED_PAD", "DWORD", other))
        lines.append("v_and_b32_sdwa v0, v32, v64 " + form.format(select, unused, other, select))
        lines.append("v_add_u32_sdwa v0, sext(v32), sext(v64) " + form.format("DWORD", "UNUSED_PAD", select, other))
        lines.append("v_mul_lo_u16_sdwa v0, v32, v64 " + form.format("DWORD", "UNUSED_PAD", select, "DWORD"))
        lines.append("v_mul_f16_sdwa v0, |v32|, -v64 " + form.format("WORD_1", "UNUSED_PRESERVE", "WORD_0", "WORD_1"))
        lines.append(f"v_cvt_f32_u32_sdwa v0, v32 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{select}")
        lines.append(f"v_cmp_lt_i32_sdwa vcc, sext(v32), sext(v64) src0_sel:{select} src1_sel:{other}")
    return lines


VOP3 = [
    "v_add_f32_e64 v0, -v32, |v64|",
    "v_add_f32_e64 v0, -|v32|, -v64 clamp",
    "v_mul_f32_e64 v0, v32, v64 mul:2",
    "v_mul_f32_e64 v0, v32, v64 mul:4",
    "v_mul_f32_e64 v0, v32, -v64 div:2",
    "v_fma_f32 v0, -v32, |v64|, -v96 clamp mul:2",
    "v_max_f32_e64 v0, |v32|, v64 clamp",
    "v_cndmask_b32_e64 v0, -v32, |v64|, s[24:25]",
    "v_med3_f32 v0, -v32, v64, |v96|",
    "v_add_f16_e64 v0, -v32, |v64| clamp",
    "v_fma_f16 v0, v32, v64, v96 op_sel:[1,0,1,0]",
    "v_fma_f16 v0, -v32, v64, |v96| op_sel:[0,1,0,1]",
    "v_mad_u16 v0, v32, v64, v96 op_sel:[1,1,0,1]",
    "v_min3_i16 v0, v32, v64, v96 op_sel:[0,1,1,0]",
    "v_mad_i32_i16 v0, v32, v64, v96 op_sel:[1,0,0,0]",
    "v_cvt_f16_f32_e64 v0, -v32 clamp",
    "v_cvt_f32_f16_e64 v0, |v32| mul:2",
    "v_add_u32_e64 v0, v32, v64 clamp",
    "v_sub_u32_e64 v0, v32, v64 clamp",
    "v_subrev_u32_e64 v0, v32, v64 clamp",
    "v_add_i32 v0, v32, v64 clamp",
    "v_sub_i32 v0, v32, v64 clamp",
    "v_add_u16_e64 v0, v32, v64 clamp",
    "v_sub_u16_e64 v0, v32, v64 clamp",
    "v_mad_u32_u24 v0, v32, v64, v96 clamp",
    "v_mad_i32_i24 v0, v32, v64, v96 clamp",
    "v_mad_u32_u16 v0, v32, v64, v96 clamp",
    "v_mad_i32_i16 v0, v32, v64, v96 clamp",
    "v_mad_i16 v0, v32, v64, v96 clamp",
    "v_fma_f64 v[0:1], -v[32:33], |v[64:65]|, v[96:97]",
    "v_add_f64 v[0:1], |v[32:33]|, -v[64:65]",
    "v_cmp_lt_f32_e64 s[40:41], -v32, |v64|",
    "v_cmp_class_f32_e64 s[40:41], -v32, v64",
    "v_div_scale_f32 v0, vcc, v32, v64, v32",
    "v_bitop3_b32 v0, v32, v64, v96 bitop3:0xc8",
    "v_bitop3_b32 v0, v32, v64, v96 bitop3:0x96",
    "v_cvt_scalef32_pk_fp4_f32 v0, -v32, |v64|, v96 op_sel:[0,0,1,1]",
    "v_cvt_scalef32_pk_f32_fp4 v[0:1], v32, v64 op_sel:[1,1,0]",
    "v_cvt_scalef32_pk_f32_fp8 v[0:1], v32, v64 op_sel:[1,0,0]",
    "v_cvt_scalef32_pk_fp8_f32 v0, v32, v64, v96 op_sel:[0,0,0,1]",
    "v_cvt_pk_fp8_f32 v0, v32, -v64 op_sel:[0,0,1]",
    "v_add_f32_e64 v0, s16, v64 clamp",
    "v_add_f32_e64 v0, 0.5, -v64",
    "v_fma_f16 v0, 1.0, v64, -2.0",
    "v_add_u16_e64 v0, -1, v64",
    "v_lshlrev_b64 v[0:1], 5, v[64:65]",
]
VOP3P = [
    "v_pk_add_f32 v[0:1], v[32:33], v[64:65] op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1] neg_hi:[1,0]",
    "v_pk_fma_f32 v[0:1], v[32:33], v[64:65], v[96:97] op_sel:[1,1,0] op_sel_hi:[0,0,1] neg_lo:[1,0,1]",
    "v_pk_mul_f32 v[0:1], s[16:17], v[64:65] op_sel_hi:[0,1]",
    "v_pk_add_f16 v0, v32, v64 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1] neg_hi:[1,0]",
    "v_pk_add_f16 v0, v32, v64 clamp",
    "v_pk_fma_f16 v0, v32, v64, v96 op_sel:[0,1,1] op_sel_hi:[1,0,0] neg_lo:[0,0,1] neg_hi:[1,0,0]",
    "v_pk_mul_f16 v0, v32, v64 op_sel_hi:[1,0] clamp",
    "v_pk_min_f16 v0, v32, v64 neg_lo:[1,1] neg_hi:[1,1]",
    "v_pk_add_u16 v0, v32, v64 clamp",
    "v_pk_sub_i16 v0, v32, v64 op_sel:[1,1] op_sel_hi:[0,0] clamp",
    "v_pk_mad_i16 v0, v32, v64, v96 clamp",
    "v_pk_mad_u16 v0, v32, v64, v96 op_sel_hi:[0,1,0]",
    "v_pk_lshlrev_b16 v0, 3, v64 op_sel_hi:[0,1]",
    "v_dot2_f32_f16 v0, v32, v64, v96 neg_lo:[1,0,0] neg_hi:[0,1,0]",
    "v_dot2_i32_i16 v0, v32, v64, v96 clamp",
    "v_dot4_i32_i8 v0, v32, v64, v96 clamp",
    "v_dot4_u32_u8 v0, v32, v64, v96 clamp",
    "v_dot8_u32_u4 v0, v32, v64, v96 clamp",
    "v_fma_mix_f32 v0, v32, v64, v96",
    "v_fma_mix_f32 v0, v32, v64, v96 op_sel:[1,0,0] op_sel_hi:[1,0,1]",
    "v_fma_mixlo_f16 v0, v32, v64, v96 op_sel:[0,1,1] op_sel_hi:[0,1,1]",
    "v_fma_mixhi_f16 v0, v32, v64, v96 op_sel:[1,1,0] op_sel_hi:[1,1,0]",
]


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    """The pseudocode, read once."""
    return Oracle()


@pytest.mark.parametrize("line", [*dpp_lines(), *sdwa_lines(), *VOP3, *VOP3P])
def test_modified_forms(oracle: Oracle, line: str) -> None:
    """The pseudocode between modified sources and the modified result."""
    assert_agreement(oracle, assembled(line))


# Source lane of lanes 0 to 15 (or of those given) by hand from the manual's figures; None: not written.
HAND = [
    ("quad_perm:[1,0,3,2]", 0, [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14]),
    ("quad_perm:[2,3,0,1]", 16, [18, 19, 16, 17, 22, 23, 20, 21, 26, 27, 24, 25, 30, 31, 28, 29]),
    ("row_shl:4", 0, [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, None, None, None, None]),
    ("row_shl:8", 32, [40, 41, 42, 43, 44, 45, 46, 47, None, None, None, None, None, None, None, None]),
    ("row_shr:4", 0, [None, None, None, None, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    ("row_shr:8", 48, [None] * 8 + [48, 49, 50, 51, 52, 53, 54, 55]),
    ("row_ror:4", 16, [28, 29, 30, 31, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27]),
    ("row_mirror", 0, [15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
    ("row_half_mirror", 0, [7, 6, 5, 4, 3, 2, 1, 0, 15, 14, 13, 12, 11, 10, 9, 8]),
    ("row_bcast:15", 14, [None, None, 15, 15]),
    ("row_bcast:31", 30, [None, None, 31, 31]),
    ("row_newbcast:3", 16, [19] * 16),
    ("wave_shr:1", 0, [None, 0, 1, 2]),
    ("wave_rol:1", 61, [62, 63, 0]),
]


@pytest.mark.parametrize(("control", "first", "sources"), HAND, ids=lambda value: str(value)[:20])
def test_lanes_by_hand(control: str, first: int, sources: list[int | None]) -> None:
    """A move of lane numbers."""
    state = State(np.zeros(128, np.uint32), np.zeros((64, 64), np.uint32))
    state.set_pair(EXEC, (1 << 64) - 1)
    state.vgpr[0], state.vgpr[32] = 1000, np.arange(64)
    code = assembled(f"v_mov_b32_dpp v0, v32 {control} row_mask:0xf bank_mask:0xf").code
    found = execute(code, state).vgpr[0][first : first + len(sources)]
    assert found.tolist() == [1000 if lane is None else lane for lane in sources]


SDWA_HAND = [
    # 0x8081_8283 and 0x0102_0304, worked out on paper.
    ("v_add_u32_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_1", 0x82 + 0x0102),
    ("v_add_u32_sdwa v0, sext(v1), v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_3 src1_sel:BYTE_0", 0xFFFFFF84),
    ("v_or_b32_sdwa v0, v1, v2 dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_0 src1_sel:BYTE_1", 0xAA83AAAA),
    ("v_or_b32_sdwa v0, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:BYTE_0", 0x82870000),
    ("v_or_b32_sdwa v0, v1, v2 dst_sel:BYTE_1 dst_unused:UNUSED_SEXT src0_sel:BYTE_0 src1_sel:BYTE_1", 0xFFFF8300),
]


@pytest.mark.parametrize(("line", "wanted"), SDWA_HAND)
def test_selections_by_hand(line: str, wanted: int) -> None:
    """One lane's worth of each kind."""
    state = State(np.zeros(128, np.uint32), np.zeros((8, 64), np.uint32))
    state.set_pair(EXEC, (1 << 64) - 1)
    state.vgpr[0], state.vgpr[1], state.vgpr[2] = 0xAAAAAAAA, 0x80818283, 0x01020304
    assert (execute(assembled(line).code, state).vgpr[0] == wanted).all()


def test_swaps_between_lane_groups_by_hand() -> None:
    """v_permlane16_swap and v_permlane32_swap exchange the upper groups of one register with the lower of the other."""
    lanes = np.arange(64)
    for mnemonic, width in (("v_permlane16_swap_b32_e32", 16), ("v_permlane32_swap_b32_e32", 32)):
        state = State(np.zeros(128, np.uint32), np.zeros((8, 64), np.uint32))
        state.set_pair(EXEC, (1 << 64) - 1)
        state.vgpr[0], state.vgpr[1] = lanes, lanes + 100
        after = execute(assembled(f"{mnemonic} v0, v1").code, state)
        is_low = lanes // width % 2 == 0
        assert (after.vgpr[0] == np.where(is_low, lanes, lanes - width + 100)).all()
        assert (after.vgpr[1] == np.where(is_low, lanes + width, lanes + 100)).all()
