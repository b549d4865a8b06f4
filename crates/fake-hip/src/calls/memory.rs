//! Memory of devices and of the host, and memory that processes share.

use specdec_core::device::{Device, MemoryKind as Wanted, PeerHandle};
use specdec_core::ids::DeviceAddress;

use super::{calls, check_flags, give, number, pointer, Raw};
use crate::machine::{Machine, MemoryKind};
use crate::status::{
    emulated, refuse, Failure, Outcome, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED,
    INVALID_DEVICE_POINTER, INVALID_VALUE,
};

/// `hipDeviceMallocUncached`.
const UNCACHED: u32 = 0x3;
/// Portable and mapped, of registered memory, and coherent too, of pinned memory.
const PORTABLE_MAPPED: u32 = 0x3;
const PORTABLE_MAPPED_COHERENT: u32 = 0x4000_0003;
/// `hipIpcMemLazyEnablePeerAccess`.
const LAZY_PEER_ACCESS: u32 = 0x1;
const PAGE_BYTES: usize = 4096;

/// `hipIpcMemHandle_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Handle([u8; 64]);

impl Machine {
    fn take_memory(&mut self, kind: MemoryKind, wanted: Wanted, bytes: usize) -> Result<Raw, Failure> {
        self.forbid_in_capture("an allocation")?;
        let device = self.device()?;
        let (rank, bytes) = (Self::rank(device), bytes as u64);
        let name =
            format!("{} of {bytes:#x} bytes", if kind == MemoryKind::Pinned { "hipHostMalloc" } else { "hipMalloc" });
        let taken = match wanted {
            // Read before it is written, it stops the kernel that does so.
            Wanted::Device => self.emulator.allocate_unwritten(rank, wanted, bytes, &name),
            Wanted::Uncached | Wanted::HostPinned => self.emulator.allocate(rank, wanted, bytes, &name),
        };
        let address = taken.map_err(|error| emulated(&error))?;
        self.memory.entry(address.0).or_default().push((kind, device));
        Ok(pointer(address.0))
    }

    /// Takes one allocation of a kind off the list.
    fn end_memory(&mut self, kind: MemoryKind, call: &str, address: Raw) -> Result<DeviceAddress, Failure> {
        self.forbid_in_capture(call)?;
        self.forbid_while_busy(call)?;
        self.finish_null_stream()?;
        let address = number(address);
        let held = self.memory.get_mut(&address);
        let at = held.as_ref().and_then(|held| held.iter().position(|(found, _)| *found == kind));
        let (Some(held), Some(at)) = (held, at) else {
            let status =
                if kind == MemoryKind::Registered { HOST_MEMORY_NOT_REGISTERED } else { INVALID_DEVICE_POINTER };
            return refuse(status, format!("`{call}` of {address:#x}, which is not such memory"));
        };
        held.swap_remove(at);
        self.memory.retain(|_, held| !held.is_empty());
        Ok(DeviceAddress(address))
    }

    fn free_memory(&mut self, kind: MemoryKind, call: &str, address: Raw) -> Outcome {
        if address.is_null() {
            return Ok(());
        }
        let address = self.end_memory(kind, call, address)?;
        self.emulator.free(address).map_err(|error| emulated(&error))
    }
}

calls! {
    /// Memory of the thread's device.
    fn hipMalloc(machine, address: *mut Raw, bytes: usize) {
        let taken = machine.take_memory(MemoryKind::Device, Wanted::Device, bytes)?;
        // SAFETY: the caller's contract.
        unsafe { give(address, taken) }
    }

    /// Uncached memory of the thread's device, in whole pages, which other processes may import.
    fn hipExtMallocWithFlags(machine, address: *mut Raw, bytes: usize, flags: u32) {
        check_flags("hipExtMallocWithFlags", flags, UNCACHED)?;
        if bytes == 0 || !bytes.is_multiple_of(PAGE_BYTES) {
            return refuse(INVALID_VALUE, format!("{bytes} bytes are not whole pages"));
        }
        let taken = machine.take_memory(MemoryKind::Device, Wanted::Uncached, bytes)?;
        // SAFETY: the caller's contract.
        unsafe { give(address, taken) }
    }

    /// Gives device memory back.
    fn hipFree(machine, address: Raw) {
        machine.free_memory(MemoryKind::Device, "hipFree", address)
    }

    /// Pinned host memory.
    fn hipHostMalloc(machine, address: *mut Raw, bytes: usize, flags: u32) {
        check_flags("hipHostMalloc", flags, PORTABLE_MAPPED_COHERENT)?;
        let taken = machine.take_memory(MemoryKind::Pinned, Wanted::HostPinned, bytes)?;
        // SAFETY: the caller's contract.
        unsafe { give(address, taken) }
    }

    /// Gives pinned host memory back.
    fn hipHostFree(machine, address: Raw) {
        machine.free_memory(MemoryKind::Pinned, "hipHostFree", address)
    }

    /// Makes host memory reachable in place.
    fn hipHostRegister(machine, address: Raw, bytes: usize, flags: u32) {
        machine.forbid_in_capture("hipHostRegister")?;
        check_flags("hipHostRegister", flags, PORTABLE_MAPPED)?;
        let device = machine.device()?;
        let (start, rank) = (number(address), Machine::rank(device));
        let name = format!("registered memory of {bytes:#x} bytes");
        // SAFETY: the caller keeps the memory alive and in place until it unregisters it.
        let registered = unsafe { machine.emulator.register(start, bytes as u64, rank, &name, true) };
        registered.or_else(|error| refuse(HOST_MEMORY_ALREADY_REGISTERED, error.to_string()))?;
        machine.memory.entry(start).or_default().push((MemoryKind::Registered, device));
        Ok(())
    }

    /// Ends a registration.
    fn hipHostUnregister(machine, address: Raw) {
        let address = machine.end_memory(MemoryKind::Registered, "hipHostUnregister", address)?;
        machine.emulator.unregister(address.0).map_err(|error| emulated(&error))
    }

    /// Where a device sees pinned or registered memory: at the host's address.
    fn hipHostGetDevicePointer(machine, address: *mut Raw, host: Raw, flags: u32) {
        check_flags("hipHostGetDevicePointer", flags, 0)?;
        machine.device()?;
        let held = machine.memory.get(&number(host));
        let is_host = |(kind, _): &(MemoryKind, _)| matches!(kind, MemoryKind::Pinned | MemoryKind::Registered);
        if !held.is_some_and(|held| held.iter().any(is_host)) {
            return refuse(INVALID_VALUE, "no pinned or registered memory");
        }
        // SAFETY: the caller's contract.
        unsafe { give(address, host) }
    }

    /// What another process needs to import uncached memory.
    fn hipIpcGetMemHandle(machine, handle: *mut Handle, address: Raw) {
        machine.forbid_in_capture("hipIpcGetMemHandle")?;
        let start = number(address);
        let is_device = |(kind, _): &(MemoryKind, _)| *kind == MemoryKind::Device;
        if !machine.memory.get(&start).is_some_and(|held| held.iter().any(is_device)) {
            return refuse(INVALID_DEVICE_POINTER, format!("{start:#x} is no device memory"));
        }
        let exported = machine.emulator.export_peer(DeviceAddress(start)).map_err(|error| emulated(&error))?;
        // SAFETY: the caller's contract.
        unsafe { give(handle, Handle(exported.0)) }
    }

    /// Makes another process's memory reachable; a process cannot import its own.
    fn hipIpcOpenMemHandle(machine, address: *mut Raw, handle: Handle, flags: u32) {
        machine.forbid_in_capture("hipIpcOpenMemHandle")?;
        check_flags("hipIpcOpenMemHandle", flags, LAZY_PEER_ACCESS)?;
        let device = machine.device()?;
        let imported = machine.emulator.import_peer(&PeerHandle(handle.0), Machine::rank(device));
        let imported = imported.map_err(|error| emulated(&error))?;
        machine.memory.entry(imported.0).or_default().push((MemoryKind::Import, device));
        // SAFETY: the caller's contract.
        unsafe { give(address, pointer(imported.0)) }
    }

    /// Ends an import.
    fn hipIpcCloseMemHandle(machine, address: Raw) {
        let address = machine.end_memory(MemoryKind::Import, "hipIpcCloseMemHandle", address)?;
        machine.emulator.close_peer(address).map_err(|error| emulated(&error))
    }
}
