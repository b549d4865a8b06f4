//! Moves between lanes and between vector and scalar registers.

use crate::exec::lane_op::{blend, lanes, write};
use crate::exec::{Flow, Handler};
use crate::inst::{Inst, Variant};
use crate::op::Op;
use crate::wave::{Lanes, Wave, LANES};

fn read_lane(inst: &Inst, wave: &mut Wave, lane: usize) -> Flow {
    let value = match inst.src[0].vector() {
        Some(register) => wave.vgpr[register][lane],
        None => wave.scalar32(inst.src[0], inst.literal),
    };
    if let Some(index) = inst.dst.scalar() {
        wave.sgpr[index] = value;
    }
    Flow::Next
}

fn readfirstlane(inst: &Inst, wave: &mut Wave) -> Flow {
    // With all lanes disabled the first one is read.
    let lane = wave.exec().trailing_zeros() as usize % LANES;
    read_lane(inst, wave, lane)
}

/// A lane number in a scalar source.
fn selected_lane(inst: &Inst, wave: &Wave) -> usize {
    wave.scalar32(inst.src[1], inst.literal) as usize % LANES
}

fn readlane(inst: &Inst, wave: &mut Wave) -> Flow {
    let lane = selected_lane(inst, wave);
    read_lane(inst, wave, lane)
}

fn writelane(inst: &Inst, wave: &mut Wave) -> Flow {
    let lane = selected_lane(inst, wave);
    let value = wave.scalar32(inst.src[0], inst.literal);
    if let Some(register) = inst.dst.vector() {
        wave.vgpr[register][lane] = value;
    }
    Flow::Next
}

fn swap(inst: &Inst, wave: &mut Wave) -> Flow {
    if let (Some(to), Some(from)) = (inst.dst.vector(), inst.src[0].vector()) {
        let exec = wave.exec();
        let (old_to, old_from) = (wave.vgpr[to], wave.vgpr[from]);
        blend(&mut wave.vgpr[to], &old_from, exec);
        blend(&mut wave.vgpr[from], &old_to, exec);
    }
    Flow::Next
}

/// Exchanges the upper group of each pair of lane groups of the destination with the lower one of the source.
///
/// As with DPP, a partner lane that EXEC disables is invalid: without `op_sel` bit 0 (fetch inactive) or bit 1 (bound
/// control, it reads as zero) its reader keeps its value.
fn permlane_swap<const GROUP: usize>(inst: &Inst, wave: &mut Wave) -> Flow {
    let (Some(to), Some(from)) = (inst.dst.vector(), inst.src[0].vector()) else { return Flow::Next };
    let exec = wave.exec();
    let is_active = |lane: usize| exec >> lane & 1 == 1;
    let (fetches_inactive, reads_zero) = (inst.mods.op_sel & 1 != 0, inst.mods.op_sel & 2 != 0);
    let (old_to, old_from) = (wave.vgpr[to], wave.vgpr[from]);
    let mut put = |register: usize, lane: usize, old: &Lanes, partner: usize| {
        let valid = fetches_inactive || is_active(partner);
        if is_active(lane) && (valid || reads_zero) {
            wave.vgpr[register][lane] = if valid { old[partner] } else { 0 };
        }
    };
    for low in (0..LANES).filter(|lane| lane & GROUP == 0) {
        put(from, low, &old_to, low + GROUP);
        put(to, low + GROUP, &old_from, low);
    }
    Flow::Next
}

/// Lane numbers in byte units, as the DS permutes take them.
fn lane_addresses(inst: &Inst, wave: &Wave) -> Lanes {
    let offset = inst.mods.offset as u32;
    lanes(inst, wave, inst.src[0]).map(|address| address.wrapping_add(offset) / 4 % LANES as u32)
}

fn bpermute(inst: &Inst, wave: &mut Wave) -> Flow {
    let from = lane_addresses(inst, wave);
    let data = active(&lanes(inst, wave, inst.data), wave.exec());
    let mut out = [0; LANES];
    for (out, from) in out.iter_mut().zip(from) {
        *out = data[from as usize % LANES];
    }
    write(inst, wave, 0, &out);
    Flow::Next
}

fn permute(inst: &Inst, wave: &mut Wave) -> Flow {
    let to = lane_addresses(inst, wave);
    let data = lanes(inst, wave, inst.data);
    let exec = wave.exec();
    let mut out = [0; LANES];
    for lane in (0..LANES).filter(|lane| exec >> lane & 1 == 1) {
        out[to[lane] as usize % LANES] = data[lane];
    }
    write(inst, wave, 0, &out);
    Flow::Next
}

/// The value with disabled lanes reading as zero.
fn active(value: &Lanes, exec: u64) -> Lanes {
    let mut out = [0; LANES];
    blend(&mut out, value, exec);
    out
}

/// The lane that `lane` reads under swizzle pattern `pattern`.
fn swizzled(pattern: u32, lane: usize) -> usize {
    let field = |shift: u32, bits: u32| (pattern >> shift) as usize & ((1 << bits) - 1);
    let (group, place) = (lane & !31, lane & 31);
    if pattern >= 0xc000 {
        let (keep, amount, down) = (field(0, 5), field(5, 5), field(10, 1) == 1);
        let rotated = if down { place + 32 - amount } else { place + amount } & 31;
        group | place & keep | rotated & !keep
    } else if pattern >= 0x8000 {
        lane & !3 | field(2 * (lane as u32 & 3), 2)
    } else {
        group | (place & field(0, 5) | field(5, 5)) ^ field(10, 5)
    }
}

fn swizzle(inst: &Inst, wave: &mut Wave) -> Flow {
    // Disabled source lanes read as zero.
    let operand = if inst.src[0].is_some() { inst.src[0] } else { inst.data };
    let data = active(&lanes(inst, wave, operand), wave.exec());
    let pattern = inst.mods.offset as u32 & 0xffff;
    let mut out = [0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        *out = data[swizzled(pattern, lane)];
    }
    write(inst, wave, 0, &out);
    Flow::Next
}

fn nothing(_inst: &Inst, _wave: &mut Wave) -> Flow {
    Flow::Next
}

/// The handler of a cross-lane operation.
pub(super) fn handler(inst: &Inst) -> Option<Handler> {
    if inst.variant != Variant::Plain {
        return None;
    }
    Some(match inst.op {
        Op::VReadfirstlaneB32 => readfirstlane,
        Op::VReadlaneB32 => readlane,
        Op::VWritelaneB32 => writelane,
        Op::VSwapB32 => swap,
        Op::VPermlane16SwapB32 => permlane_swap::<16>,
        Op::VPermlane32SwapB32 => permlane_swap::<32>,
        Op::DsBpermuteB32 => bpermute,
        Op::DsPermuteB32 => permute,
        // Patterns from 0xe000 are the FFT orders.
        Op::DsSwizzleB32 if (inst.mods.offset as u32 & 0xffff) < 0xe000 => swizzle,
        Op::VNop | Op::VClrexcp | Op::DsNop => nothing,
        _ => return None,
    })
}
