//! The HIP driver behind `specdec_core::device::Device`, loaded at run time: sys -> result -> safe.
//!
//! `sys` is HIP's C ABI, `result` turns its statuses into errors, and the other modules own what HIP hands out: nothing
//! is given back while something queued may touch it, and the calling thread's device is what it was after each call.

mod driver;
mod error;
mod graph;
mod held;
mod library;
mod memory;
mod module;
pub mod probe;
mod result;
pub mod self_test;
mod shared;
mod staging;
mod status;
mod stream;
mod sys;
pub mod topology;

pub use driver::{HipDevice, HipGraph, HipModule};
pub use error::HipError;
pub use graph::{Graph, Recording};
pub use library::{DeviceFacts, Hip};
pub use memory::{enable_peer_access, DeviceMemory, ImportedMemory, PinnedMemory, PinnedWord, RegisteredMemory};
pub use module::{Kernel, Module};
pub use status::Status;
pub use stream::{Event, Stream};

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_missing_library_says_where_it_was_looked_for() {
        let nowhere = [PathBuf::from("libnothing-of-that-name.so.7"), PathBuf::from("/nowhere/libamdhip64.so")];
        let error = sys::Functions::load(&nowhere).err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(error, "HIP not found: looked for `libnothing-of-that-name.so.7`, `/nowhere/libamdhip64.so`");
    }

    #[test]
    fn a_library_of_something_else_is_named() {
        // libc is there on every machine that runs this, and is no HIP.
        let error = sys::Functions::load(&[PathBuf::from("libc.so.6")]).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("`libc.so.6` has no function `hipGetDeviceCount`"));
    }
}
