//! A workgroup's LDS: bytes, which of them are written, and which a DMA still has to deliver.

use std::cell::RefCell;

use super::error::EmulatorError;
use super::location::Location;
use super::races::LocalShadow;
use super::written::Written;

/// One workgroup's local data share.
#[derive(Debug)]
pub(super) struct Lds {
    bytes: Vec<u8>,
    written: Written,
    /// Bytes that an LDS DMA will fill, and how many; the map is only looked at while there are some.
    in_flight: Written,
    num_in_flight: u64,
    /// The race check's part, when it is on.
    pub races: Option<Box<RefCell<LocalShadow>>>,
}

impl Lds {
    /// LDS of a new workgroup: nothing is written.
    pub fn new(bytes: u32) -> Self {
        let map = Written::none(bytes as u64).unwrap_or_default();
        Self { bytes: vec![0; bytes as usize], written: map.clone(), in_flight: map, num_in_flight: 0, races: None }
    }

    fn check(&self, access: &'static str, address: u64, bytes: usize) -> Result<(), EmulatorError> {
        let lds_bytes = self.bytes.len() as u64;
        if address.checked_add(bytes as u64).is_none_or(|end| end > lds_bytes) {
            let at = Location::unknown();
            return Err(EmulatorError::LdsOutOfRange { access, address, bytes: bytes as u64, lds_bytes, at });
        }
        if self.num_in_flight > 0 && self.in_flight.touches(address, bytes as u64) {
            return Err(EmulatorError::LdsInFlight { access, address, bytes: bytes as u64, at: Location::unknown() });
        }
        Ok(())
    }

    /// Reads written bytes.
    #[inline]
    pub fn load<const N: usize>(&self, address: u64) -> Result<[u8; N], EmulatorError> {
        self.check("load", address, N)?;
        if !self.written.covers(address, N as u64) {
            return Err(EmulatorError::LdsNeverWritten { address, bytes: N as u64, at: Location::unknown() });
        }
        let mut value = [0; N];
        value.copy_from_slice(&self.bytes[address as usize..][..N]);
        Ok(value)
    }

    /// The bytes from `low` to before `end`, if nothing stands against reading any of them.
    #[inline]
    pub fn readable(&self, low: u64, end: u64) -> Option<&[u8]> {
        let is_free = self.num_in_flight == 0 && end <= self.bytes.len() as u64 && self.written.covers(low, end - low);
        is_free.then(|| &self.bytes[low as usize..end as usize])
    }

    /// Writes bytes.
    #[inline]
    pub fn store(&mut self, address: u64, value: &[u8]) -> Result<(), EmulatorError> {
        self.check("store", address, value.len())?;
        if let Some(races) = &self.races {
            let changes = self.bytes[address as usize..][..value.len()] != *value
                || !self.written.covers(address, value.len() as u64);
            races.borrow_mut().write(address, value.len(), changes);
        }
        self.written.mark(address, value.len() as u64);
        self.bytes[address as usize..][..value.len()].copy_from_slice(value);
        Ok(())
    }

    /// A DMA that will fill these bytes was issued: until it is waited for, nobody may touch them.
    pub fn begin_dma(&mut self, address: u64, bytes: usize) -> Result<(), EmulatorError> {
        self.check("DMA", address, bytes)?;
        self.in_flight.mark(address, bytes as u64);
        self.num_in_flight += bytes as u64;
        Ok(())
    }

    /// The DMA delivers.
    pub fn finish_dma(&mut self, address: u64, value: &[u8]) {
        self.in_flight.unmark(address, value.len() as u64);
        self.num_in_flight -= value.len() as u64;
        self.written.mark(address, value.len() as u64);
        self.bytes[address as usize..][..value.len()].copy_from_slice(value);
    }
}
