//! What a 93-layer step of Kimi-K3 costs the host beside its launches: `cargo bench -p specdec-core --bench plan`.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a measurement stops at the first surprise")]

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, Criterion};
use specdec_core::abi::{LayerDescriptor, LayerKind, MAX_RANKS};
use specdec_core::device::{PeerHandle, PEER_HANDLE_BYTES};
use specdec_core::engine::{Activations, Engine, EngineOptions, Unlinked};
use specdec_core::executor::{Executor, Planned};
use specdec_core::geometry::K3;
use specdec_core::ids::{DeviceAddress, Layer, Rank, Rows};
use specdec_core::null_device::NullDevice;
use specdec_core::plan::{
    GraphMode, KvBinding, LayerAction, LayerSet, Metadata, Planner, StepCounters, StepFacts, StepPlan, VerifyCounts,
};
use specdec_core::replay::{fold, Built, DeviceReport, Fingerprint, Ledger, Pointers, RankReport};
use specdec_core::tag::Epoch;
use specdec_core::tasks::StepShape;

const POINTERS: Pointers = Pointers { kv: Fingerprint(1), fixed: Fingerprint(2) };

fn planner() -> Planner {
    let layers = (0..K3.num_layers as u8).map(Layer);
    let kinds: Vec<(Layer, LayerKind)> = layers.filter_map(|layer| Some((layer, K3.layer_kind(layer)?))).collect();
    let read = [2, 23, 47, 71, 89].map(Layer).into_iter().collect();
    Planner::new(&kinds, 8, &[Rows(8), Rows(16)], read).unwrap()
}

fn facts(ledger: &Ledger) -> StepFacts {
    StepFacts { kv: KvBinding::Bound(ledger.generation()), ..facts_of_a_step() }
}

fn facts_of_a_step() -> StepFacts {
    let counts = VerifyCounts {
        num_prefills: 0,
        num_decodes: 0,
        num_spec_decodes: 2,
        rows_per_request: 8,
        uniform_rows: Some(8),
    };
    StepFacts {
        has_intermediate_tensors: false,
        kv: KvBinding::Unbound,
        has_context: true,
        graph_mode: GraphMode::None,
        width: 16,
        metadata: Metadata::Verify(counts),
        outputs_read: LayerSet::NONE,
    }
}

const fn behind(epoch: Epoch) -> DeviceReport {
    DeviceReport { epoch: epoch.next(), failed: None, step_word: epoch.0 }
}

/// A whole eager step; returns its launches.
fn eager_step(planner: &Planner, ledger: &mut Ledger, counters: &mut StepCounters, facts: &StepFacts) -> u32 {
    let Ok(StepPlan::Specialized(step)) = planner.plan(facts) else { panic!("served") };
    let epoch = ledger.expect(&step, black_box(POINTERS)).unwrap();
    let mut launches = 0;
    for layer in 0..K3.num_layers as u8 {
        if let LayerAction::Launch { run, last_of_step } = step.layer(Layer(layer)) {
            black_box((run, last_of_step));
            launches += 1;
        }
    }
    ledger.launched().unwrap();
    counters.count(&StepPlan::Specialized(step));
    ledger.report(epoch, black_box(behind(epoch))).unwrap();
    launches
}

/// An executor over an engine whose device does nothing, all layers bound.
fn bound() -> (Engine<NullDevice>, Executor) {
    let options = EngineOptions { timeout_seconds: 3.0, witness: false };
    let shard = K3.shard(8).unwrap();
    let handles = [PeerHandle([0; PEER_HANDLE_BYTES]); 8];
    let unlinked = Unlinked::new(NullDevice::default(), shard, &[Rank(0)], &[vec![]], options).unwrap();
    let mut engine = unlinked.link(&handles).unwrap();
    for layer in 0..K3.num_layers {
        engine.bind_layer(Rank(0), &LayerDescriptor { layer, ..LayerDescriptor::default() }).unwrap();
    }
    engine.prepare(StepShape::new(2, 7).unwrap()).unwrap();
    let mut executor = Executor::new(Rank(0), 8, 3.0, planner(), Epoch(0));
    executor.bind(POINTERS).unwrap();
    (engine, executor)
}

/// The same, with its launches described and queued, and the books for the vote.
fn launched_step(engine: &mut Engine<NullDevice>, executor: &mut Executor, facts: &StepFacts) {
    let at = DeviceAddress(black_box(1 << 40));
    let activations = Activations {
        prefix: at,
        blocks: at,
        blocks_row_stride: 57_344,
        block_stride: 7168,
        delta: at,
        core: at,
        has_delta: true,
    };
    let Planned::Eager(runs) = executor.plan(engine, facts, black_box(POINTERS), false).unwrap() else {
        panic!("served")
    };
    for index in 0..runs.len() {
        executor.launch(engine, index, &activations).unwrap();
    }
}

fn steps(criterion: &mut Criterion) {
    let planner = planner();
    criterion.bench_function("eager step: plan and every launch, on a device that does nothing", |bencher| {
        let (mut engine, mut executor) = bound();
        let facts = StepFacts { kv: KvBinding::Bound(executor.generation().unwrap()), ..facts_of_a_step() };
        let mut steps = 0;
        bencher.iter(|| {
            launched_step(&mut engine, &mut executor, black_box(&facts));
            steps += 1;
            if steps % 16 == 0 {
                // That device reports nothing: new books, a sixteenth of whose cost falls on each step.
                executor = Executor::new(Rank(0), 8, 3.0, planner.clone(), engine.next_step(Rank(0)).unwrap());
                executor.bind(POINTERS).unwrap();
            }
        });
    });
    criterion.bench_function("eager step: plan, 93 layers, ledger, report", |bencher| {
        let mut ledger = Built::new(Epoch(0)).bind(POINTERS);
        let mut counters = StepCounters::default();
        let facts = facts(&ledger);
        bencher.iter(|| eager_step(&planner, &mut ledger, &mut counters, black_box(&facts)));
    });
    criterion.bench_function("replayed step: ledger, report", |bencher| {
        let mut ledger = Built::new(Epoch(0)).bind(POINTERS);
        let facts = facts(&ledger);
        let Ok(StepPlan::Specialized(step)) = planner.plan(&facts) else { panic!("served") };
        let graph = ledger.capture(&step, POINTERS).unwrap();
        bencher.iter(|| {
            let epoch = ledger.expect_replay(black_box(graph), black_box(POINTERS)).unwrap();
            ledger.report(epoch, black_box(behind(epoch))).unwrap();
        });
    });
    criterion.bench_function("vote of 8 ranks: to bytes, from bytes, fold", |bencher| {
        let ledger = Built::new(Epoch(0)).bind(POINTERS);
        bencher.iter(|| {
            let votes: [RankReport; MAX_RANKS as usize] = std::array::from_fn(|rank| {
                RankReport::from_bytes(black_box(&ledger.vote(Rank(rank as u8)).to_bytes()))
            });
            fold(&votes, MAX_RANKS).unwrap();
        });
    });
    criterion.bench_function("fingerprint of 93 x 30 addresses", |bencher| {
        let addresses: Vec<u64> = (0..93 * 30).map(|i| 0x7f00_0000_0000 + i * 4096).collect();
        bencher.iter(|| Fingerprint::of(black_box(&addresses).iter().copied()));
    });
}

criterion_group!(benches, steps);
criterion_main!(benches);
