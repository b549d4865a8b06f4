//! The fake HIP library: where it is, what it is told, and kernels for it.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::ffi::{c_char, c_int, CStr, CString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::Library;
use specdec_core::device::{Device, Launch};
use specdec_core::ids::{DeviceAddress, Rank};
use specdec_hip::{Hip, HipDevice, HipError, HipModule};

/// Kinds of objects that the library counts.
pub const KINDS: [&str; 9] =
    ["allocations", "pinned", "modules", "streams", "events", "graphs", "instances", "imports", "registered"];

type Fail = unsafe extern "C" fn(*const c_char, u64, c_int);
type Count = unsafe extern "C" fn(*const c_char) -> u64;
type Live = unsafe extern "C" fn(*mut u64, usize);
type Reset = unsafe extern "C" fn();
type Calls = unsafe extern "C" fn() -> *const c_char;
type CreateWorld = unsafe extern "C" fn(usize, *mut [u8; 64]) -> c_int;
type JoinWorld = unsafe extern "C" fn(*const [u8; 64], usize) -> c_int;
type Message = unsafe extern "C" fn(*mut c_char, usize) -> usize;

/// The library, for one test at a time: its machine is the process's.
pub struct Fake {
    library: Library,
    _turn: MutexGuard<'static, ()>,
}

/// The library, which cargo builds beside the tests because they depend on its crate.
pub fn path() -> PathBuf {
    let test = std::env::current_exe().expect("the test's path");
    let path = test.with_file_name("libfake_hip.so");
    assert!(path.exists(), "`{}` is missing; cargo builds it with this test", path.display());
    path
}

impl Fake {
    /// A machine of so many devices, with these options (JSON).
    pub fn with_options(devices: u32, options: &str) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        std::env::set_var("FAKE_HIP_DEVICES", devices.to_string());
        std::env::set_var("FAKE_HIP_OPTIONS", options);
        // SAFETY: the library has no initialisers.
        let library = unsafe { Library::new(path()) }.expect("the library loads");
        let fake = Self { library, _turn: turn };
        fake.reset();
        fake
    }

    pub fn new(devices: u32) -> Self {
        Self::with_options(devices, "{}")
    }

    fn function<T: Copy>(&self, name: &str) -> T {
        // SAFETY: the caller names a function of this type.
        *unsafe { self.library.get::<T>(name.as_bytes()) }.expect("the library has it")
    }

    /// The driver's view of it.
    #[expect(clippy::unused_self, reason = "there is a view only while there is a library")]
    pub fn hip(&self) -> Hip {
        Hip::open(&path()).expect("the library is a HIP")
    }

    /// Forgets machine, planned failures and counts.
    pub fn reset(&self) {
        let reset = self.function::<Reset>("fake_hip_reset");
        // SAFETY: it takes nothing.
        unsafe { reset() };
    }

    /// The nth call of this name fails.
    pub fn fail(&self, name: &str, nth: u64, status: i32) {
        let (fail, name) = (self.function::<Fail>("fake_hip_fail"), CString::new(name).expect("a name"));
        // SAFETY: the name ends.
        unsafe { fail(name.as_ptr(), nth, status) };
    }

    /// Calls of this name so far.
    pub fn count(&self, name: &str) -> u64 {
        let (count, name) = (self.function::<Count>("fake_hip_count"), CString::new(name).expect("a name"));
        // SAFETY: the name ends.
        unsafe { count(name.as_ptr()) }
    }

    /// What is alive, by kind.
    pub fn live(&self) -> Vec<(&'static str, u64)> {
        let (live, mut counts) = (self.function::<Live>("fake_hip_live"), [0; KINDS.len()]);
        // SAFETY: there is room for as many as it is told.
        unsafe { live(counts.as_mut_ptr(), counts.len()) };
        KINDS.into_iter().zip(counts).filter(|&(_, count)| count > 0).collect()
    }

    /// Every call that is implemented.
    pub fn calls(&self) -> Vec<String> {
        let calls = self.function::<Calls>("fake_hip_calls");
        // SAFETY: it takes nothing.
        let text = unsafe { calls() };
        // SAFETY: the text ends, and lives as long as the library.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().split(',').map(Into::into).collect()
    }

    /// Makes a world of so many processes, with this one as number 0.
    pub fn create_world(&self, processes: usize) -> [u8; 64] {
        let (create, mut handle) = (self.function::<CreateWorld>("fake_hip_create_world"), [0; 64]);
        // SAFETY: there is room for a handle.
        assert_eq!(unsafe { create(processes, &raw mut handle) }, 0, "{}", self.message());
        handle
    }

    /// Joins another process's world.
    pub fn join_world(&self, handle: &[u8; 64], index: usize) {
        let join = self.function::<JoinWorld>("fake_hip_join_world");
        // SAFETY: the handle is there.
        assert_eq!(unsafe { join(handle, index) }, 0, "{}", self.message());
    }

    /// The last failure in the emulator's words.
    pub fn message(&self) -> String {
        let (message, mut text) = (self.function::<Message>("fake_hip_last_message"), vec![0u8; 4096]);
        // SAFETY: there is room for as many bytes as it is told.
        let bytes = unsafe { message(text.as_mut_ptr().cast(), text.len()) };
        String::from_utf8_lossy(&text[..bytes.min(text.len() - 1)]).into_owned()
    }
}

/// `kernels/small.hip` as a code object, compiled once.
pub fn code_object() -> &'static [u8] {
    static CODE: OnceLock<Vec<u8>> = OnceLock::new();
    CODE.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/small.hip");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("small-{}.co", std::process::id()));
        let flags = "-x hip --offload-device-only -nogpuinc -nogpulib -O3 -std=c++20 -mcode-object-version=6 \
                     --offload-arch=gfx950 --no-gpu-bundle-output -c";
        let mut command = Command::new("clang-22");
        let done = command.args(flags.split_whitespace()).arg(source).arg("-o").arg(&out).output();
        let done = done.expect("clang-22 starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let bytes = std::fs::read(&out).expect("the product is there");
        std::fs::remove_file(out).expect("the product is ours");
        bytes
    })
}

/// Kernel arguments: addresses, then words.
pub fn kernarg(addresses: &[DeviceAddress], words: &[u32]) -> Vec<u8> {
    let mut bytes: Vec<u8> = addresses.iter().flat_map(|address| address.0.to_le_bytes()).collect();
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

/// Queues one workgroup of a kernel.
pub fn launch(
    device: &mut HipDevice,
    rank: u8,
    module: HipModule,
    symbol: &'static str,
    kernarg: Vec<u8>,
) -> Result<(), HipError> {
    device.launch(Rank(rank), &Launch { module, symbol, grid: 1, block: 64, kernarg })
}

/// 64 words of the device.
pub fn words(device: &HipDevice, address: DeviceAddress) -> Result<Vec<u32>, HipError> {
    let mut bytes = [0; 256];
    device.read(address, &mut bytes)?;
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect())
}

/// The bytes of words.
pub fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
