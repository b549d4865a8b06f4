//! Conversions between wider floats and the 4-, 6- and 8-bit ones under a power-of-two scale: pairs of the 8-bit
//! formats, and blocks of 32 values of the 6-bit ones.

use crate::exec::convert::{inverse_scale, scaled_pair, to_bf16};
use crate::exec::lane_op::{blend, lanes, write};
use crate::exec::modifier::{self, Shape};
use crate::exec::small_float::{encode, power_of_two, Format};
use crate::exec::{Flow, Handler};
use crate::inst::{Inst, Operand};
use crate::op::Op;
use crate::wave::{Lanes, Wave, LANES};
use half::f16;

/// How a 32-bit register, or half of one, holds a wider float.
#[derive(Clone, Copy)]
enum Wide {
    F32,
    F16,
    Bf16,
}

impl Wide {
    const fn bits(self) -> usize {
        match self {
            Self::F32 => 32,
            Self::F16 | Self::Bf16 => 16,
        }
    }

    fn decode(self, bits: u32) -> f32 {
        match self {
            Self::F32 => f32::from_bits(bits),
            Self::F16 => f16::from_bits(bits as u16).to_f32(),
            Self::Bf16 => f32::from_bits(bits << 16),
        }
    }

    fn encode(self, x: f32) -> u32 {
        match self {
            Self::F32 => x.to_bits(),
            Self::F16 => u32::from(f16::from_f32(x).to_bits()),
            Self::Bf16 => to_bf16(x),
        }
    }
}

/// Puts one word per lane into the destination half that `op_sel` bit 3 names; the other one keeps its value.
fn write_word(inst: &Inst, wave: &mut Wave, words: &Lanes) {
    let exec = wave.exec();
    let shift = if inst.mods.op_sel & 8 != 0 { 16 } else { 0 };
    if let Some(index) = inst.dst.vector() {
        let mut out = wave.vgpr[index];
        for (out, word) in out.iter_mut().zip(words) {
            *out = *out & !(0xffff << shift) | word << shift;
        }
        blend(&mut wave.vgpr[index], &out, exec);
    }
}

/// Two 8-bit values: of sources 0 and 1, or of the halves of source 0; the last source is the scale.
#[inline(always)]
fn narrow_pair(inst: &Inst, wave: &mut Wave, wide: Wide, format: Format) -> Flow {
    let num_sources = if wide.bits() == 32 { 3 } else { 2 };
    let sources = modifier::sources(inst, wave, Shape::words(num_sources));
    let mut out = [0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        let factor = inverse_scale(sources.lanes[num_sources - 1][lane]);
        let first = sources.lanes[0][lane];
        let (low, high) = if wide.bits() == 32 { (first, sources.lanes[1][lane]) } else { (first, first >> 16) };
        *out = encode(format, wide.decode(low) * factor) | encode(format, wide.decode(high) * factor) << 8;
    }
    write_word(inst, wave, &out);
    Flow::Next
}

/// A pair of small floats as the two halves of a register.
#[inline(always)]
fn half_pair(inst: &Inst, wave: &mut Wave, format: Format) -> Flow {
    let [low, high] = scaled_pair(inst, wave, format);
    let mut out = [0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        *out = Wide::F16.encode(low[lane]) | Wide::F16.encode(high[lane]) << 16;
    }
    write(inst, wave, 0, &out);
    Flow::Next
}

/// The byte of source 0 that `op_sel` names, as an f32.
#[inline(always)]
fn single(inst: &Inst, wave: &mut Wave, format: Format) -> Flow {
    let sources = modifier::sources(inst, wave, Shape::words(2));
    let shift = 8 * u32::from(inst.mods.op_sel & 3);
    let mut out = [0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        let code = sources.lanes[0][lane] >> shift & 0xff;
        let scale = power_of_two(sources.lanes[1][lane] >> 23 & 0xff);
        *out = (format.values()[code as usize] * scale).to_bits();
    }
    write(inst, wave, 0, &out);
    Flow::Next
}

/// Bits `first..first + count` of consecutive registers in one lane.
fn field(wave: &Wave, operand: Operand, lane: usize, first: usize, count: usize) -> u32 {
    let register = |index: usize| operand.vector().map_or(0, |base| wave.vgpr[base + index][lane]);
    let both = u64::from(register(first / 32))
        | if first % 32 + count > 32 { u64::from(register(first / 32 + 1)) << 32 } else { 0 };
    (both >> (first % 32)) as u32 & (!0u32 >> (32 - count))
}

/// 32 values, `value` of each lane and index, packed `count` bits apart into the destination registers.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "the lane goes to the function as well")]
fn write_block(inst: &Inst, wave: &mut Wave, count: usize, value: impl Fn(&Wave, usize, usize) -> u32) -> Flow {
    let mut block = vec![[0u32; LANES]; count];
    for index in 0..32 {
        let (first, shift) = (index * count / 32, index * count % 32);
        for lane in 0..LANES {
            let bits = u64::from(value(wave, lane, index)) << shift;
            block[first][lane] |= bits as u32;
            if bits >> 32 != 0 {
                block[first + 1][lane] |= (bits >> 32) as u32;
            }
        }
    }
    for (dword, out) in block.iter().enumerate() {
        write(inst, wave, dword, out);
    }
    Flow::Next
}

#[inline(always)]
fn widen_block(inst: &Inst, wave: &mut Wave, format: Format, wide: Wide) -> Flow {
    let (source, scale) = (inst.src[0], lanes(inst, wave, inst.src[1]));
    write_block(inst, wave, wide.bits(), |wave, lane, index| {
        let code = field(wave, source, lane, index * format.num_bits(), format.num_bits());
        wide.encode(format.values()[code as usize] * power_of_two(scale[lane] >> 23 & 0xff))
    })
}

#[inline(always)]
fn narrow_block(inst: &Inst, wave: &mut Wave, wide: Wide, format: Format) -> Flow {
    // Two blocks of f32 are interleaved; one of halves is in order.
    let is_pair = wide.bits() == 32;
    let scale = lanes(inst, wave, inst.src[if is_pair { 2 } else { 1 }]);
    let sources = [inst.src[0], inst.src[1]];
    write_block(inst, wave, format.num_bits(), |wave, lane, index| {
        let (source, place) = if is_pair { (sources[index % 2], index / 2) } else { (sources[0], index) };
        let x = wide.decode(field(wave, source, lane, place * wide.bits(), wide.bits()));
        encode(format, x * inverse_scale(scale[lane]))
    })
}

macro_rules! conversions {
    ($($op:ident $function:ident($($argument:expr),+);)+) => {
        /// The handler of a conversion of this module.
        pub(super) fn handler(inst: &Inst) -> Option<Handler> {
            Some(match inst.op {
                $(Op::$op => {
                    fn run(inst: &Inst, wave: &mut Wave) -> Flow {
                        $function(inst, wave, $($argument),+)
                    }
                    run
                })+
                _ => return None,
            })
        }
    };
}

conversions! {
    VCvtScalef32PkFp8F32 narrow_pair(Wide::F32, Format::E4m3);
    VCvtScalef32PkBf8F32 narrow_pair(Wide::F32, Format::E5m2);
    VCvtScalef32PkFp8F16 narrow_pair(Wide::F16, Format::E4m3);
    VCvtScalef32PkBf8F16 narrow_pair(Wide::F16, Format::E5m2);
    VCvtScalef32PkFp8Bf16 narrow_pair(Wide::Bf16, Format::E4m3);
    VCvtScalef32PkBf8Bf16 narrow_pair(Wide::Bf16, Format::E5m2);
    VCvtScalef32PkF16Fp8 half_pair(Format::E4m3);
    VCvtScalef32PkF16Bf8 half_pair(Format::E5m2);
    VCvtScalef32PkF16Fp4 half_pair(Format::E2m1);
    VCvtScalef32F32Fp8 single(Format::E4m3);
    VCvtScalef32F32Bf8 single(Format::E5m2);
    VCvtScalef32Pk32F32Fp6 widen_block(Format::E2m3, Wide::F32);
    VCvtScalef32Pk32F32Bf6 widen_block(Format::E3m2, Wide::F32);
    VCvtScalef32Pk32F16Fp6 widen_block(Format::E2m3, Wide::F16);
    VCvtScalef32Pk32F16Bf6 widen_block(Format::E3m2, Wide::F16);
    VCvtScalef32Pk32Bf16Fp6 widen_block(Format::E2m3, Wide::Bf16);
    VCvtScalef32Pk32Bf16Bf6 widen_block(Format::E3m2, Wide::Bf16);
    VCvtScalef322xpk16Fp6F32 narrow_block(Wide::F32, Format::E2m3);
    VCvtScalef322xpk16Bf6F32 narrow_block(Wide::F32, Format::E3m2);
    VCvtScalef32Pk32Fp6F16 narrow_block(Wide::F16, Format::E2m3);
    VCvtScalef32Pk32Bf6F16 narrow_block(Wide::F16, Format::E3m2);
    VCvtScalef32Pk32Fp6Bf16 narrow_block(Wide::Bf16, Format::E2m3);
    VCvtScalef32Pk32Bf6Bf16 narrow_block(Wide::Bf16, Format::E3m2);
}
