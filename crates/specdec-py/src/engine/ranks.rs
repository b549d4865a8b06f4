//! The ranks of a process on any device: what differs between devices is here, and nowhere else.

use pyo3::prelude::*;
use specdec_core::device::Device;
use specdec_core::engine::{Engine, Unlinked};
use specdec_core::ids::{DeviceAddress, Rank};
use specdec_core::null_device::NullDevice;
use specdec_emu::machine::{AbortHandle, Emulator};
use specdec_hip::{HipDevice, PinnedWord};

use crate::error::{self, Raised};

/// Ranks that reach each other, and the graphs that were captured on them.
pub struct Linked<D: Device> {
    // Before the memory that they use.
    pub graphs: Vec<(Rank, D::Graph)>,
    pub engine: Engine<D>,
}

/// Ranks with memory and code that do not reach each other yet.
#[expect(clippy::large_enum_variant, reason = "a process has one, and it does not move")]
pub enum Apart {
    Emulator(Unlinked<Emulator>),
    Hip(Unlinked<HipDevice>),
    Null(Unlinked<NullDevice>),
}

/// Ranks that can launch.
#[expect(clippy::large_enum_variant, reason = "a process has one, and it does not move")]
pub enum Ranks {
    Emulator(Linked<Emulator>),
    Hip(Linked<HipDevice>),
    Null(Linked<NullDevice>),
}

/// The same expression for the ranks of whichever device there is: `$value` is an [`Apart`] or a [`Ranks`], by `$kind`.
macro_rules! on_device {
    ($kind:ident, $value:expr, $ranks:pat => $body:expr) => {
        match $value {
            $kind::Emulator($ranks) => $body,
            $kind::Hip($ranks) => $body,
            $kind::Null($ranks) => $body,
        }
    };
}
pub(crate) use on_device;

/// The same for the engine of a `PyEngine`.
macro_rules! on_engine {
    ($ranks:expr, $engine:pat => $body:expr) => {
        on_device!(Ranks, &mut *$ranks.lock(), Linked { engine: $engine, .. } => $body)
    };
}
pub(crate) use on_engine;

/// What asks the waits of a device's kernels to give up, from any thread.
#[derive(Debug)]
pub enum AbortWords {
    Emulator(AbortHandle),
    Pinned(Vec<PinnedWord>),
}

impl AbortWords {
    /// Sets them.
    pub fn set(&self) {
        match self {
            Self::Emulator(handle) => handle.abort(),
            Self::Pinned(words) => words.iter().for_each(|word| word.store(1)),
        }
    }
}

/// What the binding needs of a device beside [`Device`].
pub trait HostDevice: Device<Error: Raised> + Sized {
    /// Makes memory of the host reachable in place; returns the address that the rank uses.
    ///
    /// # Safety
    /// `address..address + bytes` stays where it is and alive until `unregister` or the end of the device.
    unsafe fn register(
        &mut self,
        rank: Rank,
        address: u64,
        bytes: u64,
        name: &str,
        is_initialised: bool,
    ) -> Result<DeviceAddress, Self::Error>;

    /// Ends a registration, by the address that `register` returned.
    fn unregister(&mut self, address: DeviceAddress) -> Result<(), Self::Error>;

    /// What sets the abort words of these ranks.
    fn abort_words(engine: &Engine<Self>) -> PyResult<AbortWords>;

    /// Queues to somebody else's stream from now on, where the device has such.
    ///
    /// # Safety
    /// That of [`HipDevice::set_stream`].
    unsafe fn set_stream(&mut self, _rank: Rank, _raw: usize) -> PyResult<()> {
        let message = "this device has no streams but its own".into();
        Err(error::refused(message, "make the ranks with `device=\"hip\"`"))
    }
}

impl HostDevice for Emulator {
    unsafe fn register(
        &mut self,
        rank: Rank,
        address: u64,
        bytes: u64,
        name: &str,
        is_initialised: bool,
    ) -> Result<DeviceAddress, Self::Error> {
        // SAFETY: the caller's contract.
        unsafe { Self::register(self, address, bytes, rank, name, is_initialised) }?;
        Ok(DeviceAddress(address))
    }

    fn unregister(&mut self, address: DeviceAddress) -> Result<(), Self::Error> {
        Self::unregister(self, address.0)
    }

    fn abort_words(engine: &Engine<Self>) -> PyResult<AbortWords> {
        Ok(AbortWords::Emulator(engine.device.abort_handle()))
    }
}

impl HostDevice for HipDevice {
    unsafe fn register(
        &mut self,
        rank: Rank,
        address: u64,
        bytes: u64,
        _: &str,
        _: bool,
    ) -> Result<DeviceAddress, Self::Error> {
        let host = usize::try_from(address).unwrap_or(usize::MAX);
        // SAFETY: the caller's contract.
        unsafe { Self::register(self, rank, host, bytes) }
    }

    fn unregister(&mut self, address: DeviceAddress) -> Result<(), Self::Error> {
        Self::unregister(self, address)
    }

    fn abort_words(engine: &Engine<Self>) -> PyResult<AbortWords> {
        let word = |rank| {
            let address = engine.abort_word(rank).map_err(error::engine)?;
            engine.device.pinned_word(address).map_err(|e| e.raised())
        };
        engine.members().map(word).collect::<PyResult<_>>().map(AbortWords::Pinned)
    }

    unsafe fn set_stream(&mut self, rank: Rank, raw: usize) -> PyResult<()> {
        // SAFETY: the caller's contract.
        unsafe { Self::set_stream(self, rank, raw) }.map_err(|e| e.raised())
    }
}

impl HostDevice for NullDevice {
    unsafe fn register(
        &mut self,
        _: Rank,
        address: u64,
        _: u64,
        _: &str,
        _: bool,
    ) -> Result<DeviceAddress, Self::Error> {
        Ok(DeviceAddress(address))
    }

    fn unregister(&mut self, _: DeviceAddress) -> Result<(), Self::Error> {
        Ok(())
    }

    fn abort_words(_: &Engine<Self>) -> PyResult<AbortWords> {
        Ok(AbortWords::Pinned(Vec::new()))
    }
}
