//! Global and buffer instructions: loads, loads into LDS, stores, atomics.

use super::action::{Element, Placement, Segment, VectorKind};
use super::atomic::AtomicOp;
use super::buffer::{self, BufferAccess};
use super::error::EmulatorError;
use super::lane_copy;
use super::lds::Lds;
use super::location::Location;
use super::program::span;
use super::scoreboard::{Dma, Span};
use super::shared::Shared;
use super::slot::Slot;
use super::visibility::{self, in_lane, Access, AtomicData, LaneAddresses, Policy};
use crate::inst::{Inst, Operand};
use crate::wave::{Lanes, Wave, LANES, M0};

/// Runs one vector memory instruction.
pub(super) fn run(
    segment: Segment,
    kind: VectorKind,
    inst: &Inst,
    slot: &mut Slot,
    lds: &mut Lds,
    shared: &mut Shared,
) -> Result<(), EmulatorError> {
    match kind {
        VectorKind::Load(element) => load(segment, element, inst, slot, lds, shared),
        VectorKind::LoadToLds(element) => load_to_lds(segment, element, inst, slot, lds, shared),
        VectorKind::Store(element) => store(segment, element, inst, slot, lds, shared),
        VectorKind::Atomic(op, bytes) => atomic(segment, op, bytes, inst, slot, lds, shared),
    }
}

/// The lanes' addresses; a buffer's bounds leave some of them out.
fn addresses(segment: Segment, inst: &Inst, wave: &Wave, bytes: usize) -> Result<BufferAccess, EmulatorError> {
    if segment == Segment::Buffer {
        return buffer::addresses(inst, wave, bytes);
    }
    let exec = wave.exec();
    let offset = inst.mods.offset as i64 as u64;
    let mut whole = LaneAddresses { at: [offset; LANES], mask: exec };
    let vector = inst.src[0].vector();
    if let Some(base) = inst.src[1].scalar() {
        let base = wave.read64(base).wrapping_add(offset);
        whole.at = [base; LANES];
        if let Some(first) = vector {
            for (address, &low) in whole.at.iter_mut().zip(&wave.vgpr[first]) {
                *address = base.wrapping_add(low as u64);
            }
        }
    } else if let Some(first) = vector {
        let (low, high) = (&wave.vgpr[first], &wave.vgpr[first + 1]);
        for (lane, address) in whole.at.iter_mut().enumerate() {
            *address = (low[lane] as u64 | (high[lane] as u64) << 32).wrapping_add(offset);
        }
    }
    Ok(BufferAccess { whole, partial: Vec::new(), exec })
}

/// The alignment that an access needs. Wide accesses may sit on any dword; what carries data and tag together, an
/// 8-byte access beyond the workgroup, must be one unit.
fn alignment(bytes: usize, policy: Policy) -> u64 {
    match bytes {
        8 if policy.is_beyond_workgroup() => 8,
        0..=2 => bytes as u64,
        _ => 4,
    }
}

/// Registers of an operand, checked to exist.
fn registers(wave: &mut Wave, operand: Operand, dwords: usize) -> Result<&mut [Lanes], EmulatorError> {
    let first = operand.vector().unwrap_or(usize::MAX);
    let end = first.saturating_add(dwords);
    wave.vgpr.get_mut(first..end).ok_or_else(|| EmulatorError::Unimplemented {
        what: "data outside the wave's vector registers".into(),
        at: Location::unknown(),
    })
}

fn load(
    segment: Segment,
    element: Element,
    inst: &Inst,
    slot: &mut Slot,
    lds: &mut Lds,
    shared: &mut Shared,
) -> Result<(), EmulatorError> {
    let (bytes, policy) = (element.bytes as usize, Policy::of(&inst.mods));
    let found = addresses(segment, inst, &slot.wave, bytes)?;
    found.whole.check_alignment("load", alignment(bytes, policy))?;
    let out = registers(&mut slot.wave, inst.dst, bytes.div_ceil(4))?;
    zero_outside(out, found.exec & !found.whole.mask);
    let access = Access { lanes: &found.whole, bytes, policy, origin: slot.origin };
    visibility::load(shared, &access, out)?;
    for &(lane, inside) in &found.partial {
        let lanes = LaneAddresses { at: found.whole.at, mask: 1 << lane };
        let access = Access { lanes: &lanes, bytes: inside, policy, origin: slot.origin };
        visibility::load(shared, &access, out)?;
    }
    place(&mut out[0], element, found.exec);
    shared.statistics.vector_loads += 1;
    let load_bytes = bytes as u32 * found.exec.count_ones();
    slot.board.issue_vector(span(inst.dst), load_bytes, None, lds);
    Ok(())
}

fn zero_outside(out: &mut [Lanes], outside: u64) {
    if outside == 0 {
        return;
    }
    for register in out {
        for (lane, value) in register.iter_mut().enumerate() {
            if outside >> lane & 1 != 0 {
                *value = 0;
            }
        }
    }
}

/// Extends or moves a sub-dword element that was loaded zero-extended.
pub(super) fn place(register: &mut Lanes, element: Element, exec: u64) {
    if element.bytes >= 4 || element.placement == Placement::Zero {
        return;
    }
    let shift = 32 - element.bytes as u32 * 8;
    for (lane, value) in register.iter_mut().enumerate().filter(|(lane, _)| exec >> lane & 1 != 0) {
        let _ = lane;
        let signed = ((*value << shift) as i32 >> shift) as u32;
        *value = match element.placement {
            Placement::Zero | Placement::Low => *value,
            Placement::Sign => signed,
            Placement::LowSign => signed & 0xffff,
            Placement::High => *value << 16,
            Placement::HighSign => signed << 16,
        };
    }
}

fn load_to_lds(
    segment: Segment,
    element: Element,
    inst: &Inst,
    slot: &mut Slot,
    lds: &mut Lds,
    shared: &mut Shared,
) -> Result<(), EmulatorError> {
    let (bytes, policy) = (element.bytes as usize, Policy::of(&inst.mods));
    let found = addresses(segment, inst, &slot.wave, bytes)?;
    found.whole.check_alignment("load", alignment(bytes, policy))?;
    let mut values = [[0; LANES]; 4];
    let access = Access { lanes: &found.whole, bytes, policy, origin: slot.origin };
    visibility::load(shared, &access, &mut values)?;
    for &(lane, inside) in &found.partial {
        let lanes = LaneAddresses { at: found.whole.at, mask: 1 << lane };
        let access = Access { lanes: &lanes, bytes: inside, policy, origin: slot.origin };
        visibility::load(shared, &access, &mut values)?;
    }
    place(&mut values[0], element, found.exec);
    // LDS receives whole dwords, lane after lane from M0 on; an inactive lane leaves its place alone.
    let bytes_per_lane = bytes.next_multiple_of(4);
    let start = (slot.wave.sgpr[M0] as u64).wrapping_add(inst.mods.offset as i64 as u64);
    let mut dma =
        Dma { pieces: Vec::with_capacity(LANES), bytes_per_lane, data: Vec::with_capacity(LANES * bytes_per_lane) };
    for lane in (0..LANES).filter(|lane| found.exec >> lane & 1 != 0) {
        let address = start.wrapping_add((lane * bytes_per_lane) as u64);
        in_lane(lane, lds.begin_dma(address, bytes_per_lane))?;
        dma.pieces.push((address as u32, dma.data.len() as u32));
        dma.data.extend_from_slice(&lane_copy::pack(&values, lane)[..bytes_per_lane]);
    }
    shared.statistics.vector_loads += 1;
    shared.statistics.lds_dma += 1;
    let load_bytes = bytes as u32 * found.exec.count_ones();
    slot.board.issue_vector(Span::default(), load_bytes, Some(Box::new(dma)), lds);
    Ok(())
}

fn store(
    segment: Segment,
    element: Element,
    inst: &Inst,
    slot: &mut Slot,
    lds: &mut Lds,
    shared: &mut Shared,
) -> Result<(), EmulatorError> {
    let (bytes, policy) = (element.bytes as usize, Policy::of(&inst.mods));
    let found = addresses(segment, inst, &slot.wave, bytes)?;
    found.whole.check_alignment("store", alignment(bytes, policy))?;
    let data = registers(&mut slot.wave, inst.data, bytes.div_ceil(4))?;
    let high;
    let data = if element.placement == Placement::High {
        high = [data[0].map(|value| value >> 16)];
        &high
    } else {
        &*data
    };
    let access = Access { lanes: &found.whole, bytes, policy, origin: slot.origin };
    visibility::store(shared, &access, data)?;
    for &(lane, inside) in &found.partial {
        let lanes = LaneAddresses { at: found.whole.at, mask: 1 << lane };
        let access = Access { lanes: &lanes, bytes: inside, policy, origin: slot.origin };
        visibility::store(shared, &access, data)?;
    }
    shared.statistics.vector_stores += 1;
    slot.board.issue_vector(Span::default(), 0, None, lds);
    Ok(())
}

fn atomic(
    segment: Segment,
    op: AtomicOp,
    bytes: u8,
    inst: &Inst,
    slot: &mut Slot,
    lds: &mut Lds,
    shared: &mut Shared,
) -> Result<(), EmulatorError> {
    let (dwords, policy) = (bytes as usize / 4, Policy::of(&inst.mods));
    let found = addresses(segment, inst, &slot.wave, bytes as usize)?;
    found.whole.check_alignment("atomic", bytes as u64)?;
    // Compare-and-swap takes the new value first, then the one to compare with.
    let is_compare = op == AtomicOp::CompareSwap;
    let data = registers(&mut slot.wave, inst.data, dwords * (1 + usize::from(is_compare)))?;
    let operands = AtomicData {
        data: wide(&data[..dwords]),
        compare: if is_compare { wide(&data[dwords..]) } else { [0; LANES] },
    };
    let access = Access { lanes: &found.whole, bytes: bytes as usize, policy, origin: slot.origin };
    let old = visibility::atomic(shared, &access, op, &operands)?;
    shared.statistics.atomics += 1;
    // sc0 of an atomic is "return the old value".
    let returned = if inst.mods.sc0 { span(inst.dst) } else { Span::default() };
    if inst.mods.sc0 {
        let out = registers(&mut slot.wave, inst.dst, dwords)?;
        zero_outside(out, found.exec & !found.whole.mask);
        for lane in found.whole.active() {
            for (dword, register) in out.iter_mut().enumerate() {
                register[lane] = (old[lane] >> (32 * dword)) as u32;
            }
        }
    }
    slot.board.issue_vector(returned, 0, None, lds);
    Ok(())
}

/// One or two registers as 64-bit lanes.
pub(super) fn wide(registers: &[Lanes]) -> [u64; LANES] {
    let mut value = [0; LANES];
    for (dword, register) in registers.iter().enumerate() {
        for (value, &word) in value.iter_mut().zip(register) {
            *value |= (word as u64) << (32 * dword);
        }
    }
    value
}
