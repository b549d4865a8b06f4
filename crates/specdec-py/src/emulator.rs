//! `Machine`: the emulator as a bare machine that runs any gfx950 code object.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use specdec_core::config::json;
use specdec_core::device::{Device, MemoryKind};
use specdec_core::ids::{DeviceAddress, Rank};
use specdec_emu::case::Case;
use specdec_emu::machine::{Emulator, EmulatorError, GridLaunch, KernelInfo, ModuleHandle, Options, Stall};

use crate::error;
use crate::statistics::counters;

/// How far the clock jumps, unless the caller says otherwise: a second in ticks of 10 ns.
pub const ADVANCE_TICKS: u64 = 100_000_000;
/// A rank is a byte.
const MAX_RANKS: usize = 256;

/// The policy of a name: `error`, or `advance` by so many ticks.
pub fn stall_policy(name: &str, ticks: u64) -> PyResult<Stall> {
    match name {
        "error" => Ok(Stall::Error),
        "advance" => Ok(Stall::Advance(ticks)),
        _ => Err(error::unknown("stall policy", name, "error, advance")),
    }
}

/// Ranks with memory, code and queues of launches. Every call but `run` raises `Refused` for what it cannot do; `run`
/// raises `MachineError`.
#[pyclass(module = "kimi_k3_specdec._native", name = "Machine")]
pub struct PyMachine {
    emulator: Mutex<Emulator>,
    modules: Mutex<Vec<ModuleHandle>>,
}

impl PyMachine {
    /// Calls the emulator without the GIL: another thread may be running it for minutes. A panic in a binding leaves
    /// it as it was.
    fn with<T: Send>(&self, py: Python<'_>, call: impl Send + FnOnce(&mut Emulator) -> T) -> T {
        py.detach(|| call(&mut self.emulator.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn module(&self, number: usize) -> PyResult<ModuleHandle> {
        let modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let found = modules.get(number).copied();
        found.ok_or_else(|| refused(&EmulatorError::UnknownModule { index: number }))
    }
}

/// What was refused before anything ran.
fn refused(found: &EmulatorError) -> PyErr {
    error::refused(found.to_string(), found.hint())
}

#[pymethods]
impl PyMachine {
    /// `stall`: what happens when every wave waits, `error` or `advance` (the clock jumps `advance_ticks` of 10 ns, so
    /// that waits with a time-out give up). `budget`: wave instructions that one `run` may execute.
    #[new]
    #[pyo3(signature = (ranks=1, *, schedule_seed=0, stall="error", advance_ticks=ADVANCE_TICKS, budget=None))]
    fn new(ranks: usize, schedule_seed: u64, stall: &str, advance_ticks: u64, budget: Option<u64>) -> PyResult<Self> {
        if ranks == 0 || ranks > MAX_RANKS {
            return Err(error::refused(format!("a machine of {ranks} ranks"), "ask for 1 to 256 ranks"));
        }
        if advance_ticks == 0 {
            return Err(error::refused("a clock that advances by 0 ticks".into(), "ask for 1 tick or more"));
        }
        let stall = stall_policy(stall, advance_ticks)?;
        let mut options = Options { ranks, seed: schedule_seed, stall, ..Options::default() };
        options.budget = budget.unwrap_or(options.budget);
        Ok(Self { emulator: Mutex::new(Emulator::new(options)), modules: Mutex::default() })
    }

    /// Loads a gfx950 code object. Returns its module's number.
    fn load(&self, py: Python<'_>, code_object: &[u8]) -> PyResult<usize> {
        let handle = self.with(py, |emulator| emulator.load(code_object)).map_err(|e| refused(&e))?;
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        modules.push(handle);
        Ok(modules.len() - 1)
    }

    /// A module's kernels, each as a dictionary.
    fn kernels<'py>(&self, py: Python<'py>, module: usize) -> PyResult<Bound<'py, PyList>> {
        let module = self.module(module)?;
        let kernels = self.with(py, |emulator| emulator.kernels(module)).map_err(|e| refused(&e))?;
        let rows: Vec<_> = kernels.iter().map(|kernel| kernel_row(py, kernel)).collect::<PyResult<_>>()?;
        PyList::new(py, rows)
    }

    /// Instructions of a module's kernels that the emulator lacks: (byte offset in the text section, text).
    fn unsupported_instructions(&self, py: Python<'_>, module: usize) -> PyResult<Vec<(u32, String)>> {
        let module = self.module(module)?;
        self.with(py, |emulator| emulator.unsupported_instructions(module)).map_err(|e| refused(&e))
    }

    /// Allocates on `rank`, at `address` or where the emulator likes. Returns the address.
    #[pyo3(signature = (nbytes, *, rank=0, address=None, name="memory", initialised=true))]
    fn allocate(
        &self,
        py: Python<'_>,
        nbytes: u64,
        rank: u8,
        address: Option<u64>,
        name: &str,
        initialised: bool,
    ) -> PyResult<u64> {
        let rank = Rank(rank);
        let allocated = self.with(py, |emulator| match address {
            Some(address) => {
                emulator.allocate_at(rank, DeviceAddress(address), nbytes, name, initialised).map(|()| address)
            }
            None if initialised => emulator.allocate(rank, MemoryKind::Device, nbytes, name).map(|address| address.0),
            None => emulator.allocate_unwritten(rank, MemoryKind::Device, nbytes, name).map(|address| address.0),
        });
        allocated.map_err(|e| refused(&e))
    }

    /// Frees the allocation that starts at `address`.
    fn free(&self, py: Python<'_>, address: u64) -> PyResult<()> {
        self.with(py, |emulator| emulator.free(DeviceAddress(address))).map_err(|e| refused(&e))
    }

    /// Writes memory now, before what is queued runs.
    fn write(&self, py: Python<'_>, address: u64, data: &[u8]) -> PyResult<()> {
        self.with(py, |emulator| emulator.write_now(DeviceAddress(address), data)).map_err(|e| refused(&e))
    }

    /// `nbytes` of memory as they are now, written or not.
    fn read<'py>(&self, py: Python<'py>, address: u64, nbytes: usize) -> PyResult<Bound<'py, PyBytes>> {
        // Looked up first: a size from nowhere must not ask the host for that much.
        self.with(py, |emulator| emulator.check_range(DeviceAddress(address), nbytes as u64))
            .map_err(|e| refused(&e))?;
        PyBytes::new_with(py, nbytes, |bytes| {
            self.with(py, |emulator| emulator.read(DeviceAddress(address), bytes)).map_err(|e| refused(&e))
        })
    }

    /// Checks and queues one launch; `kernarg` is the explicit arguments or the whole segment.
    #[pyo3(signature = (module, symbol, grid, block, kernarg, *, rank=0, dynamic_lds=0))]
    #[expect(clippy::too_many_arguments, reason = "arguments of a Python method")]
    fn launch(
        &self,
        py: Python<'_>,
        module: usize,
        symbol: String,
        grid: [u32; 3],
        block: [u32; 3],
        kernarg: Vec<u8>,
        rank: u8,
        dynamic_lds: u32,
    ) -> PyResult<()> {
        let module = self.module(module)?;
        let launch = GridLaunch { module, symbol, grid, block, dynamic_lds_bytes: dynamic_lds, kernarg };
        self.with(py, |emulator| emulator.launch_grid(Rank(rank), &launch)).map_err(|e| refused(&e))
    }

    /// Runs everything that is queued, on all ranks at once.
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Device::synchronize).map_err(|e| error::machine(&e))
    }

    /// What ran since the start or `clear_statistics`, by name; `loads_in_flight` per kernel and barrier.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counted = self.with(py, |emulator| emulator.statistics().clone());
        let out = counters(py, &counted)?;
        let loads = counted.loads_in_flight.into_iter();
        let loads = loads.map(|((kernel, pc), loads)| (kernel, pc, loads.min_bytes, loads.max_bytes, loads.workgroups));
        out.set_item("loads_in_flight", PyList::new(py, loads.collect::<Vec<_>>())?)?;
        Ok(out)
    }

    /// Counts anew from now on.
    fn clear_statistics(&self, py: Python<'_>) {
        self.with(py, Emulator::clear_statistics);
    }

    /// Virtual time since the start, in ticks of 10 ns.
    #[getter]
    fn ticks(&self, py: Python<'_>) -> u64 {
        self.with(py, |emulator| emulator.ticks())
    }
}

fn kernel_row<'py>(py: Python<'py>, kernel: &KernelInfo) -> PyResult<Bound<'py, PyDict>> {
    let row = PyDict::new(py);
    row.set_item("symbol", &kernel.symbol)?;
    for (name, value) in [
        ("vgprs", kernel.vgprs),
        ("agprs", kernel.agprs),
        ("sgprs", kernel.sgprs),
        ("vgpr_spills", kernel.vgpr_spills),
        ("sgpr_spills", kernel.sgpr_spills),
        ("lds_bytes", kernel.lds_bytes),
        ("kernarg_bytes", kernel.kernarg_bytes),
        ("explicit_kernarg_bytes", kernel.explicit_kernarg_bytes),
        ("private_bytes", kernel.private_bytes),
        ("max_block", kernel.max_block),
        ("code_bytes", kernel.code_bytes),
    ] {
        row.set_item(name, value)?;
    }
    let arguments = kernel.arguments.iter();
    let arguments = arguments.map(|found| (found.offset, found.bytes, found.kind.as_str(), found.is_hidden()));
    row.set_item("arguments", arguments.collect::<Vec<_>>())?;
    Ok(row)
}

/// A case of `emulate`, checked as far as it can be without its files: (every key as JSON, warnings). Raises `Refused`
/// with the JSON path.
#[pyfunction]
pub fn parse_case(text: &str) -> PyResult<(String, Vec<String>)> {
    let parsed = Case::parse(text).map_err(|e| error::refused(e.to_string(), e.hint()))?;
    let text = json::write(&parsed.value).map_err(|e| error::refused(e, "report this as a defect"))?;
    Ok((text, parsed.warnings))
}
