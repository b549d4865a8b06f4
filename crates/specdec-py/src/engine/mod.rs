//! `Unlinked` and `Engine`: the ranks of a process on the emulator, before and after they reach their peers.

mod faults;
mod inspection;
mod steps;
mod unlinked;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use specdec_core::abi::StateGroup;
use specdec_core::binding;
use specdec_core::device::Device;
use specdec_core::engine::{Activations, Engine};
use specdec_core::ids::{DeviceAddress, Layer, Rank};
use specdec_core::plan::{runs, Run};
use specdec_core::tasks::StepShape;
use specdec_emu::machine::{Emulator, Parts};

use crate::error;
use crate::guards::PyCheckedLayers;
pub use unlinked::PyUnlinked;

type Graph = <Emulator as Device>::Graph;

/// The ranks of a process, on the emulator, made by `Unlinked.link`. Addresses are host addresses of memory that was
/// registered.
#[pyclass(module = "kimi_k3_specdec._native", name = "Engine")]
pub struct PyEngine {
    engine: Mutex<Engine<Emulator>>,
    graphs: Mutex<Vec<(Rank, Graph)>>,
}

impl PyEngine {
    /// A panic in a binding leaves the engine as it was: its own `stopped` flag guards what must not go on.
    pub fn lock(&self) -> MutexGuard<'_, Engine<Emulator>> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn graphs(&self) -> MutexGuard<'_, Vec<(Rank, Graph)>> {
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PyEngine {
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
}
