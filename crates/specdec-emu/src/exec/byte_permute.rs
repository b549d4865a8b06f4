//! `v_perm_b32` with one selector for the whole wave, which is how compilers use it to take numbers apart.

use crate::exec::lane_op::{has_modifiers, lanes, write};
use crate::exec::{Flow, Handler};
use crate::inst::Inst;
use crate::op::Op;
use crate::wave::{Wave, LANES};

fn permute(inst: &Inst, wave: &mut Wave) -> Flow {
    let selectors = wave.scalar32(inst.src[2], inst.literal).to_le_bytes();
    let sources = [1, 0].map(|index: usize| lanes(inst, wave, inst.src[index]));
    let mut out = [0; LANES];
    for (byte, selector) in selectors.into_iter().enumerate() {
        let place = 8 * byte as u32;
        let (source, shift) = (&sources[usize::from(selector >> 2 & 1)], 8 * u32::from(selector & 3));
        match selector {
            0..=7 => {
                for (out, x) in out.iter_mut().zip(source) {
                    *out |= (x >> shift & 0xff) << place;
                }
            }
            8..=11 => {
                // Signs of the four words, source 1's first.
                let (source, shift) = (&sources[usize::from(selector >> 1 & 1)], 16 * u32::from(selector & 1));
                for (out, x) in out.iter_mut().zip(source) {
                    *out |= (((x << (16 - shift)) as i32 >> 31) as u32 & 0xff) << place;
                }
            }
            12 => {}
            _ => {
                for out in &mut out {
                    *out |= 0xff << place;
                }
            }
        }
    }
    write(inst, wave, 0, &out);
    Flow::Next
}

/// The handler, if the selector is not a vector register.
pub(super) fn handler(inst: &Inst) -> Option<Handler> {
    let is_uniform = inst.op == Op::VPermB32 && inst.src[2].is_some() && inst.src[2].vector().is_none();
    (is_uniform && !has_modifiers(inst)).then_some(permute)
}
