//! What a code object holds and what would keep it from being shipped, without running it.

use serde::Serialize;

use super::code_object::{CodeObject, KernelInfo};
use super::error::EmulatorError;
use super::program::Program;
use crate::inst::Format;

/// Places of one kind of problem that are named; the others are counted.
const NAMED: usize = 3;

/// A code object, looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// Bytes of the file.
    pub file_bytes: usize,
    /// Its kernels.
    pub kernels: Vec<KernelInfo>,
    /// Instructions of the kernels, padding between them excluded.
    pub instructions: usize,
    /// Every reason not to ship it; empty when it is fit.
    pub problems: Vec<String>,
}

impl Inspection {
    /// Parses and decodes everything; an error if it is no code object for this machine at all.
    pub fn of(elf: &[u8]) -> Result<Self, EmulatorError> {
        let object = CodeObject::parse(elf)?;
        let program = Program::decode(&object.image[object.text.clone()]);
        let mut problems = Vec::new();
        let mut instructions = 0;
        if object.kernels.is_empty() {
            problems.push("it holds no kernel".to_owned());
        }
        for kernel in &object.kernels {
            let info = &kernel.info;
            let steps = || program.steps(&kernel.code);
            instructions += steps().count();
            let mut found = |what: String| problems.push(format!("`{}`: {what}", info.symbol));
            for (count, what) in [
                (info.vgpr_spills, "spilled vector registers"),
                (info.sgpr_spills, "spilled scalar registers"),
                (info.private_bytes, "bytes of scratch memory a work-item"),
            ] {
                if count > 0 {
                    found(format!("{count} {what}"));
                }
            }
            let unsupported = program.unsupported(&kernel.code);
            if let Some(places) = places(&unsupported) {
                found(format!("{} instructions cannot be executed: {places}", unsupported.len()));
            }
            for (format, name) in [(Format::Scratch, "scratch_"), (Format::Flat, "flat_")] {
                let texts = steps().filter(|step| step.inst.format == format);
                let texts: Vec<(u32, String)> = texts.map(|step| (step.inst.pc, step.inst.to_string())).collect();
                if let Some(places) = places(&texts) {
                    found(format!("{} {name} instructions: {places}", texts.len()));
                }
            }
        }
        let kernels = object.kernels.into_iter().map(|kernel| kernel.info).collect();
        let sha256 = object.sha256.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        Ok(Self { sha256, file_bytes: elf.len(), kernels, instructions, problems })
    }
}

/// The first instructions of a list, with their places.
fn places(found: &[(u32, String)]) -> Option<String> {
    let named: Vec<String> = found.iter().take(NAMED).map(|(pc, text)| format!("`{text}` at {pc:#x}")).collect();
    let more = if found.len() > NAMED { ", ..." } else { "" };
    (!named.is_empty()).then(|| named.join(", ") + more)
}
