//! VOP3, VOP3P and the matrix unit.

use super::fetch::{bit, bits, Fetch, LITERAL};
use super::row::{
    Row, BITOP3, CARRY_OUT, CLAMP, DST_ACC, F8F6F4, OMOD, ONLY_E32, OPSEL, PACKED_F32, RESULT_BYTE, SCALAR_DST,
    SRC_ACC, VCC_IN, VECTOR_SRC, WHOLE,
};
use super::valu_tables::{VOP1, VOP2, VOPC};
use super::vector::accumulator;
use super::vop3_tables::{FIRST_VOP3, MAI, VOP3, VOP3P};
use super::DecodeError;
use crate::inst::{Format, Inst, Operand};
use crate::op::Op;
use crate::wave::M0;

const FIRST_VOP2: u32 = 256;
const FIRST_VOP1: u32 = 320;
const FIRST_MAI: u32 = 45;
const FIRST_MAI_AFTER_PACKED: u32 = 53;
const LD_SCALE: u32 = 44;

/// The three sources of a 64-bit encoding's second dword; absent ones must be zero.
fn sources(fetch: &Fetch, row: &Row, second: u32) -> Result<[Operand; 3], DecodeError> {
    let mut src = [Operand::NONE; 3];
    for (index, source) in src.iter_mut().enumerate() {
        let code = second >> (9 * index) & 0x1ff;
        if row.src[index] == 0 {
            fetch.require(code == 0)?;
        } else {
            *source = fetch.source(code, row.src[index])?;
            fetch.require(code != LITERAL)?;
        }
    }
    Ok(src)
}

/// Three bits as flags.
fn flags(field: u32) -> [bool; 3] {
    [bit(field, 0), bit(field, 1), bit(field, 2)]
}

/// Decodes a VOP3 instruction.
pub(super) fn decode(fetch: &Fetch, word: u32) -> Result<Inst, DecodeError> {
    let second = fetch.word(1)?;
    let opcode = bits(word, 25, 16);
    let row = match opcode {
        0..FIRST_VOP2 => fetch.row(&VOPC, opcode)?,
        FIRST_VOP2..FIRST_VOP1 => fetch.row(&VOP2, opcode - FIRST_VOP2)?,
        _ if opcode < FIRST_VOP3 as u32 => fetch.row(&VOP1, opcode - FIRST_VOP1)?,
        _ => fetch.row(&VOP3, opcode - FIRST_VOP3 as u32)?,
    };
    fetch.require(!row.has(ONLY_E32))?;
    let mut inst = fetch.inst(Format::Vop3, row, 8);
    let dst = bits(word, 7, 0);
    if row.dst == 0 {
        fetch.require(dst == 0)?;
    } else if opcode < FIRST_VOP2 || row.has(SCALAR_DST) {
        fetch.require(dst as usize != M0)?;
        inst.dst = fetch.sgpr(dst, row.dst)?;
    } else {
        inst.dst = fetch.vgpr(dst, row.dst, false)?;
    }
    inst.src = sources(fetch, row, second)?;
    if row.has(VCC_IN) {
        fetch.require(inst.src[2].scalar().is_some())?;
    }
    if row.has(VECTOR_SRC) {
        fetch.require(inst.src[0].vector().is_some())?;
    }
    let lane_select = match row.op {
        Op::VReadlaneB32 => &inst.src[1..],
        Op::VWritelaneB32 => &inst.src[..],
        _ => &[],
    };
    fetch.require(lane_select.iter().all(|source| source.vector().is_none()))?;
    // Tuples wider than a pair exist as VGPRs only.
    fetch.require(inst.src.iter().zip(row.src).all(|(source, dwords)| dwords <= 2 || source.vector().is_some()))?;
    let mods = &mut inst.mods;
    mods.clamp = bit(word, 15);
    mods.omod = bits(second, 28, 27) as u8;
    if row.has(CARRY_OUT) {
        inst.sdst = fetch.sgpr(bits(word, 14, 8), 2)?;
    } else {
        mods.op_sel = bits(word, 14, 11) as u8;
        mods.abs = flags(bits(word, 10, 8));
    }
    mods.neg = flags(bits(second, 31, 29));
    if row.has(BITOP3) {
        mods.bitop3 = (bits(second, 31, 29) | bits(word, 10, 8) << 3 | bits(second, 28, 27) << 6) as u8;
        (mods.neg, mods.abs, mods.omod) = ([false; 3], [false; 3], 0);
    }
    fetch.require(row.has(CLAMP) || !mods.clamp)?;
    fetch.require(row.has(OMOD) || mods.omod == 0)?;
    fetch.require(row.has(OPSEL) || mods.op_sel == 0)?;
    fetch.require(row.src[2] != 0 || row.has(RESULT_BYTE) || mods.op_sel & 4 == 0)?;
    for index in 0..3 {
        fetch.require(row.has_sign(index) || !(mods.neg[index] || mods.abs[index]))?;
    }
    Ok(inst)
}

/// Decodes a VOP3P instruction, the matrix unit's included.
pub(super) fn packed(fetch: &Fetch, word: u32) -> Result<Inst, DecodeError> {
    let opcode = bits(word, 22, 16);
    match opcode {
        LD_SCALE => scaled_mfma(fetch, word),
        FIRST_MAI | 46 => mfma(fetch, word, 0),
        _ if opcode >= FIRST_MAI_AFTER_PACKED => mfma(fetch, word, 0),
        _ => {
            let second = fetch.word(1)?;
            let row = fetch.row(&VOP3P, opcode)?;
            let mut inst = fetch.inst(Format::Vop3p, row, 8);
            inst.dst = fetch.vgpr(bits(word, 7, 0), row.dst, false)?;
            inst.src = sources(fetch, row, second)?;
            if row.has(PACKED_F32) {
                for source in &mut inst.src {
                    source.dwords = if source.code >= 128 && source.code < 256 { 1 } else { source.dwords };
                }
            }
            inst.mods.neg = flags(bits(second, 31, 29));
            inst.mods.abs = flags(bits(word, 10, 8));
            inst.mods.op_sel = bits(word, 13, 11) as u8;
            inst.mods.op_sel_hi = (bits(second, 28, 27) | bits(word, 14, 14) << 2) as u8;
            inst.mods.clamp = bit(word, 15);
            // Of a source that is not there, LLVM sets op_sel_hi and nothing else.
            let absent = row.src[2] == 0;
            fetch.require(!absent || !(inst.mods.neg[2] || inst.mods.abs[2] || inst.mods.op_sel & 4 != 0))?;
            fetch.require(!row.has(WHOLE) || inst.mods.op_sel == 0)?;
            Ok(inst)
        }
    }
}

/// Dwords of a matrix operand in the format that `cbsz` or `blgp` names: FP8, BF8, FP6, BF6, FP4.
fn format_dwords(fetch: &Fetch, format: u8) -> Result<u8, DecodeError> {
    match format {
        0 | 1 => Ok(8),
        2 | 3 => Ok(6),
        4 => Ok(4),
        _ => Err(fetch.unknown()),
    }
}

/// Decodes a matrix instruction; `scaled` is what `abid` must be where the formats vary.
fn mfma(fetch: &Fetch, word: u32, scaled: u8) -> Result<Inst, DecodeError> {
    let second = fetch.word(1)?;
    let row = fetch.row(&MAI, bits(word, 22, 16))?;
    let mut inst = fetch.inst(Format::Mai, row, 8);
    inst.mods.cbsz = bits(word, 10, 8) as u8;
    inst.mods.abid = bits(word, 14, 11) as u8;
    inst.mods.blgp = bits(second, 31, 29) as u8;
    if row.has(SRC_ACC | DST_ACC) {
        return accumulator_move(fetch, row, inst, word, second);
    }
    let mut row = *row;
    if row.has(F8F6F4) {
        fetch.require(inst.mods.abid == scaled)?;
        inst.mods.abid = 0;
        row.src[0] = format_dwords(fetch, inst.mods.cbsz)?;
        row.src[1] = format_dwords(fetch, inst.mods.blgp)?;
    }
    inst.src = sources(fetch, &row, second)?;
    let acc_result = bit(word, 15);
    inst.dst = fetch.vgpr(bits(word, 7, 0), row.dst, acc_result)?;
    for (index, acc) in [bit(second, 27), bit(second, 28), acc_result].into_iter().enumerate() {
        let source = inst.src[index];
        if source.vector().is_none() {
            // Only the addend may be a constant, and it is one element's.
            fetch.require(index == 2 && matches!(source.code, 128..=208 | 240..=248))?;
            inst.src[index].dwords = 1;
        } else if acc {
            inst.src[index] = accumulator(fetch, source)?;
        }
    }
    Ok(inst)
}

/// `v_accvgpr_read_b32` and `v_accvgpr_write_b32`, whose operation says which side is the accumulator's.
fn accumulator_move(fetch: &Fetch, row: &Row, mut inst: Inst, word: u32, second: u32) -> Result<Inst, DecodeError> {
    // LLVM sets op_sel_hi's bits here as in every VOP3P, which are the other encoding's abid and acc.
    let mods = &mut inst.mods;
    fetch.require(mods.cbsz == 0 && matches!(mods.abid, 0 | 8) && mods.blgp == 0 && !bit(word, 15))?;
    mods.abid = 0;
    inst.dst = fetch.vgpr(bits(word, 7, 0), row.dst, row.has(DST_ACC))?;
    inst.src = sources(fetch, row, second & !(3 << 27))?;
    if row.has(SRC_ACC) {
        inst.src[0] = accumulator(fetch, inst.src[0])?;
    }
    Ok(inst)
}

/// `v_mfma_ld_scale_b32` and the F8F6F4 MFMA after it: one instruction of 16 bytes.
fn scaled_mfma(fetch: &Fetch, word: u32) -> Result<Inst, DecodeError> {
    let second = fetch.word(1)?;
    let rest = Fetch { text: fetch.text, pc: fetch.pc + 8 };
    let third = fetch.word(2)?;
    fetch.require(bits(third, 31, 23) == 0b1_1010_0111 && matches!(bits(third, 22, 16), FIRST_MAI | 46))?;
    // The lowest bit of abid says that a scale was loaded.
    let mut inst = mfma(&rest, third, 1).map_err(|_| fetch.unknown())?;
    inst.op = match inst.op {
        Op::VMfmaF3216x16x128F8f6f4 => Op::VMfmaScaleF3216x16x128F8f6f4,
        _ => Op::VMfmaScaleF3232x32x64F8f6f4,
    };
    inst.pc = fetch.pc;
    inst.size = 16;
    inst.scale = [fetch.source(bits(second, 8, 0), 1)?, fetch.source(bits(second, 17, 9), 1)?];
    fetch.require(inst.scale.iter().all(|scale| scale.vector().is_some()))?;
    fetch.require(bits(second, 31, 29) == 0 && bits(second, 26, 18) == 0)?;
    fetch.require(bits(word, 10, 0) == 0 && bits(word, 15, 13) == 0)?;
    inst.mods.op_sel = bits(word, 12, 11) as u8;
    inst.mods.op_sel_hi = bits(second, 28, 27) as u8;
    Ok(inst)
}
