//! Mixed-precision fused multiply-add: each source an f32 or one of the f16 halves of a register.

use crate::exec::lane_op::{blend, lanes};
use crate::exec::modifier::finish_float;
use crate::exec::vector_f32::fma;
use crate::exec::{Flow, Handler};
use crate::inst::Inst;
use crate::op::Op;
use crate::wave::{Wave, LANES};
use half::f16;

/// Source `index`: an f32, or with its `op_sel_hi` bit the half that `op_sel` names. `neg_hi` is the absolute value.
#[inline(always)]
fn mixed_source(inst: &Inst, wave: &Wave, index: usize) -> [f32; LANES] {
    let value = lanes(inst, wave, inst.src[index]);
    let (is_half, is_high) = (inst.mods.op_sel_hi >> index & 1 == 1, inst.mods.op_sel >> index & 1 == 1);
    let mut out = [0.0; LANES];
    for (out, &bits) in out.iter_mut().zip(&value) {
        let half = f16::from_bits((if is_high { bits >> 16 } else { bits }) as u16).to_f32();
        let single = if is_half { half } else { f32::from_bits(bits) };
        let magnitude = if inst.mods.abs[index] { single.abs() } else { single };
        *out = if inst.mods.neg[index] { -magnitude } else { magnitude };
    }
    out
}

#[inline(always)]
fn results(inst: &Inst, wave: &Wave) -> [f32; LANES] {
    let [a, b, c] = [0, 1, 2].map(|index: usize| mixed_source(inst, wave, index));
    let mut out = [0.0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        *out = finish_float(fma(a[lane], b[lane], c[lane]), 0, inst.mods.clamp);
    }
    out
}

fn mix_f32(inst: &Inst, wave: &mut Wave) -> Flow {
    let out = results(inst, wave).map(f32::to_bits);
    crate::exec::lane_op::write(inst, wave, 0, &out);
    Flow::Next
}

/// The result as f16 in one half; the other half keeps its value.
#[inline(always)]
fn mix_f16<const SHIFT: u32>(inst: &Inst, wave: &mut Wave) -> Flow {
    let Some(register) = inst.dst.vector() else { return Flow::Next };
    let mut out = wave.vgpr[register];
    for (out, result) in out.iter_mut().zip(results(inst, wave)) {
        *out = *out & !(0xffff << SHIFT) | u32::from(f16::from_f32(result).to_bits()) << SHIFT;
    }
    let exec = wave.exec();
    blend(&mut wave.vgpr[register], &out, exec);
    Flow::Next
}

/// The handler of a mixed-precision operation.
pub(super) fn handler(inst: &Inst) -> Option<Handler> {
    Some(match inst.op {
        Op::VFmaMixF32 => mix_f32,
        Op::VFmaMixloF16 => mix_f16::<0>,
        Op::VFmaMixhiF16 => mix_f16::<16>,
        _ => return None,
    })
}
