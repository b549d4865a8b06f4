//! What a deployment must be to be served, and what it then runs (spec/runtime.md §1).
//!
//! Facts come in as a [`Deployment`]; reasons go out as [`Refusal`]s whose text is what users see.

mod checks;
mod decode;
mod deployment;
mod environment;
mod examination;
pub mod json;
mod nearest;
mod refusal;
mod target;
mod text;
mod warnings;

pub use checks::{
    every_platform_reason, every_step_reason, m1_reasons, m1c_serves, piecewise_graphs_only, platform_reasons,
    step_reasons, unsupported,
};
pub use decode::{
    specialized_decode_config, DecodeBackend, DecodeConfig, DecodeDevice, AUTO, BACKEND_KEY, DEVICE_KEY, SPECIALIZED,
};
pub use deployment::*;
pub use environment::{Environment, Platform, SituV2};
pub use examination::{examine, Examination, Layers, Memory, Reason};
pub use nearest::{nearest_settings, Settings};
pub use refusal::{joined, ConfigError, M1Reason, Refusal, FP8_KV, M1C_QLENS, MAX_SEQS};
pub use target::{Gpu, Target};
pub use text::{layer_kinds, LinearAttnConfig, Shapes, TextConfig};
pub use warnings::{start_up_lines, Level, PIECEWISE_ONLY, PLUGIN};

/// A served deployment of Kimi-K3 as JSON: what `check --example` prints.
pub const EXAMPLE: &str = include_str!("example.json");
