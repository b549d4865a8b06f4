//! One instruction, or one small kernel, for tests: what a decoded instruction is and what it does to given state.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use specdec_core::device::{Device, MemoryKind};
use specdec_core::ids::{DeviceAddress, Rank};
use specdec_emu::decode::{decode, RegisterFile};
use specdec_emu::exec::{handler, Flow};
use specdec_emu::inst::Inst;
use specdec_emu::machine::{implements, Emulator, EmulatorError, GridLaunch, Options};
use specdec_emu::wave::{Wave, LANES};

use crate::error;

/// Bytes of one vector register.
const VECTOR_BYTES: usize = 4 * LANES;

fn decoded(code: &[u8], pc: u32) -> PyResult<Inst> {
    let mut section = vec![0; pc as usize];
    section.extend_from_slice(code);
    // A four-byte instruction at the end of what was passed must not run out of bytes to look at.
    section.extend_from_slice(&[0; 16]);
    decode(&section, pc).map_err(|e| error::refused(e.to_string(), "pass the bytes of one gfx950 instruction"))
}

/// One instruction: its text as LLVM prints it, base mnemonic, encoding in lower case, bytes, and who carries it out:
/// `wave` (registers alone), `machine` (memory, waits, barriers, clocks) or `nobody`. Raises `Refused`.
#[pyfunction]
pub fn instruction(code: &[u8]) -> PyResult<(String, &'static str, String, u8, &'static str)> {
    let inst = decoded(code, 0)?;
    let unit = match (handler(&inst), implements(&inst)) {
        (Some(_), _) => "wave",
        (None, true) => "machine",
        (None, false) => "nobody",
    };
    Ok((inst.to_string(), inst.op.name(), format!("{:?}", inst.format).to_lowercase(), inst.size, unit))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).map(|word| word.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte)))
}

fn wave(sgpr: &[u8], vgpr: &[u8], scc: bool, pc: u32) -> PyResult<Wave> {
    let mut wave = Wave { sgpr: [0; 128], vgpr: Vec::new(), scc, pc, text_base: 0 };
    if sgpr.len() != 4 * wave.sgpr.len() || !vgpr.len().is_multiple_of(VECTOR_BYTES) {
        let found = format!("{} bytes of scalar and {} of vector registers", sgpr.len(), vgpr.len());
        return Err(error::refused(found, "pass 128 scalar registers and whole vector registers of 64 lanes"));
    }
    wave.sgpr.iter_mut().zip(words(sgpr)).for_each(|(register, word)| *register = word);
    wave.vgpr.resize(vgpr.len() / VECTOR_BYTES, [0; LANES]);
    wave.vgpr.as_flattened_mut().iter_mut().zip(words(vgpr)).for_each(|(lane, word)| *lane = word);
    Ok(wave)
}

fn check_registers(inst: &Inst, wave: &Wave) -> PyResult<()> {
    let (reads, writes) = (inst.reads(), inst.writes());
    let ranges = reads.as_slice().iter().chain(writes.as_slice());
    let vectors = ranges.filter(|range| range.file == RegisterFile::Vector);
    let needed = vectors.map(|range| usize::from(range.first) + usize::from(range.count)).max().unwrap_or(0);
    if needed > wave.vgpr.len() {
        let message = format!("`{inst}` needs {needed} vector registers, found {}", wave.vgpr.len());
        return Err(error::refused(message, "pass as many vector registers as the instruction names"));
    }
    Ok(())
}

fn bytes<'py>(py: Python<'py>, words: &[u32]) -> Bound<'py, PyBytes> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    PyBytes::new(py, &bytes)
}

/// What a wave is left with: scalar registers, vector registers, SCC, and where it goes on.
type State<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, bool, u32);

/// Carries out one instruction on a wave: `sgpr` u32 [128] by operand number (VCC 106, M0 124, EXEC 126), `vgpr` u32
/// [registers][64], `AccVGPR`s from register 256 on, SCC, `pc` in bytes. Returns the same and the next pc. Raises
/// `Refused` for what is no instruction, or not one that the wave carries out by itself.
#[pyfunction]
#[pyo3(signature = (code, sgpr, vgpr, scc=false, pc=0))]
pub fn execute<'py>(
    py: Python<'py>,
    code: &[u8],
    sgpr: &[u8],
    vgpr: &[u8],
    scc: bool,
    pc: u32,
) -> PyResult<State<'py>> {
    let inst = decoded(code, pc)?;
    let mut wave = wave(sgpr, vgpr, scc, pc)?;
    check_registers(&inst, &wave)?;
    let Some(run) = handler(&inst) else {
        let hint = "use `run_kernel` for memory, waits and barriers";
        return Err(error::refused(format!("a wave by itself does not carry out `{inst}`"), hint));
    };
    let next = match run(&inst, &mut wave) {
        Flow::Branch(target) => target,
        _ => pc + u32::from(inst.size),
    };
    Ok((bytes(py, &wave.sgpr), bytes(py, wave.vgpr.as_flattened()), wave.scc, next))
}

fn launch(code_object: &[u8], symbol: &str, block: u32, buffers: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, EmulatorError> {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(code_object)?;
    let mut addresses: Vec<DeviceAddress> = Vec::new();
    for contents in buffers {
        let address = emulator.allocate(Rank(0), MemoryKind::Device, contents.len() as u64, "buffer")?;
        emulator.write(address, contents)?;
        addresses.push(address);
    }
    let kernarg = addresses.iter().flat_map(|address| address.0.to_le_bytes()).collect();
    let (grid, block) = ([1; 3], [block, 1, 1]);
    let launch = GridLaunch { module, symbol: symbol.to_owned(), grid, block, dynamic_lds_bytes: 0, kernarg };
    emulator.launch_grid(Rank(0), &launch)?;
    emulator.synchronize()?;
    let mut results = Vec::new();
    for (address, contents) in addresses.iter().zip(buffers) {
        let mut result = vec![0; contents.len()];
        emulator.read(*address, &mut result)?;
        results.push(result);
    }
    Ok(results)
}

/// Runs one workgroup of `block` work-items whose arguments are the addresses of `buffers`; returns what these hold
/// afterwards. Raises `MachineError`.
#[pyfunction]
pub fn run_kernel<'py>(
    py: Python<'py>,
    code_object: &[u8],
    symbol: &str,
    block: u32,
    buffers: Vec<Vec<u8>>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let results = py.detach(|| launch(code_object, symbol, block, &buffers)).map_err(|e| error::machine(&e))?;
    Ok(results.iter().map(|result| PyBytes::new(py, result)).collect())
}
