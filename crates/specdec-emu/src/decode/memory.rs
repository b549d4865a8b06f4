//! DS, FLAT, GLOBAL, SCRATCH and MUBUF.

use super::fetch::{bit, bits, Fetch};
use super::memory_tables::{DS, FLAT, GLOBAL, MUBUF, SCRATCH};
use super::row::{ATOMIC, LDS, PAIR};
use super::DecodeError;
use crate::inst::{Format, Inst};
use crate::op::Op;
use crate::wave::EXEC;

/// No scalar base.
const OFF: u32 = 0x7f;

/// Decodes a DS instruction.
pub(super) fn ds(fetch: &Fetch, word: u32) -> Result<Inst, DecodeError> {
    let row = fetch.row(&DS, bits(word, 24, 17))?;
    let second = fetch.word(1)?;
    let mut inst = fetch.inst(Format::Ds, row, 8);
    let acc = bit(word, 25);
    // gfx950 has no GDS.
    fetch.require(!bit(word, 16))?;
    // A row without registers has no offset either.
    fetch.require(row.src[0] != 0 || bits(word, 25, 0) == bits(word, 24, 17) << 17)?;
    if row.has(PAIR) {
        inst.mods.offset = bits(word, 7, 0) as i32;
        inst.mods.offset1 = bits(word, 15, 8) as i32;
    } else {
        inst.mods.offset = bits(word, 15, 0) as i32;
    }
    let fields = [
        (&mut inst.src[0], row.src[0], 0, false),
        (&mut inst.data, row.src[1], 8, acc),
        (&mut inst.data1, row.src[2], 16, acc),
        (&mut inst.dst, row.dst, 24, acc),
    ];
    for (operand, dwords, low, acc) in fields {
        let number = bits(second, low + 7, low);
        if dwords == 0 {
            fetch.require(number == 0)?;
        } else {
            *operand = fetch.vgpr(number, dwords, acc)?;
        }
    }
    Ok(inst)
}

/// Decodes a FLAT, GLOBAL or SCRATCH instruction.
pub(super) fn flat(fetch: &Fetch, word: u32) -> Result<Inst, DecodeError> {
    let second = fetch.word(1)?;
    let opcode = bits(word, 24, 18);
    let (format, row) = match bits(word, 15, 14) {
        0 => (Format::Flat, fetch.row(&FLAT, opcode)?),
        1 => (Format::Scratch, fetch.row(&SCRATCH, opcode)?),
        2 => (Format::Global, fetch.row(&GLOBAL, opcode)?),
        _ => return Err(fetch.unknown()),
    };
    let mut inst = fetch.inst(format, row, 8);
    inst.mods.sc0 = bit(word, 16);
    inst.mods.nt = bit(word, 17);
    inst.mods.sc1 = bit(word, 25);
    inst.mods.lds = row.has(LDS);
    // Only global and scratch offsets are signed.
    let offset = bits(word, 12, 0);
    inst.mods.offset = if format == Format::Flat { offset as i32 } else { (offset << 19) as i32 >> 19 };
    fetch.require(format != Format::Flat || offset < 1 << 12)?;
    let acc = bit(second, 23);
    let address = bits(second, 7, 0);
    let base = bits(second, 22, 16);
    // In scratch this bit says that there is a vector address, elsewhere it must be zero.
    let sve = bit(word, 13);
    match format {
        Format::Flat => {
            fetch.require(base == 0 && !sve)?;
            inst.src[0] = fetch.vgpr(address, 2, false)?;
        }
        Format::Global => {
            fetch.require(!sve)?;
            inst.src[0] = fetch.vgpr(address, if base == OFF { 2 } else { 1 }, false)?;
            if base != OFF {
                // EXEC is no address.
                fetch.require((base as usize) < EXEC)?;
                inst.src[1] = fetch.sgpr(base, 2)?;
            }
        }
        _ => {
            if sve {
                inst.src[0] = fetch.vgpr(address, 1, false)?;
            } else {
                fetch.require(address == 0)?;
            }
            if base != OFF {
                inst.src[1] = fetch.sgpr(base, 1)?;
            }
        }
    }
    fetch.require(!acc || row.src[1] != 0 || row.dst != 0)?;
    let vgpr_only = matches!(row.op, Op::GlobalAtomicAddF32 | Op::GlobalAtomicPkAddF16) && inst.mods.sc0;
    fetch.require(!(acc && vgpr_only))?;
    let data = bits(second, 15, 8);
    if row.src[1] == 0 {
        fetch.require(data == 0)?;
    } else {
        inst.data = fetch.vgpr(data, row.src[1], acc)?;
    }
    let vdst = bits(second, 31, 24);
    if row.dst == 0 || (row.has(ATOMIC) && !inst.mods.sc0) {
        fetch.require(vdst == 0)?;
    } else {
        inst.dst = fetch.vgpr(vdst, row.dst, acc)?;
    }
    Ok(inst)
}

/// Decodes a MUBUF instruction.
pub(super) fn mubuf(fetch: &Fetch, word: u32) -> Result<Inst, DecodeError> {
    let row = fetch.row(&MUBUF, bits(word, 24, 18))?;
    let second = fetch.word(1)?;
    let mut inst = fetch.inst(Format::Mubuf, row, 8);
    inst.mods.offset = bits(word, 11, 0) as i32;
    inst.mods.offen = bit(word, 12);
    inst.mods.idxen = bit(word, 13);
    inst.mods.sc0 = bit(word, 14);
    inst.mods.sc1 = bit(word, 15);
    inst.mods.lds = bit(word, 16);
    inst.mods.nt = bit(word, 17);
    fetch.require(!bit(word, 25) && bits(second, 22, 21) == 0)?;
    if row.src[0] == 0 {
        // A cache operation: scope bits only.
        fetch.require(bits(word, 13, 0) == 0 && bits(word, 17, 16) == 0 && second == 0)?;
        return Ok(inst);
    }
    let acc = bit(second, 23);
    let vaddr = bits(second, 7, 0);
    match inst.mods.offen as u8 + inst.mods.idxen as u8 {
        0 => fetch.require(vaddr == 0)?,
        dwords => inst.src[0] = fetch.vgpr(vaddr, dwords, false)?,
    }
    inst.src[1] = fetch.sgpr(bits(second, 20, 16) * 4, 4)?;
    inst.src[2] = fetch.source(bits(second, 31, 24), 1)?;
    fetch.require(inst.src[2].code != 255)?;
    let vdata = bits(second, 15, 8);
    if inst.mods.lds {
        // The LDS form has no data register.
        fetch.require(row.has(LDS) && vdata == 0 && !acc)?;
        return Ok(inst);
    }
    if row.src[1] != 0 {
        inst.data = fetch.vgpr(vdata, row.src[1], acc)?;
    }
    if row.dst != 0 && (!row.has(ATOMIC) || inst.mods.sc0) {
        inst.dst = fetch.vgpr(vdata, row.dst, acc)?;
    }
    Ok(inst)
}
