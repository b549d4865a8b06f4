//! Conversions between number formats.

use crate::exec::lane_op::{blend, lane_table, write};
use crate::exec::modifier::{self, Shape};
use crate::exec::small_float::{power_of_two, to_e2m1, to_e4m3, to_e5m2, Format};
use crate::exec::{Flow, Handler};
use crate::inst::Inst;
use crate::op::Op;
use crate::wave::{Lanes, Wave, LANES};
use half::f16;

/// The nearest bf16, ties to even; a NaN is made quiet.
#[inline(always)]
pub(super) fn to_bf16(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if x.is_nan() {
        bits >> 16 | 0x40
    } else {
        rounded
    }
}

/// The f16 next to `x` towards zero.
fn to_f16_towards_zero(x: f32) -> u32 {
    let nearest = f16::from_f32(x);
    let too_far = nearest.to_f32().abs() > x.abs();
    // Stepping the bits down moves towards zero, and from infinity to the largest number.
    u32::from(nearest.to_bits()) - u32::from(too_far && x.is_finite())
}

fn from_e4m3(code: u32) -> f32 {
    Format::E4m3.values()[(code & 0xff) as usize]
}

fn from_e5m2(code: u32) -> f32 {
    Format::E5m2.values()[(code & 0xff) as usize]
}

#[inline(always)]
fn ubyte(x: u32, index: u32) -> f32 {
    (x >> (8 * index) & 0xff) as f32
}

lane_table! {
    VCvtF32I32(a: i32) -> f32 { a as f32 }
    VCvtF32U32(a: u32) -> f32 { a as f32 }
    VCvtI32F32(a: f32) -> i32 { a as i32 }
    VCvtU32F32(a: f32) -> u32 { a as u32 }
    VCvtRpiI32F32(a: f32) -> i32 { (a + 0.5).floor() as i32 }
    VCvtF32Ubyte0(a: u32) -> f32 { ubyte(a, 0) }
    VCvtF32Ubyte1(a: u32) -> f32 { ubyte(a, 1) }
    VCvtF32Ubyte2(a: u32) -> f32 { ubyte(a, 2) }
    VCvtF32Ubyte3(a: u32) -> f32 { ubyte(a, 3) }
    VCvtF16F32(a: f32) -> f16 { f16::from_f32(a) }
    VCvtF32F16(a: f16) -> f32 { a.to_f32() }
    VCvtF32Bf16(a: u16) -> f32 { f32::from_bits(u32::from(a) << 16) }
    VCvtPkBf16F32(a: f32, b: f32) -> u32 { to_bf16(a) | to_bf16(b) << 16 }
    VCvtPkrtzF16F32(a: f32, b: f32) -> u32 { to_f16_towards_zero(a) | to_f16_towards_zero(b) << 16 }
    VCvtPkI16I32(a: i32, b: i32) -> u32 {
        let narrow = |x: i32| u32::from(x.clamp(-0x8000, 0x7fff) as u16);
        narrow(a) | narrow(b) << 16
    }
    VCvtPkU16U32(a: u32, b: u32) -> u32 { a.min(0xffff) | b.min(0xffff) << 16 }
    VCvtF32Fp8(a: u32) -> f32 { from_e4m3(a) }
    VCvtF32Bf8(a: u32) -> f32 { from_e5m2(a) }
    VCvtFlrI32F32(a: f32) -> i32 { a.floor() as i32 }
    VCvtPkF16F32(a: f32, b: f32) -> u32 {
        u32::from(f16::from_f32(a).to_bits()) | u32::from(f16::from_f32(b).to_bits()) << 16
    }
    VCvtOffF32I4(a: u32) -> f32 { ((a << 28) as i32 >> 28) as f32 / 16.0 }
    VCvtPkU8F32(a: f32, b: u32, c: u32) -> u32 {
        let shift = 8 * (b & 3);
        c & !(0xff << shift) | u32::from(a as u8) << shift
    }
    VCvtF16U16(a: u16) -> f16 { f16::from_f32(f32::from(a)) }
    VCvtF16I16(a: i16) -> f16 { f16::from_f32(f32::from(a)) }
    VCvtU16F16(a: f16) -> u16 { a.to_f32() as u16 }
    VCvtI16F16(a: f16) -> i16 { a.to_f32() as i16 }
    VCvtPkBf8F32(a: f32, b: f32) -> u16 = keeps { u16::from_le_bytes([to_e5m2(a), to_e5m2(b)]) }
    VCvtPkFp8F32(a: f32, b: f32) -> u16 = keeps { u16::from_le_bytes([to_e4m3(a), to_e4m3(b)]) }
}

/// The reciprocal of the power of two in a scale operand: only its exponent counts.
#[inline(always)]
pub(super) fn inverse_scale(bits: u32) -> f32 {
    let code = bits >> 23 & 0xff;
    // 2^-127 and 2^-128, the inverses of the two largest divisors, are denormals.
    let small = if code == 254 { 0x0040_0000 } else { 0x0020_0000 };
    f32::from_bits(if code >= 254 { small } else { (254 - code) << 23 })
}

/// Puts one byte per lane into the destination byte that `op_sel` names; the others keep their value.
fn write_byte(inst: &Inst, wave: &mut Wave, bytes: &Lanes) {
    let exec = wave.exec();
    let shift = 8 * (u32::from(inst.mods.op_sel) >> 2 & 3);
    if let Some(index) = inst.dst.vector() {
        let mut out = wave.vgpr[index];
        for (out, byte) in out.iter_mut().zip(bytes) {
            *out = *out & !(0xff << shift) | byte << shift;
        }
        blend(&mut wave.vgpr[index], &out, exec);
    }
}

fn scaled_fp4_from_f32(inst: &Inst, wave: &mut Wave) -> Flow {
    let sources = modifier::sources(inst, wave, Shape::words(3));
    let [a, b, scale] = &sources.lanes;
    let mut out = [0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        let factor = inverse_scale(scale[lane]);
        *out = to_e2m1(f32::from_bits(a[lane]) * factor) | to_e2m1(f32::from_bits(b[lane]) * factor) << 4;
    }
    write_byte(inst, wave, &out);
    Flow::Next
}

fn scaled_fp4_from_f16(inst: &Inst, wave: &mut Wave) -> Flow {
    let sources = modifier::sources(inst, wave, Shape::words(2));
    let [pair, scale, _] = &sources.lanes;
    let mut out = [0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        let factor = inverse_scale(scale[lane]);
        let [low, high] = [0, 16].map(|shift: u32| f16::from_bits((pair[lane] >> shift) as u16).to_f32());
        *out = to_e2m1(low * factor) | to_e2m1(high * factor) << 4;
    }
    write_byte(inst, wave, &out);
    Flow::Next
}

fn scaled_fp4_from_bf16(inst: &Inst, wave: &mut Wave) -> Flow {
    let sources = modifier::sources(inst, wave, Shape::words(2));
    let [pair, scale, _] = &sources.lanes;
    let mut out = [0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        let factor = inverse_scale(scale[lane]);
        let (low, high) = (f32::from_bits(pair[lane] << 16), f32::from_bits(pair[lane] & 0xffff_0000));
        *out = to_e2m1(low * factor) | to_e2m1(high * factor) << 4;
    }
    write_byte(inst, wave, &out);
    Flow::Next
}

/// The two values of the `op_sel` part (byte of FP4, word of FP8) of source 0, times source 1's power of two.
#[inline(always)]
pub(super) fn scaled_pair(inst: &Inst, wave: &Wave, format: Format) -> [[f32; LANES]; 2] {
    let sources = modifier::sources(inst, wave, Shape::words(2));
    let [codes, scale, _] = &sources.lanes;
    let num_bits = format.num_bits() as u32;
    let part = u32::from(inst.mods.op_sel) & (32 / (2 * num_bits) - 1);
    let mut out = [[0.0; LANES]; 2];
    for (index, out) in (0u32..).zip(&mut out) {
        for (lane, out) in out.iter_mut().enumerate() {
            let code = codes[lane] >> (num_bits * (2 * part + index)) & ((1 << num_bits) - 1);
            *out = format.values()[code as usize] * power_of_two(scale[lane] >> 23 & 0xff);
        }
    }
    out
}

/// `FORMAT` is a `cbsz` number.
fn scaled_f32_pair<const FORMAT: u8>(inst: &Inst, wave: &mut Wave) -> Flow {
    if let Some(format) = Format::from_field(FORMAT) {
        let [low, high] = scaled_pair(inst, wave, format);
        write(inst, wave, 0, &low.map(f32::to_bits));
        write(inst, wave, 1, &high.map(f32::to_bits));
    }
    Flow::Next
}

fn scaled_bf16_pair<const FORMAT: u8>(inst: &Inst, wave: &mut Wave) -> Flow {
    if let Some(format) = Format::from_field(FORMAT) {
        let [low, high] = scaled_pair(inst, wave, format);
        let mut out = [0; LANES];
        for (lane, out) in out.iter_mut().enumerate() {
            *out = to_bf16(low[lane]) | to_bf16(high[lane]) << 16;
        }
        write(inst, wave, 0, &out);
    }
    Flow::Next
}

fn f32_pair(inst: &Inst, wave: &mut Wave, from: fn(u32) -> f32) -> Flow {
    let codes = modifier::sources(inst, wave, Shape { half_sources: true, ..Shape::words(1) }).lanes[0];
    let [low, high] = [0, 8].map(|shift: u32| codes.map(|code| from(code >> shift).to_bits()));
    write(inst, wave, 0, &low);
    write(inst, wave, 1, &high);
    Flow::Next
}

fn f32_pair_from_fp8(inst: &Inst, wave: &mut Wave) -> Flow {
    f32_pair(inst, wave, from_e4m3)
}

fn f32_pair_from_bf8(inst: &Inst, wave: &mut Wave) -> Flow {
    f32_pair(inst, wave, from_e5m2)
}

/// The handler of a conversion that writes a byte or a register pair.
pub(super) fn packed_handler(inst: &Inst) -> Option<Handler> {
    Some(match inst.op {
        Op::VCvtScalef32PkFp4F32 => scaled_fp4_from_f32,
        Op::VCvtScalef32PkFp4F16 => scaled_fp4_from_f16,
        Op::VCvtScalef32PkFp4Bf16 => scaled_fp4_from_bf16,
        Op::VCvtScalef32PkF32Fp8 => scaled_f32_pair::<0>,
        Op::VCvtScalef32PkF32Bf8 => scaled_f32_pair::<1>,
        Op::VCvtScalef32PkF32Fp4 => scaled_f32_pair::<4>,
        Op::VCvtScalef32PkBf16Fp8 => scaled_bf16_pair::<0>,
        Op::VCvtScalef32PkBf16Bf8 => scaled_bf16_pair::<1>,
        Op::VCvtScalef32PkBf16Fp4 => scaled_bf16_pair::<4>,
        Op::VCvtPkF32Fp8 => f32_pair_from_fp8,
        Op::VCvtPkF32Bf8 => f32_pair_from_bf8,
        _ => return None,
    })
}
