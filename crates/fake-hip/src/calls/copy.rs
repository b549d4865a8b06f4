//! Copies and fills.

use std::ffi::{c_int, c_void};

use super::{calls, number, Raw};
use crate::machine::Machine;
use crate::queue::Work;
use crate::status::{emulated, refuse, Outcome, CAPTURE_UNSUPPORTED, INVALID_VALUE};
use specdec_core::device::Device;
use specdec_core::ids::DeviceAddress;

/// `hipMemcpyDefault`: the direction follows from the addresses. No other is asked for.
const DEFAULT: c_int = 4;

fn check_kind(kind: c_int) -> Outcome {
    if kind == DEFAULT {
        return Ok(());
    }
    refuse(INVALID_VALUE, format!("a copy of kind {kind}"))
}

impl Machine {
    /// Copies at once, between whatever each end is.
    ///
    /// # Safety
    /// An end that no device reaches is host memory that the caller may use.
    unsafe fn copy_now(&mut self, to: Raw, from: *const c_void, bytes: usize) -> Outcome {
        let (target, source) = (number(to), number(from.cast_mut()));
        match (self.reaches(target, bytes as u64), self.reaches(source, bytes as u64)) {
            (true, true) => self.submit(0, Work::Copy { to: target, from: source, bytes: bytes as u64 }),
            (true, false) => {
                // SAFETY: the caller's contract.
                let host = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
                self.submit(0, Work::Write { to: target, bytes: host.to_vec() })
            }
            (false, true) => {
                // SAFETY: the caller's contract.
                let host = unsafe { std::slice::from_raw_parts_mut(to.cast::<u8>(), bytes) };
                self.emulator.read(DeviceAddress(source), host).map_err(|error| emulated(&error))
            }
            (false, false) => refuse(INVALID_VALUE, "a copy from host to host"),
        }
    }

    fn fill(&mut self, stream: usize, address: Raw, byte: c_int, bytes: usize) -> Outcome {
        let to = number(address);
        if !self.reaches(to, bytes as u64) {
            return refuse(INVALID_VALUE, format!("{bytes} bytes at {to:#x} are no device memory"));
        }
        self.submit(stream, Work::Write { to, bytes: vec![byte as u8; bytes] })
    }
}

calls! {
    /// Copies at once.
    fn hipMemcpy(machine, to: Raw, from: *const c_void, bytes: usize, kind: c_int) {
        machine.forbid_on_null_stream("hipMemcpy")?;
        check_kind(kind)?;
        machine.finish_null_stream()?;
        // SAFETY: the caller's contract.
        unsafe { machine.copy_now(to, from, bytes) }?;
        machine.finish_null_stream()
    }

    /// Queues a copy. Memory that is not pinned is copied now, as HIP may, and never while capturing.
    fn hipMemcpyAsync(machine, to: Raw, from: *const c_void, bytes: usize, kind: c_int, stream: Raw) {
        check_kind(kind)?;
        let (target, source, stream) = (number(to), number(from.cast_mut()), number(stream) as usize);
        match (machine.reaches(target, bytes as u64), machine.reaches(source, bytes as u64)) {
            (true, true) => machine.submit(stream, Work::Copy { to: target, from: source, bytes: bytes as u64 }),
            (true, false) if stream != 0 && machine.stream(stream)?.capture.is_none() => {
                // SAFETY: the caller's contract.
                let host = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) };
                machine.submit(stream, Work::Write { to: target, bytes: host.to_vec() })
            }
            _ => refuse(CAPTURE_UNSUPPORTED, "a queued copy of memory that is not pinned"),
        }
    }

    /// Fills memory on the null stream.
    fn hipMemset(machine, address: Raw, byte: c_int, bytes: usize) {
        machine.forbid_on_null_stream("hipMemset")?;
        machine.fill(0, address, byte, bytes)
    }

    /// Queues a fill.
    fn hipMemsetAsync(machine, address: Raw, byte: c_int, bytes: usize, stream: Raw) {
        machine.fill(number(stream) as usize, address, byte, bytes)
    }
}
