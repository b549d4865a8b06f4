//! The routing decision of spec/runtime.md §3.1, against the table written down a second time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use proptest::prelude::*;
use specdec_core::abi::LayerKind;
use specdec_core::geometry::{Geometry, K3, NANO};
use specdec_core::ids::{Layer, Rows};
use specdec_core::plan::{
    runs, GraphMode, KvBinding, LayerAction, LayerSet, Metadata, PlanError, Planner, PlannerError, StepFacts, StepPlan,
    StockReason, VerifyCounts,
};
use specdec_core::replay::KvGeneration;

fn kinds(geometry: &Geometry) -> Vec<(Layer, LayerKind)> {
    (0..geometry.num_layers as u8).filter_map(|i| Some((Layer(i), geometry.layer_kind(Layer(i))?))).collect()
}

fn planner(rows_per_request: u32, widths: &[u8]) -> Planner {
    let widths: Vec<Rows> = widths.iter().copied().map(Rows).collect();
    Planner::new(&kinds(&K3), rows_per_request, &widths, LayerSet::NONE).unwrap()
}

const VERIFY: VerifyCounts =
    VerifyCounts { num_prefills: 0, num_decodes: 0, num_spec_decodes: 2, rows_per_request: 4, uniform_rows: Some(4) };
const SERVED: StepFacts = StepFacts {
    has_intermediate_tensors: false,
    kv: KvBinding::Bound(KvGeneration(1)),
    has_context: true,
    graph_mode: GraphMode::None,
    width: 8,
    metadata: Metadata::Verify(VERIFY),
    outputs_read: LayerSet::NONE,
};

type Spoil = Box<dyn Fn(&mut StepFacts)>;

fn reason(facts: &StepFacts) -> Option<StockReason> {
    match planner(4, &[4, 8]).plan(facts) {
        Ok(StepPlan::Stock(reason)) => Some(reason),
        _ => None,
    }
}

#[test]
fn every_reason_decides_before_all_that_come_behind_it() {
    let counts = |change: fn(&mut VerifyCounts)| {
        let mut counts = VERIFY;
        change(&mut counts);
        Metadata::Verify(counts)
    };
    let metadata = |metadata: Metadata| -> Spoil { Box::new(move |facts| facts.metadata = metadata) };
    let spoils: [(StockReason, Spoil); 14] = [
        (StockReason::IntermediateTensors, Box::new(|facts| facts.has_intermediate_tensors = true)),
        (StockReason::NoKvCache, Box::new(|facts| facts.kv = KvBinding::Unbound)),
        (StockReason::NoContext, Box::new(|facts| facts.has_context = false)),
        (StockReason::PiecewiseGraph, Box::new(|facts| facts.graph_mode = GraphMode::Piecewise)),
        (StockReason::Width, Box::new(|facts| facts.width = 7)),
        (StockReason::NoMetadata, metadata(Metadata::NotADict)),
        (StockReason::NoFirstLayer, metadata(Metadata::NoFirstLayer)),
        (StockReason::NoSpecMasks, metadata(Metadata::NoSpecMasks)),
        (StockReason::Prefills, metadata(counts(|c| (c.num_prefills, c.num_decodes) = (1, 1)))),
        (StockReason::PlainDecodes, metadata(counts(|c| (c.num_decodes, c.num_spec_decodes) = (1, 0)))),
        (StockReason::NoSpecDecodes, metadata(counts(|c| (c.num_spec_decodes, c.uniform_rows) = (0, None)))),
        (StockReason::Ragged, metadata(counts(|c| (c.num_spec_decodes, c.uniform_rows) = (3, None)))),
        (StockReason::RowsElsewhere, metadata(counts(|c| c.num_spec_decodes = 3))),
        (
            StockReason::OtherRowsPerRequest,
            metadata(counts(|c| {
                (c.num_spec_decodes, c.rows_per_request, c.uniform_rows) = (4, 2, Some(2));
            })),
        ),
    ];
    assert_eq!(spoils.each_ref().map(|(reason, _)| *reason), StockReason::ALL);
    assert_eq!(reason(&SERVED), None);
    for first in 0..spoils.len() {
        // A cache that moved is an error only in a step that our kernels would run.
        let mut facts = StepFacts { kv: KvBinding::Moved, ..SERVED };
        for (_, spoil) in spoils[first..].iter().rev() {
            spoil(&mut facts);
        }
        assert_eq!(reason(&facts), Some(spoils[first].0));
    }
}

#[test]
fn a_cache_that_moved_unannounced_is_an_error_in_vllms_words() {
    let error = planner(4, &[8]).plan(&StepFacts { kv: KvBinding::Moved, ..SERVED }).unwrap_err();
    assert_eq!(error, PlanError::KvRebound);
    assert_eq!(
        error.to_string(),
        "Kimi-K3 specialized decode: the KV cache was re-bound without prepare_kv (ModelState.initialize_kv_cache)"
    );
}

#[test]
fn a_served_step_knows_its_shape_and_its_launches() {
    let planner = planner(4, &[4, 8, 12, 16]);
    let Ok(StepPlan::Specialized(step)) = planner.plan(&SERVED) else { panic!("served") };
    assert_eq!((step.width, step.requests, step.rows_per_request), (Rows(8), 2, 4));
    assert_eq!((step.runs, step.generation), (&runs(&K3, 0..=255)[..], KvGeneration(1)));
    assert_eq!(step.layer(Layer(0)), LayerAction::Stock);
    assert_eq!(step.layer(Layer(1)), LayerAction::Launch { run: step.runs[0], last_of_step: false });
    assert_eq!(step.layer(Layer(2)), LayerAction::Inside);
    assert_eq!(step.layer(Layer(92)), LayerAction::Launch { run: step.runs[24], last_of_step: true });
    assert_eq!(step.layer(Layer(93)), LayerAction::Stock);
}

#[test]
fn plans_that_differ_have_digests_that_differ() {
    let mut digests = std::collections::BTreeSet::new();
    for (rows_per_request, widths) in [(2, [8, 16]), (4, [8, 16]), (8, [8, 16])] {
        for read in [LayerSet::NONE, LayerSet::NONE.with(Layer(9)), LayerSet::NONE.with(Layer(8))] {
            let planner = Planner::new(&kinds(&K3), rows_per_request, &widths.map(Rows), read).unwrap();
            for width in widths.map(u32::from) {
                let requests = width / rows_per_request;
                let counts = VerifyCounts {
                    num_spec_decodes: requests,
                    rows_per_request,
                    uniform_rows: Some(rows_per_request),
                    ..VERIFY
                };
                let facts = StepFacts { width, metadata: Metadata::Verify(counts), ..SERVED };
                let Ok(StepPlan::Specialized(step)) = planner.plan(&facts) else { panic!("served") };
                assert!(digests.insert(step.digest.0), "{facts:?}");
            }
        }
    }
}

#[test]
fn a_drafter_that_asks_for_other_layers_gets_every_layers_output() {
    let announced: LayerSet = [2, 89].map(Layer).into_iter().collect();
    let planner = Planner::new(&kinds(&K3), 4, &[Rows(8)], announced).unwrap();
    let launches = |outputs_read| {
        let Ok(StepPlan::Specialized(step)) = planner.plan(&StepFacts { outputs_read, ..SERVED }) else {
            panic!("served")
        };
        let ends = |layer: u8| step.runs.iter().any(|run| run.last == Layer(layer));
        ((0..93).all(|layer| !outputs_read.contains(Layer(layer)) || ends(layer)), step.runs.len())
    };
    assert_eq!(launches(LayerSet::NONE), (true, 26));
    assert_eq!(launches(announced), (true, 26));
    assert_eq!(launches(announced.with(Layer(50))), (true, 92));
}

#[test]
fn a_planner_refuses_what_no_launch_serves() {
    let new = |kinds: &[(Layer, LayerKind)], rows, widths: &[u8]| {
        let widths: Vec<Rows> = widths.iter().copied().map(Rows).collect();
        Planner::new(kinds, rows, &widths, LayerSet::NONE).map(|planner| planner.runs().len())
    };
    let nano = kinds(&NANO);
    assert_eq!(new(&nano, 4, &[4, 8]), Ok(3));
    assert_eq!(new(&[], 4, &[4]), Err(PlannerError::NoLayers));
    assert_eq!(new(&[nano[1], nano[0]], 4, &[4]), Err(PlannerError::Order(Layer(1))));
    assert_eq!(new(&nano, 1, &[4]), Err(PlannerError::RowsPerRequest(1)));
    assert_eq!(new(&nano, 17, &[17]), Err(PlannerError::RowsPerRequest(17)));
    for width in [0, 6, 20] {
        let error = PlannerError::Width { width: width.into(), rows_per_request: 4 };
        assert_eq!(new(&nano, 4, &[width]), Err(error));
    }
}

/// Conditions 1 to 9, as the table of spec/runtime.md has them; 0 is served.
fn condition(facts: &StepFacts, widths: &[u32], q: u32) -> u32 {
    let bad = |condition: u32, is_bad: bool| is_bad.then_some(condition);
    let Metadata::Verify(c) = facts.metadata else {
        let behind = if facts.metadata == Metadata::NotADict { 6 } else { 7 };
        let known = bad(1, facts.has_intermediate_tensors)
            .or(bad(2, facts.kv == KvBinding::Unbound))
            .or(bad(3, !facts.has_context))
            .or(bad(4, facts.graph_mode == GraphMode::Piecewise))
            .or(bad(5, !widths.contains(&facts.width)));
        return known.unwrap_or(behind);
    };
    let rows = c.num_spec_decodes.checked_mul(c.rows_per_request);
    let checks = [
        facts.has_intermediate_tensors,
        facts.kv == KvBinding::Unbound,
        !facts.has_context,
        facts.graph_mode == GraphMode::Piecewise,
        !widths.contains(&facts.width),
        false,
        false,
        c.num_prefills != 0 || c.num_decodes != 0 || c.num_spec_decodes < 1,
        c.uniform_rows != Some(c.rows_per_request) || rows != Some(facts.width) || c.rows_per_request != q,
    ];
    checks.iter().position(|is_bad| *is_bad).map_or(0, |at| at as u32 + 1)
}

fn any_facts() -> impl Strategy<Value = StepFacts> {
    let graph_mode = prop_oneof![Just(GraphMode::None), Just(GraphMode::Piecewise), Just(GraphMode::Full)];
    let kv = prop_oneof![Just(KvBinding::Unbound), Just(KvBinding::Bound(KvGeneration(3))), Just(KvBinding::Moved)];
    let rare = || prop::bool::weighted(0.1);
    let counts = (0u32..2, 0u32..2, 0u32..5, prop_oneof![Just(2u32), Just(4), any::<u32>()], 0u32..6).prop_map(
        |(num_prefills, num_decodes, num_spec_decodes, rows_per_request, uniform)| {
            Metadata::Verify(VerifyCounts {
                num_prefills,
                num_decodes,
                num_spec_decodes,
                rows_per_request,
                uniform_rows: if uniform < 4 { Some(rows_per_request) } else { None },
            })
        },
    );
    let metadata = prop_oneof![
        1 => Just(Metadata::NotADict),
        1 => Just(Metadata::NoFirstLayer),
        1 => Just(Metadata::NoSpecMasks),
        8 => counts,
    ];
    let width = prop_oneof![3 => prop::sample::select(vec![4u32, 8, 12, 16]), 1 => any::<u32>()];
    (rare(), kv, rare(), graph_mode, width, metadata).prop_map(
        |(tensors, kv, no_context, graph_mode, width, metadata)| StepFacts {
            has_intermediate_tensors: tensors,
            kv,
            has_context: !no_context,
            graph_mode,
            width,
            metadata,
            outputs_read: LayerSet::NONE,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]
    #[test]
    fn the_planner_decides_as_the_table_does(facts in any_facts()) {
        let expected = condition(&facts, &[4, 8, 12, 16], 4);
        match planner(4, &[4, 8, 12, 16]).plan(&facts) {
            Ok(StepPlan::Stock(reason)) => prop_assert_eq!(reason.condition(), expected),
            Ok(StepPlan::Specialized(step)) => {
                prop_assert_eq!(expected, 0);
                prop_assert_eq!(step.requests * step.rows_per_request, facts.width);
                prop_assert_eq!(facts.kv, KvBinding::Bound(step.generation));
            }
            Err(PlanError::KvRebound) => prop_assert_eq!((expected, facts.kv), (0, KvBinding::Moved)),
        }
    }
}
