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
    pub symbol: &'static str,
    /// Workgroups; every one must be resident at once.
    pub grid: u32,
    /// Work-items of a workgroup.
    pub block: u32,
    /// The explicit kernel arguments, as the kernel's metadata lays them out; the device adds hidden ones.
    pub kernarg: Vec<u8>,
}

/// Bytes of a [`PeerHandle`]: those of HIP's.
pub const PEER_HANDLE_BYTES: usize = 64;

/// What another process needs to reach an allocation while its owner keeps it. Opaque: only the device reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerHandle(pub [u8; PEER_HANDLE_BYTES]);

/// A machine with one device per rank of this process.
///
/// Every rank has one stream: what is queued on it runs in order. Streams of different ranks run at the same time.
/// Whatever is queued is complete after [`Device::synchronize`], and may not begin before.
pub trait Device {
    /// A loaded code object.
    type Module: Copy;
    /// A captured graph of one rank.
    type Graph;
    /// The device's own error.
    type Error: std::error::Error;

    /// Allocates `bytes` on `rank`, zeroed; `name` is what errors call it.
    fn allocate(&mut self, rank: Rank, kind: MemoryKind, bytes: u64, name: &str) -> Result<DeviceAddress, Self::Error>;

    /// Gives an allocation of this device back. Nothing queued may still touch it.
    fn free(&mut self, address: DeviceAddress) -> Result<(), Self::Error>;

    /// Makes `rank`'s allocation at `address` reachable from `peer`, a rank of the same process; returns the address
    /// that `peer` uses.
    fn map_peer(&mut self, address: DeviceAddress, rank: Rank, peer: Rank) -> Result<DeviceAddress, Self::Error>;

    /// A handle by which other processes can import an uncached allocation of this one.
    fn export_peer(&mut self, address: DeviceAddress) -> Result<PeerHandle, Self::Error>;

    /// Makes another process's allocation reachable from `rank`; returns the address that `rank` uses.
    fn import_peer(&mut self, handle: &PeerHandle, rank: Rank) -> Result<DeviceAddress, Self::Error>;

    /// Ends an import. Nothing queued may still touch it.
    fn close_peer(&mut self, address: DeviceAddress) -> Result<(), Self::Error>;

    /// Copies host bytes to the device at once, ordered after everything queued has run. Not while capturing.
    fn write(&mut self, address: DeviceAddress, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Copies device bytes to the host; call [`Device::synchronize`] first.
    fn read(&self, address: DeviceAddress, bytes: &mut [u8]) -> Result<(), Self::Error>;

    /// Queues a copy of host bytes to `rank`; `bytes` may be reused at once. While capturing, the graph keeps them.
    fn queue_write(&mut self, rank: Rank, address: DeviceAddress, bytes: &[u8]) -> Result<(), Self::Error>;

    /// Queues a copy between two addresses that `rank` reaches.
    fn queue_copy(&mut self, rank: Rank, to: DeviceAddress, from: DeviceAddress, bytes: u64)
        -> Result<(), Self::Error>;

    /// Loads a code object from memory, for every rank.
    fn load(&mut self, code_object: &[u8]) -> Result<Self::Module, Self::Error>;

    /// Queues one launch on `rank`.
    fn launch(&mut self, rank: Rank, launch: &Launch<Self::Module>) -> Result<(), Self::Error>;

    /// From now on what is queued on `rank` is recorded, not run.
    fn begin_capture(&mut self, rank: Rank) -> Result<(), Self::Error>;

    /// Whether `rank`'s stream is capturing.
    fn is_capturing(&self, rank: Rank) -> Result<bool, Self::Error>;

    /// Ends a capture: what was recorded, ready to launch.
    fn end_capture(&mut self, rank: Rank) -> Result<Self::Graph, Self::Error>;

    /// Queues everything that a graph of `rank` recorded.
    fn launch_graph(&mut self, rank: Rank, graph: &Self::Graph) -> Result<(), Self::Error>;

    /// Runs or waits for everything that was queued on every rank of this process.
    fn synchronize(&mut self) -> Result<(), Self::Error>;
}
