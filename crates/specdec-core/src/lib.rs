//! What the specialised decode decides, and nothing that it carries out: geometry, plans, layouts, tags and the
//! structs that host and kernels share. No unsafe code, no I/O, no clock.
#![forbid(unsafe_code)]

pub mod abi;
pub mod balance;
pub mod binding;
pub mod buffers;
pub mod config;
pub mod device;
pub mod doctor;
pub mod encode;
pub mod engine;
pub mod event_graph;
pub mod executor;
pub mod geometry;
pub mod guards;
pub mod health;
pub mod ids;
pub mod layout;
pub mod null_device;
pub mod orders;
pub mod peer;
pub mod plan;
pub mod protocol;
pub mod replay;
pub mod tag;
pub mod tasks;
