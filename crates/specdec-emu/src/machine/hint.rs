//! What to do about each error.

use super::error::EmulatorError;

impl EmulatorError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::BadElf { .. } => "build the code object again; a copy may have been cut short",
            Self::WrongTarget { .. } => "compile with `--offload-arch=gfx950`",
            Self::Relocations { .. } => {
                "give global device variables hidden visibility, or pass their address as an argument"
            }
            Self::BadMetadata { .. } => "compile with `-mcode-object-version=6`",
            Self::UnknownSymbol { .. } => {
                "name a kernel of this code object, without `.kd`; C++ names are mangled unless `extern \"C\"`"
            }
            Self::UnsupportedKernel { .. } => "remove spills, stack use and host calls from the kernel",
            Self::KernargSize { .. } => "pass exactly the explicit arguments, laid out as the metadata's offsets say",
            Self::BadShape { .. } => "launch 1 to 1024 work-items a workgroup and at least one workgroup",
            Self::TooManyWorkgroups { .. } => "launch fewer workgroups, or use less LDS and fewer registers",
            Self::UnknownRank { .. } => "create the emulator with more ranks",
            Self::UnknownModule { .. } => "load the code object with this emulator",
            Self::OutOfMemory { .. } => "allocate less, or sparse memory",
            Self::Overlap { .. } => "unregister the old memory before reusing its addresses",
            Self::NotAnAllocation { .. } => "pass the address that `allocate` or `register` was given",
            Self::HostAccess { .. } => "check the address and size against the allocation",
            Self::Stream(error) => error.hint(),
            Self::Peer(error) => error.hint(),
            Self::World(error) => error.hint(),
            Self::Interrupted => "start over: no result of this run may be used",
            Self::UnknownOpcode { .. } => "add the instruction to the decoder, or check that the pc is code",
            Self::Unimplemented { .. } => "add it to the emulator; it never guesses",
            Self::OutsideAllocation { .. } | Self::CrossesEnd { .. } => {
                "check the index, the buffer's size and that the memory is registered"
            }
            Self::NeverWritten { .. } => "write the memory first, or register it as initialised",
            Self::Misaligned { .. } => "align the pointer; an exchange pair needs 8 bytes",
            Self::LdsOutOfRange { .. } => "declare more LDS, or check the index",
            Self::LdsNeverWritten { .. } => "write LDS before reading it; a barrier may be missing",
            Self::LdsInFlight { .. } => "wait for `vmcnt` and pass a barrier before touching what a DMA fills",
            Self::UseBeforeWait { .. } => "wait with `s_waitcnt vmcnt` or `lgkmcnt` before the use",
            Self::BarrierNotReached { .. } => "let every wave of the workgroup pass the same barriers",
            Self::LeftKernel { .. } => "inline every device function; indirect calls out of a kernel are not run",
            Self::Deadlock { .. } => {
                "find the store that the polled places miss, or run with the clock advancing to see the time-outs"
            }
            Self::BudgetPassed { .. } => "raise the budget, or find the loop that does not end",
        }
    }
}
