//! What an engine on the emulator can be asked about a launch: exchanges, witnesses, races, counts.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use specdec_core::engine::Engine;
use specdec_core::ids::{Layer, Rank};
use specdec_core::layout::Region;
use specdec_core::tag::{Epoch, Tag};
use specdec_emu::exchange_tap;
use specdec_emu::machine::Emulator;

use super::ranks::{on_device, on_engine, Linked, Ranks};
use super::PyEngine;
use crate::statistics::counters;
use crate::{counts, error, races};

/// The region of a name. Raises `Refused`.
pub fn region(name: &str) -> PyResult<Region> {
    Region::ALL
        .into_iter()
        .find(|region| region.name() == name)
        .ok_or_else(|| error::unknown("region", name, &Region::ALL.map(Region::name).join(", ")))
}

#[pymethods]
impl PyEngine {
    /// Addresses of a rank's own buffers: `scratch`, `peer`, `health`, `abort`.
    fn addresses<'py>(&self, py: Python<'py>, rank: u8) -> PyResult<Bound<'py, PyDict>> {
        let (rank, out) = (Rank(rank), PyDict::new(py));
        on_engine!(self, engine => {
            for (name, address) in [
                ("scratch", engine.scratch(rank)),
                ("peer", engine.peer_buffer(rank)),
                ("health", engine.health(rank)),
                ("abort", engine.abort_word(rank)),
            ] {
                out.set_item(name, address.map_err(error::engine)?.0)?;
            }
        });
        Ok(out)
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
        let image =
            self.on_emulator("the tap", |engine| Ok(engine.device.take_tap(Rank(rank), region as u32, tag.0)))?;
        Ok(image.map(|image| (PyBytes::new(py, &image.bytes), PyBytes::new(py, &image.written))))
    }

    /// Forgets what the tap holds.
    fn clear_tap(&self) -> PyResult<()> {
        self.on_emulator("the tap", |engine| {
            exchange_tap::clear(engine);
            Ok(())
        })
    }

    /// A layer's witness block of the last launch that held it, or None.
    fn witness<'py>(&self, py: Python<'py>, rank: u8, layer: u8) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let block = on_engine!(self, engine => engine.witness(Rank(rank), Layer(layer)).map_err(error::engine))?;
        Ok(block.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Every race found so far, one for each pair of source places; empty unless `check` is `races`.
    fn races<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.on_emulator("the race check", |engine| races::as_list(py, &engine.device.races()))
    }

    /// What every workgroup did by stage since the engine was made, with `count_stages`: counter -> u64 `[ranks, bins,
    /// workgroups]` in the host's byte order; bins are the stages, what is between them, and the clearing of old rows.
    fn stage_counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.on_emulator("a count by stage", |engine| counts::by_stage(py, engine))
    }

    /// What the emulator counted since the engine was made.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.on_emulator("the count of what runs", |engine| {
            let out = counters(py, engine.device.statistics())?;
            out.set_item("loads_in_flight", loads_in_flight(py, engine)?)?;
            Ok(out)
        })
    }
}

/// Per barrier: the inlined functions there, innermost first, and (least, most) bytes of weights that a workgroup had
/// in flight at its best pass.
fn loads_in_flight<'py>(py: Python<'py>, engine: &Engine<Emulator>) -> PyResult<Bound<'py, PyList>> {
    let rows = PyList::empty(py);
    for (&(_, pc), loads) in &engine.device.statistics().loads_in_flight {
        let Some(member) = engine.members().next() else { break };
        let module = engine.module(member).map_err(error::engine)?;
        let lines = engine.device.functions_at(module, pc).map_err(|e| error::machine(&e))?;
        let functions: Vec<String> = lines.into_iter().map(|line| line.function).collect();
        rows.append((functions, loads.min_bytes, loads.max_bytes, loads.workgroups))?;
    }
    Ok(rows)
}
