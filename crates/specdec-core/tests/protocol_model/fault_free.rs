//! Without faults nothing blocks, no stale tag is accepted, nothing is overwritten early: in runs of any length, since
//! the worlds have no end and finitely many states.

use specdec_core::event_graph::LayerShape;

use crate::check::{explore, Findings};
use crate::model::Protocol;
use crate::rules::Rules;
use crate::walk::{Grain, StepKind};
use crate::worlds::{small, step, FFN_THEN_WHOLE, ONE_LAUNCH, ONE_LAYER, TWO_LAUNCHES};

/// Explores a world in which every step is one of `kinds`, in any order, and expects nothing broken.
fn expect_sound(name: &str, layers: &[LayerShape], kinds: &[StepKind], grain: Grain, epochs: u8) -> Findings {
    let grid = kinds[0].table.grid;
    let protocol = Protocol::new(&small(grid, layers), kinds, grain, Rules::endless(epochs));
    let findings = explore(protocol);
    println!("| {name} | {} | {:.1} |", findings.states, findings.seconds);
    assert!(findings.broken.is_none(), "{name}: {:#?}", findings.broken);
    findings
}

#[test]
fn widths_in_any_order() {
    let layers =
        [("two whole layers", &ONE_LAUNCH[..]), ("ffn, then whole", &FFN_THEN_WHOLE), ("one layer", &ONE_LAYER)];
    for (name, layers) in layers {
        let world = small(2, layers);
        let kinds = [step(&world, 1), step(&world, 2)];
        expect_sound(&format!("widths 1 and 2 in any order, {name}, 8 epochs"), layers, &kinds, Grain::COARSE, 8);
    }
}

#[test]
fn waves_apart() {
    let world = small(2, &ONE_LAUNCH);
    expect_sound("width 2, waves apart, 2 epochs", &ONE_LAUNCH, &[step(&world, 2)], Grain::WAVES, 2);
}

#[test]
fn single_accesses() {
    let world = small(2, &ONE_LAUNCH);
    for (name, grain) in [("in order", Grain::FINE), ("backwards", Grain::BACKWARDS)] {
        let name = format!("width 1, single accesses, publications {name}, 2 epochs");
        expect_sound(&name, &ONE_LAUNCH, &[step(&world, 1)], grain, 2);
    }
}

#[test]
fn routings_in_any_order() {
    let world = small(2, &ONE_LAUNCH);
    let routed = |a, b| StepKind { producers: vec![a, b], ..step(&world, 1) };
    let kinds = [routed(1, 1), routed(1, 2), routed(2, 1), routed(2, 2)];
    expect_sound("width 1, one or two routed workgroups, 4 epochs", &ONE_LAUNCH, &kinds, Grain::COARSE, 4);
}

/// Every way in which the hosts can leave steps of these widths, each in two launches.
fn abandonable(widths: &[u32]) -> Vec<StepKind> {
    let world = small(2, &TWO_LAUNCHES);
    let behind = [None, Some(0), Some(1)];
    let kinds = widths.iter().flat_map(|rows| behind.map(|behind| (*rows, behind)));
    kinds.map(|(rows, abandoned_behind)| StepKind { abandoned_behind, ..step(&world, rows) }).collect()
}

#[test]
fn abandoned_steps() {
    let name = "width 1, two launches, some steps abandoned, 4 epochs";
    expect_sound(name, &TWO_LAUNCHES, &abandonable(&[1]), Grain::COARSE, 4);
}

#[test]
#[ignore = "ten minutes: 36 million states"]
fn abandoned_steps_of_both_widths() {
    let name = "widths 1 and 2, two launches, some steps abandoned, 8 epochs";
    expect_sound(name, &TWO_LAUNCHES, &abandonable(&[1, 2]), Grain::COARSE, 8);
}

#[test]
fn larger_worlds() {
    let world = small(3, &ONE_LAUNCH);
    expect_sound("width 1, three workgroups, 4 epochs", &ONE_LAUNCH, &[step(&world, 1)], Grain::COARSE, 4);
    let layers = [LayerShape::WHOLE, LayerShape::FFN, LayerShape::WHOLE];
    let world = small(2, &layers);
    expect_sound("width 1, three layers in two launches, 4 epochs", &layers, &[step(&world, 1)], Grain::COARSE, 4);
}
