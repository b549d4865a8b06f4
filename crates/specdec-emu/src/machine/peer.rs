//! Memory of other processes: handles, exports, imports.

use std::fs::{self, OpenOptions};
use std::io;

use specdec_core::device::{MemoryKind, PeerHandle, PEER_HANDLE_BYTES};
use specdec_core::ids::{DeviceAddress, Rank};
use thiserror::Error;

use super::emulator::Emulator;
use super::error::EmulatorError;
use super::life;
use super::memory::Description;
use super::segment::{Segment, FILE_NAME};

/// First bytes of a handle.
const MAGIC: &[u8; 7] = b"SPDPEER";

/// What a handle is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HandleKind {
    /// An uncached allocation.
    Memory = 1,
    /// A world of processes.
    World = 2,
    /// A board for votes.
    Board = 3,
}

impl HandleKind {
    const ALL: [Self; 3] = [Self::Memory, Self::World, Self::Board];
}

impl std::fmt::Display for HandleKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Memory => "peer memory",
            Self::World => "a world of processes",
            Self::Board => "a board for votes",
        })
    }
}

/// Peer memory that cannot be exported, imported or closed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerError {
    /// Only uncached memory is shared.
    #[error("`{name}` is {kind:?} memory; other processes can reach uncached memory only")]
    NotUncached {
        /// The allocation.
        name: String,
        /// What it is.
        kind: MemoryKind,
    },
    /// An import is exported by its owner.
    #[error("`{name}` belongs to another process and cannot be exported from here")]
    NotOwn {
        /// The allocation.
        name: String,
    },
    /// No import starts there.
    #[error("no import of another process's memory starts at {address:#x}")]
    NotImported {
        /// The address.
        address: u64,
    },
    /// An import is not freed.
    #[error("`{name}` at {address:#x} is another process's memory and cannot be freed here")]
    Imported {
        /// The allocation.
        name: String,
        /// Its address.
        address: u64,
    },
    /// Not one of ours.
    #[error("the {PEER_HANDLE_BYTES} bytes are no handle of shared memory")]
    Foreign,
    /// Of the other kind.
    #[error("the handle is of {found}, not of {needed}")]
    WrongKind {
        /// Found.
        found: HandleKind,
        /// Needed.
        needed: HandleKind,
    },
    /// A process's own.
    #[error("the handle was made by this very process")]
    OwnProcess,
    /// The owner is no more.
    #[error("process {process}, which made the handle, has ended")]
    Ended {
        /// The owner.
        process: u32,
    },
    /// The owner lives but has freed it.
    #[error("process {process} no longer has what the handle is of")]
    Stale {
        /// The owner.
        process: u32,
    },
    /// Not the size that the handle says.
    #[error("process {process} shares {found} bytes where its handle says {needed}")]
    Truncated {
        /// The owner.
        process: u32,
        /// Bytes of the file.
        found: u64,
        /// Bytes that it must have.
        needed: u64,
    },
    /// The host refuses.
    #[error("memory of process {process} cannot be reached: {reason}")]
    Unreachable {
        /// The owner.
        process: u32,
        /// The host's words.
        reason: String,
    },
}

impl PeerError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotUncached { .. } => "allocate what peers reach as uncached memory",
            Self::NotOwn { .. } => "pass on the handle that its owner made",
            Self::NotImported { .. } => "pass the address that `import_peer` gave, once for each import",
            Self::Imported { .. } => "end an import with `close_peer`",
            Self::Foreign => "pass the bytes that `export_peer` or `create_world` gave, unchanged",
            Self::WrongKind { .. } => "pass each handle to what takes its kind",
            Self::OwnProcess => "within a process use `map_peer`; every rank reaches its memory already",
            Self::Ended { .. } => "start all ranks again; a dead one's memory is gone",
            Self::Stale { .. } => "export again, and import before the owner frees it",
            Self::Truncated { .. } => "exchange the handles again; their bytes were changed on the way",
            Self::Unreachable { .. } => {
                "run all ranks as one user in one pid namespace, with `/proc` mounted and files enough"
            }
        }
    }
}

/// The contents of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    kind: HandleKind,
    process: u32,
    descriptor: u32,
    bytes: u64,
    started: u64,
    nonce: [u8; 16],
}

impl Parts {
    fn encode(&self) -> PeerHandle {
        let mut bytes = MAGIC.to_vec();
        bytes.push(self.kind as u8);
        bytes.extend_from_slice(&self.process.to_le_bytes());
        bytes.extend_from_slice(&self.descriptor.to_le_bytes());
        bytes.extend_from_slice(&self.bytes.to_le_bytes());
        bytes.extend_from_slice(&self.started.to_le_bytes());
        bytes.extend_from_slice(&self.nonce);
        let mut handle = [0; PEER_HANDLE_BYTES];
        handle[..bytes.len()].copy_from_slice(&bytes);
        PeerHandle(handle)
    }

    fn decode(handle: &PeerHandle) -> Option<Self> {
        let rest = handle.0.strip_prefix(MAGIC)?;
        let (&kind, rest) = rest.split_first()?;
        let kind = HandleKind::ALL.into_iter().find(|&known| known as u8 == kind)?;
        let (process, rest) = rest.split_first_chunk()?;
        let (descriptor, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let (started, rest) = rest.split_first_chunk()?;
        let (&nonce, rest) = rest.split_first_chunk()?;
        let parts = Self {
            kind,
            process: u32::from_le_bytes(*process),
            descriptor: u32::from_le_bytes(*descriptor),
            bytes: u64::from_le_bytes(*bytes),
            started: u64::from_le_bytes(*started),
            nonce,
        };
        rest.iter().all(|&byte| byte == 0).then_some(parts)
    }
}

/// A handle of a segment of this process.
pub(super) fn handle_of(segment: &Segment, kind: HandleKind) -> PeerHandle {
    let process = std::process::id();
    let (descriptor, bytes, nonce) = (segment.descriptor() as u32, segment.bytes(), segment.nonce());
    Parts { kind, process, descriptor, bytes, started: life::started(process).unwrap_or(0), nonce }.encode()
}

/// Maps what another process's handle is of; the owner's number beside it.
pub(super) fn open(handle: &PeerHandle, needed: HandleKind) -> Result<(Segment, u32), PeerError> {
    let parts = Parts::decode(handle).ok_or(PeerError::Foreign)?;
    let Parts { kind, process, descriptor, bytes, .. } = parts;
    if kind != needed {
        return Err(PeerError::WrongKind { found: kind, needed });
    }
    // Ranks of one process may sit at one board; its memory is mapped already, and a world is of processes.
    if process == std::process::id() && kind != HandleKind::Board {
        return Err(PeerError::OwnProcess);
    }
    let unreachable = |error: io::Error| PeerError::Unreachable { process, reason: error.to_string() };
    if life::started(process) != Some(parts.started) {
        return Err(PeerError::Ended { process });
    }
    let path = format!("/proc/{process}/fd/{descriptor}");
    // Looked at first: to open whatever has that number now could block, or do something.
    match fs::read_link(&path) {
        Ok(target) if target.to_string_lossy().starts_with(&format!("/memfd:{FILE_NAME}")) => {}
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unreachable(error)),
        Ok(_) | Err(_) => return Err(PeerError::Stale { process }),
    }
    let file = OpenOptions::new().read(true).write(true).open(&path).map_err(unreachable)?;
    let found = file.metadata().map_err(unreachable)?.len();
    let needed = Segment::file_bytes(bytes).unwrap_or(u64::MAX);
    if found != needed {
        return Err(PeerError::Truncated { process, found, needed });
    }
    let segment = Segment::open(file, bytes).map_err(unreachable)?;
    if segment.nonce() != parts.nonce {
        return Err(PeerError::Stale { process });
    }
    Ok((segment, process))
}

/// A mapped import and how many times it was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Import {
    handle: PeerHandle,
    address: u64,
    count: u32,
}

impl Emulator {
    pub(super) fn export(&mut self, address: DeviceAddress) -> Result<PeerHandle, EmulatorError> {
        let allocation = self.shared.memory.starting_at_mut(address.0);
        let allocation = allocation.ok_or(EmulatorError::NotAnAllocation { address: address.0 })?;
        if self.imports.iter().any(|import| import.address == address.0) {
            return Err(PeerError::NotOwn { name: allocation.name.clone() }.into());
        }
        let (name, kind) = (allocation.name.clone(), allocation.kind);
        let segment = allocation.share().ok_or(PeerError::NotUncached { name, kind })?;
        let handle = handle_of(segment, HandleKind::Memory);
        self.shared.memory.note_shared();
        Ok(handle)
    }

    /// The same handle imported again, for whatever rank, is the same mapping: every rank reaches all memory.
    pub(super) fn import(&mut self, handle: &PeerHandle, rank: Rank) -> Result<DeviceAddress, EmulatorError> {
        self.check_rank(rank)?;
        if let Some(import) = self.imports.iter_mut().find(|import| import.handle == *handle) {
            import.count += 1;
            return Ok(DeviceAddress(import.address));
        }
        let (segment, process) = open(handle, HandleKind::Memory)?;
        let name = format!("peer buffer of process {process}");
        let what = Description { rank, kind: MemoryKind::Uncached, name, is_initialised: true };
        let address = self.shared.memory.adopt(segment, what)?;
        self.imports.push(Import { handle: *handle, address, count: 1 });
        Ok(DeviceAddress(address))
    }

    pub(super) fn close(&mut self, address: DeviceAddress) -> Result<(), EmulatorError> {
        let address = address.0;
        let index = self.imports.iter().position(|import| import.address == address);
        let index = index.ok_or(PeerError::NotImported { address })?;
        self.imports[index].count -= 1;
        if self.imports[index].count > 0 {
            return Ok(());
        }
        self.imports.swap_remove(index);
        self.forget_races(address);
        self.shared.memory.remove(address)
    }

    /// Refuses to free what is another process's.
    pub(super) fn check_own(&self, address: u64) -> Result<(), EmulatorError> {
        let imported = self.imports.iter().any(|import| import.address == address);
        let allocation = self.shared.memory.starting_at(address).filter(|_| imported);
        allocation.map_or(Ok(()), |found| Err(PeerError::Imported { name: found.name.clone(), address }.into()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn handles_come_back(process: u32, descriptor: u32, bytes: u64, started: u64, nonce: [u8; 16]) {
            for kind in HandleKind::ALL {
                let parts = Parts { kind, process, descriptor, bytes, started, nonce };
                prop_assert_eq!(Parts::decode(&parts.encode()), Some(parts));
            }
        }

        #[test]
        fn other_bytes_are_refused(bytes: [u8; 32]) {
            let mut handle = [0; PEER_HANDLE_BYTES];
            handle[..32].copy_from_slice(&bytes);
            handle[32..].copy_from_slice(&bytes);
            prop_assert_eq!(open(&PeerHandle(handle), HandleKind::Memory).err(), Some(PeerError::Foreign));
        }
    }
}
