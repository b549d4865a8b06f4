//! VOP3P: two values at once, either register pairs of f32 or the halves of one register.

use crate::exec::half_float;
use crate::exec::lane_op::{has_modifiers, lanes, source, write};
use crate::exec::vector_f32::{self as single, add, fma, mul};
use crate::exec::{Flow, Handler};
use crate::inst::{Inst, Variant};
use crate::op::Op;
use crate::wave::{inline_float, Lanes, Wave, LANES};
use half::f16;

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
///
/// An inline float constant is an f16 in the low half where the operation is one on f16.
#[inline(always)]
pub(super) fn half_sources(inst: &Inst, wave: &Wave, index: usize, float: bool) -> (Lanes, Lanes) {
    let operand = source(inst, index);
    let value = match operand.code {
        240..=248 if float => [u32::from(f16::from_f32(f32::from_bits(inline_float(operand.code))).to_bits()); LANES],
        _ => lanes(inst, wave, operand),
    };
    let (low, high) = (inst.mods.op_sel >> index & 1, inst.mods.op_sel_hi >> index & 1);
    let pick = |selected: u8, negated: bool| {
        let sign = u32::from(negated) << 15;
        value.map(|x| (x >> (16 * u32::from(selected)) & 0xffff) ^ sign)
    };
    (pick(low, inst.mods.neg[index]), pick(high, inst.mods.abs[index]))
}

#[inline(always)]
fn halves(inst: &Inst, wave: &mut Wave, num_sources: usize, float: bool, step: impl Fn(u16, u16, u16) -> u16) -> Flow {
    let (a_low, a_high) = half_sources(inst, wave, 0, float);
    let (b_low, b_high) = half_sources(inst, wave, 1, float);
    let (c_low, c_high) = if num_sources > 2 { half_sources(inst, wave, 2, float) } else { ([0; LANES], [0; LANES]) };
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
                        halves(inst, wave, $num_sources, false, $step)
                    }
                    fn saturating(inst: &Inst, wave: &mut Wave) -> Flow {
                        halves(inst, wave, $num_sources, false, $saturated)
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

/// Limited to 0 to 1, a NaN to 0.
#[inline(always)]
fn clamped(x: f16) -> f16 {
    if x > f16::ONE {
        f16::ONE
    } else if x > f16::ZERO {
        x
    } else {
        f16::ZERO
    }
}

macro_rules! float_halves_table {
    ($($op:ident($num_sources:literal) $step:expr;)+) => {
        fn float_halves_handler(inst: &Inst) -> Option<Handler> {
            Some(match inst.op {
                $(Op::$op => {
                    #[inline(always)]
                    fn step(a: u16, b: u16, c: u16) -> f16 {
                        let step: fn(f16, f16, f16) -> f16 = $step;
                        step(f16::from_bits(a), f16::from_bits(b), f16::from_bits(c))
                    }
                    fn plain(inst: &Inst, wave: &mut Wave) -> Flow {
                        halves(inst, wave, $num_sources, true, |a, b, c| step(a, b, c).to_bits())
                    }
                    fn limited(inst: &Inst, wave: &mut Wave) -> Flow {
                        halves(inst, wave, $num_sources, true, |a, b, c| clamped(step(a, b, c)).to_bits())
                    }
                    if inst.mods.clamp { limited } else { plain }
                })+
                _ => return None,
            })
        }
    };
}

float_halves_table! {
    VPkAddF16(2) |a, b, _| half_float::binary(a, b, add);
    VPkMulF16(2) |a, b, _| half_float::binary(a, b, mul);
    VPkMinF16(2) |a, b, _| half_float::min(a, b);
    VPkMaxF16(2) |a, b, _| half_float::max(a, b);
    VPkFmaF16(3) half_float::fma;
    VPkMinimum3F16(3) |a, b, c| half_float::nan_wins(half_float::nan_wins(a, b, single::min), c, single::min);
    VPkMaximum3F16(3) |a, b, c| half_float::nan_wins(half_float::nan_wins(a, b, single::max), c, single::max);
}

/// VOP2 has no half selection: low with low, high with high, and the destination is the third source.
fn pk_fmac_f16(inst: &Inst, wave: &mut Wave) -> Flow {
    let mut whole = *inst;
    (whole.mods.op_sel, whole.mods.op_sel_hi) = (0, 0b111);
    halves(&whole, wave, 3, true, |a, b, c| {
        half_float::fma(f16::from_bits(a), f16::from_bits(b), f16::from_bits(c)).to_bits()
    })
}

/// The handler of a packed operation.
pub(super) fn handler(inst: &Inst) -> Option<Handler> {
    if inst.variant != Variant::Plain {
        return None;
    }
    Some(match inst.op {
        Op::VPkMovB32 => pk_mov_b32,
        // Clamping float pairs is nothing that compilers emit: better an error than a guess.
        Op::VPkAddF32 | Op::VPkMulF32 | Op::VPkFmaF32 if inst.mods.clamp => return None,
        Op::VPkAddF32 => pk_add_f32,
        Op::VPkMulF32 => pk_mul_f32,
        Op::VPkFmaF32 => pk_fma_f32,
        Op::VPkFmacF16 if !has_modifiers(inst) => pk_fmac_f16,
        _ => return halves_handler(inst).or_else(|| float_halves_handler(inst)),
    })
}
