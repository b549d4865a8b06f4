//! The static check of the protocol and its task tables (spec: DESIGN "Overwrite rule").
//!
//! A world of a few consecutive steps, each of one or more launches, becomes a graph: an event per workgroup barrier
//! and per wave that acts alone, an edge wherever one event must come before another. Edges come from program order,
//! from barriers (only of stages in which the workgroup takes part), from waits (for exactly the cells that the
//! kernels poll) and, on one rank, from the order of launches on its stream. Between ranks there are waits only. Then
//! - every wait is for something that an earlier stage of the walk produces, and no events wait for each other: with
//!   all workgroups resident nothing deadlocks;
//! - every read comes behind the write that it needs, and before the next write of the cell by any rank;
//! - no two writes of a cell carry one tag.
//!
//! What orders one step before the next: on a rank, the stream. Between ranks, the last stage of a launch: it waits
//! for columns of every rank that depend on a task of each of that rank's workgroups, so that a rank enters step
//! e + 1 only when every rank has done everything of step e but its own last reads, and step e + 2 only when every
//! rank has *entered* e + 1, and so ended e.
//!
//! Two ranks stand for any number: a hazard is between one reader and one writer, and more ranks only add waits, that
//! is, order. Which two can be chosen, since a rank's own columns differ. The routed stage is adversarial: what it
//! reads and writes counts, and nothing may rely on a workgroup having a task there.

mod access;
mod build;
mod cells;
mod check;
mod critical_path;
mod graph;
mod hazard;
mod stages;
mod table;
mod visits;

pub use critical_path::{critical_path, hops_markdown, Hop};
pub use graph::Site;
pub use hazard::Hazard;
pub use visits::{Touch, Visit};

use build::Builder;
use check::Checker;

use crate::abi::OWN_TILES;
use crate::abi::{LayerKind, Stage};
use crate::geometry::Shard;
use crate::layout::{Layout, Region};
use crate::protocol::Protocol;
use crate::tasks::{StepShape, StepShapeError, TaskTable};

/// Steps of a world: the third one uses the half of the peer buffer that the first one used.
pub const STEPS: usize = 3;

/// One layer of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// What runs of it.
    pub kind: LayerKind,
    /// Whether it writes an `AttnRes` block.
    pub writes_block: bool,
    /// Whether a launch starts here. One always does at an `Ffn` layer and at the step's first.
    pub starts_launch: bool,
}

impl LayerShape {
    /// A KDA layer.
    pub const WHOLE: Self = Self { kind: LayerKind::Whole, writes_block: false, starts_launch: false };
    /// A KDA layer that writes a block.
    pub const BLOCK_WRITE: Self = Self { writes_block: true, ..Self::WHOLE };
    /// The half of an MLA layer behind its attention.
    pub const FFN: Self = Self { kind: LayerKind::Ffn, writes_block: false, starts_launch: true };

    /// The same layer as the first of a launch.
    #[must_use]
    pub const fn in_new_launch(self) -> Self {
        Self { starts_launch: true, ..self }
    }

    const fn begins_launch(self) -> bool {
        self.starts_launch || matches!(self.kind, LayerKind::Ffn)
    }
}

/// What a check looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphReport {
    /// Events.
    pub nodes: usize,
    /// Edges.
    pub edges: usize,
    /// Pairs of events whose order was checked.
    pub checked_pairs: u64,
}

/// Consecutive steps on a few ranks. A plain value, so that tests can break it.
#[derive(Clone, Debug)]
pub struct World {
    /// Shapes of a rank.
    pub shard: Shard,
    /// Ranks that are modelled.
    pub ranks: Vec<u32>,
    /// Task table of each step, all of one grid.
    pub tables: Vec<TaskTable>,
    /// Contents of every step.
    pub layers: Vec<LayerShape>,
    /// What stages do.
    pub protocol: Protocol,
    /// Where the exchanges are, for how many flags they have room.
    pub layout: Layout,
}

impl World {
    /// `STEPS` steps of one shape on the first two ranks (or the only one).
    pub fn new(shard: &Shard, grid: u32, shape: StepShape, layers: &[LayerShape]) -> Result<Self, StepShapeError> {
        let table = TaskTable::new(shard, shape, grid)?;
        Ok(Self {
            shard: shard.clone(),
            ranks: (0..shard.ranks.min(2)).collect(),
            tables: vec![table; STEPS],
            layers: layers.to_vec(),
            protocol: Protocol::shipped(),
            layout: Layout::new(shard),
        })
    }

    /// Builds and checks the graph; every kind of hazard once.
    pub fn check(&self) -> Result<GraphReport, Vec<Hazard>> {
        let mut builder = Builder::new(self);
        builder.build();
        let mut hazards = std::mem::take(&mut builder.hazards);
        hazards.extend(self.capacity(&builder));
        match builder.graph.freeze() {
            Err(cycle) => {
                let first = cycle.iter().copied().min_by_key(|node| builder.graph.positions[*node as usize]);
                let sites = first.map(|node| builder.graph.sites[node as usize]);
                hazards.extend(sites.map(|first| Hazard::Deadlock { first, events: cycle.len() }));
            }
            Ok(graph) => match Checker::new(&builder, &graph).run() {
                Ok(report) if hazards.is_empty() => return Ok(report),
                Ok(_) => {}
                Err(found) => hazards.extend(found),
            },
        }
        Err(hazards)
    }

    /// Flags that the layout has no room for, and own tiles that the LDS has none for.
    fn capacity(&self, builder: &Builder) -> Vec<Hazard> {
        let mut hazards = Vec::new();
        for table in &self.tables {
            let tasks = |stage: Stage| table.stage(stage).tasks;
            for (region, producers) in [
                (Region::AttentionDots, tasks(Stage::AttentionDots)),
                (Region::AttentionX, tasks(Stage::AttentionMix)),
                (Region::Proj, tasks(Stage::InProj).min(table.grid)),
                (Region::Core, tasks(Stage::Kda).min(table.grid)),
                (Region::MlpDots, tasks(Stage::MlpDots)),
                (Region::MlpX, tasks(Stage::MlpMix)),
                (Region::SharedHidden, builder.cells.shared_tiles().min(table.grid)),
                (Region::ExpertHidden, builder.cells.routed_tasks(table).min(table.grid)),
                (Region::LatentZ, tasks(Stage::LatentNorm)),
            ] {
                let flags = self.layout.place(region).num_flags;
                if producers > flags {
                    hazards.push(Hazard::FlagOutside { region, producers, flags });
                }
            }
            let tiles = builder.cells.own_tiles().div_ceil(table.stage(Stage::Up).head_ctas.max(1));
            if tiles > OWN_TILES {
                hazards.push(Hazard::OwnTilesOutside { tiles, held: OWN_TILES });
            }
        }
        hazards.dedup();
        hazards
    }
}

/// Plans `shape` on `grid` and checks steps of `layers`.
pub fn check(shard: &Shard, grid: u32, shape: StepShape, layers: &[LayerShape]) -> Result<GraphReport, Vec<Hazard>> {
    World::new(shard, grid, shape, layers).map_err(|e| vec![Hazard::from(e)])?.check()
}
