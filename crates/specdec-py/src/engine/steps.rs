//! Steps of an engine: running them, captured ones, and what the devices report.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use specdec_core::ids::Rank;
use specdec_core::tag::Epoch;

use super::ranks::{on_device, on_engine, AbortWords, HostDevice, Linked, Ranks};
use super::PyEngine;
use crate::error;

/// Asks the waits of an engine to give up.
#[pyclass(module = "kimi_k3_specdec._native", name = "Abort", frozen)]
pub struct PyAbort(AbortWords);

#[pymethods]
impl PyAbort {
    fn __call__(&self) {
        self.0.set();
    }
}

#[pymethods]
impl PyEngine {
    /// Runs everything that is queued on all ranks of this process. Raises `MachineError` (located) or `DeviceFailure`.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| on_engine!(self, engine => engine.synchronize().map_err(error::engine)))
    }

    /// Runs everything that is queued, whether workgroups give up or not: `report` says so. Raises `MachineError`.
    fn run(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| on_engine!(self, engine => engine.run().map_err(error::engine)))
    }

    /// Queues a rank's work to somebody else's stream from now on: `stream` is a `hipStream_t` of the rank's device, such
    /// as torch's current one, and lives as long as this engine. Cheap while it stays the same. Raises `Refused` where
    /// the device has no such streams.
    fn set_stream(&self, rank: u8, stream: usize) -> PyResult<()> {
        on_engine!(self, engine => {
            // SAFETY: the caller's contract, stated above; a framework's graphs end before the engine does.
            unsafe { HostDevice::set_stream(&mut engine.device, Rank(rank), stream) }
        })
    }

    /// A rank's epoch: the steps that its kernels have finished.
    fn epoch(&self, rank: u8) -> PyResult<u32> {
        on_engine!(self, engine => engine.epoch(Rank(rank)).map(|epoch| epoch.0).map_err(error::engine))
    }

    /// The number of the step that a rank launches next.
    fn next_step(&self, rank: u8) -> PyResult<u32> {
        on_engine!(self, engine => engine.next_step(Rank(rank)).map(|epoch| epoch.0).map_err(error::engine))
    }

    /// Continues at `epoch` on every rank; all ranks must agree on it.
    fn resume_at(&self, epoch: u32) -> PyResult<()> {
        on_engine!(self, engine => engine.resume_at(Epoch(epoch)).map_err(error::engine))
    }

    /// Gives up the step that is open on a rank; returns the next one's number. Every rank must have launched the same
    /// runs, all of them must have ended everywhere, and none may go on before all have closed.
    fn close_step(&self, rank: u8) -> PyResult<u32> {
        on_engine!(self, engine => engine.close_step(Rank(rank)).map(|epoch| epoch.0).map_err(error::engine))
    }

    /// Asks every wait of every rank of this process to give up at once.
    fn abort(&self) -> PyResult<()> {
        // Not by the engine's own: a write of HIP's comes behind the kernels that it is for.
        self.abort_handle().map(|abort| abort.0.set())
    }

    /// A callable that does so from any thread, also while launches run.
    fn abort_handle(&self) -> PyResult<PyAbort> {
        on_engine!(self, engine => HostDevice::abort_words(engine)).map(PyAbort)
    }

    /// By rank, the tag of the step and layer in which it gave up, as it told `rank`; 0: it did not.
    fn alarms(&self, rank: u8) -> PyResult<Vec<u32>> {
        let alarms = on_engine!(self, engine => engine.alarms(Rank(rank)).map_err(error::engine))?;
        Ok(alarms.map(|alarm| alarm.map_or(0, |tag| tag.0)).to_vec())
    }

    /// Records what is launched on a rank from now on. Shapes must have been prepared.
    fn begin_capture(&self, rank: u8) -> PyResult<()> {
        on_engine!(self, engine => engine.begin_capture(Rank(rank)).map_err(error::engine))
    }

    /// Ends a capture; returns the graph's number.
    fn end_capture(&self, rank: u8) -> PyResult<usize> {
        on_device!(Ranks, &mut *self.lock(), Linked { engine, graphs } => {
            let graph = engine.end_capture(Rank(rank)).map_err(error::engine)?;
            graphs.push((Rank(rank), graph));
            Ok(graphs.len() - 1)
        })
    }

    /// Queues a captured step on the rank that it was captured on.
    fn replay(&self, graph: usize) -> PyResult<()> {
        on_device!(Ranks, &mut *self.lock(), Linked { engine, graphs } => {
            let (rank, graph) = graphs.get(graph).ok_or_else(|| error::unknown_graph(graph, graphs.len()))?;
            engine.replay(*rank, graph).map_err(error::engine)
        })
    }

    /// Plans a step shape and writes its task table, so that captures can launch it.
    fn prepare(&self, requests: u32, speculative_tokens: u32) -> PyResult<()> {
        let shape = specdec_core::tasks::StepShape::new(requests, speculative_tokens).map_err(|e| error::shape(&e))?;
        on_engine!(self, engine => engine.prepare(shape).map_err(error::engine))
    }

    /// Replays a captured step without layers, in which every rank hands every rank pairs. Collective over all ranks;
    /// consumes steps. Raises `DeviceFailure`, `MachineError` or `Refused`.
    fn self_test(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| on_engine!(self, engine => engine.self_test().map_err(error::engine)))
    }

    /// Queues a copy of what a rank's device has to say behind step `of`; nobody waits for it.
    fn queue_report(&self, rank: u8, of: u32) -> PyResult<()> {
        on_engine!(self, engine => engine.queue_report(Rank(rank), Epoch(of)).map_err(error::engine))
    }

    /// A rank's report behind step `of`, None while it is on its way: `epoch`, `step` (of the metadata that it saw),
    /// `failed`, and `alarms`: by rank the tag of the step and layer in which it gave up, or 0.
    fn report<'py>(&self, py: Python<'py>, rank: u8, of: u32) -> PyResult<Option<Bound<'py, PyDict>>> {
        let report = on_engine!(self, engine => engine.report(Rank(rank), Epoch(of)).map_err(error::engine))?;
        let Some(report) = report else { return Ok(None) };
        let out = PyDict::new(py);
        out.set_item("epoch", report.epoch.0)?;
        out.set_item("step", report.step.0)?;
        out.set_item("failed", report.has_failed)?;
        out.set_item("alarms", report.alarms.map(|alarm| alarm.map_or(0, |tag| tag.0)).to_vec())?;
        Ok(Some(out))
    }
}
