//! A functional gfx950 machine behind `specdec_core::device::Device`: it runs the shipped code objects on a CPU.
pub mod case;
pub mod decode;
pub mod disassembly;
pub mod exchange_tap;
pub mod exec;
pub mod inst;
pub mod machine;
pub mod op;
pub mod stage_counts;
pub mod wave;
