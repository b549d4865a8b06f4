//! The ledger: every fault that it is there for, then random sequences against a model that counts in plain integers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod ledger_model;

use ledger_model::{served, Machine, POINTERS};
use specdec_core::abi::FailureRecord;
use specdec_core::ids::{Rank, Rows};
use specdec_core::replay::{
    fold, Built, DeviceReport, Divergence, Fingerprint, GraphId, KvGeneration, Ledger, LedgerError, Pointers,
    MAX_IN_FLIGHT,
};
use specdec_core::tag::{Epoch, Tag};

const MOVED_KV: Pointers = Pointers { kv: Fingerprint(77), ..POINTERS };
const MOVED_WEIGHTS: Pointers = Pointers { fixed: Fingerprint(78), ..POINTERS };
const FIRST: KvGeneration = KvGeneration(1);

fn ledger() -> Ledger {
    Built::new(Epoch(41)).bind(POINTERS)
}

const fn behind(epoch: u32) -> DeviceReport {
    DeviceReport { epoch: Epoch(epoch), failed: None, step_word: epoch.wrapping_sub(1) }
}

/// Runs one eager step whose report is `report`.
fn reported(report: DeviceReport) -> Option<LedgerError> {
    let mut ledger = ledger();
    let epoch = ledger.expect(&served(8, FIRST), POINTERS).unwrap();
    ledger.launched().unwrap();
    let error = ledger.report(epoch, report).err();
    assert_eq!(ledger.error(), error);
    if error.is_some() {
        // It fails closed: a caller that drops the error still cannot launch.
        assert_eq!(ledger.expect(&served(8, FIRST), POINTERS), Err(LedgerError::Stopped));
        assert_eq!(ledger.rebind(POINTERS), Err(LedgerError::Stopped));
        assert_eq!(ledger.error(), error, "the first error stays");
    }
    error
}

#[test]
fn a_step_that_did_as_expected_is_silent() {
    assert_eq!(reported(behind(42)), None);
}

#[test]
fn a_skipped_step_shows_one_step_later() {
    assert_eq!(reported(behind(41)), Some(LedgerError::Skipped { epoch: Epoch(41), by: 1 }));
}

#[test]
fn a_doubled_step_shows_one_step_later() {
    assert_eq!(reported(behind(43)), Some(LedgerError::Doubled { epoch: Epoch(41), by: 1 }));
}

#[test]
fn a_step_on_stale_metadata_shows_one_step_later() {
    let stale = DeviceReport { step_word: 40, ..behind(42) };
    assert_eq!(reported(stale), Some(LedgerError::StaleMetadata { epoch: Epoch(41), seen: 40 }));
}

#[test]
fn a_failed_wait_is_the_error_whatever_the_epoch_says() {
    let failed = Some(FailureRecord { reason: 1, layer: 3, stage: 5, ..FailureRecord::default() });
    let gave_up = LedgerError::GaveUp { epoch: Epoch(41), layer: 3, stage: 5 };
    assert_eq!(reported(DeviceReport { failed, ..behind(41) }), Some(gave_up));
}

#[test]
fn a_step_over_caches_that_moved_is_never_launched() {
    assert_eq!(ledger().expect(&served(8, FIRST), MOVED_KV), Err(LedgerError::StaleBinding(FIRST)));
    let mut replay = ledger();
    let graph = replay.capture(&served(8, FIRST), POINTERS).unwrap();
    assert_eq!(replay.expect_replay(graph, MOVED_KV), Err(LedgerError::StaleBinding(FIRST)));
}

#[test]
fn a_graph_whose_weights_moved_is_never_replayed() {
    let mut ledger = ledger();
    let graph = ledger.capture(&served(8, FIRST), POINTERS).unwrap();
    assert_eq!(ledger.expect_replay(graph, MOVED_WEIGHTS), Err(LedgerError::PointersMoved(FIRST)));
}

#[test]
fn a_graph_captured_before_a_rebind_is_never_replayed() {
    let mut ledger = ledger();
    let graph = ledger.capture(&served(8, FIRST), POINTERS).unwrap();
    // Even if the new caches lie where the old ones lay.
    let current = ledger.rebind(POINTERS).unwrap();
    let stale = LedgerError::CapturedBeforeRebind { graph, captured: FIRST, current };
    assert_eq!(ledger.expect_replay(graph, POINTERS), Err(stale));
}

#[test]
fn a_plan_made_before_a_rebind_is_neither_launched_nor_captured() {
    let old = served(8, FIRST);
    let rebound = || {
        let mut ledger = ledger();
        let current = ledger.rebind(MOVED_KV).unwrap();
        (ledger, LedgerError::OtherBinding { planned: FIRST, current })
    };
    let (mut eager, error) = rebound();
    assert_eq!(eager.expect(&old, MOVED_KV), Err(error));
    let (mut capture, error) = rebound();
    assert_eq!(capture.capture(&old, MOVED_KV), Err(error));
}

#[test]
fn a_capture_consumes_no_epoch_and_a_replay_one() {
    let mut ledger = ledger();
    let graphs = [4, 8].map(|width| ledger.capture(&served(width, FIRST), POINTERS).unwrap());
    assert_eq!((graphs, ledger.next()), ([GraphId(0), GraphId(1)], Epoch(41)));
    assert_eq!(ledger.expect_replay(graphs[1], POINTERS), Ok(Epoch(41)));
    assert_eq!((ledger.next(), ledger.open_step()), (Epoch(42), None));
    ledger.forget(graphs[0]);
    assert_eq!(ledger.vote(Rank(3)).width, Rows(8));
    assert_eq!(ledger.expect_replay(graphs[0], POINTERS), Err(LedgerError::UnknownGraph(graphs[0])));
}

#[test]
fn an_abandoned_step_must_be_closed_and_its_epoch_is_what_the_device_ends() {
    let plan = served(8, FIRST);
    let mut left = ledger();
    left.expect(&plan, POINTERS).unwrap();
    assert_eq!(left.open_step(), Some(Epoch(41)));
    assert_eq!(left.expect(&plan, POINTERS), Err(LedgerError::Abandoned(Epoch(41))));

    let mut closed = ledger();
    closed.expect(&plan, POINTERS).unwrap();
    assert_eq!(closed.close_abandoned(), Ok(Epoch(41)));
    assert_eq!((closed.open_step(), closed.next()), (None, Epoch(42)));
    // The close entry reads no metadata, but its end of the epoch must show.
    assert_eq!(closed.report(Epoch(41), DeviceReport { step_word: 7, ..behind(42) }), Ok(()));
    closed.expect(&plan, POINTERS).unwrap();
    closed.launched().unwrap();
    assert_eq!(closed.report(Epoch(42), behind(43)), Ok(()));

    let mut not_ended = ledger();
    not_ended.expect(&plan, POINTERS).unwrap();
    not_ended.close_abandoned().unwrap();
    let skipped = LedgerError::Skipped { epoch: Epoch(41), by: 1 };
    assert_eq!(not_ended.report(Epoch(41), behind(41)), Err(skipped));
}

/// The books reuse a closed step's place later, for a step that does read its metadata.
#[test]
fn a_closed_step_excuses_no_other_one() {
    let mut ledger = ledger();
    ledger.expect(&served(8, FIRST), POINTERS).unwrap();
    let closed = ledger.close_abandoned().unwrap();
    ledger.report(closed, behind(closed.next().0)).unwrap();
    let graph = ledger.capture(&served(8, FIRST), POINTERS).unwrap();
    for _ in 1..MAX_IN_FLIGHT {
        let epoch = ledger.expect_replay(graph, POINTERS).unwrap();
        ledger.report(epoch, behind(epoch.next().0)).unwrap();
    }
    let epoch = ledger.expect_replay(graph, POINTERS).unwrap();
    assert_eq!(epoch.0 % MAX_IN_FLIGHT, closed.0 % MAX_IN_FLIGHT);
    let stale = DeviceReport { step_word: closed.0, ..behind(epoch.next().0) };
    let error = LedgerError::StaleMetadata { epoch, seen: closed.0 };
    assert_eq!(ledger.report(epoch, stale), Err(error));
}

#[test]
fn operations_out_of_order_are_errors() {
    assert_eq!(ledger().launched(), Err(LedgerError::NothingOpen(Epoch(41))));
    assert_eq!(ledger().close_abandoned(), Err(LedgerError::NothingOpen(Epoch(41))));
    assert_eq!(ledger().report(Epoch(41), behind(42)), Err(LedgerError::NotInFlight(Epoch(41))));
    let open = |operation: fn(&mut Ledger) -> Option<LedgerError>| {
        let mut ledger = ledger();
        ledger.expect(&served(8, FIRST), POINTERS).unwrap();
        operation(&mut ledger)
    };
    let abandoned = Some(LedgerError::Abandoned(Epoch(41)));
    assert_eq!(open(|ledger| ledger.rebind(MOVED_KV).err()), abandoned);
    assert_eq!(open(|ledger| ledger.capture(&served(8, FIRST), POINTERS).err()), abandoned);
    assert_eq!(open(|ledger| ledger.report(Epoch(41), behind(42)).err()), Some(LedgerError::NotInFlight(Epoch(41))));
}

#[test]
fn a_device_that_never_reports_stops_the_host() {
    let mut ledger = ledger();
    let graph = ledger.capture(&served(8, FIRST), POINTERS).unwrap();
    for step in 0..MAX_IN_FLIGHT {
        assert_eq!(ledger.expect_replay(graph, POINTERS), Ok(Epoch(41 + step)));
    }
    assert_eq!(ledger.expect_replay(graph, POINTERS), Err(LedgerError::Unreported(Epoch(41))));
}

#[test]
fn a_later_report_stands_for_the_steps_before_it() {
    let mut ledger = ledger();
    let graph = ledger.capture(&served(8, FIRST), POINTERS).unwrap();
    let epochs: Vec<_> = (0..3).map(|_| ledger.expect_replay(graph, POINTERS).unwrap()).collect();
    assert_eq!(ledger.report(epochs[1], behind(43)), Ok(()));
    assert_eq!(ledger.num_in_flight(), 1);
    assert_eq!(ledger.report(epochs[0], behind(42)), Err(LedgerError::NotInFlight(epochs[0])));
}

/// The counter wraps at 2^32 and tags at 2^24: the books go on, and neighbouring steps' tags and halves still differ.
#[test]
fn epochs_wrap_without_a_trace() {
    for start in [(1 << 24) - 3, u32::MAX - 2] {
        let mut ledger = Built::new(Epoch(start)).bind(POINTERS);
        let graph = ledger.capture(&served(8, FIRST), POINTERS).unwrap();
        let mut before = None;
        for step in 0..2 * MAX_IN_FLIGHT {
            let epoch = ledger.expect_replay(graph, POINTERS).unwrap();
            assert_eq!(epoch, Epoch(start.wrapping_add(step)));
            let now = (Tag::new(epoch, specdec_core::ids::Layer(1)), epoch.parity());
            assert!(before.is_none_or(|(tag, parity)| tag != now.0 && parity != now.1));
            before = Some(now);
            assert_eq!(ledger.report(epoch, behind(epoch.next().0)), Ok(()));
        }
        let last = ledger.expect_replay(graph, POINTERS).unwrap();
        let found = ledger.report(last, behind(last.0));
        assert_eq!(found, Err(LedgerError::Skipped { epoch: last, by: 1 }));
    }
}

#[test]
fn ranks_that_ran_different_steps_stop_at_the_same_vote() {
    let run = |widths: &[u32]| {
        let mut ledger = ledger();
        for width in widths {
            let epoch = ledger.expect(&served(*width, FIRST), POINTERS).unwrap();
            ledger.launched().unwrap();
            ledger.report(epoch, behind(epoch.next().0)).unwrap();
        }
        ledger
    };
    let verdict = |one: &[u32], other: &[u32]| fold(&[run(one).vote(Rank(0)), run(other).vote(Rank(1))], 2).err();
    assert_eq!(verdict(&[8, 4], &[8, 4]), None);
    assert!(matches!(verdict(&[8, 4], &[8]), Some(Divergence::Epochs(_))), "one rank took a step for stock");
    assert!(matches!(verdict(&[8, 4], &[8, 8]), Some(Divergence::Widths(_))));
    assert!(matches!(verdict(&[8, 4], &[4, 4]), Some(Divergence::Histories(_))), "an earlier step differed");
    let mut rebound = run(&[8]);
    rebound.rebind(POINTERS).unwrap();
    let found = fold(&[run(&[8]).vote(Rank(0)), rebound.vote(Rank(1))], 2);
    assert!(matches!(found, Err(Divergence::Bindings(_))));
    let mut stopped = run(&[8]);
    stopped.stop();
    assert_eq!(stopped.expect(&served(8, FIRST), POINTERS), Err(LedgerError::Stopped));
}

/// A vote must not depend on how far a rank's reports have come: copies end when they end.
#[test]
fn votes_agree_although_reports_come_at_different_times() {
    let run = |reports: u32| {
        let mut ledger = ledger();
        let graph = ledger.capture(&served(8, FIRST), POINTERS).unwrap();
        for step in 0..6 {
            let epoch = ledger.expect_replay(graph, POINTERS).unwrap();
            if step < reports {
                ledger.report(epoch, behind(epoch.next().0)).unwrap();
            }
        }
        ledger
    };
    let votes: Vec<_> = (0..6).map(|rank| run(u32::from(rank)).vote(Rank(rank))).collect();
    assert_eq!(fold(&votes, 6), Ok(()));
}

#[test]
fn the_model_finds_what_it_is_there_for() {
    // Otherwise the property below could pass by never seeing a fault.
    let mut machine = Machine::new(Epoch(0));
    machine.device_runs(2);
    assert!(machine.device_is_right(0).is_err());
}
