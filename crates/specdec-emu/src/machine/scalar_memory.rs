//! Scalar loads, clocks and hardware registers.

use super::buffer::Buffer;
use super::clock::CORE_CLOCKS_PER_TICK;
use super::error::EmulatorError;
use super::location::Location;
use super::shared::Shared;
use super::slot::Slot;
use super::visibility;
use crate::inst::Inst;

/// Hardware registers by their number in `s_getreg`.
const MODE: u32 = 1;
const HW_ID: u32 = 4;
const XCC_ID: u32 = 20;
/// XCDs of the device; workgroups go round them.
const XCDS: u32 = 8;

fn unimplemented(what: impl Into<String>) -> EmulatorError {
    EmulatorError::Unimplemented { what: what.into(), at: Location::unknown() }
}

/// The scalar registers of a result.
fn destination(inst: &Inst, dwords: usize) -> Result<usize, EmulatorError> {
    let first = inst.dst.scalar().filter(|first| first + dwords <= 128);
    first.ok_or_else(|| unimplemented("a scalar result outside the scalar registers"))
}

/// Runs one scalar load.
pub(super) fn load(
    inst: &Inst,
    dwords: usize,
    is_buffer: bool,
    slot: &mut Slot,
    shared: &mut Shared,
) -> Result<(), EmulatorError> {
    let wave = &slot.wave;
    let offset = inst.mods.offset as i64 as u64;
    let scalar = if inst.src[1].is_some() { wave.scalar32(inst.src[1], inst.literal) as u64 } else { 0 };
    let offset = offset.wrapping_add(scalar);
    let base = inst.src[0].scalar().filter(|base| base + 4 <= 128).ok_or_else(|| unimplemented("a constant base"))?;
    let mut bytes = [0; 64];
    let (address, inside) = if is_buffer {
        let words = [wave.sgpr[base], wave.sgpr[base + 1], wave.sgpr[base + 2], wave.sgpr[base + 3]];
        let buffer = Buffer::parse(words)?;
        (buffer.base.wrapping_add(offset), buffer.bytes_inside(offset, dwords * 4))
    } else {
        (wave.read64(base).wrapping_add(offset), dwords * 4)
    };
    if address % 4 != 0 {
        return Err(EmulatorError::Misaligned { access: "scalar load", address, needed: 4, at: Location::unknown() });
    }
    if inside > 0 {
        visibility::scalar_load(shared, slot.origin, address, &mut bytes[..inside])?;
    }
    let first = destination(inst, dwords)?;
    for (register, word) in slot.wave.sgpr[first..first + dwords].iter_mut().zip(bytes.chunks_exact(4)) {
        *register = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    }
    shared.statistics.scalar_loads += 1;
    slot.board.issue_scalar(first, dwords);
    Ok(())
}

/// Reads the 100 MHz or the core clock.
pub(super) fn time(inst: &Inst, is_real_time: bool, slot: &mut Slot, shared: &Shared) -> Result<(), EmulatorError> {
    let scale = if is_real_time { 1 } else { CORE_CLOCKS_PER_TICK };
    let first = destination(inst, 2)?;
    slot.wave.write64(first, shared.clock.ticks().wrapping_mul(scale));
    slot.board.issue_scalar(first, 2);
    Ok(())
}

/// The field that `s_getreg` and `s_setreg` name: register, first bit, bits.
fn field(inst: &Inst) -> (u32, u32, u32) {
    let immediate = inst.mods.offset as u16 as u32;
    (immediate & 63, immediate >> 6 & 31, (immediate >> 11) + 1)
}

/// Runs `s_getreg_b32`.
pub(super) fn get_register(inst: &Inst, slot: &mut Slot) -> Result<(), EmulatorError> {
    let (register, first_bit, bits) = field(inst);
    let workgroup = slot.origin.workgroup;
    let value = match register {
        MODE => slot.mode,
        // Wave slot, SIMD and compute unit as the round-robin placement would give them.
        HW_ID => {
            let (unit, engine) = (workgroup / XCDS % 16, workgroup / XCDS / 16 % 8);
            (slot.index / 4 % 16) | ((slot.index % 4) << 4) | (unit << 8) | (engine << 13)
        }
        XCC_ID => workgroup % XCDS,
        _ => return Err(unimplemented(format!("hardware register {register}"))),
    };
    let to = destination(inst, 1)?;
    slot.wave.sgpr[to] = (value >> first_bit) & (u32::MAX >> (32 - bits));
    Ok(())
}

/// Runs `s_setreg_b32` and `s_setreg_imm32_b32`.
pub(super) fn set_register(inst: &Inst, slot: &mut Slot) -> Result<(), EmulatorError> {
    let (register, first_bit, bits) = field(inst);
    let source = inst.src.iter().find(|source| source.is_some());
    let value = source.map_or(inst.literal, |&source| slot.wave.scalar32(source, inst.literal));
    if register != MODE {
        return Err(unimplemented(format!("writing hardware register {register}")));
    }
    let mask = (u32::MAX >> (32 - bits)) << first_bit;
    slot.mode = slot.mode & !mask | value << first_bit & mask;
    if slot.mode & 15 != 0 {
        return Err(unimplemented("rounding other than to nearest even"));
    }
    Ok(())
}
