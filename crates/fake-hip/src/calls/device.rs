//! Devices: how many, what they are, which one is the thread's.

use std::ffi::{c_char, c_int, CString};

use super::{calls, give, SUCCESS};
use crate::machine::{process, Process, DEVICE, LAST_ERROR};
use crate::status::{refuse, words, Outcome, INVALID_VALUE, PEER_ACCESS_ALREADY_ENABLED};

const VERSION: c_int = 71_426_015;
const WAVE_SIZE: c_int = 64;
const TOTAL_BYTES: usize = 288 << 30;
const MULTIPROCESSOR_COUNT: c_int = 63;
const MAX_SHARED_MEMORY_PER_BLOCK: c_int = 74;
const WARP_SIZE: c_int = 87;

/// Writes a text of at most `bytes` bytes, its end included.
///
/// # Safety
/// `to` is valid for `bytes` bytes.
unsafe fn give_text(to: *mut c_char, bytes: c_int, text: &str) -> Outcome {
    let text = CString::new(text).unwrap_or_default();
    let text = text.as_bytes_with_nul();
    if to.is_null() || usize::try_from(bytes).unwrap_or(0) < text.len() {
        return refuse(INVALID_VALUE, "no room for the text");
    }
    // SAFETY: the caller's contract, and the text is no longer than that.
    unsafe { to.copy_from_nonoverlapping(text.as_ptr().cast(), text.len()) };
    Ok(())
}

calls! {
    /// Devices of this process.
    fn hipGetDeviceCount(machine, count: *mut c_int) {
        // SAFETY: the caller's contract.
        unsafe { give(count, machine.devices) }
    }

    /// The driver's version.
    fn hipDriverGetVersion(_machine, version: *mut c_int) {
        // SAFETY: the caller's contract.
        unsafe { give(version, VERSION) }
    }

    /// The runtime's version.
    fn hipRuntimeGetVersion(_machine, version: *mut c_int) {
        // SAFETY: the caller's contract.
        unsafe { give(version, VERSION) }
    }

    /// A device's place.
    fn hipDeviceGetPCIBusId(machine, text: *mut c_char, bytes: c_int, device: c_int) {
        machine.check_device(device)?;
        // SAFETY: the caller's contract.
        unsafe { give_text(text, bytes, &format!("0000:{:02X}:00.0", 0x75 + device)) }
    }

    /// A device's name.
    fn hipDeviceGetName(machine, text: *mut c_char, bytes: c_int, device: c_int) {
        machine.check_device(device)?;
        // SAFETY: the caller's contract.
        unsafe { give_text(text, bytes, "gfx950 emulator") }
    }

    /// A number about a device.
    fn hipDeviceGetAttribute(machine, value: *mut c_int, attribute: c_int, device: c_int) {
        machine.check_device(device)?;
        let model = machine.model;
        let found = match attribute {
            MULTIPROCESSOR_COUNT => model.compute_units as c_int,
            MAX_SHARED_MEMORY_PER_BLOCK => model.lds_bytes as c_int,
            WARP_SIZE => WAVE_SIZE,
            _ => return refuse(INVALID_VALUE, format!("attribute {attribute}")),
        };
        // SAFETY: the caller's contract.
        unsafe { give(value, found) }
    }

    /// Whether a device can reach another one's memory.
    fn hipDeviceCanAccessPeer(machine, can: *mut c_int, device: c_int, peer: c_int) {
        machine.check_device(device)?;
        machine.check_device(peer)?;
        // SAFETY: the caller's contract.
        unsafe { give(can, c_int::from(device != peer)) }
    }

    /// Lets the thread's device reach another one's memory.
    fn hipDeviceEnablePeerAccess(machine, peer: c_int, flags: u32) {
        machine.forbid_in_capture("hipDeviceEnablePeerAccess")?;
        machine.check_device(peer)?;
        let device = machine.device()?;
        if flags != 0 || peer == device {
            return refuse(INVALID_VALUE, format!("peer {peer} of device {device}, flags {flags:#x}"));
        }
        if !machine.peers.insert((device, peer)) {
            return refuse(PEER_ACCESS_ALREADY_ENABLED, format!("device {device} reaches {peer} already"));
        }
        Ok(())
    }

    /// Makes a device the thread's.
    fn hipSetDevice(machine, device: c_int) {
        machine.check_device(device)?;
        DEVICE.set(device);
        Ok(())
    }

    /// The thread's device.
    fn hipGetDevice(machine, device: *mut c_int) {
        let current = machine.device()?;
        // SAFETY: the caller's contract.
        unsafe { give(device, current) }
    }

    /// Runs everything that is queued.
    fn hipDeviceSynchronize(machine) {
        machine.forbid_in_capture("hipDeviceSynchronize")?;
        machine.device()?;
        machine.finish_null_stream()?;
        if machine.is_busy() { machine.run() } else { Ok(()) }
    }

    /// Free and all memory of the thread's device, as a GPU of this kind has it.
    fn hipMemGetInfo(machine, free: *mut usize, total: *mut usize) {
        machine.device()?;
        // SAFETY: the caller's contract.
        unsafe { give(free, TOTAL_BYTES - (1 << 30)) }?;
        // SAFETY: the caller's contract.
        unsafe { give(total, TOTAL_BYTES) }
    }
}

/// Names of the calls below, whose results are no statuses.
pub const QUERIES: &[&str] = &["hipGetErrorString", "hipGetLastError"];

/// Whether a call that cannot fail by a status was made to.
fn is_made_to_fail(name: &str) -> bool {
    let mut guard = process();
    let planned = guard.get_or_insert_with(Process::default).failures().map(|failures| failures.count(name));
    !matches!(planned, Ok(None))
}

/// Words for a status; null when that was made to fail.
#[no_mangle]
pub extern "C" fn hipGetErrorString(status: c_int) -> *const c_char {
    if is_made_to_fail("hipGetErrorString") {
        return std::ptr::null();
    }
    words(status).as_ptr()
}

/// The thread's last error, which is then forgotten.
#[no_mangle]
pub extern "C" fn hipGetLastError() -> c_int {
    if is_made_to_fail("hipGetLastError") {
        return SUCCESS;
    }
    LAST_ERROR.replace(SUCCESS)
}
