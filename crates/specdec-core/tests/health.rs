//! Failed steps as a person would tell them: who is to blame, where, and what to do.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use proptest::prelude::*;
use specdec_core::abi::{FailureReason, FailureRecord, Stage, MAX_ROWS, POISON_TAG, TAG_EPOCHS};
use specdec_core::geometry::{Shard, NANO};
use specdec_core::health::{diagnose, Diagnosis, Failure, Incident};
use specdec_core::ids::{Cta, Layer, Rank};
use specdec_core::layout::{Layout, Region};
use specdec_core::replay::{Divergence, LedgerError, PerRank, RankSet};
use specdec_core::tag::{Epoch, Tag};

const STALE_METADATA: u32 = 5;
const BUSY: u32 = 6;

fn shard() -> Shard {
    NANO.shard(2).unwrap()
}

fn ranks(ranks: &[u8]) -> RankSet {
    ranks.iter().copied().map(Rank).collect()
}

fn told(failures: &[Failure], change: impl FnOnce(&mut Incident)) -> Diagnosis {
    let shard = shard();
    let mut incident = Incident {
        shard: &shard,
        failures,
        missing: RankSet::default(),
        alarms: RankSet::default(),
        timeout_seconds: 3.0,
        verdict: None,
    };
    change(&mut incident);
    diagnose(&incident)
}

fn failure(rank: u8, reason: u32, stage: Stage, layer: u32) -> Failure {
    let record = FailureRecord { reason, stage: stage as u32, layer, ..FailureRecord::default() };
    Failure { rank: Rank(rank), cta: Cta(0), record }
}

/// A wait of `rank` for `source` that ended in `reason`, in step 41 at layer 3, having seen `seen`.
fn wait(rank: u8, source: u32, reason: FailureReason, stage: Stage, seen: Tag) -> Failure {
    let mut failure = failure(rank, reason as u32, stage, 3);
    let layout = Layout::new(&shard());
    let row_and_columns = (source * MAX_ROWS + 5) * NANO.hidden * 4 + 18 * 4;
    let place = match stage {
        Stage::MlpDots => layout.place(Region::AttentionOut).data as u32 + row_and_columns,
        Stage::Kda => layout.place(Region::Proj).flags.unwrap() as u32 + 4 * 6,
        _ => layout.place(Region::Output).data as u32 + row_and_columns,
    };
    failure.record.offset = place;
    failure.record.source = source;
    failure.record.wanted = Tag::new(Epoch(41), Layer(3)).0;
    failure.record.seen = seen.0;
    failure
}

fn tag(epoch: u32, layer: u8) -> Tag {
    Tag::new(Epoch(epoch), Layer(layer))
}

#[test]
fn a_rank_that_came_late_is_named_though_only_its_victims_recorded() {
    let failures = [
        wait(0, 1, FailureReason::Timeout, Stage::MlpDots, tag(41, 2)),
        wait(0, 1, FailureReason::Timeout, Stage::Output, tag(39, 3)),
        wait(0, 0, FailureReason::Timeout, Stage::Up, tag(41, 2)),
    ];
    let found = told(&failures, |_| {});
    assert_eq!(found.culprit, Some(Rank(1)));
    assert_eq!(
        found.sentence,
        "rank 1 is stuck or late: rank 0 waited 3.0 s for its attention_out of stage o_proj, row 5, columns 18 to 19, at \
         layer 3, stage mlp_dots of step 41, where it was last seen at layer 2 of the same step"
    );
    assert!(found.hint.starts_with("look at the log and GPU of rank 1"), "{}", found.hint);
    assert_eq!(found.details.len(), 3);
    assert!(
        found.details[0].starts_with("rank 0, layer 3, stage mlp_dots, CTA 0 waited in vain for rank 1 (tag 0x2904")
    );
}

#[test]
fn a_rank_whose_own_workgroup_is_stuck_is_named_with_the_stage_in_it() {
    let failures = [
        wait(0, 1, FailureReason::Timeout, Stage::MlpDots, tag(41, 2)),
        wait(1, 1, FailureReason::Timeout, Stage::Kda, tag(41, 2)),
        wait(1, 0, FailureReason::Poison, Stage::Output, Tag::POISON),
    ];
    let found = told(&failures, |_| {});
    assert_eq!(found.culprit, Some(Rank(1)));
    let expected =
        "rank 1 is stuck or late: ranks 0 and 1 waited 3.0 s for its proj of stage in_proj, workgroup at place 6, \
                    at layer 3, stage kda of step 41, where it was last seen at layer 2 of the same step";
    assert_eq!(found.sentence, expected);
    assert!(found.hint.contains("a workgroup of it never ran"), "{}", found.hint);
}

/// A wait names the lowest rank that it misses, so the one that most name may itself wait for the one that is not there.
#[test]
fn a_rank_without_records_is_blamed_before_one_that_waited_itself() {
    let failures = [
        wait(0, 2, FailureReason::Timeout, Stage::MlpDots, tag(41, 2)),
        wait(1, 2, FailureReason::Timeout, Stage::MlpDots, tag(41, 2)),
        wait(2, 3, FailureReason::Timeout, Stage::MlpDots, tag(41, 2)),
    ];
    assert_eq!(told(&failures, |_| {}).culprit, Some(Rank(3)));
}

#[test]
fn the_earliest_wait_counts_and_not_the_loudest() {
    let late = |rank| wait(rank, 2, FailureReason::Timeout, Stage::Output, tag(41, 2));
    let failures = [
        late(1),
        late(3),
        late(4),
        wait(2, 0, FailureReason::Timeout, Stage::MlpDots, tag(41, 2)),
        wait(0, 0, FailureReason::Timeout, Stage::Kda, tag(41, 2)),
    ];
    assert_eq!(told(&failures, |_| {}).culprit, Some(Rank(0)));
}

#[test]
fn a_lost_store_is_the_link_of_a_rank_that_lives() {
    let failures = [
        wait(0, 1, FailureReason::Timeout, Stage::MlpDots, Tag(0)),
        wait(1, 0, FailureReason::Poison, Stage::Output, Tag::POISON),
    ];
    let found = told(&failures, |_| {});
    assert_eq!(found.culprit, Some(Rank(1)));
    assert!(
        found.sentence.starts_with("rank 1 or the link from it is stuck: rank 0 waited 3.0 s for"),
        "{}",
        found.sentence
    );
    assert!(found.sentence.contains("where it was last seen at layer "), "it waited itself: {}", found.sentence);
    let silent = told(&failures[..1], |_| {});
    assert!(silent.sentence.ends_with("where it was never seen"), "{}", silent.sentence);
    assert!(found.hint.contains("its links to rank 0"), "{}", found.hint);
}

#[test]
fn a_dead_process_comes_before_everything_that_followed_from_it() {
    let failures = [
        wait(0, 1, FailureReason::Abort, Stage::MlpDots, tag(39, 3)),
        failure(0, FailureReason::Metadata as u32, Stage::Kda, 4),
    ];
    let found = told(&failures, |incident| incident.missing = ranks(&[1]));
    assert_eq!(found.culprit, Some(Rank(1)));
    assert_eq!(
        found.sentence,
        "the process of rank 1 ended: rank 0 waited for its attention_out of stage o_proj, row 5, columns 18 to 19, at layer \
         3, stage mlp_dots of step 41, where it was last seen 2 steps earlier, at layer 3"
    );
    let found = told(&[], |incident| incident.missing = ranks(&[0, 1]));
    assert_eq!((found.culprit, found.sentence.as_str()), (Some(Rank(0)), "the processes of ranks 0 and 1 ended"));
}

#[test]
fn silence_is_named_where_no_record_says_more() {
    let silent = |incident: &mut Incident| incident.verdict = Some(Divergence::Missing(ranks(&[1])));
    let found = told(&[], silent);
    assert_eq!((found.culprit, found.sentence.as_str()), (Some(Rank(1)), "rank 1 gave no books for the last step"));
    let found = told(&[wait(0, 1, FailureReason::Timeout, Stage::MlpDots, tag(41, 2))], silent);
    assert!(found.sentence.starts_with("rank 1 is stuck or late: rank 0 waited"), "{}", found.sentence);
    let found = told(&[wait(0, 1, FailureReason::Poison, Stage::MlpDots, tag(41, 2))], silent);
    assert!(found.sentence.starts_with("rank 1 gave up and hangs: rank 0 waited"), "{}", found.sentence);
}

#[test]
fn a_failed_check_is_its_own_cause() {
    let mut metadata = failure(1, FailureReason::Metadata as u32, Stage::Kda, 4);
    (metadata.record.offset, metadata.record.seen) = (2, 99);
    let mut stale = failure(1, STALE_METADATA, Stage::AttentionDots, 1);
    (stale.record.wanted, stale.record.seen) = (41, 40);
    let earlier = wait(0, 1, FailureReason::Timeout, Stage::MlpDots, tag(41, 2));
    for (failure, sentence) in [
        (
            metadata,
            "rank 1 was given a state slot or accepted count of 99 for request 2, which is out of range, at layer 4, stage \
             kda",
        ),
        (stale, "rank 1 ran step 41 on the metadata of step 40, at layer 1, stage attention_dots"),
        (
            failure(1, BUSY, Stage::AttentionDots, 1),
            "rank 1 was launched while another launch of it was still running, at layer 1, stage attention_dots",
        ),
    ] {
        let found = told(&[earlier, failure], |_| {});
        assert_eq!((found.culprit, found.sentence.as_str()), (Some(Rank(1)), sentence));
        assert!(found.details[0].starts_with("rank 1"), "the cause comes first: {:?}", found.details);
    }
    let unknown = told(&[earlier, failure(0, 77, Stage::Up, 2)], |_| {});
    assert!(
        unknown.sentence.contains("failed for reason 77, which this version does not know"),
        "{}",
        unknown.sentence
    );
}

#[test]
fn ledgers_that_differ_explain_the_waits_and_do_not_follow_from_them() {
    let mut epochs = PerRank::default();
    epochs.set(Rank(0), 42);
    epochs.set(Rank(1), 41);
    let failures = [wait(0, 1, FailureReason::Timeout, Stage::MlpDots, tag(40, 3))];
    let found = told(&failures, |incident| incident.verdict = Some(Divergence::Epochs(epochs)));
    assert_eq!(found.culprit, Some(Rank(1)));
    let expected = "the ranks are not at the same step: 42 on rank 0; 41 on rank 1: rank 0 waited 3.0 s for its";
    assert!(found.sentence.starts_with(expected), "{}", found.sentence);
    assert!(found.sentence.ends_with("last seen 1 step earlier, at layer 3"), "{}", found.sentence);
    // That the device gave up is what the records say already.
    let echo = LedgerError::GaveUp { epoch: Epoch(41), layer: 3, stage: 5 };
    let echo = Divergence::Refused { rank: Rank(0), error: echo, ranks: ranks(&[0]) };
    let found = told(&failures, |incident| incident.verdict = Some(echo));
    assert!(found.sentence.starts_with("rank 1 is stuck or late"), "{}", found.sentence);
    let found = told(&[], |incident| incident.verdict = Some(echo));
    assert_eq!(found.sentence, "rank 0: step 41 failed on the device at layer 3, stage mlp_dots");
}

#[test]
fn without_a_wait_in_vain_it_says_what_is_known() {
    let poison = wait(0, 1, FailureReason::Poison, Stage::MlpDots, Tag(POISON_TAG));
    let found = told(&[poison], |_| {});
    assert_eq!(found.culprit, Some(Rank(1)));
    assert!(
        found.sentence.starts_with("rank 1 failed and left no record: rank 0 waited for its"),
        "{}",
        found.sentence
    );
    let found = told(&[wait(0, 1, FailureReason::Abort, Stage::MlpDots, tag(41, 2))], |_| {});
    let expected = "the host asked every rank to give up, rank 0 did so at layer 3, stage mlp_dots of step 41";
    assert_eq!((found.culprit, found.sentence.as_str()), (None, expected));
    let found = told(&[], |incident| incident.alarms = ranks(&[1]));
    assert_eq!((found.culprit, found.sentence.as_str()), (Some(Rank(1)), "rank 1 raised the alarm and left no record"));
    assert_eq!(told(&[], |_| {}).sentence, "a rank failed without a record");
}

#[test]
fn the_step_is_right_when_epochs_wrap_between_what_was_seen_and_wanted() {
    let mut failure = wait(0, 1, FailureReason::Timeout, Stage::MlpDots, tag(TAG_EPOCHS - 1, 4));
    failure.record.wanted = tag(TAG_EPOCHS + 1, 3).0;
    let found = told(&[failure], |_| {});
    assert!(found.sentence.ends_with("last seen 2 steps earlier, at layer 4"), "{}", found.sentence);
    // An earlier step's wait is nearer to the cause, also across the wrap.
    let mut early = wait(1, 0, FailureReason::Timeout, Stage::Output, tag(TAG_EPOCHS - 2, 4));
    early.record.wanted = tag(TAG_EPOCHS - 1, 3).0;
    for failures in [[failure, early], [early, failure]] {
        assert_eq!(told(&failures, |_| {}).culprit, Some(Rank(0)));
    }
}

/// Which rank comes late, who waits for it and in which order the records are read must not matter.
fn late_ranks() -> impl Strategy<Value = (u8, Vec<Failure>)> {
    let stages = [Stage::MlpDots, Stage::Route, Stage::LatentNorm, Stage::Up, Stage::Output];
    (0u8..8, 0usize..4, prop::collection::vec((any::<bool>(), 0usize..4, any::<bool>()), 8)).prop_flat_map(
        move |(culprit, first, victims)| {
            let mut failures = Vec::new();
            for (rank, (waits, later, is_poisoned)) in (0..).zip(victims).filter(|(rank, _)| *rank != culprit) {
                // At least one waits for the late rank; the others see that rank's poison, or wait for themselves behind it.
                if waits || rank == (culprit + 1) % 8 {
                    failures.push(wait(rank, culprit.into(), FailureReason::Timeout, stages[first], tag(41, 2)));
                } else if is_poisoned {
                    let source = u32::from((culprit + 1) % 8);
                    failures.push(wait(rank, source, FailureReason::Poison, Stage::AttentionDots, Tag(POISON_TAG)));
                }
                let behind = stages[first.max(later) + 1];
                failures.push(wait(rank, rank.into(), FailureReason::Timeout, behind, tag(41, 2)));
            }
            (Just(culprit), Just(failures).prop_shuffle())
        },
    )
}

proptest! {
    #[test]
    fn whichever_rank_is_late_is_named((culprit, failures) in late_ranks()) {
        let found = told(&failures, |_| {});
        prop_assert_eq!(found.culprit, Some(Rank(culprit)), "{}", found.sentence);
        prop_assert!(found.sentence.starts_with(&format!("rank {culprit} is stuck or late: rank")), "{}", found.sentence);
        prop_assert_eq!(found.details.len(), failures.len());
    }

    /// Whatever lies in the buffers of a machine that has just failed is told, not tripped over.
    #[test]
    fn any_records_at_all_make_a_sentence(words in prop::collection::vec(any::<[u32; 8]>(), 0..6), missing: u8) {
        let records = words.iter().map(|words| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            FailureRecord::from_bytes(&bytes).unwrap_or_default()
        });
        let failures: Vec<Failure> =
            records.zip(0..).map(|(record, rank)| Failure { rank: Rank(rank), cta: Cta(0), record }).collect();
        let dead: Vec<u8> = (0..8).filter(|rank| missing >> rank & 3 == 3).collect();
        let found = told(&failures, |incident| incident.missing = ranks(&dead));
        prop_assert!(!found.sentence.is_empty() && !found.sentence.contains('\n') && !found.sentence.ends_with('.'));
        prop_assert!(dead.is_empty() || found.culprit == Some(Rank(dead[0])));
    }
}
