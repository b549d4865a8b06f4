//! Which registers an instruction reads and writes, so that a machine can see the use of a load's result before its
//! wait.

use std::sync::LazyLock;

use crate::inst::{Format, Inst, Operand, Variant};
use crate::op::Op;
use crate::wave::{EXEC, M0, VCC};

/// A register file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterFile {
    /// VGPRs (0..=255) and `AccVGPR`s (256..=511).
    Vector,
    /// Scalar registers by operand number (0..=127): SGPRs, VCC, M0, EXEC.
    Scalar,
}

/// Consecutive registers of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterRange {
    /// The file.
    pub file: RegisterFile,
    /// The first register.
    pub first: u16,
    /// How many.
    pub count: u8,
}

const EMPTY: RegisterRange = RegisterRange { file: RegisterFile::Scalar, first: 0, count: 0 };
/// A scaled MFMA reads five ranges, and nothing more than its accumulator's; an atomic's forms stay below that too.
const CAPACITY: usize = 8;

/// A short list of register ranges, kept in place.
#[derive(Clone, Copy, Debug)]
pub struct RegisterList {
    ranges: [RegisterRange; CAPACITY],
    len: usize,
}

impl RegisterList {
    const fn new() -> Self {
        Self { ranges: [EMPTY; CAPACITY], len: 0 }
    }

    /// The ranges.
    pub fn as_slice(&self) -> &[RegisterRange] {
        &self.ranges[..self.len]
    }

    fn push(&mut self, range: RegisterRange) {
        if let Some(slot) = self.ranges.get_mut(self.len) {
            *slot = range;
            self.len += 1;
        } else {
            debug_assert!(false, "an instruction with more than {CAPACITY} register operands");
        }
    }

    fn scalar(&mut self, first: usize, count: u8) {
        self.push(RegisterRange { file: RegisterFile::Scalar, first: first as u16, count });
    }

    fn operand(&mut self, operand: Operand) {
        if let Some(first) = operand.vector() {
            self.push(RegisterRange { file: RegisterFile::Vector, first: first as u16, count: operand.dwords });
        } else if let Some(first) = operand.scalar() {
            self.scalar(first, operand.dwords);
        }
    }
}

/// Whether the instruction's result depends on what its destination held.
fn reads_destination(inst: &Inst) -> bool {
    let partial = match inst.variant {
        Variant::Plain => false,
        Variant::Sdwa(sdwa) => inst.format != Format::Vopc && sdwa.dst_unused == 2,
        // A lane whose row or bank is masked, or whose source is out of bounds, keeps the old value.
        Variant::Dpp(_) => true,
    };
    let narrow_result = inst.format == Format::Vop3 && inst.mods.op_sel & 0b1100 != 0;
    partial || narrow_result || has_effect(inst.op, ACCUMULATES)
}

/// The destination is a source too, or only a part of it is written.
const ACCUMULATES: u8 = 1;
/// EXEC is combined with the source and written.
const COMBINES_EXEC: u8 = 2;
/// EXEC is written.
const WRITES_EXEC: u8 = 4;

/// What each mnemonic does beyond its operands, from its name: looked up for every instruction, so made once.
static EFFECTS: LazyLock<Vec<u8>> = LazyLock::new(|| Op::ALL.iter().map(|op| effects(op.name())).collect());

fn has_effect(op: Op, effect: u8) -> bool {
    EFFECTS[op as usize] & effect != 0
}

fn effects(name: &str) -> u8 {
    // A scaled conversion to a few bits keeps the destination's other bytes.
    let narrow = name.starts_with("v_cvt_scalef32_") && matches!(name.rsplit('_').nth(1), Some("fp4" | "fp8" | "bf8"));
    let d16_load = name.contains("_d16") && (name.contains("load") || name.starts_with("ds_read_"));
    let listed = [
        "v_fmac_f32",
        "v_pk_fmac_f16",
        "v_writelane_b32",
        "v_swap_b32",
        "v_fma_mixlo_f16",
        "v_fma_mixhi_f16",
        "v_cvt_pk_fp8_f32",
        "v_cvt_pk_bf8_f32",
        "v_cvt_sr_fp8_f32",
        "v_cvt_sr_bf8_f32",
        "s_addk_i32",
        "s_mulk_i32",
    ];
    let prefixes = ["v_dot2c_", "v_permlane", "s_bitset", "s_cmov"];
    let by_name = listed.contains(&name) || prefixes.iter().any(|part| name.starts_with(part));
    let combines_exec = name.ends_with("_saveexec_b64") || name.ends_with("_wrexec_b64");
    let facts = [
        (narrow || d16_load || by_name, ACCUMULATES),
        (combines_exec, COMBINES_EXEC | WRITES_EXEC),
        (name.starts_with("v_cmpx_"), WRITES_EXEC),
    ];
    facts.into_iter().filter(|(holds, _)| *holds).fold(0, |effects, (_, effect)| effects | effect)
}

impl Inst {
    /// The registers whose contents the instruction uses, as addresses and data of memory included; EXEC as the mask of
    /// a vector instruction is left out.
    pub fn reads(&self) -> RegisterList {
        let mut list = RegisterList::new();
        for operand in self.src.into_iter().chain([self.data, self.data1]).chain(self.scale) {
            list.operand(operand);
        }
        if reads_destination(self) {
            list.operand(self.dst);
        }
        match self.op {
            Op::VDivFmasF32 | Op::SCbranchVccz | Op::SCbranchVccnz => list.scalar(VCC, 2),
            Op::SCbranchExecz | Op::SCbranchExecnz => list.scalar(EXEC, 2),
            op if has_effect(op, COMBINES_EXEC) => list.scalar(EXEC, 2),
            _ if self.mods.lds => list.scalar(M0, 1),
            _ => {}
        }
        list
    }

    /// The registers that the instruction writes, EXEC and VCC included where it is their writer.
    pub fn writes(&self) -> RegisterList {
        let mut list = RegisterList::new();
        list.operand(self.dst);
        list.operand(self.sdst);
        match self.op {
            Op::VSwapB32 | Op::VPermlane16SwapB32 | Op::VPermlane32SwapB32 => list.operand(self.src[0]),
            op if has_effect(op, WRITES_EXEC) => list.scalar(EXEC, 2),
            _ => {}
        }
        list
    }
}
