//! Architectural state of one wave: 64 lanes, their registers and the scalar registers.

use crate::inst::Operand;

/// Lanes of a wave.
pub const LANES: usize = 64;

/// One vector register: a dword per lane.
pub type Lanes = [u32; LANES];

/// Index of VCC, M0 and EXEC in [`Wave::sgpr`] (the operand numbers of the ISA).
pub const VCC: usize = 106;
/// See [`VCC`].
pub const M0: usize = 124;
/// See [`VCC`].
pub const EXEC: usize = 126;

/// Registers of one wave. SGPRs, VCC, M0 and EXEC share one file, indexed by operand number.
#[derive(Clone, Debug)]
pub struct Wave {
    /// Scalar registers by operand number.
    pub sgpr: [u32; 128],
    /// VGPRs (0..=255) and `AccVGPRs` (256..=511), as many as the kernel descriptor grants.
    pub vgpr: Vec<Lanes>,
    /// Scalar condition code.
    pub scc: bool,
    /// Byte offset of the next instruction in the code object's text section.
    pub pc: u32,
    /// Absolute address of the text section's first byte (`s_getpc_b64`, `s_setpc_b64`, `s_swappc_b64`).
    pub text_base: u64,
}

impl Wave {
    /// The execution mask.
    #[inline]
    pub fn exec(&self) -> u64 {
        self.read64(EXEC)
    }

    /// A 64-bit scalar register pair.
    #[inline]
    pub fn read64(&self, index: usize) -> u64 {
        self.sgpr[index] as u64 | (self.sgpr[index + 1] as u64) << 32
    }

    /// Writes a 64-bit scalar register pair.
    #[inline]
    pub fn write64(&mut self, index: usize, value: u64) {
        self.sgpr[index] = value as u32;
        self.sgpr[index + 1] = (value >> 32) as u32;
    }

    /// Value of a 32-bit scalar source (register, inline constant or literal).
    #[inline]
    pub fn scalar32(&self, operand: Operand, literal: u32) -> u32 {
        match operand.code {
            0..=127 => self.sgpr[operand.code as usize],
            128..=192 => operand.code as u32 - 128,
            193..=208 => (192 - operand.code as i32) as u32,
            240..=248 => inline_float(operand.code),
            251 => u32::from(self.read64(VCC) == 0),
            252 => u32::from(self.exec() == 0),
            253 => u32::from(self.scc),
            _ => literal,
        }
    }

    /// Value of a 64-bit scalar source: a pair, or a constant sign-extended (a float constant is the high half's
    /// business only for f64 operands, which the decoder marks with two dwords and the executor widens).
    #[inline]
    pub fn scalar64(&self, operand: Operand, literal: u32) -> u64 {
        match operand.code {
            0..=126 => self.read64(operand.code as usize),
            193..=208 => (192 - operand.code as i64) as u64,
            _ => self.scalar32(operand, literal) as u64,
        }
    }
}

/// The single-precision bits of inline float constant `code` (240..=248).
pub const fn inline_float(code: u16) -> u32 {
    match code {
        240 => 0x3f00_0000,
        241 => 0xbf00_0000,
        242 => 0x3f80_0000,
        243 => 0xbf80_0000,
        244 => 0x4000_0000,
        245 => 0xc000_0000,
        246 => 0x4080_0000,
        247 => 0xc080_0000,
        _ => 0x3e22_f983,
    }
}
