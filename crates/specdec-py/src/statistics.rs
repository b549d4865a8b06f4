//! The emulator's counters as a dictionary.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use specdec_emu::machine::Statistics;

/// Every plain counter by its name, `ticks` of 10 ns of virtual time and `seconds` of the host's included.
pub fn counters<'py>(py: Python<'py>, counted: &Statistics) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (name, value) in [
        ("wave_instructions", counted.wave_instructions),
        ("poll_instructions", counted.poll_instructions),
        ("mfma", counted.mfma),
        ("masked_mfma", counted.masked_mfma),
        ("vector_loads", counted.vector_loads),
        ("vector_stores", counted.vector_stores),
        ("lds_dma", counted.lds_dma),
        ("atomics", counted.atomics),
        ("scalar_loads", counted.scalar_loads),
        ("lds", counted.lds),
        ("bytes_loaded", counted.bytes_loaded),
        ("bytes_stored", counted.bytes_stored),
        ("launches", counted.launches),
        ("parks", counted.parks),
        ("ticks", counted.ticks),
    ] {
        out.set_item(name, value)?;
    }
    out.set_item("seconds", counted.wall_seconds)?;
    Ok(out)
}
