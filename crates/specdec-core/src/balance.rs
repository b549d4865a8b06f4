//! Who loads how many bytes of weights, from the task table alone (spec: DESIGN "Tasks").
//!
//! Counted are the bytes that a workgroup's streaming loads ask for, as the emulator counts them: what two waves of a
//! workgroup both load counts twice.

use serde::Serialize;

use crate::abi::{LayerKind, Stage, MX_GROUP, SHARED_COLUMNS, TILE, WAVES, WAVE_SIZE};
use crate::geometry::{Shard, FP4_STEP};
use crate::health::stage_name;
use crate::protocol::{Protocol, When};
use crate::tasks::TaskTable;

/// Most bytes of a workgroup over the mean of all, for a whole layer.
pub const LAYER_BAR: f64 = 1.05;
/// The same for the expert phase, in steps of `EXPERT_BAR_ROWS` rows or more.
pub const EXPERT_BAR: f64 = 1.10;
/// Rows from which the expert phase is held to its bar: below, there are fewer expert tiles than workgroups.
pub const EXPERT_BAR_ROWS: u32 = 4;
/// The stages behind the routing whose weights the workgroups share out among themselves.
pub const EXPERT_PHASE: [Stage; 3] = [Stage::ExpertUp, Stage::ExpertDown, Stage::SharedDown];

/// Bytes that one load instruction of a wave brings: 16 a lane for weights, 4 for scales.
const WEIGHT_LOAD: u64 = WAVE_SIZE as u64 * 16;
const SCALE_LOAD: u64 = WAVE_SIZE as u64 * 4;

/// What every workgroup does and loads in one stage of one layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StageLoad {
    /// Name of the stage.
    pub stage: &'static str,
    /// Tasks of the stage.
    pub tasks: u32,
    /// Tasks by workgroup.
    pub cta_tasks: Vec<u32>,
    /// Bytes of weights by workgroup.
    pub cta_bytes: Vec<u64>,
}

/// How evenly bytes are spread over the workgroups.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The workgroup with the most.
    pub max: u64,
    /// The workgroup with the least.
    pub min: u64,
    /// Over all workgroups, those without a task included.
    pub mean: f64,
    /// `max / mean`; 1 where there is nothing.
    pub ratio: f64,
}

impl Spread {
    /// Of bytes by workgroup.
    pub fn of(bytes: &[u64]) -> Self {
        let max = bytes.iter().copied().max().unwrap_or(0);
        let mean = bytes.iter().sum::<u64>() as f64 / bytes.len().max(1) as f64;
        let ratio = if max == 0 { 1.0 } else { max as f64 / mean };
        Self { max, min: bytes.iter().copied().min().unwrap_or(0), mean, ratio }
    }
}

/// One layer of one width, shared out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Balance {
    /// Experts that any row picks.
    pub experts: u32,
    /// Stages that have tasks in such a layer, in the walk's order.
    pub stages: Vec<StageLoad>,
    /// Bytes of weights by workgroup, over all stages.
    pub cta_bytes: Vec<u64>,
    /// Of `cta_bytes`.
    pub layer: Spread,
    /// Of `EXPERT_PHASE`.
    pub expert_phase: Spread,
    /// Whether `layer` is within `LAYER_BAR`.
    pub layer_holds: bool,
    /// Whether `expert_phase` is within `EXPERT_BAR`; `None` for steps that are not held to it.
    pub expert_phase_holds: Option<bool>,
}

impl Balance {
    /// The last layer of a run, when the rows pick `experts` different experts.
    pub fn new(shard: &Shard, table: &TaskTable, kind: LayerKind, experts: u32) -> Self {
        let grid = table.grid;
        let mut stages = Vec::new();
        let mut cta_bytes = vec![0; grid as usize];
        let mut phase = vec![0; grid as usize];
        let walk = Protocol::shipped().walk;
        let held = walk.iter().filter(|row| kind == LayerKind::Whole || row.when != When::Whole);
        for stage in held.map(|row| row.stage) {
            // The routing says how many tasks `ExpertUp` has.
            let tasks = if stage == Stage::ExpertUp { shard.groups() * experts } else { table.stage(stage).tasks };
            let each = task_bytes(shard, stage, experts);
            let mut cta_tasks = vec![0; grid as usize];
            (0..tasks).for_each(|task| cta_tasks[table.cta(stage, task) as usize] += 1);
            let load: Vec<u64> = cta_tasks.iter().map(|tasks| u64::from(*tasks) * each).collect();
            add(&mut cta_bytes, &load);
            if EXPERT_PHASE.contains(&stage) {
                add(&mut phase, &load);
            }
            stages.push(StageLoad { stage: stage_name(stage as u32), tasks, cta_tasks, cta_bytes: load });
        }
        let (layer, expert_phase) = (Spread::of(&cta_bytes), Spread::of(&phase));
        let is_held = table.shape.rows() >= EXPERT_BAR_ROWS;
        Self {
            experts,
            stages,
            cta_bytes,
            layer,
            expert_phase,
            layer_holds: layer.ratio <= LAYER_BAR,
            expert_phase_holds: is_held.then_some(expert_phase.ratio <= EXPERT_BAR),
        }
    }
}

fn add(sum: &mut [u64], more: &[u64]) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

/// Bytes of weights that one task of a stage loads.
pub fn task_bytes(shard: &Shard, stage: Stage, experts: u32) -> u64 {
    let bf16_tile = |columns: u32| u64::from(TILE * columns) * 2;
    let geometry = &shard.geometry;
    match stage {
        Stage::InProj | Stage::MoeIn => bf16_tile(geometry.hidden),
        // The head's whole `f_b`: each task makes all of its head's decays.
        Stage::Kda => u64::from(geometry.head_dim * geometry.head_dim) * 2,
        Stage::OProj => bf16_tile(shard.proj()),
        Stage::ExpertUp => {
            // Each wave has a tile and one of two halves of K; a scale word holds two steps of two tiles.
            let steps = u64::from(geometry.latent / FP4_STEP / 2);
            u64::from(WAVES) * (steps * WEIGHT_LOAD + steps.div_ceil(2) * SCALE_LOAD)
        }
        Stage::ExpertDown => {
            let steps = u64::from(shard.inter() / FP4_STEP);
            u64::from(experts) * (steps * WEIGHT_LOAD + steps.div_ceil(2) * SCALE_LOAD)
        }
        Stage::SharedDown => bf16_tile(shard.shared()),
        Stage::Up => bf16_tile(geometry.latent),
        Stage::AttentionDots
        | Stage::AttentionMix
        | Stage::MlpDots
        | Stage::MlpMix
        | Stage::Route
        | Stage::LatentNorm
        | Stage::Output => 0,
    }
}

/// Bytes of weights that a layer's streaming loads bring, each byte once: what a perfect table would share out.
pub fn distinct_bytes(shard: &Shard, kind: LayerKind, experts: u32) -> u64 {
    let geometry = &shard.geometry;
    let (hidden, latent, inter) = (u64::from(geometry.hidden), u64::from(geometry.latent), u64::from(shard.inter()));
    let rows = |count: u32, columns: u64| u64::from(count) * columns * 2;
    let whole = rows(shard.in_proj_rows(), hidden) + rows(shard.proj(), u64::from(geometry.head_dim));
    let moe_in = shard.router_rows() + shard.latent_rows() + shard.shared() / SHARED_COLUMNS * TILE;
    let groups = u64::from(MX_GROUP);
    let w13 = 2 * inter * (latent / 2 + latent / groups);
    let w2 = latent * (inter / 2 + (inter / groups).next_multiple_of(8));
    let always = rows(shard.proj(), hidden) + rows(moe_in, hidden) + rows(shard.shared(), hidden);
    let half = always + rows(shard.up_rows(), latent) + u64::from(experts) * (w13 + w2);
    half + if kind == LayerKind::Whole { whole } else { 0 }
}

/// Experts that `rows` rows pick together when every row picks `top_k` different ones at random: a seeded routing.
pub fn seeded_union(shard: &Shard, rows: u32, seed: u64) -> u32 {
    let geometry = &shard.geometry;
    let mut state = seed;
    // splitmix64 (Steele, Lea, Flood 2014).
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    };
    let mut picked = vec![false; geometry.experts as usize];
    for _ in 0..rows {
        // The first places of a shuffle.
        let mut order: Vec<usize> = (0..geometry.experts as usize).collect();
        for place in 0..geometry.top_k as usize {
            let other = place + (next() % (order.len() - place) as u64) as usize;
            order.swap(place, other);
            picked[order[place]] = true;
        }
    }
    picked.iter().filter(|picked| **picked).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{K3, NANO};
    use crate::tasks::StepShape;

    fn balance(rows_per_request: u32, experts: u32) -> Balance {
        let Ok(shard) = K3.shard(8) else { panic!("the published split") };
        let shape = StepShape { requests: 1, rows_per_request };
        let Ok(table) = TaskTable::new(&shard, shape, K3.grid) else { panic!("a table") };
        Balance::new(&shard, &table, LayerKind::Whole, experts)
    }

    fn stage<'a>(balance: &'a Balance, name: &str) -> &'a StageLoad {
        let Some(found) = balance.stages.iter().find(|load| load.stage == name) else { panic!("{name}") };
        found
    }

    #[test]
    fn kimi_k3_tiles_have_the_bytes_that_their_shapes_give() {
        let found = balance(2, 32);
        let each = |name| {
            let load = stage(&found, name);
            load.cta_bytes.iter().sum::<u64>() / u64::from(load.tasks)
        };
        assert_eq!((each("in_proj"), each("moe_in")), (16 * 7168 * 2, 16 * 7168 * 2));
        assert_eq!((each("o_proj"), each("kda")), (16 * 1536 * 2, 128 * 128 * 2));
        assert_eq!((each("shared_down"), each("up")), (16 * 768 * 2, 16 * 3584 * 2));
        // 64 rows of half a byte a value, and their scales twice: two waves load each pair of tiles' words.
        assert_eq!(each("expert_up"), 64 * (1792 + 2 * 112));
        // 16 rows, 12 scales padded to 16, of two tiles.
        assert_eq!(each("expert_down"), 32 * 16 * (192 + 2 * 16));
        assert_eq!(each("route"), 0);
        assert_eq!(stage(&found, "expert_up").tasks, 32 * 12);
    }

    #[test]
    fn requested_bytes_are_the_distinct_ones_and_known_repetitions() {
        let Ok(shard) = K3.shard(8) else { panic!("the published split") };
        let found = balance(2, 32);
        let requested: u64 = found.cta_bytes.iter().sum();
        // `f_b` once for each of a head's 8 tasks, scales twice.
        let decays = 7 * 1536 * 128 * 2;
        let scales = 32 * (768 * 112 + 3584 * 16);
        assert_eq!(requested, distinct_bytes(&shard, LayerKind::Whole, 32) + decays + scales);
        let whole = distinct_bytes(&shard, LayerKind::Whole, 32);
        let half = distinct_bytes(&shard, LayerKind::Ffn, 32);
        assert_eq!(whole - half, (6288 * 7168 + 1536 * 128) * 2);
    }

    #[test]
    fn a_half_layer_has_no_attention_stage() {
        let Ok(shard) = NANO.shard(2) else { panic!("a split") };
        let Ok(table) = StepShape::new(2, 3).and_then(|shape| TaskTable::new(&shard, shape, NANO.grid)) else {
            panic!("a table")
        };
        let found = Balance::new(&shard, &table, LayerKind::Ffn, 7);
        assert_eq!(found.stages[0].stage, "o_proj");
        for load in &found.stages {
            assert_eq!(load.cta_tasks.iter().sum::<u32>(), load.tasks, "{}", load.stage);
        }
        let total: u64 = found.stages.iter().flat_map(|load| &load.cta_bytes).sum();
        assert_eq!(total, found.cta_bytes.iter().sum::<u64>());
    }

    #[test]
    fn bars_are_judged_where_they_apply() {
        assert_eq!(balance(2, 32).expert_phase_holds, None);
        let four = balance(4, 62);
        assert_eq!(four.expert_phase_holds, Some(four.expert_phase.ratio <= 1.10));
        assert_eq!(four.layer_holds, four.layer.ratio <= 1.05);
        let even = Spread::of(&[3, 3, 3]);
        assert_eq!((even.max, even.min), (3, 3));
        assert!((even.ratio - 1.0).abs() < 1e-12 && (Spread::of(&[0, 4]).ratio - 2.0).abs() < 1e-12);
        assert!((Spread::of(&[0, 0]).ratio - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_seeded_routing_picks_what_chance_would() {
        let Ok(shard) = K3.shard(8) else { panic!("the published split") };
        assert_eq!(seeded_union(&shard, 1, 5), 16);
        for rows in [4, 8, 16] {
            let mean = (0..64).map(|seed| f64::from(seeded_union(&shard, rows, seed))).sum::<f64>() / 64.0;
            let expected = 896.0 * (1.0 - (1.0 - 16.0 / 896.0_f64).powi(rows as i32));
            // 64 draws of a spread below 5 experts each.
            assert!((mean - expected).abs() < 2.5, "{rows} rows: {mean}, {expected}");
        }
    }
}
