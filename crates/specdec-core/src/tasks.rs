//! Which workgroup does what: the task table of one width (spec: DESIGN "Tasks").
//!
//! The table is data: kernels read it, the event graph is built from it, and any grid works. Each stage deals its tasks
//! in an order of its own, so that the bytes of a whole layer spread evenly although those of a single stage do not.

use thiserror::Error;

use crate::abi::{
    Stage, StageTasks, MAX_REQUESTS, MAX_ROWS, NUM_STAGES, OWN_TILES, PLACE_STRIDE, SHARED_COLUMNS, TILE, WAVES,
};
use crate::balance::task_bytes;
use crate::encode::Encode;
use crate::geometry::Shard;
use crate::orders::orders;

/// A step's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StepShape {
    /// Requests.
    pub requests: u32,
    /// Rows of one request: its last token and the drafts to verify.
    pub rows_per_request: u32,
}

/// Why a step cannot be launched.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StepShapeError {
    /// No drafts: plain decoding.
    #[error("{0} speculative tokens: a step without drafts is not a verify step")]
    NoDrafts(u32),
    /// No or too many requests.
    #[error("{0} requests: a launch serves 1 to {MAX_REQUESTS}")]
    Requests(u32),
    /// Too many rows.
    #[error("{requests} requests x {rows_per_request} rows = {} rows: a launch serves at most {MAX_ROWS}", u64::from(*requests) * u64::from(*rows_per_request))]
    Rows {
        /// Requests.
        requests: u32,
        /// Rows of one request.
        rows_per_request: u32,
    },
    /// A grid too small for the width.
    #[error("grid of {grid} workgroups: {what}")]
    Grid {
        /// Workgroups.
        grid: u32,
        /// What does not fit.
        what: String,
    },
}

impl StepShapeError {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NoDrafts(_) => "use at least 1 speculative token",
            Self::Requests(_) | Self::Rows { .. } => {
                "lower the requests or the speculative tokens: requests x (k + 1) <= 16"
            }
            Self::Grid { .. } => "use the grid that the geometry was planned for",
        }
    }
}

impl StepShape {
    /// A checked shape: `1..=MAX_REQUESTS` requests, at least one draft, at most `MAX_ROWS` rows.
    pub const fn new(requests: u32, speculative_tokens: u32) -> Result<Self, StepShapeError> {
        if speculative_tokens == 0 {
            return Err(StepShapeError::NoDrafts(speculative_tokens));
        }
        if requests == 0 || requests > MAX_REQUESTS {
            return Err(StepShapeError::Requests(requests));
        }
        let rows_per_request = speculative_tokens.saturating_add(1);
        if requests.saturating_mul(rows_per_request) > MAX_ROWS {
            return Err(StepShapeError::Rows { requests, rows_per_request });
        }
        Ok(Self { requests, rows_per_request })
    }

    /// Token rows.
    pub const fn rows(self) -> u32 {
        self.requests * self.rows_per_request
    }
}

impl StageTasks {
    /// `tasks` dealt to the whole grid.
    pub const fn dealt(tasks: u32, grid: u32) -> Self {
        Self { tasks, head_ctas: grid, head_tasks: tasks, reserved: 0 }
    }

    /// The place that a task is dealt to. The routing may give `ExpertUp` more tasks than the table says.
    const fn place(&self, grid: u32, task: u32) -> u32 {
        if task < self.head_tasks || grid == self.head_ctas {
            task % self.head_ctas
        } else {
            self.head_ctas + (task - self.head_tasks) % (grid - self.head_ctas)
        }
    }

    /// The tasks that a place is dealt, as the kernels walk them.
    fn at(&self, grid: u32, place: u32) -> impl Iterator<Item = u32> {
        let (first, end, stride) = if place < self.head_ctas {
            (place, self.head_tasks, self.head_ctas)
        } else {
            (self.head_tasks + place - self.head_ctas, self.tasks, grid - self.head_ctas)
        };
        (first..end).step_by(stride as usize)
    }
}

/// The task table of one width on one grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTable {
    /// By `Stage`.
    pub stages: [StageTasks; NUM_STAGES as usize],
    /// By `Stage`: the workgroup at each place, every one once.
    pub orders: Vec<Vec<u32>>,
    /// Workgroups.
    pub grid: u32,
    /// The step's shape.
    pub shape: StepShape,
}

impl TaskTable {
    /// Plans a width; errors if the grid cannot hold it.
    pub fn new(shard: &Shard, shape: StepShape, grid: u32) -> Result<Self, StepShapeError> {
        let hidden = shard.geometry.hidden;
        let seam = shape.rows() * shard.slices();
        let own_tiles = shard.up_rows() / TILE;
        let fits = |ok: bool, what: String| if ok { Ok(()) } else { Err(StepShapeError::Grid { grid, what }) };
        fits(grid > 0, "no workgroups".into())?;
        fits(seam <= grid * WAVES, format!("{seam} seam tasks, one for each of {} waves at most", grid * WAVES))?;
        // Every workgroup must own a task behind its last read of the routing (DESIGN "Overwrite rule"): `share_down`
        // gives each a tile of shared_down.
        fits(grid <= hidden / TILE, format!("{} shared-down tiles, one for every workgroup at least", hidden / TILE))?;

        let mut stages = [StageTasks::dealt(seam, grid); NUM_STAGES as usize];
        for (stage, tasks) in [
            (Stage::Route, grid),
            (Stage::InProj, shard.in_proj_rows() / TILE),
            (Stage::Kda, shape.requests * shard.heads() * shard.chunks()),
            (Stage::OProj, hidden / TILE),
            (Stage::MoeIn, (shard.router_rows() + shard.latent_rows()) / TILE + shard.shared() / SHARED_COLUMNS),
            (Stage::ExpertUp, shard.groups()),
            (Stage::ExpertDown, shard.geometry.latent / TILE),
            (Stage::LatentNorm, shape.rows() * shard.latent_slices()),
        ] {
            stages[stage as usize] = StageTasks::dealt(tasks, grid);
        }
        // Two tiles for some and one for others is as slow as two for all: then fewer workgroups, each with enough
        // weights under way.
        let output = &mut stages[Stage::OProj as usize];
        output.head_ctas = output.tasks.div_ceil(output.tasks.div_ceil(grid));
        let shared_down = share_down(shard, shape, grid, stages[Stage::ExpertDown as usize].tasks);
        stages[Stage::SharedDown as usize] = shared_down;
        let most = shared_down.head_tasks.min(OWN_TILES * shared_down.head_ctas);
        fits(own_tiles <= most, format!("{own_tiles} own tiles, {OWN_TILES} a workgroup at most"))?;
        stages[Stage::Up as usize] = StageTasks { tasks: own_tiles, head_tasks: own_tiles, ..shared_down };
        let orders = orders(&stages, shard, shape, grid);
        Ok(Self { stages, orders, grid, shape })
    }

    /// One stage's tasks.
    pub const fn stage(&self, stage: Stage) -> StageTasks {
        self.stages[stage as usize]
    }

    /// The workgroup of a stage's task.
    pub fn cta(&self, stage: Stage, task: u32) -> u32 {
        self.orders[stage as usize][self.stage(stage).place(self.grid, task) as usize]
    }

    /// Each workgroup's tasks of a stage, in its order.
    pub fn shares(&self, stage: Stage) -> Vec<Vec<u32>> {
        let mut shares = vec![Vec::new(); self.grid as usize];
        for (place, cta) in (0..).zip(&self.orders[stage as usize]) {
            shares[*cta as usize] = self.stage(stage).at(self.grid, place).collect();
        }
        shares
    }

    /// The table as the kernels read it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for stage in &self.stages {
            stage.encode(&mut bytes);
        }
        let mut places = vec![[0; PLACE_STRIDE as usize]; self.grid as usize];
        for (stage, order) in self.orders.iter().enumerate() {
            for (place, cta) in order.iter().enumerate() {
                places[*cta as usize][stage] = place as u32;
            }
        }
        places.as_flattened().iter().for_each(|place| place.encode(&mut bytes));
        bytes
    }
}

/// `SharedDown`'s tiles: workgroups that have a tile of `ExpertDown` come first, with this rank's own columns; those
/// that have none take more of the others, up to the bytes of an expert tile whose picks are all different.
fn share_down(shard: &Shard, shape: StepShape, grid: u32, expert_tiles: u32) -> StageTasks {
    let tasks = shard.geometry.hidden / TILE;
    let spread = StageTasks::dealt(tasks, grid);
    let Some(others) = grid.checked_sub(expert_tiles).filter(|others| *others > 0) else { return spread };
    let experts = shard.geometry.experts.min(shape.rows() * shard.geometry.top_k);
    let expert_bytes = task_bytes(shard, Stage::ExpertDown, experts);
    let most = 1 + (expert_bytes / task_bytes(shard, Stage::SharedDown, experts)) as u32;
    let each = (tasks - expert_tiles).div_ceil(others).min(most);
    let head_tasks = tasks - (others * each).min(tasks - expert_tiles);
    StageTasks { head_ctas: expert_tiles, head_tasks, ..spread }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{K3, NANO};

    #[test]
    fn shapes_are_parsed_not_trusted() {
        assert_eq!(StepShape::new(2, 3).map(StepShape::rows), Ok(8));
        assert_eq!(StepShape::new(1, 15).map(StepShape::rows), Ok(16));
        assert_eq!(StepShape::new(2, 0), Err(StepShapeError::NoDrafts(0)));
        assert_eq!(StepShape::new(9, 1), Err(StepShapeError::Requests(9)));
        assert_eq!(StepShape::new(4, 4), Err(StepShapeError::Rows { requests: 4, rows_per_request: 5 }));
        assert!(StepShape::new(8, u32::MAX).is_err());
    }

    #[test]
    fn every_width_of_every_build_has_a_table() {
        for (geometry, ranks) in [(&K3, 8), (&NANO, 2), (&NANO, 1)] {
            let Ok(shard) = geometry.shard(ranks) else { panic!("{} splits over {ranks}", geometry.name) };
            for requests in 1..=MAX_REQUESTS {
                for drafts in 1..MAX_ROWS / requests {
                    let table = StepShape::new(requests, drafts).and_then(|s| TaskTable::new(&shard, s, geometry.grid));
                    let Ok(table) = table else { panic!("{requests} x {drafts}: {table:?}") };
                    assert!(table.stages.iter().all(|s| s.tasks > 0));
                    assert_eq!(table.stage(Stage::Up).head_ctas, table.stage(Stage::SharedDown).head_ctas);
                }
            }
        }
    }

    #[test]
    fn a_workgroup_owns_what_the_table_gives_it() {
        let Ok(shard) = K3.shard(8) else { panic!("the published split") };
        for grid in [8, 132, 200, 224, 225, 256, 300, 447, 448] {
            let Ok(table) = StepShape::new(1, 1).and_then(|s| TaskTable::new(&shard, s, grid)) else {
                assert_eq!(grid, 8, "no table");
                continue;
            };
            for stage in [Stage::InProj, Stage::Kda, Stage::OProj, Stage::ExpertDown, Stage::SharedDown, Stage::Up] {
                let mut owner = vec![None; table.stage(stage).tasks as usize];
                for (cta, share) in (0..).zip(table.shares(stage)) {
                    for task in share {
                        assert_eq!(owner[task as usize].replace(cta), None, "task {task} twice");
                        assert_eq!(table.cta(stage, task), cta);
                    }
                }
                assert!(owner.iter().all(Option::is_some), "{stage:?}");
            }
            let least = table.shares(Stage::SharedDown).iter().map(Vec::len).min();
            assert!(least >= Some(1), "grid {grid}: a workgroup without a task behind the routing");
        }
    }

    #[test]
    fn kimi_k3_has_two_output_tiles_a_workgroup_and_five_shared_ones_where_no_expert_tile_is() {
        let Ok(shard) = K3.shard(8) else { panic!("the published split") };
        let counts = |drafts, stage| {
            let Ok(table) = StepShape::new(1, drafts).and_then(|s| TaskTable::new(&shard, s, 256)) else {
                panic!("no table")
            };
            let mut workgroups = std::collections::BTreeMap::new();
            table.shares(stage).iter().for_each(|tasks| *workgroups.entry(tasks.len()).or_insert(0) += 1);
            workgroups.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(counts(1, Stage::OProj), [(0, 32), (2, 224)]);
        assert_eq!(counts(1, Stage::SharedDown), [(1, 160), (2, 64), (5, 32)]);
        assert_eq!(counts(3, Stage::SharedDown), [(1, 224), (7, 32)]);
        assert_eq!(counts(1, Stage::Up), [(0, 200), (1, 56)]);
    }
}
