//! Deployments as JSON text in, reasons and settings out: what `kimi_k3_specdec.runtime` and `check` ask.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde::de::DeserializeOwned;
use serde::Serialize;
use specdec_core::abi::LayerKind;
use specdec_core::config::json::{parse, Parsed};
use specdec_core::config::{self, ConfigError, CudaGraphMode, DecodeConfig, Deployment, Target, TextConfig};

use crate::error;

/// `q`, `m1`, `interleave`, `max_num_seqs`.
type Settings = (u32, bool, u32, u32);
/// The logging method and the line.
type LogLine = (&'static str, String);

/// The constants that `kimi_k3_specdec.runtime` publishes.
pub fn add_constants(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let target = Target::KIMI_K3;
    let py = module.py();
    module.add("AUTO", config::AUTO)?;
    module.add("SPECIALIZED", config::SPECIALIZED)?;
    module.add("TENSOR_PARALLEL_SIZES", PyTuple::new(py, target.tensor_parallel_sizes)?)?;
    module.add("DCP_SIZES", PyTuple::new(py, target.dcp_sizes)?)?;
    module.add("K3_SHAPES", PyTuple::new(py, target.shapes().0)?)?;
    module.add("MAX_SEQS", PyTuple::new(py, config::MAX_SEQS)?)?;
    module.add("FP8_KV", PyTuple::new(py, config::FP8_KV)?)?;
    module.add("M1C_QLENS", PyTuple::new(py, config::M1C_QLENS)?)?;
    module.add("PIECEWISE_ONLY", config::PIECEWISE_ONLY)
}

fn parsed<T: DeserializeOwned + Serialize>(text: &str) -> PyResult<Parsed<T>> {
    parse(text).map_err(|e| error::refused(e.to_string(), e.hint()))
}

fn deployment(text: &str) -> PyResult<Deployment> {
    parsed(text).map(|parsed| parsed.value)
}

fn text(text_config_json: &str) -> PyResult<TextConfig> {
    parsed(text_config_json).map(|parsed| parsed.value)
}

fn refused(error: &ConfigError) -> PyErr {
    error::refused(error.to_string(), error.hint())
}

fn target(deployment: &Deployment) -> PyResult<Target> {
    deployment.target().map_err(|e| refused(&e))
}

fn sentences<T: std::fmt::Display>(reasons: &[T]) -> Vec<String> {
    reasons.iter().map(T::to_string).collect()
}

/// Row counts that launches serve, of `q` rows a request and at most `max_num_seqs` requests.
#[pyfunction]
pub fn widths(q: u32, max_num_seqs: u32) -> Vec<u32> {
    DecodeConfig { q, m1: true, interleave: 1, max_num_seqs }.widths()
}

/// Every reason why a deployment (JSON, as `check --example` prints one) is not served, in the documented order.
#[pyfunction]
pub fn unsupported(deployment_json: &str) -> PyResult<Vec<String>> {
    let deployment = deployment(deployment_json)?;
    Ok(sentences(&config::unsupported(&deployment, &target(&deployment)?)))
}

/// The first reason why a deployment's steps do not fit, if any.
#[pyfunction]
pub fn step_reasons(deployment_json: &str, check_m1c: bool) -> PyResult<Vec<String>> {
    let deployment = deployment(deployment_json)?;
    Ok(sentences(&config::step_reasons(&deployment, &target(&deployment)?, check_m1c)))
}

/// The first reason why a deployment's GPUs are not served, if any.
#[pyfunction]
pub fn platform_reasons(deployment_json: &str) -> PyResult<Vec<String>> {
    let deployment = deployment(deployment_json)?;
    Ok(sentences(&config::platform_reasons(&deployment, &target(&deployment)?)))
}

/// Everything that M1 lacks in a deployment.
#[pyfunction]
pub fn m1_reasons(deployment_json: &str) -> PyResult<Vec<String>> {
    Ok(sentences(&config::m1_reasons(&deployment(deployment_json)?)))
}

/// Whether M1c serves `q` rows a request and 1 to `max_num_seqs` requests.
#[pyfunction]
pub fn m1c_serves(q: u32, max_num_seqs: u32) -> bool {
    config::m1c_serves(q, max_num_seqs)
}

/// Whether graphs of this mode (a name, or `None`) capture decode steps in pieces only.
#[pyfunction]
pub fn piecewise_graphs_only(mode: Option<&str>) -> PyResult<bool> {
    let mode = mode.map(|name| {
        CudaGraphMode::by_name(name).ok_or_else(|| error::unknown("graph mode", name, CudaGraphMode::NAMES))
    });
    Ok(config::piecewise_graphs_only(mode.transpose()?))
}

/// Hidden size, routed experts, KDA heads, KDA head dim and convolution width of a text model's configuration (JSON).
#[pyfunction]
pub fn text_shapes(text_config_json: &str) -> PyResult<[Option<u32>; 5]> {
    Ok(text(text_config_json)?.shapes().0)
}

/// The message for another value of the switch, given as Python prints it.
#[pyfunction]
pub fn unknown_backend(found: String) -> String {
    ConfigError::UnknownBackend { found }.to_string()
}

/// Served layer -> "whole" or "ffn", of a text model's configuration (JSON).
#[pyfunction]
pub fn layer_kinds(text_config_json: &str) -> PyResult<Vec<(u8, &'static str)>> {
    let text = text(text_config_json)?;
    let name = |kind| if kind == LayerKind::Whole { "whole" } else { "ffn" };
    Ok(config::layer_kinds(&text).into_iter().map(|(layer, kind)| (layer.0, name(kind))).collect())
}

/// Settings of a deployment that asks for the specialised decode (`None`: it does not), and the lines to log: (level,
/// text). Raises `Refused` with every reason.
#[pyfunction]
pub fn decode_config(deployment_json: &str) -> PyResult<Option<(Settings, Vec<LogLine>)>> {
    let deployment = deployment(deployment_json)?;
    let settings = config::specialized_decode_config(&deployment).map_err(|e| refused(&e))?;
    Ok(settings.map(|settings| {
        let lines = config::start_up_lines(&deployment);
        let lines = lines.into_iter().map(|(level, text)| (level.name(), text)).collect();
        ((settings.q, settings.m1, settings.interleave, settings.max_num_seqs), lines)
    }))
}

/// The examination of a deployment as JSON: what `check` prints. Raises `Refused` with the JSON path.
#[pyfunction]
pub fn examine(deployment_json: &str) -> PyResult<String> {
    let parsed = parsed::<Deployment>(deployment_json)?;
    let mut examination = config::examine(&parsed.value).map_err(|e| refused(&e))?;
    examination.warnings.splice(0..0, parsed.warnings);
    config::json::write(&examination).map_err(|e| error::refused(e, "report this as a defect"))
}

/// A served deployment, as JSON.
#[pyfunction]
pub fn example_deployment() -> &'static str {
    config::EXAMPLE
}

/// The JSON schema of a deployment.
#[pyfunction]
pub fn deployment_schema() -> PyResult<String> {
    config::json::schema::<Deployment>().map_err(|e| error::refused(e, "report this as a defect"))
}
