//! The memory that a driver holds, by address.

use std::collections::BTreeMap;
use std::sync::Arc;

use specdec_core::ids::{DeviceAddress, Rank};

use crate::memory::{DeviceMemory, ImportedMemory, PinnedMemory, RegisteredMemory};
use crate::HipError;

/// Memory of one kind or another.
#[derive(Debug)]
pub enum HeldMemory {
    Device(DeviceMemory),
    /// Shared with the words of it that were asked for.
    Pinned(Arc<PinnedMemory>),
    Registered(RegisteredMemory),
}

impl HeldMemory {
    pub fn address(&self) -> DeviceAddress {
        match self {
            Self::Device(memory) => memory.address(),
            Self::Pinned(memory) => memory.address(),
            Self::Registered(memory) => memory.address(),
        }
    }

    /// Gives it back and says how that went.
    pub fn release(self) -> Result<(), HipError> {
        match self {
            Self::Device(memory) => memory.release(),
            // A word that is still held keeps it.
            Self::Pinned(memory) => Arc::try_unwrap(memory).map_or(Ok(()), PinnedMemory::release),
            Self::Registered(memory) => memory.release(),
        }
    }
}

/// Memory by the address where it starts.
#[derive(Debug, Default)]
pub struct Held {
    own: BTreeMap<u64, (Rank, HeldMemory)>,
    /// Two ranks of a process may import the same memory, at one address.
    imports: BTreeMap<u64, Vec<ImportedMemory>>,
}

impl Held {
    pub fn insert(&mut self, address: DeviceAddress, rank: Rank, memory: HeldMemory) {
        self.own.insert(address.0, (rank, memory));
    }

    pub fn remove(&mut self, address: DeviceAddress) -> Result<HeldMemory, HipError> {
        let found = self.own.remove(&address.0);
        found.map(|(_, memory)| memory).ok_or(HipError::NotHeld { address, rank: None })
    }

    pub fn at(&self, address: DeviceAddress) -> Result<&HeldMemory, HipError> {
        let found = self.own.get(&address.0);
        found.map(|(_, memory)| memory).ok_or(HipError::NotHeld { address, rank: None })
    }

    /// Checks that `rank` holds something that starts at an address.
    pub fn of_rank(&self, address: DeviceAddress, rank: Rank) -> Result<(), HipError> {
        let found = self.own.get(&address.0).filter(|(owner, _)| *owner == rank);
        found.map(|_| ()).ok_or(HipError::NotHeld { address, rank: Some(rank) })
    }

    /// The pinned memory that holds an address, and the offset there.
    pub fn pinned(&self, address: DeviceAddress) -> Option<(&Arc<PinnedMemory>, u64)> {
        let (start, (_, memory)) = self.own.range(..=address.0).next_back()?;
        match memory {
            HeldMemory::Pinned(memory) if address.0 - start < memory.bytes() => Some((memory, address.0 - start)),
            _ => None,
        }
    }

    pub fn insert_import(&mut self, memory: ImportedMemory) -> DeviceAddress {
        let address = memory.address();
        self.imports.entry(address.0).or_default().push(memory);
        address
    }

    pub fn remove_import(&mut self, address: DeviceAddress) -> Result<ImportedMemory, HipError> {
        let imports = self.imports.get_mut(&address.0);
        let found = imports.and_then(Vec::pop).ok_or(HipError::NotHeld { address, rank: None })?;
        self.imports.retain(|_, imports| !imports.is_empty());
        Ok(found)
    }
}
