//! A device that has memory but runs no kernel: what is left of a step is the host's own cost.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::mem::offset_of;

use crate::abi::{launch_flags, HealthHeader, LaunchArgs, MAX_RANKS};
use crate::device::{Device, Launch, MemoryKind, PeerHandle, PEER_HANDLE_BYTES};
use crate::ids::{DeviceAddress, Rank};

const FIRST_ADDRESS: u64 = 1 << 40;
const PAGE_BYTES: u64 = 4096;
/// Between the places of two imports: no import is larger.
const IMPORT_BYTES: u64 = 1 << 30;

/// Copies are over when they are queued, and a launch does only one thing: the last of a step counts it, so that reports
/// arrive and are right.
#[derive(Debug)]
pub struct NullDevice {
    next: u64,
    memory: BTreeMap<u64, Vec<u8>>,
    captures: [Option<NullGraph>; MAX_RANKS as usize],
    /// Launches so far, replayed ones included.
    pub launches: u64,
}

/// What a capture recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NullGraph {
    launches: u64,
    /// Health buffers in which a launch ends a step.
    ends: Vec<u64>,
}

impl Default for NullDevice {
    fn default() -> Self {
        Self {
            next: FIRST_ADDRESS,
            memory: BTreeMap::new(),
            captures: [const { None }; MAX_RANKS as usize],
            launches: 0,
        }
    }
}

impl NullDevice {
    fn place(&mut self, bytes: u64) -> u64 {
        let address = self.next;
        self.next += bytes.next_multiple_of(PAGE_BYTES);
        address
    }

    /// Memory of this device from an address on; nothing of memory that it does not have.
    fn at(&self, address: u64) -> &[u8] {
        let found = self.memory.range(..=address).next_back();
        found.and_then(|(start, bytes)| bytes.get((address - start) as usize..)).unwrap_or_default()
    }

    fn store(&mut self, address: u64, bytes: &[u8]) {
        let found = self.memory.range_mut(..=address).next_back();
        let to = found.and_then(|(start, held)| held.get_mut((address - start) as usize..)).unwrap_or_default();
        let held = to.len().min(bytes.len());
        to[..held].copy_from_slice(&bytes[..held]);
    }

    fn end_step(&mut self, health: u64) {
        let word = health + offset_of!(HealthHeader, epoch) as u64;
        let count = self.at(word).first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        self.store(word, &count.wrapping_add(1).to_le_bytes());
    }
}

/// The health buffer of a launch that ends a step. The start-up test's launches all do.
fn ends_step(launch: &Launch<()>) -> Option<u64> {
    let field = |at: usize| launch.kernarg.get(at..).unwrap_or_default();
    let flags = field(offset_of!(LaunchArgs, flags)).first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let is_last = flags & launch_flags::LAST_OF_STEP != 0 || launch.symbol == crate::engine::SELF_TEST_SYMBOL;
    let health = field(offset_of!(LaunchArgs, health)).first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    health.filter(|_| is_last)
}

impl Device for NullDevice {
    type Module = ();
    type Graph = NullGraph;
    type Error = Infallible;

    fn allocate(&mut self, _: Rank, _: MemoryKind, bytes: u64, _: &str) -> Result<DeviceAddress, Infallible> {
        let address = self.place(bytes);
        // Zeroed pages that nobody touches take no memory.
        self.memory.insert(address, vec![0; bytes as usize]);
        Ok(DeviceAddress(address))
    }

    fn free(&mut self, address: DeviceAddress) -> Result<(), Infallible> {
        self.memory.remove(&address.0);
        Ok(())
    }

    fn map_peer(&mut self, address: DeviceAddress, _: Rank, _: Rank) -> Result<DeviceAddress, Infallible> {
        Ok(address)
    }

    fn export_peer(&mut self, _: DeviceAddress) -> Result<PeerHandle, Infallible> {
        Ok(PeerHandle([0; PEER_HANDLE_BYTES]))
    }

    fn import_peer(&mut self, _: &PeerHandle, _: Rank) -> Result<DeviceAddress, Infallible> {
        Ok(DeviceAddress(self.place(IMPORT_BYTES)))
    }

    fn close_peer(&mut self, _: DeviceAddress) -> Result<(), Infallible> {
        Ok(())
    }

    fn write(&mut self, address: DeviceAddress, bytes: &[u8]) -> Result<(), Infallible> {
        self.store(address.0, bytes);
        Ok(())
    }

    /// Zeros where nothing was written.
    fn read(&self, address: DeviceAddress, bytes: &mut [u8]) -> Result<(), Infallible> {
        bytes.fill(0);
        let from = self.at(address.0);
        let held = from.len().min(bytes.len());
        bytes[..held].copy_from_slice(&from[..held]);
        Ok(())
    }

    fn queue_write(&mut self, _: Rank, address: DeviceAddress, bytes: &[u8]) -> Result<(), Infallible> {
        self.store(address.0, bytes);
        Ok(())
    }

    fn queue_copy(&mut self, _: Rank, to: DeviceAddress, from: DeviceAddress, bytes: u64) -> Result<(), Infallible> {
        let mut held = [0; 64];
        for start in (0..bytes).step_by(held.len()) {
            let part = &mut held[..(bytes - start).min(64) as usize];
            self.read(from.offset(start), part)?;
            self.store(to.0 + start, part);
        }
        Ok(())
    }

    fn load(&mut self, _: &[u8]) -> Result<(), Infallible> {
        Ok(())
    }

    fn launch(&mut self, rank: Rank, launch: &Launch<()>) -> Result<(), Infallible> {
        let ended = ends_step(std::hint::black_box(launch));
        if let Some(recorded) = &mut self.captures[rank.0 as usize] {
            recorded.launches += 1;
            recorded.ends.extend(ended);
            return Ok(());
        }
        self.launches += 1;
        if let Some(health) = ended {
            self.end_step(health);
        }
        Ok(())
    }

    fn begin_capture(&mut self, rank: Rank) -> Result<(), Infallible> {
        self.captures[rank.0 as usize] = Some(NullGraph::default());
        Ok(())
    }

    fn is_capturing(&self, rank: Rank) -> Result<bool, Infallible> {
        Ok(self.captures[rank.0 as usize].is_some())
    }

    fn end_capture(&mut self, rank: Rank) -> Result<NullGraph, Infallible> {
        Ok(self.captures[rank.0 as usize].take().unwrap_or_default())
    }

    fn launch_graph(&mut self, _: Rank, graph: &NullGraph) -> Result<(), Infallible> {
        self.launches += graph.launches;
        for &health in &graph.ends {
            self.end_step(health);
        }
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}
