//! A launch on its way: arguments, residency, and the state in which its waves start.

use std::sync::Arc;

use specdec_core::device::MemoryKind;
use specdec_core::ids::Rank;

use super::code_object::{CodeObject, Kernel};
use super::device_model::Shape;
use super::error::EmulatorError;
use super::memory::{Description, Memory};
use super::metadata::HiddenValues;
use super::program::Program;
use crate::wave::{Lanes, Wave, EXEC, LANES, M0};

/// What a register holds that nobody has written: visible in results, a NaN as a float.
const UNWRITTEN: u32 = 0x7fde_adad;
/// High halves of the 64-bit windows through which flat instructions would see LDS and scratch.
const SHARED_BASE: u32 = 0x0001_0000;
const PRIVATE_BASE: u32 = 0x0002_0000;
/// Size of the packet that a dispatch pointer points to, and of the unit that loads past a segment's end may read.
const PACKET_BYTES: usize = 64;

/// A loaded code object.
#[derive(Debug)]
pub(super) struct Module {
    pub object: CodeObject,
    pub program: Arc<Program>,
    /// Guest address of the image.
    pub image: u64,
}

impl Module {
    /// Guest address of the text section.
    pub fn text_address(&self) -> u64 {
        self.image + self.object.text.start as u64
    }
}

/// A checked launch that waits for its turn.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub rank: Rank,
    pub module: Arc<Module>,
    /// Index of the kernel in the code object.
    pub kernel: usize,
    pub shape: Shape,
    /// The whole kernarg segment.
    pub kernarg: Vec<u8>,
}

/// Builds the kernarg segment: as given when it is whole, else the explicit arguments with the hidden ones added.
pub(super) fn kernarg_segment(kernel: &Kernel, shape: &Shape, given: &[u8]) -> Result<Vec<u8>, EmulatorError> {
    let (explicit, segment) = (kernel.info.explicit_kernarg_bytes as usize, kernel.info.kernarg_bytes as usize);
    if given.len() == segment {
        return Ok(given.to_vec());
    }
    if given.len() != explicit {
        let symbol = kernel.info.symbol.clone();
        return Err(EmulatorError::KernargSize { symbol, found: given.len(), needed: explicit, segment });
    }
    let mut bytes = given.to_vec();
    bytes.resize(segment.max(explicit), 0);
    let values = HiddenValues {
        grid: shape.grid,
        block: shape.block,
        dynamic_lds_bytes: shape.dynamic_lds_bytes,
        shared_base: SHARED_BASE,
        private_base: PRIVATE_BASE,
    };
    kernel.metadata.fill_hidden(&values, &mut bytes)?;
    Ok(bytes)
}

/// Refuses kernels that need what is not emulated.
pub(super) fn check_kernel(module: &Module, kernel: &Kernel) -> Result<(), EmulatorError> {
    let descriptor = &kernel.descriptor;
    let used = module.program.vector_registers(&kernel.code);
    let accum = used.saturating_sub(256) as u32;
    let needed = if accum > 0 { descriptor.accum_offset + accum } else { used as u32 };
    let what = descriptor.unsupported().or_else(|| {
        let registers =
            format!("{needed} vector registers where its descriptor grants {}", descriptor.vector_registers);
        (needed > descriptor.vector_registers).then_some(registers)
    });
    let what = what.or_else(|| kernel.metadata.has_dynamic_stack.then(|| "a dynamic stack".into()));
    match what {
        Some(what) => Err(EmulatorError::UnsupportedKernel { symbol: kernel.info.symbol.clone(), what }),
        None => Ok(()),
    }
}

/// Arguments of a running launch in guest memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arguments {
    pub kernarg: u64,
    pub packet: u64,
}

impl Queued {
    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.module.object.kernels[self.kernel]
    }

    /// Puts the arguments and the dispatch packet into guest memory.
    pub fn place_arguments(&self, memory: &mut Memory) -> Result<Arguments, EmulatorError> {
        let mut bytes = self.kernarg.clone();
        // The compiler may round a scalar load up past the last argument.
        bytes.resize(bytes.len().next_multiple_of(PACKET_BYTES), 0);
        let packet = bytes.len() as u64;
        bytes.extend_from_slice(&self.packet());
        let what = Description {
            rank: self.rank,
            kind: MemoryKind::Device,
            name: format!("arguments of {}", self.kernel().info.symbol),
            is_initialised: true,
        };
        let kernarg = memory.allocate(bytes.len() as u64, None, what)?;
        memory.host_write(kernarg, &bytes)?;
        Ok(Arguments { kernarg, packet: kernarg + packet })
    }

    /// The fields of an AQL dispatch packet that a kernel may look at: dimensions, sizes.
    fn packet(&self) -> [u8; PACKET_BYTES] {
        let mut packet = [0; PACKET_BYTES];
        packet[2] = 3;
        for axis in 0..3 {
            let (block, items) = (self.shape.block[axis], self.shape.block[axis] * self.shape.grid[axis]);
            packet[4 + 2 * axis..6 + 2 * axis].copy_from_slice(&(block as u16).to_le_bytes());
            packet[12 + 4 * axis..16 + 4 * axis].copy_from_slice(&items.to_le_bytes());
        }
        packet
    }

    /// Coordinates of a workgroup, numbered x fastest.
    pub fn coordinates(&self, workgroup: u32) -> [u32; 3] {
        let [x, y, _] = self.shape.grid;
        [workgroup % x, workgroup / x % y, workgroup / x / y]
    }

    /// The state of wave `index` of a workgroup at its entry point.
    pub fn entry_state(&self, arguments: Arguments, workgroup: [u32; 3], index: u32, mut vgpr: Vec<Lanes>) -> Wave {
        let kernel = self.kernel();
        vgpr.fill([UNWRITTEN; LANES]);
        let mut wave =
            Wave { sgpr: [UNWRITTEN; 128], vgpr, scc: false, pc: kernel.entry, text_base: self.module.text_address() };
        let mut next = 0;
        let mut push = |value: u32| {
            wave.sgpr[next] = value;
            next += 1;
        };
        let user = kernel.descriptor.user;
        let pointers = [
            (user.dispatch_ptr, arguments.packet),
            // Null: a kernel that follows it gets a located error.
            (user.queue_ptr, 0),
            (user.kernarg_segment_ptr, arguments.kernarg),
            (user.dispatch_id, 0),
        ];
        for (_, value) in pointers.into_iter().filter(|&(is_enabled, _)| is_enabled) {
            push(value as u32);
            push((value >> 32) as u32);
        }
        for dword in user.preload_offset..user.preload_offset + user.preload_dwords.min(16) {
            let at = dword as usize * 4;
            let bytes = self.kernarg.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            push(bytes.map_or(0, u32::from_le_bytes));
        }
        for axis in (0..3).filter(|&axis| kernel.descriptor.workgroup_id[axis]) {
            push(workgroup[axis]);
        }
        if kernel.descriptor.workgroup_info {
            push(self.shape.waves() & 0x3f);
        }
        let items = self.shape.block_items().saturating_sub(index * LANES as u32).min(LANES as u32);
        wave.write64(EXEC, u64::MAX >> (64 - items));
        wave.sgpr[M0] = 0;
        if let Some(ids) = wave.vgpr.first_mut() {
            let [x, y, _] = self.shape.block;
            for (lane, id) in ids.iter_mut().enumerate() {
                let item = index * LANES as u32 + lane as u32;
                *id = (item % x) | ((item / x % y) << 10) | ((item / x / y) << 20);
            }
        }
        wave
    }

    /// Vector registers (of the unified file) that a wave's storage needs.
    pub fn vector_registers(&self) -> usize {
        self.module.program.vector_registers(&self.kernel().code).max(1)
    }
}
