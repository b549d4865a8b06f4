//! The frame of every lane-wise instruction: fetch 64-lane sources, apply one function per lane, write under EXEC.
//!
//! A handler is chosen once per static instruction, so what an instruction's operands are (registers or a wave-wide
//! scalar) and whether it has modifiers is settled in the handler's type, not per execution.

use crate::exec::{modifier, Flow, Handler};
use crate::inst::{Format, Inst, Operand, Variant};
use crate::wave::{Lanes, Wave, LANES};
use half::f16;

/// A function of up to three 32-bit sources of one lane.
pub(super) trait LaneOp {
    /// Sources read: 1 to 3.
    const SOURCES: usize;
    /// The result is a float: `clamp` means 0 to 1 and `omod` exists.
    const FLOAT: bool;
    /// The sources are single-precision floats.
    const FLOAT_SOURCES: bool;
    /// The sources are 16 bits wide: sign modifiers act on bit 15, `op_sel` selects halves.
    const HALF_SOURCES: bool;
    /// The result is 16 bits wide.
    const HALF_RESULT: bool;
    /// The half of the destination that is not written keeps its value (else it becomes zero).
    const KEEPS_HALF: bool;

    /// The result of one lane; unused sources are zero.
    fn apply(sources: [u32; 3]) -> u32;

    /// The result under the integer `clamp` modifier.
    fn saturated(sources: [u32; 3]) -> u32 {
        Self::apply(sources)
    }
}

/// A type that one lane of a 32-bit register can hold.
pub(super) trait Bits: Copy {
    /// A float format.
    const FLOAT: bool = false;
    /// Sixteen bits wide.
    const HALF: bool = false;
    /// Reads the value from a register's bits.
    fn from_register(bits: u32) -> Self;
    /// The value as register bits, zero-extended.
    fn into_register(self) -> u32;
}

macro_rules! bits {
    ($type:ty, $float:literal, $half:literal, $from:expr, $into:expr) => {
        impl Bits for $type {
            const FLOAT: bool = $float;
            const HALF: bool = $half;
            #[inline(always)]
            fn from_register(bits: u32) -> Self {
                $from(bits)
            }
            #[inline(always)]
            fn into_register(self) -> u32 {
                $into(self)
            }
        }
    };
}

bits!(u32, false, false, |x: u32| x, |x: u32| x);
bits!(i32, false, false, |x: u32| x as i32, |x: i32| x as u32);
bits!(f32, true, false, f32::from_bits, f32::to_bits);
bits!(u16, false, true, |x: u32| x as u16, u32::from);
bits!(i16, false, true, |x: u32| x as u16 as i16, |x: i16| u32::from(x as u16));
bits!(f16, true, true, |x: u32| f16::from_bits(x as u16), |x: f16| u32::from(x.to_bits()));

/// Where source `index` is; a third source that the encoding lacks is the destination (`v_fmac`).
#[inline(always)]
pub(super) fn source(inst: &Inst, index: usize) -> Operand {
    let given = inst.src[index];
    if given.is_some() {
        given
    } else {
        inst.dst
    }
}

/// The 64 lanes of any 32-bit operand.
#[inline(always)]
pub(super) fn lanes(inst: &Inst, wave: &Wave, operand: Operand) -> Lanes {
    match operand.vector() {
        Some(index) => wave.vgpr[index],
        None => [wave.scalar32(operand, inst.literal); LANES],
    }
}

/// How a source is fetched.
pub(super) trait Kind {
    /// The 64 lanes of source `index`.
    fn fetch(inst: &Inst, wave: &Wave, index: usize) -> Lanes;
}

/// The source is a vector register.
pub(super) struct Vector;
/// The source is a scalar register or a constant.
pub(super) struct Uniform;
/// The source is looked at when executed.
pub(super) struct Mixed;

impl Kind for Vector {
    #[inline(always)]
    fn fetch(inst: &Inst, wave: &Wave, index: usize) -> Lanes {
        source(inst, index).vector().map_or([0; LANES], |register| wave.vgpr[register])
    }
}

impl Kind for Uniform {
    #[inline(always)]
    fn fetch(inst: &Inst, wave: &Wave, index: usize) -> Lanes {
        [wave.scalar32(inst.src[index], inst.literal); LANES]
    }
}

impl Kind for Mixed {
    #[inline(always)]
    fn fetch(inst: &Inst, wave: &Wave, index: usize) -> Lanes {
        lanes(inst, wave, source(inst, index))
    }
}

/// Each lane's bit of `mask` as all zeros or all ones.
#[inline(always)]
pub(super) fn spread(mask: u64) -> Lanes {
    let mut out = [0; LANES];
    for (half, lanes) in out.chunks_exact_mut(32).enumerate() {
        let word = (mask >> (32 * half)) as u32;
        for (lane, out) in lanes.iter_mut().enumerate() {
            *out = (word >> lane & 1).wrapping_neg();
        }
    }
    out
}

/// Writes the lanes of `register` that `mask` allows.
#[inline(always)]
pub(super) fn blend(register: &mut Lanes, out: &Lanes, mask: u64) {
    if mask == !0 {
        *register = *out;
        return;
    }
    let keep = spread(mask);
    for lane in 0..LANES {
        register[lane] = register[lane] & !keep[lane] | out[lane] & keep[lane];
    }
}

/// Writes dword `dword` of the destination under EXEC.
#[inline(always)]
pub(super) fn write(inst: &Inst, wave: &mut Wave, dword: usize, out: &Lanes) {
    let exec = wave.exec();
    if let Some(index) = inst.dst.vector() {
        blend(&mut wave.vgpr[index + dword], out, exec);
    }
}

#[inline(always)]
fn apply_lanes<O: LaneOp>(sources: [&Lanes; 3]) -> Lanes {
    let mut out = [0; LANES];
    for (lane, out) in out.iter_mut().enumerate() {
        *out = O::apply([sources[0][lane], sources[1][lane], sources[2][lane]]);
    }
    out
}

fn plain<O: LaneOp, A: Kind, B: Kind, C: Kind>(inst: &Inst, wave: &mut Wave) -> Flow {
    const ZERO: Lanes = [0; LANES];
    let a = A::fetch(inst, wave, 0);
    let b = if O::SOURCES > 1 { B::fetch(inst, wave, 1) } else { ZERO };
    let c = if O::SOURCES > 2 { C::fetch(inst, wave, 2) } else { ZERO };
    let out = apply_lanes::<O>([&a, &b, &c]);
    write(inst, wave, 0, &out);
    Flow::Next
}

/// Source `index` with its sign modified.
#[inline(always)]
fn signed_source(inst: &Inst, wave: &Wave, index: usize) -> Lanes {
    let mut value = Mixed::fetch(inst, wave, index);
    let keep = !(u32::from(inst.mods.abs[index]) << 31);
    let flip = u32::from(inst.mods.neg[index]) << 31;
    for x in &mut value {
        *x = *x & keep ^ flip;
    }
    value
}

/// Only signs are modified: by far the most common modifier, and no reason to leave the fast path.
fn signed<O: LaneOp>(inst: &Inst, wave: &mut Wave) -> Flow {
    const ZERO: Lanes = [0; LANES];
    let a = signed_source(inst, wave, 0);
    let b = if O::SOURCES > 1 { signed_source(inst, wave, 1) } else { ZERO };
    let c = if O::SOURCES > 2 { signed_source(inst, wave, 2) } else { ZERO };
    let out = apply_lanes::<O>([&a, &b, &c]);
    write(inst, wave, 0, &out);
    Flow::Next
}

fn modified<O: LaneOp>(inst: &Inst, wave: &mut Wave) -> Flow {
    let sources = modifier::sources(inst, wave, modifier::Shape::of::<O>());
    let [a, b, c] = &sources.lanes;
    let out = if inst.mods.clamp && !O::FLOAT {
        let mut out = [0; LANES];
        for (lane, out) in out.iter_mut().enumerate() {
            *out = O::saturated([a[lane], b[lane], c[lane]]);
        }
        out
    } else {
        apply_lanes::<O>([a, b, c])
    };
    modifier::write(inst, wave, modifier::Shape::of::<O>(), out, sources.enabled);
    Flow::Next
}

/// Whether anything but plain register access is asked of a VOP1, VOP2, VOPC or VOP3 instruction.
pub(super) fn has_modifiers(inst: &Inst) -> bool {
    let mods = &inst.mods;
    inst.variant != Variant::Plain
        || mods.clamp
        || mods.omod != 0
        || mods.neg != [false; 3]
        || mods.abs != [false; 3]
        || (mods.op_sel != 0 && inst.format == Format::Vop3)
}

/// The handler of lane operation `O` for this instruction's operands.
///
/// None where `op_sel` is set and means nothing to the operation.
pub(super) fn handler<O: LaneOp>(inst: &Inst) -> Option<Handler> {
    if inst.format == Format::Vop3 && inst.mods.op_sel != 0 && !O::HALF_SOURCES && !O::HALF_RESULT {
        return None;
    }
    let vector = |index: usize| index >= O::SOURCES || source(inst, index).vector().is_some();
    let half_constant = |index: usize| index < O::SOURCES && matches!(inst.src[index].code, 240..=248);
    let mods = &inst.mods;
    let only_signs = inst.variant == Variant::Plain && !mods.clamp && mods.omod == 0 && mods.op_sel == 0;
    if O::FLOAT_SOURCES && !O::HALF_RESULT && only_signs && has_modifiers(inst) {
        return Some(signed::<O>);
    }
    if has_modifiers(inst) || O::KEEPS_HALF || (O::HALF_SOURCES && (0..3).any(half_constant)) {
        return Some(modified::<O>);
    }
    Some(match (vector(0), vector(1) && vector(2)) {
        (true, true) => plain::<O, Vector, Vector, Vector>,
        (false, true) => plain::<O, Uniform, Vector, Vector>,
        _ => plain::<O, Mixed, Mixed, Mixed>,
    })
}

/// A table of lane operations: mnemonic variant, typed sources and result; after `=>` the form under `clamp`.
///
/// `= keeps` marks a 16-bit result that leaves the destination's other half alone.
macro_rules! lane_table {
    ($($op:ident $sources:tt -> $result:ty $(= $keeps:ident)? $body:block $(=> $saturated:block)?)+) => {
        /// The handler of an instruction of this table.
        pub(super) fn handler(inst: &$crate::inst::Inst) -> Option<$crate::exec::Handler> {
            use $crate::exec::lane_op::{Bits, LaneOp};
            Some(match inst.op {
                $($crate::op::Op::$op => {
                    struct Operation;
                    impl LaneOp for Operation {
                        const SOURCES: usize = lane_table!(@count $sources);
                        const FLOAT: bool = <$result as Bits>::FLOAT;
                        const FLOAT_SOURCES: bool = lane_table!(@float $sources);
                        const HALF_SOURCES: bool = lane_table!(@half $sources);
                        const HALF_RESULT: bool = <$result as Bits>::HALF;
                        const KEEPS_HALF: bool = [$(stringify!($keeps),)? ""].len() > 1;
                        lane_table!(@function apply, $sources, $result, $body);
                        $(lane_table!(@function saturated, $sources, $result, $saturated);)?
                    }
                    $crate::exec::lane_op::handler::<Operation>(inst)?
                })+
                _ => return None,
            })
        }
    };
    (@count ($($arg:ident: $type:ty),+)) => { [$(stringify!($arg)),+].len() };
    (@float ($first:ident: $type:ty $(, $($more:tt)*)?)) => {
        <$type as Bits>::FLOAT && !<$type as Bits>::HALF
    };
    (@half ($first:ident: $type:ty $(, $($more:tt)*)?)) => { <$type as Bits>::HALF };
    (@function $name:ident, ($($arg:ident: $type:ty),+), $result:ty, $body:block) => {
        #[inline(always)]
        fn $name(sources: [u32; 3]) -> u32 {
            let [$($arg),+, ..] = sources;
            $(let $arg = <$type as Bits>::from_register($arg);)+
            let result: $result = $body;
            result.into_register()
        }
    };
}
pub(super) use lane_table;
