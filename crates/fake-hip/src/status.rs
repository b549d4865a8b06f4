//! The statuses that this library returns, with HIP's numbers, and its words for them.

use std::ffi::{c_int, CStr};

use specdec_emu::machine::{EmulatorError, PeerError};

/// A `hipError_t` and what happened, for `fake_hip_last_message`.
#[derive(Debug)]
pub struct Failure {
    pub status: c_int,
    pub message: String,
}

pub type Outcome = Result<(), Failure>;

pub const INVALID_VALUE: c_int = 1;
pub const OUT_OF_MEMORY: c_int = 2;
pub const NOT_INITIALIZED: c_int = 3;
pub const INVALID_CONFIGURATION: c_int = 9;
pub const INVALID_DEVICE_POINTER: c_int = 17;
pub const INVALID_DEVICE_FUNCTION: c_int = 98;
pub const INVALID_DEVICE: c_int = 101;
pub const INVALID_IMAGE: c_int = 200;
pub const INVALID_CONTEXT: c_int = 201;
pub const NO_BINARY_FOR_GPU: c_int = 209;
pub const INVALID_HANDLE: c_int = 400;
pub const ILLEGAL_STATE: c_int = 401;
pub const NOT_FOUND: c_int = 500;
pub const NOT_READY: c_int = 600;
pub const ILLEGAL_ADDRESS: c_int = 700;
pub const LAUNCH_OUT_OF_RESOURCES: c_int = 701;
pub const PEER_ACCESS_ALREADY_ENABLED: c_int = 704;
pub const HOST_MEMORY_ALREADY_REGISTERED: c_int = 712;
pub const HOST_MEMORY_NOT_REGISTERED: c_int = 713;
pub const LAUNCH_FAILURE: c_int = 719;
pub const CAPTURE_UNSUPPORTED: c_int = 900;
pub const CAPTURE_INVALIDATED: c_int = 901;
pub const CAPTURE_UNMATCHED: c_int = 903;
pub const CAPTURE_IMPLICIT: c_int = 906;
pub const CAPTURE_WRONG_THREAD: c_int = 908;

/// A failure with a message.
pub fn failure(status: c_int, message: impl Into<String>) -> Failure {
    Failure { status, message: message.into() }
}

/// A refusal with a message.
pub fn refuse<T>(status: c_int, message: impl Into<String>) -> Result<T, Failure> {
    Err(failure(status, message))
}

/// What the emulator refused or stopped at, as HIP would tell it.
pub fn emulated(error: &EmulatorError) -> Failure {
    let status = match error {
        EmulatorError::OutOfMemory { .. } => OUT_OF_MEMORY,
        EmulatorError::OutsideAllocation { .. } | EmulatorError::CrossesEnd { .. } => ILLEGAL_ADDRESS,
        EmulatorError::HostAccess { .. } | EmulatorError::KernargSize { .. } => INVALID_VALUE,
        // What containers get that do not see each other.
        EmulatorError::Peer(PeerError::OwnProcess | PeerError::Unreachable { .. }) => INVALID_CONTEXT,
        EmulatorError::NotAnAllocation { .. } | EmulatorError::Peer(_) => INVALID_DEVICE_POINTER,
        EmulatorError::BadShape { .. } => INVALID_CONFIGURATION,
        EmulatorError::TooManyWorkgroups { .. } => LAUNCH_OUT_OF_RESOURCES,
        EmulatorError::UnsupportedKernel { .. } => INVALID_DEVICE_FUNCTION,
        EmulatorError::WrongTarget { .. } => NO_BINARY_FOR_GPU,
        EmulatorError::BadElf { .. } | EmulatorError::BadMetadata { .. } => INVALID_IMAGE,
        _ => LAUNCH_FAILURE,
    };
    failure(status, error.to_string())
}

/// Words for a status.
pub const fn words(status: c_int) -> &'static CStr {
    match status {
        0 => c"no error",
        INVALID_VALUE => c"invalid argument",
        OUT_OF_MEMORY => c"out of memory",
        NOT_INITIALIZED => c"initialization error",
        INVALID_CONFIGURATION => c"invalid configuration argument",
        INVALID_DEVICE_POINTER => c"invalid device pointer",
        INVALID_DEVICE_FUNCTION => c"invalid device function",
        INVALID_DEVICE => c"invalid device ordinal",
        INVALID_IMAGE => c"device kernel image is invalid",
        INVALID_CONTEXT => c"invalid device context",
        NO_BINARY_FOR_GPU => c"no kernel image is available for execution on the device",
        INVALID_HANDLE => c"invalid resource handle",
        ILLEGAL_STATE => c"the operation cannot be performed in the present state",
        NOT_FOUND => c"named symbol not found",
        NOT_READY => c"device not ready",
        ILLEGAL_ADDRESS => c"an illegal memory access was encountered",
        LAUNCH_OUT_OF_RESOURCES => c"out of resources",
        PEER_ACCESS_ALREADY_ENABLED => c"peer access is already enabled",
        HOST_MEMORY_ALREADY_REGISTERED => c"part or all of the requested memory range is already mapped",
        HOST_MEMORY_NOT_REGISTERED => c"pointer does not correspond to a registered memory region",
        LAUNCH_FAILURE => c"unspecified launch failure",
        CAPTURE_UNSUPPORTED => c"operation not permitted when stream is capturing",
        CAPTURE_INVALIDATED => c"operation failed due to a previous error during capture",
        CAPTURE_UNMATCHED => c"the capture was not begun on this stream",
        CAPTURE_IMPLICIT => c"operation would make the null stream depend on a capture",
        CAPTURE_WRONG_THREAD => c"attempt to end a capture that another thread has begun",
        _ => c"unknown error",
    }
}
