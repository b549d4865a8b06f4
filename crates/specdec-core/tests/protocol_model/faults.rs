//! Under one fault all ranks that live learn of it, and no token of the failed step is handed out.

use specdec_core::abi::Stage;
use specdec_core::event_graph::LayerShape;

use crate::check::explore;
use crate::model::Protocol;
use crate::rules::{Fault, Patience, Rules};
use crate::walk::Grain;
use crate::worlds::{small, step, ONE_LAYER, TWO_LAUNCHES};

fn expect_stopped(name: &str, layers: &[LayerShape], rules: Rules) {
    let world = small(2, layers);
    let findings = explore(Protocol::new(&world, &[step(&world, 1)], Grain::COARSE, rules));
    println!("| {name} | {} | {:.1} |", findings.states, findings.seconds);
    assert!(findings.broken.is_none(), "{name}: {:#?}", findings.broken);
}

fn fair(fault: Fault) -> Rules {
    Rules::under(&[fault], Patience::Fair)
}

#[test]
fn a_workgroup_stalls() {
    expect_stopped("a workgroup stalls anywhere, with any part of its stores done", &TWO_LAUNCHES, fair(Fault::Stall));
}

#[test]
fn a_rank_crashes() {
    expect_stopped("a rank crashes", &TWO_LAUNCHES, fair(Fault::Crash));
}

#[test]
fn a_rank_refuses() {
    expect_stopped("a rank refuses a step", &TWO_LAUNCHES, fair(Fault::Refuse));
}

/// One workgroup gives up whatever is under way; on one layer, since all else goes on.
fn early(stages: &[Stage]) {
    for stage in stages {
        let short = Rules::under(&[], Patience::Short).briefly().early_in(*stage);
        expect_stopped(&format!("a time-out in {stage:?} at any time"), &ONE_LAYER, short);
        let abort = fair(Fault::Abort).briefly().early_in(*stage);
        expect_stopped(&format!("the abort word, seen first in {stage:?}"), &ONE_LAYER, abort);
    }
}

#[test]
fn early_behind_the_routing() {
    early(&[Stage::LatentNorm, Stage::Up, Stage::Output]);
}

#[test]
fn early_before_the_experts() {
    early(&[Stage::MlpMix, Stage::MoeIn, Stage::Route, Stage::ExpertDown]);
}

#[test]
#[ignore = "minutes: 5 million states a stage"]
fn early_before_the_attention() {
    early(&[Stage::AttentionMix, Stage::InProj, Stage::Kda, Stage::OProj, Stage::MlpDots]);
}
