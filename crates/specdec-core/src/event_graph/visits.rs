//! The walk of one layer as a list: who waits for, reads and writes which cells. What the event graph takes apart into
//! events, a model checker takes as the program of every workgroup.

use std::ops::Range;

use super::build::{Actor, Moment};
use super::cells::Cells;
use super::World;
use crate::abi::{Stage, WAVES};
use crate::protocol::{is_pairs, Access, Exchange, Extent, Phase, StageProtocol, Unit};
use crate::tasks::TaskTable;

/// Cells that a visit touches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Touch {
    /// What.
    pub exchange: Exchange,
    /// Cells, in the exchange's own numbering.
    pub cells: Range<u32>,
    /// The one row of the cells that it touches; `None`: every row of the step.
    pub row: Option<u32>,
    /// The layer whose version it means.
    pub layer: u32,
}

/// What one workgroup, or one wave of it, does in one stage of one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Stage.
    pub stage: Stage,
    /// Modelled rank.
    pub rank: usize,
    /// Workgroup.
    pub cta: u32,
    /// The wave, if it acts alone; the whole workgroup otherwise.
    pub wave: Option<u32>,
    /// Behind the stage's last barrier: the next one joins it.
    pub tail: bool,
    /// Whether the routing decides that it takes place.
    pub routed: bool,
    /// Waits, all before the rest.
    pub waits: Vec<Touch>,
    /// Reads of data that a wait guards.
    pub reads: Vec<Touch>,
    /// Stores. Those of a pair region go to every modelled rank.
    pub writes: Vec<Touch>,
}

impl World {
    /// What every workgroup of every modelled rank does in layer `layer` of a step with `table`, in the walk's order.
    pub fn visits(&self, table: &TaskTable, layer: usize) -> Vec<Visit> {
        let shape = self.layers[layer];
        let last_of_step = layer + 1 == self.layers.len();
        let moment = Moment {
            table,
            shape,
            step: 0,
            layer: layer as u32,
            generation: layer as u32,
            first_of_run: layer == 0 || shape.begins_launch(),
            last_of_run: last_of_step || self.layers[layer + 1].begins_launch(),
            last_of_step,
            stage: None,
            position: 0,
        };
        let visitor = Visitor { cells: Cells { shard: &self.shard, ranks: &self.ranks }, moment };
        let rows = self.protocol.walk.iter().filter(|row| moment.holds(row.when, true));
        rows.flat_map(|row| (0..self.ranks.len()).flat_map(move |rank| visitor.stage(row, rank))).collect()
    }
}

#[derive(Clone, Copy)]
struct Visitor<'a> {
    cells: Cells<'a>,
    moment: Moment<'a>,
}

impl Visitor<'_> {
    fn stage(self, row: &StageProtocol, rank: usize) -> Vec<Visit> {
        let table = self.moment.table;
        let actor = |task: u32, wave| Actor { rank, cta: table.cta(row.stage, task), wave, task };
        match row.unit {
            Unit::Wave => (0..table.stage(row.stage).tasks.min(table.grid * WAVES))
                .map(|task| self.visit(row, actor(task, Some(task / table.grid)), &[task], false))
                .collect(),
            Unit::Routed => (0..self.cells.routed_tasks(table).min(table.grid))
                .map(|task| Visit { routed: true, ..self.visit(row, actor(task, None), &[task], false) })
                .collect(),
            Unit::Workgroup | Unit::EveryWorkgroup | Unit::Joined => {
                let is_route = row.writes.iter().any(|write| write.phase == Phase::BeforeEntry);
                let shares = (0..).zip(table.shares(row.stage));
                let tasks = |share: Vec<u32>| if is_route { Vec::new() } else { share };
                shares
                    .filter(|(_, share)| row.unit != Unit::Workgroup || !share.is_empty())
                    .flat_map(|(cta, share)| self.workgroup(row, rank, cta, &tasks(share)))
                    .collect()
            }
        }
    }

    fn workgroup(self, row: &StageProtocol, rank: usize, cta: u32, tasks: &[u32]) -> Vec<Visit> {
        let actor = Actor { rank, cta, wave: None, task: tasks.first().copied().unwrap_or(cta) };
        let mut visits = vec![self.visit(row, actor, tasks, false)];
        let tail = self.visit(row, actor, tasks, true);
        if !tail.reads.is_empty() || !tail.writes.is_empty() {
            visits.push(tail);
        }
        visits
    }

    fn visit(self, row: &StageProtocol, actor: Actor, tasks: &[u32], tail: bool) -> Visit {
        let has_task = !tasks.is_empty();
        let is_here =
            |access: &&Access| (access.phase == Phase::Tail) == tail && self.moment.holds(access.when, has_task);
        let waits = row.waits.iter().filter(|wait| !tail && self.moment.holds(wait.when, has_task));
        let waits =
            waits.flat_map(|w| self.touches(Exchange::Region(w.region), w.extent, w.previous_layer, actor)).collect();
        let reads = row.reads.iter().filter(is_here).flat_map(|read| {
            let each = matches!(read.extent, Extent::Task | Extent::Head) && has_task;
            let own = [actor.task];
            let tasks = if each { tasks } else { &own };
            let of = |task: &u32| {
                self.touches(read.exchange, read.extent, read.previous_layer, Actor { task: *task, ..actor })
            };
            tasks.iter().flat_map(of).collect::<Vec<_>>()
        });
        let reads = reads.collect();
        let writes = row.writes.iter().filter(is_here).flat_map(|write| {
            let parts = tasks.iter().filter(|task| self.cells.is_in(write.part, **task));
            parts.map(|task| self.written(write.exchange, Actor { task: *task, ..actor })).collect::<Vec<_>>()
        });
        let writes = writes.collect();
        let Actor { rank, cta, wave, .. } = actor;
        Visit { stage: row.stage, rank, cta, wave, tail, routed: false, waits, reads, writes }
    }

    fn touches(self, exchange: Exchange, extent: Extent, previous_layer: bool, actor: Actor) -> Vec<Touch> {
        let layer = self.moment.layer - u32::from(previous_layer);
        let row = match (exchange, extent) {
            (Exchange::Region(region), Extent::Columns) if is_pairs(region) => {
                Some(actor.task / self.cells.slices(self.moment.table, exchange))
            }
            _ => None,
        };
        let ranges = self.cells.read(self.moment.table, exchange, extent, actor);
        ranges.into_iter().map(|(start, end)| Touch { exchange, cells: start..end, row, layer }).collect()
    }

    fn written(self, exchange: Exchange, actor: Actor) -> Touch {
        let cell = self.cells.written(self.moment.table, exchange, actor);
        Touch { exchange, cells: cell..cell + 1, row: None, layer: self.moment.layer }
    }
}
