//! A decoded instruction: what the decoder produces, the printer prints and the executor runs.
//!
//! Operands keep the machine's own numbering (spec: CDNA4 ISA, "Scalar and vector operand encodings"), so that
//! printing and executing need no second table.

use crate::op::Op;

/// How an instruction was encoded; decides the printed suffix and which modifiers exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the encodings' own names")]
pub enum Format {
    Sop1,
    Sop2,
    Sopk,
    Sopc,
    Sopp,
    Smem,
    Vop1,
    Vop2,
    Vopc,
    Vop3,
    Vop3p,
    Mai,
    Ds,
    Flat,
    Global,
    Scratch,
    Mubuf,
}

/// A sub-dword or cross-lane form of a VOP1/VOP2/VOPC instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The plain encoding.
    Plain,
    /// SDWA: `dst_sel`/`src0_sel`/`src1_sel` select `BYTE_0..3` (0..3), `WORD_0..1` (4, 5), `DWORD` (6).
    Sdwa(Sdwa),
    /// DPP: a cross-lane read of source 0.
    Dpp(Dpp),
}

/// Fields of an SDWA dword, as encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sdwa {
    /// Destination selector (VOP1/VOP2 only).
    pub dst_sel: u8,
    /// What happens to unselected destination bits: 0 pad, 1 sext, 2 preserve.
    pub dst_unused: u8,
    /// Selector of source 0.
    pub src0_sel: u8,
    /// Selector of source 1.
    pub src1_sel: u8,
    /// Sign extension of source 0 and 1.
    pub sext: [bool; 2],
}

/// Fields of a DPP dword, as encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Dpp {
    /// Nine-bit control (`quad_perm`, `row_shl`, `row_bcast`, `row_newbcast`, ...).
    pub ctrl: u16,
    /// Rows that may be written.
    pub row_mask: u8,
    /// Banks that may be written.
    pub bank_mask: u8,
    /// An invalid source lane reads zero instead of disabling the write.
    pub bound_ctrl: bool,
}

/// One operand: a register range, an inline constant or the literal.
///
/// `code` is the nine-bit source number (0..=101 SGPR, 102..=105 `flat_scratch` and `xnack_mask`, 106/107 VCC,
/// 108..=123 TTMP, 124 M0, 126/127 EXEC, 128..=208 integers, 235..=238 apertures, 240..=248 floats, 251 VCCZ,
/// 252 EXECZ, 253 SCC, 255 literal, 256..=511 VGPR), extended by 512..=767 for `AccVGPR`s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// See the type's description.
    pub code: u16,
    /// Consecutive 32-bit registers that the instruction accesses from there (1 for constants; 2 for a 64-bit
    /// constant operand).
    pub dwords: u8,
}

impl Operand {
    /// An absent operand.
    pub const NONE: Self = Self { code: u16::MAX, dwords: 0 };

    /// Whether the operand is there.
    pub const fn is_some(self) -> bool {
        self.code != u16::MAX
    }

    /// The first VGPR (0..=255) or `AccVGPR` (256..=511, i.e. the unified file's upper half) of a vector operand.
    pub const fn vector(self) -> Option<usize> {
        if self.code >= 256 && self.code < 768 {
            Some(self.code as usize - 256)
        } else {
            None
        }
    }

    /// The first scalar register number (0..=127, VCC, M0 and EXEC included) of a scalar register operand.
    pub const fn scalar(self) -> Option<usize> {
        if self.code < 128 {
            Some(self.code as usize)
        } else {
            None
        }
    }
}

/// Modifiers of one instruction; a field that its format lacks is zero.
#[allow(clippy::struct_excessive_bools, reason = "each is one bit of the encodings")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mods {
    /// Negate source 0, 1, 2 (VOP3); for VOP3P the low halves (`neg_lo`).
    pub neg: [bool; 3],
    /// Absolute value of source 0, 1, 2 (VOP3); for VOP3P the high halves' negation (`neg_hi`).
    pub abs: [bool; 3],
    /// VOP3 `op_sel` bits 0..3 (sources 0..2, destination), VOP3P `op_sel` bits 0..2.
    pub op_sel: u8,
    /// VOP3P `op_sel_hi` bits 0..2.
    pub op_sel_hi: u8,
    /// Clamp.
    pub clamp: bool,
    /// Output modifier: 0 none, 1 `mul:2`, 2 `mul:4`, 3 `div:2`.
    pub omod: u8,
    /// MFMA `cbsz`, `abid`, `blgp` (`bitop3` holds `V_BITOP3`'s truth table instead).
    pub cbsz: u8,
    /// See `cbsz`.
    pub abid: u8,
    /// See `cbsz`.
    pub blgp: u8,
    /// `V_BITOP3`'s truth table.
    pub bitop3: u8,
    /// Memory: immediate byte offset (sign-extended); DS: the offset, or `offset0`. SOPK/SOPP: the 16-bit immediate,
    /// sign-extended except for `s_waitcnt`, `s_getreg`, `s_setreg` and unsigned comparisons; the mode of
    /// `s_set_gpr_idx_on`.
    pub offset: i32,
    /// DS two-address forms: `offset1`.
    pub offset1: i32,
    /// Buffer: address VGPR is an offset; an index. SMEM: an immediate beside soffset, even if it is zero.
    pub offen: bool,
    /// See `offen`.
    pub idxen: bool,
    /// Cache policy bits.
    pub sc0: bool,
    /// See `sc0`.
    pub sc1: bool,
    /// Non-temporal.
    pub nt: bool,
    /// Buffer or global load straight into LDS.
    pub lds: bool,
    /// SMEM: globally coherent.
    pub glc: bool,
    /// DS on GDS.
    pub gds: bool,
}

/// A decoded instruction.
///
/// Operand order is the printed order: `dst`, then `sdst` (carry-out or compare mask of VOP3B), then `src`.
/// * memory loads: `dst` = data; stores and atomics: data is `data`
/// * `Mubuf`: `src[0]` = vaddr, `src[1]` = resource (4 SGPRs), `src[2]` = soffset
/// * `Global`/`Flat`: `src[0]` = vaddr (1 VGPR with a scalar base, else 2), `src[1]` = saddr (2 SGPRs) or none
/// * `Ds`: `src[0]` = address, `data` = data0, `data1` = data1
/// * `Scratch`: `src[0]` = vaddr (1 VGPR) or none, `src[1]` = saddr (1 SGPR) or none
/// * carries and `v_cndmask` in 32-bit form: VCC is there as `sdst` and `src[2]`; `v_fmamk`/`v_fmaak`: the literal too
/// * `s_cmpk_*` and `s_setreg_b32`: the register is `src[0]`
/// * `Smem`: `src[0]` = base (2 or 4 SGPRs), `src[1]` = soffset or none
/// * scaled MFMA (16 bytes, `v_mfma_ld_scale_b32` fused by the printer as LLVM does): `scale` = the two scale
///   operands, `op_sel`/`op_sel_hi` their byte selection, `cbsz`/`blgp` the formats
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inst {
    /// Byte offset of the instruction from the start of its section.
    pub pc: u32,
    /// Encoded size in bytes: 4, 8, 12 or 16.
    pub size: u8,
    /// Encoding.
    pub format: Format,
    /// SDWA or DPP form.
    pub variant: Variant,
    /// Base mnemonic.
    pub op: Op,
    /// Vector or scalar destination.
    pub dst: Operand,
    /// Second destination: carry-out, or VOPC's mask in VOP3/SDWA form is `dst`.
    pub sdst: Operand,
    /// Sources.
    pub src: [Operand; 3],
    /// Data of a store, atomic or DS write.
    pub data: Operand,
    /// Second data of a DS write.
    pub data1: Operand,
    /// Scale operands of a scaled MFMA.
    pub scale: [Operand; 2],
    /// The literal, or `simm32` of `v_fmaak`/`v_fmamk`/`s_setreg_imm32`.
    pub literal: u32,
    /// Modifiers.
    pub mods: Mods,
}

impl Inst {
    /// An instruction without operands and modifiers.
    pub(crate) fn bare(pc: u32, size: u8, format: Format, op: Op) -> Self {
        Self {
            pc,
            size,
            format,
            variant: Variant::Plain,
            op,
            dst: Operand::NONE,
            sdst: Operand::NONE,
            src: [Operand::NONE; 3],
            data: Operand::NONE,
            data1: Operand::NONE,
            scale: [Operand::NONE; 2],
            literal: 0,
            mods: Mods::default(),
        }
    }
}
