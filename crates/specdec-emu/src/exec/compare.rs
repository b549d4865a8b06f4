//! Vector comparisons: one bit per lane into VCC or a scalar pair, zero where EXEC disables the lane.

use crate::exec::lane_op::{has_modifiers, Bits, Kind, Mixed, Uniform, Vector};
use crate::exec::mask::{self, Flags};
use crate::exec::modifier::{self, Shape};
use crate::exec::wide::{fetch, WideBits};
use crate::exec::{Flow, Handler};
use crate::inst::{Inst, Variant};
use crate::op::Op;
use crate::wave::{Lanes, Wave, EXEC, LANES};
use half::f16;
use std::cmp::Ordering;

trait Test {
    const HALF: bool;
    fn test(a: u32, b: u32) -> bool;
}

trait WideTest {
    type Source: WideBits;
    fn test(a: Self::Source, b: Self::Source) -> bool;
}

#[inline(always)]
fn flags<T: Test>(a: &Lanes, b: &Lanes) -> Flags {
    let mut flags = [0; LANES];
    for (lane, flag) in flags.iter_mut().enumerate() {
        *flag = u8::from(T::test(a[lane], b[lane]));
    }
    flags
}

fn plain<T: Test, A: Kind, B: Kind>(inst: &Inst, wave: &mut Wave) -> Flow {
    let flags = flags::<T>(&A::fetch(inst, wave, 0), &B::fetch(inst, wave, 1));
    mask::write(wave, inst.dst, mask::pack(&flags));
    Flow::Next
}

fn modified<T: Test>(inst: &Inst, wave: &mut Wave) -> Flow {
    let sources = modifier::sources(inst, wave, Shape { half_sources: T::HALF, ..Shape::words(2) });
    let flags = flags::<T>(&sources.lanes[0], &sources.lanes[1]);
    mask::write(wave, inst.dst, mask::pack(&flags) & sources.enabled);
    Flow::Next
}

fn wide<T: WideTest>(inst: &Inst, wave: &mut Wave) -> Flow {
    let (a, b) = (fetch::<T::Source>(inst, wave, 0), fetch::<T::Source>(inst, wave, 1));
    let mut flags = [0; LANES];
    for (lane, flag) in flags.iter_mut().enumerate() {
        *flag = u8::from(T::test(T::Source::from_registers(a[lane]), T::Source::from_registers(b[lane])));
    }
    mask::write(wave, inst.dst, mask::pack(&flags));
    Flow::Next
}

/// A comparison that narrows EXEC as well.
fn narrowing<T: Test>(inst: &Inst, wave: &mut Wave) -> Flow {
    let flow = modified::<T>(inst, wave);
    let mask = wave.read64(mask::pair(inst.dst));
    wave.write64(EXEC, mask);
    flow
}

fn choose<T: Test>(inst: &Inst) -> Handler {
    let is_vector = |index: usize| inst.src[index].vector().is_some();
    match (has_modifiers(inst), is_vector(0), is_vector(1)) {
        (true, ..) => modified::<T>,
        (_, true, true) => plain::<T, Vector, Vector>,
        (_, false, true) => plain::<T, Uniform, Vector>,
        _ => plain::<T, Mixed, Mixed>,
    }
}

macro_rules! compare_table {
    ($type:ty, $a:ident, $b:ident, $choose:ident; $($op:ident $body:expr,)+) => {
        |inst: &Inst| -> Option<Handler> {
            Some(match inst.op {
                $(Op::$op => {
                    struct Comparison;
                    impl Test for Comparison {
                        const HALF: bool = <$type as Bits>::HALF;
                        #[inline(always)]
                        fn test(a: u32, b: u32) -> bool {
                            let ($a, $b) = (<$type>::from_register(a), <$type>::from_register(b));
                            $body
                        }
                    }
                    $choose!(Comparison, inst)
                })+
                _ => return None,
            })
        }
    };
}

macro_rules! by_operands {
    ($test:ty, $inst:ident) => {
        choose::<$test>($inst)
    };
}

macro_rules! by_narrowing {
    ($test:ty, $inst:ident) => {
        narrowing::<$test>
    };
}

macro_rules! wide_compare_table {
    ($type:ty, $a:ident, $b:ident; $($op:ident $body:expr,)+) => {
        |inst: &Inst| -> Option<Handler> {
            Some(match inst.op {
                $(Op::$op => {
                    struct Comparison;
                    impl WideTest for Comparison {
                        type Source = $type;
                        #[inline(always)]
                        fn test($a: $type, $b: $type) -> bool {
                            $body
                        }
                    }
                    wide::<Comparison>
                })+
                _ => return None,
            })
        }
    };
}

/// Ordered and different.
#[inline(always)]
fn is_less_or_greater(a: f32, b: f32) -> bool {
    !(a == b || a.is_nan() || b.is_nan())
}

/// The class, 0 to 9 in the manual's order, of a float of this sign, exponent field and fraction.
const fn class(negative: bool, is_top: bool, is_bottom: bool, fraction: u32, quiet: u32) -> u32 {
    let positive_class = match (is_top, is_bottom, fraction) {
        (true, _, 0) => 9,
        (true, _, _) => return if fraction & quiet == 0 { 0 } else { 1 },
        (_, true, 0) => 6,
        (_, true, _) => 7,
        _ => 8,
    };
    // Minus infinity is 2, a negative normal number 3, down to minus zero, which is 5.
    if negative {
        11 - positive_class
    } else {
        positive_class
    }
}

struct ClassF32;

impl Test for ClassF32 {
    const HALF: bool = false;
    fn test(a: u32, b: u32) -> bool {
        let exponent = a >> 23 & 0xff;
        b >> class(a >> 31 == 1, exponent == 0xff, exponent == 0, a & 0x007f_ffff, 0x0040_0000) & 1 == 1
    }
}

struct ClassF16;

impl Test for ClassF16 {
    const HALF: bool = true;
    fn test(a: u32, b: u32) -> bool {
        let exponent = a >> 10 & 0x1f;
        b >> class(a >> 15 & 1 == 1, exponent == 0x1f, exponent == 0, a & 0x03ff, 0x0200) & 1 == 1
    }
}

/// The class mask is an integer: sign modifiers are source 0's alone, so the shared fetch serves.
fn class_handler<T: Test>(inst: &Inst) -> Handler {
    if has_modifiers(inst) {
        modified::<T>
    } else {
        plain::<T, Mixed, Mixed>
    }
}

fn class_f64(inst: &Inst, wave: &mut Wave) -> Flow {
    let (a, b) = (fetch::<f64>(inst, wave, 0), fetch::<u32>(inst, wave, 1));
    let mut flags = [0; LANES];
    for (lane, flag) in flags.iter_mut().enumerate() {
        let (bits, exponent) = (a[lane], a[lane] >> 52 & 0x7ff);
        // The class asks of the fraction whether there is any and whether it is quiet.
        let fraction = (bits >> 50 & 2) as u32 | u32::from(bits << 13 != 0);
        let class = class(bits >> 63 == 1, exponent == 0x7ff, exponent == 0, fraction, 2);
        *flag = (b[lane] as u32 >> class & 1) as u8;
    }
    mask::write(wave, inst.dst, mask::pack(&flags));
    Flow::Next
}

/// The handler of a vector comparison.
pub(super) fn handler(inst: &Inst) -> Option<Handler> {
    let float = compare_table! { f32, a, b, by_operands;
        VCmpFF32 { let _ = (a, b); false }, VCmpLtF32 a < b, VCmpEqF32 a == b, VCmpLeF32 a <= b,
        VCmpGtF32 a > b, VCmpLgF32 is_less_or_greater(a, b), VCmpGeF32 a >= b, VCmpOF32 !a.is_nan() && !b.is_nan(),
        VCmpUF32 a.is_nan() || b.is_nan(), VCmpNgeF32 !a.ge(&b),
        VCmpNlgF32 !is_less_or_greater(a, b), VCmpNgtF32 !a.gt(&b),
        VCmpNleF32 !a.le(&b), VCmpNeqF32 a != b,
        VCmpNltF32 !a.lt(&b),
        VCmpTruF32 { let _ = (a, b); true },
    };
    let half = compare_table! { f16, a, b, by_operands;
        VCmpFF16 { let _ = (a, b); false }, VCmpLtF16 a < b, VCmpEqF16 a == b, VCmpLeF16 a <= b,
        VCmpGtF16 a > b, VCmpLgF16 is_less_or_greater(a.to_f32(), b.to_f32()), VCmpGeF16 a >= b,
        VCmpOF16 !a.is_nan() && !b.is_nan(), VCmpUF16 a.is_nan() || b.is_nan(), VCmpNgeF16 !a.ge(&b),
        VCmpNlgF16 !is_less_or_greater(a.to_f32(), b.to_f32()), VCmpNgtF16 !a.gt(&b), VCmpNleF16 !a.le(&b),
        VCmpNeqF16 a != b, VCmpNltF16 !a.lt(&b), VCmpTruF16 { let _ = (a, b); true },
    };
    let int32 = compare_table! { i32, a, b, by_operands;
        VCmpFI32 { let _ = (a, b); false }, VCmpLtI32 a < b, VCmpEqI32 a == b, VCmpLeI32 a <= b, VCmpGtI32 a > b,
        VCmpNeI32 a != b, VCmpGeI32 a >= b, VCmpTI32 { let _ = (a, b); true },
    };
    let uint32 = compare_table! { u32, a, b, by_operands;
        VCmpFU32 { let _ = (a, b); false }, VCmpLtU32 a < b, VCmpEqU32 a == b, VCmpLeU32 a <= b, VCmpGtU32 a > b,
        VCmpNeU32 a != b, VCmpGeU32 a >= b, VCmpTU32 { let _ = (a, b); true },
    };
    let int16 = compare_table! { i16, a, b, by_operands;
        VCmpFI16 { let _ = (a, b); false }, VCmpLtI16 a < b, VCmpEqI16 a == b, VCmpLeI16 a <= b, VCmpGtI16 a > b,
        VCmpNeI16 a != b, VCmpGeI16 a >= b, VCmpTI16 { let _ = (a, b); true },
    };
    let uint16 = compare_table! { u16, a, b, by_operands;
        VCmpFU16 { let _ = (a, b); false }, VCmpLtU16 a < b, VCmpEqU16 a == b, VCmpLeU16 a <= b, VCmpGtU16 a > b,
        VCmpNeU16 a != b, VCmpGeU16 a >= b, VCmpTU16 { let _ = (a, b); true },
    };
    let narrowing = compare_table! { u32, a, b, by_narrowing;
        VCmpxLtU32 a < b, VCmpxEqU32 a == b, VCmpxLeU32 a <= b, VCmpxGtU32 a > b, VCmpxNeU32 a != b,
        VCmpxGeU32 a >= b,
    };
    match inst.op {
        Op::VCmpClassF32 => return Some(class_handler::<ClassF32>(inst)),
        Op::VCmpClassF16 => return Some(class_handler::<ClassF16>(inst)),
        _ => {}
    }
    float(inst)
        .or_else(|| half(inst))
        .or_else(|| int32(inst))
        .or_else(|| uint32(inst))
        .or_else(|| int16(inst))
        .or_else(|| uint16(inst))
        .or_else(|| narrowing(inst))
        .or_else(|| wide_handler(inst))
}

fn wide_handler(inst: &Inst) -> Option<Handler> {
    if inst.variant != Variant::Plain {
        return None;
    }
    let signed = wide_compare_table! { i64, a, b;
        VCmpFI64 { let _ = (a, b); false }, VCmpLtI64 a < b, VCmpEqI64 a == b, VCmpLeI64 a <= b, VCmpGtI64 a > b,
        VCmpNeI64 a != b, VCmpGeI64 a >= b, VCmpTI64 { let _ = (a, b); true },
    };
    let unsigned = wide_compare_table! { u64, a, b;
        VCmpFU64 { let _ = (a, b); false }, VCmpLtU64 a < b, VCmpEqU64 a == b, VCmpLeU64 a <= b, VCmpGtU64 a > b,
        VCmpNeU64 a != b, VCmpGeU64 a >= b, VCmpTU64 { let _ = (a, b); true },
    };
    let double = wide_compare_table! { f64, a, b;
        VCmpFF64 { let _ = (a, b); false }, VCmpLtF64 a < b, VCmpEqF64 a == b, VCmpLeF64 a <= b, VCmpGtF64 a > b,
        VCmpLgF64 a.partial_cmp(&b).is_some_and(Ordering::is_ne), VCmpGeF64 a >= b, VCmpOF64 !a.is_nan() && !b.is_nan(),
        VCmpUF64 a.is_nan() || b.is_nan(), VCmpNgeF64 !a.ge(&b), VCmpNlgF64 a.partial_cmp(&b).is_none_or(Ordering::is_eq), VCmpNgtF64 !a.gt(&b),
        VCmpNleF64 !a.le(&b), VCmpNeqF64 a != b, VCmpNltF64 !a.lt(&b), VCmpTruF64 { let _ = (a, b); true },
    };
    if inst.op == Op::VCmpClassF64 {
        return Some(class_f64);
    }
    signed(inst).or_else(|| unsigned(inst)).or_else(|| double(inst))
}
