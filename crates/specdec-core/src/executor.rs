//! One rank's steps, from vLLM's facts to launches, reports and votes (spec: DESIGN "A step, from above").
//!
//! The executor joins the planner, the ledger and an engine. A step is planned ([`Executor::plan`]), its runs are launched
//! ([`Executor::launch`]) or its graph is replayed ([`Executor::begin_replay`]), and it is seen off
//! ([`Executor::after_step`]), which gives this rank's books; every rank folds all of them ([`Executor::verdict`]).

use thiserror::Error;

use crate::abi::{StateGroup, MAX_RANKS};
use crate::device::Device;
use crate::engine::{Activations, DeviceReport, Engine, EngineError};
use crate::health::{diagnose, Diagnosis, Failure, Incident};
use crate::ids::{Rank, Rows};
use crate::plan::{LayerSet, PlanError, Planner, Run, StepCounters, StepFacts, StepPlan, StockReason};
use crate::replay::{
    fold, Built, DeviceReport as StepReport, Divergence, GraphId, KvGeneration, Ledger, LedgerError, Pointers,
    RankReport, RankSet, MAX_IN_FLIGHT,
};
use crate::tag::Epoch;
use crate::tasks::{StepShape, StepShapeError};

/// Why a step cannot run. Its message says what; all ranks learn of it at the next vote.
#[derive(Debug, Error)]
pub enum ExecutorError<E: std::error::Error> {
    /// The caches were re-bound behind the executor's back.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The books do not allow it.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The engine or its device.
    #[error(transparent)]
    Engine(#[from] EngineError<E>),
    /// A shape that the kernels have no table for.
    #[error(transparent)]
    Shape(#[from] StepShapeError),
    /// Nothing is bound.
    #[error("no KV cache is bound")]
    Unbound,
    /// A run that the planned step does not have, or no step at all.
    #[error("the step has no run {0}")]
    NoSuchRun(usize),
}

#[derive(Debug)]
enum Books {
    /// Before the first binding.
    Built(Option<Built>),
    Bound(Ledger),
}

/// The step between its plan and its end.
#[derive(Clone, Copy, Debug)]
struct Open {
    shape: StepShape,
    outputs_read: LayerSet,
    /// Neither a capture nor a step behind a failure is in the books.
    is_booked: bool,
}

/// What the caller does for a planned step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planned<'a> {
    /// vLLM's own layers.
    Stock(StockReason),
    /// Launch these runs, in order.
    Eager(&'a [Run]),
    /// Launch them while the stream captures; the graph is known by this number from now on.
    Captured(GraphId, &'a [Run]),
}

/// One rank's executor.
#[derive(Debug)]
pub struct Executor {
    rank: Rank,
    ranks: u32,
    timeout_seconds: f64,
    planner: Planner,
    books: Books,
    counters: StepCounters,
    open: Option<Open>,
    /// The first step whose report has not been seen, and the first for which none is queued.
    unreported: Epoch,
    unqueued: Epoch,
    /// The ranks' verdict was to stop.
    is_stopped: bool,
    /// A report that has arrived says that a rank gave up.
    is_alarmed: bool,
    /// Bit `epoch % MAX_IN_FLIGHT`: a report of the step is queued. Steps that follow each other without
    /// [`Executor::after_step`], as warm-ups do, have one between them.
    queued: u32,
    /// The groups of the step's metadata as last told, and those of captured graphs.
    groups: Vec<StateGroup>,
    graphs: Vec<(GraphId, Vec<StateGroup>)>,
    /// Rows and reason of the captures in which vLLM's own layers ran.
    stock_captures: Vec<(u32, StockReason)>,
}

impl Executor {
    /// Books that begin with the device's epoch `start`.
    pub const fn new(rank: Rank, ranks: u32, timeout_seconds: f64, planner: Planner, start: Epoch) -> Self {
        Self {
            rank,
            ranks,
            timeout_seconds,
            planner,
            books: Books::Built(Some(Built::new(start))),
            counters: StepCounters { specialized: [0; 16], stock: [0; StockReason::ALL.len()], padded_rows: 0 },
            open: None,
            unreported: start,
            unqueued: start,
            is_stopped: false,
            is_alarmed: false,
            queued: 0,
            groups: Vec::new(),
            graphs: Vec::new(),
            stock_captures: Vec::new(),
        }
    }

    /// The planner.
    pub const fn planner(&self) -> &Planner {
        &self.planner
    }

    /// How steps ran so far.
    pub const fn counters(&self) -> &StepCounters {
        &self.counters
    }

    /// Binds KV caches, for the first time or again.
    pub fn bind(&mut self, pointers: Pointers) -> Result<KvGeneration, LedgerError> {
        match &mut self.books {
            Books::Bound(ledger) => ledger.rebind(pointers),
            Books::Built(built) => {
                let Some(built) = built.take() else { return Err(LedgerError::Stopped) };
                let ledger = built.bind(pointers);
                let generation = ledger.generation();
                self.books = Books::Bound(ledger);
                Ok(generation)
            }
        }
    }

    /// The current binding, if there is one.
    pub const fn generation(&self) -> Option<KvGeneration> {
        match &self.books {
            Books::Bound(ledger) => Some(ledger.generation()),
            Books::Built(_) => None,
        }
    }

    /// Decides how a step runs and opens it. `now` are the addresses that its launches bake in.
    ///
    /// A rank that has failed and waits for the others' verdict goes on launching: its kernels wait for nobody and
    /// publish poison, so the others learn of it at once.
    pub fn plan<D: Device>(
        &mut self,
        engine: &mut Engine<D>,
        facts: &StepFacts,
        now: Pointers,
        is_capture: bool,
    ) -> Result<Planned<'_>, ExecutorError<D::Error>> {
        if !is_capture {
            self.settle(engine)?;
        }
        let plan = self.planner.plan(facts)?;
        if !is_capture {
            self.counters.count(&plan);
        }
        let step = match plan {
            StepPlan::Stock(reason) => {
                if is_capture {
                    self.stock_captures.push((facts.width, reason));
                }
                return Ok(Planned::Stock(reason));
            }
            StepPlan::Specialized(step) => step,
        };
        let Books::Bound(ledger) = &mut self.books else { return Err(ExecutorError::Unbound) };
        let is_doomed = ledger.error().is_some() && !self.is_stopped;
        let graph = if is_capture { Some(ledger.capture(&step, now)?) } else { None };
        match graph {
            Some(graph) => self.graphs.push((graph, self.groups.clone())),
            None if is_doomed => {}
            None => {
                ledger.expect(&step, now)?;
                // A replay since they were told may have put a graph's in their place.
                engine.bind_groups(self.rank, &self.groups)?;
            }
        }
        let shape = StepShape::new(step.requests, step.rows_per_request - 1)?;
        let is_booked = !is_capture && !is_doomed;
        self.open = Some(Open { shape, outputs_read: facts.outputs_read, is_booked });
        Ok(graph.map_or(Planned::Eager(step.runs), |graph| Planned::Captured(graph, step.runs)))
    }

    /// Tells the device where the metadata of the steps behind is. Inside a capture nothing is told: the graph's replays
    /// are given the groups that were told last before its plan.
    pub fn bind_groups<D: Device>(
        &mut self,
        engine: &mut Engine<D>,
        groups: &[StateGroup],
    ) -> Result<(), ExecutorError<D::Error>> {
        if self.groups != groups {
            self.groups.clear();
            self.groups.extend_from_slice(groups);
        }
        if engine.device.is_capturing(self.rank).map_err(EngineError::from)? {
            return Ok(());
        }
        Ok(engine.bind_groups(self.rank, &self.groups)?)
    }

    /// The graph of the last capture that was planned.
    pub fn last_graph(&self) -> Option<GraphId> {
        self.graphs.last().map(|(graph, _)| *graph)
    }

    /// Queues a run of the planned step, by its place among the step's runs.
    pub fn launch<D: Device>(
        &mut self,
        engine: &mut Engine<D>,
        index: usize,
        activations: &Activations,
    ) -> Result<(), ExecutorError<D::Error>> {
        let open = self.open.ok_or(ExecutorError::NoSuchRun(index))?;
        let runs = self.planner.runs_reading(open.outputs_read);
        let run = *runs.get(index).ok_or(ExecutorError::NoSuchRun(index))?;
        let is_last = index + 1 == runs.len();
        engine.launch(self.rank, run, open.shape, activations, is_last)?;
        if is_last {
            self.open = None;
            if let (Books::Bound(ledger), true) = (&mut self.books, open.is_booked) {
                ledger.launched()?;
            }
        }
        Ok(())
    }

    /// Announces the replay of a captured step, of which `live` rows belong to requests; the caller queues the graph.
    pub fn begin_replay<D: Device>(
        &mut self,
        engine: &mut Engine<D>,
        graph: GraphId,
        live: Rows,
        now: Pointers,
    ) -> Result<Epoch, ExecutorError<D::Error>> {
        let Books::Bound(ledger) = &mut self.books else { return Err(ExecutorError::Unbound) };
        let epoch = ledger.expect_replay(graph, now)?;
        if let Some((_, groups)) = self.graphs.iter().find(|(known, _)| *known == graph) {
            engine.bind_groups(self.rank, groups)?;
        }
        self.counters.count_specialized(ledger.vote(self.rank).width, live);
        engine.announce_replay(self.rank)?;
        Ok(epoch)
    }

    /// Replays a captured step: announces it and queues its graph, which the engine's device recorded.
    pub fn replay<D: Device>(
        &mut self,
        engine: &mut Engine<D>,
        graph: GraphId,
        recorded: &D::Graph,
        live: Rows,
        now: Pointers,
    ) -> Result<Epoch, ExecutorError<D::Error>> {
        let epoch = self.begin_replay(engine, graph, live, now)?;
        engine.device.launch_graph(self.rank, recorded).map_err(EngineError::from)?;
        Ok(epoch)
    }

    /// Gives up the open step: see [`Engine::close_step`] for what must hold on all ranks.
    pub fn close_step<D: Device>(&mut self, engine: &mut Engine<D>) -> Result<Epoch, ExecutorError<D::Error>> {
        let Books::Bound(ledger) = &mut self.books else { return Err(ExecutorError::Unbound) };
        let epoch = ledger.close_abandoned()?;
        // Planned, and perhaps nothing of it launched: its number is used up all the same.
        engine.open_step(self.rank)?;
        engine.close_step(self.rank)?;
        self.open = None;
        Ok(epoch)
    }

    /// Sees off the steps up to here: queues the report of the last one, compares the reports that have arrived, and
    /// gives this rank's books for the vote. Nobody waits for the device.
    pub fn after_step<D: Device>(
        &mut self,
        engine: &mut Engine<D>,
    ) -> Result<Option<RankReport>, ExecutorError<D::Error>> {
        self.settle(engine)?;
        Ok(match &self.books {
            Books::Bound(ledger) => Some(ledger.vote(self.rank)),
            Books::Built(_) => None,
        })
    }

    /// Queues a report if steps have ended since the last one, and books those that have arrived.
    fn settle<D: Device>(&mut self, engine: &mut Engine<D>) -> Result<(), EngineError<D::Error>> {
        let Books::Bound(ledger) = &mut self.books else { return Ok(()) };
        if ledger.open_step().is_none() && ledger.next() != self.unqueued {
            let last = Epoch(ledger.next().0.wrapping_sub(1));
            engine.queue_report(self.rank, last)?;
            self.queued |= bit(last);
            self.unqueued = ledger.next();
        }
        while self.unreported != self.unqueued {
            let of = self.unreported;
            if self.queued & bit(of) != 0 {
                let Some(report) = engine.report(self.rank, of)? else { break };
                let failed = first_failure(engine, self.rank, &report)?;
                let told = StepReport { epoch: report.epoch, failed, step_word: report.step.0 };
                self.queued &= !bit(of);
                self.is_alarmed |= report.is_alarmed();
                // The ledger keeps its first error, which goes into the next vote.
                let _ = ledger.report(of, told);
            }
            self.unreported = of.next();
        }
        Ok(())
    }

    /// Whether all ranks may go on. If not, none does: this one accepts nothing more.
    pub fn verdict(&mut self, reports: &[RankReport]) -> Result<(), Divergence> {
        let folded = fold(reports, self.ranks);
        if folded.is_err() {
            self.stop();
        }
        folded
    }

    /// Whether this rank's own books do not add up, or its device has failed.
    pub const fn has_failed(&self) -> bool {
        match &self.books {
            Books::Bound(ledger) => ledger.error().is_some(),
            Books::Built(_) => false,
        }
    }

    /// Whether a report that has arrived says that this rank gave up, or that another one told it so.
    pub const fn is_alarmed(&self) -> bool {
        self.is_alarmed
    }

    /// A graph of `width` rows is replayed in which no kernel of ours is: counted by the reason that its capture had.
    pub fn count_stock_replay(&mut self, width: u32) {
        let reason = self.stock_captures.iter().rev().find(|(known, _)| *known == width).map(|(_, reason)| *reason);
        self.counters.count(&StepPlan::Stock(reason.unwrap_or(StockReason::Width)));
    }

    /// Accepts nothing any more.
    pub fn stop(&mut self) {
        self.is_stopped = true;
        if let Books::Bound(ledger) = &mut self.books {
            ledger.stop();
        }
    }

    /// What a person should be told of a stop: `missing` are ranks whose processes have ended, `told` what other ranks
    /// recorded.
    pub fn diagnose<D: Device>(
        &self,
        engine: &Engine<D>,
        told: &[Failure],
        missing: RankSet,
        verdict: Option<Divergence>,
    ) -> Result<Diagnosis, EngineError<D::Error>> {
        let mut failures = engine.failures()?;
        failures.extend(told.iter().filter(|failure| engine.members().all(|member| member != failure.rank)));
        let alarms = engine.alarms(self.rank)?;
        let raised = (0..MAX_RANKS as u8).map(Rank).filter(|rank| alarms[rank.0 as usize].is_some()).collect();
        Ok(diagnose(&Incident {
            shard: engine.shard(),
            failures: &failures,
            missing,
            alarms: raised,
            timeout_seconds: self.timeout_seconds,
            verdict,
        }))
    }
}

const fn bit(of: Epoch) -> u32 {
    1 << (of.0 % MAX_IN_FLIGHT)
}

fn first_failure<D: Device>(
    engine: &Engine<D>,
    rank: Rank,
    report: &DeviceReport,
) -> Result<Option<crate::abi::FailureRecord>, EngineError<D::Error>> {
    if !report.has_failed {
        return Ok(None);
    }
    let failures = engine.failures()?;
    Ok(Some(failures.iter().find(|failure| failure.rank == rank).map_or_else(Default::default, |f| f.record)))
}
