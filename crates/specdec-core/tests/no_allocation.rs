//! Planning, bookkeeping and voting allocate nothing once a process has started: a step must not wait for an allocator.
//! Alone in its binary, because the count is the whole process's.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::alloc::System;

use specdec_core::abi::{LayerKind, MAX_RANKS};
use specdec_core::geometry::K3;
use specdec_core::ids::{Layer, Rank, Rows};
use specdec_core::plan::{
    GraphMode, KvBinding, LayerAction, LayerSet, Metadata, Planner, StepCounters, StepFacts, StepPlan, VerifyCounts,
};
use specdec_core::replay::{fold, Built, DeviceReport, Fingerprint, Pointers, RankReport};
use specdec_core::tag::Epoch;
use stats_alloc::{Region, StatsAlloc, INSTRUMENTED_SYSTEM};

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn a_step_allocates_nothing() {
    let layers = (0..93).map(Layer);
    let kinds: Vec<(Layer, LayerKind)> = layers.filter_map(|layer| Some((layer, K3.layer_kind(layer)?))).collect();
    let planner = Planner::new(&kinds, 4, &[Rows(4), Rows(8)], LayerSet::NONE.with(Layer(2))).unwrap();
    let pointers = Pointers { kv: Fingerprint(1), fixed: Fingerprint(2) };
    let mut ledger = Built::new(Epoch(u32::MAX - 50)).bind(pointers);
    let mut counters = StepCounters::default();
    let counts = VerifyCounts {
        num_prefills: 0,
        num_decodes: 0,
        num_spec_decodes: 2,
        rows_per_request: 4,
        uniform_rows: Some(4),
    };
    let served = StepFacts {
        has_intermediate_tensors: false,
        kv: KvBinding::Bound(ledger.generation()),
        has_context: true,
        graph_mode: GraphMode::None,
        width: 8,
        metadata: Metadata::Verify(counts),
        outputs_read: LayerSet::NONE,
    };
    let Ok(StepPlan::Specialized(step)) = planner.plan(&served) else { panic!("served") };
    let graph = ledger.capture(&step, pointers).unwrap();

    let region = Region::new(GLOBAL);
    let mut launches = 0;
    for step_number in 0..200_u64 {
        let drafter = if step_number % 3 == 0 { LayerSet::NONE.with(Layer(50)) } else { LayerSet::NONE };
        for facts in [StepFacts { width: 7, ..served }, StepFacts { outputs_read: drafter, ..served }] {
            let plan = planner.plan(&facts).unwrap();
            counters.count(&plan);
            let StepPlan::Specialized(step) = plan else { continue };
            let epoch = ledger.expect(&step, pointers).unwrap();
            launches += (0..93).filter(|i| matches!(step.layer(Layer(*i)), LayerAction::Launch { .. })).count();
            ledger.launched().unwrap();
            let report = DeviceReport { epoch: epoch.next(), failed: None, step_word: epoch.0 };
            ledger.report(epoch, report).unwrap();
        }
        let epoch = ledger.expect_replay(graph, pointers).unwrap();
        counters.count_specialized(Rows(8), Rows(4));
        let report = DeviceReport { epoch: epoch.next(), failed: None, step_word: epoch.0 };
        ledger.report(epoch, report).unwrap();
        let bytes = ledger.vote(Rank(0)).to_bytes();
        let votes: [RankReport; MAX_RANKS as usize] =
            std::array::from_fn(|rank| RankReport { rank: Rank(rank as u8), ..RankReport::from_bytes(&bytes) });
        fold(&votes, MAX_RANKS).unwrap();
        // A verdict that ranks differ is made without allocating, too: only its text is a string.
        let mut others = votes;
        others[5].next = Epoch(0);
        assert!(fold(&others, MAX_RANKS).is_err());
    }
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0));
    assert_eq!((counters.totals(), counters.padded_rows), ((400, 200), 800));
    // 25 launches, and one for each of 92 layers where the drafter reads what was not announced.
    assert_eq!(launches, 133 * 25 + 67 * 92);

    // The counter counts.
    let region = Region::new(GLOBAL);
    drop(std::hint::black_box(vec![1_u8; 100]));
    assert_eq!(region.change().allocations, 1);
}
