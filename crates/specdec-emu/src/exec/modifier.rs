//! Operand and result modifiers of VOP1, VOP2, VOPC and VOP3 instructions: sign, selection, clamp, SDWA and DPP.

use crate::exec::dpp;
use crate::exec::lane_op::{blend, lanes, source, LaneOp};
use crate::inst::{Format, Inst, Sdwa, Variant};
use crate::wave::{inline_float, Lanes, Wave, LANES};
use half::f16;

/// What the modifiers need to know about an operation.
#[derive(Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "four independent facts, each a constant of the operation")]
pub(super) struct Shape {
    /// Sources read.
    pub num_sources: usize,
    /// The result is a float.
    pub float: bool,
    /// The sources are 16 bits wide.
    pub half_sources: bool,
    /// The result is 16 bits wide.
    pub half_result: bool,
    /// The unwritten half of the destination keeps its value.
    pub keeps_half: bool,
}

impl Shape {
    /// The shape of a lane operation.
    pub(super) const fn of<O: LaneOp>() -> Self {
        Self {
            num_sources: O::SOURCES,
            float: O::FLOAT,
            half_sources: O::HALF_SOURCES,
            half_result: O::HALF_RESULT,
            keeps_half: O::KEEPS_HALF,
        }
    }

    /// A 32-bit operation with this many sources and no float result.
    pub(super) const fn words(num_sources: usize) -> Self {
        Self { num_sources, float: false, half_sources: false, half_result: false, keeps_half: false }
    }
}

/// Sources as the operation sees them.
pub(super) struct Sources {
    /// Lanes by source; unused sources are zero.
    pub lanes: [Lanes; 3],
    /// Lanes that the DPP masks and bounds let through; EXEC is not in it.
    pub enabled: u64,
}

/// Fetches the sources with selection, then absolute value, then negation.
#[inline(never)]
pub(super) fn sources(inst: &Inst, wave: &Wave, shape: Shape) -> Sources {
    let mut out = Sources { lanes: [[0; LANES]; 3], enabled: !0 };
    for index in 0..shape.num_sources {
        let operand = source(inst, index);
        let value = &mut out.lanes[index];
        *value = match operand.code {
            240..=248 if shape.half_sources => {
                [u32::from(f16::from_f32(f32::from_bits(inline_float(operand.code))).to_bits()); LANES]
            }
            _ => lanes(inst, wave, operand),
        };
        match &inst.variant {
            Variant::Plain
                if inst.format == Format::Vop3 && shape.half_sources && inst.mods.op_sel >> index & 1 == 1 =>
            {
                for x in value.iter_mut() {
                    *x >>= 16;
                }
            }
            Variant::Sdwa(sdwa) if index == 0 => select(value, sdwa.src0_sel, sdwa.sext[0]),
            Variant::Sdwa(sdwa) if index == 1 => select(value, sdwa.src1_sel, sdwa.sext[1]),
            Variant::Dpp(dpp) if index == 0 => out.enabled = dpp::permute(*dpp, value, wave.exec()),
            _ => {}
        }
        let sign = if shape.half_sources { 1 << 15 } else { 1 << 31 };
        if inst.mods.abs[index] {
            for x in value.iter_mut() {
                *x &= !sign;
            }
        }
        if inst.mods.neg[index] {
            for x in value.iter_mut() {
                *x ^= sign;
            }
        }
    }
    out
}

/// Replaces each dword by its byte or word that an SDWA selector names.
fn select(value: &mut Lanes, selector: u8, sign_extend: bool) {
    let (shift, bits) = field(selector);
    for x in value {
        let left = *x << (32 - shift - bits);
        *x = if sign_extend { (left as i32 >> (32 - bits)) as u32 } else { left >> (32 - bits) };
    }
}

/// Position and width in bits of an SDWA selector.
const fn field(selector: u8) -> (u32, u32) {
    match selector {
        0..=3 => (selector as u32 * 8, 8),
        4 | 5 => ((selector as u32 - 4) * 16, 16),
        _ => (0, 32),
    }
}

/// Applies `omod`, `clamp` and the destination selection, and writes under EXEC and `enabled`.
#[inline(never)]
pub(super) fn write(inst: &Inst, wave: &mut Wave, shape: Shape, mut out: Lanes, enabled: u64) {
    let Some(index) = inst.dst.vector() else { return };
    if shape.float && (inst.mods.omod != 0 || inst.mods.clamp) {
        for x in &mut out {
            *x = if shape.half_result {
                let value = finish_float(f16::from_bits(*x as u16).to_f32(), inst.mods.omod, inst.mods.clamp);
                u32::from(f16::from_f32(value).to_bits())
            } else {
                finish_float(f32::from_bits(*x), inst.mods.omod, inst.mods.clamp).to_bits()
            };
        }
    }
    let old = &wave.vgpr[index];
    if let Variant::Sdwa(sdwa) = &inst.variant {
        place(*sdwa, &mut out, old);
    } else if shape.half_result {
        let high = inst.format == Format::Vop3 && inst.mods.op_sel & 8 != 0;
        for (x, old) in out.iter_mut().zip(old) {
            *x = match (high, shape.keeps_half) {
                (true, _) => *x << 16 | old & 0xffff,
                (false, true) => *x & 0xffff | old & 0xffff_0000,
                (false, false) => *x & 0xffff,
            };
        }
    }
    let mask = wave.exec() & enabled;
    blend(&mut wave.vgpr[index], &out, mask);
}

/// Output modifier, then clamp to 0..=1; a NaN clamps to 0, as with `DX10_CLAMP` that every compute kernel sets.
pub(super) fn finish_float(value: f32, omod: u8, clamp: bool) -> f32 {
    let value = match omod {
        1 => value * 2.0,
        2 => value * 4.0,
        3 => value * 0.5,
        _ => value,
    };
    match clamp {
        true if value > 0.0 => value.min(1.0),
        true => 0.0,
        false => value,
    }
}

/// Moves each result into the byte or word that SDWA's destination selector names.
fn place(sdwa: Sdwa, out: &mut Lanes, old: &Lanes) {
    let (shift, bits) = field(sdwa.dst_sel);
    let mask = (!0u32 >> (32 - bits)) << shift;
    for (x, old) in out.iter_mut().zip(old) {
        let placed = *x << shift & mask;
        *x = match sdwa.dst_unused {
            0 => placed,
            1 => (((*x << (32 - bits)) as i32 >> (32 - bits)) as u32) << shift,
            _ => placed | old & !mask,
        };
    }
}
