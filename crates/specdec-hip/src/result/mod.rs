//! Statuses as `Result`s: the only place that calls [`crate::sys`].

pub mod device;
pub mod graph;
pub mod memory;
pub mod module;
pub mod stream;

use std::ffi::{c_int, c_uint, CStr};
use std::ptr::{null_mut, with_exposed_provenance_mut};

use crate::status::Status;
use crate::sys::{Entry, Functions, Make, Raw, Take, TakePair};
use crate::HipError;

/// What HIP handed out: an address, a stream, an event, a module, a function or a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub usize);

impl Handle {
    /// The null stream, or nothing.
    pub const NULL: Self = Self(0);

    pub fn raw(self) -> Raw {
        with_exposed_provenance_mut(self.0)
    }

    pub fn of(raw: Raw) -> Self {
        Self(raw.expose_provenance())
    }
}

/// Turns a status into a result. HIP remembers its last error, and torch, in the same process, would take it for its own.
pub fn check(functions: &Functions, function: &'static str, status: c_int) -> Result<(), HipError> {
    if status == 0 {
        return Ok(());
    }
    if let Some(call) = functions.last_error.function {
        // SAFETY: the call takes nothing; it returns and clears this thread's last error.
        let _ = unsafe { call() };
    }
    let text = error_text(functions, status);
    Err(HipError::Call { function, status: Status(status), text, subject: String::new() })
}

/// HIP's words for a status.
fn error_text(functions: &Functions, status: c_int) -> String {
    let Some(call) = functions.error_string.function else { return String::new() };
    // SAFETY: the call takes any number.
    let text = unsafe { call(status) };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the call returns a text that lives as long as the library.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

fn make(functions: &Functions, entry: &Entry<Make>, flags: c_uint) -> Result<Handle, HipError> {
    let call = functions.require(entry)?;
    let mut made = null_mut();
    // SAFETY: `call` writes one handle through its first argument, which is valid for it.
    let status = unsafe { call(&raw mut made, flags) };
    check(functions, entry.name, status).map(|()| Handle::of(made))
}

fn take(functions: &Functions, entry: &Entry<Take>, handle: Handle) -> Result<(), HipError> {
    let call = functions.require(entry)?;
    // SAFETY: `handle` came from the call that makes such things and is alive: only its owner passes it here, and an
    // owner that releases does so once.
    let status = unsafe { call(handle.raw()) };
    check(functions, entry.name, status)
}

fn take_pair(functions: &Functions, entry: &Entry<TakePair>, first: Handle, second: Handle) -> Result<(), HipError> {
    let call = functions.require(entry)?;
    // SAFETY: both came from the calls that make such things, and their owners keep them alive.
    let status = unsafe { call(first.raw(), second.raw()) };
    check(functions, entry.name, status)
}
