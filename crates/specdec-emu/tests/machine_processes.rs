//! Ranks as processes: pairs through shared memory, time between processes, processes that are slow, silent or dead.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

mod machine_rank;
mod machine_rig;

use std::time::{Duration, Instant};

use machine_rank::{hear, role, say, Process, Side, GROUPS, PAIRS};
use machine_rig::{compile, launch, read_words, Kernarg};
use specdec_core::device::{Device, MemoryKind, PeerHandle};
use specdec_core::ids::Rank;
use specdec_emu::machine::{Emulator, EmulatorError, Options, PeerError, Stall};

const GAVE_UP: u32 = 0xdead;
/// A time-out of a second in ticks.
const SECOND: u32 = 100_000_000;
const ADVANCE: Stall = Stall::Advance(100_000_000);

/// What both sides of an exchange end with: theirs and the other's.
fn expected(rounds: u32, seeds: [u32; 2]) -> [Vec<u32>; 2] {
    let mut values = seeds.map(|seed| (0..PAIRS as u32).map(|index| seed + index).collect::<Vec<_>>());
    for _ in 0..rounds {
        let [a, b] = &values;
        let next = |mine: &[u32], other: &[u32]| -> Vec<u32> {
            mine.iter().zip(other).map(|(mine, other)| mine.wrapping_mul(3).wrapping_add(*other)).collect()
        };
        values = [next(a, b), next(b, a)];
    }
    values
}

/// Not a test by itself: the other rank's process, when the tests below start this binary again.
#[test]
fn other_rank() {
    let Some(role) = role() else { return };
    let words: Vec<&str> = role.split(' ').collect();
    let stall = if words[0] == "strict" { Stall::Error } else { ADVANCE };
    let mut side = Side::join(&compile("exchange"), stall, 2);
    loop {
        let line = hear();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse().unwrap();
        match words[0] {
            "swap" => {
                side.swap(number(1), number(2), number(3), number(4));
                say("launched");
                match side.emulator.synchronize() {
                    Ok(()) => say(&side.values().iter().map(u32::to_string).collect::<Vec<_>>().join(" ")),
                    Err(error) => say(&error.to_string().replace('\n', " ")),
                }
            }
            "count" => {
                let arguments = Kernarg::new().pointer(side.peers).word(number(1));
                launch(&mut side.emulator, 0, side.module, "count_up", (GROUPS, 64), arguments).unwrap();
                side.emulator.synchronize().unwrap();
                say("counted");
            }
            "free" => {
                side.emulator.free(side.mailbox).unwrap();
                say("freed");
            }
            "ticks" => say(&side.emulator.ticks().to_string()),
            _ => return,
        }
    }
}

fn other(role: &str) -> Process {
    Process::start("other_rank", role)
}

fn numbers(line: &str) -> Vec<u32> {
    line.split(' ').map(|word| word.parse().unwrap_or_else(|_| panic!("{line}"))).collect()
}

/// What this thread has had of a core.
fn busy_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Entries of the folder in which named shared memory lies.
fn shared_files() -> Vec<String> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains("specdec"))
        .collect()
}

#[test]
fn two_processes_exchange_pairs_both_ways() {
    for (role, stall) in [("advance", ADVANCE), ("strict", Stall::Error)] {
        let mut rank = other(role);
        let mut side = Side::meet(&compile("exchange"), stall, &mut rank);
        for run in 0..5 {
            // Pairs of the run before must not be taken for this one's.
            side.emulator.write(side.mailbox, &[0; 16384]).unwrap();
            side.emulator.write(side.peers, &[0; 16384]).unwrap();
            let (rounds, seeds) = (30, [run, 1000 + run]);
            rank.say(&format!("swap {rounds} {} 0 {SECOND}", seeds[1]));
            assert_eq!(rank.hear(), "launched");
            side.swap(rounds, seeds[0], 0, SECOND);
            side.emulator.synchronize().unwrap();
            let [mine, theirs] = expected(rounds, seeds);
            assert_eq!(side.values(), mine, "run {run}");
            assert_eq!(numbers(&rank.hear()), theirs, "run {run}");
        }
        rank.say("ticks");
        let difference = rank.hear().parse::<u64>().unwrap().abs_diff(side.emulator.ticks());
        assert!(difference < u64::from(SECOND), "the clocks have drifted {difference} ticks apart");
    }
}

#[test]
fn read_modify_writes_of_two_processes_are_whole() {
    let mut rank = other("advance");
    let mut side = Side::meet(&compile("exchange"), ADVANCE, &mut rank);
    let rounds = 200;
    rank.say(&format!("count {rounds}"));
    let arguments = Kernarg::new().pointer(side.mailbox).word(rounds);
    launch(&mut side.emulator, 0, side.module, "count_up", (GROUPS, 64), arguments).unwrap();
    side.emulator.synchronize().unwrap();
    assert_eq!(rank.hear(), "counted");
    let all = 2 * rounds * PAIRS as u32;
    assert_eq!(read_words(&side.emulator, side.mailbox, 4), [all, 0, 0, all]);
}

#[test]
fn a_killed_process_lets_the_others_give_up() {
    let before = shared_files();
    let mut rank = other("advance");
    let mut side = Side::meet(&compile("exchange"), ADVANCE, &mut rank);
    rank.say(&format!("swap {} 5 0 {SECOND}", 1 << 30));
    assert_eq!(rank.hear(), "launched");
    side.swap(1 << 30, 6, 0, SECOND);
    let alive = Duration::from_millis(500);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(alive);
        rank.kill();
        Instant::now()
    });
    let (start, first) = (Instant::now(), side.emulator.ticks());
    side.emulator.synchronize().unwrap();
    let killed = killer.join().unwrap();
    assert!(start.elapsed() >= alive, "it gave up while the other was alive");
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    assert!(side.values().contains(&GAVE_UP));
    assert!(side.emulator.ticks() - first >= u64::from(SECOND), "a wait lasts until its time-out");
    assert_eq!(shared_files(), before);
}

#[test]
fn a_process_that_never_launches_is_waited_for_by_the_wall_clock() {
    for stall in [ADVANCE, Stall::Error] {
        let mut rank = other("advance");
        let mut side = Side::meet(&compile("exchange"), stall, &mut rank);
        side.swap(1, 6, 0, SECOND);
        let (start, busy) = (Instant::now(), busy_seconds());
        side.emulator.synchronize().unwrap();
        let waited = start.elapsed();
        let busy = busy_seconds() - busy;
        assert!(busy < 0.3, "waiting took {busy} s of a core");
        assert!(side.values().iter().all(|&value| value == GAVE_UP));
        assert!((0.99..4.0).contains(&waited.as_secs_f64()), "{waited:?}");
    }
}

#[test]
fn a_stopped_process_is_waited_for_by_the_wall_clock() {
    let mut rank = other("advance");
    let mut side = Side::meet(&compile("exchange"), ADVANCE, &mut rank);
    rank.say(&format!("swap {} 5 0 {SECOND}", 1 << 30));
    assert_eq!(rank.hear(), "launched");
    side.swap(1 << 30, 6, 0, SECOND);
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        rank.signal("STOP");
        (rank, Instant::now())
    });
    side.emulator.synchronize().unwrap();
    let (_rank, stopped) = stopper.join().unwrap();
    let waited = stopped.elapsed();
    assert!(side.values().contains(&GAVE_UP));
    assert!((0.9..5.0).contains(&waited.as_secs_f64()), "{waited:?}");
}

#[test]
fn a_slow_process_is_not_taken_for_a_dead_one() {
    let mut rank = other("advance");
    let mut side = Side::meet(&compile("exchange"), ADVANCE, &mut rank);
    // Wall time of the work is several time-outs; its virtual time is a fraction of one.
    let limit = SECOND / 2;
    rank.say(&format!("swap 3 5 4000000 {limit}"));
    assert_eq!(rank.hear(), "launched");
    let start = Instant::now();
    side.swap(3, 6, 0, limit);
    side.emulator.synchronize().unwrap();
    assert!(start.elapsed() > Duration::from_secs(1), "the test needs more work: {:?}", start.elapsed());
    let [mine, theirs] = expected(3, [6, 5]);
    assert_eq!(side.values(), mine);
    assert_eq!(numbers(&rank.hear()), theirs);
}

#[test]
fn time_that_one_spent_running_is_not_waited_for_again() {
    let mut rank = other("advance");
    let mut side = Side::meet(&compile("exchange"), ADVANCE, &mut rank);
    // The other's clock hardly moves for seconds, while this process is in host code.
    rank.say(&format!("swap 0 5 4000000 {SECOND}"));
    assert_eq!(rank.hear(), "launched");
    let start = Instant::now();
    rank.hear();
    assert!(start.elapsed() > Duration::from_secs(1), "the test needs more work: {:?}", start.elapsed());
    let start = Instant::now();
    side.swap(1, 6, 0, SECOND / 4);
    side.emulator.synchronize().unwrap();
    let waited = start.elapsed();
    assert!(side.values().iter().all(|&value| value == GAVE_UP));
    assert!((0.24..1.0).contains(&waited.as_secs_f64()), "{waited:?}");
}

#[test]
fn when_all_wait_time_jumps_or_the_deadlock_is_reported() {
    for (role, stall) in [("advance", ADVANCE), ("strict", Stall::Error)] {
        let mut rank = other(role);
        let mut side = Side::meet(&compile("exchange"), stall, &mut rank);
        // Neither stores what the other waits for.
        rank.say(&format!("swap 3 5 0 {}", 3 * u64::from(SECOND)));
        assert_eq!(rank.hear(), "launched");
        let arguments = Kernarg::new().pointer(side.mailbox).pointer(side.out);
        launch(&mut side.emulator, 0, side.module, "wait_or_give_up", (1, 64), arguments).unwrap();
        let start = Instant::now();
        let ended = side.emulator.synchronize();
        let said = rank.hear();
        assert!(start.elapsed() < Duration::from_secs(2), "three seconds of no one's time: {:?}", start.elapsed());
        if stall == Stall::Error {
            assert!(matches!(ended, Err(EmulatorError::Deadlock { .. })), "{ended:?}");
            assert!(said.starts_with("deadlock"), "{said}");
        } else {
            ended.unwrap();
            assert_eq!(numbers(&said), vec![GAVE_UP; PAIRS]);
        }
    }
}

#[test]
fn a_run_that_waits_for_others_can_be_ended() {
    let mut rank = other("advance");
    let mut side = Side::meet(&compile("exchange"), Stall::Error, &mut rank);
    let words = side.emulator.allocate(Rank(0), MemoryKind::HostPinned, 4, "abort word").unwrap();
    side.emulator.add_abort_word(words).unwrap();
    let handle = side.emulator.abort_handle();
    for is_hard in [false, true, false] {
        side.emulator.write(words, &[0; 4]).unwrap();
        let arguments = Kernarg::new().pointer(side.mailbox).pointer(words).pointer(side.out);
        launch(&mut side.emulator, 0, side.module, "wait_for_abort", (1, 64), arguments).unwrap();
        let asking = handle.clone();
        let asker = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            if is_hard {
                asking.interrupt();
            } else {
                asking.abort();
            }
        });
        let start = Instant::now();
        let ended = side.emulator.synchronize();
        asker.join().unwrap();
        assert!(start.elapsed() < Duration::from_secs(2));
        assert_eq!(matches!(ended, Err(EmulatorError::Interrupted)), is_hard, "{ended:?}");
        assert_eq!(read_words(&side.emulator, words, 1), [u32::from(!is_hard)]);
        assert_eq!(handle.is_aborted(), !is_hard);
        handle.clear();
    }
}

/// A handle with some bytes changed.
fn changed(handle: &PeerHandle, at: usize, xor: u8) -> PeerHandle {
    let mut other = *handle;
    other.0[at] ^= xor;
    other
}

fn refusal(result: Result<impl Sized, EmulatorError>) -> PeerError {
    match result.err() {
        Some(EmulatorError::Peer(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn handles_that_lead_nowhere_are_refused() {
    let mut rank = other("advance");
    let process = rank.id();
    let mut side = Side::new(&compile("exchange"), ADVANCE, 1);
    let handle = rank.hear_handle();
    let world = side.emulator.create_world(2).unwrap();
    rank.say_handle(&world);
    let own = side.emulator.export_peer(side.mailbox).unwrap();
    rank.say_handle(&own);
    assert_eq!(rank.hear(), "ready");
    let mut import = |handle: &PeerHandle| side.emulator.import_peer(handle, Rank(0));
    assert_eq!(refusal(import(&own)), PeerError::OwnProcess);
    assert_eq!(refusal(import(&PeerHandle([7; 64]))), PeerError::Foreign);
    assert!(matches!(refusal(import(&world)), PeerError::WrongKind { .. }));
    // Descriptor, bytes, start time, nonce.
    assert_eq!(refusal(import(&changed(&handle, 13, 1))), PeerError::Stale { process });
    assert!(matches!(refusal(import(&changed(&handle, 17, 1))), PeerError::Truncated { .. }));
    assert_eq!(refusal(import(&changed(&handle, 24, 1))), PeerError::Ended { process });
    assert_eq!(refusal(import(&changed(&handle, 40, 1))), PeerError::Stale { process });

    let first = import(&handle).unwrap();
    assert_eq!(import(&handle).unwrap(), first, "one mapping serves all ranks");
    let not_own = refusal(side.emulator.export_peer(first));
    assert_eq!(
        not_own.to_string(),
        format!("`peer buffer of process {process}` belongs to another process and cannot be exported from here")
    );
    assert!(matches!(refusal(side.emulator.free(first)), PeerError::Imported { .. }));
    side.emulator.close_peer(first).unwrap();
    side.emulator.write(first, &[1]).unwrap();
    side.emulator.close_peer(first).unwrap();
    assert!(side.emulator.write(first, &[1]).is_err());
    assert!(matches!(refusal(side.emulator.close_peer(first)), PeerError::NotImported { .. }));

    rank.say("free");
    assert_eq!(rank.hear(), "freed");
    assert_eq!(refusal(side.emulator.import_peer(&handle, Rank(0))), PeerError::Stale { process });
    rank.kill();
    assert_eq!(refusal(side.emulator.import_peer(&handle, Rank(0))), PeerError::Ended { process });
}

#[test]
fn only_uncached_memory_and_known_places_are_shared() {
    let mut emulator = Emulator::new(Options::default());
    let plain = emulator.allocate(Rank(0), MemoryKind::Device, 64, "plain").unwrap();
    assert!(matches!(refusal(emulator.export_peer(plain)), PeerError::NotUncached { .. }));
    let shared = emulator.allocate(Rank(0), MemoryKind::Uncached, 64, "shared").unwrap();
    assert!(emulator.export_peer(shared.offset(8)).is_err());
    assert_eq!(emulator.export_peer(shared).unwrap(), emulator.export_peer(shared).unwrap());
    assert!(emulator.create_world(0).is_err() && emulator.create_world(1000).is_err());
    let world = emulator.create_world(3).unwrap();
    assert!(emulator.create_world(3).unwrap_err().to_string().contains("in a world already"));
    assert!(matches!(refusal(Emulator::new(Options::default()).join_world(&world, 1)), PeerError::OwnProcess));
}
