//! The loaded library and what it says of its devices.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::result::device;
use crate::shared::Shared;
use crate::sys::{self, Functions};
use crate::HipError;

/// A loaded HIP library; clones are the same one.
#[derive(Clone, Debug)]
pub struct Hip {
    pub(crate) shared: Arc<Shared>,
}

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Its marketing name.
    pub name: String,
    /// Its place, as `0000:75:00.0`.
    pub pci: String,
    /// Compute units; a CU mask does not show here.
    pub compute_units: u32,
    /// Lanes of a wave.
    pub wave_size: u32,
    /// LDS that one workgroup may have, in bytes.
    pub lds_bytes: u32,
    /// Free memory in bytes.
    pub free_bytes: u64,
    /// All memory in bytes.
    pub total_bytes: u64,
}

impl Hip {
    /// Loads the library: the one that the process has, else by its versioned names, else below `ROCM_PATH`.
    pub fn load() -> Result<Self, HipError> {
        Functions::load(&sys::candidates()).map(Self::of)
    }

    /// Loads the library at a path.
    pub fn open(path: &Path) -> Result<Self, HipError> {
        Functions::load(&[path.into()]).map(Self::of)
    }

    fn of(functions: Functions) -> Self {
        Self { shared: Shared::new(functions) }
    }

    /// Where [`Hip::load`] looks, in order.
    pub fn candidates() -> Vec<PathBuf> {
        sys::candidates()
    }

    /// Names of every HIP function that this crate calls.
    pub const fn functions() -> &'static [&'static str] {
        sys::NAMES
    }

    /// What it was loaded as.
    pub fn path(&self) -> &Path {
        &self.shared.functions.path
    }

    /// Devices of this process.
    pub fn device_count(&self) -> Result<u32, HipError> {
        device::count(&self.shared.functions)
    }

    /// Driver version as HIP numbers it.
    pub fn driver_version(&self) -> Result<u32, HipError> {
        device::driver_version(&self.shared.functions)
    }

    /// Runtime version as HIP numbers it.
    pub fn runtime_version(&self) -> Result<u32, HipError> {
        device::runtime_version(&self.shared.functions)
    }

    /// What a device says of itself. Its architecture is not asked for: the call that knows it fills a structure whose
    /// layout changes between releases; [`crate::topology`] has it from the kernel driver.
    pub fn device_facts(&self, ordinal: u32) -> Result<DeviceFacts, HipError> {
        let functions = &self.shared.functions;
        let _scope = self.shared.enter(ordinal)?;
        let (free_bytes, total_bytes) = device::memory_info(functions)?;
        Ok(DeviceFacts {
            name: device::name(functions, ordinal)?,
            pci: device::pci_bus_id(functions, ordinal)?,
            compute_units: device::compute_units(functions, ordinal)?,
            wave_size: device::wave_size(functions, ordinal)?,
            lds_bytes: device::lds_bytes(functions, ordinal)?,
            free_bytes,
            total_bytes,
        })
    }

    /// Whether `device` can reach `peer`'s memory.
    pub fn can_access_peer(&self, device: u32, peer: u32) -> Result<bool, HipError> {
        device::can_access_peer(&self.shared.functions, device, peer)
    }

    /// The calling thread's device, which no call of this crate changes for longer than it takes.
    pub fn current_device(&self) -> Result<u32, HipError> {
        device::get(&self.shared.functions)
    }

    /// Waits for everything on a device, whoever queued it.
    pub fn synchronize_device(&self, ordinal: u32) -> Result<(), HipError> {
        let _scope = self.shared.enter(ordinal)?;
        device::synchronize(&self.shared.functions)
    }
}
