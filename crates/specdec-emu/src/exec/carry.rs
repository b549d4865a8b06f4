//! Lane operations that read or write a lane mask besides their registers: carries, conditional moves, lane
//! counts; and the three-source bit operation, whose function is data.

use crate::exec::lane_op::{blend, has_modifiers, lanes, spread, write};
use crate::exec::mask::{self, Flags};
use crate::exec::modifier::{self, Shape};
use crate::exec::{Flow, Handler};
use crate::inst::{Inst, Variant};
use crate::op::Op;
use crate::wave::{Lanes, Wave, LANES};

/// `a + b + carry` and the carry out of it, which the top bits decide: in 32 bits, so that lanes vectorise.
#[inline(always)]
fn add(a: u32, b: u32, carry: u32) -> (u32, u8) {
    let sum = a.wrapping_add(b).wrapping_add(carry);
    (sum, ((a & b | (a | b) & !sum) >> 31) as u8)
}

/// `a - b - borrow` and the borrow out of it.
#[inline(always)]
fn sub(a: u32, b: u32, borrow: u32) -> (u32, u8) {
    let difference = a.wrapping_sub(b).wrapping_sub(borrow);
    (difference, ((!a & b | (!a | b) & difference) >> 31) as u8)
}

#[inline(always)]
fn carried(inst: &Inst, wave: &mut Wave, reads: bool, step: impl Fn(u32, u32, u32) -> (u32, u8)) -> Flow {
    let carry_in = if reads { spread(mask::read(inst, wave, 2)) } else { [0; LANES] };
    let sources = if has_modifiers(inst) {
        modifier::sources(inst, wave, Shape::words(2))
    } else {
        let [a, b] = [0, 1].map(|index: usize| lanes(inst, wave, inst.src[index]));
        modifier::Sources { lanes: [a, b, [0; LANES]], enabled: !0 }
    };
    let [a, b, _] = &sources.lanes;
    let mut out = [0; LANES];
    let mut flags: Flags = [0; LANES];
    for lane in 0..LANES {
        (out[lane], flags[lane]) = step(a[lane], b[lane], carry_in[lane] & 1);
    }
    if inst.variant == Variant::Plain {
        write(inst, wave, 0, &out);
    } else {
        modifier::write(inst, wave, Shape::words(2), out, sources.enabled);
    }
    mask::write(wave, inst.sdst, mask::pack(&flags) & sources.enabled);
    Flow::Next
}

fn add_co(inst: &Inst, wave: &mut Wave) -> Flow {
    carried(inst, wave, false, add)
}

fn sub_co(inst: &Inst, wave: &mut Wave) -> Flow {
    carried(inst, wave, false, sub)
}

fn subrev_co(inst: &Inst, wave: &mut Wave) -> Flow {
    carried(inst, wave, false, |a, b, borrow| sub(b, a, borrow))
}

fn addc_co(inst: &Inst, wave: &mut Wave) -> Flow {
    carried(inst, wave, true, add)
}

fn subb_co(inst: &Inst, wave: &mut Wave) -> Flow {
    carried(inst, wave, true, sub)
}

fn subbrev_co(inst: &Inst, wave: &mut Wave) -> Flow {
    carried(inst, wave, true, |a, b, borrow| sub(b, a, borrow))
}

#[inline(always)]
fn choose(a: &Lanes, b: &Lanes, mask: u64) -> Lanes {
    let mut out = *a;
    blend(&mut out, b, mask);
    out
}

fn cndmask(inst: &Inst, wave: &mut Wave) -> Flow {
    let [a, b] = [0, 1].map(|index: usize| lanes(inst, wave, inst.src[index]));
    let out = choose(&a, &b, mask::read(inst, wave, 2));
    write(inst, wave, 0, &out);
    Flow::Next
}

fn cndmask_modified(inst: &Inst, wave: &mut Wave) -> Flow {
    let sources = modifier::sources(inst, wave, Shape::words(2));
    let out = choose(&sources.lanes[0], &sources.lanes[1], mask::read(inst, wave, 2));
    modifier::write(inst, wave, Shape::words(2), out, sources.enabled);
    Flow::Next
}

/// Bit `a << 2 | b << 1 | c` of the truth table, for each bit of the sources.
#[inline(always)]
fn bitop3(inst: &Inst, wave: &Wave) -> Lanes {
    let [a, b, c] = [0, 1, 2].map(|index: usize| lanes(inst, wave, inst.src[index]));
    let table = inst.mods.bitop3;
    let terms: [u32; 8] = std::array::from_fn(|term| u32::from(table >> term & 1).wrapping_neg());
    let pick = |selector: u32, when_set: u32, when_clear: u32| selector & when_set | !selector & when_clear;
    let mut out = [0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        let (a, b, c) = (a[lane], b[lane], c[lane]);
        let without_a = pick(b, pick(c, terms[3], terms[2]), pick(c, terms[1], terms[0]));
        let with_a = pick(b, pick(c, terms[7], terms[6]), pick(c, terms[5], terms[4]));
        *out = pick(a, with_a, without_a);
    }
    out
}

fn bitop3_b32(inst: &Inst, wave: &mut Wave) -> Flow {
    let out = bitop3(inst, wave);
    write(inst, wave, 0, &out);
    Flow::Next
}

fn bitop3_b16(inst: &Inst, wave: &mut Wave) -> Flow {
    let mut out = bitop3(inst, wave);
    if let Some(index) = inst.dst.vector() {
        // The other half of the destination keeps its value.
        for (out, old) in out.iter_mut().zip(&wave.vgpr[index]) {
            *out = *out & 0xffff | old & 0xffff_0000;
        }
    }
    write(inst, wave, 0, &out);
    Flow::Next
}

fn mbcnt(inst: &Inst, wave: &mut Wave, first_lane: usize) -> Flow {
    let [bits, base] = [0, 1].map(|index: usize| lanes(inst, wave, inst.src[index]));
    let mut out = [0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        let below = lane.saturating_sub(first_lane).min(32) as u32;
        let mask = (1u64 << below) as u32;
        let mask = if below == 32 { !0 } else { mask.wrapping_sub(1) };
        *out = (bits[lane] & mask).count_ones().wrapping_add(base[lane]);
    }
    write(inst, wave, 0, &out);
    Flow::Next
}

fn mbcnt_lo(inst: &Inst, wave: &mut Wave) -> Flow {
    mbcnt(inst, wave, 0)
}

fn mbcnt_hi(inst: &Inst, wave: &mut Wave) -> Flow {
    mbcnt(inst, wave, 32)
}

/// The handler of an operation of this module.
pub(super) fn handler(inst: &Inst) -> Option<Handler> {
    let modified = has_modifiers(inst);
    Some(match inst.op {
        // Saturating a carry is nothing that compilers emit: better an error than a guess.
        _ if inst.mods.clamp => return None,
        Op::VAddCoU32 => add_co,
        Op::VSubCoU32 => sub_co,
        Op::VSubrevCoU32 => subrev_co,
        Op::VAddcCoU32 => addc_co,
        Op::VSubbCoU32 => subb_co,
        Op::VSubbrevCoU32 => subbrev_co,
        Op::VCndmaskB32 if modified => cndmask_modified,
        Op::VCndmaskB32 => cndmask,
        Op::VBitop3B32 if !modified => bitop3_b32,
        Op::VBitop3B16 if !modified => bitop3_b16,
        Op::VMbcntLoU32B32 if !modified => mbcnt_lo,
        Op::VMbcntHiU32B32 if !modified => mbcnt_hi,
        _ => return None,
    })
}
