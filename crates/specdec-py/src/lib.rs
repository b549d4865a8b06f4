//! `kimi_k3_specdec._native`: arguments, GIL and errors converted between Python and the Rust crates.
//!
//! No decision is taken here: each function converts, calls a crate and maps the result back.

#![allow(clippy::needless_pass_by_value, reason = "PyO3 hands over arguments that it has made")]

mod board;
mod config;
mod counts;
mod doctor;
mod emulator;
mod engine;
mod error;
mod executor;
mod geometry;
mod guards;
mod inspect;
mod instruction;
mod races;
mod statistics;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use specdec_core::abi::{self, ABI_HASH};
use specdec_core::device::PEER_HANDLE_BYTES;

/// What this extension was built from and how: `version`, `abi_hash` as the kernels' header writes it, cargo's
/// `profile`, and `debug_assertions`.
#[pyfunction]
fn build_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let info = PyDict::new(py);
    info.set_item("version", env!("CARGO_PKG_VERSION"))?;
    info.set_item("abi_hash", format!("{ABI_HASH:#018x}"))?;
    info.set_item("profile", env!("SPECDEC_PROFILE"))?;
    info.set_item("debug_assertions", cfg!(debug_assertions))?;
    Ok(info)
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    // What Python needs of the constants that host and kernels share.
    for (name, value) in [
        ("MAX_RANKS", abi::MAX_RANKS),
        ("MAX_ROWS", abi::MAX_ROWS),
        ("MAX_TOP_K", abi::MAX_TOP_K),
        ("MAX_BLOCKS", abi::MAX_BLOCKS),
        ("SLICE", abi::SLICE),
        ("SEAM_VALUES", abi::SEAM_VALUES),
        ("KDA_CHUNK", abi::KDA_CHUNK),
        ("WITNESS_SOURCES", abi::WITNESS_SOURCES),
        ("HIDDEN_SCALE_BYTES", abi::HIDDEN_SCALE_BYTES),
    ] {
        module.add(name, value)?;
    }
    module.add("PEER_HANDLE_BYTES", PEER_HANDLE_BYTES)?;
    config::add_constants(module)?;
    counts::add_constants(module)?;
    guards::add_constants(module)?;
    module.add("Refused", py.get_type::<error::Refused>())?;
    module.add("MachineError", py.get_type::<error::MachineError>())?;
    module.add("StepStopped", py.get_type::<error::StepStopped>())?;
    module.add("DeviceFailure", py.get_type::<error::DeviceFailure>())?;
    module.add_class::<board::PyBoard>()?;
    module.add_class::<engine::PyUnlinked>()?;
    module.add_class::<engine::PyEngine>()?;
    module.add_class::<engine::PyAbort>()?;
    module.add_class::<executor::PyExecutor>()?;
    module.add_class::<emulator::PyMachine>()?;
    module.add_class::<guards::PyCheckedModel>()?;
    module.add_class::<guards::PyCheckedLayers>()?;
    module.add_function(wrap_pyfunction!(doctor::doctor, module)?)?;
    module.add_function(wrap_pyfunction!(doctor::doctor_variables, module)?)?;
    module.add_function(wrap_pyfunction!(doctor::import_page, module)?)?;
    module.add_function(wrap_pyfunction!(doctor::is_version, module)?)?;
    module.add_function(wrap_pyfunction!(doctor::probe_hip, module)?)?;
    module.add_function(wrap_pyfunction!(doctor::read_topology, module)?)?;
    module.add_function(wrap_pyfunction!(emulator::parse_case, module)?)?;
    module.add_function(wrap_pyfunction!(geometry::geometry, module)?)?;
    module.add_function(wrap_pyfunction!(geometry::step_rows, module)?)?;
    module.add_function(wrap_pyfunction!(guards::weight_reasons, module)?)?;
    module.add_function(wrap_pyfunction!(guards::cache_reasons, module)?)?;
    module.add_function(wrap_pyfunction!(guards::mla_weight_reasons, module)?)?;
    module.add_function(wrap_pyfunction!(guards::mla_cache_reasons, module)?)?;
    module.add_function(wrap_pyfunction!(guards::state_group, module)?)?;
    module.add_function(wrap_pyfunction!(guards::fingerprint, module)?)?;
    module.add_function(wrap_pyfunction!(counts::balance, module)?)?;
    module.add_function(wrap_pyfunction!(counts::critical_path, module)?)?;
    module.add_function(wrap_pyfunction!(counts::seeded_union, module)?)?;
    module.add_function(wrap_pyfunction!(counts::stage_names, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::inspect, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::disassemble, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::hip_devices, module)?)?;
    module.add_function(wrap_pyfunction!(instruction::instruction, module)?)?;
    module.add_function(wrap_pyfunction!(instruction::execute, module)?)?;
    module.add_function(wrap_pyfunction!(instruction::run_kernel, module)?)?;
    module.add_function(wrap_pyfunction!(config::unsupported, module)?)?;
    module.add_function(wrap_pyfunction!(config::step_reasons, module)?)?;
    module.add_function(wrap_pyfunction!(config::platform_reasons, module)?)?;
    module.add_function(wrap_pyfunction!(config::m1_reasons, module)?)?;
    module.add_function(wrap_pyfunction!(config::m1c_serves, module)?)?;
    module.add_function(wrap_pyfunction!(config::piecewise_graphs_only, module)?)?;
    module.add_function(wrap_pyfunction!(config::layer_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(config::text_shapes, module)?)?;
    module.add_function(wrap_pyfunction!(config::unknown_backend, module)?)?;
    module.add_function(wrap_pyfunction!(config::widths, module)?)?;
    module.add_function(wrap_pyfunction!(config::decode_config, module)?)?;
    module.add_function(wrap_pyfunction!(config::examine, module)?)?;
    module.add_function(wrap_pyfunction!(config::example_deployment, module)?)?;
    module.add_function(wrap_pyfunction!(config::deployment_schema, module)?)?;
    module.add_function(wrap_pyfunction!(build_info, module)?)
}
