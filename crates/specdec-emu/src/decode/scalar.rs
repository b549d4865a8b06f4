//! SOP1, SOP2, SOPC, SOPK, SOPP and SMEM.

use super::fetch::{bit, bits, Fetch, LITERAL};
use super::row::NO_IMM;
use super::scalar_tables::{SMEM, SOP1, SOP2, SOPC, SOPK, SOPP};
use super::DecodeError;
use crate::inst::{Format, Inst, Operand};
use crate::op::Op;

/// `immediate` as a signed or, where the instruction says so, unsigned 16-bit number.
fn immediate(op: Op, word: u32) -> i32 {
    let unsigned = matches!(
        op,
        Op::SCmpkEqU32 | Op::SCmpkLgU32 | Op::SCmpkGtU32 | Op::SCmpkGeU32 | Op::SCmpkLtU32 | Op::SCmpkLeU32
    ) || matches!(op, Op::SGetregB32 | Op::SSetregB32 | Op::SSetregImm32B32);
    if unsigned {
        bits(word, 15, 0) as i32
    } else {
        word as i16 as i32
    }
}

fn take_literal(fetch: &Fetch, inst: &mut Inst) -> Result<(), DecodeError> {
    if inst.src.iter().any(|source| u32::from(source.code) == LITERAL) {
        inst.literal = fetch.word(1)?;
        inst.size = 8;
    }
    Ok(())
}

/// Decodes a SOP1 instruction.
pub(super) fn sop1(fetch: &Fetch, word: u32) -> Result<Inst, DecodeError> {
    let row = fetch.row(&SOP1, bits(word, 15, 8))?;
    let mut inst = fetch.inst(Format::Sop1, row, 4);
    if row.dst == 0 {
        fetch.require(bits(word, 22, 16) == 0)?;
    } else {
        inst.dst = fetch.sgpr(bits(word, 22, 16), row.dst)?;
    }
    if row.src[0] == 0 {
        fetch.require(bits(word, 7, 0) == 0)?;
    } else {
        inst.src[0] = fetch.source(bits(word, 7, 0), row.src[0])?;
        let relative = matches!(row.op, Op::SMovrelsB32 | Op::SMovrelsB64 | Op::SSetpcB64 | Op::SSwappcB64);
        fetch.require(!relative || inst.src[0].scalar().is_some())?;
    }
    take_literal(fetch, &mut inst)?;
    Ok(inst)
}

/// Decodes a SOP2 instruction.
pub(super) fn sop2(fetch: &Fetch, word: u32) -> Result<Inst, DecodeError> {
    let row = fetch.row(&SOP2, bits(word, 29, 23))?;
    let mut inst = fetch.inst(Format::Sop2, row, 4);
    if row.dst == 0 {
        fetch.require(bits(word, 22, 16) == 0)?;
    } else {
        inst.dst = fetch.sgpr(bits(word, 22, 16), row.dst)?;
    }
    inst.src[0] = fetch.source(bits(word, 7, 0), row.src[0])?;
    inst.src[1] = fetch.source(bits(word, 15, 8), row.src[1])?;
    take_literal(fetch, &mut inst)?;
    Ok(inst)
}

/// Decodes a SOPC instruction; the mode of `s_set_gpr_idx_on` becomes the immediate.
pub(super) fn sopc(fetch: &Fetch, word: u32) -> Result<Inst, DecodeError> {
    let row = fetch.row(&SOPC, bits(word, 22, 16))?;
    let mut inst = fetch.inst(Format::Sopc, row, 4);
    inst.src[0] = fetch.source(bits(word, 7, 0), row.src[0])?;
    if row.op == Op::SSetGprIdxOn {
        inst.mods.offset = bits(word, 15, 8) as i32;
    } else {
        inst.src[1] = fetch.source(bits(word, 15, 8), row.src[1])?;
    }
    take_literal(fetch, &mut inst)?;
    Ok(inst)
}

/// Decodes a SOPK instruction. The register of a comparison or of `s_setreg_b32` is `src[0]`.
pub(super) fn sopk(fetch: &Fetch, word: u32) -> Result<Inst, DecodeError> {
    let row = fetch.row(&SOPK, bits(word, 27, 23))?;
    let mut inst = fetch.inst(Format::Sopk, row, 4);
    inst.mods.offset = immediate(row.op, word);
    let register = bits(word, 22, 16);
    match row.op {
        Op::SMovkI32 | Op::SCmovkI32 | Op::SAddkI32 | Op::SMulkI32 | Op::SGetregB32 | Op::SCallB64 => {
            inst.dst = fetch.sgpr(register, row.dst)?;
        }
        Op::SSetregImm32B32 => {
            fetch.require(register == 0)?;
            inst.literal = fetch.word(1)?;
            inst.size = 8;
        }
        _ => inst.src[0] = fetch.sgpr(register, row.dst)?,
    }
    Ok(inst)
}

/// Decodes a SOPP instruction.
pub(super) fn sopp(fetch: &Fetch, word: u32) -> Result<Inst, DecodeError> {
    let row = fetch.row(&SOPP, bits(word, 22, 16))?;
    let mut inst = fetch.inst(Format::Sopp, row, 4);
    inst.mods.offset = match row.op {
        Op::SWaitcnt => bits(word, 15, 0) as i32,
        _ => immediate(row.op, word),
    };
    fetch.require(!row.has(NO_IMM) || inst.mods.offset == 0)?;
    Ok(inst)
}

/// Decodes an SMEM instruction.
pub(super) fn smem(fetch: &Fetch, word: u32) -> Result<Inst, DecodeError> {
    let row = fetch.row(&SMEM, bits(word, 25, 18))?;
    let second = fetch.word(1)?;
    let mut inst = fetch.inst(Format::Smem, row, 8);
    if row.dst == 0 {
        fetch.require(bits(word, 17, 0) == 0 && second == 0)?;
        return Ok(inst);
    }
    inst.dst = fetch.sgpr(bits(word, 12, 6), row.dst)?;
    if row.src[0] == 0 {
        fetch.require(bits(word, 17, 13) == 0 && bits(word, 5, 0) == 0 && second == 0)?;
        return Ok(inst);
    }
    inst.src[0] = fetch.sgpr(bits(word, 5, 0) * 2, row.src[0])?;
    inst.mods.glc = bit(word, 16);
    let (register_offset, immediate_offset) = (bit(word, 14), bit(word, 17));
    fetch.require(!bit(word, 13) && !bit(word, 15) && bits(second, 24, 21) == 0)?;
    inst.src[1] = match (register_offset, immediate_offset) {
        (true, _) => fetch.sgpr(bits(second, 31, 25), 1)?,
        (false, true) => {
            fetch.require(bits(second, 31, 25) == 0)?;
            Operand::NONE
        }
        (false, false) => {
            fetch.require(second >> 7 == 0)?;
            fetch.sgpr(second, 1)?
        }
    };
    inst.mods.offen = register_offset && immediate_offset;
    if immediate_offset {
        inst.mods.offset = (second << 11) as i32 >> 11;
    } else if register_offset {
        fetch.require(bits(second, 20, 0) == 0)?;
    }
    Ok(inst)
}
