//! Devices: what they are, and which one is the thread's.

use std::ffi::{c_char, c_int, CStr};

use super::check;
use crate::sys::{
    DeviceText, Entry, Functions, IntQuery, PairQuery, MAX_SHARED_MEMORY_PER_BLOCK, MULTIPROCESSOR_COUNT,
    PEER_ACCESS_ALREADY_ENABLED, WARP_SIZE,
};
use crate::{HipError, Status};

fn query(functions: &Functions, entry: &Entry<IntQuery>) -> Result<u32, HipError> {
    let call = functions.require(entry)?;
    let mut value: c_int = 0;
    // SAFETY: `call` writes one int through the pointer, which is valid for it.
    let status = unsafe { call(&raw mut value) };
    check(functions, entry.name, status).map(|()| value.unsigned_abs())
}

fn query_pair(functions: &Functions, entry: &Entry<PairQuery>, first: c_int, second: c_int) -> Result<c_int, HipError> {
    let call = functions.require(entry)?;
    let mut value: c_int = 0;
    // SAFETY: `call` writes one int through the pointer, which is valid for it, and takes any numbers.
    let status = unsafe { call(&raw mut value, first, second) };
    check(functions, entry.name, status).map(|()| value)
}

fn text(functions: &Functions, entry: &Entry<DeviceText>, device: u32) -> Result<String, HipError> {
    let call = functions.require(entry)?;
    // Zeroed, and one byte is kept from the call: the text ends in any case.
    let mut text: [c_char; 128] = [0; 128];
    // SAFETY: `call` writes at most as many bytes as it is told, fewer than the buffer has.
    let status = unsafe { call(text.as_mut_ptr(), text.len() as c_int - 1, device as c_int) };
    check(functions, entry.name, status)?;
    // SAFETY: the buffer's last byte is zero, so the text ends inside it.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) };
    Ok(text.to_string_lossy().into_owned())
}

pub fn count(functions: &Functions) -> Result<u32, HipError> {
    query(functions, &functions.device_count)
}

pub fn driver_version(functions: &Functions) -> Result<u32, HipError> {
    query(functions, &functions.driver_version)
}

pub fn runtime_version(functions: &Functions) -> Result<u32, HipError> {
    query(functions, &functions.runtime_version)
}

pub fn pci_bus_id(functions: &Functions, device: u32) -> Result<String, HipError> {
    text(functions, &functions.pci_bus_id, device)
}

pub fn name(functions: &Functions, device: u32) -> Result<String, HipError> {
    text(functions, &functions.device_name, device)
}

fn attribute(functions: &Functions, attribute: c_int, device: u32) -> Result<u32, HipError> {
    query_pair(functions, &functions.attribute, attribute, device as c_int).map(c_int::unsigned_abs)
}

pub fn compute_units(functions: &Functions, device: u32) -> Result<u32, HipError> {
    attribute(functions, MULTIPROCESSOR_COUNT, device)
}

pub fn wave_size(functions: &Functions, device: u32) -> Result<u32, HipError> {
    attribute(functions, WARP_SIZE, device)
}

pub fn lds_bytes(functions: &Functions, device: u32) -> Result<u32, HipError> {
    attribute(functions, MAX_SHARED_MEMORY_PER_BLOCK, device)
}

pub fn can_access_peer(functions: &Functions, device: u32, peer: u32) -> Result<bool, HipError> {
    query_pair(functions, &functions.can_access_peer, device as c_int, peer as c_int).map(|value| value != 0)
}

/// Lets the thread's device reach `peer`'s memory; that it does already is fine.
pub fn enable_peer_access(functions: &Functions, peer: u32) -> Result<(), HipError> {
    let entry = &functions.enable_peer_access;
    let call = functions.require(entry)?;
    // SAFETY: the call takes any number and refuses those of no device; its flags must be 0.
    let status = unsafe { call(peer as c_int, 0) };
    match check(functions, entry.name, status) {
        Err(HipError::Call { status: Status(PEER_ACCESS_ALREADY_ENABLED), .. }) => Ok(()),
        result => result,
    }
}

/// Makes `device` the calling thread's.
pub fn set(functions: &Functions, device: u32) -> Result<(), HipError> {
    let call = functions.require(&functions.set_device)?;
    // SAFETY: the call takes any number and refuses those of no device.
    let status = unsafe { call(device as c_int) };
    check(functions, functions.set_device.name, status)
}

/// The calling thread's device.
pub fn get(functions: &Functions) -> Result<u32, HipError> {
    query(functions, &functions.get_device)
}

/// Waits for everything on the thread's device.
pub fn synchronize(functions: &Functions) -> Result<(), HipError> {
    let call = functions.require(&functions.device_synchronize)?;
    // SAFETY: the call takes nothing.
    let status = unsafe { call() };
    check(functions, functions.device_synchronize.name, status)
}

/// Free and all bytes of the thread's device.
pub fn memory_info(functions: &Functions) -> Result<(u64, u64), HipError> {
    let call = functions.require(&functions.memory_info)?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: `call` writes one `size_t` through each pointer, both valid for it.
    let status = unsafe { call(&raw mut free, &raw mut total) };
    check(functions, functions.memory_info.name, status).map(|()| (free as u64, total as u64))
}
