//! Each rule broken alone: the checker finds a shortest way to a broken property.

use specdec_core::abi::Stage;
use specdec_core::event_graph::{LayerShape, World};
use specdec_core::layout::Region;
use specdec_core::protocol::{Access, Exchange, Memory, Phase, Protocol as Table, Wait};

use crate::check::explore;
use crate::model::Protocol;
use crate::rules::{Break, Fault, Patience, Rules};
use crate::walk::{Cut, Grain, StepKind};
use crate::worlds::{small, step, step_without_a_task_for_all, FFN_THEN_WHOLE, ONE_LAUNCH, ONE_LAYER, TWO_LAUNCHES};

const STALE: &str = "no stale tag is accepted";
const WRONG: &str = "data behind a flag are that step's";
const GARBAGE: &str = "nothing of a failed workgroup is taken for good";
const OVERWRITTEN: &str = "no word is overwritten before its readers";
const EPOCH: &str = "every workgroup starts in its step's epoch";
const ALARM: &str = "a rank's alarm comes before its poison";
const TOKEN: &str = "no token behind a failure of its step";
const UNAWARE: &str = "nobody waits for ever unaware";

/// Explores a world and expects one of these properties broken.
fn expect_broken(rule: &str, protocol: Protocol, properties: &[&str]) {
    let findings = explore(protocol);
    let Some(broken) = findings.broken else { panic!("{rule}: nothing found in {} states", findings.states) };
    println!("| {rule} | {} | {} | {} |", broken.property, broken.trace.len(), findings.states);
    if std::env::var_os("SPECDEC_TRACES").is_some() {
        println!("{:#?}", broken.trace);
    }
    assert!(properties.contains(&broken.property), "{rule}: {broken:#?}");
}

fn kinds_of(layers: &[LayerShape], widths: &[u32]) -> (World, Vec<StepKind>) {
    let world = small(2, layers);
    let kinds = widths.iter().map(|rows| step(&world, *rows)).collect();
    (world, kinds)
}

fn endless(broken: Break, widths: &[u32]) -> Protocol {
    let (world, kinds) = kinds_of(&ONE_LAUNCH, widths);
    Protocol::new(&world, &kinds, Grain::COARSE, Rules::endless(8).without(broken))
}

/// Under a stalled workgroup.
fn stalled(broken: Break) -> Protocol {
    let (world, kinds) = kinds_of(&TWO_LAUNCHES, &[1]);
    let rules = Rules::under(&[Fault::Stall], Patience::Fair).without(broken);
    Protocol::new(&world, &kinds, Grain::COARSE, rules)
}

/// When a workgroup gives up in one stage while all else goes on.
fn early(broken: Break, stage: Stage) -> Protocol {
    let (world, kinds) = kinds_of(&ONE_LAUNCH, &[1]);
    let rules = Rules::under(&[], Patience::Short).early_in(stage).without(broken);
    Protocol::new(&world, &kinds, Grain::COARSE, rules)
}

fn abandoned(broken: Break) -> Protocol {
    let (world, kinds) = kinds_of(&TWO_LAUNCHES, &[1]);
    let behind = |behind: Option<usize>| StepKind { abandoned_behind: behind, ..kinds[0].clone() };
    let kinds = [None, Some(0), Some(1)].map(behind);
    Protocol::new(&world, &kinds, Grain::COARSE, Rules::endless(4).without(broken))
}

#[test]
fn tags_and_halves() {
    expect_broken("odd and even epochs share a half", endless(Break::OneHalf, &[1, 2]), &[OVERWRITTEN]);
    expect_broken("tags without the layer", endless(Break::TagsWithoutLayers, &[1]), &[STALE]);
}

/// On regions that a step uses in one layer: a later layer's tag can only match behind an earlier layer's new words.
#[test]
fn no_scrub() {
    let (world, kinds) = kinds_of(&ONE_LAYER, &[1, 2]);
    let fewer = Protocol::new(&world, &kinds, Grain::COARSE, Rules::endless(4));
    expect_broken("epochs come round as fast as the scrub", fewer, &[STALE]);
    for (name, layers) in [("one layer", &ONE_LAYER[..]), ("ffn, then whole", &FFN_THEN_WHOLE)] {
        let (mut world, kinds) = kinds_of(layers, &[1, 2]);
        world.protocol.clears = false;
        let protocol = Protocol::new(&world, &kinds, Grain::COARSE, Rules::endless(8));
        expect_broken(&format!("no scrub, {name}"), protocol, &[STALE]);
    }
}

#[test]
fn flags_of_workgroups_without_a_task_stay() {
    let (world, kinds) = kinds_of(&ONE_LAUNCH, &[1]);
    let routed = |a, b| StepKind { producers: vec![a, b], ..kinds[0].clone() };
    let kinds = [routed(1, 1), routed(2, 1)];
    let rules = Rules::endless(4).without(Break::IdleFlagsStay);
    expect_broken("flags of idle workgroups stay", Protocol::new(&world, &kinds, Grain::COARSE, rules), &[STALE]);
}

#[test]
fn flags_before_their_data() {
    let (world, kinds) = kinds_of(&ONE_LAUNCH, &[1]);
    let grain = Grain { cut: Cut::FlagFirst, waves: false };
    expect_broken("flag before data", Protocol::new(&world, &kinds, grain, Rules::endless(8)), &[WRONG]);
}

#[test]
fn every_dropped_wait() {
    let shipped = Table::shipped();
    for (index, row) in shipped.walk.iter().enumerate() {
        for (dropped, wait) in row.waits.iter().enumerate() {
            let (mut world, mut kinds) = kinds_of(&ONE_LAUNCH, &[1]);
            if wait.region == Region::SharedHidden {
                // A workgroup with an expert's task has done its shared one before: one has none.
                kinds[0].producers = vec![1; ONE_LAUNCH.len()];
            }
            world.protocol.walk[index].waits.remove(dropped);
            // What a wait polls is also what it reads: keep the read.
            let Wait { region, extent, previous_layer, when } = *wait;
            let exchange = Exchange::Region(region);
            let any = shipped.walk[1].reads[0];
            let read = Access { exchange, extent, previous_layer, when, phase: Phase::Tasks, ..any };
            world.protocol.walk[index].reads.push(read);
            let rule = format!("{:?} does not wait for {}", row.stage, region.name());
            // What lands with what it does not wait for, or always behind it, hides the defect.
            let grain = if matches!(wait.region, Region::Logits | Region::SharedHidden) {
                Grain::BACKWARDS
            } else {
                Grain::FINE
            };
            expect_broken(&rule, Protocol::new(&world, &kinds, grain, Rules::endless(8)), &[WRONG]);
        }
    }
}

#[test]
fn a_workgroup_without_a_task_of_the_last_stage() {
    let world = small(3, &ONE_LAUNCH);
    let kinds = [step_without_a_task_for_all(&world)];
    let protocol = Protocol::new(&world, &kinds, Grain::COARSE, Rules::endless(8));
    expect_broken("a workgroup without a task of the last stage", protocol, &[OVERWRITTEN, EPOCH]);
}

#[test]
fn an_epoch_that_advances_early() {
    let (mut world, kinds) = kinds_of(&[LayerShape::WHOLE], &[1]);
    let is_epoch = |access: &Access| access.exchange == Exchange::Memory(Memory::Epoch);
    let writes = world.protocol.walk.iter().flat_map(|row| &row.writes);
    let epoch: Vec<Access> = writes.filter(|write| is_epoch(write)).copied().collect();
    for row in &mut world.protocol.walk {
        row.writes.retain(|write| !is_epoch(write));
        if row.stage == Stage::AttentionDots {
            row.writes.extend(epoch.clone());
        }
    }
    let protocol = Protocol::new(&world, &kinds, Grain::COARSE, Rules::endless(8));
    expect_broken("the epoch advances in the first stage", protocol, &[EPOCH]);
}

#[test]
fn closing() {
    expect_broken("close without meeting", abandoned(Break::CloseAlone), &[OVERWRITTEN, STALE, UNAWARE, EPOCH]);
    expect_broken("close without advancing the epoch", abandoned(Break::CloseKeepsEpoch), &[STALE, EPOCH]);
    expect_broken("close clears no more than a last launch", abandoned(Break::CloseAsLastLaunch), &[STALE]);
}

#[test]
fn failing() {
    expect_broken("no poison", stalled(Break::NoPoison), &[GARBAGE, WRONG]);
    expect_broken("poison before the alarm", stalled(Break::PoisonBeforeAlarm), &[ALARM]);
    expect_broken("alarm at the output rank only", stalled(Break::AlarmAtOutputRankOnly), &[UNAWARE]);
    let forgotten = stalled(Break::FailureForgotten);
    expect_broken("a launch forgets the failure before it", forgotten, &[WRONG, GARBAGE, EPOCH]);
    let stores = early(Break::FailedStoresData, Stage::Route);
    expect_broken("a failed workgroup stores data", stores, &[OVERWRITTEN]);
}

#[test]
fn handing_out() {
    expect_broken("FAILED before the alarm", early(Break::FailedBeforeAlarm, Stage::Output), &[TOKEN]);
    expect_broken("tokens without a look at alarms", early(Break::AlarmsUnread, Stage::Output), &[TOKEN]);
}
