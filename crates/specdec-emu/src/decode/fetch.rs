//! Reading dwords at a pc, and the operand numbers inside them.

use super::row::Row;
use super::DecodeError;
use crate::inst::{Format, Inst, Operand};
use crate::wave::{EXEC, M0, VCC};

/// Operand number of a literal.
pub(super) const LITERAL: u32 = 255;
/// VCC as an operand.
pub(super) const VCC_PAIR: Operand = Operand { code: VCC as u16, dwords: 2 };

/// The bits `high..=low` of `word`.
pub(super) const fn bits(word: u32, high: u32, low: u32) -> u32 {
    (word >> low) & (u32::MAX >> (31 - (high - low)))
}

/// Bit `index` of `word`.
pub(super) const fn bit(word: u32, index: u32) -> bool {
    word >> index & 1 != 0
}

/// The instruction being decoded.
pub(super) struct Fetch<'a> {
    /// The section.
    pub text: &'a [u8],
    /// Byte offset of the instruction.
    pub pc: u32,
}

impl Fetch<'_> {
    fn word_or_none(&self, index: usize) -> Option<u32> {
        let start = self.pc as usize + 4 * index;
        let bytes = self.text.get(start..start + 4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// The dword `index` after the first.
    pub(super) fn word(&self, index: usize) -> Result<u32, DecodeError> {
        self.word_or_none(index).ok_or_else(|| self.unknown())
    }

    /// The error that names this instruction.
    pub(super) fn unknown(&self) -> DecodeError {
        DecodeError { pc: self.pc, words: std::array::from_fn(|index| self.word_or_none(index).unwrap_or(0)) }
    }

    /// Refuses the instruction unless `condition`.
    pub(super) fn require(&self, condition: bool) -> Result<(), DecodeError> {
        if condition {
            Ok(())
        } else {
            Err(self.unknown())
        }
    }

    /// The row of `opcode`.
    pub(super) fn row(&self, table: &'static [Option<Row>], opcode: u32) -> Result<&'static Row, DecodeError> {
        table.get(opcode as usize).and_then(Option::as_ref).ok_or_else(|| self.unknown())
    }

    /// An instruction without operands.
    pub(super) fn inst(&self, format: Format, row: &Row, size: u8) -> Inst {
        Inst::bare(self.pc, size, format, row.op)
    }

    /// A scalar register as a destination, base or source: tuples are aligned to their size, up to four.
    pub(super) fn sgpr(&self, code: u32, dwords: u8) -> Result<Operand, DecodeError> {
        let aligned = code.is_multiple_of(u32::from(dwords).clamp(1, 4).next_power_of_two());
        let end = match code as usize {
            0..=101 => 102,
            102..=107 => code + 2 - code % 2,
            108..=123 => 124,
            M0 => 125,
            EXEC..=127 => 128,
            _ => 0,
        };
        self.require(dwords != 0 && aligned && code + u32::from(dwords) <= end)?;
        Ok(Operand { code: code as u16, dwords })
    }

    /// A VGPR, or an `AccVGPR`; tuples start at an even one.
    pub(super) fn vgpr(&self, index: u32, dwords: u8, acc: bool) -> Result<Operand, DecodeError> {
        self.require(dwords != 0 && index + u32::from(dwords) <= 256 && (dwords == 1 || index.is_multiple_of(2)))?;
        let base = if acc { 512 } else { 256 };
        Ok(Operand { code: (base + index) as u16, dwords })
    }

    /// A nine-bit source.
    pub(super) fn source(&self, code: u32, dwords: u8) -> Result<Operand, DecodeError> {
        match code {
            0..=127 => self.sgpr(code, dwords),
            256..=511 => self.vgpr(code - 256, dwords, false),
            128..=208 | 235..=239 | 240..=248 | 251..=253 | LITERAL => {
                Ok(Operand { code: code as u16, dwords: dwords.min(2) })
            }
            _ => Err(self.unknown()),
        }
    }
}
