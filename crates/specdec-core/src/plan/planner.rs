//! The planner: everything that a step may need, worked out once.

use serde::Serialize;
use thiserror::Error;

use crate::abi::{LayerKind, MAX_REQUESTS, MAX_ROWS};
use crate::ids::{Layer, Rows};
use crate::plan::{runs_ending_after, GraphMode, KvBinding, LayerSet, Metadata, Run, StepFacts, StockReason};
use crate::replay::KvGeneration;

/// A plan in 64 bits: equal for equal shapes and runs, so that ranks and graphs can be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct PlanDigest(pub u64);

impl PlanDigest {
    /// The digest of one value more.
    #[must_use]
    pub const fn and(self, value: u64) -> Self {
        // Multiplying by an odd number and folding the high half down spreads each bit over all of them.
        let mixed = (self.0 ^ value.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        Self(mixed ^ (mixed >> 32))
    }

    fn of(width: Rows, rows_per_request: u32, runs: &[Run]) -> Self {
        let shape = Self::default().and(u64::from(width.0)).and(u64::from(rows_per_request));
        runs.iter().fold(shape, |digest, run| digest.and(u64::from(run.first.0) << 8 | u64::from(run.last.0)))
    }
}

/// Why a step can run neither way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// vLLM gave the layers other caches and did not say so.
    #[error(
        "Kimi-K3 specialized decode: the KV cache was re-bound without prepare_kv (ModelState.initialize_kv_cache)"
    )]
    KvRebound,
}

impl PlanError {
    /// What to do about it.
    pub const fn hint(self) -> &'static str {
        match self {
            Self::KvRebound => "call prepare_kv whenever vLLM initialises the KV cache, then capture the graphs again",
        }
    }
}

/// Why no planner can be built.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlannerError {
    /// Nothing to serve.
    #[error("no layer is served")]
    NoLayers,
    /// The layers are not in the order in which the model runs them.
    #[error("{0} does not come behind the layer before it")]
    Order(Layer),
    /// A request verifies too few or too many rows.
    #[error("{0} rows a request: a verify step has 2 to {MAX_ROWS}")]
    RowsPerRequest(u32),
    /// A width that no step can have.
    #[error("{width} rows are not 1 to {MAX_REQUESTS} requests of {rows_per_request}, at most {MAX_ROWS} rows")]
    Width {
        /// The width.
        width: u32,
        /// Rows of a request.
        rows_per_request: u32,
    },
}

/// What the model's loop does at a layer of a specialised step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerAction {
    /// vLLM's own layer.
    Stock,
    /// Launches a run, in front of whose first layer vLLM may still have to run its attention.
    Launch {
        /// The run.
        run: Run,
        /// Whether it is the step's last launch, which ends the epoch.
        last_of_step: bool,
    },
    /// Nothing: the launch of an earlier layer holds this one.
    Inside,
}

#[derive(Clone, Debug)]
struct RunList {
    runs: Vec<Run>,
    actions: Vec<LayerAction>,
    /// By width - 1; zero where nothing is planned.
    digests: [PlanDigest; MAX_ROWS as usize],
}

impl RunList {
    fn new(read: LayerSet, kinds: &[(Layer, LayerKind)], widths: &[Rows], rows_per_request: u32) -> Self {
        let runs = runs_ending_after(read, kinds.iter().copied());
        let mut actions = vec![LayerAction::Stock; usize::from(u8::MAX) + 1];
        for (index, &run) in runs.iter().enumerate() {
            actions[usize::from(run.first.0)..=usize::from(run.last.0)].fill(LayerAction::Inside);
            let last_of_step = index + 1 == runs.len();
            actions[usize::from(run.first.0)] = LayerAction::Launch { run, last_of_step };
        }
        let mut digests = [PlanDigest::default(); MAX_ROWS as usize];
        for width in widths {
            digests[usize::from(width.0) - 1] = PlanDigest::of(*width, rows_per_request, &runs);
        }
        Self { runs, actions, digests }
    }
}

/// A step that our kernels run.
#[derive(Clone, Copy, Debug)]
pub struct Specialized<'a> {
    /// Token rows, padding included.
    pub width: Rows,
    /// Requests, padded ones included.
    pub requests: u32,
    /// Rows of each.
    pub rows_per_request: u32,
    /// The step's launches, in order.
    pub runs: &'a [Run],
    /// Binding of the KV caches that it runs over.
    pub generation: KvGeneration,
    /// The plan in 64 bits.
    pub digest: PlanDigest,
    actions: &'a [LayerAction],
}

impl Specialized<'_> {
    /// What the model's loop does at a layer.
    pub fn layer(&self, layer: Layer) -> LayerAction {
        self.actions.get(usize::from(layer.0)).copied().unwrap_or(LayerAction::Stock)
    }
}

/// How a step runs.
#[derive(Clone, Copy, Debug)]
pub enum StepPlan<'a> {
    /// As vLLM's own decode.
    Stock(StockReason),
    /// As our launches.
    Specialized(Specialized<'a>),
}

/// Plans steps. Built once; planning allocates nothing.
#[derive(Clone, Debug)]
pub struct Planner {
    rows_per_request: u32,
    /// Bit `width - 1`.
    widths: u32,
    prepared_for: LayerSet,
    prepared: RunList,
    /// A launch per layer: right whatever outputs are read.
    single: RunList,
}

impl Planner {
    /// A planner for served layers in order, steps of `widths` rows, and a drafter that reads the outputs of
    /// `outputs_read`. A step that asks for other outputs gets a launch per layer, which is slower and right.
    pub fn new(
        kinds: &[(Layer, LayerKind)],
        rows_per_request: u32,
        widths: &[Rows],
        outputs_read: LayerSet,
    ) -> Result<Self, PlannerError> {
        if kinds.is_empty() {
            return Err(PlannerError::NoLayers);
        }
        if let Some(pair) = kinds.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return Err(PlannerError::Order(pair[1].0));
        }
        if !(2..=MAX_ROWS).contains(&rows_per_request) {
            return Err(PlannerError::RowsPerRequest(rows_per_request));
        }
        let mut bits = 0;
        for width in widths.iter().map(|width| u32::from(width.0)) {
            let requests = width / rows_per_request;
            if width > MAX_ROWS || !(1..=MAX_REQUESTS).contains(&requests) || !width.is_multiple_of(rows_per_request) {
                return Err(PlannerError::Width { width, rows_per_request });
            }
            bits |= 1 << (width - 1);
        }
        let every: LayerSet = kinds.iter().map(|(layer, _)| *layer).collect();
        let list = |read| RunList::new(read, kinds, widths, rows_per_request);
        Ok(Self {
            rows_per_request,
            widths: bits,
            prepared_for: outputs_read,
            prepared: list(outputs_read),
            single: list(every),
        })
    }

    /// How a step runs: the first fact that speaks against our kernels decides.
    pub fn plan(&self, facts: &StepFacts) -> Result<StepPlan<'_>, PlanError> {
        let requests = match self.reason(facts) {
            Err(reason) => return Ok(StepPlan::Stock(reason)),
            Ok(requests) => requests,
        };
        let KvBinding::Bound(generation) = facts.kv else { return Err(PlanError::KvRebound) };
        let list = self.list(facts.outputs_read);
        let width = Rows(facts.width as u8);
        Ok(StepPlan::Specialized(Specialized {
            width,
            requests,
            rows_per_request: self.rows_per_request,
            runs: &list.runs,
            generation,
            digest: list.digests[usize::from(width.0) - 1],
            actions: &list.actions,
        }))
    }

    /// Requests of a step that our kernels can run.
    fn reason(&self, facts: &StepFacts) -> Result<u32, StockReason> {
        let unless = |ok: bool, reason| if ok { Ok(()) } else { Err(reason) };
        unless(!facts.has_intermediate_tensors, StockReason::IntermediateTensors)?;
        unless(facts.kv != KvBinding::Unbound, StockReason::NoKvCache)?;
        unless(facts.has_context, StockReason::NoContext)?;
        unless(facts.graph_mode != GraphMode::Piecewise, StockReason::PiecewiseGraph)?;
        unless(self.serves(facts.width), StockReason::Width)?;
        let counts = match facts.metadata {
            Metadata::NotADict => return Err(StockReason::NoMetadata),
            Metadata::NoFirstLayer => return Err(StockReason::NoFirstLayer),
            Metadata::NoSpecMasks => return Err(StockReason::NoSpecMasks),
            Metadata::Verify(counts) => counts,
        };
        unless(counts.num_prefills == 0, StockReason::Prefills)?;
        unless(counts.num_decodes == 0, StockReason::PlainDecodes)?;
        unless(counts.num_spec_decodes > 0, StockReason::NoSpecDecodes)?;
        unless(counts.uniform_rows == Some(counts.rows_per_request), StockReason::Ragged)?;
        let rows = u64::from(counts.num_spec_decodes) * u64::from(counts.rows_per_request);
        unless(rows == u64::from(facts.width), StockReason::RowsElsewhere)?;
        unless(counts.rows_per_request == self.rows_per_request, StockReason::OtherRowsPerRequest)?;
        Ok(counts.num_spec_decodes)
    }

    /// Whether steps of that many rows are planned.
    pub const fn serves(&self, width: u32) -> bool {
        width >= 1 && width <= MAX_ROWS && self.widths >> (width - 1) & 1 == 1
    }

    fn list(&self, outputs_read: LayerSet) -> &RunList {
        if outputs_read.is_subset_of(self.prepared_for) {
            &self.prepared
        } else {
            &self.single
        }
    }

    /// The launches of a step of which somebody reads these outputs.
    pub fn runs_reading(&self, outputs_read: LayerSet) -> &[Run] {
        &self.list(outputs_read).runs
    }

    /// The launches of a step in which nobody reads outputs that were not announced.
    pub fn runs(&self) -> &[Run] {
        &self.prepared.runs
    }
}
