//! What each instruction does to a wave: ALU, matrix units, cross-lane moves.
//!
//! [`handler`] is asked once per static instruction; the function it returns then runs as often as the instruction
//! does. Register numbers are trusted: whoever loads a code object checks them against the kernel descriptor.

#![expect(clippy::inline_always, reason = "a lane function left as a call keeps its 64-lane loop from vectorising")]

mod byte_permute;
mod carry;
mod compare;
mod convert;
mod cross_lane;
mod division;
mod dot;
mod double;
mod dpp;
mod half_float;
mod lane_op;
mod mask;
mod matrix;
mod matrix_blocks;
mod matrix_columns;
mod matrix_scaled;
mod mixed;
mod modifier;
mod packed;
pub(crate) mod scalar;
mod scaled_convert;
mod small_float;
mod transcendental;
mod vector_f32;
mod vector_int;
mod wide;

use crate::inst::{Inst, Variant};
use crate::wave::Wave;

/// What a handler reports; anything but `Next` is the machine's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on with the following instruction.
    Next,
    /// Go on at this byte offset in the text section.
    Branch(u32),
    /// The wave has ended.
    End,
    /// The wave waits for its workgroup.
    Barrier,
    /// The wave gives up its turn.
    Sleep,
}

/// Executes one instruction on a wave.
pub type Handler = fn(&Inst, &mut Wave) -> Flow;

/// The handler of an ALU, scalar, matrix, cross-lane or branch instruction.
///
/// None if the instruction is the machine's (memory, waits, barriers, clocks, hardware registers) or is not
/// implemented.
pub fn handler(inst: &Inst) -> Option<Handler> {
    if matches!(inst.variant, Variant::Dpp(dpp) if !dpp::is_known(dpp.ctrl)) {
        return None;
    }
    byte_permute::handler(inst)
        .or_else(|| vector_int::handler(inst))
        .or_else(|| vector_f32::handler(inst))
        .or_else(|| half_float::handler(inst))
        .or_else(|| scalar::handler(inst))
        .or_else(|| compare::handler(inst))
        .or_else(|| carry::handler(inst))
        .or_else(|| convert::handler(inst))
        .or_else(|| convert::packed_handler(inst))
        .or_else(|| packed::handler(inst))
        .or_else(|| dot::handler(inst))
        .or_else(|| mixed::handler(inst))
        .or_else(|| scaled_convert::handler(inst))
        .or_else(|| wide::handler(inst))
        .or_else(|| cross_lane::handler(inst))
        .or_else(|| division::handler(inst))
        .or_else(|| division::step_handler(inst))
        .or_else(|| matrix::handler(inst))
        .or_else(|| matrix_scaled::handler(inst))
        .or_else(|| matrix_blocks::handler(inst))
}
