//! Code objects and launches.

use std::ffi::{c_char, c_void, CStr};

use specdec_core::device::Device;
use specdec_emu::machine::GridLaunch;

use super::{calls, give, number, pointer, Raw};
use crate::machine::{Function, Machine, Module};
use crate::queue::Work;
use crate::status::{emulated, refuse, Failure, INVALID_DEVICE, INVALID_IMAGE, INVALID_VALUE, NOT_FOUND};

/// Bytes of an ELF header, and where it says how long the file is: the section headers are the last thing in it.
const HEADER_BYTES: usize = 64;
const SECTION_HEADERS_AT: usize = 0x28;
const SECTION_HEADER_BYTES_AT: usize = 0x3a;
const SECTION_HEADERS_COUNT_AT: usize = 0x3c;

fn field(header: &[u8], at: usize, bytes: usize) -> usize {
    header[at..at + bytes].iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte))
}

/// The bytes of a code object of which only the start is known.
///
/// # Safety
/// A whole ELF file is there.
unsafe fn image_at<'a>(image: *const c_void) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller's contract: an ELF file is at least its header.
    let header = unsafe { std::slice::from_raw_parts(image.cast::<u8>(), HEADER_BYTES) };
    if !header.starts_with(b"\x7fELF") {
        return refuse(INVALID_IMAGE, "not an ELF file");
    }
    let (size, count) = (field(header, SECTION_HEADER_BYTES_AT, 2), field(header, SECTION_HEADERS_COUNT_AT, 2));
    let bytes = field(header, SECTION_HEADERS_AT, 8) + size * count;
    // SAFETY: the caller's contract.
    Ok(unsafe { std::slice::from_raw_parts(image.cast::<u8>(), bytes) })
}

/// The argument buffer of a launch, out of its `extra` list: pointer, size and end, each under its marker.
///
/// # Safety
/// `extra` is such a list.
unsafe fn kernarg(extra: *const Raw) -> Result<Vec<u8>, Failure> {
    if extra.is_null() {
        return refuse(INVALID_VALUE, "a launch without an argument buffer");
    }
    // SAFETY: the caller's contract: five entries.
    let list = unsafe { std::slice::from_raw_parts(extra, 5) };
    let markers = [0, 2, 4].map(|at| number(list[at]));
    if markers != [1, 2, 3] || list[1].is_null() || list[3].is_null() {
        return refuse(INVALID_VALUE, format!("launch parameters marked {markers:?}"));
    }
    // SAFETY: the caller's contract: the size stands there.
    let bytes = unsafe { list[3].cast::<usize>().read() };
    // SAFETY: the caller's contract: so many bytes of arguments are there.
    Ok(unsafe { std::slice::from_raw_parts(list[1].cast::<u8>(), bytes) }.to_vec())
}

calls! {
    /// Loads a code object on the thread's device.
    fn hipModuleLoadData(machine, module: *mut Raw, image: *const c_void) {
        machine.forbid_in_capture("hipModuleLoadData")?;
        // SAFETY: the caller's contract.
        let image = unsafe { image_at(image) }?;
        let loaded = machine.emulator.load(image).map_err(|error| emulated(&error))?;
        let (device, handle) = (machine.device()?, machine.fresh());
        machine.modules.insert(handle, Module { device, module: loaded });
        // SAFETY: the caller's contract.
        unsafe { give(module, pointer(handle as u64)) }
    }

    /// Ends a module and its functions.
    fn hipModuleUnload(machine, module: Raw) {
        machine.forbid_in_capture("hipModuleUnload")?;
        machine.forbid_while_busy("hipModuleUnload")?;
        let handle = number(module) as usize;
        machine.modules.remove(&handle).ok_or_else(|| Machine::stale("module", handle))?;
        machine.functions.retain(|_, function| function.module != handle);
        Ok(())
    }

    /// A kernel of a module.
    fn hipModuleGetFunction(machine, function: *mut Raw, module: Raw, symbol: *const c_char) {
        // SAFETY: the caller's contract: a text that ends.
        let symbol = unsafe { CStr::from_ptr(symbol) }.to_string_lossy().into_owned();
        let handle = number(module) as usize;
        let found = machine.modules.get(&handle).ok_or_else(|| Machine::stale("module", handle))?;
        let kernels = machine.emulator.kernels(found.module).map_err(|error| emulated(&error))?;
        if !kernels.iter().any(|kernel| kernel.symbol == symbol) {
            return refuse(NOT_FOUND, format!("the code object has no kernel `{symbol}`"));
        }
        let made = machine.fresh();
        machine.functions.insert(made, Function { module: handle, symbol });
        // SAFETY: the caller's contract.
        unsafe { give(function, pointer(made as u64)) }
    }

    /// Queues a kernel on a stream of its device.
    fn hipModuleLaunchKernel(
        machine,
        function: Raw,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        dynamic_lds_bytes: u32,
        stream: Raw,
        parameters: *mut Raw,
        extra: *mut Raw,
    ) {
        let handle = number(function) as usize;
        let found = machine.functions.get(&handle).cloned().ok_or_else(|| Machine::stale("function", handle))?;
        let module = machine.modules.get(&found.module).ok_or_else(|| Machine::stale("module", found.module))?;
        let (device, module) = (module.device, module.module);
        let stream = number(stream) as usize;
        if !parameters.is_null() {
            return refuse(INVALID_VALUE, "both ways to pass arguments at once");
        }
        if machine.stream(stream)?.device != device {
            return refuse(INVALID_DEVICE, format!("a kernel of device {device} on another one's stream"));
        }
        // SAFETY: the caller's contract.
        let kernarg = unsafe { kernarg(extra) }?;
        let launch = GridLaunch {
            module,
            symbol: found.symbol,
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            dynamic_lds_bytes,
            kernarg,
        };
        machine.submit(stream, Work::Launch(launch))
    }
}
