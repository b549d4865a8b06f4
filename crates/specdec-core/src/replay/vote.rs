//! Every rank's books side by side: the same verdict on every rank, at the same step.

use serde::Serialize;
use thiserror::Error;

use crate::ids::{Rank, Rows};
use crate::plan::PlanDigest;
use crate::replay::{KvGeneration, LedgerError, PerRank, RankSet, ERROR_WORDS};
use crate::tag::Epoch;

const REPORT_WORDS: usize = 8 + ERROR_WORDS;
/// Bytes of a rank's report.
pub const REPORT_BYTES: usize = size_of::<[u32; REPORT_WORDS]>();

/// One rank's books at a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RankReport {
    /// The rank.
    pub rank: Rank,
    /// The epoch of its next step.
    pub next: Epoch,
    /// Its binding of the KV caches.
    pub generation: KvGeneration,
    /// Rows of its last step; 0 before the first.
    pub width: Rows,
    /// Plan of its last step.
    pub last: PlanDigest,
    /// Plans of all its steps, in order.
    pub history: PlanDigest,
    /// The first error of its ledger.
    pub error: Option<LedgerError>,
}

impl RankReport {
    /// The report as other ranks are shown it.
    pub fn to_bytes(self) -> [u8; REPORT_BYTES] {
        let mut bytes = [0; REPORT_BYTES];
        for (at, word) in bytes.chunks_exact_mut(size_of::<u32>()).zip(self.to_words()) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What another rank shows.
    pub fn from_bytes(bytes: &[u8; REPORT_BYTES]) -> Self {
        let mut words = [0; REPORT_WORDS];
        for (word, at) in words.iter_mut().zip(bytes.chunks_exact(size_of::<u32>())) {
            *word = u32::from_le_bytes([at[0], at[1], at[2], at[3]]);
        }
        Self::from_words(words)
    }

    fn to_words(self) -> [u32; REPORT_WORDS] {
        let [a, b, c, d] = self.error.map_or([0; ERROR_WORDS], LedgerError::to_words);
        let halves = |digest: PlanDigest| (digest.0 as u32, (digest.0 >> 32) as u32);
        let ((last, last_high), (history, history_high)) = (halves(self.last), halves(self.history));
        let (rank, width) = (u32::from(self.rank.0), u32::from(self.width.0));
        [rank, self.next.0, self.generation.0, width, last, last_high, history, history_high, a, b, c, d]
    }

    const fn from_words(words: [u32; REPORT_WORDS]) -> Self {
        let [rank, next, generation, width, last, last_high, history, history_high, a, b, c, d] = words;
        Self {
            rank: Rank(rank as u8),
            next: Epoch(next),
            generation: KvGeneration(generation),
            width: Rows(width as u8),
            last: digest(last, last_high),
            history: digest(history, history_high),
            error: LedgerError::from_words([a, b, c, d]),
        }
    }
}

const fn digest(low: u32, high: u32) -> PlanDigest {
    PlanDigest((high as u64) << 32 | low as u64)
}

/// Why the ranks must stop together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize)]
pub enum Divergence {
    /// Ranks without books.
    #[error("{0} gave no books for the last step")]
    Missing(RankSet),
    /// A rank's own books do not add up.
    #[error("{rank}: {error}")]
    Refused {
        /// The lowest rank whose error is not the echo of another's.
        rank: Rank,
        /// Its error.
        error: LedgerError,
        /// Every rank with an error.
        ranks: RankSet,
    },
    /// Ranks have run different numbers of steps.
    #[error("the ranks are not at the same step: {0}")]
    Epochs(PerRank),
    /// Ranks have bound KV caches different numbers of times.
    #[error("the ranks are not at the same KV binding: {0}")]
    Bindings(PerRank),
    /// Ranks ran steps of different widths.
    #[error("the ranks ran steps of different row counts: {0}")]
    Widths(PerRank),
    /// Ranks ran the same rows by different launches.
    #[error("the ranks ran different launches, by digest: {0}")]
    Plans(PerRank),
    /// Ranks' last steps are equal, earlier ones were not.
    #[error("the ranks ran different plans in an earlier step, by digest: {0}")]
    Histories(PerRank),
}

impl Divergence {
    /// The ranks to look at first.
    pub fn suspects(&self) -> RankSet {
        match self {
            Self::Missing(ranks) => *ranks,
            Self::Refused { rank, .. } => RankSet::default().with(*rank),
            Self::Epochs(values)
            | Self::Bindings(values)
            | Self::Widths(values)
            | Self::Plans(values)
            | Self::Histories(values) => values.minority(),
        }
    }

    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Missing(_) => "look at that rank's log and GPU: it hangs or is far behind; restart the engine",
            Self::Refused { error, .. } => error.hint(),
            _ => {
                "all ranks must see the same batches in the same order; look at the logs of the rank that differs, and \
                  restart the engine"
            }
        }
    }
}

/// Compares the books of all ranks `0..ranks`. The order of the reports does not matter, so every rank that folds the
/// same ones comes to the same verdict.
pub fn fold(reports: &[RankReport], ranks: u32) -> Result<(), Divergence> {
    let heard: RankSet = reports.iter().map(|report| report.rank).collect();
    let missing: RankSet = (0..ranks as u8).map(Rank).filter(|rank| !heard.contains(*rank)).collect();
    if !missing.is_empty() {
        return Err(Divergence::Missing(missing));
    }
    // `Stopped` only says that something was wrong before, here or elsewhere: it is nobody's own.
    let errors = || reports.iter().filter_map(|report| Some((report.rank, report.error?)));
    let own = errors().min_by_key(|(rank, error)| (*error == LedgerError::Stopped, *rank));
    if let Some((rank, error)) = own {
        return Err(Divergence::Refused { rank, error, ranks: errors().map(|(rank, _)| rank).collect() });
    }
    for (value, divergence) in COMPARED {
        let mut values = PerRank::default();
        for report in reports {
            values.set(report.rank, value(report));
        }
        if !values.agree() {
            return Err(divergence(values));
        }
    }
    Ok(())
}

/// A value, and what it means if ranks differ in it.
type Compared = (fn(&RankReport) -> u64, fn(PerRank) -> Divergence);

/// What all ranks must have in common.
const COMPARED: [Compared; 5] = [
    (|report| report.next.0 as u64, Divergence::Epochs),
    (|report| report.generation.0 as u64, Divergence::Bindings),
    (|report| report.width.0 as u64, Divergence::Widths),
    (|report| report.last.0, Divergence::Plans),
    (|report| report.history.0, Divergence::Histories),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const AGREED: RankReport = RankReport {
        rank: Rank(0),
        next: Epoch(42),
        generation: KvGeneration(2),
        width: Rows(8),
        last: PlanDigest(5),
        history: PlanDigest(6),
        error: None,
    };

    fn reports(change: impl Fn(&mut RankReport)) -> Vec<RankReport> {
        let report = |rank| RankReport { rank: Rank(rank), ..AGREED };
        let mut reports: Vec<_> = (0..8).map(report).collect();
        change(&mut reports[3]);
        reports
    }

    fn verdict(change: impl Fn(&mut RankReport)) -> (String, RankSet) {
        let found = fold(&reports(change), 8);
        found.map_or_else(|found| (found.to_string(), found.suspects()), |()| (String::new(), RankSet::default()))
    }

    #[test]
    fn a_rank_that_differs_is_named_with_its_value_and_the_others() {
        let three = RankSet::default().with(Rank(3));
        let others = "ranks 0, 1, 2, 4, 5, 6 and 7";
        assert_eq!(fold(&reports(|_| {}), 8), Ok(()));
        let differs =
            |text: &str, own: &str, common: &str| (format!("{text}: {common} on {others}; {own} on rank 3"), three);
        assert_eq!(verdict(|r| r.next = Epoch(41)), differs("the ranks are not at the same step", "41", "42"));
        assert_eq!(
            verdict(|r| r.generation = KvGeneration(1)),
            differs("the ranks are not at the same KV binding", "1", "2")
        );
        assert_eq!(verdict(|r| r.width = Rows(16)), differs("the ranks ran steps of different row counts", "16", "8"));
        assert_eq!(
            verdict(|r| r.last = PlanDigest(9)),
            differs("the ranks ran different launches, by digest", "9", "5")
        );
        assert_eq!(
            verdict(|r| r.history = PlanDigest(9)),
            differs("the ranks ran different plans in an earlier step, by digest", "9", "6")
        );
        assert_eq!(fold(&reports(|_| {})[..7], 8), Err(Divergence::Missing(RankSet::default().with(Rank(7)))));
    }

    #[test]
    fn a_ranks_own_error_comes_before_its_echoes() {
        let mut reports = reports(|r| r.error = Some(LedgerError::StaleMetadata { epoch: Epoch(41), seen: 40 }));
        reports[1].error = Some(LedgerError::Stopped);
        let found = fold(&reports, 8).err().map(|d| d.to_string());
        assert_eq!(found.as_deref(), Some("rank 3: step 41 ran on the metadata of step 40"));
    }

    proptest! {
        #[test]
        fn every_rank_comes_to_the_same_verdict(
            values in prop::collection::vec((0u32..3, 0u32..2, 0u8..2, 0u64..2, 0u32..16), 8), turn in 0usize..8,
        ) {
            let mut reports: Vec<_> = (0..).zip(&values).map(|(rank, (next, generation, width, last, code))| RankReport {
                rank: Rank(rank),
                next: Epoch(*next),
                generation: KvGeneration(*generation),
                width: Rows(*width),
                last: PlanDigest(*last),
                history: PlanDigest(*last << 40),
                error: LedgerError::from_words([code.saturating_sub(12), 1, 2, 3]),
            }).collect();
            let verdict = fold(&reports, 8);
            let received: Vec<_> = reports.iter().map(|r| RankReport::from_bytes(&r.to_bytes())).collect();
            prop_assert_eq!(&received, &reports);
            reports.rotate_left(turn);
            prop_assert_eq!(fold(&reports, 8), verdict);
            let same = |v: &(u32, u32, u8, u64, u32)| v.4 <= 12 && (v.0, v.1, v.2, v.3) == (values[0].0, values[0].1, values[0].2, values[0].3);
            prop_assert_eq!(verdict.is_ok(), values.iter().all(same));
        }
    }
}
