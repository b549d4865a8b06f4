//! VOP3P: two values at once, either register pairs of f32 or the halves of one register.

use crate::exec::lane_op::{blend, lanes, source, write};
use crate::exec::vector_f32::{add, fma, mul};
use crate::exec::{Flow, Handler};
use crate::inst::{Inst, Variant};
use crate::op::Op;
use crate::wave::{Lanes, Wave, LANES};

/// The dword of source `index` that makes the low (0) or high (1) result, negated as asked.
#[inline(always)]
fn pair_source(inst: &Inst, wave: &Wave, index: usize, half: usize) -> Lanes {
    let selector = if half == 0 { inst.mods.op_sel } else { inst.mods.op_sel_hi };
    let dword = usize::from(selector >> index & 1);
    let operand = inst.src[index];
    let mut out = match operand.vector() {
        Some(register) => wave.vgpr[register + dword],
        None => [(wave.scalar64(operand, inst.literal) >> (32 * dword)) as u32; LANES],
    };
    let negated = if half == 0 { inst.mods.neg[index] } else { inst.mods.abs[index] };
    if negated {
        for x in &mut out {
            *x ^= 1 << 31;
        }
    }
    out
}

#[inline(always)]
fn f32_pair(inst: &Inst, wave: &mut Wave, num_sources: usize, step: impl Fn(f32, f32, f32) -> f32) -> Flow {
    let mut results = [[0; LANES]; 2];
    for (half, out) in results.iter_mut().enumerate() {
        let a = pair_source(inst, wave, 0, half);
        let b = pair_source(inst, wave, 1, half);
        let c = if num_sources > 2 { pair_source(inst, wave, 2, half) } else { [0; LANES] };
        for (lane, out) in out.iter_mut().enumerate() {
            *out = step(f32::from_bits(a[lane]), f32::from_bits(b[lane]), f32::from_bits(c[lane])).to_bits();
        }
    }
    write(inst, wave, 0, &results[0]);
    write(inst, wave, 1, &results[1]);
    Flow::Next
}

fn pk_add_f32(inst: &Inst, wave: &mut Wave) -> Flow {
    f32_pair(inst, wave, 2, |a, b, _| add(a, b))
}

fn pk_mul_f32(inst: &Inst, wave: &mut Wave) -> Flow {
    f32_pair(inst, wave, 2, |a, b, _| mul(a, b))
}

fn pk_fma_f32(inst: &Inst, wave: &mut Wave) -> Flow {
    f32_pair(inst, wave, 3, fma)
}

/// Source 0 makes the low result and source 1 the high one, each through its `op_sel` bit.
fn pk_mov_b32(inst: &Inst, wave: &mut Wave) -> Flow {
    let low = pair_source(inst, wave, 0, 0);
    let high = pair_source(inst, wave, 1, 0);
    write(inst, wave, 0, &low);
    write(inst, wave, 1, &high);
    Flow::Next
}

/// The halves of source `index` that make the low and the high result.
#[inline(always)]
fn half_sources(inst: &Inst, wave: &Wave, index: usize) -> (Lanes, Lanes) {
    let value = lanes(inst, wave, source(inst, index));
    let (low, high) = (inst.mods.op_sel >> index & 1, inst.mods.op_sel_hi >> index & 1);
    let pick = |selected: u8, negated: bool| {
        let sign = u32::from(negated) << 15;
        value.map(|x| (x >> (16 * u32::from(selected)) & 0xffff) ^ sign)
    };
    (pick(low, inst.mods.neg[index]), pick(high, inst.mods.abs[index]))
}

#[inline(always)]
fn halves(inst: &Inst, wave: &mut Wave, num_sources: usize, step: impl Fn(u16, u16, u16) -> u16) -> Flow {
    let (a_low, a_high) = half_sources(inst, wave, 0);
    let (b_low, b_high) = half_sources(inst, wave, 1);
    let (c_low, c_high) = if num_sources > 2 { half_sources(inst, wave, 2) } else { ([0; LANES], [0; LANES]) };
    let mut out = [0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        let low = step(a_low[lane] as u16, b_low[lane] as u16, c_low[lane] as u16);
        let high = step(a_high[lane] as u16, b_high[lane] as u16, c_high[lane] as u16);
        *out = u32::from(low) | u32::from(high) << 16;
    }
    write(inst, wave, 0, &out);
    Flow::Next
}

macro_rules! halves_table {
    ($($op:ident($num_sources:literal) $step:expr, $saturated:expr;)+) => {
        fn halves_handler(inst: &Inst) -> Option<Handler> {
            Some(match inst.op {
                $(Op::$op => {
                    fn wrapping(inst: &Inst, wave: &mut Wave) -> Flow {
                        halves(inst, wave, $num_sources, $step)
                    }
                    fn saturating(inst: &Inst, wave: &mut Wave) -> Flow {
                        halves(inst, wave, $num_sources, $saturated)
                    }
                    if inst.mods.clamp { saturating } else { wrapping }
                })+
                _ => return None,
            })
        }
    };
}

fn signed(step: impl Fn(i16, i16) -> i16) -> impl Fn(u16, u16, u16) -> u16 {
    move |a, b, _| step(a as i16, b as i16) as u16
}

fn mad_saturated(a: u16, b: u16, c: u16) -> u16 {
    (u32::from(a) * u32::from(b) + u32::from(c)).min(0xffff) as u16
}

fn signed_mad_saturated(a: u16, b: u16, c: u16) -> u16 {
    let [a, b, c] = [a, b, c].map(|x| i32::from(x as i16));
    (a * b + c).clamp(-0x8000, 0x7fff) as u16
}

halves_table! {
    VPkAddU16(2) |a, b, _| a.wrapping_add(b), |a, b, _| a.saturating_add(b);
    VPkAddI16(2) signed(i16::wrapping_add), signed(i16::saturating_add);
    VPkSubU16(2) |a, b, _| a.wrapping_sub(b), |a, b, _| a.saturating_sub(b);
    VPkSubI16(2) signed(i16::wrapping_sub), signed(i16::saturating_sub);
    VPkMulLoU16(2) |a, b, _| a.wrapping_mul(b), |a, b, _| a.saturating_mul(b);
    VPkMadU16(3) |a, b, c| a.wrapping_mul(b).wrapping_add(c), mad_saturated;
    VPkMadI16(3) |a, b, c| a.wrapping_mul(b).wrapping_add(c), signed_mad_saturated;
    VPkMinU16(2) |a, b, _| a.min(b), |a, b, _| a.min(b);
    VPkMaxU16(2) |a, b, _| a.max(b), |a, b, _| a.max(b);
    VPkMinI16(2) signed(i16::min), signed(i16::min);
    VPkMaxI16(2) signed(i16::max), signed(i16::max);
    VPkLshlrevB16(2) |a, b, _| b << (a & 15), |a, b, _| b << (a & 15);
    VPkLshrrevB16(2) |a, b, _| b >> (a & 15), |a, b, _| b >> (a & 15);
    VPkAshrrevI16(2) signed(|a, b| b >> (a & 15)), signed(|a, b| b >> (a & 15));
}

/// Products and sums each rounded to f32: beyond its range, a product of two bf16 is not exact there.
#[inline(always)]
fn dot2(inst: &Inst, wave: &mut Wave, adds_last: bool) -> Flow {
    let (a_low, a_high) = half_sources(inst, wave, 0);
    let (b_low, b_high) = half_sources(inst, wave, 1);
    let c = lanes(inst, wave, source(inst, 2));
    let negated = u32::from(inst.mods.neg[2]) << 31;
    let widen = |half: u32| f32::from_bits(half << 16);
    let mut out = [0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        let c = f32::from_bits(c[lane] ^ negated);
        let (a0, a1) = (widen(a_low[lane]), widen(a_high[lane]));
        let (b0, b1) = (widen(b_low[lane]), widen(b_high[lane]));
        let (low, high) = (mul(a0, b0), mul(a1, b1));
        let result = if adds_last { add(add(low, high), c) } else { add(add(c, low), high) };
        *out = result.to_bits();
    }
    if let Some(index) = inst.dst.vector() {
        let exec = wave.exec();
        blend(&mut wave.vgpr[index], &out, exec);
    }
    Flow::Next
}

fn dot2_f32_bf16(inst: &Inst, wave: &mut Wave) -> Flow {
    dot2(inst, wave, true)
}

fn dot2c_f32_bf16(inst: &Inst, wave: &mut Wave) -> Flow {
    // VOP2 has no half selection: low with low, high with high.
    let mut whole = *inst;
    whole.mods.op_sel = 0;
    whole.mods.op_sel_hi = 0b111;
    dot2(&whole, wave, false)
}

/// The handler of a packed operation.
pub(super) fn handler(inst: &Inst) -> Option<Handler> {
    if inst.variant != Variant::Plain {
        return None;
    }
    Some(match inst.op {
        Op::VPkMovB32 => pk_mov_b32,
        Op::VDot2cF32Bf16 if !crate::exec::lane_op::has_modifiers(inst) => dot2c_f32_bf16,
        // Clamping float pairs is nothing that compilers emit: better an error than a guess.
        Op::VPkAddF32 | Op::VPkMulF32 | Op::VPkFmaF32 | Op::VDot2F32Bf16 if inst.mods.clamp => return None,
        Op::VPkAddF32 => pk_add_f32,
        Op::VPkMulF32 => pk_mul_f32,
        Op::VPkFmaF32 => pk_fma_f32,
        Op::VDot2F32Bf16 => dot2_f32_bf16,
        _ => return halves_handler(inst),
    })
}
