//! The one machine of the process: its emulator and everything that was handed out.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{c_int, CString};
use std::sync::{Mutex, MutexGuard, PoisonError};

use specdec_core::device::Device;
use specdec_core::ids::Rank;
use specdec_emu::machine::{DeviceModel, Emulator, ModuleHandle};

use crate::failures::Failures;
use crate::options;
use crate::queue::Work;
use crate::status::{emulated, failure, refuse, Failure, Outcome, INVALID_DEVICE, INVALID_HANDLE, NOT_INITIALIZED};

/// What a live allocation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    Device,
    Pinned,
    Registered,
    Import,
}

/// A stream's capture.
#[derive(Debug, Default)]
pub struct Capture {
    pub work: Vec<Work>,
    pub is_spoiled: bool,
}

/// A stream that somebody made.
#[derive(Debug)]
pub struct Stream {
    pub device: c_int,
    pub capture: Option<Capture>,
    /// Whether something is queued that has not run.
    pub is_busy: bool,
}

/// An event: in which run it passes, or passed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Event {
    pub run: Option<u64>,
}

/// A loaded code object.
#[derive(Debug)]
pub struct Module {
    pub device: c_int,
    pub module: ModuleHandle,
}

/// A kernel that was looked up.
#[derive(Clone, Debug)]
pub struct Function {
    pub module: usize,
    pub symbol: String,
}

/// The machine.
#[derive(Debug)]
pub struct Machine {
    pub emulator: Emulator,
    pub devices: c_int,
    pub model: DeviceModel,
    pub memory: BTreeMap<u64, Vec<(MemoryKind, c_int)>>,
    pub streams: HashMap<usize, Stream>,
    pub events: HashMap<usize, Event>,
    pub modules: HashMap<usize, Module>,
    pub functions: HashMap<usize, Function>,
    pub graphs: HashMap<usize, Vec<Work>>,
    pub graph_instances: HashMap<usize, (c_int, Vec<Work>)>,
    pub peers: HashSet<(c_int, c_int)>,
    /// Virtual time, in ticks of 10 ns, at which each run ended.
    pub runs: Vec<u64>,
    /// Fills that the null stream has not done yet.
    pub null_stream: Vec<Work>,
    /// Graph launches so far, and from which one on graphs copy nothing.
    pub graph_launches: u64,
    pub stale_from_launch: Option<u64>,
    next: usize,
}

/// The machine, once a call has come, and what outlives a failed start.
#[derive(Debug, Default)]
pub struct Process {
    machine: Option<Machine>,
    pub failures: Option<Failures>,
    pub message: CString,
}

static PROCESS: Mutex<Option<Process>> = Mutex::new(None);

thread_local! {
    /// The thread's device.
    pub static DEVICE: Cell<c_int> = const { Cell::new(0) };
    /// The thread's last error.
    pub static LAST_ERROR: Cell<c_int> = const { Cell::new(0) };
    /// The streams on which this thread has begun a capture.
    pub static CAPTURES: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// The process's state, for one call.
pub fn process() -> MutexGuard<'static, Option<Process>> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    /// The failures that are planned, those of the environment first.
    pub fn failures(&mut self) -> Result<&mut Failures, Failure> {
        if self.failures.is_none() {
            let parsed = Failures::parse(&variable("FAKE_HIP_FAIL"));
            self.failures = Some(parsed.map_err(|message| failure(NOT_INITIALIZED, message))?);
        }
        self.failures.as_mut().ok_or_else(|| failure(NOT_INITIALIZED, "no failures"))
    }

    /// The machine, made when it is first needed.
    pub fn machine(&mut self) -> Result<&mut Machine, Failure> {
        if self.machine.is_none() {
            self.machine = Some(Machine::from_environment()?);
        }
        self.machine.as_mut().ok_or_else(|| failure(NOT_INITIALIZED, "no machine"))
    }

    /// Forgets the machine, so that the next call makes another one.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Runs one call: counts it, fails it if that is planned, keeps its status and message.
pub fn call(name: &str, body: impl FnOnce(&mut Machine) -> Outcome) -> c_int {
    let mut guard = process();
    let process = guard.get_or_insert_with(Process::default);
    let planned = process.failures().map(|failures| failures.count(name));
    let outcome = match planned {
        Err(error) => Err(error),
        Ok(Some(status)) => refuse(status, format!("`{name}` was made to fail")),
        Ok(None) => process.machine().and_then(body),
    };
    let Err(Failure { status, message }) = outcome else { return 0 };
    process.message = CString::new(message.replace('\0', "?")).unwrap_or_default();
    LAST_ERROR.set(status);
    status
}

impl Machine {
    fn from_environment() -> Result<Self, Failure> {
        let devices = match variable("FAKE_HIP_DEVICES").trim() {
            "" => Ok(1),
            text => text.parse::<u8>().map_err(|error| format!("FAKE_HIP_DEVICES: {error}")),
        };
        let options = devices.and_then(|devices| {
            options::parse(devices as usize, &variable("FAKE_HIP_OPTIONS")).map(|options| (devices, options))
        });
        let (devices, setup) = options.map_err(|message| failure(NOT_INITIALIZED, message))?;
        let model = setup.emulator.model;
        Ok(Self {
            emulator: Emulator::new(setup.emulator),
            devices: devices.into(),
            model,
            memory: BTreeMap::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            graphs: HashMap::new(),
            graph_instances: HashMap::new(),
            peers: HashSet::new(),
            runs: Vec::new(),
            null_stream: Vec::new(),
            graph_launches: 0,
            stale_from_launch: setup.stale_from_launch,
            next: 0,
        })
    }

    /// A handle that was never given before: a stale one is never mistaken for a new one.
    pub fn fresh(&mut self) -> usize {
        self.next += 1;
        0x1000 + self.next * 16
    }

    /// Checks that a device exists.
    pub fn check_device(&self, device: c_int) -> Outcome {
        if (0..self.devices).contains(&device) {
            return Ok(());
        }
        refuse(INVALID_DEVICE, format!("device {device} of {}", self.devices))
    }

    /// The thread's device.
    pub fn device(&self) -> Result<c_int, Failure> {
        let device = DEVICE.get();
        self.check_device(device).map(|()| device)
    }

    /// The rank that a device is.
    pub fn rank(device: c_int) -> Rank {
        Rank(device.clamp(0, 255) as u8)
    }

    /// A stream that is alive.
    pub fn stream(&mut self, handle: usize) -> Result<&mut Stream, Failure> {
        let missing = || failure(INVALID_HANDLE, format!("{handle:#x} is no stream that is alive"));
        self.streams.get_mut(&handle).ok_or_else(missing)
    }

    /// Whether anything is queued.
    pub fn is_busy(&self) -> bool {
        self.streams.values().any(|stream| stream.is_busy)
    }

    /// Runs everything that is queued, on all devices at once.
    pub fn run(&mut self) -> Outcome {
        let result = self.emulator.synchronize();
        for stream in self.streams.values_mut() {
            stream.is_busy = false;
        }
        self.runs.push(self.emulator.ticks());
        result.map_err(|error| emulated(&error))
    }
}
