//! `Executor`: one rank's steps, from the facts of vLLM's forward to launches and votes.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use specdec_core::abi::{FailureRecord, StateGroup};
use specdec_core::encode::Encode;
use specdec_core::engine::Activations;
use specdec_core::executor::{Executor, ExecutorError, Planned};
use specdec_core::health::{Diagnosis, Failure, Reason};
use specdec_core::ids::{Cta, DeviceAddress, Layer, Rank, Rows};
use specdec_core::plan::{GraphMode, KvBinding, LayerSet, Metadata, Planner, StepFacts, StockReason, VerifyCounts};
use specdec_core::replay::{
    Divergence, Fingerprint, GraphId, LedgerError, Pointers, RankReport, RankSet, REPORT_BYTES,
};

use crate::engine::{on_device, on_engine, Linked, PyEngine, Ranks};
use crate::error::{self, Raised};

/// Records of a rank that go to the others when all stop: those nearest to the cause.
const TOLD_RECORDS: usize = 4;
/// Words of one: rank and workgroup, then the record.
const FAILURE_WORDS: usize = 10;

/// One rank's executor, over an engine of the same process.
#[pyclass(module = "kimi_k3_specdec._native", name = "Executor", frozen)]
pub struct PyExecutor {
    engine: Py<PyEngine>,
    rank: Rank,
    state: Mutex<State>,
}

struct State {
    executor: Executor,
    pointers: Pointers,
    is_bound: bool,
    outputs_read: LayerSet,
    /// Those of the planned step, once told.
    residuals: Option<Activations>,
    verdict: Option<Divergence>,
}

impl PyExecutor {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn layers(numbers: Vec<u8>) -> LayerSet {
    numbers.into_iter().map(Layer).collect()
}

fn ledger(error: LedgerError) -> PyErr {
    error::stopped(error.to_string(), error.hint())
}

fn failed<E: Raised>(error: ExecutorError<E>) -> PyErr {
    match error {
        ExecutorError::Engine(error) => error::engine(error),
        ExecutorError::Shape(error) => error::shape(&error),
        // vLLM's own words for it, which people search for.
        ExecutorError::Plan(error) => error::stopped(error.to_string(), error.hint()),
        ExecutorError::Ledger(error) => ledger(error),
        other => error::refused(other.to_string(), "plan a step, then launch its runs in order"),
    }
}

#[pymethods]
impl PyExecutor {
    /// `served`: the layers that kernels run, ascending; `widths`: rows of the steps that they serve, multiples of
    /// `rows_per_request`; `outputs_read`: layers whose output the drafter reads. Raises `Refused`.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "arguments of a Python constructor")]
    fn new(
        py: Python<'_>,
        engine: Py<PyEngine>,
        rank: u8,
        served: Vec<u8>,
        rows_per_request: u32,
        widths: Vec<u8>,
        outputs_read: Vec<u8>,
        timeout_seconds: f64,
    ) -> PyResult<Self> {
        let (shard, start) = on_engine!(engine.borrow(py), engine => {
            (engine.shard().clone(), engine.next_step(Rank(rank)).map_err(error::engine)?)
        });
        let kinds = served.iter().filter_map(|&layer| Some((Layer(layer), shard.geometry.layer_kind(Layer(layer))?)));
        let kinds: Vec<_> = kinds.collect();
        let widths: Vec<Rows> = widths.into_iter().map(Rows).collect();
        let outputs_read = layers(outputs_read);
        let planner = Planner::new(&kinds, rows_per_request, &widths, outputs_read)
            .map_err(|e| error::refused(e.to_string(), "pass the layers and widths of the checked configuration"))?;
        let executor = Executor::new(Rank(rank), shard.ranks, timeout_seconds, planner, start);
        let nothing = Fingerprint::of([]);
        let state = State {
            executor,
            pointers: Pointers { kv: nothing, fixed: nothing },
            is_bound: false,
            outputs_read,
            residuals: None,
            verdict: None,
        };
        Ok(Self { engine, rank: Rank(rank), state: Mutex::new(state) })
    }

    /// Binds the caches and weights whose fingerprints these are; returns the number of the binding.
    fn bind(&self, kv: u64, fixed: u64) -> PyResult<u32> {
        let mut state = self.state();
        let pointers = Pointers { kv: Fingerprint(kv), fixed: Fingerprint(fixed) };
        let generation = state.executor.bind(pointers).map_err(ledger)?;
        (state.pointers, state.is_bound) = (pointers, true);
        Ok(generation.0)
    }

    /// vLLM took its caches away: steps are stock until the next `bind`.
    fn unbind(&self) {
        self.state().is_bound = false;
    }

    /// The runs (first, last) of a step in which nobody reads an output that was not announced.
    fn runs(&self) -> Vec<(u8, u8)> {
        self.state().executor.planner().runs().iter().map(|run| (run.first.0, run.last.0)).collect()
    }

    /// Decides how a step runs: None is stock, counted by reason; else the number of its runs. `graph_mode`: 0 none, 1
    /// PIECEWISE, 2 FULL. `metadata`: 0 no dict, 1 without the first KDA layer, 2 without masks, 3 with `counts`:
    /// (prefills, decodes, verifying requests, rows of a request, rows of every request or None). `kv` and `fixed`:
    /// fingerprints as they are now. Raises `StepStopped`.
    #[pyo3(signature = (width, *, has_intermediate_tensors, has_context, graph_mode, metadata, counts, kv, fixed, is_capture))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python method")]
    fn plan(
        &self,
        py: Python<'_>,
        width: u32,
        has_intermediate_tensors: bool,
        has_context: bool,
        graph_mode: u8,
        metadata: u8,
        counts: (u32, u32, u32, u32, Option<u32>),
        kv: u64,
        fixed: u64,
        is_capture: bool,
    ) -> PyResult<Option<usize>> {
        let mut state = self.state();
        let state = &mut *state;
        state.residuals = None;
        let (num_prefills, num_decodes, num_spec_decodes, rows_per_request, uniform_rows) = counts;
        let now = Pointers { kv: Fingerprint(kv), fixed: Fingerprint(fixed) };
        let binding = match state.executor.generation().filter(|_| state.is_bound) {
            None => KvBinding::Unbound,
            Some(_) if now.kv != state.pointers.kv => KvBinding::Moved,
            Some(generation) => KvBinding::Bound(generation),
        };
        let facts = StepFacts {
            has_intermediate_tensors,
            kv: binding,
            has_context,
            graph_mode: match graph_mode {
                0 => GraphMode::None,
                1 => GraphMode::Piecewise,
                _ => GraphMode::Full,
            },
            width,
            metadata: match metadata {
                0 => Metadata::NotADict,
                1 => Metadata::NoFirstLayer,
                2 => Metadata::NoSpecMasks,
                _ => Metadata::Verify(VerifyCounts {
                    num_prefills,
                    num_decodes,
                    num_spec_decodes,
                    rows_per_request,
                    uniform_rows,
                }),
            },
            outputs_read: state.outputs_read,
        };
        on_engine!(self.engine.borrow(py), engine => {
            match state.executor.plan(engine, &facts, now, is_capture).map_err(failed)? {
                Planned::Stock(_) => Ok(None),
                Planned::Eager(runs) | Planned::Captured(_, runs) => Ok(Some(runs.len())),
            }
        })
    }

    /// The number of the graph that the last planned capture makes; None if no capture was planned.
    fn last_graph(&self) -> Option<u32> {
        self.state().executor.last_graph().map(|graph| graph.0)
    }

    /// Where the residuals of the planned step are, until told otherwise. Addresses in bytes, strides in elements.
    fn set_residuals(&self, prefix: u64, blocks: u64, blocks_row_stride: u32, block_stride: u32, delta: u64) {
        self.state().residuals = Some(Activations {
            prefix: DeviceAddress(prefix),
            blocks: DeviceAddress(blocks),
            blocks_row_stride,
            block_stride,
            delta: DeviceAddress(delta),
            core: DeviceAddress(0),
            has_delta: false,
        });
    }

    /// Queues a run of the planned step, by its place among the step's runs. `core`: address of the attention's output
    /// that it begins behind, or 0; `has_delta`: whether its first layer adds the delta that is there.
    fn launch(&self, py: Python<'_>, index: usize, core: u64, has_delta: bool) -> PyResult<()> {
        on_engine!(self.engine.borrow(py), engine => {
            let state = &mut *self.state();
            let residuals = state.residuals.ok_or_else(|| error::refused(
                "a run is launched over residuals that are not known".into(),
                "call `set_residuals` in every planned step, before its first launch",
            ))?;
            let activations = Activations { core: DeviceAddress(core), has_delta, ..residuals };
            state.executor.launch(engine, index, &activations).map_err(failed)
        })
    }

    /// Tells the device where a step's metadata is: (i32 `state_indices`, its row stride, i32 `num_accepted`) by group.
    fn bind_groups(&self, py: Python<'_>, groups: Vec<(u64, u32, u64)>) -> PyResult<()> {
        let groups = groups.into_iter().map(|(state_indices, row_stride, num_accepted)| StateGroup {
            state_indices,
            num_accepted,
            row_stride,
            reserved: 0,
        });
        let groups: Vec<StateGroup> = groups.collect();
        on_engine!(self.engine.borrow(py), engine => {
            self.state().executor.bind_groups(engine, &groups).map_err(failed)
        })
    }

    /// Announces the replay of a captured step, `live` rows of which belong to requests; the caller queues the graph.
    /// Returns the step's number. Raises `StepStopped`.
    fn begin_replay(&self, py: Python<'_>, graph: u32, live: u8, kv: u64, fixed: u64) -> PyResult<u32> {
        let now = Pointers { kv: Fingerprint(kv), fixed: Fingerprint(fixed) };
        on_engine!(self.engine.borrow(py), engine => {
            let step = self.state().executor.begin_replay(engine, GraphId(graph), Rows(live), now);
            step.map(|epoch| epoch.0).map_err(failed)
        })
    }

    /// Replays a captured step of the engine's own graphs: `begin_replay`, then graph `captured` of `Engine.end_capture`.
    /// Returns the step's number. Raises `StepStopped`.
    fn replay(&self, py: Python<'_>, graph: u32, captured: usize, live: u8, kv: u64, fixed: u64) -> PyResult<u32> {
        let now = Pointers { kv: Fingerprint(kv), fixed: Fingerprint(fixed) };
        on_device!(Ranks, &mut *self.engine.borrow(py).lock(), Linked { engine, graphs } => {
            let missing = || error::unknown_graph(captured, graphs.len());
            let (_, recorded) = graphs.get(captured).ok_or_else(missing)?;
            let step = self.state().executor.replay(engine, GraphId(graph), recorded, Rows(live), now);
            step.map(|epoch| epoch.0).map_err(failed)
        })
    }

    /// Gives up the open step: see `Engine.close_step`.
    fn close_step(&self, py: Python<'_>) -> PyResult<u32> {
        on_engine!(self.engine.borrow(py), engine => {
            self.state().executor.close_step(engine).map(|epoch| epoch.0).map_err(failed)
        })
    }

    /// Queues the last step's report, books those that have arrived, and returns this rank's books for the vote,
    /// bytes as many as every rank's; None before the first binding.
    fn after_step<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let report = on_engine!(self.engine.borrow(py), engine => {
            self.state().executor.after_step(engine).map_err(failed)
        })?;
        Ok(report.map(|report| PyBytes::new(py, &report.to_bytes())))
    }

    /// Whether all ranks may go on, from every rank's books, one behind the other; False stops this one too, and
    /// `diagnosis` says why. Raises `Refused`.
    fn verdict(&self, reports: &[u8]) -> PyResult<bool> {
        let books = reports.chunks_exact(REPORT_BYTES);
        if !books.remainder().is_empty() {
            let message = format!("{} bytes are no ranks' books of {REPORT_BYTES}", reports.len());
            return Err(error::refused(message, "run one version everywhere"));
        }
        let books: Vec<_> = books.filter_map(|book| book.first_chunk().map(RankReport::from_bytes)).collect();
        let mut state = self.state();
        state.verdict = state.executor.verdict(&books).err();
        Ok(state.verdict.is_none())
    }

    /// Ranks whose books have not come in time: `diagnosis` names them if nothing else says more.
    fn miss(&self, ranks: Vec<u8>) {
        self.state().verdict = Some(Divergence::Missing(ranks.into_iter().map(Rank).collect()));
    }

    /// Whether this rank's own books do not add up, or its device has failed.
    fn has_failed(&self) -> bool {
        self.state().executor.has_failed()
    }

    /// Whether a report that has arrived says that this rank gave up, or that another one told it so.
    fn is_alarmed(&self) -> bool {
        self.state().executor.is_alarmed()
    }

    /// A graph of `width` rows is replayed in which no kernel of ours is: counted by the reason that its capture had.
    fn count_stock_replay(&self, width: u32) {
        self.state().executor.count_stock_replay(width);
    }

    /// Accepts nothing any more.
    fn stop(&self) {
        self.state().executor.stop();
    }

    /// Waits of this rank that ended by time-out.
    fn failed_waits(&self, py: Python<'_>) -> PyResult<usize> {
        let failures = on_engine!(self.engine.borrow(py), engine => engine.failures().map_err(error::engine))?;
        Ok(failures.iter().filter(|f| f.rank == self.rank && f.reason() == Reason::Timeout).count())
    }

    /// This rank's records nearest to the cause as words, for the other ranks; unused ones are 0.
    fn failure_words(&self, py: Python<'_>) -> PyResult<Vec<u32>> {
        let failures = on_engine!(self.engine.borrow(py), engine => engine.failures().map_err(error::engine))?;
        let mut words = Vec::with_capacity(TOLD_RECORDS * FAILURE_WORDS);
        for Failure { rank, cta, record } in failures.into_iter().filter(|f| f.rank == self.rank).take(TOLD_RECORDS) {
            words.extend([u32::from(rank.0), u32::from(cta.0)]);
            let bytes = record.to_bytes();
            words.extend(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        }
        words.resize(TOLD_RECORDS * FAILURE_WORDS, 0);
        Ok(words)
    }

    /// What a person should be told of a stop: `culprit` (a rank or None), `sentence`, `hint`, `details`. `missing`:
    /// ranks whose processes have ended; `told`: what `failure_words` gave on the other ranks.
    fn diagnosis<'py>(&self, py: Python<'py>, missing: Vec<u8>, told: Vec<Vec<u32>>) -> PyResult<Bound<'py, PyDict>> {
        let missing: RankSet = missing.into_iter().map(Rank).collect();
        let told: Vec<Failure> = told.iter().flat_map(|words| words.chunks(FAILURE_WORDS)).filter_map(record).collect();
        let state = self.state();
        let found = on_engine!(self.engine.borrow(py), engine => {
            state.executor.diagnose(engine, &told, missing, state.verdict).map_err(error::engine)
        })?;
        let Diagnosis { culprit, sentence, hint, details } = found;
        let out = PyDict::new(py);
        out.set_item("culprit", culprit.map(|rank| rank.0))?;
        out.set_item("sentence", sentence)?;
        out.set_item("hint", hint)?;
        out.set_item("details", details)?;
        Ok(out)
    }

    /// Steps so far: `specialized` by rows, `stock` by reason, `padded_rows`.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (counters, out) = (*self.state().executor.counters(), PyDict::new(py));
        let (specialized, stock) = (PyDict::new(py), PyDict::new(py));
        for (index, count) in counters.specialized.iter().enumerate().filter(|(_, count)| **count > 0) {
            specialized.set_item(index + 1, count)?;
        }
        for (reason, count) in StockReason::ALL.iter().zip(counters.stock).filter(|(_, count)| *count > 0) {
            stock.set_item(reason.text(), count)?;
        }
        out.set_item("specialized", specialized)?;
        out.set_item("stock", stock)?;
        out.set_item("padded_rows", counters.padded_rows)?;
        Ok(out)
    }
}

fn record(words: &[u32]) -> Option<Failure> {
    let [rank, cta, record @ ..] = words else { return None };
    let bytes: Vec<u8> = record.iter().flat_map(|word| word.to_le_bytes()).collect();
    Some(Failure { rank: Rank(*rank as u8), cta: Cta(*cta as u16), record: FailureRecord::from_bytes(&bytes)? })
}
