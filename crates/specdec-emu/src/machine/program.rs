//! A text section, decoded once: one step an instruction, found by pc.

use super::action::Action;
use super::scoreboard::{Span, VECTOR_WORDS, WORDS};
use crate::decode::{decode, RegisterFile, RegisterList};
use crate::inst::{Format, Inst, Operand};
use crate::op::Op;

/// No step starts at this pc.
const NO_STEP: u32 = u32::MAX;

/// A decoded instruction and what the scheduler needs to know before it runs.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub inst: Inst,
    pub action: Action,
    /// Registers that must not be pending: a range of [`Program::touched`].
    touched: (u32, u32),
    pub is_mfma: bool,
}

/// A code object's text section, decoded.
#[derive(Debug)]
pub(super) struct Program {
    steps: Vec<Step>,
    touched: Vec<(u8, u64)>,
    /// Step that starts at each dword.
    index: Vec<u32>,
}

fn add_bits(bits: &mut [u64; WORDS], list: &RegisterList) {
    for range in list.as_slice() {
        let base = if range.file == RegisterFile::Scalar { VECTOR_WORDS * 64 } else { 0 };
        let first = base + range.first as usize;
        for register in first..first + range.count as usize {
            if let Some(word) = bits.get_mut(register / 64) {
                *word |= 1 << (register % 64);
            }
        }
    }
}

/// The vector registers of an operand.
pub(super) fn span(operand: Operand) -> Span {
    operand.vector().map_or(Span::default(), |first| Span { first: first as u16, count: operand.dwords as u16 })
}

impl Program {
    /// Decodes a text section. What is not an instruction becomes an error only when a wave gets there: padding
    /// and data are no code.
    pub fn decode(text: &[u8]) -> Self {
        let mut program = Self { steps: Vec::new(), touched: Vec::new(), index: vec![NO_STEP; text.len() / 4] };
        let mut pc = 0;
        while pc + 4 <= text.len() {
            let size = program.push(text, pc as u32);
            pc += size;
        }
        program
    }

    fn push(&mut self, text: &[u8], pc: u32) -> usize {
        let at = pc as usize;
        self.index[at / 4] = self.steps.len() as u32;
        let Ok(inst) = decode(text, pc) else {
            let encoding = u32::from_le_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]]);
            let action = Action::Unknown(encoding);
            self.steps.push(Step { inst: unknown(pc), action, touched: (0, 0), is_mfma: false });
            return 4;
        };
        let action = Action::of(&inst);
        let mut bits = [0; WORDS];
        add_bits(&mut bits, &inst.reads());
        // A load's own destination has rules of its own: see `Scoreboard::vector_conflict`.
        if !matches!(action, Action::Vector(..) | Action::Local(_) | Action::CrossLane(_)) {
            add_bits(&mut bits, &inst.writes());
        }
        let start = self.touched.len() as u32;
        let words = bits.iter().enumerate().filter(|(_, &mask)| mask != 0);
        self.touched.extend(words.map(|(word, &mask)| (word as u8, mask)));
        let is_mfma = inst.op.name().starts_with("v_mfma");
        self.steps.push(Step { inst, action, touched: (start, self.touched.len() as u32), is_mfma });
        inst.size as usize
    }

    /// The step that starts at a pc.
    #[inline]
    pub fn find(&self, pc: u32) -> Option<usize> {
        if !pc.is_multiple_of(4) {
            return None;
        }
        self.index.get(pc as usize / 4).filter(|&&step| step != NO_STEP).map(|&step| step as usize)
    }

    /// A step by its number.
    #[inline]
    pub fn step(&self, index: usize) -> Option<&Step> {
        self.steps.get(index)
    }

    /// The steps of a range of code.
    pub fn steps(&self, range: &std::ops::Range<u32>) -> impl Iterator<Item = &Step> {
        let range = range.clone();
        self.steps.iter().filter(move |step| range.contains(&step.inst.pc))
    }

    /// The registers that a step needs not to be pending.
    #[inline]
    pub fn touched(&self, step: &Step) -> &[(u8, u64)] {
        &self.touched[step.touched.0 as usize..step.touched.1 as usize]
    }

    /// Steps in `range` that cannot be run: pc, and the text or the bits.
    pub fn unsupported(&self, range: &std::ops::Range<u32>) -> Vec<(u32, String)> {
        let steps = self.steps.iter().filter(|step| range.contains(&step.inst.pc));
        let texts = steps.filter_map(|step| match step.action {
            Action::Unknown(encoding) => Some((step.inst.pc, format!("{encoding:#010x}"))),
            Action::Unimplemented => Some((step.inst.pc, step.inst.to_string())),
            _ => None,
        });
        texts.collect()
    }

    /// One more than the highest register of the unified vector file that code in `range` names.
    pub fn vector_registers(&self, range: &std::ops::Range<u32>) -> usize {
        let steps = self.steps.iter().filter(|step| range.contains(&step.inst.pc));
        let operands = steps.flat_map(|step| {
            let Inst { dst, data, data1, src, scale, .. } = step.inst;
            [dst, data, data1, src[0], src[1], src[2], scale[0], scale[1]]
        });
        operands.filter_map(|operand| operand.vector().map(|first| first + operand.dwords as usize)).max().unwrap_or(0)
    }
}

/// A stand-in for bits that are no instruction.
fn unknown(pc: u32) -> Inst {
    Inst::bare(pc, 4, Format::Sopp, Op::STrap)
}
