//! Loads a gfx950 code object: ELF image, kernels, and what a listing shows of them.

use object::elf::{FileHeader64, EM_AMDGPU, PT_LOAD, SHF_ALLOC, SHT_REL, SHT_RELA};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::LittleEndian;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::descriptor::{Descriptor, DESCRIPTOR_BYTES};
use super::error::EmulatorError;
use super::metadata::{Argument, KernelMetadata, Metadata};

/// The processor that the emulator is.
const TARGET: &str = "gfx950";
/// `EF_AMDGPU_MACH_AMDGCN_GFX950` and the mask of the machine field in `e_flags`.
const MACHINE_GFX950: u32 = 0x4f;
const MACHINE_MASK: u32 = 0xff;
/// Note type of the kernel metadata.
const NT_AMDGPU_METADATA: u32 = 32;
/// Upper bound of a code object's image, so that a damaged header cannot ask for all memory.
const MAX_IMAGE_BYTES: u64 = 1 << 30;
/// Upper bound of a kernarg segment, for the same reason; the hardware's users stay below 4 KiB.
const MAX_KERNARG_BYTES: u32 = 1 << 16;

/// What a listing shows of one kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelInfo {
    /// Symbol without `.kd`.
    pub symbol: String,
    /// Architectural vector registers.
    pub vgprs: u32,
    /// Accumulation registers.
    pub agprs: u32,
    /// Scalar registers.
    pub sgprs: u32,
    /// Spilled vector registers.
    pub vgpr_spills: u32,
    /// Spilled scalar registers.
    pub sgpr_spills: u32,
    /// Static LDS in bytes.
    pub lds_bytes: u32,
    /// Kernarg segment in bytes, hidden arguments included.
    pub kernarg_bytes: u32,
    /// Explicit arguments in bytes.
    pub explicit_kernarg_bytes: u32,
    /// Scratch of a work-item in bytes; the emulator launches only kernels without.
    pub private_bytes: u32,
    /// Work-items of a workgroup at most.
    pub max_block: u32,
    /// Code in bytes.
    pub code_bytes: u32,
    /// Explicit and hidden arguments.
    pub arguments: Vec<Argument>,
}

/// A kernel, ready to launch.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    pub info: KernelInfo,
    pub descriptor: Descriptor,
    pub metadata: KernelMetadata,
    /// Byte offsets in the text section.
    pub code: std::ops::Range<u32>,
    pub entry: u32,
}

/// A parsed code object.
#[derive(Debug)]
pub(super) struct CodeObject {
    /// The file, for its line tables.
    pub elf: Vec<u8>,
    pub sha256: [u8; 32],
    /// Loadable segments laid out from address 0.
    pub image: Vec<u8>,
    /// Text section in the image.
    pub text: std::ops::Range<usize>,
    pub kernels: Vec<Kernel>,
}

fn bad(error: impl std::fmt::Display) -> EmulatorError {
    EmulatorError::BadElf { reason: error.to_string() }
}

type Header = FileHeader64<LittleEndian>;

impl CodeObject {
    /// Parses and checks a code object.
    pub fn parse(elf: &[u8]) -> Result<Self, EmulatorError> {
        let header = Header::parse(elf).map_err(bad)?;
        let endian = header.endian().map_err(bad)?;
        check_target(header, endian)?;
        let sections = header.sections(endian, elf).map_err(bad)?;
        for section in sections.iter() {
            let is_relocation = matches!(section.sh_type(endian), SHT_REL | SHT_RELA);
            if is_relocation && section.sh_flags(endian) & u64::from(SHF_ALLOC) != 0 && section.sh_size(endian) > 0 {
                let count = section.sh_size(endian) / section.sh_entsize(endian).max(1);
                return Err(EmulatorError::Relocations { count: count as usize });
            }
        }
        let image = load_segments(header, endian, elf)?;
        let (_, text) = sections.section_by_name(endian, b".text").ok_or_else(|| bad("no .text section"))?;
        let text = text.sh_addr(endian) as usize..(text.sh_addr(endian).saturating_add(text.sh_size(endian))) as usize;
        if text.end > image.len() || text.start > text.end {
            return Err(bad("the text section is outside the loadable segments"));
        }
        let metadata = Metadata::parse(metadata_note(header, endian, elf)?)?;
        if processor(&metadata.target) != TARGET {
            return Err(EmulatorError::WrongTarget { found: metadata.target, needed: TARGET });
        }
        let symbols = sections.symbols(endian, elf, object::elf::SHT_SYMTAB).map_err(bad)?;
        let dynamic = sections.symbols(endian, elf, object::elf::SHT_DYNSYM).map_err(bad)?;
        let find = |name: &str| {
            [&symbols, &dynamic].into_iter().find_map(|table| {
                let symbol = table.iter().find(|symbol| symbol.name(endian, table.strings()) == Ok(name.as_bytes()))?;
                Some((symbol.st_value(endian), symbol.st_size(endian)))
            })
        };
        let kernels = metadata.kernels.into_iter().map(|kernel| {
            let missing =
                |what: &str| EmulatorError::BadMetadata { reason: format!("`{}` has no symbol `{what}`", kernel.name) };
            let (descriptor, _) = find(&kernel.symbol).ok_or_else(|| missing(&kernel.symbol))?;
            let name = kernel.symbol.trim_end_matches(".kd");
            let size = find(name).map_or(0, |(_, size)| size);
            kernel_of(kernel, descriptor, size, &image, &text)
        });
        let kernels = kernels.collect::<Result<Vec<_>, EmulatorError>>()?;
        Ok(Self { sha256: Sha256::digest(elf).into(), elf: elf.to_vec(), image, text, kernels })
    }

    /// Finds a kernel by its symbol.
    pub fn kernel(&self, symbol: &str) -> Result<&Kernel, EmulatorError> {
        self.kernels.iter().find(|kernel| kernel.info.symbol == symbol).ok_or_else(|| EmulatorError::UnknownSymbol {
            symbol: symbol.into(),
            available: self.kernels.iter().map(|kernel| kernel.info.symbol.clone()).collect(),
        })
    }
}

/// The processor of a target's name: compilers write its triple, `-`, the processor, and features behind `:`; the
/// triple's fields differ between them.
fn processor(target: &str) -> &str {
    let name = target.split(':').next().unwrap_or("");
    name.rsplit('-').next().unwrap_or("")
}

fn check_target(header: &Header, endian: LittleEndian) -> Result<(), EmulatorError> {
    let (machine, flags) = (header.e_machine(endian), header.e_flags(endian));
    if machine != EM_AMDGPU {
        return Err(EmulatorError::WrongTarget { found: format!("ELF machine {machine}"), needed: TARGET });
    }
    if flags & MACHINE_MASK != MACHINE_GFX950 {
        return Err(EmulatorError::WrongTarget {
            found: format!("AMDGPU machine {:#x}", flags & MACHINE_MASK),
            needed: TARGET,
        });
    }
    Ok(())
}

fn load_segments(header: &Header, endian: LittleEndian, elf: &[u8]) -> Result<Vec<u8>, EmulatorError> {
    let mut image = Vec::new();
    for segment in header.program_headers(endian, elf).map_err(bad)? {
        if segment.p_type(endian) != PT_LOAD {
            continue;
        }
        let (start, bytes) = (segment.p_vaddr(endian), segment.p_memsz(endian));
        let end = start.checked_add(bytes).filter(|&end| end <= MAX_IMAGE_BYTES);
        let end = end.ok_or_else(|| bad("a segment is absurdly large"))? as usize;
        let data = segment.data(endian, elf).map_err(|()| bad("a segment lies outside the file"))?;
        if image.len() < end {
            image.resize(end, 0);
        }
        let target = image.get_mut(start as usize..start as usize + data.len());
        target.ok_or_else(|| bad("a segment's file part is larger than its memory"))?.copy_from_slice(data);
    }
    Ok(image)
}

fn metadata_note<'a>(header: &Header, endian: LittleEndian, elf: &'a [u8]) -> Result<&'a [u8], EmulatorError> {
    for segment in header.program_headers(endian, elf).map_err(bad)? {
        let Some(mut notes) = segment.notes(endian, elf).map_err(bad)? else { continue };
        while let Some(note) = notes.next().map_err(bad)? {
            if note.n_type(endian) == NT_AMDGPU_METADATA && note.name() == b"AMDGPU" {
                return Ok(note.desc());
            }
        }
    }
    Err(EmulatorError::BadMetadata { reason: "no AMDGPU metadata note".into() })
}

fn kernel_of(
    metadata: KernelMetadata,
    descriptor_address: u64,
    code_bytes: u64,
    image: &[u8],
    text: &std::ops::Range<usize>,
) -> Result<Kernel, EmulatorError> {
    let outside = |what: &str| EmulatorError::BadMetadata {
        reason: format!("the {what} of `{}` is outside the image", metadata.name),
    };
    let at = descriptor_address as usize;
    let bytes = image.get(at..at.saturating_add(DESCRIPTOR_BYTES)).and_then(|bytes| bytes.try_into().ok());
    let descriptor = Descriptor::parse(bytes.ok_or_else(|| outside("descriptor"))?);
    if metadata.kernarg_bytes.max(metadata.explicit_bytes()) > MAX_KERNARG_BYTES {
        return Err(EmulatorError::BadMetadata {
            reason: format!("the arguments of `{}` are absurdly large", metadata.name),
        });
    }
    let start = descriptor_address.wrapping_add(descriptor.entry_offset as u64) as usize;
    if !text.contains(&start) || !start.is_multiple_of(4) {
        return Err(outside("entry point"));
    }
    let start = start - text.start;
    let all = text.len();
    let end = if code_bytes == 0 { all } else { start.saturating_add(code_bytes as usize).min(all) };
    // A kernel with preloaded arguments starts with 256 bytes for firmware that cannot preload; ours can.
    let entry = if descriptor.user.preload_dwords > 0 { start + 256 } else { start };
    let info = KernelInfo {
        symbol: metadata.symbol.trim_end_matches(".kd").into(),
        vgprs: metadata.vgprs.saturating_sub(metadata.agprs),
        agprs: metadata.agprs,
        sgprs: metadata.sgprs,
        vgpr_spills: metadata.vgpr_spills,
        sgpr_spills: metadata.sgpr_spills,
        lds_bytes: descriptor.lds_bytes,
        kernarg_bytes: metadata.kernarg_bytes,
        explicit_kernarg_bytes: metadata.explicit_bytes(),
        private_bytes: descriptor.private_bytes,
        max_block: metadata.max_block,
        code_bytes: (end - start) as u32,
        arguments: metadata.arguments.clone(),
    };
    Ok(Kernel { info, descriptor, metadata, code: start as u32..end as u32, entry: entry as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_name_the_target_differently() {
        for name in ["amdgcn-amd-amdhsa--gfx950", "amdgcn-amd-amdhsa--gfx950:sramecc+:xnack-", "gfx950"] {
            assert_eq!(processor(name), TARGET);
        }
        assert_eq!(processor("amdgpu9.50-amd-amdhsa-unknown-gfx950"), TARGET);
        assert_eq!(processor("amdgcn-amd-amdhsa--gfx942:xnack-"), "gfx942");
    }
}
