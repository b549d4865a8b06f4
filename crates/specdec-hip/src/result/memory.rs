//! Memory of a device and of the host, shared between processes, and copies.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use super::{check, take, Handle};
use crate::sys::{
    Entry, Functions, IpcHandle, MallocWithFlags, COPY_DEFAULT, HOST_MALLOC_COHERENT, HOST_REGISTER_PORTABLE_MAPPED,
    IPC_HANDLE_BYTES, IPC_LAZY_PEER_ACCESS, MALLOC_UNCACHED,
};
use crate::HipError;

/// An IPC handle of uncached memory wants whole pages.
pub const PAGE_BYTES: usize = 4096;

fn with_flags(
    functions: &Functions,
    entry: &Entry<MallocWithFlags>,
    bytes: usize,
    flags: c_uint,
) -> Result<Handle, HipError> {
    let call = functions.require(entry)?;
    let mut address = null_mut();
    // SAFETY: `call` writes one pointer through its first argument, which is valid for it.
    let status = unsafe { call(&raw mut address, bytes, flags) };
    check(functions, entry.name, status).map(|()| Handle::of(address))
}

pub fn allocate(functions: &Functions, bytes: usize) -> Result<Handle, HipError> {
    let call = functions.require(&functions.malloc)?;
    let mut address = null_mut();
    // SAFETY: `call` writes one pointer through its first argument, which is valid for it.
    let status = unsafe { call(&raw mut address, bytes) };
    check(functions, functions.malloc.name, status).map(|()| Handle::of(address))
}

/// Uncached memory of whole pages.
pub fn allocate_uncached(functions: &Functions, bytes: usize) -> Result<Handle, HipError> {
    let bytes = bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(bytes);
    with_flags(functions, &functions.malloc_with_flags, bytes, MALLOC_UNCACHED)
}

pub fn free(functions: &Functions, address: Handle) -> Result<(), HipError> {
    take(functions, &functions.free, address)
}

/// Pinned host memory that every device reaches.
pub fn allocate_pinned(functions: &Functions, bytes: usize) -> Result<Handle, HipError> {
    with_flags(functions, &functions.host_malloc, bytes, HOST_MALLOC_COHERENT)
}

pub fn free_pinned(functions: &Functions, address: Handle) -> Result<(), HipError> {
    take(functions, &functions.host_free, address)
}

/// Pins host memory that is there already.
///
/// # Safety
/// `address..address + bytes` stays where it is and alive until [`unregister`].
pub unsafe fn register(functions: &Functions, address: Handle, bytes: usize) -> Result<(), HipError> {
    let call = functions.require(&functions.host_register)?;
    // SAFETY: the caller's contract.
    let status = unsafe { call(address.raw(), bytes, HOST_REGISTER_PORTABLE_MAPPED) };
    check(functions, functions.host_register.name, status)
}

pub fn unregister(functions: &Functions, address: Handle) -> Result<(), HipError> {
    take(functions, &functions.host_unregister, address)
}

/// Where the thread's device sees pinned host memory.
pub fn device_pointer(functions: &Functions, host: Handle) -> Result<Handle, HipError> {
    let call = functions.require(&functions.host_device_pointer)?;
    let mut address = null_mut();
    // SAFETY: `call` writes one pointer through its first argument; `host` is pinned memory that its owner keeps.
    let status = unsafe { call(&raw mut address, host.raw(), 0) };
    check(functions, functions.host_device_pointer.name, status).map(|()| Handle::of(address))
}

/// The handle by which another process can import memory while this one keeps it.
pub fn export(functions: &Functions, address: Handle) -> Result<[u8; IPC_HANDLE_BYTES], HipError> {
    let call = functions.require(&functions.ipc_get)?;
    let mut handle = IpcHandle([0; IPC_HANDLE_BYTES]);
    // SAFETY: `call` writes one handle through the pointer, which is valid for it; the owner keeps the memory.
    let status = unsafe { call(&raw mut handle, address.raw()) };
    check(functions, functions.ipc_get.name, status).map(|()| handle.0)
}

/// Makes another process's memory reachable from the thread's device.
pub fn import(functions: &Functions, handle: [u8; IPC_HANDLE_BYTES]) -> Result<Handle, HipError> {
    let call = functions.require(&functions.ipc_open)?;
    let mut address = null_mut();
    // SAFETY: `call` writes one pointer through its first argument, which is valid for it; a handle is plain bytes.
    let status = unsafe { call(&raw mut address, IpcHandle(handle), IPC_LAZY_PEER_ACCESS) };
    check(functions, functions.ipc_open.name, status).map(|()| Handle::of(address))
}

pub fn close_import(functions: &Functions, address: Handle) -> Result<(), HipError> {
    take(functions, &functions.ipc_close, address)
}

/// Copies at once.
///
/// # Safety
/// Both ranges hold `bytes`, `to` is writable, and nothing queued touches them.
pub unsafe fn copy(functions: &Functions, to: Handle, from: *const c_void, bytes: usize) -> Result<(), HipError> {
    let call = functions.require(&functions.copy)?;
    // SAFETY: the caller's contract.
    let status = unsafe { call(to.raw(), from, bytes, COPY_DEFAULT) };
    check(functions, functions.copy.name, status)
}

/// Queues a copy.
///
/// # Safety
/// Both ranges hold `bytes`, stay until the stream has passed the copy, and pinned or device memory is at both ends.
pub unsafe fn copy_async(
    functions: &Functions,
    to: Handle,
    from: Handle,
    bytes: usize,
    stream: Handle,
) -> Result<(), HipError> {
    let call = functions.require(&functions.copy_async)?;
    // SAFETY: the caller's contract.
    let status = unsafe { call(to.raw(), from.raw(), bytes, COPY_DEFAULT, stream.raw()) };
    check(functions, functions.copy_async.name, status)
}

/// Fills memory with a byte, on the null stream.
///
/// # Safety
/// `address..address + bytes` is device memory that its owner keeps.
pub unsafe fn fill(functions: &Functions, address: Handle, byte: u8, bytes: usize) -> Result<(), HipError> {
    let call = functions.require(&functions.fill)?;
    // SAFETY: the caller's contract.
    let status = unsafe { call(address.raw(), c_int::from(byte), bytes) };
    check(functions, functions.fill.name, status)
}

/// Queues filling memory with a byte.
///
/// # Safety
/// `address..address + bytes` is device memory that stays until the stream has passed this.
pub unsafe fn fill_async(
    functions: &Functions,
    address: Handle,
    byte: u8,
    bytes: usize,
    stream: Handle,
) -> Result<(), HipError> {
    let call = functions.require(&functions.fill_async)?;
    // SAFETY: the caller's contract.
    let status = unsafe { call(address.raw(), c_int::from(byte), bytes, stream.raw()) };
    check(functions, functions.fill_async.name, status)
}
