//! Streams: launches and copies in order, graphs that repeat them, host calls that a capture forbids.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod machine_rig;

use machine_rig::{assemble, buffer, compile, launch, read_words, words, Kernarg};
use proptest::prelude::*;
use specdec_core::device::{Device, MemoryKind};
use specdec_core::ids::{DeviceAddress, Rank};
use specdec_emu::machine::{Emulator, EmulatorError, ModuleHandle, Options, StreamError};

const RANK: Rank = Rank(0);

/// Stores three times the first argument's word, plus one, to the second.
const STEP: &str = "s_load_dwordx4 s[4:7], s[0:1], 0x0\nv_mov_b32 v1, 0\ns_waitcnt lgkmcnt(0)\n\
                    global_load_dword v2, v1, s[4:5]\ns_waitcnt vmcnt(0)\nv_mul_lo_u32 v2, v2, 3\nv_add_u32 v2, 1, v2\n\
                    global_store_dword v1, v2, s[6:7]";

/// What a stream may be asked to do with a few words.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Launch(usize, usize),
    Write(usize, u32),
    Copy(usize, usize),
}

const WORDS: usize = 4;

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let ask = prop_oneof![
        (0..WORDS, 0..WORDS).prop_map(|(from, to)| Ask::Launch(from, to)),
        (0..WORDS, any::<u32>()).prop_map(|(to, value)| Ask::Write(to, value)),
        (0..WORDS, 0..WORDS).prop_map(|(from, to)| Ask::Copy(from, to)),
    ];
    proptest::collection::vec(ask, 1..24)
}

/// The same on the host.
fn expected(asks: &[Ask], mut memory: [u32; WORDS]) -> [u32; WORDS] {
    for ask in asks {
        match *ask {
            Ask::Launch(from, to) => memory[to] = memory[from].wrapping_mul(3).wrapping_add(1),
            Ask::Write(to, value) => memory[to] = value,
            Ask::Copy(from, to) => memory[to] = memory[from],
        }
    }
    memory
}

fn queue(emulator: &mut Emulator, module: ModuleHandle, memory: DeviceAddress, asks: &[Ask]) {
    let word = |index: usize| memory.offset(4 * index as u64);
    for ask in asks {
        match *ask {
            Ask::Launch(from, to) => {
                launch(emulator, 0, module, "f", (1, 64), Kernarg::new().pointer(word(from)).pointer(word(to)))
                    .unwrap();
            }
            Ask::Write(to, value) => emulator.queue_write(RANK, word(to), &value.to_le_bytes()).unwrap(),
            Ask::Copy(from, to) => emulator.queue_copy(RANK, word(to), word(from), 4).unwrap(),
        }
    }
}

#[test]
fn a_stream_and_its_graph_do_everything_in_order() {
    let code = assemble(STEP, 0);
    let mut runner = proptest::test_runner::TestRunner::default();
    let start = [5, 6, 7, 8];
    runner
        .run(&asks(), |asks| {
            let mut emulator = Emulator::new(Options::default());
            let module = emulator.load(&code).unwrap();
            let memory = words(&mut emulator, "memory", &start);
            queue(&mut emulator, module, memory, &asks);
            prop_assert_eq!(read_words(&emulator, memory, WORDS), start, "nothing runs before it is waited for");
            emulator.synchronize().unwrap();
            let once = expected(&asks, start);
            prop_assert_eq!(read_words(&emulator, memory, WORDS), once);

            emulator.begin_capture(RANK).unwrap();
            prop_assert!(emulator.is_capturing(RANK).unwrap());
            queue(&mut emulator, module, memory, &asks);
            let graph = emulator.end_capture(RANK).unwrap();
            prop_assert!(!emulator.is_capturing(RANK).unwrap());
            prop_assert_eq!(graph.num_entries(), asks.len());
            emulator.synchronize().unwrap();
            prop_assert_eq!(read_words(&emulator, memory, WORDS), once, "a capture runs nothing");
            emulator.launch_graph(RANK, &graph).unwrap();
            emulator.launch_graph(RANK, &graph).unwrap();
            emulator.synchronize().unwrap();
            prop_assert_eq!(read_words(&emulator, memory, WORDS), expected(&asks, expected(&asks, once)));
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_queued_write_wakes_another_ranks_poll() {
    let mut emulator = Emulator::new(Options { ranks: 2, ..Options::default() });
    let module = emulator.load(&compile("exchange")).unwrap();
    let region = emulator.allocate(RANK, MemoryKind::Uncached, 512, "region").unwrap();
    let out = buffer(&mut emulator, 0, 256, "out");
    let step = emulator.load(&assemble(STEP, 0)).unwrap();
    let word = words(&mut emulator, "word", &[1]);
    launch(&mut emulator, 0, module, "wait_or_give_up", (1, 64), Kernarg::new().pointer(region).pointer(out)).unwrap();
    // Rank 1 has something to do first, so that the poll waits by then.
    launch(&mut emulator, 1, step, "f", (1, 64), Kernarg::new().pointer(word).pointer(word)).unwrap();
    let pairs: Vec<u8> = (0..64u64).flat_map(|lane| (7 << 32 | (100 + lane)).to_le_bytes()).collect();
    emulator.queue_write(Rank(1), region, &pairs).unwrap();
    emulator.synchronize().unwrap();
    assert_eq!(read_words(&emulator, out, 64), (100..164).collect::<Vec<_>>());
}

type Call = fn(&mut Emulator, DeviceAddress) -> Result<(), EmulatorError>;

#[test]
fn host_calls_make_a_capture_void() {
    let mut emulator = Emulator::new(Options { ranks: 2, ..Options::default() });
    let memory = buffer(&mut emulator, 0, 16, "memory");
    let calls: [(&str, Call); 5] = [
        ("write", |emulator, at| emulator.write(at, &[1])),
        ("read", |emulator, at| emulator.read(at, &mut [0])),
        ("synchronize", |emulator, _| emulator.synchronize()),
        ("allocate", |emulator, _| emulator.allocate(RANK, MemoryKind::Device, 4, "more").map(|_| ())),
        ("free", |emulator, at| emulator.free(at)),
    ];
    for (name, call) in calls {
        emulator.begin_capture(Rank(1)).unwrap();
        emulator.queue_write(Rank(1), memory, &[9]).unwrap();
        let refused = call(&mut emulator, memory).unwrap_err();
        let EmulatorError::Stream(refused) = refused else { unreachable!("{refused}") };
        assert_eq!(refused, StreamError::Capturing { call: name, rank: Rank(1) });
        let ended = emulator.end_capture(Rank(1)).unwrap_err();
        assert!(ended.to_string().contains(&format!("`{name}`")), "{ended}");
    }
    emulator.synchronize().unwrap();
    assert_eq!(read_words(&emulator, memory, 1), [0]);
}

#[test]
fn captures_and_graphs_belong_to_one_rank() {
    let mut emulator = Emulator::new(Options { ranks: 2, ..Options::default() });
    let memory = buffer(&mut emulator, 0, 16, "memory");
    assert!(emulator.end_capture(RANK).unwrap_err().to_string().contains("does not capture"));
    emulator.begin_capture(RANK).unwrap();
    assert!(emulator.begin_capture(RANK).unwrap_err().to_string().contains("captures already"));
    emulator.queue_write(Rank(1), memory, &[1; 4]).unwrap();
    emulator.queue_write(RANK, memory.offset(4), &[2; 4]).unwrap();
    let graph = emulator.end_capture(RANK).unwrap();
    assert_eq!((graph.rank(), graph.num_entries()), (RANK, 1));
    let refused = emulator.launch_graph(Rank(1), &graph).unwrap_err();
    assert_eq!(refused.to_string(), "a graph of rank 0 cannot be launched on rank 1");
    emulator.synchronize().unwrap();
    assert_eq!(read_words(&emulator, memory, 2), [0x0101_0101, 0]);
}

#[test]
fn copies_are_checked_when_queued_and_when_run() {
    let mut emulator = Emulator::new(Options::default());
    let memory = buffer(&mut emulator, 0, 16, "memory");
    let fresh = emulator.allocate_unwritten(RANK, MemoryKind::Device, 16, "fresh").unwrap();
    assert!(emulator.queue_write(RANK, memory.offset(8), &[0; 9]).is_err());
    assert!(emulator.queue_copy(RANK, memory, fresh.offset(1), 16).is_err());
    emulator.queue_copy(RANK, memory, fresh, 16).unwrap();
    let unwritten = emulator.synchronize().unwrap_err().to_string();
    assert!(unwritten.contains("`fresh` + 0x0 on rank 0 reads memory that nobody has written"), "{unwritten}");
    emulator.begin_capture(RANK).unwrap();
    emulator.queue_write(RANK, fresh, &[3; 16]).unwrap();
    let graph = emulator.end_capture(RANK).unwrap();
    emulator.free(fresh).unwrap();
    emulator.launch_graph(RANK, &graph).unwrap();
    assert!(emulator.synchronize().unwrap_err().to_string().contains("in no one allocation"));
}
