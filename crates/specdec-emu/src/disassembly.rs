//! A code object's text section as LLVM's disassembler prints it, by our own decoder.

use object::{Object as _, ObjectSection as _};
use thiserror::Error;

use crate::decode::{decode, print, DecodeError};

/// Why a code object cannot be disassembled.
#[derive(Debug, Error)]
pub enum DisassemblyError {
    /// No ELF file, or a cut one.
    #[error("not a code object: {0}")]
    Elf(#[from] object::Error),
    /// No code.
    #[error("not a code object: it has no .text section")]
    NoText,
    /// An instruction that the decoder does not know.
    #[error(transparent)]
    Unknown(#[from] DecodeError),
}

/// One instruction: its address as the ELF file has it, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Address.
    pub address: u64,
    /// Mnemonic, operands and modifiers.
    pub text: String,
}

/// Every instruction of the text section, in order. Branches show their distance, since there are no labels.
pub fn disassemble(elf: &[u8]) -> Result<Vec<Line>, DisassemblyError> {
    let file = object::File::parse(elf)?;
    let section = file.section_by_name(".text").ok_or(DisassemblyError::NoText)?;
    let text = section.data()?;
    let mut lines = Vec::new();
    let mut pc = 0;
    while pc < text.len() {
        let inst = decode(text, pc as u32)?;
        lines.push(Line { address: section.address() + pc as u64, text: print(&inst) });
        pc += usize::from(inst.size);
    }
    Ok(lines)
}
