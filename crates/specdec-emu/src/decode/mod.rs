//! Bytes of a text section to [`crate::inst::Inst`], and back to the text that LLVM prints.

mod fetch;
mod memory;
mod memory_tables;
mod print;
mod print_operand;
mod print_scalar;
mod registers;
mod row;
mod scalar;
mod scalar_tables;
mod valu_tables;
mod vector;
mod vop3;
mod vop3_tables;

use crate::inst::Inst;
use fetch::Fetch;

pub use registers::{RegisterFile, RegisterList, RegisterRange};

/// Bytes that are no instruction of gfx950 that the tables know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown instruction at {pc:#x}: {}", Hex(.words))]
pub struct DecodeError {
    /// Byte offset from the start of the section.
    pub pc: u32,
    /// The dwords from there, zero after the section's end.
    pub words: [u32; 4],
}

struct Hex<'a>(&'a [u32; 4]);

impl std::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d] = self.0;
        write!(f, "{a:08x} {b:08x} {c:08x} {d:08x}")
    }
}

/// Decodes the instruction at byte offset `pc` of a text section.
pub fn decode(text: &[u8], pc: u32) -> Result<Inst, DecodeError> {
    let fetch = Fetch { text, pc };
    let word = fetch.word(0)?;
    match word >> 23 {
        0b1_0111_1101 => scalar::sop1(&fetch, word),
        0b1_0111_1110 => scalar::sopc(&fetch, word),
        0b1_0111_1111 => scalar::sopp(&fetch, word),
        prefix if prefix >> 5 == 0b1011 => scalar::sopk(&fetch, word),
        prefix if prefix >> 7 == 0b10 => scalar::sop2(&fetch, word),
        prefix if prefix >> 8 == 0 => vector::decode(&fetch, word),
        0b1_1010_0111 => vop3::packed(&fetch, word),
        prefix => match prefix >> 3 {
            0b11_0000 => scalar::smem(&fetch, word),
            0b11_0100 => vop3::decode(&fetch, word),
            0b11_0110 => memory::ds(&fetch, word),
            0b11_0111 => memory::flat(&fetch, word),
            0b11_1000 => memory::mubuf(&fetch, word),
            _ => Err(fetch.unknown()),
        },
    }
}

/// The text that `llvm-objdump -d` prints for `inst`, up to white space, without comments and symbols.
pub fn print(inst: &Inst) -> String {
    inst.to_string()
}
