//! Statuses as `Result`s: the only place that calls [`crate::sys`].

use std::ffi::{c_char, c_int, c_void, CStr};
use std::fmt;
use std::ptr::null_mut;

use crate::sys::{
    Entry, Functions, IntQuery, IpcHandle, PairQuery, Release, IPC_HANDLE_BYTES, IPC_LAZY_PEER_ACCESS, MALLOC_UNCACHED,
    MULTIPROCESSOR_COUNT,
};
use crate::HipError;

/// An IPC handle of uncached memory wants whole pages.
const PAGE_BYTES: usize = 4096;

/// A `hipError_t` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub i32);

impl Status {
    /// HIP's name for it, where it is one that this package's calls meet.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            1 => "hipErrorInvalidValue",
            2 => "hipErrorOutOfMemory",
            3 => "hipErrorNotInitialized",
            4 => "hipErrorDeinitialized",
            17 => "hipErrorInvalidDevicePointer",
            35 => "hipErrorInsufficientDriver",
            98 => "hipErrorInvalidDeviceFunction",
            100 => "hipErrorNoDevice",
            101 => "hipErrorInvalidDevice",
            201 => "hipErrorInvalidContext",
            205 => "hipErrorMapFailed",
            209 => "hipErrorNoBinaryForGpu",
            217 => "hipErrorPeerAccessUnsupported",
            304 => "hipErrorOperatingSystem",
            400 => "hipErrorInvalidHandle",
            700 => "hipErrorIllegalAddress",
            719 => "hipErrorLaunchFailure",
            801 => "hipErrorNotSupported",
            999 => "hipErrorUnknown",
            _ => return None,
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "status {}", self.0),
        }
    }
}

fn check(function: &'static str, status: c_int) -> Result<(), HipError> {
    if status == 0 {
        Ok(())
    } else {
        Err(HipError::Call { function, status: Status(status) })
    }
}

fn query(functions: &Functions, entry: &Entry<IntQuery>) -> Result<u32, HipError> {
    let call = functions.require(entry)?;
    let mut value: c_int = 0;
    // SAFETY: `call` writes one int through the pointer, which is valid for it.
    let status = unsafe { call(&raw mut value) };
    check(entry.name, status).map(|()| value.unsigned_abs())
}

fn query_pair(functions: &Functions, entry: &Entry<PairQuery>, first: c_int, second: c_int) -> Result<c_int, HipError> {
    let call = functions.require(entry)?;
    let mut value: c_int = 0;
    // SAFETY: `call` writes one int through the pointer, which is valid for it, and takes any numbers.
    let status = unsafe { call(&raw mut value, first, second) };
    check(entry.name, status).map(|()| value)
}

fn release(functions: &Functions, entry: &Entry<Release>, address: *mut c_void) -> Result<(), HipError> {
    let call = functions.require(entry)?;
    // SAFETY: `address` came from the call that this one undoes, and its only owner passes it here once.
    let status = unsafe { call(address) };
    check(entry.name, status)
}

pub fn device_count(functions: &Functions) -> Result<u32, HipError> {
    query(functions, &functions.device_count)
}

pub fn driver_version(functions: &Functions) -> Result<u32, HipError> {
    query(functions, &functions.driver_version)
}

pub fn runtime_version(functions: &Functions) -> Result<u32, HipError> {
    query(functions, &functions.runtime_version)
}

pub fn pci_bus_id(functions: &Functions, device: u32) -> Result<String, HipError> {
    let call = functions.require(&functions.pci_bus_id)?;
    // Zeroed, and one byte is kept from the call: the text ends in any case.
    let mut text: [c_char; 64] = [0; 64];
    // SAFETY: `call` writes at most as many bytes as it is told, fewer than the buffer has.
    let status = unsafe { call(text.as_mut_ptr(), text.len() as c_int - 1, device as c_int) };
    check(functions.pci_bus_id.name, status)?;
    // SAFETY: the buffer's last byte is zero, so the text ends inside it.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    Ok(text.to_string_lossy().into_owned())
}

pub fn compute_units(functions: &Functions, device: u32) -> Result<u32, HipError> {
    query_pair(functions, &functions.attribute, MULTIPROCESSOR_COUNT, device as c_int).map(c_int::unsigned_abs)
}

pub fn can_access_peer(functions: &Functions, device: u32, peer: u32) -> Result<bool, HipError> {
    query_pair(functions, &functions.can_access_peer, device as c_int, peer as c_int).map(|value| value != 0)
}

/// Makes `device` the calling thread's.
pub fn set_device(functions: &Functions, device: u32) -> Result<(), HipError> {
    let call = functions.require(&functions.set_device)?;
    // SAFETY: the call takes any number and refuses those of no device.
    let status = unsafe { call(device as c_int) };
    check(functions.set_device.name, status)
}

/// Free and all bytes of the thread's device.
pub fn memory_info(functions: &Functions) -> Result<(u64, u64), HipError> {
    let call = functions.require(&functions.memory_info)?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: `call` writes one `size_t` through each pointer, both valid for it.
    let status = unsafe { call(&raw mut free, &raw mut total) };
    check(functions.memory_info.name, status).map(|()| (free as u64, total as u64))
}

/// A page of uncached memory on the thread's device.
#[derive(Debug)]
pub struct UncachedPage<'a> {
    functions: &'a Functions,
    address: *mut c_void,
}

impl<'a> UncachedPage<'a> {
    pub fn allocate(functions: &'a Functions) -> Result<Self, HipError> {
        let call = functions.require(&functions.malloc_with_flags)?;
        let mut address = null_mut();
        // SAFETY: `call` writes one pointer through its first argument, which is valid for it.
        let status = unsafe { call(&raw mut address, PAGE_BYTES, MALLOC_UNCACHED) };
        check(functions.malloc_with_flags.name, status).map(|()| Self { functions, address })
    }

    /// The handle by which another process can import the page while this one keeps it.
    pub fn export(&self) -> Result<[u8; IPC_HANDLE_BYTES], HipError> {
        let call = self.functions.require(&self.functions.ipc_get)?;
        let mut handle = IpcHandle([0; IPC_HANDLE_BYTES]);
        // SAFETY: `call` writes one handle through the pointer, which is valid for it; the page is alive.
        let status = unsafe { call(&raw mut handle, self.address) };
        check(self.functions.ipc_get.name, status).map(|()| handle.0)
    }

    /// Gives the page back; dropped pages stay until the process ends, which a failed probe makes soon.
    pub fn free(self) -> Result<(), HipError> {
        release(self.functions, &self.functions.free, self.address)
    }
}

/// Imports another process's memory into the thread's device, and lets it go again.
pub fn import(functions: &Functions, handle: [u8; IPC_HANDLE_BYTES]) -> Result<(), HipError> {
    let call = functions.require(&functions.ipc_open)?;
    let mut address = null_mut();
    // SAFETY: `call` writes one pointer through its first argument, which is valid for it; a handle is plain bytes.
    let status = unsafe { call(&raw mut address, IpcHandle(handle), IPC_LAZY_PEER_ACCESS) };
    check(functions.ipc_open.name, status)?;
    release(functions, &functions.ipc_close, address)
}
