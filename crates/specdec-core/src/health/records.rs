//! A rank's health buffer: whether it failed, and what each workgroup recorded first.

use std::fmt;
use std::mem::size_of;

use crate::abi::{FailureReason, FailureRecord, Stage, HEALTH_HEADER_BYTES, MAX_RANKS, NUM_STAGES, WAVES};
use crate::ids::{Cta, Rank};
use crate::replay::RankSet;

/// One workgroup's failure, with where it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Rank that recorded it.
    pub rank: Rank,
    /// Workgroup.
    pub cta: Cta,
    /// What it recorded.
    pub record: FailureRecord,
}

/// Why a workgroup gave up, by number, so that records of newer kernels can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The time-out passed.
    Timeout,
    /// The producer's rank had failed.
    Poison,
    /// The host asked to give up.
    Abort,
    /// A state slot or an accepted count is out of range.
    Metadata,
    /// The metadata's step number is not the step's.
    StaleMetadata,
    /// Another launch of the rank was still running.
    Busy,
    /// A pair held another payload than its source had stored under its tag.
    Corrupt,
    /// A number that this version does not know.
    Unknown(u32),
}

impl Reason {
    const fn of(number: u32) -> Self {
        const TIMEOUT: u32 = FailureReason::Timeout as u32;
        const POISON: u32 = FailureReason::Poison as u32;
        const ABORT: u32 = FailureReason::Abort as u32;
        const METADATA: u32 = FailureReason::Metadata as u32;
        const STALE_METADATA: u32 = FailureReason::StaleMetadata as u32;
        const BUSY: u32 = FailureReason::Busy as u32;
        const CORRUPT: u32 = FailureReason::Corrupt as u32;
        match number {
            TIMEOUT => Self::Timeout,
            POISON => Self::Poison,
            ABORT => Self::Abort,
            METADATA => Self::Metadata,
            STALE_METADATA => Self::StaleMetadata,
            BUSY => Self::Busy,
            CORRUPT => Self::Corrupt,
            other => Self::Unknown(other),
        }
    }

    /// How far it is from a cause: a check that failed is one, a wait in vain has one somewhere, and the others only
    /// follow.
    const fn distance_from_cause(self) -> u32 {
        match self {
            Self::Metadata | Self::StaleMetadata | Self::Busy | Self::Corrupt | Self::Unknown(_) => 0,
            Self::Timeout => 1,
            Self::Abort => 2,
            Self::Poison => 3,
        }
    }

    /// Whether it is a cause of its own, which no other rank brought about.
    pub const fn is_cause(self) -> bool {
        self.distance_from_cause() == 0
    }
}

impl Failure {
    /// Why.
    pub const fn reason(&self) -> Reason {
        Reason::of(self.record.reason)
    }

    /// The rank that the workgroup waited for, if it waited.
    pub const fn waited_for(&self) -> Option<Rank> {
        match self.reason() {
            Reason::Timeout | Reason::Poison | Reason::Abort => Some(Rank(self.record.source as u8)),
            _ => None,
        }
    }

    /// Sorts the nearest to the cause first: a rank that gave up of itself before those that only saw it, and an earlier
    /// stage before those that wait for it. (Waits behind it may have begun, and ended, sooner.)
    pub const fn distance_from_cause(&self) -> (u32, u32, u32, u32) {
        let FailureRecord { layer, stage, clock, .. } = self.record;
        (self.reason().distance_from_cause(), layer, stage, clock)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, cta, record } = self;
        let FailureRecord { stage, layer, offset, wanted, seen, source, .. } = record;
        write!(f, "{rank}, layer {layer}, stage {}, {cta} ", stage_name(*stage))?;
        match self.reason() {
            Reason::Timeout => {
                write!(f, "waited in vain for rank {source} (tag {wanted:#x}, saw {seen:#x}, byte {offset:#x})")
            }
            Reason::Poison => write!(f, "saw that rank {source} had failed"),
            Reason::Abort => f.write_str("was asked to give up"),
            Reason::Metadata => {
                let value = seen.cast_signed();
                write!(f, "request {offset}: state slot or accepted count {value} is out of range")
            }
            Reason::StaleMetadata => write!(f, "read metadata of step {seen} in step {wanted}"),
            Reason::Busy => f.write_str("found another launch of its rank still running"),
            Reason::Corrupt => {
                write!(f, "read {seen:#x} where rank {source} had stored {wanted:#x} (byte {offset:#x})")
            }
            Reason::Unknown(reason) => {
                write!(
                    f,
                    "failed for reason {reason}, which this version does not know (wanted {wanted:#x}, saw {seen:#x})"
                )
            }
        }
    }
}

/// Bytes of a rank's health buffer: the header, then a record per wave.
pub fn bytes(grid: u32) -> u64 {
    u64::from(HEALTH_HEADER_BYTES) + u64::from(grid * WAVES) * size_of::<FailureRecord>() as u64
}

/// What the workgroups of `rank` recorded in its health buffer; nothing unless the rank has failed.
pub fn failures(rank: Rank, bytes: &[u8]) -> Vec<Failure> {
    recorded(rank, bytes).collect()
}

fn recorded(rank: Rank, bytes: &[u8]) -> impl Iterator<Item = Failure> + '_ {
    let has_failed = bytes.iter().take(size_of::<u32>()).any(|byte| *byte != 0);
    let records = bytes.get(HEALTH_HEADER_BYTES as usize..).filter(|_| has_failed).unwrap_or_default();
    let records = records.chunks(size_of::<FailureRecord>()).enumerate();
    records.filter_map(move |(wave, record)| {
        Some(Failure { rank, cta: Cta((wave / WAVES as usize) as u16), record: FailureRecord::from_bytes(record)? })
    })
}

/// Of those, the one nearest to the cause; allocates nothing.
pub fn first_failure(rank: Rank, bytes: &[u8]) -> Option<Failure> {
    recorded(rank, bytes).min_by_key(Failure::distance_from_cause)
}

/// The ranks whose alarm word is set in a peer buffer's head.
pub fn alarms(head: &[u8]) -> RankSet {
    let words = head.chunks_exact(size_of::<u32>()).take(MAX_RANKS as usize);
    (0..).map(Rank).zip(words).filter(|(_, word)| word.iter().any(|byte| *byte != 0)).map(|(rank, _)| rank).collect()
}

/// A stage's name in reports.
pub fn stage_name(stage: u32) -> &'static str {
    const NAMES: [&str; NUM_STAGES as usize] = [
        "attention_dots",
        "attention_mix",
        "in_proj",
        "kda",
        "o_proj",
        "mlp_dots",
        "mlp_mix",
        "moe_in",
        "route",
        "expert_up",
        "expert_down",
        "shared_down",
        "latent_norm",
        "up",
        "output",
    ];
    NAMES.get(stage as usize).copied().unwrap_or("unknown stage")
}

// The names above follow the enum.
const _: () = assert!(Stage::Output as u32 == NUM_STAGES - 1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::Encode;

    fn record(reason: FailureReason, stage: Stage, clock: u32) -> FailureRecord {
        FailureRecord { reason: reason as u32, stage: stage as u32, clock, ..FailureRecord::default() }
    }

    #[test]
    fn records_are_read_only_from_a_rank_that_failed() {
        let mut health = vec![0; bytes(3) as usize];
        let at = HEALTH_HEADER_BYTES as usize + 32 * WAVES as usize + 64;
        health[at..at + 32].copy_from_slice(&record(FailureReason::Timeout, Stage::Up, 7).to_bytes());
        assert_eq!(failures(Rank(1), &health), []);
        health[0] = 1;
        let found = failures(Rank(1), &health);
        assert_eq!(found.iter().map(|f| (f.rank, f.cta, f.record.clock)).collect::<Vec<_>>(), [(Rank(1), Cta(1), 7)]);
        let at = at + 32 * WAVES as usize;
        health[at..at + 32].copy_from_slice(&record(FailureReason::Timeout, Stage::Kda, 9).to_bytes());
        assert_eq!(first_failure(Rank(1), &health).map(|f| f.cta), Some(Cta(2)), "an earlier stage");
        assert_eq!((first_failure(Rank(1), &health[..3]), failures(Rank(1), &health[..64])), (None, Vec::new()));
    }

    #[test]
    fn alarm_words_name_their_ranks() {
        let mut head = vec![0; 256];
        assert!(alarms(&head).is_empty());
        (head[4], head[4 * 7 + 3], head[4 * 8]) = (1, 1, 1);
        assert_eq!(alarms(&head).to_string(), "ranks 1 and 7", "what lies behind the words is none");
    }

    #[test]
    fn every_number_is_a_reason_in_words() {
        let words = |reason| {
            let record = FailureRecord { reason, wanted: 41, seen: 40, ..FailureRecord::default() };
            Failure { rank: Rank(2), cta: Cta(7), record }.to_string()
        };
        assert_eq!(words(5), "rank 2, layer 0, stage attention_dots, CTA 7 read metadata of step 40 in step 41");
        assert!(words(6).ends_with("CTA 7 found another launch of its rank still running"), "{}", words(6));
        assert!(words(99).contains("CTA 7 failed for reason 99, which this version does not know"), "{}", words(99));
        let known: std::collections::BTreeSet<String> = (1..=7).map(words).collect();
        assert_eq!(known.len(), 7);
    }

    #[test]
    fn the_cause_comes_before_what_followed() {
        let failure = |record| Failure { rank: Rank(0), cta: Cta(0), record };
        let mut found = [
            failure(record(FailureReason::Poison, Stage::AttentionDots, 1)),
            failure(record(FailureReason::Timeout, Stage::Up, 2)),
            failure(record(FailureReason::Timeout, Stage::Kda, 9)),
        ];
        found.sort_by_key(Failure::distance_from_cause);
        assert_eq!(found.map(|f| f.record.clock), [9, 2, 1]);
    }
}
