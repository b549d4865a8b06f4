//! `Engine`: all ranks of a process on the emulator.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use specdec_core::abi::StateGroup;
use specdec_core::binding;
use specdec_core::engine::{Activations, Engine};
use specdec_core::geometry::Geometry;
use specdec_core::ids::{DeviceAddress, Layer, Rank};
use specdec_core::layout::Region;
use specdec_core::plan::{runs, Run};
use specdec_core::tag::{Epoch, Tag};
use specdec_core::tasks::StepShape;
use specdec_emu::exchange_tap;
use specdec_emu::machine::{Emulator, Fault, Options, Parts};
use specdec_emu::op::Op;
use specdec_emu::stage_counts;

use crate::emulator::{stall_policy, ADVANCE_TICKS};
use crate::guards::PyCheckedLayers;
use crate::statistics::counters;
use crate::{counts, error, races};

/// All ranks of a process, on the emulator. Addresses are host addresses of memory that was registered.
#[pyclass(module = "kimi_k3_specdec._native", name = "Engine")]
pub struct PyEngine {
    engine: Mutex<Engine<Emulator>>,
    faults: Mutex<Vec<usize>>,
}

impl PyEngine {
    /// A panic in a binding leaves the engine as it was: its own `stopped` flag guards what must not go on.
    fn lock(&self) -> MutexGuard<'_, Engine<Emulator>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn region(name: &str) -> PyResult<Region> {
    Region::ALL
        .into_iter()
        .find(|region| region.name() == name)
        .ok_or_else(|| error::unknown("region", name, &Region::ALL.map(Region::name).join(", ")))
}

#[pymethods]
impl PyEngine {
    /// `code_objects`: one for all ranks or one for each. `stall`: what happens when every wave waits, `error` or
    /// `advance` (the clock jumps a second). `count_stages` counts by stage, slower. Raises `Refused` or `MachineError`.
    #[new]
    #[pyo3(signature = (geometry, ranks, code_objects, *, schedule_seed=0, stall="error", timeout_seconds=3.0, tap=true, witness=true, budget=None, count_stages=false, check=None, schedule="turns", memory="strong"))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python constructor")]
    fn new(
        geometry: &str,
        ranks: u32,
        code_objects: Vec<Vec<u8>>,
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
        let emulator = Emulator::new(options);
        let mut engine =
            Engine::new(emulator, shard, &code_objects, timeout_seconds, witness).map_err(error::engine)?;
        if tap {
            exchange_tap::watch(&mut engine).map_err(error::engine)?;
        }
        if count_stages {
            stage_counts::start(&mut engine).map_err(error::engine)?;
        }
        Ok(Self { engine: Mutex::new(engine), faults: Mutex::default() })
    }

    /// Makes `nbytes` of host memory at `address` reachable; the caller keeps it alive and in place until
    /// `unregister` or the engine's end. `parts`, (what, bytes, first number), lets errors name the part that they are
    /// about.
    #[pyo3(signature = (rank, address, nbytes, name, initialised=true, parts=None))]
    fn register(
        &self,
        rank: u8,
        address: u64,
        nbytes: u64,
        name: &str,
        initialised: bool,
        parts: Option<(String, u64, u64)>,
    ) -> PyResult<()> {
        let mut engine = self.lock();
        // SAFETY: the caller's contract, stated above: the memory outlives its registration and is not moved.
        let registered = unsafe { engine.device.register(address, nbytes, Rank(rank), name, initialised) };
        registered.map_err(|e| error::machine(&e))?;
        let Some((what, bytes, first)) = parts else { return Ok(()) };
        engine.device.name_parts(address, Parts { what, bytes, first }).map_err(|e| error::machine(&e))
    }

    /// Ends a registration.
    fn unregister(&self, address: u64) -> PyResult<()> {
        self.lock().device.unregister(address).map_err(|e| error::machine(&e))
    }

    /// Binds one layer: `addresses` and `numbers` by the names of `LayerDescriptor`'s fields. Raises `Refused` with
    /// every missing, unknown or null name.
    fn bind_layer(
        &self,
        rank: u8,
        layer: u8,
        addresses: BTreeMap<String, u64>,
        numbers: BTreeMap<String, f64>,
    ) -> PyResult<()> {
        let mut engine = self.lock();
        let descriptor = binding::descriptor(&engine.shard().geometry, Layer(layer), &addresses, &numbers)
            .map_err(|e| error::binding(&e))?;
        engine.bind_layer(Rank(rank), &descriptor).map_err(error::engine)
    }

    /// Binds layers whose weights and states were checked.
    fn bind_layers(&self, rank: u8, layers: &PyCheckedLayers) -> PyResult<()> {
        let mut engine = self.lock();
        layers.descriptors().try_for_each(|layer| engine.bind_layer(Rank(rank), layer).map_err(error::engine))
    }

    /// Binds a rank's KDA cache groups: (i32 `state_indices` address, its row stride, i32 `num_accepted` address).
    fn bind_groups(&self, rank: u8, groups: Vec<(u64, u32, u64)>) -> PyResult<()> {
        let groups: Vec<StateGroup> = groups
            .into_iter()
            .map(|(state_indices, row_stride, num_accepted)| StateGroup {
                state_indices,
                num_accepted,
                row_stride,
                reserved: 0,
            })
            .collect();
        self.lock().bind_groups(Rank(rank), &groups).map_err(error::engine)
    }

    /// The runs (first, last) of the served layers, all or those of `layers` (first, last).
    #[pyo3(signature = (layers=None))]
    fn runs(&self, layers: Option<(u8, u8)>) -> Vec<(u8, u8)> {
        let (first, last) = layers.unwrap_or((0, u8::MAX));
        runs(&self.lock().shard().geometry, first..=last).iter().map(|run| (run.first.0, run.last.0)).collect()
    }

    /// Enqueues one run on one rank. Addresses are on that rank; strides in elements.
    #[pyo3(signature = (rank, first, last, *, requests, speculative_tokens, prefix, blocks, blocks_row_stride, block_stride, delta, core, has_delta, last_of_step))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python method")]
    fn launch(
        &self,
        rank: u8,
        first: u8,
        last: u8,
        requests: u32,
        speculative_tokens: u32,
        prefix: u64,
        blocks: u64,
        blocks_row_stride: u32,
        block_stride: u32,
        delta: u64,
        core: u64,
        has_delta: bool,
        last_of_step: bool,
    ) -> PyResult<()> {
        let shape = StepShape::new(requests, speculative_tokens).map_err(|e| error::shape(&e))?;
        let activations = Activations {
            prefix: DeviceAddress(prefix),
            blocks: DeviceAddress(blocks),
            blocks_row_stride,
            block_stride,
            delta: DeviceAddress(delta),
            core: DeviceAddress(core),
            has_delta,
        };
        let run = Run { first: Layer(first), last: Layer(last) };
        self.lock().launch(Rank(rank), run, shape, &activations, last_of_step).map_err(error::engine)
    }

    /// Runs everything that is queued on all ranks. Raises `MachineError` (located) or `DeviceFailure`.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.lock().synchronize()).map_err(error::engine)
    }

    /// A rank's epoch: the steps that its kernels have finished.
    fn epoch(&self, rank: u8) -> PyResult<u32> {
        self.lock().epoch(Rank(rank)).map(|epoch| epoch.0).map_err(error::engine)
    }

    /// Continues at `epoch` on every rank; all ranks must agree on it.
    fn resume_at(&self, epoch: u32) -> PyResult<()> {
        self.lock().resume_at(Epoch(epoch)).map_err(error::engine)
    }

    /// Asks every wait of every rank to give up at once.
    fn abort(&self) -> PyResult<()> {
        self.lock().abort().map_err(error::engine)
    }

    /// What was stored into a region of `rank` for `layer` in step `epoch`: (bytes, a written byte per byte), or None.
    /// Pairs give their 4-byte payloads, densely.
    fn tap<'py>(
        &self,
        py: Python<'py>,
        rank: u8,
        region: &str,
        layer: u8,
        epoch: u32,
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        let region = self::region(region)?;
        let tag = Tag::new(Epoch(epoch), Layer(layer));
        let image = self.lock().device.take_tap(Rank(rank), region as u32, tag.0);
        Ok(image.map(|image| (PyBytes::new(py, &image.bytes), PyBytes::new(py, &image.written))))
    }

    /// Forgets what the tap holds.
    fn clear_tap(&self) {
        exchange_tap::clear(&mut self.lock());
    }

    /// A layer's witness block of the last launch that held it, or None.
    fn witness<'py>(&self, py: Python<'py>, rank: u8, layer: u8) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let block = self.lock().witness(Rank(rank), Layer(layer)).map_err(error::engine)?;
        Ok(block.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Makes the `occurrence`-th execution of `op` on `rank` do nothing. Returns the fault's number.
    fn skip_instruction(&self, rank: u8, op: &str, occurrence: u64) -> PyResult<usize> {
        let found = Op::ALL.iter().copied().find(|known| known.name() == op);
        let op =
            found.ok_or_else(|| error::unknown("instruction", op, "the emulator's mnemonics, without a suffix"))?;
        Ok(self.add_fault(Fault::SkipInstruction { rank: Rank(rank), op, occurrence }))
    }

    /// Flips `xor` in the `occurrence`-th store that `rank` makes into `region` of `owner`. Returns the fault's number.
    fn corrupt_store(&self, rank: u8, region: &str, owner: u8, occurrence: u64, xor: u64) -> PyResult<usize> {
        let region = (Rank(owner), self::region(region)? as u32);
        Ok(self.add_fault(Fault::CorruptStore { region, rank: Rank(rank), occurrence, xor }))
    }

    /// Whether an injected fault has happened.
    fn fault_fired(&self, fault: usize) -> bool {
        let handle = self.faults.lock().unwrap_or_else(PoisonError::into_inner).get(fault).copied();
        handle.is_some_and(|handle| self.lock().device.has_fired(handle))
    }

    /// Every race found so far, one for each pair of source places; empty unless `check` is `races`.
    fn races<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        races::as_list(py, &self.lock().device.races())
    }

    /// What every workgroup did by stage since the engine was made, with `count_stages`: counter -> u64 `[ranks, bins,
    /// workgroups]` in the host's byte order; bins are the stages, what is between them, and the clearing of old rows.
    fn stage_counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counts::by_stage(py, &self.lock())
    }

    /// What the emulator counted since the engine was made.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let engine = self.lock();
        let out = counters(py, engine.device.statistics())?;
        out.set_item("loads_in_flight", loads_in_flight(py, &engine)?)?;
        Ok(out)
    }
}

/// Per barrier: the inlined functions there, innermost first, and (least, most) bytes of weights that a workgroup had
/// in flight at its best pass.
fn loads_in_flight<'py>(py: Python<'py>, engine: &Engine<Emulator>) -> PyResult<Bound<'py, PyList>> {
    let rows = PyList::empty(py);
    for (&(_, pc), loads) in &engine.device.statistics().loads_in_flight {
        let module = engine.module(Rank(0)).map_err(error::engine)?;
        let lines = engine.device.functions_at(module, pc).map_err(|e| error::machine(&e))?;
        let functions: Vec<String> = lines.into_iter().map(|line| line.function).collect();
        rows.append((functions, loads.min_bytes, loads.max_bytes, loads.workgroups))?;
    }
    Ok(rows)
}

impl PyEngine {
    fn add_fault(&self, fault: Fault) -> usize {
        let handle = self.lock().device.inject(fault);
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.push(handle);
        faults.len() - 1
    }
}
