use super::*;
use crate::geometry::NANO;
use crate::null_device::{NullDevice, NullGraph};
use crate::plan::runs;

fn engine() -> Engine<NullDevice> {
    let shard = NANO.shard(2).unwrap();
    let options = EngineOptions { timeout_seconds: 3.0, witness: false };
    let mut engine = Engine::new(NullDevice::default(), shard, &[vec![]], options).unwrap();
    for layer in (0..NANO.num_layers as u8).map(Layer) {
        let Some(kind) = NANO.layer_kind(layer) else { continue };
        for rank in [Rank(0), Rank(1)] {
            let descriptor =
                LayerDescriptor { layer: u32::from(layer.0), kind: kind as u32, ..LayerDescriptor::default() };
            engine.bind_layer(rank, &descriptor).unwrap();
        }
    }
    engine
}

fn activations() -> Activations {
    let at = DeviceAddress(4096);
    Activations { prefix: at, blocks: at, blocks_row_stride: 1, block_stride: 1, delta: at, core: at, has_delta: true }
}

fn shape() -> StepShape {
    StepShape::new(2, 3).unwrap()
}

#[test]
fn a_step_is_counted_by_its_last_launch() {
    let mut engine = engine();
    let runs = runs(&NANO, 0..=255);
    for step in 0..3 {
        for (index, &run) in runs.iter().enumerate() {
            assert_eq!(engine.next_step(Rank(0)).unwrap(), Epoch(step));
            engine.launch(Rank(0), run, shape(), &activations(), index + 1 == runs.len()).unwrap();
        }
    }
    assert_eq!((engine.next_step(Rank(0)).unwrap(), engine.next_step(Rank(1)).unwrap()), (Epoch(3), Epoch(0)));
    assert_eq!(engine.device.launches, 3 * runs.len() as u64);
}

#[test]
fn only_an_open_step_can_be_closed_and_it_counts() {
    let mut engine = engine();
    let run = runs(&NANO, 0..=255)[0];
    assert!(matches!(engine.close_step(Rank(1)), Err(EngineError::NoOpenStep(Rank(1)))));
    engine.launch(Rank(1), run, shape(), &activations(), false).unwrap();
    assert!(matches!(engine.begin_capture(Rank(1)), Err(EngineError::OpenStep(Rank(1)))));
    assert!(matches!(engine.replay(Rank(1), &NullGraph::default()), Err(EngineError::OpenStep(Rank(1)))));
    assert_eq!(engine.close_step(Rank(1)).unwrap(), Epoch(1));
    assert!(matches!(engine.close_step(Rank(1)), Err(EngineError::NoOpenStep(Rank(1)))));
}

#[test]
fn a_capture_is_no_step_and_each_replay_is_one() {
    let mut engine = engine();
    let run = runs(&NANO, 0..=255)[0];
    engine.begin_capture(Rank(0)).unwrap();
    let refused = engine.launch(Rank(0), run, shape(), &activations(), true);
    assert!(matches!(refused, Err(EngineError::Unprepared(Rank(0)))), "no table is written inside a capture");
    engine.end_capture(Rank(0)).unwrap();
    engine.prepare(shape()).unwrap();
    engine.begin_capture(Rank(0)).unwrap();
    engine.launch(Rank(0), run, shape(), &activations(), true).unwrap();
    let graph = engine.end_capture(Rank(0)).unwrap();
    assert_eq!(engine.next_step(Rank(0)).unwrap(), Epoch(0));
    for step in 1..4 {
        engine.replay(Rank(0), &graph).unwrap();
        assert_eq!(engine.next_step(Rank(0)).unwrap(), Epoch(step));
        assert_eq!(engine.epoch(Rank(0)).unwrap(), Epoch(step), "the device counts them too");
    }
    assert_eq!(engine.epoch(Rank(1)).unwrap(), Epoch(0));
}

#[test]
fn a_report_says_what_the_device_holds_when_it_is_queued() {
    let mut engine = engine();
    let run = runs(&NANO, 0..=255)[0];
    for step in 0..3 {
        engine.launch(Rank(1), run, shape(), &activations(), true).unwrap();
        assert_eq!(engine.report(Rank(1), Epoch(step)).unwrap(), None, "nobody has asked for it");
        engine.queue_report(Rank(1), Epoch(step)).unwrap();
    }
    for step in 0..3 {
        let report = engine.report(Rank(1), Epoch(step)).unwrap().unwrap();
        assert_eq!((report.epoch, report.step, report.is_alarmed()), (Epoch(step + 1), Epoch(step), false));
    }
    engine.self_test().unwrap();
}

#[test]
fn ranks_of_other_processes_are_refused_and_need_handles() {
    let options = EngineOptions { timeout_seconds: 3.0, witness: false };
    let alone =
        || Unlinked::new(NullDevice::default(), NANO.shard(2).unwrap(), &[Rank(1)], &[vec![]], options).unwrap();
    assert!(matches!(alone().link(&[]), Err(EngineError::Handles(0, 2))));
    let mut unlinked = alone();
    let handles = unlinked.handles().unwrap();
    assert_eq!(handles.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [Rank(1)]);
    let mut engine = unlinked.link(&[handles[0].1, handles[0].1]).unwrap();
    let error = engine.close_step(Rank(0)).unwrap_err();
    assert_eq!(error.to_string(), "rank 0 is not of this process, which has rank 1");
}
