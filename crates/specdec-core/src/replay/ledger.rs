//! One rank's books.

use serde::Serialize;

use crate::abi::FailureRecord;
use crate::ids::{Rank, Rows};
use crate::plan::{PlanDigest, Specialized};
use crate::replay::{KvGeneration, LedgerError, Pointers, RankReport};
use crate::tag::Epoch;

/// Steps that may wait for their report at once. A power of two, so that epochs keep their places when they wrap.
pub const MAX_IN_FLIGHT: u32 = 32;

/// A captured graph: numbered by the ledger, no number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct GraphId(pub u32);

/// What a rank's device says behind a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// The epoch word behind the step.
    pub epoch: Epoch,
    /// The first failing wait, if the rank has failed.
    pub failed: Option<FailureRecord>,
    /// Step number of the metadata that the step ran on.
    pub step_word: u32,
}

#[derive(Clone, Copy, Debug)]
struct Captured {
    graph: GraphId,
    width: Rows,
    digest: PlanDigest,
    generation: KvGeneration,
}

/// A ledger that no KV caches are bound to yet: it can only be bound.
#[derive(Debug)]
pub struct Built {
    start: Epoch,
}

impl Built {
    /// Books that begin with the epoch in the device's word.
    pub const fn new(start: Epoch) -> Self {
        Self { start }
    }

    /// Binds the first KV caches.
    pub fn bind(self, pointers: Pointers) -> Ledger {
        Ledger {
            pointers,
            generation: KvGeneration(1),
            next: self.start,
            oldest: self.start,
            closed: 0,
            is_open: false,
            graphs: Vec::new(),
            num_captured: 0,
            last: None,
            history: PlanDigest::default(),
            error: None,
        }
    }
}

/// One rank's books: bound, perhaps with captured graphs, perhaps in a step.
///
/// A step is [`Ledger::expect`]ed, launched and [`Ledger::launched`], or replayed ([`Ledger::expect_replay`]); each
/// consumes one epoch. One that ends early is closed ([`Ledger::close_abandoned`]), which consumes its epoch too. One
/// step later comes its [`Ledger::report`]. The first error is kept, and nothing is accepted behind it.
#[derive(Debug)]
pub struct Ledger {
    pointers: Pointers,
    generation: KvGeneration,
    /// The epoch of the open step, or of the next one.
    next: Epoch,
    /// The first step without a report: epochs `oldest..next` are in flight.
    oldest: Epoch,
    /// Bit `epoch % MAX_IN_FLIGHT`: the step in flight was closed, not run.
    closed: u32,
    is_open: bool,
    graphs: Vec<Captured>,
    num_captured: u32,
    last: Option<(Rows, PlanDigest)>,
    history: PlanDigest,
    error: Option<LedgerError>,
}

impl Ledger {
    /// The current binding.
    pub const fn generation(&self) -> KvGeneration {
        self.generation
    }

    /// The epoch of the open step, or of the next one.
    pub const fn next(&self) -> Epoch {
        self.next
    }

    /// The step that is neither launched to its end nor closed.
    pub fn open_step(&self) -> Option<Epoch> {
        self.is_open.then_some(self.next)
    }

    /// Steps without a report, the open one not counted.
    pub const fn num_in_flight(&self) -> u32 {
        self.next.0.wrapping_sub(self.oldest.0)
    }

    /// The first error.
    pub const fn error(&self) -> Option<LedgerError> {
        self.error
    }

    /// Binds other KV caches: graphs captured before must not be replayed any more.
    pub fn rebind(&mut self, pointers: Pointers) -> Result<KvGeneration, LedgerError> {
        self.accept(|ledger| {
            ledger.between_steps()?;
            ledger.pointers = pointers;
            ledger.generation.0 = ledger.generation.0.wrapping_add(1);
            Ok(ledger.generation)
        })
    }

    /// Notes a capture. Nothing runs, so no epoch is consumed; `now` are the addresses that the graph bakes in.
    pub fn capture(&mut self, plan: &Specialized, now: Pointers) -> Result<GraphId, LedgerError> {
        self.accept(|ledger| {
            ledger.between_steps()?;
            ledger.check_binding(plan.generation, now)?;
            let graph = GraphId(ledger.num_captured);
            ledger.num_captured = ledger.num_captured.wrapping_add(1);
            ledger.graphs.push(Captured {
                graph,
                width: plan.width,
                digest: plan.digest,
                generation: ledger.generation,
            });
            Ok(graph)
        })
    }

    /// Forgets a graph that vLLM has thrown away.
    pub fn forget(&mut self, graph: GraphId) {
        self.graphs.retain(|captured| captured.graph != graph);
    }

    /// Opens an eager step; returns its epoch, which its metadata must carry.
    pub fn expect(&mut self, plan: &Specialized, now: Pointers) -> Result<Epoch, LedgerError> {
        self.accept(|ledger| {
            ledger.between_steps()?;
            ledger.check_binding(plan.generation, now)?;
            ledger.begin(plan.width, plan.digest)
        })
    }

    /// Notes that the open step's last launch is enqueued.
    pub fn launched(&mut self) -> Result<(), LedgerError> {
        self.accept(|ledger| ledger.end(false).map(|_| ()))
    }

    /// Expects one replay of a graph, from its first launch to its last; returns its epoch.
    pub fn expect_replay(&mut self, graph: GraphId, now: Pointers) -> Result<Epoch, LedgerError> {
        self.accept(|ledger| {
            ledger.between_steps()?;
            let found = ledger.graphs.binary_search_by_key(&graph, |captured| captured.graph);
            let captured = *found.ok().and_then(|i| ledger.graphs.get(i)).ok_or(LedgerError::UnknownGraph(graph))?;
            if captured.generation != ledger.generation {
                let Captured { generation: captured, .. } = captured;
                return Err(LedgerError::CapturedBeforeRebind { graph, captured, current: ledger.generation });
            }
            ledger.check_binding(captured.generation, now)?;
            ledger.begin(captured.width, captured.digest)?;
            ledger.end(false)
        })
    }

    /// Closes the open step without its remaining launches; returns the epoch that the kernels' close entry must end.
    pub fn close_abandoned(&mut self) -> Result<Epoch, LedgerError> {
        self.accept(|ledger| ledger.end(true))
    }

    /// Compares what the device says behind step `of`; the reports of steps before it are no longer needed.
    pub fn report(&mut self, of: Epoch, report: DeviceReport) -> Result<(), LedgerError> {
        self.accept(|ledger| {
            let steps = of.0.wrapping_sub(ledger.oldest.0);
            if steps >= ledger.num_in_flight() {
                return Err(LedgerError::NotInFlight(of));
            }
            if let Some(FailureRecord { layer, stage, .. }) = report.failed {
                return Err(LedgerError::GaveUp { epoch: of, layer, stage });
            }
            let ahead = report.epoch.0.wrapping_sub(of.next().0).cast_signed();
            if ahead != 0 {
                let by = ahead.unsigned_abs();
                let is_behind = ahead < 0;
                return Err(if is_behind {
                    LedgerError::Skipped { epoch: of, by }
                } else {
                    LedgerError::Doubled { epoch: of, by }
                });
            }
            let was_closed = ledger.closed >> (of.0 % MAX_IN_FLIGHT) & 1 == 1;
            if !was_closed && report.step_word != of.0 {
                return Err(LedgerError::StaleMetadata { epoch: of, seen: report.step_word });
            }
            ledger.oldest = of.next();
            Ok(())
        })
    }

    /// This rank's books, for the others. Equal at equal points of a run, whether reports have come in or not.
    pub fn vote(&self, rank: Rank) -> RankReport {
        let (width, last) = self.last.unwrap_or((Rows(0), PlanDigest::default()));
        RankReport {
            rank,
            next: self.next,
            generation: self.generation,
            width,
            last,
            history: self.history,
            error: self.error,
        }
    }

    /// Accepts nothing any more, because another rank must not go on.
    pub fn stop(&mut self) {
        self.error.get_or_insert(LedgerError::Stopped);
    }

    fn accept<T>(&mut self, operation: impl FnOnce(&mut Self) -> Result<T, LedgerError>) -> Result<T, LedgerError> {
        if self.error.is_some() {
            return Err(LedgerError::Stopped);
        }
        operation(self).inspect_err(|error| self.error = Some(*error))
    }

    fn between_steps(&self) -> Result<(), LedgerError> {
        self.open_step().map_or(Ok(()), |epoch| Err(LedgerError::Abandoned(epoch)))
    }

    fn check_binding(&self, planned: KvGeneration, now: Pointers) -> Result<(), LedgerError> {
        let current = self.generation;
        if planned != current {
            return Err(LedgerError::OtherBinding { planned, current });
        }
        if now.kv != self.pointers.kv {
            return Err(LedgerError::StaleBinding(current));
        }
        if now.fixed != self.pointers.fixed {
            return Err(LedgerError::PointersMoved(current));
        }
        Ok(())
    }

    fn begin(&mut self, width: Rows, digest: PlanDigest) -> Result<Epoch, LedgerError> {
        if self.num_in_flight() >= MAX_IN_FLIGHT {
            return Err(LedgerError::Unreported(self.oldest));
        }
        self.is_open = true;
        self.last = Some((width, digest));
        self.history = self.history.and(digest.0);
        Ok(self.next)
    }

    fn end(&mut self, closed: bool) -> Result<Epoch, LedgerError> {
        if !self.is_open {
            return Err(LedgerError::NothingOpen(self.next));
        }
        let (epoch, bit) = (self.next, 1 << (self.next.0 % MAX_IN_FLIGHT));
        self.closed = if closed { self.closed | bit } else { self.closed & !bit };
        self.is_open = false;
        self.next = epoch.next();
        Ok(epoch)
    }
}
