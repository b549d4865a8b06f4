//! Code objects and launches.

use std::ffi::CStr;
use std::ptr::{null_mut, with_exposed_provenance_mut};

use super::{check, take, Handle};
use crate::sys::{Functions, LAUNCH_PARAMETERS};
use crate::HipError;

/// Loads a code object on the thread's device.
pub fn load(functions: &Functions, code_object: &[u8]) -> Result<Handle, HipError> {
    let call = functions.require(&functions.module_load)?;
    let mut module = null_mut();
    // SAFETY: `call` writes one handle through its first argument, reads the code object, whose size stands in its
    // header, and keeps nothing of it.
    let status = unsafe { call(&raw mut module, code_object.as_ptr().cast()) };
    check(functions, functions.module_load.name, status).map(|()| Handle::of(module))
}

pub fn unload(functions: &Functions, module: Handle) -> Result<(), HipError> {
    take(functions, &functions.module_unload, module)
}

/// A kernel of a module, alive as long as the module.
pub fn function(functions: &Functions, module: Handle, symbol: &CStr) -> Result<Handle, HipError> {
    let call = functions.require(&functions.module_function)?;
    let mut function = null_mut();
    // SAFETY: the module's owner keeps it alive; `call` writes one handle through its first argument.
    let status = unsafe { call(&raw mut function, module.raw(), symbol.as_ptr()) };
    check(functions, functions.module_function.name, status).map(|()| Handle::of(function))
}

/// Queues a kernel; its arguments are copied before this returns.
///
/// # Safety
/// The kernel's module and whatever its arguments point to stay until the stream has passed the launch.
pub unsafe fn launch(
    functions: &Functions,
    function: Handle,
    (grid, block): (u32, u32),
    kernarg: &[u8],
    stream: Handle,
) -> Result<(), HipError> {
    let call = functions.require(&functions.launch_kernel)?;
    let [pointer, size, end] = LAUNCH_PARAMETERS.map(with_exposed_provenance_mut);
    let mut bytes = kernarg.len();
    let mut extra = [pointer, kernarg.as_ptr().cast_mut().cast(), size, (&raw mut bytes).cast(), end];
    // SAFETY: the caller's contract; `extra` holds the argument buffer and its size under their markers, and the call
    // only reads them.
    let status =
        unsafe { call(function.raw(), grid, 1, 1, block, 1, 1, 0, stream.raw(), null_mut(), extra.as_mut_ptr()) };
    check(functions, functions.launch_kernel.name, status)
}
