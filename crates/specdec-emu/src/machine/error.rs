//! Everything that can go wrong: loading, launching, running.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use specdec_core::ids::Rank;

use super::location::{Location, Waiter};
use super::membership::WorldError;
use super::peer::PeerError;
use super::stream::StreamError;

/// Why the emulator refused or stopped. The message says what and where, [`EmulatorError::hint`] what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum EmulatorError {
    /// Not a complete ELF file.
    #[error("the code object is not a complete ELF file: {reason}")]
    BadElf {
        /// The parser's words.
        reason: String,
    },
    /// Built for another machine.
    #[error("the code object is built for {found}; the emulator runs {needed}")]
    WrongTarget {
        /// Target found.
        found: String,
        /// Target needed.
        needed: &'static str,
    },
    /// It wants relocations.
    #[error("the code object has {count} dynamic relocations; only relocation-free ones are loaded")]
    Relocations {
        /// Number of relocations.
        count: usize,
    },
    /// The kernel metadata cannot be used.
    #[error("the code object's kernel metadata cannot be used: {reason}")]
    BadMetadata {
        /// What is wrong.
        reason: String,
    },
    /// No such kernel.
    #[error("the code object has no kernel `{symbol}`; it has {}", .available.join(", "))]
    UnknownSymbol {
        /// The symbol asked for.
        symbol: String,
        /// Kernels that are there.
        available: Vec<String>,
    },
    /// A kernel that needs something that is not emulated.
    #[error("kernel `{symbol}` needs {what}, which is not emulated")]
    UnsupportedKernel {
        /// Kernel symbol.
        symbol: String,
        /// What it needs.
        what: String,
    },
    /// Wrong size of the arguments.
    #[error("kernel `{symbol}` got {found} bytes of arguments; it takes {needed} (or {segment} with the hidden ones)")]
    KernargSize {
        /// Kernel symbol.
        symbol: String,
        /// Bytes given.
        found: usize,
        /// Bytes of the explicit arguments.
        needed: usize,
        /// Bytes of the whole segment.
        segment: usize,
    },
    /// A grid or block of no size or of too large a size.
    #[error("kernel `{symbol}` cannot be launched with grid {grid:?} and block {block:?}: {reason}")]
    BadShape {
        /// Kernel symbol.
        symbol: String,
        /// Workgroups.
        grid: [u32; 3],
        /// Work-items of a workgroup.
        block: [u32; 3],
        /// Why not.
        reason: String,
    },
    /// Not all workgroups can be resident.
    #[error(
        "{workgroups} workgroups of `{symbol}` do not fit: a compute unit holds {per_compute_unit} \
         ({lds_bytes} B LDS, {waves} waves of {vgprs} VGPRs each), the device's {compute_units} hold {fits}"
    )]
    TooManyWorkgroups {
        /// Kernel symbol.
        symbol: String,
        /// Workgroups asked for.
        workgroups: u32,
        /// Workgroups that fit.
        fits: u32,
        /// Workgroups that one compute unit holds.
        per_compute_unit: u32,
        /// Compute units.
        compute_units: u32,
        /// LDS of a workgroup.
        lds_bytes: u32,
        /// Vector registers of a wave.
        vgprs: u32,
        /// Waves of a workgroup.
        waves: u32,
    },
    /// A rank that the emulator does not have.
    #[error("{rank} does not exist; the emulator has {ranks} ranks")]
    UnknownRank {
        /// The rank asked for.
        rank: Rank,
        /// Ranks there are.
        ranks: usize,
    },
    /// A module handle of another emulator.
    #[error("module {index} was not loaded by this emulator")]
    UnknownModule {
        /// The handle's index.
        index: usize,
    },
    /// The host has no such memory.
    #[error("the host cannot provide {bytes} bytes for `{name}`")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: u64,
        /// The allocation's name.
        name: String,
    },
    /// Two allocations would share bytes.
    #[error("`{name}` at {address:#x}, {bytes} bytes, overlaps `{other}`")]
    Overlap {
        /// The new allocation.
        name: String,
        /// Its address.
        address: u64,
        /// Its size.
        bytes: u64,
        /// The one that is there.
        other: String,
    },
    /// An address that names no allocation.
    #[error("no allocation starts at {address:#x}")]
    NotAnAllocation {
        /// The address.
        address: u64,
    },
    /// The host reads or writes past an allocation.
    #[error("the host's access to {bytes} bytes at {address:#x} is in no one allocation{near}")]
    HostAccess {
        /// First byte.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// The nearest allocation, in words.
        near: String,
    },
    /// A stream that was misused.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// Memory of other processes.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A world of processes.
    #[error(transparent)]
    World(#[from] WorldError),
    /// Another thread ended the run.
    #[error("the run was interrupted; what it queued is gone and memory is as it was left")]
    Interrupted,
    /// Bits that are no instruction.
    #[error("{encoding:#010x} is no instruction that the emulator knows: {at}")]
    UnknownOpcode {
        /// First dword.
        encoding: u32,
        /// Where.
        at: Box<Location>,
    },
    /// A known instruction or form that cannot be run.
    #[error("not implemented ({what}): {at}")]
    Unimplemented {
        /// What about it.
        what: String,
        /// Where.
        at: Box<Location>,
    },
    /// No allocation there.
    #[error("{access} of {bytes} bytes at {address:#x} is outside every allocation{near}: {at}")]
    OutsideAllocation {
        /// Load, store, ...
        access: &'static str,
        /// First byte.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// The nearest allocation, in words.
        near: String,
        /// Where.
        at: Box<Location>,
    },
    /// Starts inside an allocation and ends past it.
    #[error(
        "{access} of {bytes} bytes at `{allocation}` + {offset:#x} crosses its end at {allocation_bytes:#x}: {at}"
    )]
    CrossesEnd {
        /// Load, store, ...
        access: &'static str,
        /// The allocation's name.
        allocation: String,
        /// Offset of the first byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// Size of the allocation.
        allocation_bytes: u64,
        /// Where.
        at: Box<Location>,
    },
    /// Bytes that nobody wrote.
    #[error("load of {bytes} bytes at `{allocation}` + {offset:#x} reads memory that nobody has written: {at}")]
    NeverWritten {
        /// The allocation's name.
        allocation: String,
        /// Offset of the first byte.
        offset: u64,
        /// Bytes.
        bytes: u64,
        /// Where.
        at: Box<Location>,
    },
    /// Not on its natural boundary.
    #[error("{access} at {address:#x} is not aligned to {needed} bytes: {at}")]
    Misaligned {
        /// Load, store, ...
        access: &'static str,
        /// The address.
        address: u64,
        /// Alignment needed.
        needed: u64,
        /// Where.
        at: Box<Location>,
    },
    /// Past the workgroup's LDS.
    #[error("LDS {access} of {bytes} bytes at {address:#x} is past the workgroup's {lds_bytes:#x} bytes: {at}")]
    LdsOutOfRange {
        /// Load, store, ...
        access: &'static str,
        /// First byte.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// LDS of the workgroup.
        lds_bytes: u64,
        /// Where.
        at: Box<Location>,
    },
    /// LDS bytes that nobody wrote.
    #[error("LDS load of {bytes} bytes at {address:#x} reads bytes that nobody has written: {at}")]
    LdsNeverWritten {
        /// First byte.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// Where.
        at: Box<Location>,
    },
    /// LDS bytes that a DMA has not delivered yet.
    #[error("LDS {access} of {bytes} bytes at {address:#x} meets an LDS DMA that no `s_waitcnt` has completed: {at}")]
    LdsInFlight {
        /// Load, store, ...
        access: &'static str,
        /// First byte.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// Where.
        at: Box<Location>,
    },
    /// A register whose load has not been waited for.
    #[error("use before waitcnt: {register} is the destination of a load that no `s_waitcnt` has completed: {at}")]
    UseBeforeWait {
        /// The register, e.g. `v5` or `s12`.
        register: String,
        /// Where.
        at: Box<Location>,
    },
    /// A wave ended while others wait for it.
    #[error("barrier not reached by wave {wave}, which has ended: {at}")]
    BarrierNotReached {
        /// The wave that ended.
        wave: u32,
        /// A wave that waits, or the end.
        at: Box<Location>,
    },
    /// Control flow left the kernel.
    #[error("control goes to {target:#x}, which is not code of this kernel: {at}")]
    LeftKernel {
        /// Byte offset in the text section.
        target: u32,
        /// Where.
        at: Box<Location>,
    },
    /// Nobody can go on.
    #[error("deadlock, {} waves wait for ever:{}", .waiters.len(), list(.waiters))]
    Deadlock {
        /// Every wave.
        waiters: Vec<Waiter>,
    },
    /// Too long.
    #[error("instruction budget passed: more than {budget} wave instructions: {at}")]
    BudgetPassed {
        /// The budget.
        budget: u64,
        /// The wave that ran last.
        at: Box<Location>,
    },
}

/// The message and the hint: the values of a deadlock alone fill pages.
impl std::fmt::Debug for EmulatorError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}\nhint: {}", self.hint())
    }
}

/// Every waiter: the first at a place with its source lines, the others there in short.
fn list(waiters: &[Waiter]) -> String {
    let mut places: BTreeMap<(&str, u32), Vec<&Waiter>> = BTreeMap::new();
    for waiter in waiters {
        places.entry((&waiter.at.kernel, waiter.at.pc)).or_default().push(waiter);
    }
    let mut text = String::new();
    for waiters in places.values() {
        for (index, waiter) in waiters.iter().enumerate() {
            let Location { rank, workgroup, wave, .. } = waiter.at;
            let _ = match index {
                0 => write!(text, "\n  {waiter}"),
                _ => write!(text, "\n    there too {rank}, workgroup {workgroup}, wave {wave} {}", waiter.waiting),
            };
        }
    }
    text
}

/// The variants that hold a location, once for reading it and for filling it in.
macro_rules! location_of {
    ($error:expr) => {
        match $error {
            Self::UnknownOpcode { at, .. }
            | Self::Unimplemented { at, .. }
            | Self::OutsideAllocation { at, .. }
            | Self::CrossesEnd { at, .. }
            | Self::NeverWritten { at, .. }
            | Self::Misaligned { at, .. }
            | Self::LdsOutOfRange { at, .. }
            | Self::LdsNeverWritten { at, .. }
            | Self::LdsInFlight { at, .. }
            | Self::UseBeforeWait { at, .. }
            | Self::BarrierNotReached { at, .. }
            | Self::LeftKernel { at, .. }
            | Self::BudgetPassed { at, .. } => Some(at),
            _ => None,
        }
    };
}

impl EmulatorError {
    /// The location of a run-time error.
    pub fn location(&self) -> Option<&Location> {
        location_of!(self)
    }

    fn location_mut(&mut self) -> Option<&mut Location> {
        location_of!(self)
    }

    /// Fills in everything but the lane, which only the failing access knew.
    pub(super) fn locate(mut self, found: Location) -> Self {
        if let Some(at) = self.location_mut() {
            *at = Location { lane: at.lane, ..found };
        }
        self
    }

    /// Fills in the lane.
    pub(super) fn locate_lane(mut self, lane: usize) -> Self {
        if let Some(at) = self.location_mut() {
            at.lane = Some(lane as u8);
        }
        self
    }
}
