//! The shipped protocol and task tables pass the event graph on every width; each way to break them is found and named.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

use specdec_core::abi::{Stage, StageTasks, MAX_REQUESTS, MAX_ROWS};
use specdec_core::event_graph::{check, Hazard, LayerShape, World};
use specdec_core::geometry::{Geometry, Shard, K3, NANO};
use specdec_core::layout::Region;
use specdec_core::protocol::{Access, Exchange, Memory, Phase, Protocol, StageProtocol, Wait};
use specdec_core::tasks::{StepShape, TaskTable};

const WHOLE: LayerShape = LayerShape::WHOLE;
const BLOCK: LayerShape = LayerShape::BLOCK_WRITE;
const FFN: LayerShape = LayerShape::FFN;

/// What steps are made of: one launch and several, each kind of layer before and behind each other kind that vLLM's
/// attention leaves room for.
const STEPS: &[&[LayerShape]] = &[
    &[WHOLE],
    &[FFN],
    &[WHOLE, WHOLE],
    &[FFN, WHOLE],
    &[BLOCK, WHOLE],
    &[WHOLE, BLOCK],
    &[FFN, FFN],
    &[WHOLE, WHOLE.in_new_launch()],
    &[FFN, WHOLE, BLOCK, FFN, WHOLE],
];

fn shapes() -> impl Iterator<Item = StepShape> {
    (1..=MAX_REQUESTS).flat_map(|requests| (1..MAX_ROWS / requests).map(move |k| StepShape::new(requests, k).unwrap()))
}

/// A rank's shapes on another grid: the layout's flags follow.
fn shard(geometry: &Geometry, ranks: u32, grid: u32) -> Shard {
    Geometry { grid, ..geometry.clone() }.shard(ranks).unwrap()
}

fn sentences(hazards: &[Hazard]) -> String {
    hazards.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ")
}

fn expect_pass(world: &World) {
    if let Err(hazards) = world.check() {
        let TaskTable { shape, grid, .. } = world.tables[0];
        panic!("{shape:?} on {grid} workgroups, {:?}:\n  {}", world.layers, sentences(&hazards));
    }
}

#[test]
fn nano_passes_every_width() {
    for (ranks, grid) in [(1, 8), (2, 8), (1, 16), (2, 16), (2, 3)] {
        let shard = shard(&NANO, ranks, grid);
        for (shape, layers) in shapes().flat_map(|shape| STEPS.iter().map(move |layers| (shape, layers))) {
            // A grid of few workgroups has no wave for every slice of many rows: the planner says so.
            if TaskTable::new(&shard, shape, grid).is_ok() {
                expect_pass(&World::new(&shard, grid, shape, layers).unwrap());
            }
        }
    }
}

#[test]
fn k3_passes_every_width() {
    for grid in [256, 132] {
        let shard = shard(&K3, 8, grid);
        for shape in shapes() {
            expect_pass(&World::new(&shard, grid, shape, &[FFN, WHOLE, BLOCK]).unwrap());
        }
        for shape in [StepShape::new(1, 1).unwrap(), StepShape::new(8, 1).unwrap()] {
            for layers in STEPS {
                expect_pass(&World::new(&shard, grid, shape, layers).unwrap());
            }
        }
    }
}

/// Two ranks stand for eight; here is what that claim rests on: other pairs, and all of them.
#[test]
fn k3_passes_on_other_ranks() {
    let shard = K3.shard(8).unwrap();
    for ranks in [vec![0, 7], vec![3, 4], (0..8).collect()] {
        let shape = StepShape::new(4, 3).unwrap();
        expect_pass(&World { ranks, ..World::new(&shard, K3.grid, shape, &[FFN, WHOLE]).unwrap() });
    }
}

#[test]
fn steps_of_changing_width_pass() {
    for (shard, grid) in [(NANO.shard(2).unwrap(), NANO.grid), (K3.shard(8).unwrap(), K3.grid)] {
        let table = |requests, k| TaskTable::new(&shard, StepShape::new(requests, k).unwrap(), grid).unwrap();
        for tables in
            [vec![table(1, 1), table(1, 15), table(1, 1)], vec![table(8, 1), table(1, 2), table(2, 7), table(1, 15)]]
        {
            let world = World::new(&shard, grid, StepShape::new(1, 1).unwrap(), &[FFN, WHOLE]).unwrap();
            expect_pass(&World { tables, ..world });
        }
    }
}

#[test]
fn the_report_counts_and_the_planner_refuses() {
    let shard = NANO.shard(2).unwrap();
    let shape = StepShape::new(2, 3).unwrap();
    let report = check(&shard, NANO.grid, shape, &[WHOLE]).unwrap();
    assert!(report.nodes > 0 && report.edges > report.nodes && report.checked_pairs > 0);
    assert!(matches!(check(&shard, 17, shape, &[WHOLE]).unwrap_err()[..], [Hazard::Plan(_)]));
}

// Mutations. Nano on 16 workgroups: as many as it has shared-down tiles.

fn nano() -> World {
    World::new(&shard(&NANO, 2, 16), 16, StepShape::new(2, 3).unwrap(), &[WHOLE, WHOLE]).unwrap()
}

fn row(protocol: &mut Protocol, stage: Stage) -> &mut StageProtocol {
    protocol.walk.iter_mut().find(|row| row.stage == stage).unwrap()
}

fn position(protocol: &Protocol, stage: Stage) -> usize {
    protocol.walk.iter().position(|row| row.stage == stage).unwrap()
}

fn expect_hazard(world: &World, what: &str, matches: impl Fn(&Hazard) -> bool) {
    let hazards = world.check().expect_err(what);
    assert!(hazards.iter().any(matches), "{what}:\n  {}", sentences(&hazards));
}

const fn region(region: Region) -> Exchange {
    Exchange::Region(region)
}

/// Past the planner: every stage starts at workgroup 0 of a grid with more workgroups than any stage has tasks.
fn idle_workgroups(layers: &[LayerShape]) -> World {
    let grid = 80;
    let mut world = World { shard: shard(&NANO, 2, grid), layers: layers.to_vec(), ..nano() };
    for table in &mut world.tables {
        table.grid = grid;
        table.stages.iter_mut().for_each(|stage| *stage = StageTasks::dealt(stage.tasks, grid));
        table.orders = vec![(0..grid).collect(); table.orders.len()];
    }
    world
}

#[test]
fn a_workgroup_without_a_task_behind_the_routing_is_found() {
    let world = idle_workgroups(&[WHOLE, WHOLE]);
    for what in [Region::Logits, Region::Latent] {
        expect_hazard(&world, "a late reader", |h| {
            matches!(h, Hazard::Overwritten { exchange, reader, writer, .. }
                if *exchange == region(what)
                    && (reader.stage, writer.stage) == (Some(Stage::Route), Some(Stage::MoeIn)))
        });
    }
    expect_hazard(&world, "the epoch advances under a late starter", |h| {
        matches!(h, Hazard::Overwritten { exchange, reader, .. }
            if *exchange == Exchange::Memory(Memory::Epoch) && reader.stage.is_none())
    });
}

/// The planner's rule is sufficient, not necessary: a task of the next layer before its `MoeIn` serves as well.
#[test]
fn a_task_of_the_next_layer_orders_the_routing_too() {
    let mut world = nano();
    world.shard = shard(&NANO, 2, 17);
    // One workgroup more than shared-down and output-projection tiles; the input projection has more.
    for table in &mut world.tables {
        table.grid = 17;
        table.stages.iter_mut().for_each(|stage| *stage = StageTasks::dealt(stage.tasks, 17));
        table.orders.iter_mut().for_each(|order| order.push(16));
    }
    expect_pass(&world);
}

#[test]
fn a_lost_tile_is_found() {
    let mut world = nano();
    world.tables.iter_mut().for_each(|table| table.stages[Stage::SharedDown as usize].head_tasks -= 1);
    expect_hazard(
        &world,
        "columns that nobody pushes",
        |h| matches!(h, Hazard::NeverWritten { exchange, .. } if *exchange == region(Region::Output)),
    );
}

#[test]
fn every_dropped_wait_is_found() {
    let shipped = Protocol::shipped();
    for (index, row) in shipped.walk.iter().enumerate() {
        for (dropped, wait) in row.waits.iter().enumerate() {
            let mut world = nano();
            world.protocol.walk[index].waits.remove(dropped);
            // What a wait polls is also what it reads: keep the read.
            let Wait { region: polled, extent, previous_layer, when } = *wait;
            let read = Access { exchange: region(polled), extent, previous_layer, when, ..any_read() };
            world.protocol.walk[index].reads.push(read);
            expect_hazard(&world, &format!("{:?} without its wait for {:?}", row.stage, wait.region), |h| {
                matches!(h, Hazard::ReadTooEarly { exchange, reader, .. }
                    if *exchange == region(wait.region) && reader.stage == Some(row.stage))
            });
        }
    }
}

fn any_read() -> Access {
    Access { phase: Phase::Tasks, ..Protocol::shipped().walk[1].reads[0] }
}

#[test]
fn a_convolution_state_behind_the_last_push_is_found() {
    let mut world = nano();
    let o_proj = row(&mut world.protocol, Stage::OProj);
    let tail = |access: &Access| access.phase == Phase::Tail;
    let reads: Vec<Access> = o_proj.reads.iter().copied().filter(tail).collect();
    let writes: Vec<Access> = o_proj.writes.iter().copied().filter(tail).collect();
    o_proj.reads.retain(|access| !tail(access));
    o_proj.writes.retain(|access| !tail(access));
    let last = row(&mut world.protocol, Stage::Up);
    last.reads.extend(reads);
    last.writes.extend(writes);
    expect_hazard(&world, "Proj read behind the last push", |h| {
        matches!(h, Hazard::Overwritten { exchange, reader, writer, .. }
            if *exchange == region(Region::Proj)
                && (reader.stage, writer.stage) == (Some(Stage::Up), Some(Stage::InProj)))
    });
}

#[test]
fn a_convolution_state_before_its_siblings_have_read_is_found() {
    let mut world = nano();
    row(&mut world.protocol, Stage::OProj).waits.clear();
    expect_hazard(
        &world,
        "the old state is overwritten",
        |h| matches!(h, Hazard::Overwritten { exchange, .. } if *exchange == Exchange::Memory(Memory::ConvState)),
    );
}

#[test]
fn swapped_stages_are_found() {
    for (first, second, what) in [
        (Stage::Kda, Stage::OProj, Region::Core),
        (Stage::AttentionMix, Stage::InProj, Region::AttentionX),
        (Stage::LatentNorm, Stage::Up, Region::LatentZ),
    ] {
        let mut world = nano();
        let (a, b) = (position(&world.protocol, first), position(&world.protocol, second));
        world.protocol.walk.swap(a, b);
        expect_hazard(&world, "a wait for a later stage", |h| {
            matches!(h, Hazard::WaitsForLater { region, reader, writer }
                if *region == what && (reader.stage, writer.stage) == (Some(second), Some(first)))
        });
        expect_hazard(&world, "a deadlock", |h| matches!(h, Hazard::Deadlock { .. }));
    }
}

#[test]
fn one_region_for_both_seams_is_found() {
    for (mlp, attention) in [(Region::MlpDots, Region::AttentionDots), (Region::MlpX, Region::AttentionX)] {
        let mut world = nano();
        let rename = |access: &mut Access| {
            if access.exchange == region(mlp) {
                access.exchange = region(attention);
            }
        };
        for row in &mut world.protocol.walk {
            row.waits.iter_mut().filter(|wait| wait.region == mlp).for_each(|wait| wait.region = attention);
            row.reads.iter_mut().chain(&mut row.writes).for_each(rename);
        }
        expect_hazard(
            &world,
            "two writes under one tag",
            |h| matches!(h, Hazard::TagReused { exchange, .. } if *exchange == region(attention)),
        );
    }
}

#[test]
fn up_on_another_workgroup_than_its_shared_tiles_is_found() {
    let mut world = nano();
    for table in &mut world.tables {
        table.orders[Stage::Up as usize].rotate_left(1);
    }
    expect_hazard(&world, "sums in another workgroup's LDS", |h| {
        matches!(h, Hazard::NeverWritten { exchange, reader, .. }
            if *exchange == Exchange::Memory(Memory::OwnSums) && reader.stage == Some(Stage::Up))
    });
}

#[test]
fn an_epoch_that_advances_early_is_found() {
    let mut world = nano();
    let epoch = |access: &Access| access.exchange == Exchange::Memory(Memory::Epoch);
    let output = row(&mut world.protocol, Stage::Output);
    let writes: Vec<Access> = output.writes.iter().copied().filter(epoch).collect();
    output.writes.retain(|access| !epoch(access));
    row(&mut world.protocol, Stage::AttentionDots).writes.extend(writes);
    world.layers = vec![WHOLE];
    expect_hazard(&world, "a workgroup starts in the next step", |h| {
        matches!(h, Hazard::Overwritten { exchange, writer, .. }
            if *exchange == Exchange::Memory(Memory::Epoch) && writer.stage == Some(Stage::AttentionDots))
    });
}

/// The waits alone order one step's pushes behind the last step's reads, as they do from layer to layer. What needs
/// two halves is the clear of unused rows: a peer may already push into them in the step behind.
#[test]
fn one_half_is_enough_until_a_step_clears() {
    let mut world = nano();
    assert!(world.protocol.clears && world.protocol.halves == 2, "what ships clears, in halves");
    expect_pass(&world);
    world.protocol.halves = 1;
    expect_hazard(&world, "a pair of the next step is cleared", |h| {
        matches!(h, Hazard::Cleared { region: Region::AttentionOut, clearer, writer, .. }
            if clearer.step + 1 == writer.step && clearer.rank != writer.rank)
    });
    world.protocol.clears = false;
    expect_pass(&world);
}

#[test]
fn a_grid_that_the_layout_has_no_flags_for_is_found() {
    let mut world = nano();
    world.layout.places[Region::Proj as usize].num_flags = NANO.grid - 1;
    expect_hazard(&world, "flags past their region", |h| matches!(h, Hazard::FlagOutside { region: Region::Proj, .. }));
}

#[test]
fn hazards_are_sentences() {
    let mut world = nano();
    row(&mut world.protocol, Stage::InProj).waits.clear();
    let hazards = world.check().unwrap_err();
    let sentence = hazards[0].to_string();
    assert!(sentence.starts_with("attention_x: InProj of rank 0, CTA "), "{sentence}");
    assert!(sentence.contains(" may read before AttentionMix of rank 0, CTA "), "{sentence}");
}
