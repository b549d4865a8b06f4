//! The replay ledger: what each step is expected to do, against what the device reports one step later (spec: DESIGN
//! "Graphs").
//!
//! Under FULL graphs nobody plans a step: the plan, every address and the step's end are baked in at capture. So each
//! rank keeps books. A binding of the KV caches has a generation; a captured graph remembers the one it was captured
//! over; each step consumes one epoch, and the device must say so. Ranks exchange their books ([`RankReport`]) and fold
//! them to the same verdict at the same step. After start-up the books allocate nothing: what a step passes is `Copy`.

mod binding;
mod error;
mod ledger;
mod ranks;
mod vote;

pub use binding::{Fingerprint, KvGeneration, Pointers};
pub use error::{LedgerError, ERROR_WORDS};
pub use ledger::{Built, DeviceReport, GraphId, Ledger, MAX_IN_FLIGHT};
pub use ranks::{PerRank, RankSet};
pub use vote::{fold, Divergence, RankReport, REPORT_BYTES};
