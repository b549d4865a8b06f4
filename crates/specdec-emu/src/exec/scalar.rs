//! Scalar ALU, comparisons and branches.

use crate::exec::vector_int::first_high_signed;
use crate::exec::{Flow, Handler};
use crate::inst::{Inst, Operand};
use crate::op::Op;
use crate::wave::{Wave, EXEC, M0, VCC};

/// A type that one or two scalar registers hold.
trait ScalarBits: Copy + PartialEq + Default {
    fn read(inst: &Inst, wave: &Wave, operand: Operand) -> Self;
    fn write(self, wave: &mut Wave, operand: Operand);
}

macro_rules! scalar_bits {
    ($type:ty, $read:ident, $bits:ty, |$wave:ident, $index:ident, $value:ident| $write:expr) => {
        impl ScalarBits for $type {
            #[inline(always)]
            fn read(inst: &Inst, wave: &Wave, operand: Operand) -> Self {
                wave.$read(operand, inst.literal) as Self
            }
            #[inline(always)]
            fn write(self, $wave: &mut Wave, operand: Operand) {
                if let Some($index) = operand.scalar() {
                    let $value = self as $bits;
                    $write;
                }
            }
        }
    };
}

scalar_bits!(u32, scalar32, u32, |wave, index, value| wave.sgpr[index] = value);
scalar_bits!(i32, scalar32, u32, |wave, index, value| wave.sgpr[index] = value);
scalar_bits!(u64, scalar64, u64, |wave, index, value| wave.write64(index, value));
scalar_bits!(i64, scalar64, u64, |wave, index, value| wave.write64(index, value));

/// The 16-bit immediate of SOPK and SOPP.
#[inline(always)]
fn immediate(inst: &Inst) -> i32 {
    i32::from(inst.mods.offset as i16)
}

#[inline(always)]
fn unsigned_immediate(inst: &Inst) -> u32 {
    u32::from(inst.mods.offset as u16)
}

/// Offset in the text section of the instruction after this one.
#[inline(always)]
fn next_pc(inst: &Inst) -> u32 {
    inst.pc.wrapping_add(u32::from(inst.size))
}

/// Where a branch goes when it is taken.
#[inline(always)]
pub(crate) fn branch_target(inst: &Inst) -> u32 {
    next_pc(inst).wrapping_add_signed(4 * immediate(inst))
}

/// The register that a SOPK comparison reads.
#[inline(always)]
fn compared(inst: &Inst) -> Operand {
    if inst.dst.is_some() {
        inst.dst
    } else {
        inst.src[0]
    }
}

/// `mode OP(sources) -> result { body }`: `plain` leaves SCC, `nonzero` sets it if the result is not zero, `status`
/// takes it from the body's second value, `test` has SCC as its only result, `flow` does everything in its body.
macro_rules! scalar_table {
    ($inst:ident, $wave:ident; $($mode:ident $op:ident($($arg:ident: $type:ty),*) -> $result:ty $body:block)+) => {
        /// The handler of a scalar instruction.
        pub(super) fn handler(inst: &Inst) -> Option<Handler> {
            Some(match inst.op {
                $(Op::$op => {
                    #[allow(unused_variables, reason = "only some bodies look at the wave")]
                    fn run($inst: &Inst, $wave: &mut Wave) -> Flow {
                        scalar_table!(@read $inst, $wave, 0; $($arg: $type),*);
                        scalar_table!(@$mode $inst, $wave, $result, $body)
                    }
                    run
                })+
                _ => return None,
            })
        }
    };
    (@read $inst:ident, $wave:ident, $index:expr; $($arg:ident: $type:ty $(, $more:ident: $types:ty)*)?) => {
        $(let $arg = <$type>::read($inst, $wave, $inst.src[$index]);
        scalar_table!(@read $inst, $wave, $index + 1; $($more: $types),*);)?
    };
    (@plain $inst:ident, $wave:ident, $result:ty, $body:block) => {{
        let result: $result = $body;
        result.write($wave, $inst.dst);
        Flow::Next
    }};
    (@nonzero $inst:ident, $wave:ident, $result:ty, $body:block) => {{
        let result: $result = $body;
        result.write($wave, $inst.dst);
        $wave.scc = result != <$result>::default();
        Flow::Next
    }};
    (@status $inst:ident, $wave:ident, $result:ty, $body:block) => {{
        let (result, status): ($result, bool) = $body;
        result.write($wave, $inst.dst);
        $wave.scc = status;
        Flow::Next
    }};
    (@test $inst:ident, $wave:ident, $result:ty, $body:block) => {{
        let status: $result = $body;
        $wave.scc = status;
        Flow::Next
    }};
    (@flow $inst:ident, $wave:ident, $result:ty, $body:block) => {{
        let flow: $result = $body;
        flow
    }};
}

/// Bits `offset..offset + width` of `x`, where `control` holds both.
fn field64(x: u64, offset: u32, width: u32) -> u64 {
    let mask = 1u64.checked_shl(width).map_or(!0, |bit| bit.wrapping_sub(1));
    x >> offset & mask
}

fn signed_field64(x: i64, offset: u32, width: u32) -> i64 {
    match width {
        0 => 0,
        1..=63 => ((x >> offset) << (64 - width)) >> (64 - width),
        _ => x >> offset,
    }
}

const fn width_of(control: u32) -> u32 {
    control >> 16 & 0x7f
}

fn low_ones64(count: u32) -> u64 {
    (1u64 << (count & 63)) - 1
}

/// Index of the first set bit from the bottom, -1 if none.
const fn first_low(x: u64) -> i32 {
    if x == 0 {
        -1
    } else {
        x.trailing_zeros() as i32
    }
}

const fn first_high(x: u64) -> i32 {
    if x == 0 {
        -1
    } else {
        x.leading_zeros() as i32
    }
}

/// One bit per group of four: whether any of them is set.
fn quads(x: u64) -> u64 {
    (0..16).fold(0, |out, quad| out | u64::from(x >> (4 * quad) & 15 != 0) << quad)
}

/// Groups of four with any bit set become all ones.
fn whole_quads(x: u64) -> u64 {
    (0..16).fold(0, |out, quad| out | ((quads(x) >> quad & 1) * 15) << (4 * quad))
}

/// Each bit twice.
fn doubled(x: u32) -> u64 {
    (0..32).fold(0, |out, bit| out | (u64::from(x >> bit & 1) * 3) << (2 * bit))
}

fn shifted_add(a: u32, shift: u32, b: u32) -> (u32, bool) {
    let sum = (u64::from(a) << shift) + u64::from(b);
    (sum as u32, sum >> 32 != 0)
}

fn add_carry(a: u32, b: u32, carry: bool) -> (u32, bool) {
    let sum = u64::from(a) + u64::from(b) + u64::from(carry);
    (sum as u32, sum >> 32 != 0)
}

fn sub_borrow(a: u32, b: u32, borrow: bool) -> (u32, bool) {
    let difference = i64::from(a) - i64::from(b) - i64::from(borrow);
    (difference as u32, difference < 0)
}

/// The scalar register that lies M0 registers beyond `operand`; past the last general one it is none.
fn relative(wave: &Wave, operand: Operand) -> Operand {
    let code = u32::from(operand.code).saturating_add(wave.sgpr[M0]);
    if code < 102 {
        Operand { code: code as u16, ..operand }
    } else {
        Operand::NONE
    }
}

/// Replaces EXEC and copies it to the destination.
fn write_exec(inst: &Inst, wave: &mut Wave, exec: u64) -> Flow {
    wave.write64(EXEC, exec);
    exec.write(wave, inst.dst);
    wave.scc = exec != 0;
    Flow::Next
}

/// Saves EXEC in the destination and replaces it.
fn save_exec(inst: &Inst, wave: &mut Wave, exec: u64) -> Flow {
    let saved = wave.exec();
    saved.write(wave, inst.dst);
    wave.write64(EXEC, exec);
    wave.scc = exec != 0;
    Flow::Next
}

fn branch_if(inst: &Inst, condition: bool) -> Flow {
    if condition {
        Flow::Branch(branch_target(inst))
    } else {
        Flow::Next
    }
}

/// Absolute address of a byte of the text section.
fn address(wave: &Wave, pc: u32) -> u64 {
    wave.text_base.wrapping_add(u64::from(pc))
}

fn jump(wave: &Wave, address: u64) -> Flow {
    Flow::Branch(address.wrapping_sub(wave.text_base) as u32)
}

scalar_table! {
    inst, wave;
    plain SMovB32(a: u32) -> u32 { a }
    plain SMovB64(a: u64) -> u64 { a }
    plain SMovkI32() -> i32 { immediate(inst) }
    plain SCmovB32(a: u32) -> u32 { if wave.scc { a } else { u32::read(inst, wave, inst.dst) } }
    plain SCmovB64(a: u64) -> u64 { if wave.scc { a } else { u64::read(inst, wave, inst.dst) } }
    plain SCmovkI32() -> i32 { if wave.scc { immediate(inst) } else { i32::read(inst, wave, inst.dst) } }
    plain SCselectB32(a: u32, b: u32) -> u32 { if wave.scc { a } else { b } }
    plain SCselectB64(a: u64, b: u64) -> u64 { if wave.scc { a } else { b } }
    plain SMovrelsB32() -> u32 { u32::read(inst, wave, relative(wave, inst.src[0])) }
    plain SMovrelsB64() -> u64 { u64::read(inst, wave, relative(wave, inst.src[0])) }
    flow SMovreldB32(a: u32) -> Flow { a.write(wave, relative(wave, inst.dst)); Flow::Next }
    flow SMovreldB64(a: u64) -> Flow { a.write(wave, relative(wave, inst.dst)); Flow::Next }

    status SAddU32(a: u32, b: u32) -> u32 { a.overflowing_add(b) }
    status SSubU32(a: u32, b: u32) -> u32 { a.overflowing_sub(b) }
    status SAddI32(a: i32, b: i32) -> i32 { a.overflowing_add(b) }
    status SSubI32(a: i32, b: i32) -> i32 { a.overflowing_sub(b) }
    status SAddcU32(a: u32, b: u32) -> u32 { add_carry(a, b, wave.scc) }
    status SSubbU32(a: u32, b: u32) -> u32 { sub_borrow(a, b, wave.scc) }
    status SAddkI32() -> i32 { i32::read(inst, wave, inst.dst).overflowing_add(immediate(inst)) }
    plain SMulkI32() -> i32 { i32::read(inst, wave, inst.dst).wrapping_mul(immediate(inst)) }
    plain SMulI32(a: i32, b: i32) -> i32 { a.wrapping_mul(b) }
    plain SMulHiU32(a: u32, b: u32) -> u32 { ((u64::from(a) * u64::from(b)) >> 32) as u32 }
    plain SMulHiI32(a: i32, b: i32) -> i32 { ((i64::from(a) * i64::from(b)) >> 32) as i32 }
    status SMinI32(a: i32, b: i32) -> i32 { (a.min(b), a < b) }
    status SMinU32(a: u32, b: u32) -> u32 { (a.min(b), a < b) }
    status SMaxI32(a: i32, b: i32) -> i32 { (a.max(b), a >= b) }
    status SMaxU32(a: u32, b: u32) -> u32 { (a.max(b), a >= b) }
    nonzero SAbsdiffI32(a: i32, b: i32) -> i32 { a.wrapping_sub(b).wrapping_abs() }
    nonzero SAbsI32(a: i32) -> i32 { a.wrapping_abs() }
    status SLshl1AddU32(a: u32, b: u32) -> u32 { shifted_add(a, 1, b) }
    status SLshl2AddU32(a: u32, b: u32) -> u32 { shifted_add(a, 2, b) }
    status SLshl3AddU32(a: u32, b: u32) -> u32 { shifted_add(a, 3, b) }
    status SLshl4AddU32(a: u32, b: u32) -> u32 { shifted_add(a, 4, b) }

    nonzero SAndB32(a: u32, b: u32) -> u32 { a & b }
    nonzero SAndB64(a: u64, b: u64) -> u64 { a & b }
    nonzero SOrB32(a: u32, b: u32) -> u32 { a | b }
    nonzero SOrB64(a: u64, b: u64) -> u64 { a | b }
    nonzero SXorB32(a: u32, b: u32) -> u32 { a ^ b }
    nonzero SXorB64(a: u64, b: u64) -> u64 { a ^ b }
    nonzero SAndn2B32(a: u32, b: u32) -> u32 { a & !b }
    nonzero SAndn2B64(a: u64, b: u64) -> u64 { a & !b }
    nonzero SOrn2B32(a: u32, b: u32) -> u32 { a | !b }
    nonzero SOrn2B64(a: u64, b: u64) -> u64 { a | !b }
    nonzero SNandB32(a: u32, b: u32) -> u32 { !(a & b) }
    nonzero SNandB64(a: u64, b: u64) -> u64 { !(a & b) }
    nonzero SNorB32(a: u32, b: u32) -> u32 { !(a | b) }
    nonzero SNorB64(a: u64, b: u64) -> u64 { !(a | b) }
    nonzero SXnorB32(a: u32, b: u32) -> u32 { !(a ^ b) }
    nonzero SXnorB64(a: u64, b: u64) -> u64 { !(a ^ b) }
    nonzero SNotB32(a: u32) -> u32 { !a }
    nonzero SNotB64(a: u64) -> u64 { !a }
    nonzero SWqmB64(a: u64) -> u64 { whole_quads(a) }
    nonzero SWqmB32(a: u32) -> u32 { whole_quads(u64::from(a)) as u32 }
    nonzero SQuadmaskB64(a: u64) -> u64 { quads(a) }
    nonzero SQuadmaskB32(a: u32) -> u32 { quads(u64::from(a)) as u32 }

    nonzero SLshlB32(a: u32, b: u32) -> u32 { a << (b & 31) }
    nonzero SLshlB64(a: u64, b: u32) -> u64 { a << (b & 63) }
    nonzero SLshrB32(a: u32, b: u32) -> u32 { a >> (b & 31) }
    nonzero SLshrB64(a: u64, b: u32) -> u64 { a >> (b & 63) }
    nonzero SAshrI32(a: i32, b: u32) -> i32 { a >> (b & 31) }
    nonzero SAshrI64(a: i64, b: u32) -> i64 { a >> (b & 63) }
    nonzero SBfeU32(a: u32, b: u32) -> u32 { field64(u64::from(a), b & 31, width_of(b)) as u32 }
    nonzero SBfeI32(a: i32, b: u32) -> i32 { signed_field64(i64::from(a), b & 31, width_of(b)) as i32 }
    nonzero SBfeU64(a: u64, b: u32) -> u64 { field64(a, b & 63, width_of(b)) }
    nonzero SBfeI64(a: i64, b: u32) -> i64 { signed_field64(a, b & 63, width_of(b)) }
    plain SBfmB32(a: u32, b: u32) -> u32 { (low_ones64(a & 31) << (b & 31)) as u32 }
    plain SBfmB64(a: u32, b: u32) -> u64 { low_ones64(a) << (b & 63) }
    plain SBrevB32(a: u32) -> u32 { a.reverse_bits() }
    plain SBrevB64(a: u64) -> u64 { a.reverse_bits() }
    nonzero SBcnt0I32B32(a: u32) -> u32 { a.count_zeros() }
    nonzero SBcnt1I32B32(a: u32) -> u32 { a.count_ones() }
    nonzero SBcnt0I32B64(a: u64) -> u32 { a.count_zeros() }
    nonzero SBcnt1I32B64(a: u64) -> u32 { a.count_ones() }
    plain SFf0I32B32(a: u32) -> i32 { first_low(u64::from(!a)) }
    plain SFf0I32B64(a: u64) -> i32 { first_low(!a) }
    plain SFf1I32B32(a: u32) -> i32 { first_low(u64::from(a)) }
    plain SFf1I32B64(a: u64) -> i32 { first_low(a) }
    plain SFlbitI32B32(a: u32) -> i32 { if a == 0 { -1 } else { first_high(u64::from(a)) - 32 } }
    plain SFlbitI32B64(a: u64) -> i32 { first_high(a) }
    plain SFlbitI32(a: i32) -> i32 { first_high_signed(a) as i32 }
    plain SFlbitI32I64(a: i64) -> i32 { first_high((a ^ (a >> 63)) as u64) }
    plain SSextI32I8(a: i32) -> i32 { i32::from(a as i8) }
    plain SSextI32I16(a: i32) -> i32 { i32::from(a as i16) }
    plain SBitset0B32(a: u32) -> u32 { u32::read(inst, wave, inst.dst) & !(1 << (a & 31)) }
    plain SBitset1B32(a: u32) -> u32 { u32::read(inst, wave, inst.dst) | 1 << (a & 31) }
    plain SBitset0B64(a: u32) -> u64 { u64::read(inst, wave, inst.dst) & !(1 << (a & 63)) }
    plain SBitset1B64(a: u32) -> u64 { u64::read(inst, wave, inst.dst) | 1 << (a & 63) }
    plain SBitreplicateB64B32(a: u32) -> u64 { doubled(a) }
    plain SPackLlB32B16(a: u32, b: u32) -> u32 { a & 0xffff | b << 16 }
    plain SPackLhB32B16(a: u32, b: u32) -> u32 { a & 0xffff | b & 0xffff_0000 }
    plain SPackHhB32B16(a: u32, b: u32) -> u32 { a >> 16 | b & 0xffff_0000 }

    test SCmpEqI32(a: i32, b: i32) -> bool { a == b }
    test SCmpLgI32(a: i32, b: i32) -> bool { a != b }
    test SCmpGtI32(a: i32, b: i32) -> bool { a > b }
    test SCmpGeI32(a: i32, b: i32) -> bool { a >= b }
    test SCmpLtI32(a: i32, b: i32) -> bool { a < b }
    test SCmpLeI32(a: i32, b: i32) -> bool { a <= b }
    test SCmpEqU32(a: u32, b: u32) -> bool { a == b }
    test SCmpLgU32(a: u32, b: u32) -> bool { a != b }
    test SCmpGtU32(a: u32, b: u32) -> bool { a > b }
    test SCmpGeU32(a: u32, b: u32) -> bool { a >= b }
    test SCmpLtU32(a: u32, b: u32) -> bool { a < b }
    test SCmpLeU32(a: u32, b: u32) -> bool { a <= b }
    test SCmpEqU64(a: u64, b: u64) -> bool { a == b }
    test SCmpLgU64(a: u64, b: u64) -> bool { a != b }
    test SBitcmp0B32(a: u32, b: u32) -> bool { a >> (b & 31) & 1 == 0 }
    test SBitcmp1B32(a: u32, b: u32) -> bool { a >> (b & 31) & 1 == 1 }
    test SBitcmp0B64(a: u64, b: u32) -> bool { a >> (b & 63) & 1 == 0 }
    test SBitcmp1B64(a: u64, b: u32) -> bool { a >> (b & 63) & 1 == 1 }
    test SCmpkEqI32() -> bool { i32::read(inst, wave, compared(inst)) == immediate(inst) }
    test SCmpkLgI32() -> bool { i32::read(inst, wave, compared(inst)) != immediate(inst) }
    test SCmpkGtI32() -> bool { i32::read(inst, wave, compared(inst)) > immediate(inst) }
    test SCmpkGeI32() -> bool { i32::read(inst, wave, compared(inst)) >= immediate(inst) }
    test SCmpkLtI32() -> bool { i32::read(inst, wave, compared(inst)) < immediate(inst) }
    test SCmpkLeI32() -> bool { i32::read(inst, wave, compared(inst)) <= immediate(inst) }
    test SCmpkEqU32() -> bool { u32::read(inst, wave, compared(inst)) == unsigned_immediate(inst) }
    test SCmpkLgU32() -> bool { u32::read(inst, wave, compared(inst)) != unsigned_immediate(inst) }
    test SCmpkGtU32() -> bool { u32::read(inst, wave, compared(inst)) > unsigned_immediate(inst) }
    test SCmpkGeU32() -> bool { u32::read(inst, wave, compared(inst)) >= unsigned_immediate(inst) }
    test SCmpkLtU32() -> bool { u32::read(inst, wave, compared(inst)) < unsigned_immediate(inst) }
    test SCmpkLeU32() -> bool { u32::read(inst, wave, compared(inst)) <= unsigned_immediate(inst) }

    flow SAndSaveexecB64(a: u64) -> Flow { let exec = a & wave.exec(); save_exec(inst, wave, exec) }
    flow SOrSaveexecB64(a: u64) -> Flow { let exec = a | wave.exec(); save_exec(inst, wave, exec) }
    flow SXorSaveexecB64(a: u64) -> Flow { let exec = a ^ wave.exec(); save_exec(inst, wave, exec) }
    flow SAndn1SaveexecB64(a: u64) -> Flow { let exec = !a & wave.exec(); save_exec(inst, wave, exec) }
    flow SAndn2SaveexecB64(a: u64) -> Flow { let exec = a & !wave.exec(); save_exec(inst, wave, exec) }
    flow SOrn2SaveexecB64(a: u64) -> Flow { let exec = a | !wave.exec(); save_exec(inst, wave, exec) }
    flow SNandSaveexecB64(a: u64) -> Flow { let exec = !(a & wave.exec()); save_exec(inst, wave, exec) }
    flow SNorSaveexecB64(a: u64) -> Flow { let exec = !(a | wave.exec()); save_exec(inst, wave, exec) }

    flow SOrn1SaveexecB64(a: u64) -> Flow { let exec = !a | wave.exec(); save_exec(inst, wave, exec) }
    flow SXnorSaveexecB64(a: u64) -> Flow { let exec = !(a ^ wave.exec()); save_exec(inst, wave, exec) }
    flow SAndn1WrexecB64(a: u64) -> Flow { let exec = !a & wave.exec(); write_exec(inst, wave, exec) }
    flow SAndn2WrexecB64(a: u64) -> Flow { let exec = a & !wave.exec(); write_exec(inst, wave, exec) }

    flow SNop() -> Flow { Flow::Next }
    flow SBranch() -> Flow { Flow::Branch(branch_target(inst)) }
    flow SCbranchScc0() -> Flow { branch_if(inst, !wave.scc) }
    flow SCbranchScc1() -> Flow { branch_if(inst, wave.scc) }
    flow SCbranchVccz() -> Flow { branch_if(inst, wave.read64(VCC) == 0) }
    flow SCbranchVccnz() -> Flow { branch_if(inst, wave.read64(VCC) != 0) }
    flow SCbranchExecz() -> Flow { branch_if(inst, wave.exec() == 0) }
    flow SCbranchExecnz() -> Flow { branch_if(inst, wave.exec() != 0) }
    plain SGetpcB64() -> u64 { address(wave, next_pc(inst)) }
    flow SSetpcB64(a: u64) -> Flow { jump(wave, a) }
    flow SSwappcB64(a: u64) -> Flow { address(wave, next_pc(inst)).write(wave, inst.dst); jump(wave, a) }
    flow SCallB64() -> Flow {
        address(wave, next_pc(inst)).write(wave, inst.dst);
        Flow::Branch(branch_target(inst))
    }
}
