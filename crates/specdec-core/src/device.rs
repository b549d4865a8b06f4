//! The smallest set of operations that the runtime needs of a machine: the emulator, HIP and CUDA implement it.

use crate::ids::{DeviceAddress, Rank};

/// What kind of memory an allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Ordinary device memory.
    Device,
    /// Device memory that peers and the owner access past every cache: mailboxes between ranks.
    Uncached,
    /// Host memory that the device can reach: health words, step metadata.
    HostPinned,
}

/// One kernel launch, all of it: a plain value that core makes and a device carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch<Module> {
    /// A loaded code object.
    pub module: Module,
    /// Kernel symbol, without the descriptor's `.kd`.
    pub symbol: String,
    /// Workgroups; every one must be resident at once.
    pub grid: u32,
    /// Work-items of a workgroup.
    pub block: u32,
    /// The explicit kernel arguments, as the kernel's metadata lays them out; the device adds hidden ones.
    pub kernarg: Vec<u8>,
}

/// A machine with one device per rank.
///
/// Launches of one rank run in order; launches of different ranks run at the same time. `launch` only enqueues.
pub trait Device {
    /// A loaded code object.
    type Module: Copy;
    /// The device's own error.
    type Error: std::error::Error;

    /// Allocates `bytes` on `rank`, zeroed; `name` is what errors call it.
    fn allocate(&mut self, rank: Rank, kind: MemoryKind, bytes: u64, name: &str) -> Result<DeviceAddress, Self::Error>;

    /// Gives an allocation of this device back.
    fn free(&mut self, address: DeviceAddress) -> Result<(), Self::Error>;

    /// Makes `rank`'s allocation at `address` reachable from `peer`; returns the address that `peer` uses.
    fn map_peer(&mut self, address: DeviceAddress, rank: Rank, peer: Rank) -> Result<DeviceAddress, Self::Error>;

    /// Copies host bytes to the device, ordered after all queued launches have run.
    fn write(&mut self, address: DeviceAddress, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Copies device bytes to the host; call [`Device::synchronize`] first.
    fn read(&self, address: DeviceAddress, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Loads a code object from memory.
    fn load(&mut self, code_object: &[u8]) -> Result<Self::Module, Self::Error>;

    /// Enqueues one launch on `rank`.
    fn launch(&mut self, rank: Rank, launch: &Launch<Self::Module>) -> Result<(), Self::Error>;

    /// Runs or waits for everything that was queued on every rank.
    fn synchronize(&mut self) -> Result<(), Self::Error>;
}
