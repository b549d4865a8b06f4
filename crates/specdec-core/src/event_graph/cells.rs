//! How an exchange is cut into cells: the units that one task writes.

use super::build::Actor;
use crate::abi::SHARED_COLUMNS;
use crate::abi::{SLICE, TILE, WAVE_SIZE};
use crate::geometry::Shard;
use crate::layout::Region;
use crate::protocol::{Exchange, Extent, Memory, Part};
use crate::tasks::TaskTable;

/// Tiles of one wave's columns.
const SLICE_TILES: u32 = SLICE / TILE;

/// Whether the routing decides who produces it.
pub(super) fn is_routed(exchange: Exchange) -> bool {
    exchange == Exchange::Region(Region::ExpertHidden)
}

#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    pub shard: &'a Shard,
    pub ranks: &'a [u32],
}

impl Cells<'_> {
    pub fn router_tiles(&self) -> u32 {
        self.shard.router_rows() / TILE
    }

    fn latent_in_tiles(&self) -> u32 {
        self.shard.latent_rows() / TILE
    }

    pub fn shared_tiles(&self) -> u32 {
        self.shard.shared() / SHARED_COLUMNS
    }

    pub fn own_tiles(&self) -> u32 {
        self.shard.up_rows() / TILE
    }

    /// Waves that store a head's convolution state, a channel of q, k or v a lane.
    pub fn conv_waves(&self) -> u32 {
        (3 * self.shard.geometry.head_dim).div_ceil(WAVE_SIZE)
    }

    /// Most tasks that the routing can make.
    pub fn routed_tasks(&self, table: &TaskTable) -> u32 {
        let geometry = &self.shard.geometry;
        geometry.experts.min(table.shape.rows() * geometry.top_k) * self.shard.groups()
    }

    /// Cells that one rank writes.
    fn per_rank(&self, table: &TaskTable, exchange: Exchange) -> u32 {
        let (shard, rows) = (self.shard, table.shape.rows());
        match exchange {
            Exchange::Region(region) => match region {
                Region::AttentionDots | Region::AttentionX | Region::MlpDots | Region::MlpX => rows * shard.slices(),
                Region::LatentZ => rows * shard.latent_slices(),
                Region::Proj => shard.in_proj_rows() / TILE,
                Region::Core => table.shape.requests * shard.heads() * shard.chunks(),
                Region::SharedHidden => self.shared_tiles(),
                Region::ExpertHidden => self.routed_tasks(table).min(table.grid),
                Region::AttentionOut | Region::Output => shard.geometry.hidden / TILE,
                Region::Logits => self.router_tiles(),
                Region::Latent => self.latent_in_tiles(),
                Region::LatentOut => shard.geometry.latent / TILE,
            },
            Exchange::Memory(_) => 1,
        }
    }

    /// Slices of a row whose columns one wave sums over the ranks.
    pub fn slices(&self, table: &TaskTable, exchange: Exchange) -> u32 {
        self.per_rank(table, exchange) / SLICE_TILES
    }

    /// The ranges of cells that an actor's read covers.
    pub fn read(&self, table: &TaskTable, exchange: Exchange, extent: Extent, actor: Actor) -> Vec<(u32, u32)> {
        let one = |cell: u32| vec![(cell, cell + 1)];
        let per_rank = self.per_rank(table, exchange);
        let pairs = matches!(exchange, Exchange::Region(region) if crate::protocol::is_pairs(region));
        match extent {
            Extent::All => vec![(0, per_rank * if pairs { self.ranks.len() as u32 } else { 1 })],
            Extent::Row => {
                let row = actor.task / self.shard.slices() * self.shard.slices();
                vec![(row, row + self.shard.slices())]
            }
            Extent::Columns => {
                let start = actor.task % self.slices(table, exchange) * SLICE_TILES;
                let range = |source: u32| (source * per_rank + start, source * per_rank + start + SLICE_TILES);
                (0..self.ranks.len() as u32).map(range).collect()
            }
            Extent::Head => {
                let first = actor.task / self.shard.chunks() * self.conv_waves();
                vec![(first, first + self.conv_waves())]
            }
            Extent::Workgroup => one(actor.cta),
            Extent::Task if exchange == Exchange::Memory(Memory::OwnSums) => one(self.own_cell(actor)),
            Extent::Task => one(actor.task),
        }
    }

    /// LDS is the workgroup's: the same tile on another workgroup is another cell.
    fn own_cell(&self, actor: Actor) -> u32 {
        actor.cta * self.own_tiles() + actor.task
    }

    /// The cell that an actor's task writes.
    pub fn written(&self, table: &TaskTable, exchange: Exchange, actor: Actor) -> u32 {
        let task = actor.task;
        let pushed = |cell: u32| actor.rank as u32 * self.per_rank(table, exchange) + cell;
        match exchange {
            Exchange::Region(Region::Output) => {
                let tiles = self.shard.geometry.hidden / TILE;
                pushed((self.ranks[actor.rank] * self.own_tiles() + task) % tiles)
            }
            Exchange::Region(Region::Latent) => pushed(task.saturating_sub(self.router_tiles())),
            Exchange::Region(Region::AttentionOut | Region::Logits | Region::LatentOut) => pushed(task),
            Exchange::Region(Region::SharedHidden) => task.saturating_sub(self.router_tiles() + self.latent_in_tiles()),
            Exchange::Memory(Memory::OwnSums) => self.own_cell(actor),
            Exchange::Memory(Memory::Routing) => actor.cta,
            Exchange::Memory(Memory::Epoch) => 0,
            Exchange::Memory(Memory::ConvState) => task * self.conv_waves() + actor.wave.unwrap_or(0),
            Exchange::Region(_) | Exchange::Memory(_) => task,
        }
    }

    /// Whether a task belongs to a part of its stage.
    pub fn is_in(&self, part: Part, task: u32) -> bool {
        let shared = self.router_tiles() + self.latent_in_tiles();
        match part {
            Part::All => true,
            Part::Router => task < self.router_tiles(),
            Part::Latent => (self.router_tiles()..shared).contains(&task),
            Part::Shared => task >= shared,
            Part::Own => task < self.own_tiles(),
            Part::Others => task >= self.own_tiles(),
            Part::First => task == 0,
        }
    }
}
