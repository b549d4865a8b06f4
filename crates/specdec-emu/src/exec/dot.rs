//! Dot products of the halves, bytes or nibbles of two registers, added to a third one.

use crate::exec::lane_op::{has_modifiers, lanes, source, write};
use crate::exec::packed::half_sources;
use crate::exec::vector_f32::{add, mul};
use crate::exec::{Flow, Handler};
use crate::inst::{Format, Inst, Variant};
use crate::op::Op;
use crate::wave::{Wave, LANES};
use half::f16;

/// A float product and sum at a time, each rounded to f32; `ADDS_LAST`: the third source after the products.
#[inline(always)]
fn float_dot<const ADDS_LAST: bool>(inst: &Inst, wave: &mut Wave, widen: impl Fn(u32) -> f32) -> Flow {
    let mut whole = *inst;
    if inst.format != Format::Vop3p {
        // VOP2 has no half selection: low with low, high with high.
        (whole.mods.op_sel, whole.mods.op_sel_hi) = (0, 0b111);
    }
    let (a_low, a_high) = half_sources(&whole, wave, 0, true);
    let (b_low, b_high) = half_sources(&whole, wave, 1, true);
    let c = lanes(inst, wave, source(inst, 2));
    let negated = u32::from(inst.mods.neg[2]) << 31;
    let mut out = [0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        let c = f32::from_bits(c[lane] ^ negated);
        let low = mul(widen(a_low[lane]), widen(b_low[lane]));
        let high = mul(widen(a_high[lane]), widen(b_high[lane]));
        let sum = if ADDS_LAST { add(add(low, high), c) } else { add(add(c, low), high) };
        *out = sum.to_bits();
    }
    write(inst, wave, 0, &out);
    Flow::Next
}

fn widen_bf16(half: u32) -> f32 {
    f32::from_bits(half << 16)
}

fn widen_f16(half: u32) -> f32 {
    f16::from_bits(half as u16).to_f32()
}

fn dot2_f32_bf16(inst: &Inst, wave: &mut Wave) -> Flow {
    float_dot::<true>(inst, wave, widen_bf16)
}

fn dot2c_f32_bf16(inst: &Inst, wave: &mut Wave) -> Flow {
    float_dot::<false>(inst, wave, widen_bf16)
}

fn dot2_f32_f16(inst: &Inst, wave: &mut Wave) -> Flow {
    float_dot::<false>(inst, wave, widen_f16)
}

/// The sum of the products of all BITS-wide elements plus the third source, wrapped or limited to 32 bits.
#[inline(always)]
fn integer_dot<const BITS: u32, const SIGNED: bool>(inst: &Inst, wave: &mut Wave) -> Flow {
    let element = |register: u32, index: u32| {
        let top = register << (32 - BITS - BITS * index);
        if SIGNED {
            i64::from(top as i32 >> (32 - BITS))
        } else {
            i64::from(top >> (32 - BITS))
        }
    };
    let halves = |index: usize| {
        let (low, high) = half_sources(inst, wave, index, false);
        let mut out = [0; LANES];
        for (lane, out) in out.iter_mut().enumerate() {
            *out = low[lane] | high[lane] << 16;
        }
        out
    };
    // Only halves can be selected; bytes and nibbles are taken as they are.
    let [a, b] = [0, 1].map(|index: usize| if BITS == 16 { halves(index) } else { lanes(inst, wave, inst.src[index]) });
    let c = lanes(inst, wave, inst.src[2]);
    let mut out = [0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        let start = if SIGNED { i64::from(c[lane] as i32) } else { i64::from(c[lane]) };
        let sum = (0..32 / BITS).fold(start, |sum, index| sum + element(a[lane], index) * element(b[lane], index));
        *out = match (inst.mods.clamp, SIGNED) {
            (true, true) => sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32,
            (true, false) => sum.clamp(0, i64::from(u32::MAX)) as u32,
            (false, _) => sum as u32,
        };
    }
    write(inst, wave, 0, &out);
    Flow::Next
}

/// The handler of a dot product.
pub(super) fn handler(inst: &Inst) -> Option<Handler> {
    // Clamping a float dot product is nothing that compilers emit: better an error than a guess.
    let is_plain = inst.variant == Variant::Plain && !inst.mods.clamp;
    Some(match inst.op {
        Op::VDot2F32Bf16 if is_plain => dot2_f32_bf16,
        Op::VDot2F32F16 if is_plain => dot2_f32_f16,
        Op::VDot2cF32Bf16 if !has_modifiers(inst) => dot2c_f32_bf16,
        Op::VDot2cF32F16 if !has_modifiers(inst) => dot2_f32_f16,
        Op::VDot2I32I16 => integer_dot::<16, true>,
        Op::VDot2U32U16 => integer_dot::<16, false>,
        Op::VDot4I32I8 => integer_dot::<8, true>,
        Op::VDot4U32U8 => integer_dot::<8, false>,
        Op::VDot8I32I4 => integer_dot::<4, true>,
        Op::VDot8U32U4 => integer_dot::<4, false>,
        _ => return None,
    })
}
