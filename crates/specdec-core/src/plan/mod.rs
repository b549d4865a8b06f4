//! What a step runs: facts in, vLLM's own decode with a reason or our launches out (spec/runtime.md §3).
//!
//! Everything is worked out when the [`Planner`] is built. A step only compares numbers and borrows, so that it
//! allocates nothing: every type that a step passes is `Copy`.

mod counters;
mod facts;
mod layer_set;
mod planner;
mod reason;
mod runs;

pub use counters::StepCounters;
pub use facts::{GraphMode, KvBinding, Metadata, StepFacts, VerifyCounts};
pub use layer_set::LayerSet;
pub use planner::{LayerAction, PlanDigest, PlanError, Planner, PlannerError, Specialized, StepPlan};
pub use reason::StockReason;
pub use runs::{runs, runs_ending_after, runs_of, Run};
