//! `Unlinked`: memory and code of the ranks of a process.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use specdec_core::device::{PeerHandle, PEER_HANDLE_BYTES};
use specdec_core::engine::{EngineOptions, Unlinked};
use specdec_core::geometry::Geometry;
use specdec_core::ids::Rank;
use specdec_emu::machine::{Emulator, Options};
use specdec_emu::{exchange_tap, stage_counts};

use super::PyEngine;
use crate::emulator::{stall_policy, ADVANCE_TICKS};
use crate::{error, races};

/// What is set up once the ranks are linked.
#[derive(Clone, Copy, Debug)]
struct Watches {
    tap: bool,
    count_stages: bool,
}

/// The ranks of a process with their memory and code: `link` lets them reach their peers and makes an `Engine`.
#[pyclass(module = "kimi_k3_specdec._native", name = "Unlinked")]
pub struct PyUnlinked {
    ranks: Mutex<Option<Unlinked<Emulator>>>,
    watches: Watches,
}

fn used() -> PyErr {
    error::refused("these ranks are linked already".into(), "make new ones")
}

fn peer_handle(bytes: Vec<u8>) -> PyResult<PeerHandle> {
    let length = bytes.len();
    let bytes = bytes.try_into().map_err(|_| {
        let message = format!("a peer handle has {PEER_HANDLE_BYTES} bytes, this one {length}");
        error::refused(message, "pass what `handles` gave on the other ranks, unchanged")
    })?;
    Ok(PeerHandle(bytes))
}

#[pymethods]
impl PyUnlinked {
    /// `members`: ranks of this process, None: all. `code_objects`: one for all of them or one for each. `stall`: what
    /// happens when every wave waits, `error` or `advance` (the clock jumps a second). `count_stages` counts by stage,
    /// slower. Raises `Refused` or `MachineError`.
    #[new]
    #[pyo3(signature = (geometry, ranks, code_objects, *, members=None, schedule_seed=0, stall="error", timeout_seconds=3.0, tap=true, witness=true, budget=None, count_stages=false, check=None, schedule="turns", memory="strong"))]
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
        let unlinked = Unlinked::new(Emulator::new(options), shard, &members, &code_objects, settings);
        let ranks = Mutex::new(Some(unlinked.map_err(error::engine)?));
        Ok(Self { ranks, watches: Watches { tap, count_stages } })
    }

    /// By rank of this process, what other processes need to reach it: (rank, handle).
    fn handles(&self) -> PyResult<Vec<(u8, Vec<u8>)>> {
        let mut ranks = self.ranks.lock().unwrap_or_else(PoisonError::into_inner);
        let handles = ranks.as_mut().ok_or_else(used)?.handles().map_err(error::engine)?;
        Ok(handles.into_iter().map(|(rank, handle)| (rank.0, handle.0.to_vec())).collect())
    }

    /// Makes the world of a group of so many processes, which share their time, and is its process 0; returns the handle
    /// with which the others join.
    fn create_world(&self, processes: usize) -> PyResult<Vec<u8>> {
        let mut ranks = self.ranks.lock().unwrap_or_else(PoisonError::into_inner);
        let device = ranks.as_mut().ok_or_else(used)?.device_mut();
        device.create_world(processes).map(|handle| handle.0.to_vec()).map_err(|e| error::machine(&e))
    }

    /// Joins a world as its process `index`.
    fn join_world(&self, handle: Vec<u8>, index: usize) -> PyResult<()> {
        let mut ranks = self.ranks.lock().unwrap_or_else(PoisonError::into_inner);
        let device = ranks.as_mut().ok_or_else(used)?.device_mut();
        device.join_world(&peer_handle(handle)?, index).map_err(|e| error::machine(&e))
    }

    /// Lets the ranks reach all others: `handles` has one of every rank, in order; none is needed if all ranks are of
    /// this process. Nothing may be launched before all ranks have come here.
    #[pyo3(signature = (handles=Vec::new()))]
    fn link(&self, handles: Vec<Vec<u8>>) -> PyResult<PyEngine> {
        let parsed = handles.into_iter().map(peer_handle).collect::<PyResult<Vec<_>>>()?;
        let unlinked = self.ranks.lock().unwrap_or_else(PoisonError::into_inner).take().ok_or_else(used)?;
        let mut engine = unlinked.link(&parsed).map_err(error::engine)?;
        for rank in engine.members().collect::<Vec<_>>() {
            let word = engine.abort_word(rank).map_err(error::engine)?;
            engine.device.add_abort_word(word).map_err(|e| error::machine(&e))?;
        }
        if self.watches.tap {
            exchange_tap::watch(&mut engine).map_err(error::engine)?;
        }
        if self.watches.count_stages {
            stage_counts::start(&mut engine).map_err(error::engine)?;
        }
        Ok(PyEngine { engine: Mutex::new(engine), graphs: Mutex::default() })
    }
}
