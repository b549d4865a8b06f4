//! `Unlinked`: memory and code of the ranks of a process.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use specdec_core::device::{Device, PeerHandle, PEER_HANDLE_BYTES};
use specdec_core::engine::{Engine, EngineOptions, Unlinked};
use specdec_core::geometry::Geometry;
use specdec_core::ids::Rank;
use specdec_core::null_device::NullDevice;
use specdec_emu::machine::{Emulator, Options};
use specdec_emu::{exchange_tap, stage_counts};

use super::ranks::{on_device, Apart, Linked, Ranks};
use super::{hip, PyEngine};
use crate::emulator::{stall_policy, ADVANCE_TICKS};
use crate::error::Raised;
use crate::{error, races};

/// Names of the devices that ranks can be on.
const DEVICES: &str = "emulator, hip, null (which runs nothing)";

/// What is set up once the ranks are linked.
#[derive(Clone, Copy, Debug)]
struct Watches {
    tap: bool,
    count_stages: bool,
}

/// The ranks of a process with their memory and code: `link` lets them reach their peers and makes an `Engine`.
#[pyclass(module = "kimi_k3_specdec._native", name = "Unlinked")]
pub struct PyUnlinked {
    ranks: Mutex<Option<Apart>>,
    watches: Watches,
}

impl PyUnlinked {
    fn lock(&self) -> MutexGuard<'_, Option<Apart>> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what only the emulator can: HIP's processes need no world.
    fn on_emulator<T>(&self, body: impl FnOnce(&mut Emulator) -> PyResult<T>) -> PyResult<T> {
        match self.lock().as_mut().ok_or_else(used)? {
            Apart::Emulator(ranks) => body(ranks.device_mut()),
            Apart::Hip(_) | Apart::Null(_) => Err(error::emulator_only("a world of processes")),
        }
    }
}

fn used() -> PyErr {
    error::refused("these ranks are linked already".into(), "make new ones")
}

/// Bytes as the handle that they are. Raises `Refused`.
pub fn peer_handle(bytes: Vec<u8>) -> PyResult<PeerHandle> {
    let length = bytes.len();
    let bytes = bytes.try_into().map_err(|_| {
        let message = format!("a peer handle has {PEER_HANDLE_BYTES} bytes, this one {length}");
        error::refused(message, "pass what another rank gave, unchanged")
    })?;
    Ok(PeerHandle(bytes))
}

#[pymethods]
impl PyUnlinked {
    /// `members`: ranks of this process, None: all. `code_objects`: one for all of them or one for each. `device`:
    /// `emulator`, `hip` (every rank on the device of its number) or `null`; `library`: the HIP to load, None: the
    /// process's, or the installed one. The others are the emulator's: `stall`: what happens when every wave waits, `error` or
    /// `advance` (the clock jumps a second); `count_stages` counts by stage, slower. Raises `Refused` or `MachineError`.
    #[new]
    #[pyo3(signature = (geometry, ranks, code_objects, *, members=None, schedule_seed=0, stall="error", timeout_seconds=3.0, tap=true, witness=true, budget=None, count_stages=false, check=None, schedule="turns", memory="strong", device="emulator", library=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python constructor")]
    fn new(
        geometry: &str,
        ranks: u32,
        code_objects: Vec<Vec<u8>>,
        members: Option<Vec<u8>>,
        schedule_seed: u64,
        stall: &str,
        timeout_seconds: f64,
        tap: bool,
        witness: bool,
        budget: Option<u64>,
        count_stages: bool,
        check: Option<&str>,
        schedule: &str,
        memory: &str,
        device: &str,
        library: Option<PathBuf>,
    ) -> PyResult<Self> {
        let geometry = Geometry::by_name(geometry).map_err(|e| error::geometry(&e))?;
        let shard = geometry.shard(ranks).map_err(|e| error::geometry(&e))?;
        let mut options = Options {
            ranks: ranks as usize,
            seed: schedule_seed,
            stall: stall_policy(stall, ADVANCE_TICKS)?,
            ..Options::default()
        };
        options.budget = budget.unwrap_or(options.budget);
        options.check_races = check.map_or(Ok(false), races::is_race_check)?;
        options.weak_memory = races::is_weak(memory)?;
        options.schedule = races::schedule(schedule)?;
        let members = members.unwrap_or_else(|| (0..ranks as u8).collect());
        let members: Vec<Rank> = members.into_iter().map(Rank).collect();
        let settings = EngineOptions { timeout_seconds, witness };
        let code = &code_objects;
        let apart = match device {
            "emulator" => Unlinked::new(Emulator::new(options), shard, &members, code, settings)
                .map(Apart::Emulator)
                .map_err(error::engine),
            _ if options.check_races || options.weak_memory || count_stages => {
                Err(error::emulator_only("what `check`, `memory` and `count_stages` ask for"))
            }
            "hip" => {
                let device = hip::device(library.as_deref(), ranks, &members)?;
                Unlinked::new(device, shard, &members, code, settings).map(Apart::Hip).map_err(error::engine)
            }
            "null" => Unlinked::new(NullDevice::default(), shard, &members, code, settings)
                .map(Apart::Null)
                .map_err(error::engine),
            other => Err(error::unknown("device", other, DEVICES)),
        };
        Ok(Self { ranks: Mutex::new(Some(apart?)), watches: Watches { tap, count_stages } })
    }

    /// By rank of this process, what other processes need to reach it: (rank, handle).
    fn handles(&self) -> PyResult<Vec<(u8, Vec<u8>)>> {
        let mut ranks = self.lock();
        let ranks = ranks.as_mut().ok_or_else(used)?;
        let handles = on_device!(Apart, ranks, ranks => ranks.handles().map_err(error::engine))?;
        Ok(handles.into_iter().map(|(rank, handle)| (rank.0, handle.0.to_vec())).collect())
    }

    /// Makes the world of a group of so many processes, which share their time, and is its process 0; returns the handle
    /// with which the others join.
    fn create_world(&self, processes: usize) -> PyResult<Vec<u8>> {
        self.on_emulator(|device| device.create_world(processes).map_err(|e| e.raised()))
            .map(|handle| handle.0.to_vec())
    }

    /// Joins a world as its process `index`.
    fn join_world(&self, handle: Vec<u8>, index: usize) -> PyResult<()> {
        let handle = peer_handle(handle)?;
        self.on_emulator(|device| device.join_world(&handle, index).map_err(|e| e.raised()))
    }

    /// Lets the ranks reach all others: `handles` has one of every rank, in order; none is needed if all ranks are of
    /// this process. Nothing may be launched before all ranks have come here.
    #[pyo3(signature = (handles=Vec::new()))]
    fn link(&self, handles: Vec<Vec<u8>>) -> PyResult<PyEngine> {
        let parsed = handles.into_iter().map(peer_handle).collect::<PyResult<Vec<_>>>()?;
        let apart = self.lock().take().ok_or_else(used)?;
        let mut ranks = match apart {
            Apart::Emulator(ranks) => Ranks::Emulator(linked(ranks, &parsed)?),
            Apart::Hip(ranks) => Ranks::Hip(linked(ranks, &parsed)?),
            Apart::Null(ranks) => Ranks::Null(linked(ranks, &parsed)?),
        };
        if let Ranks::Emulator(Linked { engine, .. }) = &mut ranks {
            self.watches.start(engine)?;
        }
        Ok(PyEngine { ranks: Mutex::new(ranks), owners: Mutex::default() })
    }
}

fn linked<D: Device<Error: Raised>>(ranks: Unlinked<D>, handles: &[PeerHandle]) -> PyResult<Linked<D>> {
    Ok(Linked { graphs: Vec::new(), engine: ranks.link(handles).map_err(error::engine)? })
}

impl Watches {
    fn start(self, engine: &mut Engine<Emulator>) -> PyResult<()> {
        for rank in engine.members().collect::<Vec<_>>() {
            let word = engine.abort_word(rank).map_err(error::engine)?;
            engine.device.add_abort_word(word).map_err(|e| e.raised())?;
        }
        if self.tap {
            exchange_tap::watch(engine).map_err(error::engine)?;
        }
        if self.count_stages {
            stage_counts::start(engine).map_err(error::engine)?;
        }
        Ok(())
    }
}
