//! What HIP does not have: failures on demand, counts of what is alive, the emulator's own words.
//!
//! Processes that share memory also share time, once `fake_hip_create_world` and `fake_hip_join_world` have made them one
//! machine.
//!
//! - `FAKE_HIP_DEVICES`: devices of the process; one if it is not set.
//! - `FAKE_HIP_OPTIONS`: the emulator's settings as JSON: `seed`, `schedule` (`turns` or `priorities`), `stall` (`error`
//!   or `advance`), `advance_ticks`, `budget`, `quantum`, `compute_units`; and `stale_from_launch`: from this
//!   graph launch on graphs copy nothing, as a replay that serves old values.
//! - `FAKE_HIP_FAIL`: `name:nth:status,...`; the nth call of a name fails once, 0 fails every one.

use std::ffi::{c_char, c_int, CStr, CString};
use std::sync::OnceLock;

use specdec_core::device::{PeerHandle, PEER_HANDLE_BYTES};

use super::names;
use crate::machine::{call, process, Machine, MemoryKind, Process};
use crate::status::emulated;

/// Kinds that `fake_hip_live` counts, in this order: allocations, pinned memory, modules, streams, events, graphs, graph
/// instances, imports, registrations.
const KINDS: usize = 9;

impl Machine {
    fn live(&self) -> [u64; KINDS] {
        let memory = |kind| self.memory.values().flatten().filter(|(found, _)| *found == kind).count();
        let counts = [
            memory(MemoryKind::Device),
            memory(MemoryKind::Pinned),
            self.modules.len(),
            self.streams.len(),
            self.events.len(),
            self.graphs.len(),
            self.graph_instances.len(),
            memory(MemoryKind::Import),
            memory(MemoryKind::Registered),
        ];
        counts.map(|count| count as u64)
    }
}

/// A text that a C caller passed.
///
/// # Safety
/// `text` ends, and lives as long as it is used.
unsafe fn text(text: *const c_char) -> String {
    // SAFETY: the caller's contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// From now on the `nth` call of this name fails with `status`, once; with 0 every one does.
///
/// # Safety
/// `name` is a text that ends.
#[no_mangle]
pub unsafe extern "C" fn fake_hip_fail(name: *const c_char, nth: u64, status: c_int) {
    // SAFETY: the caller's contract.
    let name = unsafe { text(name) };
    if let Ok(failures) = process().get_or_insert_with(Process::default).failures() {
        failures.plan(&name, nth, status);
    }
}

/// Calls of this name since the start or the last reset.
///
/// # Safety
/// `name` is a text that ends.
#[no_mangle]
pub unsafe extern "C" fn fake_hip_count(name: *const c_char) -> u64 {
    // SAFETY: the caller's contract.
    let name = unsafe { text(name) };
    process().get_or_insert_with(Process::default).failures().map_or(0, |failures| failures.calls(&name))
}

/// Writes how many objects of each kind are alive: allocations, pinned memory, modules, streams, events, graphs, graph
/// instances, imports, registrations.
///
/// # Safety
/// `counts` is valid for `length` numbers.
#[no_mangle]
pub unsafe extern "C" fn fake_hip_live(counts: *mut u64, length: usize) {
    let live = process().get_or_insert_with(Process::default).machine().map_or([0; KINDS], |machine| machine.live());
    for (index, count) in live.into_iter().take(length).enumerate() {
        // SAFETY: the caller's contract.
        let to = unsafe { counts.add(index) };
        // SAFETY: the caller's contract.
        unsafe { to.write(count) };
    }
}

/// Makes a world of so many processes, of which this one is number 0, and writes the handle by which the others join it.
/// Returns a status, as HIP's calls do.
///
/// # Safety
/// `handle` is valid for a handle.
#[no_mangle]
pub unsafe extern "C" fn fake_hip_create_world(processes: usize, handle: *mut [u8; PEER_HANDLE_BYTES]) -> c_int {
    call("fake_hip_create_world", |machine| {
        let made = machine.emulator.create_world(processes).map_err(|error| emulated(&error))?;
        // SAFETY: the caller's contract.
        unsafe { handle.write(made.0) };
        Ok(())
    })
}

/// Joins another process's world as number `index`: from now on launches of both run at the same time, and a wait for the
/// other one is no deadlock. Returns a status, as HIP's calls do.
///
/// # Safety
/// `handle` is valid for a handle.
#[no_mangle]
pub unsafe extern "C" fn fake_hip_join_world(handle: *const [u8; PEER_HANDLE_BYTES], index: usize) -> c_int {
    // SAFETY: the caller's contract.
    let handle = PeerHandle(unsafe { handle.read() });
    call("fake_hip_join_world", |machine| machine.emulator.join_world(&handle, index).map_err(|error| emulated(&error)))
}

/// Forgets the machine, planned failures and counts: the next call reads the environment again. Nothing may be alive.
#[no_mangle]
pub extern "C" fn fake_hip_reset() {
    process().get_or_insert_with(Process::default).reset();
}

/// Names of all calls that are implemented, separated by commas.
#[no_mangle]
pub extern "C" fn fake_hip_calls() -> *const c_char {
    static LIST: OnceLock<CString> = OnceLock::new();
    let list = || CString::new(names().collect::<Vec<_>>().join(",")).unwrap_or_default();
    LIST.get_or_init(list).as_ptr()
}

/// Copies what the last failure was, in the emulator's words, as far as there is room; returns its bytes.
///
/// # Safety
/// `into` is valid for `bytes` bytes.
#[no_mangle]
pub unsafe extern "C" fn fake_hip_last_message(into: *mut c_char, bytes: usize) -> usize {
    let guard = process();
    let message = guard.as_ref().map_or(c"", |process| process.message.as_c_str()).to_bytes();
    let length = message.len().min(bytes.saturating_sub(1));
    if bytes > 0 {
        // SAFETY: the caller's contract, and `length` is less.
        unsafe { into.copy_from_nonoverlapping(message.as_ptr().cast(), length) };
        // SAFETY: the caller's contract; there is room for the end.
        let end = unsafe { into.add(length) };
        // SAFETY: as above.
        unsafe { end.write(0) };
    }
    message.len()
}
