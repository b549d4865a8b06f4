//! What each fact means.

pub mod environment;
pub mod hip;
pub mod machine;
pub mod software;
pub mod visibility;

#[cfg(test)]
pub mod sample;

use super::facts::{Facts, Gpu, Library};
use crate::abi::MAX_RANKS;
use crate::geometry::K3;

/// Ranks of a Kimi-K3 deployment, each of which needs a GPU of its own: as many as the exchanges have room for.
const RANKS: usize = MAX_RANKS as usize;
/// The only instruction set that the code objects are for.
const TARGET: &str = "gfx950";
/// Workgroups of a launch, which must all be resident at once: one a compute unit.
const WORKGROUPS: u32 = K3.grid;

/// GPUs that the code objects run on.
fn target_gpus(facts: &Facts) -> Vec<&Gpu> {
    facts.gpus.iter().flatten().filter(|gpu| gpu.gfx.to_string() == TARGET).collect()
}

/// Whether this is a machine for AMD GPUs at all: one on which an absent part is a fault and no surprise.
fn is_rocm_machine(facts: &Facts) -> bool {
    let has_library = facts.hip.as_ref().is_some_and(|hip| matches!(hip.library, Library::Loaded(_)));
    facts.rocm.is_some() || has_library || facts.gpus.as_ref().is_some_and(|gpus| !gpus.is_empty())
}
