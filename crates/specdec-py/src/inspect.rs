//! What a code object holds, and what the machine has.

use pyo3::prelude::*;
use specdec_core::config::json;
use specdec_emu::disassembly;
use specdec_emu::machine::Inspection;
use specdec_hip::Hip;

use crate::error;

/// Every instruction of a code object: (address, text as LLVM's disassembler prints it). Raises `Refused`.
#[pyfunction]
pub fn disassemble(py: Python<'_>, code_object: &[u8]) -> PyResult<Vec<(u64, String)>> {
    let lines = py.detach(|| disassembly::disassemble(code_object));
    let lines =
        lines.map_err(|e| error::refused(e.to_string(), "pass a code object that `kernels/build.py` has built"))?;
    Ok(lines.into_iter().map(|line| (line.address, line.text)).collect())
}

/// What a code object holds and every reason not to ship it, as JSON. Raises `MachineError` if it is none for gfx950.
#[pyfunction]
pub fn inspect(py: Python<'_>, code_object: &[u8]) -> PyResult<String> {
    let found = py.detach(|| Inspection::of(code_object)).map_err(|e| error::machine(&e))?;
    json::write(&found).map_err(|e| error::refused(e, "report this defect"))
}

/// Devices that HIP sees. Raises `Refused` if there is no HIP, or no device answers.
#[pyfunction]
pub fn hip_devices() -> PyResult<u32> {
    Hip::load().and_then(|hip| hip.device_count()).map_err(|e| error::refused(e.to_string(), e.hint()))
}
