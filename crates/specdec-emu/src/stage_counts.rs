//! Counts what the shipped kernels do, by stage and workgroup: which function of `kernels/stages` is which stage.

use specdec_core::abi::{Stage, NUM_STAGES};
use specdec_core::engine::{Engine, EngineError};

use crate::machine::{Emulator, EmulatorError, Label, SourceLine};

/// The bin of what belongs to no stage: the loop over the layers, and the start of a launch.
pub const BETWEEN_STAGES: u8 = NUM_STAGES as u8;
/// Bins: the stages, `BETWEEN_STAGES`, and the clearing of old rows behind a step's last layer.
pub const NUM_BINS: usize = NUM_STAGES as usize + 2;
/// The bin of `scrub`.
pub const SCRUB: u8 = NUM_STAGES as u8 + 1;

/// The half of a layer that a wave comes to next.
const ATTENTION: u8 = 0;
const MLP: u8 = 1;

/// Counts by stage from now on, on every rank.
pub fn start(engine: &mut Engine<Emulator>) -> Result<(), EngineError<EmulatorError>> {
    for rank in engine.members().collect::<Vec<_>>() {
        let module = engine.module(rank)?;
        engine.device.count(module, NUM_BINS, label)?;
    }
    Ok(())
}

/// A function's name without its template arguments.
fn bare(name: &str) -> &str {
    name.split('<').next().unwrap_or(name)
}

/// What an instruction belongs to: the stage function that it was inlined into. One copy of the seam and of the hidden
/// GEMV serves both halves of a layer; a wave has passed `o_proj` in between, whatever the layer's kind.
fn label(functions: &[SourceLine]) -> Label {
    let names = || functions.iter().map(|line| bare(&line.function));
    let (bins, phase) = names().find_map(|name| stage(name, names)).unwrap_or(([BETWEEN_STAGES; 2], None));
    Label { bins, phase, is_poll: names().any(|name| name == "wait") }
}

/// Bins and phase of a stage function; `names` are all functions of the chain.
fn stage<'a, I: Iterator<Item = &'a str>>(name: &str, names: impl Fn() -> I) -> Option<([u8; 2], Option<u8>)> {
    let one = |stage: Stage, next| Some(([stage as u8; 2], next));
    let two = |attention: Stage, mlp: Stage| Some(([attention as u8, mlp as u8], None));
    match name {
        "seam_dots" => two(Stage::AttentionDots, Stage::MlpDots),
        "seam_mix" => two(Stage::AttentionMix, Stage::MlpMix),
        "hidden_gemv" => two(Stage::InProj, Stage::MoeIn),
        "kda" => one(Stage::Kda, None),
        "o_proj" => one(Stage::OProj, Some(MLP)),
        "route" => one(Stage::Route, Some(ATTENTION)),
        "expert_up" => one(Stage::ExpertUp, None),
        // Two stages behind one wait: the GEMV is the second one's.
        "down" if names().any(|name| matches!(name, "prefetch" | "run" | "load_tokens")) => {
            one(Stage::SharedDown, None)
        }
        "down" => one(Stage::ExpertDown, None),
        "latent_norm" => one(Stage::LatentNorm, None),
        "up" => one(Stage::Up, None),
        "output" => one(Stage::Output, None),
        "scrub" => Some(([SCRUB; 2], None)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(names: &[&str]) -> Label {
        let line = |name: &&str| SourceLine { function: (*name).into(), file: "f".into(), line: 1 };
        label(&names.iter().map(line).collect::<Vec<_>>())
    }

    #[test]
    fn the_stage_of_a_chain_is_its_stage_functions() {
        let found = chain(&["load16", "prefetch<K>", "operator()", "hidden_gemv<G>", "run_layers<G>", "layers"]);
        assert_eq!(found.bins, [Stage::InProj as u8, Stage::MoeIn as u8]);
        assert!(!found.is_poll && found.phase.is_none());
        let found = chain(&["wait<F>", "wait_flags", "operator()", "fill_and_wait<A, B, C>", "down<G>", "layers"]);
        assert!(found.is_poll);
        assert_eq!(found.bins, [Stage::ExpertDown as u8; 2]);
        assert_eq!(chain(&["mfma", "run<L, S>", "down<G>"]).bins, [Stage::SharedDown as u8; 2]);
        assert_eq!(chain(&["o_proj<G>"]).phase, Some(MLP));
        assert_eq!(chain(&["run_layers<G>", "layers"]).bins, [BETWEEN_STAGES; 2]);
        assert_eq!(chain(&[]).bins, [BETWEEN_STAGES; 2]);
    }
}
