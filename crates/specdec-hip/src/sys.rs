//! The library and its functions, as HIP's C ABI declares them.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::path::PathBuf;

use libloading::Library;

use crate::HipError;

/// `hipDeviceAttributeMultiprocessorCount`.
pub const MULTIPROCESSOR_COUNT: c_int = 63;
/// `hipDeviceMallocUncached`.
pub const MALLOC_UNCACHED: c_uint = 0x3;
/// `hipIpcMemLazyEnablePeerAccess`, the only flag that an import takes.
pub const IPC_LAZY_PEER_ACCESS: c_uint = 0x1;
/// Bytes of a `hipIpcMemHandle_t`.
pub const IPC_HANDLE_BYTES: usize = 64;

/// `hipIpcMemHandle_t`: opaque, and passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IpcHandle(pub [u8; IPC_HANDLE_BYTES]);

/// A function that writes one int: counts and versions.
pub type IntQuery = unsafe extern "C" fn(*mut c_int) -> c_int;
/// `hipDeviceGetPCIBusId(text, bytes, device)`.
pub type PciBusId = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
/// `hipDeviceGetAttribute(value, attribute, device)` and `hipDeviceCanAccessPeer(value, device, peer)`.
pub type PairQuery = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
/// `hipSetDevice(device)`.
pub type SetDevice = unsafe extern "C" fn(c_int) -> c_int;
/// `hipMemGetInfo(free, total)`.
pub type MemoryInfo = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
/// `hipExtMallocWithFlags(address, bytes, flags)`.
pub type MallocWithFlags = unsafe extern "C" fn(*mut *mut c_void, usize, c_uint) -> c_int;
/// `hipFree(address)` and `hipIpcCloseMemHandle(address)`.
pub type Release = unsafe extern "C" fn(*mut c_void) -> c_int;
/// `hipIpcGetMemHandle(handle, address)`.
pub type IpcGet = unsafe extern "C" fn(*mut IpcHandle, *mut c_void) -> c_int;
/// `hipIpcOpenMemHandle(address, handle, flags)`.
pub type IpcOpen = unsafe extern "C" fn(*mut *mut c_void, IpcHandle, c_uint) -> c_int;

/// A function by its name, if the library has it: an older HIP lacks some.
#[derive(Clone, Copy, Debug)]
pub struct Entry<F> {
    pub name: &'static str,
    pub function: Option<F>,
}

macro_rules! functions {
    ($($field:ident = $name:literal: $type:ty,)*) => {
        /// Functions of a loaded library, which stays loaded as long as they do.
        #[derive(Debug)]
        pub struct Functions {
            $(pub $field: Entry<$type>,)*
            pub path: PathBuf,
            _library: Library,
        }

        impl Functions {
            fn find(path: PathBuf, library: Library) -> Self {
                $(
                    // SAFETY: the function has this type in HIP's public header, in every release that has it.
                    let $field = unsafe { library.get::<$type>($name.as_bytes()) };
                    let $field = Entry { name: $name, function: $field.ok().map(|symbol| *symbol) };
                )*
                Self { $($field,)* path, _library: library }
            }
        }
    };
}

functions! {
    device_count = "hipGetDeviceCount": IntQuery,
    driver_version = "hipDriverGetVersion": IntQuery,
    runtime_version = "hipRuntimeGetVersion": IntQuery,
    pci_bus_id = "hipDeviceGetPCIBusId": PciBusId,
    attribute = "hipDeviceGetAttribute": PairQuery,
    can_access_peer = "hipDeviceCanAccessPeer": PairQuery,
    set_device = "hipSetDevice": SetDevice,
    memory_info = "hipMemGetInfo": MemoryInfo,
    malloc_with_flags = "hipExtMallocWithFlags": MallocWithFlags,
    free = "hipFree": Release,
    ipc_get = "hipIpcGetMemHandle": IpcGet,
    ipc_open = "hipIpcOpenMemHandle": IpcOpen,
    ipc_close = "hipIpcCloseMemHandle": Release,
}

/// Where the library may be, best first.
pub fn candidates() -> Vec<PathBuf> {
    let names = ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "/opt/rocm/lib/libamdhip64.so"];
    names.map(PathBuf::from).to_vec()
}

impl Functions {
    /// Loads the first library that is there; without these two functions it is no HIP.
    pub fn load(candidates: &[PathBuf]) -> Result<Self, HipError> {
        for path in candidates {
            // SAFETY: loading runs the library's initialisers; a HIP library's are made to run in any process.
            let Ok(library) = (unsafe { Library::new(path) }) else { continue };
            let functions = Self::find(path.clone(), library);
            functions.require(&functions.device_count)?;
            functions.require(&functions.driver_version)?;
            return Ok(functions);
        }
        Err(HipError::NotFound { looked_for: candidates.to_vec() })
    }

    /// A function that must be there.
    pub fn require<F: Copy>(&self, entry: &Entry<F>) -> Result<F, HipError> {
        let missing = || HipError::MissingFunction { library: self.path.clone(), function: entry.name };
        entry.function.ok_or_else(missing)
    }
}
