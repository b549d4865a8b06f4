//! Which workgroup does what: the task table of one width (spec: DESIGN "Tasks").
//!
//! The table is data: kernels read it, the event graph is built from it, and any grid works. Stages start where the
//! stage before them ended, so that the bytes of a whole layer spread evenly although single stages do not.

use thiserror::Error;

use crate::abi::{Stage, StageTasks, MAX_REQUESTS, MAX_ROWS, NUM_STAGES, OWN_TILES, SHARED_COLUMNS, TILE, WAVES};
use crate::geometry::Shard;

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

/// The task table of one width on one grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTable {
    /// By `Stage`.
    pub stages: [StageTasks; NUM_STAGES as usize],
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
        fits(own_tiles <= OWN_TILES * grid, format!("{own_tiles} own tiles, {OWN_TILES} a workgroup at most"))?;
        // Every workgroup must own a task behind its last read of the routing (DESIGN "Overwrite rule").
        fits(grid <= hidden / TILE, format!("{} shared-down tiles, one for every workgroup at least", hidden / TILE))?;

        let mut stages = [StageTasks::default(); NUM_STAGES as usize];
        // A slice of a row belongs to the same wave in every seam: it alone touches its prefix and blocks.
        for stage in [Stage::AttentionDots, Stage::AttentionMix, Stage::MlpDots, Stage::MlpMix, Stage::Output] {
            stages[stage as usize] = StageTasks { first_cta: 0, tasks: seam };
        }
        stages[Stage::Route as usize] = StageTasks { first_cta: 0, tasks: grid };
        let mut next = seam.min(grid) % grid;
        for (stage, tasks) in [
            (Stage::InProj, shard.in_proj_rows() / TILE),
            (Stage::Kda, shape.requests * shard.heads() * shard.chunks()),
            (Stage::OProj, hidden / TILE),
            (Stage::MoeIn, (shard.router_rows() + shard.latent_rows()) / TILE + shard.shared() / SHARED_COLUMNS),
            (Stage::ExpertUp, shard.groups()),
            (Stage::ExpertDown, shard.geometry.latent / TILE),
            (Stage::LatentNorm, shape.rows() * shard.latent_slices()),
            (Stage::SharedDown, hidden / TILE),
        ] {
            stages[stage as usize] = StageTasks { first_cta: next, tasks };
            next = (next + tasks) % grid;
        }
        // `Up` adds to what `SharedDown` kept: same tiles, same workgroups.
        let first_cta = stages[Stage::SharedDown as usize].first_cta;
        stages[Stage::Up as usize] = StageTasks { first_cta, tasks: own_tiles };
        Ok(Self { stages, grid, shape })
    }

    /// One stage's tasks.
    pub const fn stage(&self, stage: Stage) -> StageTasks {
        self.stages[stage as usize]
    }
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
                    assert!(table.stages.iter().all(|s| s.tasks > 0 && s.first_cta < geometry.grid));
                }
            }
        }
    }
}
