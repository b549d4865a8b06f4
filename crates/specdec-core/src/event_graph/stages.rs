//! One stage of one layer on one rank: its events, by what carries it out.

use super::build::{Actor, Builder, Moment};
use crate::abi::WAVES;
use crate::protocol::{is_pairs, Access, Exchange, Extent, Phase, StageProtocol, Unit, When};

impl Builder<'_> {
    /// A wave per task: it waits, reads, writes and publishes in one event, since nothing else joins it in between.
    pub(super) fn waves(&mut self, moment: &Moment, row: &StageProtocol, rank: usize) {
        let stage = moment.table.stage(row.stage);
        let grid = moment.table.grid;
        let cells = self.cells;
        for task in 0..stage.tasks.min(grid * WAVES) {
            let cta = moment.table.cta(row.stage, task);
            let wave = task / grid;
            let actor = Actor { rank, cta, wave: Some(wave), task };
            let node = self.alone(moment, actor, wave);
            for wait in row.waits.iter().filter(|w| moment.holds(w.when, true)) {
                self.wait(moment, *wait, actor, node);
            }
            for read in row.reads.iter().filter(|r| moment.holds(r.when, true)) {
                self.read(moment, *read, actor, node);
            }
            for write in row.writes.iter().filter(|w| moment.holds(w.when, true) && cells.is_in(w.part, task)) {
                self.write(moment, *write, actor, node, node);
            }
            if self.world.protocol.clears && moment.last_of_step && row.when == When::LastOfRun {
                self.clears.push((rank as u8, moment.step, node));
            }
        }
    }

    /// A workgroup that the routing may give tasks: one event. Nobody's order may rely on it.
    pub(super) fn routed(&mut self, moment: &Moment, row: &StageProtocol, rank: usize) {
        let grid = moment.table.grid;
        for task in 0..self.cells.routed_tasks(moment.table).min(grid) {
            let actor = Actor { rank, cta: moment.table.cta(row.stage, task), wave: None, task };
            let node = self.barrier(moment, actor);
            for read in &row.reads {
                self.read(moment, *read, actor, node);
            }
            for write in &row.writes {
                self.write(moment, *write, actor, node, node);
            }
        }
    }

    /// Workgroup stages: an entry barrier behind the waits, a barrier per task, a flag if rows were written.
    pub(super) fn workgroups(&mut self, moment: &Moment, row: &StageProtocol, rank: usize) {
        // Route does its work once in every workgroup, whatever its table says.
        let own = |write: &Access| write.phase == Phase::BeforeEntry;
        let is_route = row.writes.iter().any(own);
        for (cta, share) in (0..).zip(moment.table.shares(row.stage)) {
            let tasks = if is_route { Vec::new() } else { share };
            if row.unit == Unit::Workgroup && tasks.is_empty() {
                continue;
            }
            let task = tasks.first().copied().unwrap_or(cta);
            self.workgroup(moment, row, Actor { rank, cta, wave: None, task }, &tasks);
        }
    }

    fn workgroup(&mut self, moment: &Moment, row: &StageProtocol, actor: Actor, tasks: &[u32]) {
        let has_task = !tasks.is_empty();
        let before = self.last_barrier(actor);
        if row.unit != Unit::Joined {
            let entry = self.barrier(moment, actor);
            for wait in row.waits.iter().filter(|w| moment.holds(w.when, has_task)) {
                self.wait(moment, *wait, actor, entry);
            }
            let early = |w: &&Access| w.phase == Phase::BeforeEntry && moment.holds(w.when, has_task);
            for write in row.writes.iter().filter(early) {
                self.write(moment, *write, actor, before, entry);
            }
        }
        let barriers: Vec<_> = tasks.iter().map(|_| self.barrier(moment, actor)).collect();
        let published = |write: &&Access| {
            matches!(write.exchange, Exchange::Region(region) if !is_pairs(region))
                && tasks.iter().any(|task| self.cells.is_in(write.part, *task))
        };
        let publishes = row.writes.iter().filter(|w| moment.holds(w.when, has_task)).any(|w| published(&w));
        let flag = if publishes { Some(self.barrier(moment, actor)) } else { None };
        for (task, barrier) in tasks.iter().zip(&barriers) {
            let actor = Actor { task: *task, ..actor };
            for write in row.writes.iter().filter(|w| w.phase == Phase::Tasks && moment.holds(w.when, has_task)) {
                if self.cells.is_in(write.part, *task) {
                    let rows = matches!(write.exchange, Exchange::Region(region) if !is_pairs(region));
                    self.write(moment, *write, actor, *barrier, flag.filter(|_| rows).unwrap_or(*barrier));
                }
            }
        }
        self.reads_of_workgroup(moment, row, actor, tasks, &barriers);
    }

    fn reads_of_workgroup(
        &mut self,
        moment: &Moment,
        row: &StageProtocol,
        actor: Actor,
        tasks: &[u32],
        barriers: &[u32],
    ) {
        let has_task = !tasks.is_empty();
        let mut unjoined = false;
        for read in row.reads.iter().filter(|r| moment.holds(r.when, has_task)) {
            let barrier = match read.phase {
                Phase::Entry => barriers.first(),
                _ => barriers.last(),
            };
            match (read.phase, barrier, read.extent) {
                (Phase::Tail, ..) => {}
                (_, None, _) => unjoined = true,
                (_, Some(_), Extent::Task | Extent::Head) => {
                    for (task, barrier) in tasks.iter().zip(barriers) {
                        self.read(moment, *read, Actor { task: *task, ..actor }, *barrier);
                    }
                }
                (_, Some(barrier), _) => self.read(moment, *read, actor, *barrier),
            }
        }
        if unjoined {
            self.tail(moment, row, actor, WAVES, |access| access.phase != Phase::Tail);
        }
        let is_tail = |access: &Access| access.phase == Phase::Tail;
        let requests = moment.table.shape.requests;
        let tail: Vec<u32> = (actor.task..requests * self.cells.shard.heads())
            .step_by(moment.table.stage(row.stage).head_ctas as usize)
            .collect();
        if row.reads.iter().any(|r| is_tail(r) && moment.holds(r.when, has_task)) && !tail.is_empty() {
            for task in tail {
                self.tail(moment, row, Actor { task, ..actor }, self.cells.conv_waves(), is_tail);
            }
        }
    }

    /// What the waves do behind the stage's last barrier, each alone.
    fn tail(
        &mut self,
        moment: &Moment,
        row: &StageProtocol,
        actor: Actor,
        waves: u32,
        wanted: impl Fn(&Access) -> bool,
    ) {
        let wanted = |access: &&Access| wanted(access) && moment.holds(access.when, false);
        for wave in 0..waves {
            let node = self.alone(moment, actor, wave);
            let actor = Actor { wave: Some(wave), ..actor };
            for read in row.reads.iter().filter(wanted) {
                self.read(moment, *read, actor, node);
            }
            for write in row.writes.iter().filter(|w| w.phase == Phase::Tail && wanted(w)) {
                self.write(moment, *write, actor, node, node);
            }
        }
    }
}
