//! What `kernels count` prints: how a layer is shared out, its hops, and what every workgroup did.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde::Serialize;
use specdec_core::abi::{LayerKind, NUM_STAGES};
use specdec_core::balance::{self as shares, Balance};
use specdec_core::config::json;
use specdec_core::engine::Engine;
use specdec_core::event_graph::{self, Hazard, LayerShape};
use specdec_core::geometry::{Geometry, Shard};
use specdec_core::health::stage_name;
use specdec_core::tasks::{StepShape, TaskTable};
use specdec_emu::machine::{Counts, Emulator};
use specdec_emu::stage_counts::NUM_BINS;

use crate::error;

fn to_json<T: Serialize>(value: &T) -> PyResult<String> {
    json::write(value).map_err(|e| error::refused(e, "report this defect"))
}

/// The bars of a layer's balance, and the stages of the expert phase.
pub fn add_constants(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("LAYER_BAR", shares::LAYER_BAR)?;
    module.add("EXPERT_BAR", shares::EXPERT_BAR)?;
    module.add("EXPERT_BAR_ROWS", shares::EXPERT_BAR_ROWS)?;
    module.add("EXPERT_PHASE", shares::EXPERT_PHASE.map(|stage| stage_name(stage as u32)).to_vec())
}

fn planned(geometry: &str, ranks: u32, requests: u32, rows_per_request: u32) -> PyResult<(Shard, TaskTable)> {
    let shard =
        Geometry::by_name(geometry).and_then(|geometry| geometry.shard(ranks)).map_err(|e| error::geometry(&e))?;
    // One row a request is plain decoding: no step is launched so, but it can be shared out like any other.
    let shape = match rows_per_request {
        1 => StepShape::new(requests, 1).map(|shape| StepShape { rows_per_request: 1, ..shape }),
        _ => StepShape::new(requests, rows_per_request.saturating_sub(1)),
    };
    let shape = shape.map_err(|e| error::shape(&e))?;
    let table = TaskTable::new(&shard, shape, shard.geometry.grid).map_err(|e| error::shape(&e))?;
    Ok((shard, table))
}

fn kind(is_whole: bool) -> LayerKind {
    if is_whole {
        LayerKind::Whole
    } else {
        LayerKind::Ffn
    }
}

/// How the tasks and weights of one layer are shared out when the rows pick `experts` different experts, as JSON.
#[pyfunction]
#[pyo3(signature = (geometry, ranks, *, requests, rows_per_request, experts, whole=true))]
pub fn balance(
    geometry: &str,
    ranks: u32,
    requests: u32,
    rows_per_request: u32,
    experts: u32,
    whole: bool,
) -> PyResult<String> {
    let (shard, table) = planned(geometry, ranks, requests, rows_per_request)?;
    to_json(&Balance::new(&shard, &table, kind(whole), experts))
}

/// Experts that `rows` rows pick together in a seeded random routing.
#[pyfunction]
pub fn seeded_union(geometry: &str, ranks: u32, rows: u32, seed: u64) -> PyResult<u32> {
    let shard =
        Geometry::by_name(geometry).and_then(|geometry| geometry.shard(ranks)).map_err(|e| error::geometry(&e))?;
    Ok(shares::seeded_union(&shard, rows, seed))
}

/// The exchanges on one layer's critical path, as JSON.
#[pyfunction]
#[pyo3(signature = (geometry, ranks, *, requests, rows_per_request, whole=true, writes_block=false))]
pub fn critical_path(
    py: Python<'_>,
    geometry: &str,
    ranks: u32,
    requests: u32,
    rows_per_request: u32,
    whole: bool,
    writes_block: bool,
) -> PyResult<String> {
    let (shard, table) = planned(geometry, ranks, requests, rows_per_request)?;
    let layer = LayerShape { kind: kind(whole), writes_block, ..LayerShape::WHOLE };
    let hops = py.detach(|| event_graph::critical_path(&shard, &table, layer)).map_err(|hazards| {
        let sentences: Vec<String> = hazards.iter().map(Hazard::to_string).collect();
        error::refused(sentences.join("; "), "mend the protocol: `cargo test -p specdec-core` names the hazard")
    })?;
    to_json(&hops)
}

/// Names of the stages in the order in which every workgroup walks them.
#[pyfunction]
pub fn stage_names() -> Vec<&'static str> {
    (0..NUM_STAGES).map(stage_name).collect()
}

/// Counter -> u64 `[ranks, bins, workgroups]`; empty when nothing is counted by stage.
pub fn by_stage<'py>(py: Python<'py>, engine: &Engine<Emulator>) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    let Some(profile) = engine.device.profile() else { return Ok(out) };
    let (ranks, grid) = (engine.shard().ranks as usize, engine.shard().geometry.grid as usize);
    for (index, (name, _)) in Counts::default().named().into_iter().enumerate() {
        let mut bytes = Vec::with_capacity(8 * ranks * NUM_BINS * grid);
        for rank in 0..ranks {
            for bin in 0..NUM_BINS {
                for cta in 0..grid {
                    let (_, value) = profile.counts(rank, cta, bin).named()[index];
                    bytes.extend_from_slice(&value.to_ne_bytes());
                }
            }
        }
        out.set_item(name, PyBytes::new(py, &bytes))?;
    }
    Ok(out)
}
