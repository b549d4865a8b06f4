//! The library and its functions, as HIP's C ABI declares them; the numbers are those of its public headers.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::Library;

use crate::HipError;

/// `hipDeviceAttributeMultiprocessorCount`.
pub const MULTIPROCESSOR_COUNT: c_int = 63;
/// `hipDeviceAttributeMaxSharedMemoryPerBlock`.
pub const MAX_SHARED_MEMORY_PER_BLOCK: c_int = 74;
/// `hipDeviceAttributeWarpSize`.
pub const WARP_SIZE: c_int = 87;
/// `hipDeviceMallocUncached`.
pub const MALLOC_UNCACHED: c_uint = 0x3;
/// `hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent`: every device of the process reaches it, and the
/// host sees what a running kernel has written.
pub const HOST_MALLOC_COHERENT: c_uint = 0x1 | 0x2 | 0x4000_0000;
/// `hipHostRegisterPortable | hipHostRegisterMapped`.
pub const HOST_REGISTER_PORTABLE_MAPPED: c_uint = 0x1 | 0x2;
/// `hipIpcMemLazyEnablePeerAccess`, the only flag that an import takes.
pub const IPC_LAZY_PEER_ACCESS: c_uint = 0x1;
/// Bytes of a `hipIpcMemHandle_t`.
pub const IPC_HANDLE_BYTES: usize = 64;
/// `hipStreamNonBlocking`: not ordered with the null stream.
pub const STREAM_NON_BLOCKING: c_uint = 0x1;
/// `hipStreamCaptureModeThreadLocal`: other threads may go on allocating.
pub const CAPTURE_THREAD_LOCAL: c_int = 1;
/// `hipStreamCaptureStatusNone`.
pub const CAPTURE_NONE: c_int = 0;
/// `hipMemcpyDefault`: the direction follows from the addresses.
pub const COPY_DEFAULT: c_int = 4;
/// `hipErrorNotReady`.
pub const NOT_READY: c_int = 600;
/// `hipErrorPeerAccessAlreadyEnabled`.
pub const PEER_ACCESS_ALREADY_ENABLED: c_int = 704;
/// `HIP_LAUNCH_PARAM_BUFFER_POINTER`, `HIP_LAUNCH_PARAM_BUFFER_SIZE` and `HIP_LAUNCH_PARAM_END`.
pub const LAUNCH_PARAMETERS: [usize; 3] = [0x1, 0x2, 0x3];

/// `hipIpcMemHandle_t`: opaque, and passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IpcHandle(pub [u8; IPC_HANDLE_BYTES]);

/// An address, or an opaque stream, event, module, function or graph.
pub type Raw = *mut c_void;
/// A function that writes one int: counts and versions.
pub type IntQuery = unsafe extern "C" fn(*mut c_int) -> c_int;
/// `hipDeviceGetPCIBusId(text, bytes, device)` and `hipDeviceGetName`.
pub type DeviceText = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
/// `hipDeviceGetAttribute(value, attribute, device)` and `hipDeviceCanAccessPeer(value, device, peer)`.
pub type PairQuery = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
/// `hipMemGetInfo(free, total)`.
pub type MemoryInfo = unsafe extern "C" fn(*mut usize, *mut usize) -> c_int;
/// `hipExtMallocWithFlags(address, bytes, flags)` and `hipHostMalloc`.
pub type MallocWithFlags = unsafe extern "C" fn(*mut Raw, usize, c_uint) -> c_int;
/// A function that takes what another one made: releases, synchronisation.
pub type Take = unsafe extern "C" fn(Raw) -> c_int;
/// A function that takes two of them: `hipEventRecord(event, stream)` and `hipGraphLaunch(graph, stream)`.
pub type TakePair = unsafe extern "C" fn(Raw, Raw) -> c_int;
/// A function that makes something under flags.
pub type Make = unsafe extern "C" fn(*mut Raw, c_uint) -> c_int;
/// `hipIpcOpenMemHandle(address, handle, flags)`.
pub type IpcOpen = unsafe extern "C" fn(*mut Raw, IpcHandle, c_uint) -> c_int;
/// `hipModuleLaunchKernel(function, grid x 3, block x 3, dynamic LDS, stream, parameters, extra)`.
pub type LaunchKernel =
    unsafe extern "C" fn(Raw, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Raw, *mut Raw, *mut Raw) -> c_int;

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
            /// Never unloaded: HIP has threads of its own that run its code.
            _library: ManuallyDrop<Library>,
        }

        impl Functions {
            fn find(path: PathBuf, library: Library) -> Self {
                $(
                    // SAFETY: the function has this type in HIP's public header, in every release that has it.
                    let $field = unsafe { library.get::<$type>($name.as_bytes()) };
                    let $field = Entry { name: $name, function: $field.ok().map(|symbol| *symbol) };
                )*
                Self { $($field,)* path, _library: ManuallyDrop::new(library) }
            }
        }

        /// Names of every HIP function that this crate calls.
        pub const NAMES: &[&str] = &[$($name),*];
    };
}

functions! {
    device_count = "hipGetDeviceCount": IntQuery,
    driver_version = "hipDriverGetVersion": IntQuery,
    runtime_version = "hipRuntimeGetVersion": IntQuery,
    pci_bus_id = "hipDeviceGetPCIBusId": DeviceText,
    device_name = "hipDeviceGetName": DeviceText,
    attribute = "hipDeviceGetAttribute": PairQuery,
    can_access_peer = "hipDeviceCanAccessPeer": PairQuery,
    enable_peer_access = "hipDeviceEnablePeerAccess": unsafe extern "C" fn(c_int, c_uint) -> c_int,
    set_device = "hipSetDevice": unsafe extern "C" fn(c_int) -> c_int,
    get_device = "hipGetDevice": IntQuery,
    device_synchronize = "hipDeviceSynchronize": unsafe extern "C" fn() -> c_int,
    error_string = "hipGetErrorString": unsafe extern "C" fn(c_int) -> *const c_char,
    last_error = "hipGetLastError": unsafe extern "C" fn() -> c_int,
    memory_info = "hipMemGetInfo": MemoryInfo,
    malloc = "hipMalloc": unsafe extern "C" fn(*mut Raw, usize) -> c_int,
    malloc_with_flags = "hipExtMallocWithFlags": MallocWithFlags,
    free = "hipFree": Take,
    host_malloc = "hipHostMalloc": MallocWithFlags,
    host_free = "hipHostFree": Take,
    host_register = "hipHostRegister": unsafe extern "C" fn(Raw, usize, c_uint) -> c_int,
    host_unregister = "hipHostUnregister": Take,
    host_device_pointer = "hipHostGetDevicePointer": unsafe extern "C" fn(*mut Raw, Raw, c_uint) -> c_int,
    ipc_get = "hipIpcGetMemHandle": unsafe extern "C" fn(*mut IpcHandle, Raw) -> c_int,
    ipc_open = "hipIpcOpenMemHandle": IpcOpen,
    ipc_close = "hipIpcCloseMemHandle": Take,
    copy = "hipMemcpy": unsafe extern "C" fn(Raw, *const c_void, usize, c_int) -> c_int,
    copy_async = "hipMemcpyAsync": unsafe extern "C" fn(Raw, *const c_void, usize, c_int, Raw) -> c_int,
    fill = "hipMemset": unsafe extern "C" fn(Raw, c_int, usize) -> c_int,
    fill_async = "hipMemsetAsync": unsafe extern "C" fn(Raw, c_int, usize, Raw) -> c_int,
    stream_create = "hipStreamCreateWithFlags": Make,
    stream_destroy = "hipStreamDestroy": Take,
    stream_synchronize = "hipStreamSynchronize": Take,
    stream_begin_capture = "hipStreamBeginCapture": unsafe extern "C" fn(Raw, c_int) -> c_int,
    stream_end_capture = "hipStreamEndCapture": unsafe extern "C" fn(Raw, *mut Raw) -> c_int,
    stream_is_capturing = "hipStreamIsCapturing": unsafe extern "C" fn(Raw, *mut c_int) -> c_int,
    event_create = "hipEventCreateWithFlags": Make,
    event_destroy = "hipEventDestroy": Take,
    event_record = "hipEventRecord": TakePair,
    event_query = "hipEventQuery": Take,
    event_synchronize = "hipEventSynchronize": Take,
    event_elapsed = "hipEventElapsedTime": unsafe extern "C" fn(*mut f32, Raw, Raw) -> c_int,
    graph_instantiate = "hipGraphInstantiate": unsafe extern "C" fn(*mut Raw, Raw, *mut Raw, *mut c_char, usize) -> c_int,
    graph_destroy = "hipGraphDestroy": Take,
    graph_launch = "hipGraphLaunch": TakePair,
    graph_exec_destroy = "hipGraphExecDestroy": Take,
    module_load = "hipModuleLoadData": unsafe extern "C" fn(*mut Raw, *const c_void) -> c_int,
    module_unload = "hipModuleUnload": Take,
    module_function = "hipModuleGetFunction": unsafe extern "C" fn(*mut Raw, Raw, *const c_char) -> c_int,
    launch_kernel = "hipModuleLaunchKernel": LaunchKernel,
}

/// Where the library may be, best first: the one that the process already has, as torch loaded it, then by its versioned
/// names, then where `ROCM_PATH` points. Two HIP runtimes in one process do not know each other's memory.
pub fn candidates() -> Vec<PathBuf> {
    let mut found = in_process(&std::fs::read_to_string("/proc/self/maps").unwrap_or_default());
    found.extend(["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"].map(PathBuf::from));
    let root = std::env::var_os("ROCM_PATH").map_or_else(|| PathBuf::from("/opt/rocm"), PathBuf::from);
    found.push(root.join("lib/libamdhip64.so"));
    found
}

/// HIP libraries among the files that a process has mapped, as `/proc/self/maps` lists them.
fn in_process(maps: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for path in maps.lines().filter_map(|line| Some(Path::new(&line[line.find('/')?..]))) {
        let is_hip = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libamdhip64.so"));
        if is_hip && found.iter().all(|known| known != path) {
            found.push(path.into());
        }
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_that_the_process_has_comes_first() {
        let maps = "7f0000000000-7f0000001000 r-xp 00000000 08:01 1234   /usr/lib/libc.so.6\n\
                    7f0000002000-7f0000003000 rw-p 00000000 00:00 0 \n\
                    7f0000004000-7f0000005000 r--p 00000000 08:01 99   /venv/site packages/torch/lib/libamdhip64.so\n\
                    7f0000005000-7f0000006000 r-xp 00001000 08:01 99   /venv/site packages/torch/lib/libamdhip64.so\n\
                    7f0000007000-7f0000008000 r-xp 00001000 08:01 98   /opt/rocm-7.2.0/lib/libamdhip64.so.7.2\n";
        let expected = ["/venv/site packages/torch/lib/libamdhip64.so", "/opt/rocm-7.2.0/lib/libamdhip64.so.7.2"];
        assert_eq!(in_process(maps), expected.map(PathBuf::from));
        assert_eq!(in_process(""), Vec::<PathBuf>::new());
    }
}
