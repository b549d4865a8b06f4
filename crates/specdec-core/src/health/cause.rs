//! Which rank brought a failed step about, and which record says so.

use super::{Failure, Reason};
use crate::abi::{POISON_TAG, TAG_EPOCHS};
use crate::ids::Rank;
use crate::replay::RankSet;
use crate::tag::Tag;

/// Why a step failed, as far as the records tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A check failed on a rank.
    Check(Failure),
    /// A rank did not store what another waited for.
    Late {
        /// The rank that should have stored.
        culprit: Rank,
        /// The wait nearest to it.
        wait: Failure,
    },
    /// Everybody gave up because the host asked.
    Asked(Failure),
    /// Ranks have seen the failure of one that left no record.
    Seen {
        /// That one.
        culprit: Rank,
        /// Who saw it first.
        wait: Failure,
    },
    /// No record at all.
    Unknown,
}

/// The cause, from every rank's records.
pub(super) fn cause(failures: &[Failure]) -> Cause {
    let with = |reason: fn(Reason) -> bool| failures.iter().filter(move |failure| reason(failure.reason()));
    let nearest = |reason| with(reason).min_by_key(|failure| position(failures, failure)).copied();
    if let Some(failure) = nearest(Reason::is_cause) {
        return Cause::Check(failure);
    }
    if let Some(first) = nearest(|reason| reason == Reason::Timeout) {
        let at_first = position(failures, &first);
        let culprit = blamed(failures, |f| f.reason() == Reason::Timeout && is_silent(failures, f.waited_for()))
            .or_else(|| blamed(failures, |f| f.reason() == Reason::Timeout && position(failures, f) == at_first));
        let waits_for = |f: &&Failure| f.reason() == Reason::Timeout && f.waited_for() == culprit;
        let wait = failures.iter().filter(waits_for).min_by_key(|f| position(failures, f)).copied();
        return Cause::Late { culprit: culprit.unwrap_or(first.rank), wait: wait.unwrap_or(first) };
    }
    let seen = nearest(|reason| reason == Reason::Poison);
    let silent = blamed(failures, |f| f.reason() == Reason::Poison && is_silent(failures, f.waited_for()));
    match (seen, silent, nearest(|reason| reason == Reason::Abort)) {
        (Some(wait), Some(culprit), None) => Cause::Seen { culprit, wait },
        (_, _, Some(asked)) => Cause::Asked(asked),
        (Some(wait), None, None) => Cause::Seen { culprit: wait.waited_for().unwrap_or(wait.rank), wait },
        (None, _, None) => Cause::Unknown,
    }
}

/// Step, layer and stage of a failure, comparable although epochs wrap: steps count from the first record's.
fn position(failures: &[Failure], failure: &Failure) -> (i32, u32, u32) {
    let origin = failures.iter().find(|f| f.waited_for().is_some());
    let steps = match (origin, failure.waited_for()) {
        (Some(origin), Some(_)) => steps_between(Tag(origin.record.wanted), Tag(failure.record.wanted)),
        _ => 0,
    };
    (steps, failure.record.layer, failure.record.stage)
}

/// Steps from one tag's epoch to another's, the short way round the cycle.
pub(super) fn steps_between(from: Tag, to: Tag) -> i32 {
    let bits = TAG_EPOCHS.trailing_zeros();
    let ahead = to.epoch().wrapping_sub(from.epoch());
    (ahead << (u32::BITS - bits)).cast_signed() >> (u32::BITS - bits)
}

/// Whether no record comes from a rank: it was not there, or too busy to give up.
fn is_silent(failures: &[Failure], rank: Option<Rank>) -> bool {
    rank.is_some_and(|rank| failures.iter().all(|failure| failure.rank != rank))
}

/// The rank that most ranks' waits name, the lowest of several.
fn blamed(failures: &[Failure], which: impl Fn(&Failure) -> bool) -> Option<Rank> {
    let blamers = |rank: Rank| {
        failures.iter().filter(|f| which(f) && f.waited_for() == Some(rank)).map(|f| f.rank).collect::<RankSet>().len()
    };
    let named: RankSet = failures.iter().filter(|f| which(f)).filter_map(Failure::waited_for).collect();
    named.iter().max_by_key(|rank| (blamers(*rank), std::cmp::Reverse(*rank)))
}

/// How far a rank is known to have come: the newest word of it that any wait has seen; else what it waited for itself.
pub(super) fn last_seen(failures: &[Failure], rank: Rank, wanted: Tag) -> Option<Tag> {
    let seen = failures.iter().filter(|f| f.waited_for() == Some(rank)).map(|f| f.record.seen);
    let reached = failures.iter().filter(|f| f.rank == rank && f.waited_for().is_some()).map(|f| f.record.wanted);
    let newest = |words: &mut dyn Iterator<Item = u32>| {
        let tags = words.filter(|word| *word != 0 && *word != POISON_TAG).map(Tag);
        tags.max_by_key(|tag| (steps_between(wanted, *tag), tag.layer()))
    };
    newest(&mut { seen }).or_else(|| newest(&mut { reached }))
}
