//! The HIP driver behind `specdec_core::device::Device`, loaded at run time: sys -> result -> safe.
//!
//! This slice finds the library and describes the machine and its devices, so that a command can say what is there.
//! Modules, launches and peers come with the runtime; the emulator runs the same code objects until then.

pub mod probe;
mod result;
mod sys;
pub mod topology;

use std::path::PathBuf;

use thiserror::Error;

pub use result::Status;

/// Why HIP cannot be used here.
#[derive(Debug, Error)]
pub enum HipError {
    /// No library.
    #[error("HIP not found: looked for {}", looked_for.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", "))]
    NotFound {
        /// Names and paths that were tried, in order.
        looked_for: Vec<PathBuf>,
    },
    /// A library that lacks a function.
    #[error("`{}` has no function `{function}`", library.display())]
    MissingFunction {
        /// The library.
        library: PathBuf,
        /// The function.
        function: &'static str,
    },
    /// A call failed.
    #[error("`{function}` failed with {status}")]
    Call {
        /// The function.
        function: &'static str,
        /// HIP's status.
        status: Status,
    },
}

impl HipError {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "install a ROCm newer than 7.2.3, or use `--device emulator`",
            Self::MissingFunction { .. } => "install a complete ROCm; the library is too old or another one",
            Self::Call { .. } => "check that the user may open /dev/kfd and that the driver is loaded",
        }
    }
}

/// A loaded HIP library.
#[derive(Debug)]
pub struct Hip {
    functions: sys::Functions,
}

impl Hip {
    /// Loads the library: the one that the process has, else by its versioned names, else below `/opt/rocm`.
    pub fn load() -> Result<Self, HipError> {
        sys::Functions::load(&sys::candidates()).map(|functions| Self { functions })
    }

    /// Devices of this process.
    pub fn device_count(&self) -> Result<u32, HipError> {
        result::device_count(&self.functions)
    }

    /// Driver version as HIP numbers it.
    pub fn driver_version(&self) -> Result<u32, HipError> {
        result::driver_version(&self.functions)
    }
}

#[cfg(test)]
mod tests {
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
