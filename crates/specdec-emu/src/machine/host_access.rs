//! How the host and copies reach guest memory, and what memory that processes share needs beside.

use super::error::EmulatorError;
use super::memory::Memory;

impl Memory {
    /// The host's view of a range, written or not.
    pub fn host_read(&self, address: u64, into: &mut [u8]) -> Result<(), EmulatorError> {
        let (index, offset) = self.host_check(address, into.len() as u64)?;
        self.at(index).read(offset, into);
        Ok(())
    }

    /// Writes a range for the host.
    pub fn host_write(&mut self, address: u64, from: &[u8]) -> Result<(), EmulatorError> {
        let (index, offset) = self.host_check(address, from.len() as u64)?;
        let allocation = self.at_mut(index);
        allocation.write(offset, from);
        let is_shared = allocation.segment().is_some();
        self.has_stored_shared |= is_shared;
        Ok(())
    }

    /// Checks the host's access; the allocation's index and the offset there.
    pub fn host_check(&self, address: u64, bytes: u64) -> Result<(usize, u64), EmulatorError> {
        let refused = || EmulatorError::HostAccess { address, bytes, near: self.near(address) };
        self.check("host access", address, bytes).map_err(|_| refused())
    }

    /// An allocation has become shared.
    pub fn note_shared(&mut self) {
        self.has_shared = true;
    }

    /// Replaces four or eight bytes by what `change` makes of them; the old value. One operation, for other processes
    /// too, where the memory is shared.
    pub fn update(&mut self, address: u64, bytes: usize, change: impl Fn(u64) -> u64) -> Result<u64, EmulatorError> {
        if self.has_shared {
            let (index, offset) = self.check("atomic", address, bytes as u64)?;
            let old = self.at(index).segment().map(|segment| segment.update(offset, bytes, &change));
            self.has_stored_shared |= old.is_some();
            if let Some(old) = old {
                return Ok(old);
            }
        }
        let mut value = [0; 8];
        self.load("atomic", address, &mut value[..bytes])?;
        let old = u64::from_le_bytes(value);
        self.store("atomic", address, &change(old).to_le_bytes()[..bytes])?;
        Ok(old)
    }

    /// What a line holds, if other processes may change it; `None` for other lines.
    pub fn shared_line(&self, address: u64) -> Option<[u64; 8]> {
        let allocation = self.at(self.find(address)?);
        allocation.segment().map(|segment| segment.line(address - allocation.base))
    }
}
