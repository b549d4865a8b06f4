//! What the specialised decode decides, and nothing that it carries out: geometry, plans, layouts, tags and the
//! structs that host and kernels share. No unsafe code, no I/O, no clock.
#![forbid(unsafe_code)]

pub mod abi;
pub mod device;
pub mod geometry;
pub mod ids;
pub mod layout;
pub mod tag;
pub mod tasks;
