//! The calls, by what they are about.
#![allow(non_snake_case, reason = "HIP's names")]

mod control;
mod copy;
mod device;
mod graph;
mod memory;
mod module;
mod stream;

use std::ffi::{c_int, c_void};

use crate::status::{refuse, Failure, Outcome, INVALID_VALUE};

/// An address or a handle, as it crosses.
pub type Raw = *mut c_void;

/// Declares calls: each takes the machine and its arguments, and is listed in `NAMES`.
macro_rules! calls {
    ($($(#[$doc:meta])* fn $name:ident($machine:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)*) => {
        /// Names of the calls of this module.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As HIP's call of this name: pointers are valid for what it reads and writes through them.
            #[no_mangle]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> std::ffi::c_int {
                crate::machine::call(stringify!($name), |$machine| $body)
            }
        )*
    };
}
pub(crate) use calls;

/// Every call's name.
pub fn names() -> impl Iterator<Item = &'static str> {
    let lists =
        [device::NAMES, device::QUERIES, memory::NAMES, copy::NAMES, stream::NAMES, graph::NAMES, module::NAMES];
    lists.into_iter().flatten().copied()
}

/// Writes a result through a pointer that the caller passed.
///
/// # Safety
/// `to` is null or valid for a write.
unsafe fn give<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return refuse(INVALID_VALUE, "a null pointer for the result");
    }
    // SAFETY: it is not null, so the caller's contract makes it valid.
    unsafe { to.write(value) };
    Ok(())
}

fn number(address: Raw) -> u64 {
    address.expose_provenance() as u64
}

fn pointer(address: u64) -> Raw {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn check_flags(name: &str, flags: u32, allowed: u32) -> Result<(), Failure> {
    if flags == allowed {
        return Ok(());
    }
    refuse(INVALID_VALUE, format!("`{name}` with flags {flags:#x}, where {allowed:#x} is meant"))
}

const SUCCESS: c_int = 0;
