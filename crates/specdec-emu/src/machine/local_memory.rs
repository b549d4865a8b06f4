//! DS instructions on the workgroup's LDS.

use super::action::{Element, LocalKind, Placement};
use super::atomic::AtomicOp;
use super::error::EmulatorError;
use super::lane_copy;
use super::lds::Lds;
use super::location::Location;
use super::program::span;
use super::scoreboard::Span;
use super::slot::Slot;
use super::transposed;
use super::vector_memory::{place, wide};
use super::visibility::{in_lane, LaneAddresses};
use crate::inst::{Inst, Operand};
use crate::wave::{Lanes, Wave, LANES};

/// Runs one DS instruction.
pub(super) fn run(kind: LocalKind, inst: &Inst, slot: &mut Slot, lds: &mut Lds) -> Result<(), EmulatorError> {
    let wave = &mut slot.wave;
    let mut written = Span::default();
    if inst.mods.gds {
        return Err(EmulatorError::Unimplemented { what: "global data share".into(), at: Location::unknown() });
    }
    match kind {
        LocalKind::Read(element) => {
            read(wave, lds, inst, inst.mods.offset as u32, element, 0)?;
            written = span(inst.dst);
        }
        LocalKind::ReadTransposed(bits) => {
            if !transposed::is_whole(wave.exec()) {
                let what = "a transposing LDS read without some of the sixteen lanes that share a matrix".into();
                return Err(EmulatorError::Unimplemented { what, at: Location::unknown() });
            }
            read(wave, lds, inst, inst.mods.offset as u32, Element { bytes: 8, placement: Placement::Zero }, 0)?;
            let (exec, first) = (wave.exec(), inst.dst.vector().unwrap_or(0));
            transposed::transpose(&mut wave.vgpr[first..first + 2], bits as usize, exec);
            written = span(inst.dst);
        }
        LocalKind::ReadTwo(bytes, stride) => {
            let element = Element { bytes, placement: Placement::Zero };
            // Both addresses are formed before a result may overwrite the address register.
            let address = *register(wave, inst.src[0], 0)?;
            read_at(wave, lds, inst, &address, inst.mods.offset as u32 * stride, element, 0)?;
            read_at(wave, lds, inst, &address, inst.mods.offset1 as u32 * stride, element, bytes as usize / 4)?;
            written = span(inst.dst);
        }
        LocalKind::Write(element) => write(wave, lds, inst, inst.mods.offset as u32, element, inst.data)?,
        LocalKind::WriteTwo(bytes, stride) => {
            let element = Element { bytes, placement: Placement::Zero };
            write(wave, lds, inst, inst.mods.offset as u32 * stride, element, inst.data)?;
            write(wave, lds, inst, inst.mods.offset1 as u32 * stride, element, inst.data1)?;
        }
        LocalKind::Atomic { op, bytes, is_returning } => {
            atomic(wave, lds, inst, op, bytes as usize, is_returning)?;
            if is_returning {
                written = span(inst.dst);
            }
        }
    }
    slot.board.issue_local(written);
    Ok(())
}

fn register(wave: &mut Wave, operand: Operand, index: usize) -> Result<&mut Lanes, EmulatorError> {
    let at = operand.vector().map_or(usize::MAX, |first| first + index);
    wave.vgpr.get_mut(at).ok_or_else(|| EmulatorError::Unimplemented {
        what: "data outside the wave's vector registers".into(),
        at: Location::unknown(),
    })
}

/// Dwords and wider need dword alignment, halves their own.
fn check_alignment(access: &'static str, lane: usize, address: u32, bytes: usize) -> Result<(), EmulatorError> {
    let needed = bytes.min(4) as u64;
    if address as u64 & (needed - 1) == 0 {
        return Ok(());
    }
    Err(EmulatorError::Misaligned { access, address: address as u64, needed, at: Location::lane(lane) })
}

fn read(
    wave: &mut Wave,
    lds: &Lds,
    inst: &Inst,
    offset: u32,
    element: Element,
    to: usize,
) -> Result<(), EmulatorError> {
    let address = *register(wave, inst.src[0], 0)?;
    read_at(wave, lds, inst, &address, offset, element, to)
}

fn read_at(
    wave: &mut Wave,
    lds: &Lds,
    inst: &Inst,
    address: &Lanes,
    offset: u32,
    element: Element,
    to: usize,
) -> Result<(), EmulatorError> {
    let exec = wave.exec();
    let bytes = element.bytes as usize;
    register(wave, inst.dst, to + bytes.div_ceil(4) - 1)?;
    let first = inst.dst.vector().unwrap_or(0) + to;
    let out = &mut wave.vgpr[first..first + bytes.div_ceil(4)];
    match bytes {
        1 => read_lanes::<1>(lds, exec, address, offset, out),
        2 => read_lanes::<2>(lds, exec, address, offset, out),
        4 => read_lanes::<4>(lds, exec, address, offset, out),
        8 => read_lanes::<8>(lds, exec, address, offset, out),
        12 => read_lanes::<12>(lds, exec, address, offset, out),
        _ => read_lanes::<16>(lds, exec, address, offset, out),
    }?;
    place(&mut out[0], element, exec);
    Ok(())
}

fn read_lanes<const N: usize>(
    lds: &Lds,
    exec: u64,
    address: &Lanes,
    offset: u32,
    out: &mut [Lanes],
) -> Result<(), EmulatorError> {
    let lanes = LaneAddresses { at: address.map(|address| address.wrapping_add(offset) as u64), mask: exec };
    let Some((low, high)) = lanes.bounds() else { return Ok(()) };
    lanes.check_alignment("LDS load", N.min(4) as u64)?;
    if let Some(races) = &lds.races {
        races.borrow_mut().read(&lanes, N);
    }
    if let Some(bytes) = lds.readable(low, high + N as u64) {
        lane_copy::gather(bytes, low, &lanes, N, out);
        return Ok(());
    }
    for lane in (0..LANES).filter(|lane| exec >> lane & 1 != 0) {
        let value = in_lane(lane, lds.load::<N>(lanes.at[lane]))?;
        for (register, chunk) in out.iter_mut().zip(value.chunks(4)) {
            register[lane] = chunk.iter().rev().fold(0, |word, &byte| word << 8 | byte as u32);
        }
    }
    Ok(())
}

fn write(
    wave: &mut Wave,
    lds: &mut Lds,
    inst: &Inst,
    offset: u32,
    element: Element,
    data: Operand,
) -> Result<(), EmulatorError> {
    let exec = wave.exec();
    let bytes = element.bytes as usize;
    let address = *register(wave, inst.src[0], 0)?;
    register(wave, data, bytes.div_ceil(4) - 1)?;
    let first = data.vector().unwrap_or(0);
    let data = &wave.vgpr[first..first + bytes.div_ceil(4)];
    let skipped = if element.placement == Placement::High { 2 } else { 0 };
    for lane in (0..LANES).filter(|lane| exec >> lane & 1 != 0) {
        let at = address[lane].wrapping_add(offset);
        check_alignment("LDS store", lane, at, bytes)?;
        in_lane(lane, lds.store(at as u64, &lane_copy::pack(data, lane)[skipped..skipped + bytes]))?;
    }
    Ok(())
}

fn atomic(
    wave: &mut Wave,
    lds: &mut Lds,
    inst: &Inst,
    op: AtomicOp,
    bytes: usize,
    is_returning: bool,
) -> Result<(), EmulatorError> {
    let exec = wave.exec();
    let dwords = bytes / 4;
    let address = *register(wave, inst.src[0], 0)?;
    let mut operand = |operand: Operand| -> Result<[u64; LANES], EmulatorError> {
        register(wave, operand, dwords - 1)?;
        let first = operand.vector().unwrap_or(0);
        Ok(wide(&wave.vgpr[first..first + dwords]))
    };
    // DS compare-and-store takes the value to compare with first, the other way round than global memory.
    let (data, compare) = if matches!(op, AtomicOp::CompareSwap | AtomicOp::CompareSwapFloat) {
        (operand(inst.data1)?, operand(inst.data)?)
    } else {
        (operand(inst.data)?, [0; LANES])
    };
    if is_returning {
        register(wave, inst.dst, dwords - 1)?;
    }
    for lane in (0..LANES).filter(|lane| exec >> lane & 1 != 0) {
        let at = address[lane].wrapping_add(inst.mods.offset as u32);
        check_alignment("LDS atomic", lane, at, bytes)?;
        let old = match bytes {
            8 => u64::from_le_bytes(in_lane(lane, lds.load::<8>(at as u64))?),
            _ => u32::from_le_bytes(in_lane(lane, lds.load::<4>(at as u64))?) as u64,
        };
        let new = op.apply(old, data[lane], compare[lane], bytes as u8);
        in_lane(lane, lds.store(at as u64, &new.to_le_bytes()[..bytes]))?;
        if is_returning {
            for dword in 0..dwords {
                register(wave, inst.dst, dword)?[lane] = (old >> (32 * dword)) as u32;
            }
        }
    }
    Ok(())
}
