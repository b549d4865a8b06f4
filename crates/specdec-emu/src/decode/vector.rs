//! VOP1, VOP2 and VOPC, with their SDWA and DPP forms.

use super::fetch::{bit, bits, Fetch, LITERAL, VCC_PAIR};
use super::row::{
    Row, CARRY_OUT, DST_ACC, FMAAK, FMAMK, INT_RESULT, NO_DPP, NO_SDWA, OMOD, ONLY_E32, SCALAR_DST, SDWA_SRC_ONLY,
    SRC_ACC, VCC_IN, VECTOR_SRC,
};
use super::valu_tables::{VOP1, VOP2, VOPC};
use super::DecodeError;
use crate::inst::{Dpp, Format, Inst, Operand, Sdwa, Variant};
use crate::wave::M0;

const SDWA: u32 = 249;
const DPP: u32 = 250;
/// SDWA's selector of the whole dword.
const DWORD: u8 = 6;

/// Decodes a VOP1, VOP2 or VOPC instruction.
pub(super) fn decode(fetch: &Fetch, word: u32) -> Result<Inst, DecodeError> {
    let (format, row) = match bits(word, 30, 25) {
        0x3f => (Format::Vop1, fetch.row(&VOP1, bits(word, 16, 9))?),
        0x3e => (Format::Vopc, fetch.row(&VOPC, bits(word, 24, 17))?),
        opcode => (Format::Vop2, fetch.row(&VOP2, opcode)?),
    };
    let mut inst = fetch.inst(format, row, 4);
    let vdst = bits(word, 24, 17);
    match format {
        Format::Vopc => inst.dst = VCC_PAIR,
        _ if row.dst == 0 => fetch.require(vdst == 0)?,
        _ if row.has(SCALAR_DST) => {
            fetch.require(vdst as usize != M0)?;
            inst.dst = fetch.sgpr(vdst, row.dst)?;
        }
        _ => inst.dst = fetch.vgpr(vdst, row.dst, row.has(DST_ACC))?,
    }
    if row.has(CARRY_OUT) {
        inst.sdst = VCC_PAIR;
    }
    if row.has(VCC_IN) {
        inst.src[2] = VCC_PAIR;
    }
    if format != Format::Vop1 {
        inst.src[1] = fetch.vgpr(bits(word, 16, 9), row.src[1], false)?;
    }
    match bits(word, 8, 0) {
        SDWA => sdwa(fetch, row, &mut inst)?,
        DPP => dpp(fetch, row, &mut inst)?,
        code if row.src[0] == 0 => fetch.require(code == 0)?,
        code => inst.src[0] = fetch.source(code, row.src[0])?,
    }
    if row.has(SRC_ACC) {
        inst.src[0] = accumulator(fetch, inst.src[0])?;
    }
    if row.has(VECTOR_SRC) {
        fetch.require(inst.src[0].vector().is_some())?;
    }
    if u32::from(inst.src[0].code) == LITERAL || row.has(FMAMK | FMAAK) {
        inst.literal = fetch.word(1)?;
        inst.size = 8;
    }
    let literal = Operand { code: LITERAL as u16, dwords: 1 };
    if row.has(FMAMK) {
        inst.src = [inst.src[0], literal, inst.src[1]];
    } else if row.has(FMAAK) {
        inst.src[2] = literal;
    }
    Ok(inst)
}

/// The `AccVGPR` of a VGPR's number.
pub(super) fn accumulator(fetch: &Fetch, operand: Operand) -> Result<Operand, DecodeError> {
    fetch.require(operand.vector().is_some())?;
    Ok(Operand { code: operand.code + 256, dwords: operand.dwords })
}

/// A scalar or vector source of SDWA, by its bit.
fn sdwa_source(fetch: &Fetch, number: u32, scalar: bool, dwords: u8) -> Result<Operand, DecodeError> {
    if scalar {
        fetch.require(number != LITERAL)?;
        fetch.source(number, dwords)
    } else {
        fetch.vgpr(number, dwords, false)
    }
}

/// The sign bits of one SDWA source, `low` being its `sext`: floats have a sign, integers an extension.
fn sdwa_sign(
    fetch: &Fetch,
    row: &Row,
    inst: &mut Inst,
    index: usize,
    low: u32,
    word: u32,
) -> Result<bool, DecodeError> {
    let (sext, neg, abs) = (bit(word, low), bit(word, low + 1), bit(word, low + 2));
    fetch.require(if row.has_sign(index) { !sext } else { !neg && !abs })?;
    inst.mods.neg[index] = neg;
    inst.mods.abs[index] = abs;
    Ok(sext)
}

fn sdwa(fetch: &Fetch, row: &Row, inst: &mut Inst) -> Result<(), DecodeError> {
    fetch.require(!row.has(NO_SDWA | ONLY_E32))?;
    let word = fetch.word(1)?;
    inst.size = 8;
    let mut fields = Sdwa { src0_sel: bits(word, 18, 16) as u8, ..Sdwa::default() };
    inst.src[0] = sdwa_source(fetch, bits(word, 7, 0), bit(word, 23), row.src[0])?;
    fields.sext[0] = sdwa_sign(fetch, row, inst, 0, 19, word)?;
    if inst.format == Format::Vop1 {
        fetch.require(bits(word, 31, 24) == 0)?;
    } else {
        inst.src[1] = sdwa_source(fetch, inst.src[1].code as u32 - 256, bit(word, 31), row.src[1])?;
        fields.src1_sel = bits(word, 26, 24) as u8;
        fields.sext[1] = sdwa_sign(fetch, row, inst, 1, 27, word)?;
    }
    fetch.require(!bit(word, 22) && !bit(word, 30))?;
    if inst.format == Format::Vopc {
        if bit(word, 15) {
            inst.dst = fetch.sgpr(bits(word, 14, 8), row.dst)?;
        } else {
            fetch.require(bits(word, 14, 8) == 0)?;
        }
    } else {
        fields.dst_sel = bits(word, 10, 8) as u8;
        fields.dst_unused = bits(word, 12, 11) as u8;
        inst.mods.clamp = bit(word, 13);
        inst.mods.omod = bits(word, 15, 14) as u8;
        fetch.require(fields.dst_unused < 3 && fields.dst_sel <= DWORD)?;
        fetch.require(!row.has(SDWA_SRC_ONLY) || (fields.dst_sel == DWORD && fields.dst_unused == 0))?;
    }
    fetch.require(fields.src0_sel <= DWORD && fields.src1_sel <= DWORD)?;
    fetch.require(inst.mods.omod == 0 || (row.has(OMOD) && !row.has(INT_RESULT)))?;
    inst.variant = Variant::Sdwa(fields);
    Ok(())
}

fn dpp(fetch: &Fetch, row: &Row, inst: &mut Inst) -> Result<(), DecodeError> {
    fetch.require(!row.has(NO_DPP | ONLY_E32) && inst.format != Format::Vopc)?;
    let word = fetch.word(1)?;
    inst.size = 8;
    inst.src[0] = fetch.vgpr(bits(word, 7, 0), row.src[0], false)?;
    for index in 0..2 {
        let (neg, abs) = (bit(word, 20 + 2 * index), bit(word, 21 + 2 * index));
        fetch.require(row.has_sign(index as usize) || (!neg && !abs))?;
        inst.mods.neg[index as usize] = neg;
        inst.mods.abs[index as usize] = abs;
    }
    let ctrl = bits(word, 16, 8) as u16;
    let known = matches!(
        ctrl,
        0x000..=0x0ff
            | 0x101..=0x10f
            | 0x111..=0x11f
            | 0x121..=0x12f
            | 0x130
            | 0x134
            | 0x138
            | 0x13c
            | 0x140..=0x143
            | 0x150..=0x15f
    );
    // Double-precision units can only broadcast within a row.
    let wide = row.dst == 2 || row.src[0] == 2;
    fetch.require(known && bits(word, 18, 17) == 0 && (!wide || ctrl >= 0x150))?;
    inst.variant = Variant::Dpp(Dpp {
        ctrl,
        row_mask: bits(word, 31, 28) as u8,
        bank_mask: bits(word, 27, 24) as u8,
        bound_ctrl: bit(word, 19),
    });
    Ok(())
}
