//! The library and its functions, as HIP's C ABI declares them.

use std::ffi::c_int;
use std::path::PathBuf;

use libloading::Library;

use crate::HipError;

/// `hipError_t hipGetDeviceCount(int *)` and `hipError_t hipDriverGetVersion(int *)`.
pub type IntQuery = unsafe extern "C" fn(*mut c_int) -> c_int;

/// Functions of a loaded library, which stays loaded as long as they do.
#[derive(Debug)]
pub struct Functions {
    pub device_count: IntQuery,
    pub driver_version: IntQuery,
    _library: Library,
}

/// Where the library may be, best first.
pub fn candidates() -> Vec<PathBuf> {
    ["libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so"].map(PathBuf::from).to_vec()
}

impl Functions {
    /// Loads the first library that is there.
    pub fn load(candidates: &[PathBuf]) -> Result<Self, HipError> {
        for path in candidates {
            // SAFETY: loading runs the library's initialisers; a HIP library's are made to run in any process.
            let Ok(library) = (unsafe { Library::new(path) }) else { continue };
            let query = |function: &'static str| {
                // SAFETY: both functions have the type `IntQuery` in every HIP release.
                let found = unsafe { library.get::<IntQuery>(function.as_bytes()) };
                found.map(|symbol| *symbol).map_err(|_| HipError::MissingFunction { library: path.clone(), function })
            };
            let (device_count, driver_version) = (query("hipGetDeviceCount")?, query("hipDriverGetVersion")?);
            return Ok(Self { device_count, driver_version, _library: library });
        }
        Err(HipError::NotFound { looked_for: candidates.to_vec() })
    }
}
