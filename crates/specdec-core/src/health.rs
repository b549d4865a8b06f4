//! A rank's health buffer: whether it failed, and what each workgroup recorded first.

use std::mem::size_of;

use crate::abi::{FailureReason, FailureRecord, Stage, HEALTH_HEADER_BYTES, NUM_STAGES};
use crate::ids::{Cta, Rank};

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

impl Failure {
    /// Sorts the nearest to the cause first: a rank that gave up of itself before those that only saw it, and an earlier
    /// stage before those that wait for it. (Waits behind it may have begun, and ended, sooner.)
    pub fn distance_from_cause(&self) -> (bool, u32, u32, u32) {
        let FailureRecord { reason, layer, stage, clock, .. } = self.record;
        (reason == FailureReason::Poison as u32, layer, stage, clock)
    }
}

/// Bytes of a rank's health buffer: the header, then a record per workgroup.
pub fn bytes(grid: u32) -> u64 {
    u64::from(HEALTH_HEADER_BYTES) + u64::from(grid) * size_of::<FailureRecord>() as u64
}

/// What the workgroups of `rank` recorded in its health buffer; nothing unless the rank has failed.
pub fn failures(rank: Rank, bytes: &[u8]) -> Vec<Failure> {
    let header = HEALTH_HEADER_BYTES as usize;
    if bytes.len() < header || bytes[..4] == [0; 4] {
        return Vec::new();
    }
    let records = bytes[header..].chunks(size_of::<FailureRecord>()).enumerate();
    records
        .filter_map(|(cta, record)| {
            Some(Failure { rank, cta: Cta(cta as u16), record: FailureRecord::from_bytes(record)? })
        })
        .collect()
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
        let at = HEALTH_HEADER_BYTES as usize + 32;
        health[at..at + 32].copy_from_slice(&record(FailureReason::Timeout, Stage::Up, 7).to_bytes());
        assert_eq!(failures(Rank(1), &health), []);
        health[0] = 1;
        let found = failures(Rank(1), &health);
        assert_eq!(found.iter().map(|f| (f.rank, f.cta, f.record.clock)).collect::<Vec<_>>(), [(Rank(1), Cta(1), 7)]);
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
