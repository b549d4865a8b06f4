//! `HipDevice`: the ranks of a process on HIP, behind `specdec_core::device::Device`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;
use std::sync::Arc;

use specdec_core::device::{Device, Launch, MemoryKind, PeerHandle};
use specdec_core::ids::{DeviceAddress, Rank};

use crate::graph::Graph;
use crate::held::{Held, HeldMemory};
use crate::library::Hip;
use crate::memory::{
    enable_peer_access, size, DeviceMemory, ImportedMemory, PinnedMemory, PinnedWord, RegisteredMemory,
};
use crate::module::Module;
use crate::result::{memory, stream, Handle};
use crate::staging::{Arena, Ring};
use crate::stream::Stream;
use crate::HipError;

/// Bytes that the writes of one capture may have, unless [`HipDevice::set_capture_bytes`] says otherwise.
const CAPTURE_BYTES: u64 = 64 << 10;

/// A code object of one [`HipDevice`], loaded on the device of every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HipModule(usize);

/// A captured graph of one rank, with the bytes that it writes.
#[derive(Debug)]
pub struct HipGraph {
    rank: Rank,
    // Before the bytes that it reads.
    graph: Graph,
    _bytes: Arc<PinnedMemory>,
}

impl HipGraph {
    /// Gives it back, once it runs no more, and says how that went.
    pub fn release(self) -> Result<(), HipError> {
        self.graph.release()
    }
}

#[derive(Debug)]
struct RankState {
    device: u32,
    stream: Stream,
    ring: Ring,
    arena: Arena,
    capture_bytes: u64,
}

/// The ranks of this process, each on a device of its own (or several on one, for tests).
///
/// Dropping it waits for what is queued and then gives everything back; [`HipDevice::close`] says how that went. The
/// calling thread's device is the same after each call as before.
#[derive(Debug)]
pub struct HipDevice {
    hip: Hip,
    // Released in this order: what launches use before the streams that they are on.
    held: Held,
    modules: Vec<BTreeMap<u32, Module>>,
    ranks: Vec<RankState>,
}

impl HipDevice {
    /// One rank for each of `devices`, with a stream of its own.
    pub fn new(hip: &Hip, devices: &[u32]) -> Result<Self, HipError> {
        let rank = |&device: &u32| {
            Ok(RankState {
                device,
                stream: Stream::new(hip, device)?,
                ring: Ring::new(hip, device)?,
                arena: Arena::new(hip, device, CAPTURE_BYTES)?,
                capture_bytes: CAPTURE_BYTES,
            })
        };
        let ranks = devices.iter().map(rank).collect::<Result<_, _>>()?;
        Ok(Self { hip: hip.clone(), held: Held::default(), modules: Vec::new(), ranks })
    }

    /// The library.
    pub const fn hip(&self) -> &Hip {
        &self.hip
    }

    /// Queues to somebody else's stream from now on, such as torch's current one; 0 is the null stream. Cheap when it
    /// is the present one. If the stream captures, that capture's writes have what room the last one left.
    ///
    /// # Safety
    /// `raw` is a `hipStream_t` of the rank's device that stays alive as long as this driver. Graphs that others
    /// capture on it and replay must not run once this driver has given back what they use.
    pub unsafe fn set_stream(&mut self, rank: Rank, raw: usize) -> Result<(), HipError> {
        self.hip.shared.take_failure()?;
        let hip = self.hip.clone();
        let state = self.rank_mut(rank)?;
        if state.stream.raw() == raw {
            return Ok(());
        }
        if state.stream.captures() {
            return Err(HipError::Capturing { what: "set_stream", rank });
        }
        // SAFETY: the caller's contract.
        let stream = unsafe { Stream::adopt(&hip, state.device, raw) };
        if !stream.is_capturing()? {
            state.arena.reserve(&hip, state.device, state.capture_bytes)?;
        }
        state.stream = stream;
        Ok(())
    }

    /// The stream that a rank queues to.
    pub fn stream(&self, rank: Rank) -> Result<&Stream, HipError> {
        self.rank(rank).map(|state| &state.stream)
    }

    /// Reserves memory for the bytes that each later capture of a rank writes.
    pub fn set_capture_bytes(&mut self, rank: Rank, bytes: u64) -> Result<(), HipError> {
        self.free_to("set_capture_bytes")?;
        let hip = self.hip.clone();
        let state = self.rank_mut(rank)?;
        state.capture_bytes = bytes;
        state.arena.reserve(&hip, state.device, bytes)
    }

    /// Makes host memory in place, e.g. a CPU tensor, reachable for `rank`; returns the address that it uses.
    ///
    /// # Safety
    /// `host..host + bytes` stays where it is and alive until [`HipDevice::unregister`] or the end of this driver.
    pub unsafe fn register(&mut self, rank: Rank, host: usize, bytes: u64) -> Result<DeviceAddress, HipError> {
        self.free_to("register")?;
        let device = self.rank(rank)?.device;
        // SAFETY: the caller's contract.
        let memory = unsafe { RegisteredMemory::new(&self.hip, device, host, bytes) }
            .map_err(|error| error.about(|| format!("{bytes} bytes at {host:#x} on {rank}")))?;
        let address = memory.address();
        self.held.insert(address, rank, HeldMemory::Registered(memory));
        Ok(address)
    }

    /// Ends a registration, by the address that `register` returned.
    pub fn unregister(&mut self, address: DeviceAddress) -> Result<(), HipError> {
        self.free(address)
    }

    /// A 32-bit word of host-pinned memory of this driver, for other threads: an abort word, which kernels poll.
    pub fn pinned_word(&self, address: DeviceAddress) -> Result<PinnedWord, HipError> {
        let found = self.held.pinned(address).and_then(|(memory, offset)| PinnedWord::new(memory.clone(), offset));
        found.ok_or(HipError::NotHeld { address, rank: None })
    }

    /// Waits for what is queued, gives everything back, and reports the first failure of that or of an earlier release.
    pub fn close(mut self) -> Result<(), HipError> {
        let waited = self.synchronize();
        let shared = self.hip.shared.clone();
        drop(self);
        waited.and(shared.take_failure())
    }

    fn rank(&self, rank: Rank) -> Result<&RankState, HipError> {
        let unknown = HipError::UnknownRank { rank, ranks: self.ranks.len() };
        self.ranks.get(rank.0 as usize).ok_or(unknown)
    }

    fn rank_mut(&mut self, rank: Rank) -> Result<&mut RankState, HipError> {
        let unknown = HipError::UnknownRank { rank, ranks: self.ranks.len() };
        self.ranks.get_mut(rank.0 as usize).ok_or(unknown)
    }

    /// Refuses what must not happen while a rank captures: HIP would give the capture up.
    fn not_capturing(&self, what: &'static str) -> Result<(), HipError> {
        for (index, state) in self.ranks.iter().enumerate() {
            if state.stream.lane().is_capturing(&self.hip.shared.functions)? {
                return Err(HipError::Capturing { what, rank: Rank(index as u8) });
            }
        }
        Ok(())
    }

    /// Reports an earlier failure, and refuses what must not happen while a rank captures.
    fn free_to(&self, what: &'static str) -> Result<(), HipError> {
        self.hip.shared.take_failure()?;
        self.not_capturing(what)?;
        self.hip.shared.release_waiting();
        Ok(())
    }
}

impl Device for HipDevice {
    type Module = HipModule;
    type Graph = HipGraph;
    type Error = HipError;

    fn allocate(&mut self, rank: Rank, kind: MemoryKind, bytes: u64, name: &str) -> Result<DeviceAddress, HipError> {
        self.free_to("allocate")?;
        let device = self.rank(rank)?.device;
        let allocated = match kind {
            MemoryKind::Device => DeviceMemory::ordinary(&self.hip, device, bytes).map(HeldMemory::Device),
            MemoryKind::Uncached => DeviceMemory::uncached(&self.hip, device, bytes).map(HeldMemory::Device),
            MemoryKind::HostPinned => PinnedMemory::new(&self.hip, device, bytes).map(Arc::new).map(HeldMemory::Pinned),
        };
        let memory = allocated.map_err(|error| error.about(|| format!("`{name}`, {bytes} bytes on {rank}")))?;
        let address = memory.address();
        self.held.insert(address, rank, memory);
        Ok(address)
    }

    fn free(&mut self, address: DeviceAddress) -> Result<(), HipError> {
        self.free_to("free")?;
        self.held.remove(address)?.release()
    }

    /// The address is the same on every device; what is needed is the right to use it.
    fn map_peer(&mut self, address: DeviceAddress, rank: Rank, peer: Rank) -> Result<DeviceAddress, HipError> {
        self.free_to("map_peer")?;
        let (owner, user) = (self.rank(rank)?.device, self.rank(peer)?.device);
        self.held.of_rank(address, rank)?;
        if owner != user {
            enable_peer_access(&self.hip, user, owner)
                .map_err(|error| error.about(|| format!("device {owner} for device {user}")))?;
        }
        Ok(address)
    }

    fn export_peer(&mut self, address: DeviceAddress) -> Result<PeerHandle, HipError> {
        self.free_to("export_peer")?;
        match self.held.at(address)? {
            HeldMemory::Device(memory) => memory.export().map(PeerHandle),
            HeldMemory::Pinned(_) | HeldMemory::Registered(_) => Err(HipError::NotHeld { address, rank: None }),
        }
    }

    fn import_peer(&mut self, handle: &PeerHandle, rank: Rank) -> Result<DeviceAddress, HipError> {
        self.free_to("import_peer")?;
        let imported = ImportedMemory::new(&self.hip, self.rank(rank)?.device, handle.0)
            .map_err(|error| error.about(|| format!("a peer's memory on {rank}")))?;
        Ok(self.held.insert_import(imported))
    }

    fn close_peer(&mut self, address: DeviceAddress) -> Result<(), HipError> {
        self.free_to("close_peer")?;
        self.held.remove_import(address)?.release()
    }

    fn write(&mut self, address: DeviceAddress, bytes: &[u8]) -> Result<(), HipError> {
        self.free_to("write")?;
        self.synchronize()?;
        if let Some((memory, offset)) = self.held.pinned(address) {
            if memory.write(offset, bytes) {
                return Ok(());
            }
        }
        let (functions, to) = (&self.hip.shared.functions, Handle(size(address.0)));
        // SAFETY: nothing is queued; that the range is the device's is the caller's to know, who names it by address.
        unsafe { memory::copy(functions, to, bytes.as_ptr().cast(), bytes.len()) }?;
        // A copy from pageable memory may return before its last part has arrived.
        stream::synchronize(functions, Handle::NULL)
    }

    fn read(&self, address: DeviceAddress, bytes: &mut [u8]) -> Result<(), HipError> {
        if self.held.pinned(address).is_some_and(|(memory, offset)| memory.read(offset, bytes)) {
            return Ok(());
        }
        self.not_capturing("read")?;
        let (to, from) = (Handle::of(bytes.as_mut_ptr().cast()), address.0 as *const c_void);
        // SAFETY: `bytes` is ours to write; that the range is the device's is the caller's to know.
        unsafe { memory::copy(&self.hip.shared.functions, to, from, bytes.len()) }
    }

    fn queue_write(&mut self, rank: Rank, address: DeviceAddress, bytes: &[u8]) -> Result<(), HipError> {
        self.hip.shared.take_failure()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let is_capturing = self.rank(rank)?.stream.is_capturing()?;
        if !is_capturing && !self.rank(rank)?.ring.fits(bytes.len()) {
            // The ring will wait for a stream.
            self.not_capturing("queue_write, of more than is free in the ring,")?;
        }
        let hip = self.hip.clone();
        let state = self.rank_mut(rank)?;
        let written = if is_capturing {
            // SAFETY: the range is the device's and stays: the caller's to know, who names it by address.
            unsafe { state.arena.write((rank, &state.stream), address, bytes) }
        } else {
            // SAFETY: as above.
            unsafe { state.ring.write(&hip, &state.stream, address, bytes) }
        };
        written.map_err(|error| error.about(|| format!("{} bytes to {address} on {rank}", bytes.len())))
    }

    fn queue_copy(&mut self, rank: Rank, to: DeviceAddress, from: DeviceAddress, bytes: u64) -> Result<(), HipError> {
        self.hip.shared.take_failure()?;
        // SAFETY: both ranges are the device's and stay: the caller's to know, who names them by address.
        let queued = unsafe { self.rank(rank)?.stream.copy(to, from, bytes) };
        queued.map_err(|error| error.about(|| format!("{bytes} bytes from {from} to {to} on {rank}")))
    }

    /// Loads it once on each device.
    fn load(&mut self, code_object: &[u8]) -> Result<HipModule, HipError> {
        self.free_to("load")?;
        let devices: BTreeSet<u32> = self.ranks.iter().map(|state| state.device).collect();
        let load = |device| {
            let module = Module::load(&self.hip, device, code_object);
            let subject = || format!("a code object of {} bytes on device {device}", code_object.len());
            module.map(|module| (device, module)).map_err(|error| error.about(subject))
        };
        self.modules.push(devices.into_iter().map(load).collect::<Result<_, _>>()?);
        Ok(HipModule(self.modules.len() - 1))
    }

    fn launch(&mut self, rank: Rank, launch: &Launch<HipModule>) -> Result<(), HipError> {
        self.hip.shared.take_failure()?;
        let Launch { module: HipModule(index), symbol, grid, block, kernarg } = launch;
        let device = self.rank(rank)?.device;
        let module = self.modules.get_mut(*index).and_then(|modules| modules.get_mut(&device));
        let kernel = module.ok_or(HipError::UnknownModule { index: *index })?.kernel(symbol)?;
        // SAFETY: modules live as long as this driver; what the arguments point to is the caller's, who keeps it.
        let launched = unsafe { self.rank(rank)?.stream.launch(kernel, *grid, *block, kernarg) };
        let subject =
            || format!("`{symbol}`, {grid} workgroups of {block}, {} bytes of arguments on {rank}", kernarg.len());
        launched.map_err(|error| error.about(subject))
    }

    fn begin_capture(&mut self, rank: Rank) -> Result<(), HipError> {
        self.free_to("begin_capture")?;
        let hip = self.hip.clone();
        let state = self.rank_mut(rank)?;
        state.arena.reserve(&hip, state.device, state.capture_bytes)?;
        state.stream.begin_capture().map_err(|error| error.about(|| rank.to_string()))
    }

    fn is_capturing(&self, rank: Rank) -> Result<bool, HipError> {
        self.rank(rank)?.stream.is_capturing()
    }

    fn end_capture(&mut self, rank: Rank) -> Result<HipGraph, HipError> {
        let state = self.rank(rank)?;
        if !state.stream.captures() {
            return Err(HipError::NotCapturing { rank });
        }
        let recorded = state.stream.end_capture().and_then(crate::graph::Recording::instantiate);
        let graph = recorded.map_err(|error| error.about(|| rank.to_string()))?;
        self.hip.shared.take_failure()?;
        Ok(HipGraph { rank, graph, _bytes: state.arena.memory() })
    }

    fn launch_graph(&mut self, rank: Rank, graph: &HipGraph) -> Result<(), HipError> {
        self.hip.shared.take_failure()?;
        if graph.rank != rank {
            return Err(HipError::OtherRank { made: graph.rank, asked: rank });
        }
        // SAFETY: the graph's bytes live with it; what else it uses is the caller's, who keeps it.
        let launched = unsafe { self.rank(rank)?.stream.launch_graph(&graph.graph) };
        launched.map_err(|error| error.about(|| rank.to_string()))
    }

    fn synchronize(&mut self) -> Result<(), HipError> {
        self.free_to("synchronize")?;
        let wait = |(index, state): (usize, &RankState)| {
            state.stream.synchronize().map_err(|error| error.about(|| Rank(index as u8).to_string()))
        };
        // Every rank is waited for; the first failure is the one to report.
        self.ranks.iter().enumerate().map(wait).fold(Ok(()), Result::and)
    }
}
