//! Statuses as `Result`s: the only place that calls [`crate::sys`].

use std::ffi::c_int;
use std::fmt;

use crate::sys::{Functions, IntQuery};
use crate::HipError;

/// A `hipError_t` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub i32);

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            1 => "hipErrorInvalidValue",
            2 => "hipErrorOutOfMemory",
            3 => "hipErrorNotInitialized",
            100 => "hipErrorNoDevice",
            101 => "hipErrorInvalidDevice",
            _ => return write!(f, "status {}", self.0),
        };
        write!(f, "{name} ({})", self.0)
    }
}

fn query(function: &'static str, call: IntQuery) -> Result<u32, HipError> {
    let mut value: c_int = 0;
    // SAFETY: `call` writes one int through the pointer, which is valid for it.
    let status = unsafe { call(&raw mut value) };
    if status == 0 {
        Ok(value.unsigned_abs())
    } else {
        Err(HipError::Call { function, status: Status(status) })
    }
}

pub fn device_count(functions: &Functions) -> Result<u32, HipError> {
    query("hipGetDeviceCount", functions.device_count)
}

pub fn driver_version(functions: &Functions) -> Result<u32, HipError> {
    query("hipDriverGetVersion", functions.driver_version)
}
