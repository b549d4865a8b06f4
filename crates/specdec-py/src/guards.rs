//! vLLM's tensors as JSON text in, reasons and checked layers out: what `kimi_k3_specdec.runtime.guards` asks.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::de::DeserializeOwned;
use serde::Serialize;
use specdec_core::abi::LayerDescriptor;
use specdec_core::config::json::parse;
use specdec_core::encode::Encode;
use specdec_core::geometry::{Geometry, Shard};
use specdec_core::guards::{
    self, binding_fingerprint, CacheFacts, CheckedCache, CheckedLayer, CheckedWeights, Dtype, LayerFacts, MlaFacts,
    ModelFacts, Part, Shape, TensorFacts,
};
use specdec_core::ids::Rank;
use specdec_core::replay::Fingerprint;

use crate::error;

/// Address, shape, strides in elements, torch's name of the type.
type Described = (u64, Vec<u64>, Vec<u64>, String);

/// Field of `LayerDescriptor`, name in messages, attributes from the decoder layer, whether only KDA layers have it.
type TensorRow = (&'static str, &'static str, &'static str, bool);

/// The table of a layer's tensors, for Python's extraction.
pub fn add_constants(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let rows = guards::TENSORS.iter().map(|row| (row.field, row.label, row.path, row.part == Part::Kda));
    module.add("LAYER_TENSORS", rows.collect::<Vec<TensorRow>>())
}

fn parsed<T: DeserializeOwned + Serialize>(text: &str) -> PyResult<T> {
    parse(text).map(|parsed| parsed.value).map_err(|e| error::refused(e.to_string(), "report this as a defect"))
}

fn shard(geometry: &str, ranks: u32) -> PyResult<Shard> {
    Geometry::by_name(geometry).and_then(|geometry| geometry.shard(ranks)).map_err(|e| error::geometry(&e))
}

fn sentences<T: std::fmt::Display>(reasons: &[T]) -> Vec<String> {
    reasons.iter().map(T::to_string).collect()
}

fn refused<T: std::fmt::Display>(reasons: &[T]) -> PyErr {
    error::refused(sentences(reasons).join("; "), "decode_backend=auto runs vLLM's decode")
}

/// Every reason why the kernels cannot read a loaded model (JSON of its tensors), upstream's first.
#[pyfunction]
pub fn weight_reasons(geometry: &str, ranks: u32, model_json: &str) -> PyResult<Vec<String>> {
    let model: ModelFacts = parsed(model_json)?;
    Ok(sentences(&guards::weight_reasons(&shard(geometry, ranks)?, &model)))
}

/// Every reason why the kernels cannot use the KDA layers' states (JSON), upstream's first; `num_spec` `None`: the
/// states' length is not judged.
#[pyfunction]
pub fn cache_reasons(geometry: &str, ranks: u32, num_spec: Option<u32>, caches_json: &str) -> PyResult<Vec<String>> {
    let caches: Vec<CacheFacts> = parsed(caches_json)?;
    Ok(sentences(&guards::cache_reasons(&shard(geometry, ranks)?, num_spec, &caches)))
}

/// Every reason why M1 cannot read MLA layers (JSON).
#[pyfunction]
pub fn mla_weight_reasons(geometry: &str, ranks: u32, layers_json: &str) -> PyResult<Vec<String>> {
    let layers: Vec<MlaFacts> = parsed(layers_json)?;
    Ok(sentences(&guards::mla_weight_reasons(&shard(geometry, ranks)?, &layers)))
}

/// Every reason why M1 cannot use the caches of MLA layers (JSON).
#[pyfunction]
pub fn mla_cache_reasons(layers_json: &str) -> PyResult<Vec<String>> {
    let layers: Vec<MlaFacts> = parsed(layers_json)?;
    Ok(sentences(&guards::mla_cache_reasons(&layers)))
}

/// `state_indices` address, its row stride and `num_accepted` address of one cache group, as `Engine.bind_groups`
/// takes them, from its two tensors: (address, shape, strides, dtype). Raises `Refused` with every reason.
#[pyfunction]
#[pyo3(signature = (name, requests, rows_per_request, indices, counts))]
pub fn state_group(
    name: &str,
    requests: u32,
    rows_per_request: u32,
    indices: Option<Described>,
    counts: Option<Described>,
) -> PyResult<(u64, u32, u64)> {
    let facts = |described: Described| {
        let (address, shape, strides, dtype) = described;
        TensorFacts { address, shape: Shape(shape), strides, dtype: Dtype::from(dtype) }
    };
    let (indices, counts) = (indices.map(facts), counts.map(facts));
    let group = guards::state_group(name, requests, rows_per_request, indices.as_ref(), counts.as_ref());
    group.map(|group| (group.state_indices, group.row_stride, group.num_accepted)).map_err(|reasons| refused(&reasons))
}

/// One word for addresses that no descriptor holds; equal when nothing moved.
#[pyfunction]
pub fn fingerprint(words: Vec<u64>) -> u64 {
    Fingerprint::of(words).0
}

/// The loaded weights of a rank's layers, checked: states are bound to them as often as vLLM allocates some.
#[pyclass(module = "kimi_k3_specdec._native", name = "CheckedModel", frozen)]
pub struct PyCheckedModel {
    shard: Shard,
    layers: Vec<CheckedWeights>,
}

#[pymethods]
impl PyCheckedModel {
    /// Raises `Refused` with every reason.
    #[new]
    fn new(geometry: &str, ranks: u32, rank: u8, model_json: &str) -> PyResult<Self> {
        let (shard, model) = (shard(geometry, ranks)?, parsed::<ModelFacts>(model_json)?);
        let reasons = guards::weight_reasons(&shard, &model);
        if !reasons.is_empty() {
            return Err(refused(&reasons));
        }
        if u32::from(rank) >= ranks {
            return Err(error::refused(format!("rank {rank} of {ranks}"), "pass a rank below the number of ranks"));
        }
        let check = |facts: &LayerFacts| CheckedWeights::check(&shard, Rank(rank), facts);
        let layers = model.layers.iter().map(check).collect::<Result<_, _>>().map_err(|reasons| refused(&reasons))?;
        Ok(Self { shard, layers })
    }

    /// Binds states (JSON) to every KDA layer: `groups` gives each layer's name and the index of its state group, by
    /// layer. Raises `Refused` with every reason.
    fn bind(&self, num_spec: u32, caches_json: &str, groups: BTreeMap<u8, (String, u32)>) -> PyResult<PyCheckedLayers> {
        let caches: Vec<CacheFacts> = parsed(caches_json)?;
        let reasons = guards::cache_reasons(&self.shard, Some(num_spec), &caches);
        if !reasons.is_empty() {
            return Err(refused(&reasons));
        }
        let mut layers = Vec::new();
        for weights in &self.layers {
            let group = groups.get(&weights.layer().0);
            let facts = group.and_then(|(name, _)| caches.iter().find(|cache| cache.name == *name));
            let cache = facts.map(|facts| CheckedCache::check(&self.shard, num_spec, facts)).transpose();
            let cache = cache.map_err(|reasons| refused(&reasons))?;
            let states = cache.as_ref().zip(group.map(|group| group.1));
            layers.push(CheckedLayer::bind(weights, states).map_err(|e| error::binding(&e))?);
        }
        Ok(PyCheckedLayers { layers })
    }
}

/// A rank's layers with checked weights and states: what `Engine.bind_layers` takes.
#[pyclass(module = "kimi_k3_specdec._native", name = "CheckedLayers", frozen)]
pub struct PyCheckedLayers {
    layers: Vec<CheckedLayer>,
}

impl PyCheckedLayers {
    /// What the kernels read of each.
    pub fn descriptors(&self) -> impl Iterator<Item = &LayerDescriptor> {
        self.layers.iter().map(CheckedLayer::descriptor)
    }
}

#[pymethods]
impl PyCheckedLayers {
    /// The layers' numbers, in order.
    #[getter]
    fn layers(&self) -> Vec<u32> {
        self.descriptors().map(|descriptor| descriptor.layer).collect()
    }

    /// One word for every address, stride and number; equal when nothing moved.
    #[getter]
    fn fingerprint(&self) -> u64 {
        let descriptors: Vec<_> = self.descriptors().copied().collect();
        binding_fingerprint(&descriptors, &[]).0
    }

    /// `LayerDescriptor []`, as the kernels read it.
    fn descriptors_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes: Vec<u8> = self.descriptors().flat_map(Encode::to_bytes).collect();
        PyBytes::new(py, &bytes)
    }
}
