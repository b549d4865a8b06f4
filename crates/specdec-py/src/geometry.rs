//! What Python needs to know of a geometry's share: dimensions, code object, regions, witness.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use specdec_core::buffers::RankBuffers;
use specdec_core::geometry::Geometry;
use specdec_core::ids::Layer;
use specdec_core::layout::{Layout, WitnessLayout};
use specdec_core::tasks::StepShape;

use crate::error;

/// One rank's share of a geometry: `dims` (name -> number), `code_object`, `served` layers (layer -> "whole" or
/// "ffn"), `regions` (name -> (bytes of data or payloads, form)), `witness` (name -> byte offset) and `memory_bytes`,
/// what the runtime takes. Raises `Refused` with every reason.
#[pyfunction]
pub fn geometry<'py>(py: Python<'py>, name: &str, ranks: u32) -> PyResult<Bound<'py, PyDict>> {
    let shard = Geometry::by_name(name).and_then(|geometry| geometry.shard(ranks)).map_err(|e| error::geometry(&e))?;
    let model = &shard.geometry;
    let dims = PyDict::new(py);
    for (name, value) in [
        ("num_layers", model.num_layers),
        ("hidden", model.hidden),
        ("heads", shard.heads()),
        ("head_dim", model.head_dim),
        ("proj", shard.proj()),
        ("in_proj_rows", shard.in_proj_rows()),
        ("experts", model.experts),
        ("top_k", model.top_k),
        ("router_rows", shard.router_rows()),
        ("latent", model.latent),
        ("latent_rows", shard.latent_rows()),
        ("up_rows", shard.up_rows()),
        ("inter", shard.inter()),
        ("shared", shard.shared()),
        ("slices", shard.slices()),
        ("latent_slices", shard.latent_slices()),
        ("chunks", shard.chunks()),
        ("num_blocks", model.num_blocks()),
        ("grid", model.grid),
        ("ranks", ranks),
    ] {
        dims.set_item(name, value)?;
    }
    let served = PyDict::new(py);
    for layer in (0..model.num_layers).map(|layer| Layer(layer as u8)) {
        if let Some(kind) = model.layer_kind(layer) {
            served.set_item(layer.0, format!("{kind:?}").to_lowercase())?;
        }
    }
    let regions = PyDict::new(py);
    for place in Layout::new(&shard).places {
        let (bytes, form) =
            if place.flags.is_some() { (place.data_bytes, "rows") } else { (place.data_bytes / 2, "pairs") };
        regions.set_item(place.region.name(), (bytes, form))?;
    }
    let layout = WitnessLayout::new(&shard);
    let witness = PyDict::new(py);
    for (name, at) in [
        ("mix", layout.mix),
        ("picks", layout.picks),
        ("pick_weights", layout.pick_weights),
        ("codes", layout.codes),
        ("scales", layout.scales),
        ("bytes", layout.bytes),
    ] {
        witness.set_item(name, at)?;
    }
    let out = PyDict::new(py);
    out.set_item("dims", dims)?;
    out.set_item("code_object", shard.code_object())?;
    out.set_item("served", served)?;
    out.set_item("regions", regions)?;
    out.set_item("witness", witness)?;
    out.set_item("memory_bytes", RankBuffers::new(&shard).total())?;
    Ok(out)
}

/// Rows of a verify step. Raises `Refused` if a launch cannot serve it.
#[pyfunction]
pub fn step_rows(requests: u32, speculative_tokens: u32) -> PyResult<u32> {
    StepShape::new(requests, speculative_tokens).map(StepShape::rows).map_err(|e| error::shape(&e))
}
