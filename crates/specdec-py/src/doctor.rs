//! What the machine says of itself, and what its facts mean; all of it crosses as JSON.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Serialize;
use specdec_core::config::json;
use specdec_core::doctor::facts::{Environment, Probe};
use specdec_core::doctor::{report, Facts, Line, State, Version};
use specdec_hip::probe::{self, HANDLE_BYTES};
use specdec_hip::topology;

use crate::error;

const HINT: &str = "`doctor --print-facts` prints facts of this form; mend the value at this path";

fn to_json<T: Serialize>(value: &T) -> PyResult<String> {
    json::write(value).map_err(|e| error::refused(e, HINT))
}

/// What HIP answers, as JSON. `import_page(device, handle)` imports a page in another process and returns the answer as
/// JSON; None does not try it.
#[pyfunction]
#[pyo3(signature = (import_page=None))]
pub fn probe_hip(py: Python<'_>, import_page: Option<Bound<'_, PyAny>>) -> PyResult<String> {
    let mut failure = None;
    let mut import = |device: u32, handle: [u8; HANDLE_BYTES]| {
        let answer = import_page.as_ref()?.call1((device, PyBytes::new(py, &handle))).and_then(|text| text.extract());
        let text: String = answer.map_err(|e| failure = Some(e)).ok()?;
        let parsed = json::parse::<Probe<bool>>(&text).map_err(|e| error::refused(e.to_string(), HINT));
        parsed.map_err(|e| failure = Some(e)).ok().map(|parsed| parsed.value)
    };
    let answers = probe::probe(&mut import);
    failure.map_or_else(|| to_json(&answers), Err)
}

/// Imports a page that another process has exported, on `device`; returns the answer as JSON.
#[pyfunction]
pub fn import_page(device: u32, handle: [u8; HANDLE_BYTES]) -> PyResult<String> {
    to_json(&probe::import_page(device, handle))
}

/// GPUs as the kernel driver lists them below `root` (`/sys`), as JSON. Raises `Refused` if the list cannot be read.
#[pyfunction]
pub fn read_topology(root: PathBuf) -> PyResult<String> {
    let gpus = topology::read(&root);
    to_json(&gpus.map_err(|e| error::refused(e.to_string(), "check that this user may read it"))?)
}

/// Names of the environment variables that matter.
#[pyfunction]
pub fn doctor_variables() -> Vec<&'static str> {
    Environment::NAMES.to_vec()
}

/// Whether a text is a version that can be compared.
#[pyfunction]
pub fn is_version(text: &str) -> bool {
    text.parse::<Version>().is_ok()
}

#[derive(Serialize)]
struct Verdicts<'a> {
    facts: &'a Facts,
    lines: Vec<Line>,
    verdict: State,
    warnings: Vec<String>,
}

/// Judges facts (JSON): `facts` as read, `lines`, `verdict` and `warnings` about unknown keys, as JSON. Raises `Refused`
/// naming the JSON path.
#[pyfunction]
pub fn doctor(facts_json: &str) -> PyResult<String> {
    let parsed = json::parse::<Facts>(facts_json).map_err(|e| error::refused(e.to_string(), HINT))?;
    let judged = report(&parsed.value);
    let (lines, verdict) = (judged.lines, judged.verdict);
    to_json(&Verdicts { facts: &parsed.value, lines, verdict, warnings: parsed.warnings })
}
