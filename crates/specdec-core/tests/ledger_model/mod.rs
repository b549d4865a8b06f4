//! A model of host and device that counts in plain integers, and random sequences on which the ledger must say what the
//! model says. It knows no wrapping: epochs are numbers of steps since the start.

use std::collections::VecDeque;
use std::sync::LazyLock;

use proptest::prelude::*;
use specdec_core::abi::{LayerKind, MAX_ROWS};
use specdec_core::geometry::K3;
use specdec_core::ids::{Layer, Rows};
use specdec_core::plan::{
    GraphMode, KvBinding, LayerSet, Metadata, Planner, Specialized, StepFacts, StepPlan, VerifyCounts,
};
use specdec_core::replay::{Built, DeviceReport, Fingerprint, GraphId, KvGeneration, Ledger, LedgerError, Pointers};
use specdec_core::tag::Epoch;

pub const POINTERS: Pointers = Pointers { kv: Fingerprint(1), fixed: Fingerprint(2) };

static PLANNER: LazyLock<Planner> = LazyLock::new(|| {
    let kinds: Vec<(Layer, LayerKind)> =
        (0..93).map(Layer).filter_map(|layer| Some((layer, K3.layer_kind(layer)?))).collect();
    let widths: Vec<Rows> = (4..=MAX_ROWS as u8).step_by(4).map(Rows).collect();
    Planner::new(&kinds, 4, &widths, LayerSet::NONE).unwrap()
});

/// The plan of a step of `width` rows, four a request.
pub fn served(width: u32, generation: KvGeneration) -> Specialized<'static> {
    let counts = VerifyCounts {
        num_prefills: 0,
        num_decodes: 0,
        num_spec_decodes: width / 4,
        rows_per_request: 4,
        uniform_rows: Some(4),
    };
    let facts = StepFacts {
        has_intermediate_tensors: false,
        kv: KvBinding::Bound(generation),
        has_context: true,
        graph_mode: GraphMode::None,
        width,
        metadata: Metadata::Verify(counts),
        outputs_read: LayerSet::NONE,
    };
    let Ok(StepPlan::Specialized(step)) = PLANNER.plan(&facts) else { panic!("served") };
    step
}

/// What the device said behind a step: the step, the device's count of steps then, and whether it read its own metadata.
struct Said {
    step: i64,
    count: i64,
    word: i64,
}

/// Host and device as they are.
pub struct Machine {
    start: Epoch,
    /// Steps that the host has consumed.
    host: i64,
    /// Steps that the device has ended.
    device: i64,
    kv: Pointers,
    bound: Pointers,
    bindings: u32,
    /// By graph, the binding that it was captured over.
    graphs: Vec<(GraphId, u32)>,
    said: VecDeque<Said>,
}

impl Machine {
    pub fn new(start: Epoch) -> Self {
        let (kv, bound) = (POINTERS, POINTERS);
        Self { start, host: 0, device: 0, kv, bound, bindings: 1, graphs: Vec::new(), said: VecDeque::new() }
    }

    pub fn device_runs(&mut self, times: i64) {
        self.device += times;
    }

    pub fn device_is_right(&self, step: i64) -> Result<(), i64> {
        if self.device == step + 1 {
            Ok(())
        } else {
            Err(self.device - step - 1)
        }
    }

    fn epoch(&self, steps: i64) -> Epoch {
        Epoch((i64::from(self.start.0) + steps).rem_euclid(1 << 32) as u32)
    }

    fn generation(&self) -> KvGeneration {
        KvGeneration(self.bindings)
    }

    /// Why nothing may be launched over the current addresses.
    fn moved(&self) -> Option<LedgerError> {
        if self.kv.kv != self.bound.kv {
            Some(LedgerError::StaleBinding(self.generation()))
        } else if self.kv.fixed != self.bound.fixed {
            Some(LedgerError::PointersMoved(self.generation()))
        } else {
            None
        }
    }

    /// The device does with a step what `fault` says, and then reports.
    fn step_runs(&mut self, fault: Fault) {
        let step = self.host;
        self.host += 1;
        self.device += match fault {
            Fault::None | Fault::OldMetadata => 1,
            Fault::Skipped => 0,
            Fault::Doubled => 2,
        };
        let word = if fault == Fault::OldMetadata { step - 1 } else { step };
        self.said.push_back(Said { step, count: self.device, word });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    Skipped,
    Doubled,
    OldMetadata,
}

#[derive(Clone, Copy, Debug)]
pub enum Operation {
    Eager { width: u32, fault: Fault },
    Capture { width: u32 },
    Replay { graph: usize, fault: Fault },
    Abandon { is_closed: bool, ends: bool },
    Rebind,
    MoveCaches(u64),
    MoveWeights(u64),
    Report,
}

/// Carries one operation out on both; what each says.
fn carry_out(machine: &mut Machine, ledger: &mut Ledger, operation: Operation) -> [Option<LedgerError>; 2] {
    match operation {
        Operation::Eager { width, fault } => {
            let plan = served(width, machine.generation());
            let found = ledger.expect(&plan, machine.kv).and_then(|epoch| ledger.launched().map(|()| epoch));
            let expected = machine.moved();
            if expected.is_none() {
                assert_eq!(found, Ok(machine.epoch(machine.host)));
                machine.step_runs(fault);
            }
            [found.err(), expected]
        }
        Operation::Capture { width } => {
            let found = ledger.capture(&served(width, machine.generation()), machine.kv);
            if let Ok(graph) = found {
                machine.graphs.push((graph, machine.bindings));
            }
            [found.err(), machine.moved()]
        }
        Operation::Replay { graph, fault } => {
            let Some(&(graph, binding)) = machine.graphs.get(graph) else { return [None, None] };
            let current = machine.generation();
            let captured = KvGeneration(binding);
            let old = (captured != current).then_some(LedgerError::CapturedBeforeRebind { graph, captured, current });
            let expected = old.or_else(|| machine.moved());
            let found = ledger.expect_replay(graph, machine.kv);
            if expected.is_none() {
                assert_eq!(found, Ok(machine.epoch(machine.host)));
                machine.step_runs(fault);
            }
            [found.err(), expected]
        }
        Operation::Abandon { is_closed, ends } => abandon(machine, ledger, is_closed, ends),
        Operation::Rebind => {
            machine.bindings += 1;
            machine.bound = machine.kv;
            assert_eq!(ledger.rebind(machine.kv), Ok(machine.generation()));
            [None, None]
        }
        Operation::MoveCaches(to) => {
            machine.kv.kv = Fingerprint(to);
            [None, None]
        }
        Operation::MoveWeights(to) => {
            machine.kv.fixed = Fingerprint(to);
            [None, None]
        }
        Operation::Report => report(machine, ledger),
    }
}

/// A step that ends early: closed by the host or not, and its epoch ended by the device or not.
fn abandon(machine: &mut Machine, ledger: &mut Ledger, is_closed: bool, ends: bool) -> [Option<LedgerError>; 2] {
    let plan = served(8, machine.generation());
    if let Err(error) = ledger.expect(&plan, machine.kv) {
        return [Some(error), machine.moved()];
    }
    assert_eq!(machine.moved(), None);
    let epoch = machine.epoch(machine.host);
    if !is_closed {
        return [ledger.expect(&plan, machine.kv).err(), Some(LedgerError::Abandoned(epoch))];
    }
    assert_eq!(ledger.close_abandoned(), Ok(epoch));
    machine.step_runs(if ends { Fault::None } else { Fault::Skipped });
    [None, None]
}

fn report(machine: &mut Machine, ledger: &mut Ledger) -> [Option<LedgerError>; 2] {
    let Some(Said { step, count, word }) = machine.said.pop_front() else { return [None, None] };
    let epoch = machine.epoch(step);
    let ahead = count - (step + 1);
    let expected = match ahead {
        0 if word == step => None,
        0 => Some(LedgerError::StaleMetadata { epoch, seen: machine.epoch(word).0 }),
        1.. => Some(LedgerError::Doubled { epoch, by: ahead as u32 }),
        _ => Some(LedgerError::Skipped { epoch, by: -ahead as u32 }),
    };
    let said = DeviceReport { epoch: machine.epoch(count), failed: None, step_word: machine.epoch(word).0 };
    [ledger.report(epoch, said).err(), expected]
}

fn any_operation() -> impl Strategy<Value = Operation> {
    let width = || prop::sample::select(vec![4u32, 8, 12, 16]);
    let fault = || {
        prop_oneof![
            60 => Just(Fault::None),
            1 => Just(Fault::Skipped),
            1 => Just(Fault::Doubled),
            1 => Just(Fault::OldMetadata),
        ]
    };
    prop_oneof![
        8 => (width(), fault()).prop_map(|(width, fault)| Operation::Eager { width, fault }),
        4 => width().prop_map(|width| Operation::Capture { width }),
        16 => (0usize..6, fault()).prop_map(|(graph, fault)| Operation::Replay { graph, fault }),
        2 => (prop::bool::weighted(0.9), prop::bool::weighted(0.9))
            .prop_map(|(is_closed, ends)| Operation::Abandon { is_closed, ends }),
        1 => Just(Operation::Rebind),
        1 => (1u64..3).prop_map(Operation::MoveCaches),
        1 => (2u64..4).prop_map(Operation::MoveWeights),
        26 => Just(Operation::Report),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]
    /// Starts just before the wrap of tags and of the counter as well.
    #[test]
    fn the_ledger_says_what_the_model_says(
        start in prop::sample::select(vec![0u32, 41, (1 << 24) - 3, u32::MAX - 2]),
        operations in prop::collection::vec(any_operation(), 1..120),
    ) {
        let mut machine = Machine::new(Epoch(start));
        let mut ledger = Built::new(Epoch(start)).bind(POINTERS);
        for operation in operations {
            if machine.said.len() >= 30 {
                let [found, expected] = report(&mut machine, &mut ledger);
                prop_assert_eq!(found, expected);
                if found.is_some() {
                    break;
                }
            }
            let [found, expected] = carry_out(&mut machine, &mut ledger, operation);
            prop_assert_eq!(found, expected, "{:?}", operation);
            prop_assert_eq!(ledger.error(), expected);
            if found.is_some() {
                break;
            }
            prop_assert_eq!(ledger.next(), machine.epoch(machine.host));
        }
    }
}
