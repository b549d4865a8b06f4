//! One sentence for the person who must act, and everything behind it for the one who looks closer.

use std::fmt::Write as _;

use serde::Serialize;

use super::cause::{cause, last_seen, steps_between, Cause};
use super::{stage_name, Failure, Reason, WaitPlace};
use crate::geometry::Shard;
use crate::ids::Rank;
use crate::replay::{Divergence, LedgerError, RankSet};
use crate::tag::Tag;

/// Everything known about a failed step.
#[derive(Clone, Copy, Debug)]
pub struct Incident<'a> {
    /// The shard that the ranks run.
    pub shard: &'a Shard,
    /// Every rank's records that could be read.
    pub failures: &'a [Failure],
    /// Ranks whose process has ended.
    pub missing: RankSet,
    /// Ranks whose alarm word is set.
    pub alarms: RankSet,
    /// How long a kernel waits, in seconds.
    pub timeout_seconds: f64,
    /// What the ledgers' vote came to.
    pub verdict: Option<Divergence>,
}

/// What happened, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// The rank that brought it about, if one did.
    pub culprit: Option<Rank>,
    /// What happened, in one sentence without a full stop.
    pub sentence: String,
    /// What to do about it.
    pub hint: String,
    /// One line for each record, the nearest to the cause first.
    pub details: Vec<String>,
}

const RESTART: &str = "no result of this step may be used; restart the engine";

/// The one rule that says which rank is to blame, and how it is put.
pub fn diagnose(incident: &Incident) -> Diagnosis {
    let mut records = incident.failures.to_vec();
    records.sort_by_key(Failure::distance_from_cause);
    let (culprit, sentence, hint) = verdict(incident);
    Diagnosis { culprit, sentence, hint, details: records.iter().map(Failure::to_string).collect() }
}

fn verdict(incident: &Incident) -> (Option<Rank>, String, String) {
    let missing = incident.missing;
    let found = cause(incident.failures);
    if let Some(culprit) = missing.first() {
        let whose = if missing.len() == 1 { "process" } else { "processes" };
        let sentence = format!("the {whose} of {missing} ended{}", waits_for(incident, culprit));
        return (
            Some(culprit),
            sentence,
            format!("look at the log of {culprit} and the kernel's (out of memory, GPU reset); {RESTART}"),
        );
    }
    // An error that only repeats what the device recorded says less than the record, and so does silence.
    let echoes = |divergence: &Divergence| {
        matches!(
            divergence,
            Divergence::Missing(_)
                | Divergence::Refused { error: LedgerError::GaveUp { .. } | LedgerError::Stopped, .. }
        )
    };
    match (found, incident.verdict) {
        (Cause::Check(failure), _) => check(&failure),
        (_, Some(divergence)) if !echoes(&divergence) || found == Cause::Unknown => {
            let culprit = divergence.suspects().first();
            let waits = culprit.map_or_else(String::new, |culprit| waits_for(incident, culprit));
            (culprit, format!("{divergence}{waits}"), divergence.hint().into())
        }
        (Cause::Late { culprit, wait }, _) => late(incident, culprit, &wait),
        (Cause::Seen { culprit, .. }, divergence) => {
            let (how, where_to_look) = match divergence {
                Some(Divergence::Missing(ranks)) if ranks.contains(culprit) => ("gave up and hangs", "log and GPU"),
                _ => ("failed and left no record", "log"),
            };
            let sentence = format!("{culprit} {how}{}", waits_for(incident, culprit));
            (Some(culprit), sentence, format!("look at the {where_to_look} of {culprit}; {RESTART}"))
        }
        (Cause::Asked(failure), _) => {
            let at = where_of(&failure);
            let sentence = format!("the host asked every rank to give up, {} did so {at}", failure.rank);
            (
                None,
                sentence,
                "the process was told to end, or lost another rank: the first error in the logs says which".into(),
            )
        }
        (Cause::Unknown, _) => match incident.alarms.first() {
            Some(culprit) => {
                (Some(culprit), format!("{} raised the alarm and left no record", incident.alarms), RESTART.into())
            }
            None => (None, "a rank failed without a record".into(), RESTART.into()),
        },
    }
}

/// A check that failed is its own cause.
fn check(failure: &Failure) -> (Option<Rank>, String, String) {
    let Failure { rank, record, .. } = failure;
    let at = where_of(failure);
    let (sentence, hint) = match failure.reason() {
        Reason::Metadata => (
            format!(
                "{rank} was given a state slot or accepted count of {} for request {}, which is out of range, {at}",
                record.seen.cast_signed(),
                record.offset
            ),
            "vLLM's metadata is wrong on that rank: keep the log; decode_backend=auto runs vLLM's decode",
        ),
        Reason::StaleMetadata => (
            format!("{rank} ran step {} on the metadata of step {}, {at}", record.wanted, record.seen),
            "a graph replay read stale memory: see `kimi-k3-specdec doctor` for ROCm versions known to do so",
        ),
        Reason::Busy => (
            format!("{rank} was launched while another launch of it was still running, {at}"),
            "run all steps of a rank on one stream",
        ),
        Reason::Corrupt => (
            format!("{failure}: peer memory does not hold what was stored"),
            "peer memory is cached or mapped to another GPU: `kimi-k3-specdec doctor` knows the ROCm versions that do so",
        ),
        _ => (failure.to_string(), "the kernels are newer than this program: install both from one package"),
    };
    (Some(*rank), sentence, format!("{hint}; {RESTART}"))
}

/// A rank that did not store what others waited for.
fn late(incident: &Incident, culprit: Rank, wait: &Failure) -> (Option<Rank>, String, String) {
    let own = wait.rank == culprit;
    let lively = incident.failures.iter().any(|f| f.rank == culprit);
    let what = if own || !lively { "is stuck or late" } else { "or the link from it is stuck" };
    let sentence = format!("{culprit} {what}{}", waits_for(incident, culprit));
    let look = if own {
        format!(
            "look at the GPU of {culprit}: a workgroup of it never ran or never ended (other kernels on the device?)"
        )
    } else if lively {
        format!("look at {culprit}'s GPU and its links to {}", wait.rank)
    } else {
        format!("look at the log and GPU of {culprit}: it launched nothing in time")
    };
    (Some(culprit), sentence, format!("{look}; {RESTART}"))
}

/// `: ranks 0 and 1 waited 3.0 s for ..., where it was last seen ...`, or nothing if nobody waited for the rank.
fn waits_for(incident: &Incident, culprit: Rank) -> String {
    let waits = || incident.failures.iter().filter(|f| f.waited_for() == Some(culprit));
    let Some(first) = waits().min_by_key(|f| f.distance_from_cause()) else { return String::new() };
    let ranks: RankSet = waits().map(|f| f.rank).collect();
    let wanted = Tag(first.record.wanted);
    let place = WaitPlace::at(incident.shard, first.record.stage, first.record.offset);
    let what = place.map_or_else(|| format!("byte {:#x}", first.record.offset), |place| place.to_string());
    let mut text = format!(": {ranks} waited ");
    // Writing to a `String` cannot fail.
    if first.reason() == Reason::Timeout {
        let _ = write!(text, "{:.1} s ", incident.timeout_seconds);
    }
    let _ = write!(text, "for its {what}, {}, where it was ", where_of(first));
    match last_seen(incident.failures, culprit, wanted) {
        None => text.push_str("never seen"),
        Some(tag) => {
            let layer = tag.layer().map_or(0, |layer| layer.0);
            let _ = match steps_between(tag, wanted) {
                0 => write!(text, "last seen at layer {layer} of the same step"),
                steps => write!(
                    text,
                    "last seen {steps} {} earlier, at layer {layer}",
                    if steps == 1 { "step" } else { "steps" }
                ),
            };
        }
    }
    text
}

/// The step is as tags have it: modulo their cycle.
fn where_of(failure: &Failure) -> String {
    let at = format!("at layer {}, stage {}", failure.record.layer, stage_name(failure.record.stage));
    match failure.waited_for() {
        Some(_) => format!("{at} of step {}", Tag(failure.record.wanted).epoch()),
        None => at,
    }
}
