//! `Unlinked` and `Engine`: the ranks of a process on a device, before and after they reach their peers.

mod faults;
mod hip;
mod inspection;
mod ranks;
mod steps;
mod unlinked;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use specdec_core::abi::StateGroup;
use specdec_core::binding;
use specdec_core::engine::{Activations, Engine};
use specdec_core::ids::{DeviceAddress, Layer, Rank};
use specdec_core::plan::{runs, Run};
use specdec_core::tasks::StepShape;
use specdec_emu::machine::{Emulator, Parts};

use crate::error::{self, Raised};
use crate::guards::PyCheckedLayers;
pub use hip::fake_words;
pub(crate) use ranks::{on_device, on_engine};
pub use ranks::{HostDevice, Linked, Ranks};
pub use steps::PyAbort;
pub use unlinked::{peer_handle, PyUnlinked};

/// The ranks of a process, made by `Unlinked.link`. Addresses are those that `register` returned.
#[pyclass(module = "kimi_k3_specdec._native", name = "Engine")]
pub struct PyEngine {
    ranks: Mutex<Ranks>,
    // Behind the ranks: HIP runs what is queued before it lets go of registered memory.
    owners: Mutex<Vec<(u64, Py<PyAny>)>>,
}

impl PyEngine {
    fn owners(&self) -> MutexGuard<'_, Vec<(u64, Py<PyAny>)>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A panic in a binding leaves the engine as it was: its own `stopped` flag guards what must not go on.
    pub fn lock(&self) -> MutexGuard<'_, Ranks> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what only the emulator can. Raises `Refused` elsewhere.
    fn on_emulator<T>(&self, what: &str, body: impl FnOnce(&mut Engine<Emulator>) -> PyResult<T>) -> PyResult<T> {
        match &mut *self.lock() {
            Ranks::Emulator(linked) => body(&mut linked.engine),
            Ranks::Hip(_) | Ranks::Null(_) => Err(error::emulator_only(what)),
        }
    }
}

#[pymethods]
impl PyEngine {
    /// Makes `nbytes` of host memory at `address` reachable and returns the address that kernels use; it stays alive and
    /// in place until `unregister` or the engine's end, which `owner` ensures, or else the caller. `parts`, (what, bytes,
    /// first number), lets errors of the emulator name the part that they are about.
    #[pyo3(signature = (rank, address, nbytes, name, initialised=true, parts=None, owner=None))]
    #[expect(clippy::too_many_arguments, reason = "arguments of a Python method")]
    fn register(
        &self,
        rank: u8,
        address: u64,
        nbytes: u64,
        name: &str,
        initialised: bool,
        parts: Option<(String, u64, u64)>,
        owner: Option<Py<PyAny>>,
    ) -> PyResult<u64> {
        let registered = on_engine!(self, engine => {
            // SAFETY: the caller's contract, stated above: the memory outlives its registration and is not moved.
            let taken = unsafe {
                HostDevice::register(&mut engine.device, Rank(rank), address, nbytes, name, initialised)
            };
            taken.map_err(|e| e.raised())?
        });
        if let Some((what, bytes, first)) = parts {
            self.on_emulator("a memory of parts", |engine| {
                engine.device.name_parts(address, Parts { what, bytes, first }).map_err(|e| e.raised())
            })?;
        }
        self.owners().extend(owner.map(|owner| (registered.0, owner)));
        Ok(registered.0)
    }

    /// Ends a registration, by the address that `register` returned.
    fn unregister(&self, address: u64) -> PyResult<()> {
        on_engine!(self, engine => {
            HostDevice::unregister(&mut engine.device, DeviceAddress(address)).map_err(|e| e.raised())
        })?;
        let released = {
            let mut owners = self.owners();
            owners.iter().position(|(registered, _)| *registered == address).map(|at| owners.swap_remove(at))
        };
        // Without the lock: what an owner does at its end is its own.
        drop(released);
        Ok(())
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
        on_engine!(self, engine => {
            let descriptor = binding::descriptor(&engine.shard().geometry, Layer(layer), &addresses, &numbers)
                .map_err(|e| error::binding(&e))?;
            engine.bind_layer(Rank(rank), &descriptor).map_err(error::engine)
        })
    }

    /// Binds layers whose weights and states were checked.
    fn bind_layers(&self, rank: u8, layers: &PyCheckedLayers) -> PyResult<()> {
        on_engine!(self, engine => {
            layers.descriptors().try_for_each(|layer| engine.bind_layer(Rank(rank), layer).map_err(error::engine))
        })
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
        on_engine!(self, engine => engine.bind_groups(Rank(rank), &groups).map_err(error::engine))
    }

    /// The runs (first, last) of the served layers, all or those of `layers` (first, last).
    #[pyo3(signature = (layers=None))]
    fn runs(&self, layers: Option<(u8, u8)>) -> Vec<(u8, u8)> {
        let (first, last) = layers.unwrap_or((0, u8::MAX));
        let runs = on_engine!(self, engine => runs(&engine.shard().geometry, first..=last));
        runs.iter().map(|run| (run.first.0, run.last.0)).collect()
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
        on_engine!(self, engine => {
            engine.launch(Rank(rank), run, shape, &activations, last_of_step).map_err(error::engine)
        })
    }
}
