//! Lane operations with a 64-bit source or result.

use crate::exec::double;
use crate::exec::dpp;
use crate::exec::lane_op::{has_modifiers, source, write};
use crate::exec::mask::{self, Flags};
use crate::exec::{Flow, Handler};
use crate::inst::{Inst, Operand, Variant};
use crate::op::Op;
use crate::wave::{inline_float, Wave, LANES};

/// A 64-bit register pair of every lane.
pub(super) type WideLanes = [u64; LANES];

/// A type that one lane of one or two registers can hold.
pub(super) trait WideBits: Copy {
    /// Two registers.
    const WIDE: bool = true;
    /// Float constants have this type's format rather than single precision.
    const DOUBLE: bool = false;
    /// Reads the value from register bits.
    fn from_registers(bits: u64) -> Self;
    /// The value as register bits.
    fn into_registers(self) -> u64;
}

macro_rules! wide_bits {
    ($type:ty, $wide:literal, $double:literal, $from:expr, $into:expr) => {
        impl WideBits for $type {
            const WIDE: bool = $wide;
            const DOUBLE: bool = $double;
            #[inline(always)]
            fn from_registers(bits: u64) -> Self {
                $from(bits)
            }
            #[inline(always)]
            fn into_registers(self) -> u64 {
                $into(self)
            }
        }
    };
}

wide_bits!(u32, false, false, |x: u64| x as u32, u64::from);
wide_bits!(i32, false, false, |x: u64| x as i32, |x: i32| u64::from(x as u32));
wide_bits!(f32, false, false, |x: u64| f32::from_bits(x as u32), |x: f32| u64::from(x.to_bits()));
wide_bits!(u64, true, false, |x: u64| x, |x: u64| x);
wide_bits!(i64, true, false, |x: u64| x as i64, |x: i64| x as u64);
wide_bits!(f64, true, true, f64::from_bits, f64::to_bits);

/// The double that inline float constant `code` stands for.
fn inline_double(code: u16) -> u64 {
    // 1/(2 pi) is the one constant whose double is not its single widened.
    if code == 248 {
        0x3fc4_5f30_6dc9_c882
    } else {
        f64::from(f32::from_bits(inline_float(code))).to_bits()
    }
}

/// The lanes of source `index` as a `T`; a single register is zero-extended.
#[inline(always)]
pub(super) fn fetch<T: WideBits>(inst: &Inst, wave: &Wave, index: usize) -> WideLanes {
    let operand = source(inst, index);
    let mut out = [0; LANES];
    if let Some(register) = operand.vector() {
        let low = &wave.vgpr[register];
        if T::WIDE {
            let high = &wave.vgpr[register + 1];
            for (lane, out) in out.iter_mut().enumerate() {
                *out = u64::from(low[lane]) | u64::from(high[lane]) << 32;
            }
        } else {
            for (lane, out) in out.iter_mut().enumerate() {
                *out = u64::from(low[lane]);
            }
        }
    } else {
        out = [uniform::<T>(inst, wave, operand); LANES];
    }
    let sign = if T::WIDE { 1u64 << 63 } else { 1 << 31 };
    if inst.mods.abs[index] {
        for x in &mut out {
            *x &= !sign;
        }
    }
    if inst.mods.neg[index] {
        for x in &mut out {
            *x ^= sign;
        }
    }
    out
}

fn uniform<T: WideBits>(inst: &Inst, wave: &Wave, operand: Operand) -> u64 {
    match operand.code {
        _ if !T::WIDE => u64::from(wave.scalar32(operand, inst.literal)),
        240..=248 if T::DOUBLE => inline_double(operand.code),
        // A literal holds the upper half of a double.
        255 if T::DOUBLE => u64::from(inst.literal) << 32,
        _ => wave.scalar64(operand, inst.literal),
    }
}

/// Writes both dwords of a 64-bit result.
#[inline(always)]
pub(super) fn write_wide(inst: &Inst, wave: &mut Wave, out: &WideLanes) {
    write(inst, wave, 0, &out.map(|x| x as u32));
    write(inst, wave, 1, &out.map(|x| (x >> 32) as u32));
}

macro_rules! wide_table {
    ($($op:ident($first:ident: $first_type:ty $(, $arg:ident: $type:ty)*) -> $result:ty $body:block)+) => {
        fn table_handler(op: Op) -> Option<Handler> {
            Some(match op {
                $(Op::$op => {
                    fn run(inst: &Inst, wave: &mut Wave) -> Flow {
                        wide_table!(@fetch inst, wave, 0; $first: $first_type $(, $arg: $type)*);
                        let mut out = [0; LANES];
                        for (lane, out) in out.iter_mut().enumerate() {
                            let $first = <$first_type>::from_registers($first[lane]);
                            $(let $arg = <$type>::from_registers($arg[lane]);)*
                            let result: $result = $body;
                            *out = result.into_registers();
                        }
                        if <$result>::WIDE {
                            write_wide(inst, wave, &out);
                        } else {
                            write(inst, wave, 0, &out.map(|x| x as u32));
                        }
                        Flow::Next
                    }
                    run
                })+
                _ => return None,
            })
        }
    };
    (@fetch $inst:ident, $wave:ident, $index:expr; $arg:ident: $type:ty $(, $more:ident: $types:ty)*) => {
        let $arg = fetch::<$type>($inst, $wave, $index);
        wide_table!(@fetch $inst, $wave, $index + 1; $($more: $types),*);
    };
    (@fetch $inst:ident, $wave:ident, $index:expr;) => {};
}

wide_table! {
    VMovB64(a: u64) -> u64 { a }
    VLshlrevB64(a: u32, b: u64) -> u64 { b << (a & 63) }
    VLshrrevB64(a: u32, b: u64) -> u64 { b >> (a & 63) }
    VAshrrevI64(a: u32, b: i64) -> i64 { b >> (a & 63) }
    VLshlAddU64(a: u64, b: u32, c: u64) -> u64 { (a << (b & 7)).wrapping_add(c) }
    VAddF64(a: f64, b: f64) -> f64 { double::settle(a + b, [a, b, 0.0]) }
    VMulF64(a: f64, b: f64) -> f64 { double::settle(a * b, [a, b, 0.0]) }
    VFmaF64(a: f64, b: f64, c: f64) -> f64 { double::settle(a.mul_add(b, c), [a, b, c]) }
    VFmacF64(a: f64, b: f64, c: f64) -> f64 { double::settle(a.mul_add(b, c), [a, b, c]) }
    VMinF64(a: f64, b: f64) -> f64 { double::min(a, b) }
    VMaxF64(a: f64, b: f64) -> f64 { double::max(a, b) }
    VLdexpF64(a: f64, exponent: i32) -> f64 { double::ldexp(a, exponent) }
    VTruncF64(a: f64) -> f64 { double::of_one(a, a.trunc()) }
    VCeilF64(a: f64) -> f64 { double::of_one(a, a.ceil()) }
    VFloorF64(a: f64) -> f64 { double::of_one(a, a.floor()) }
    VRndneF64(a: f64) -> f64 { double::of_one(a, a.round_ties_even()) }
    VFractF64(a: f64) -> f64 { double::fract(a) }
    VFrexpMantF64(a: f64) -> f64 { double::frexp(a).0 }
    VFrexpExpI32F64(a: f64) -> i32 { double::frexp(a).1 }
    VRcpF64(a: f64) -> f64 { double::of_one(a, 1.0 / a) }
    VRsqF64(a: f64) -> f64 { double::of_one(a, 1.0 / a.sqrt()) }
    VSqrtF64(a: f64) -> f64 { double::of_one(a, a.sqrt()) }
    VCvtF64F32(a: f32) -> f64 { double::of_one(f64::from(a), f64::from(a)) }
    VCvtF32F64(a: f64) -> f32 { double::of_one(a, a) as f32 }
    VCvtF64I32(a: i32) -> f64 { f64::from(a) }
    VCvtF64U32(a: u32) -> f64 { f64::from(a) }
    VCvtI32F64(a: f64) -> i32 { a as i32 }
    VCvtU32F64(a: f64) -> u32 { a as u32 }
}

fn mad_u64(inst: &Inst, wave: &mut Wave) -> Flow {
    multiply_add(inst, wave, |a, b, c| {
        let (sum, carry) = (u64::from(a) * u64::from(b)).overflowing_add(c);
        (sum, u8::from(carry))
    })
}

fn mad_i64(inst: &Inst, wave: &mut Wave) -> Flow {
    multiply_add(inst, wave, |a, b, c| {
        let sum = i128::from(i64::from(a as i32) * i64::from(b as i32)) + i128::from(c as i64);
        (sum as u64, (sum >> 64) as u8 & 1)
    })
}

/// `D = a * b + c` on 64 bits; bit 64 of the sum goes to the mask destination.
#[inline(always)]
fn multiply_add(inst: &Inst, wave: &mut Wave, step: impl Fn(u32, u32, u64) -> (u64, u8)) -> Flow {
    let (a, b) = (fetch::<u32>(inst, wave, 0), fetch::<u32>(inst, wave, 1));
    let c = fetch::<u64>(inst, wave, 2);
    let mut out = [0; LANES];
    let mut carries: Flags = [0; LANES];
    for lane in 0..LANES {
        (out[lane], carries[lane]) = step(a[lane] as u32, b[lane] as u32, c[lane]);
    }
    write_wide(inst, wave, &out);
    mask::write(wave, inst.sdst, mask::pack(&carries));
    Flow::Next
}

fn mov_b64_dpp(inst: &Inst, wave: &mut Wave) -> Flow {
    let (Variant::Dpp(dpp), Some(from), Some(to)) = (&inst.variant, inst.src[0].vector(), inst.dst.vector()) else {
        return Flow::Next;
    };
    let exec = wave.exec();
    let mut halves = [wave.vgpr[from], wave.vgpr[from + 1]];
    for (dword, half) in halves.iter_mut().enumerate() {
        let enabled = dpp::permute(*dpp, half, exec);
        crate::exec::lane_op::blend(&mut wave.vgpr[to + dword], half, exec & enabled);
    }
    Flow::Next
}

/// The handler of an operation with a 64-bit source or result.
pub(super) fn handler(inst: &Inst) -> Option<Handler> {
    let plain = inst.variant == Variant::Plain && !inst.mods.clamp && inst.mods.omod == 0;
    // Signs of integers do not exist; the decoder lets none through.
    let float = inst.op.name().contains("f64");
    match inst.op {
        Op::VMovB64 if matches!(inst.variant, Variant::Dpp(_)) => Some(mov_b64_dpp),
        _ if !plain || (has_modifiers(inst) && !float) => None,
        Op::VMadU64U32 => Some(mad_u64),
        Op::VMadI64I32 => Some(mad_i64),
        op => table_handler(op),
    }
}
