//! What a failed step leaves behind, and what it means: records, alarm words and the ledgers' verdict become one
//! sentence that names the culprit (spec: DESIGN "Waits give up", field.md "Dying well").

mod cause;
mod diagnosis;
mod place;
mod records;

pub use diagnosis::{diagnose, Diagnosis, Incident};
pub use place::WaitPlace;
pub use records::{alarms, bytes, failures, first_failure, stage_name, Failure, Reason};
