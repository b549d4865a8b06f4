//! What a table says of one opcode: its mnemonic, the width of its registers and the modifiers that exist.

use crate::op::Op;

/// One opcode.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// The mnemonic.
    pub op: Op,
    /// Dwords of the destination.
    pub dst: u8,
    /// Dwords of each source; for memory of the address and of the data.
    pub src: [u8; 3],
    /// Or of the constants below.
    pub traits: u32,
}

impl Row {
    /// Whether any of `traits` holds.
    pub(super) const fn has(&self, traits: u32) -> bool {
        self.traits & traits != 0
    }

    /// Whether source `index` may be negated or made absolute.
    pub(super) const fn has_sign(&self, index: usize) -> bool {
        self.traits >> index & 1 != 0
    }
}

/// No modifier.
pub(super) const NONE: u32 = 0;
/// Source 0, 1, 2 may be negated or made absolute; an integer source of SDWA may be sign-extended instead.
pub(super) const NEG0: u32 = 1;
/// See [`NEG0`].
pub(super) const NEG1: u32 = 1 << 1;
/// See [`NEG0`].
pub(super) const NEG2: u32 = 1 << 2;
/// `clamp`.
pub(super) const CLAMP: u32 = 1 << 3;
/// `mul:2`, `mul:4`, `div:2`.
pub(super) const OMOD: u32 = 1 << 4;
/// VOP3 `op_sel`.
pub(super) const OPSEL: u32 = 1 << 5;
/// Floating point with one, two, three sources.
pub(super) const FLOAT1: u32 = NEG0 | CLAMP | OMOD;
/// See [`FLOAT1`].
pub(super) const FLOAT2: u32 = FLOAT1 | NEG1;
/// See [`FLOAT1`].
pub(super) const FLOAT3: u32 = FLOAT2 | NEG2;
/// No DPP form.
pub(super) const NO_DPP: u32 = 1 << 6;
/// No SDWA form.
pub(super) const NO_SDWA: u32 = 1 << 7;
/// Neither DPP nor SDWA nor VOP3: LLVM prints no `_e32`.
pub(super) const ONLY_E32: u32 = 1 << 8;
/// Both VOP1 and VOP3, but LLVM prints no suffix.
pub(super) const NO_SUFFIX: u32 = 1 << 9;
/// The SDWA form selects in its source only.
pub(super) const SDWA_SRC_ONLY: u32 = 1 << 10;
/// A second, scalar destination: VCC, or `sdst` of VOP3.
pub(super) const CARRY_OUT: u32 = 1 << 11;
/// The same, of an instruction that is VOP3 only.
pub(super) const SDST: u32 = CARRY_OUT;
/// Source 2 is a lane mask: VCC, or `src2` of VOP3.
pub(super) const VCC_IN: u32 = 1 << 12;
/// The destination is a scalar register.
pub(super) const SCALAR_DST: u32 = 1 << 13;
/// A literal follows: multiplied (between the sources), or added (after them).
pub(super) const FMAMK: u32 = 1 << 14;
/// See [`FMAMK`].
pub(super) const FMAAK: u32 = 1 << 15;
/// `VGPR` numbers mean `AccVGPR`s: of the source, of the destination, of both.
pub(super) const SRC_ACC: u32 = 1 << 16;
/// See [`SRC_ACC`].
pub(super) const DST_ACC: u32 = 1 << 17;
/// See [`SRC_ACC`].
pub(super) const ACC: u32 = SRC_ACC | DST_ACC;
/// The sign bits hold a truth table.
pub(super) const BITOP3: u32 = 1 << 18;
/// VOP3P whose `neg_hi` field means absolute value and whose `op_sel_hi` starts from 0.
pub(super) const MIX: u32 = 1 << 19;
/// VOP3P on pairs of `f32`: a 64-bit register source, but 32-bit constants.
pub(super) const PACKED_F32: u32 = 1 << 20;
/// The formats in `cbsz` and `blgp` decide the widths of sources 0 and 1.
pub(super) const F8F6F4: u32 = 1 << 21;
/// The output modifier has no SDWA form.
pub(super) const INT_RESULT: u32 = 1 << 29;
/// Source 0 is a VGPR.
pub(super) const VECTOR_SRC: u32 = 1 << 27;
/// Bits 2 and 3 of `op_sel` say which byte of the destination is written.
pub(super) const RESULT_BYTE: u32 = 1 << 28;
/// VOP3P without halves to select.
pub(super) const WHOLE: u32 = 1 << 26;
/// DS with two eight-bit offsets.
pub(super) const PAIR: u32 = 1 << 22;
/// `sc0` asks for the value before.
pub(super) const ATOMIC: u32 = 1 << 23;
/// The data go, or in a buffer load may go, straight into LDS.
pub(super) const LDS: u32 = 1 << 24;
/// SOPP whose immediate has no meaning.
pub(super) const NO_IMM: u32 = 1 << 25;

/// Builds a table indexed by opcode from lines `dst [src0, src1, src2] traits => opcode Mnemonic, ...;`.
macro_rules! table {
    (
        $(#[$doc:meta])* $name:ident[$len:literal]
        $($dst:literal $src:tt $traits:expr => $($code:literal $op:ident),+;)+
    ) => {
        $(#[$doc])*
        pub(super) static $name: [Option<super::row::Row>; $len] = {
            let mut table = [None; $len];
            $($(
                table[$code] = Some(super::row::Row {
                    op: crate::op::Op::$op,
                    dst: $dst,
                    src: $src,
                    traits: $traits,
                });
            )+)+
            table
        };
    };
}
pub(super) use table;
