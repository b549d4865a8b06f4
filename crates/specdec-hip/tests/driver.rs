//! The driver on two devices of the fake library: what it does, in which order, and what it refuses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

mod fake;

use fake::{bytes, code_object, kernarg, launch, words, Fake};
use specdec_core::device::{Device, Launch, MemoryKind};
use specdec_core::ids::{DeviceAddress, Rank};
use specdec_hip::{HipDevice, HipError, HipModule, Status};

const ZERO: Rank = Rank(0);
const ONE: Rank = Rank(1);

fn two_ranks(fake: &Fake) -> (HipDevice, HipModule) {
    let mut device = HipDevice::new(&fake.hip(), &[0, 1]).unwrap();
    let module = device.load(code_object()).unwrap();
    (device, module)
}

fn buffer(device: &mut HipDevice, rank: Rank) -> DeviceAddress {
    device.allocate(rank, MemoryKind::Device, 256, "buffer").unwrap()
}

/// What `affine` makes of these values.
fn affine(values: &[u32], term: u32) -> Vec<u32> {
    values.iter().map(|value| value.wrapping_mul(3).wrapping_add(term)).collect()
}

/// A binding keeps the driver behind a lock, so it crosses threads.
const _: () = {
    const fn crosses_threads<T: Send>() {}
    crosses_threads::<HipDevice>();
    crosses_threads::<specdec_hip::HipGraph>();
};

#[test]
fn what_is_queued_on_a_rank_runs_in_order() {
    let fake = Fake::new(2);
    let (mut device, module) = two_ranks(&fake);
    let (a, b) = (buffer(&mut device, ONE), buffer(&mut device, ONE));
    assert_eq!(words(&device, a).unwrap(), [0; 64], "memory comes zeroed");
    let mut expected: Vec<u32> = (0..64).collect();
    device.queue_write(ONE, a, &bytes(&expected)).unwrap();
    for term in 0..5 {
        launch(&mut device, 1, module, "affine", kernarg(&[a, b], &[term])).unwrap();
        device.queue_copy(ONE, a, b, 256).unwrap();
        expected = affine(&expected, term);
    }
    device.queue_write(ONE, b, &bytes(&[9; 64])).unwrap();
    device.synchronize().unwrap();
    assert_eq!(words(&device, a).unwrap(), expected);
    assert_eq!(words(&device, b).unwrap(), [9; 64]);
}

#[test]
fn ranks_run_at_the_same_time() {
    let fake = Fake::with_options(2, r#"{"seed": 5, "schedule": "priorities"}"#);
    let (mut device, module) = two_ranks(&fake);
    let mut mailbox = |rank| device.allocate(rank, MemoryKind::Uncached, 1024, "mailbox").unwrap();
    let mailboxes = [mailbox(ZERO), mailbox(ONE)];
    let seen = [device.map_peer(mailboxes[1], ONE, ZERO).unwrap(), device.map_peer(mailboxes[0], ZERO, ONE).unwrap()];
    let outs = [buffer(&mut device, ZERO), buffer(&mut device, ONE)];
    let rounds = 7;
    for rank in 0..2 {
        // A copy and a second launch behind the first one: ranks meet only as far as their kernels make them.
        let arguments = kernarg(&[mailboxes[rank], seen[rank], outs[rank]], &[100 * rank as u32, rounds]);
        launch(&mut device, rank as u8, module, "trade", arguments).unwrap();
        device.queue_copy(Rank(rank as u8), mailboxes[rank].offset(512), outs[rank], 256).unwrap();
    }
    device.synchronize().unwrap();
    let mut values = [0, 100].map(|first: u32| (first..first + 64).collect::<Vec<_>>());
    for _ in 0..rounds {
        let next = |mine: &[u32], peers: &[u32]| -> Vec<u32> {
            mine.iter().zip(peers).map(|(mine, peer)| mine.wrapping_mul(5).wrapping_add(*peer)).collect()
        };
        values = [next(&values[0], &values[1]), next(&values[1], &values[0])];
    }
    for rank in 0..2 {
        assert_eq!(words(&device, outs[rank]).unwrap(), values[rank]);
        assert_eq!(words(&device, mailboxes[rank].offset(512)).unwrap(), values[rank]);
    }
    assert!(matches!(device.map_peer(outs[0], ONE, ZERO), Err(HipError::NotHeld { rank: Some(ONE), .. })));
}

#[test]
fn a_graph_does_what_was_captured_as_often_as_it_is_launched() {
    let fake = Fake::new(2);
    let (mut device, module) = two_ranks(&fake);
    let (a, b) = (buffer(&mut device, ZERO), buffer(&mut device, ZERO));
    let start: Vec<u32> = (0..64).map(|index| index * 7).collect();
    // Eager: three steps, each from where the last one ended, and a write behind the first launch.
    let steps = |device: &mut HipDevice, term: u32| {
        launch(device, 0, module, "affine", kernarg(&[a, b], &[term])).unwrap();
        device.queue_write(ZERO, a, &bytes(&[term; 32])).unwrap();
        device.queue_copy(ZERO, a.offset(128), b.offset(64), 128).unwrap();
    };
    device.write(a, &bytes(&start)).unwrap();
    for _ in 0..3 {
        steps(&mut device, 11);
    }
    device.synchronize().unwrap();
    let eager = (words(&device, a).unwrap(), words(&device, b).unwrap());
    let [first, second] = [11, 40].map(|term| {
        device.begin_capture(ZERO).unwrap();
        steps(&mut device, term);
        device.end_capture(ZERO).unwrap()
    });
    device.write(a, &bytes(&start)).unwrap();
    for _ in 0..3 {
        device.launch_graph(ZERO, &first).unwrap();
    }
    device.synchronize().unwrap();
    assert_eq!((words(&device, a).unwrap(), words(&device, b).unwrap()), eager);
    // A second graph has bytes of its own, and the first one's are still there after it.
    device.launch_graph(ZERO, &second).unwrap();
    device.synchronize().unwrap();
    assert_eq!(words(&device, a).unwrap()[..32], [40; 32]);
    drop(second);
    device.launch_graph(ZERO, &first).unwrap();
    device.synchronize().unwrap();
    assert_eq!(words(&device, a).unwrap()[..32], [11; 32]);
    assert!(matches!(device.launch_graph(ONE, &first), Err(HipError::OtherRank { made: ZERO, asked: ONE })));
    // The driver may go first: it waits for what is queued.
    device.launch_graph(ZERO, &first).unwrap();
    device.close().unwrap();
    drop(first);
    assert_eq!(fake.live(), []);
}

#[test]
fn a_capture_is_kept_from_what_would_spoil_it() {
    let fake = Fake::new(2);
    let (mut device, module) = two_ranks(&fake);
    let (a, b) = (buffer(&mut device, ZERO), buffer(&mut device, ZERO));
    assert!(matches!(device.end_capture(ZERO), Err(HipError::NotCapturing { rank: ZERO })));
    device.begin_capture(ZERO).unwrap();
    assert_eq!([ZERO, ONE].map(|rank| device.is_capturing(rank).unwrap()), [true, false]);
    launch(&mut device, 0, module, "affine", kernarg(&[a, b], &[1])).unwrap();
    let mut word = [0; 4];
    let refused = [
        device.allocate(ONE, MemoryKind::Device, 4, "late").err(),
        device.free(a).err(),
        device.write(a, &word).err(),
        device.read(a, &mut word).err(),
        device.load(code_object()).err(),
        device.synchronize().err(),
        device.begin_capture(ONE).err(),
        device.map_peer(a, ZERO, ONE).err(),
        device.export_peer(a).err(),
        device.queue_write(ONE, a, &vec![0; 1 << 20]).err(),
    ];
    for error in refused.map(Option::unwrap) {
        assert!(matches!(error, HipError::Capturing { rank: ZERO, .. }), "{error}");
    }
    // The other rank may go on, and the capture is whole.
    device.queue_write(ONE, b, &word).unwrap();
    let graph = device.end_capture(ZERO).unwrap();
    device.write(a, &bytes(&[2; 64])).unwrap();
    device.launch_graph(ZERO, &graph).unwrap();
    device.synchronize().unwrap();
    assert_eq!(words(&device, b).unwrap(), [7; 64]);
    // What a capture writes must fit what was reserved before it.
    device.set_capture_bytes(ZERO, 1000).unwrap();
    device.begin_capture(ZERO).unwrap();
    let error = device.queue_write(ZERO, a, &vec![0; 1 << 20]).unwrap_err();
    assert!(matches!(error, HipError::CaptureFull { rank: ZERO, bytes: 0x10_0000, .. }), "{error}");
    drop(device);
    drop(graph);
    assert_eq!(fake.live(), [], "a capture that nobody ends ends with the driver");
}

#[test]
fn the_bytes_of_thousands_of_writes_may_be_reused_at_once() {
    let fake = Fake::new(2);
    let (mut device, _) = two_ranks(&fake);
    let places: Vec<DeviceAddress> =
        (0..2).map(|rank| device.allocate(Rank(rank), MemoryKind::Device, 4 << 20, "places").unwrap()).collect();
    let before = fake.count("hipStreamSynchronize");
    let mut reused = Vec::new();
    let mut expected = [vec![0u8; 4 << 20], vec![0u8; 4 << 20]];
    let mut offset = 0;
    for index in 0..6000usize {
        let (rank, length) = (index % 2, 1 + index * 37 % 600);
        reused.clear();
        reused.extend((0..length).map(|at| (at * 31 + index) as u8));
        device.queue_write(Rank(rank as u8), places[rank].offset(offset), &reused).unwrap();
        expected[rank][offset as usize..][..length].copy_from_slice(&reused);
        offset += length as u64;
    }
    // A write that no half of the ring holds.
    let large: Vec<u8> = (0..1_100_000).map(|at| (at % 251) as u8).collect();
    device.queue_write(ONE, places[1].offset(offset), &large).unwrap();
    expected[1][offset as usize..][..large.len()].copy_from_slice(&large);
    drop(large);
    let waits = fake.count("hipStreamSynchronize") - before;
    device.synchronize().unwrap();
    for rank in 0..2 {
        let mut found = vec![0; 4 << 20];
        device.read(places[rank], &mut found).unwrap();
        assert!(found == expected[rank], "rank {rank}");
    }
    assert!((1..100).contains(&waits), "{waits} waits for 6001 writes");
}

#[test]
fn everything_may_go_while_launches_are_queued() {
    let fake = Fake::new(2);
    let (mut device, module) = two_ranks(&fake);
    let mut tensor = vec![1u32; 64];
    let out = tensor.as_mut_ptr();
    // SAFETY: the vector outlives the driver, and is read only when that is gone.
    let out = unsafe { device.register(ZERO, out as usize, 256) }.unwrap();
    let a = buffer(&mut device, ZERO);
    device.write(a, &bytes(&[5; 64])).unwrap();
    launch(&mut device, 0, module, "affine", kernarg(&[a, out], &[2])).unwrap();
    // The fake library refuses to free what is queued, so this has waited.
    device.free(a).unwrap();
    let b = buffer(&mut device, ZERO);
    launch(&mut device, 0, module, "affine", kernarg(&[out, b], &[0])).unwrap();
    device.queue_copy(ZERO, out, b, 256).unwrap();
    drop(device);
    assert_eq!(fake.live(), []);
    assert_eq!(tensor, [51; 64]);
}

#[test]
fn another_thread_tells_a_running_kernel_to_give_up() {
    // Virtual time jumps when all wait, and the kernel looks again.
    let fake = Fake::with_options(2, r#"{"stall": "advance", "advance_ticks": 1000, "budget": 100000000}"#);
    let (mut device, module) = two_ranks(&fake);
    let abort = device.allocate(ZERO, MemoryKind::HostPinned, 64, "abort").unwrap();
    let word = device.pinned_word(abort.offset(8)).unwrap();
    assert_eq!(word.load(), 0);
    let watcher = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        word.store(1);
        word
    });
    launch(&mut device, 0, module, "stuck", kernarg(&[abort.offset(8)], &[])).unwrap();
    device.synchronize().unwrap();
    let word = watcher.join().unwrap();
    assert!(device.pinned_word(abort.offset(6)).is_err() && device.pinned_word(abort.offset(64)).is_err());
    // The watcher's word keeps its memory.
    device.free(abort).unwrap();
    device.close().unwrap();
    word.store(2);
    assert_eq!((word.load(), fake.live()), (2, vec![("pinned", 1)]));
    drop(word);
    assert_eq!(fake.live(), []);
}

#[test]
fn a_launch_that_goes_wrong_names_what_and_where() {
    let fake = Fake::new(2);
    let (mut device, module) = two_ranks(&fake);
    let a = buffer(&mut device, ONE);
    let error = launch(&mut device, 1, module, "affine", kernarg(&[a, a], &[])).unwrap_err();
    let text = "`hipModuleLaunchKernel` of `affine`, 1 workgroups of 64, 16 bytes of arguments on rank 1 failed with \
                hipErrorInvalidValue (1): invalid argument";
    assert_eq!(error.to_string(), text);
    assert!(fake.message().contains("got 16 bytes of arguments; it takes 20"), "{}", fake.message());
    let error = launch(&mut device, 1, module, "afine", kernarg(&[a, a], &[1])).unwrap_err();
    let text = "`hipModuleGetFunction` of `afine` failed with hipErrorNotFound (500): named symbol not found";
    assert_eq!(error.to_string(), text);
    let full = Launch { module, symbol: "stuck", grid: 1 << 20, block: 64, kernarg: kernarg(&[a], &[]) };
    let error = device.launch(ONE, &full).unwrap_err();
    assert!(matches!(error, HipError::Call { status: Status(701), .. }), "{error}");
    assert!(error.hint().contains("resident"));
    launch(&mut device, 1, module, "wild", kernarg(&[a], &[])).unwrap();
    let error = device.synchronize().unwrap_err();
    let text =
        "`hipStreamSynchronize` of rank 1 failed with hipErrorIllegalAddress (700): an illegal memory access was \
                encountered";
    assert_eq!(error.to_string(), text);
    assert!(fake.message().contains("wild"), "{}", fake.message());
    launch(&mut device, 0, module, "stuck", kernarg(&[a], &[])).unwrap();
    let error = device.close().unwrap_err();
    assert!(matches!(error, HipError::Call { function: "hipStreamSynchronize", status: Status(719), .. }), "{error}");
    assert!(fake.message().contains("deadlock"), "{}", fake.message());
    assert_eq!(fake.live(), []);
}

#[test]
fn what_is_not_the_drivers_is_refused() {
    let fake = Fake::new(2);
    let (mut device, _) = two_ranks(&fake);
    let a = buffer(&mut device, ZERO);
    device.free(a).unwrap();
    assert!(matches!(device.free(a), Err(HipError::NotHeld { address, rank: None }) if address == a));
    assert!(matches!(device.close_peer(a), Err(HipError::NotHeld { .. })));
    let pinned = device.allocate(ZERO, MemoryKind::HostPinned, 256, "pinned").unwrap();
    assert!(matches!(device.export_peer(pinned), Err(HipError::NotHeld { .. })));
    let error = device.allocate(Rank(2), MemoryKind::Device, 1, "nobody's").unwrap_err();
    assert_eq!(error.to_string(), "rank 2 of a driver that has 2 in this process");
    let error = device.allocate(ONE, MemoryKind::Uncached, u64::MAX, "everything").unwrap_err();
    assert!(matches!(error, HipError::Call { function: "hipExtMallocWithFlags", .. }), "{error}");
    assert!(matches!(device.load(b"\x7fELF"), Err(HipError::BadCodeObject { .. })));
    let error = HipDevice::new(&fake.hip(), &[2]).unwrap_err();
    assert_eq!(error.to_string(), "`hipSetDevice` failed with hipErrorInvalidDevice (101): invalid device ordinal");
    let error = specdec_hip::Hip::open(std::path::Path::new("/nowhere/libamdhip64.so.7")).unwrap_err();
    assert_eq!(error.to_string(), "HIP not found: looked for `/nowhere/libamdhip64.so.7`");
}
