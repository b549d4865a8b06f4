//! Waves that wait for each other: across workgroups and ranks, parked, timed out, tapped, with faults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

mod machine_rig;

use machine_rig::{buffer, compile, launch, read_words, Kernarg};
use specdec_core::device::{Device, MemoryKind};
use specdec_core::ids::{DeviceAddress, Rank};
use specdec_emu::machine::{
    Emulator, Fault, ModuleHandle, Options, Stall, Statistics, StoreFault, StorePlace, TapForm, TapRegion,
};
use specdec_emu::op::Op;

const GROUPS: u32 = 4;
const PAIRS: usize = GROUPS as usize * 64;

/// Two ranks with a mailbox and an output each, `swap_rounds` queued on both.
fn swap(emulator: &mut Emulator, module: ModuleHandle, rounds: u32) -> [(DeviceAddress, DeviceAddress); 2] {
    let ranks = [0, 1].map(|rank| {
        let mailbox = emulator.allocate(Rank(rank), MemoryKind::Uncached, 16384, "mailbox").unwrap();
        (mailbox, buffer(emulator, rank, 4 * PAIRS as u64, "out"))
    });
    for rank in 0..2u8 {
        let (mine, out) = ranks[rank as usize];
        let (peers, _) = ranks[1 - rank as usize];
        let peers = emulator.map_peer(peers, Rank(1 - rank), Rank(rank)).unwrap();
        let arguments = Kernarg::new().pointer(mine).pointer(peers).pointer(out).word(rounds).word(rank as u32 * 1000);
        launch(emulator, rank, module, "swap_rounds", (GROUPS, 64), arguments).unwrap();
    }
    ranks
}

fn expected(rounds: u32) -> [Vec<u32>; 2] {
    let mut values = [0, 1000].map(|seed: u32| (0..PAIRS as u32).map(|index| seed + index).collect::<Vec<_>>());
    for _ in 0..rounds {
        let [a, b] = &values;
        let next = |mine: &[u32], other: &[u32]| -> Vec<u32> {
            mine.iter().zip(other).map(|(mine, other)| mine.wrapping_mul(3).wrapping_add(*other)).collect()
        };
        values = [next(a, b), next(b, a)];
    }
    values
}

fn two_ranks(seed: u64, quantum: u64) -> Options {
    Options { ranks: 2, seed, quantum, ..Options::default() }
}

#[test]
fn two_ranks_exchange_pairs_under_fifty_seeds() {
    let code = compile("exchange");
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let mut emulator = Emulator::new(two_ranks(seed, 1 + seed % 40));
        let module = emulator.load(&code).unwrap();
        let ranks = swap(&mut emulator, module, 20);
        emulator.synchronize().unwrap();
        for (rank, values) in expected(20).into_iter().enumerate() {
            assert_eq!(read_words(&emulator, ranks[rank].1, PAIRS), values, "rank {rank}, seed {seed}");
        }
        orders.insert(emulator.statistics().wave_instructions);
    }
    assert!(orders.len() > 10, "the seeds are meant to give different schedules");
}

#[test]
fn a_seed_determines_the_run() {
    let code = compile("exchange");
    let run = |seed| {
        let mut emulator = Emulator::new(two_ranks(seed, 17));
        let module = emulator.load(&code).unwrap();
        swap(&mut emulator, module, 10);
        emulator.synchronize().unwrap();
        Statistics { wall_seconds: 0.0, ..emulator.statistics().clone() }
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn parked_polls_are_cheap_and_wake() {
    let mut emulator = Emulator::new(Options { quantum: 8, ..Options::default() });
    let module = emulator.load(&compile("exchange")).unwrap();
    let (region, out) = (buffer(&mut emulator, 0, 8 * 64, "ring"), buffer(&mut emulator, 0, 4 * 64, "out"));
    let (groups, rounds) = (32, 50);
    let arguments = Kernarg::new().pointer(region).pointer(out).word(groups).word(rounds);
    launch(&mut emulator, 0, module, "ring", (groups, 64), arguments).unwrap();
    emulator.synchronize().unwrap();
    assert_eq!(read_words(&emulator, out, 1), [groups * rounds]);
    let statistics = emulator.statistics();
    assert!(statistics.parks > 0);
    // 32 waves that spin while one of them has the turn would execute 32 times what the turns need; a line holds
    // 8 pairs, so up to 8 waves look at a store that concerns one.
    assert!(statistics.wave_instructions < (groups * rounds) as u64 * 300, "{statistics:?}");
}

#[test]
fn a_wait_gives_up_when_time_passes_and_only_then() {
    let code = compile("exchange");
    let mut emulator = Emulator::new(Options { stall: Stall::Advance(100_000_000), ..Options::default() });
    let module = emulator.load(&code).unwrap();
    let (region, out) = (buffer(&mut emulator, 0, 8 * 64, "region"), buffer(&mut emulator, 0, 4 * 64, "out"));
    emulator.write(region.offset(24), &0x7_0000_002a_u64.to_le_bytes()).unwrap();
    launch(&mut emulator, 0, module, "wait_or_give_up", (1, 64), Kernarg::new().pointer(region).pointer(out)).unwrap();
    emulator.synchronize().unwrap();
    let values = read_words(&emulator, out, 64);
    assert_eq!(values[3], 42);
    assert!(values.iter().enumerate().all(|(lane, &value)| lane == 3 || value == 0xdead));
    let ticks = emulator.statistics().ticks;
    assert!((300_000_000..600_000_000).contains(&ticks), "{ticks}");
}

fn pairs_region(rank: u8, mailbox: DeviceAddress) -> TapRegion {
    let data = mailbox.0..mailbox.0 + 16384;
    TapRegion { rank: Rank(rank), id: 7, name: "mailbox".into(), data, form: TapForm::Pairs }
}

#[test]
fn the_tap_keeps_pairs_by_tag_although_the_region_is_reused() {
    let mut emulator = Emulator::new(two_ranks(1, 20));
    let module = emulator.load(&compile("exchange")).unwrap();
    let ranks = swap(&mut emulator, module, 6);
    emulator.watch(pairs_region(0, ranks[0].0));
    emulator.synchronize().unwrap();
    assert_eq!(emulator.tap_tags(Rank(0), 7), [1, 2, 3, 4, 5, 6]);
    for round in 1..=6 {
        let image = emulator.take_tap(Rank(0), 7, round).unwrap();
        let first = (round as usize & 1) * 1024 * 4;
        let values: Vec<u32> = image.bytes[first..first + 4 * PAIRS]
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(values, expected(round - 1)[1], "round {round}");
        assert_eq!(image.written.iter().map(|&byte| byte as usize).sum::<usize>(), 4 * PAIRS);
    }
    assert!(emulator.take_tap(Rank(0), 7, 1).is_none());
}

#[test]
fn the_tap_commits_rows_when_their_flag_is_raised() {
    let mut emulator = Emulator::new(Options { quantum: 5, ..Options::default() });
    let module = emulator.load(&compile("exchange")).unwrap();
    let [data, flags, out] =
        [(1024, "data"), (64, "flags"), (1024, "out")].map(|(bytes, name)| buffer(&mut emulator, 0, bytes, name));
    let form = TapForm::Rows { flags: flags.0..flags.0 + 64 };
    emulator.watch(TapRegion { rank: Rank(0), id: 1, name: "rows".into(), data: data.0..data.0 + 1024, form });
    let arguments = Kernarg::new().pointer(data).pointer(flags).pointer(out).word(4).word(0x105);
    launch(&mut emulator, 0, module, "rows", (4, 64), arguments).unwrap();
    emulator.synchronize().unwrap();
    let values = read_words(&emulator, out, 256);
    assert!((0..256).all(|i| values[i] as usize == ((i / 64 + 1) % 4) * 1000 + i % 64));
    let image = emulator.take_tap(Rank(0), 1, 0x105).unwrap();
    assert!(image.written.iter().all(|&byte| byte == 1));
    assert_eq!(image.bytes[256..260], 1000u32.to_le_bytes());
    emulator.clear_tap();
    assert!(emulator.tap_tags(Rank(0), 1).is_empty());
}

#[test]
fn a_corrupted_store_fires_once_and_changes_one_value() {
    let mut emulator = Emulator::new(two_ranks(1, 20));
    let module = emulator.load(&compile("exchange")).unwrap();
    let ranks = swap(&mut emulator, module, 1);
    emulator.watch(pairs_region(0, ranks[0].0));
    let fault = emulator.inject(Fault::Store(place(70), StoreFault::Corrupt(0x10)));
    emulator.synchronize().unwrap();
    assert!(emulator.has_fired(fault));
    let (got, wanted) = (read_words(&emulator, ranks[0].1, PAIRS), &expected(1)[0]);
    assert_eq!(got.iter().zip(wanted).filter(|(got, wanted)| got != wanted).count(), 1);
    assert_eq!(&read_words(&emulator, ranks[1].1, PAIRS), &expected(1)[1]);
}

#[test]
fn a_skipped_instruction_fires_once() {
    let mut emulator = Emulator::new(two_ranks(1, 20));
    let module = emulator.load(&compile("exchange")).unwrap();
    swap(&mut emulator, module, 2);
    let fault = emulator.inject(Fault::SkipInstruction { rank: Rank(1), op: Op::GlobalStoreDwordx2, occurrence: 3 });
    let error = emulator.synchronize().unwrap_err();
    assert!(emulator.has_fired(fault));
    assert!(error.to_string().starts_with("deadlock"), "{error}");
}

/// Rank 1's pair stores into the tap region of rank 0.
fn place(occurrence: u64) -> StorePlace {
    StorePlace { region: (Rank(0), 7), rank: Rank(1), occurrence }
}

#[test]
fn a_lost_store_is_waited_for_in_vain() {
    let mut emulator = Emulator::new(two_ranks(1, 20));
    let module = emulator.load(&compile("exchange")).unwrap();
    let ranks = swap(&mut emulator, module, 1);
    emulator.watch(pairs_region(0, ranks[0].0));
    let fault = emulator.inject(Fault::Store(place(33), StoreFault::Drop));
    let error = emulator.synchronize().unwrap_err();
    assert!(emulator.has_fired(fault));
    assert!(error.to_string().starts_with("deadlock"), "{error}");
}

#[test]
fn a_late_store_arrives_when_launches_of_its_rank_have_ended() {
    let mut emulator = Emulator::new(two_ranks(1, 20));
    let module = emulator.load(&compile("exchange")).unwrap();
    let ranks = swap(&mut emulator, module, 1);
    emulator.watch(pairs_region(0, ranks[0].0));
    // Rank 1's own launch needs nothing of it, so it ends, and the store arrives with its end: rank 0 goes on.
    let fault = emulator.inject(Fault::Store(place(33), StoreFault::Delay(1)));
    emulator.synchronize().unwrap();
    assert!(emulator.has_fired(fault));
    for (rank, wanted) in ranks.iter().zip(expected(1)) {
        assert_eq!(read_words(&emulator, rank.1, PAIRS), wanted);
    }
}

#[test]
fn a_stalled_wave_goes_on_when_its_time_has_come() {
    for seed in 0..4 {
        let mut emulator = Emulator::new(two_ranks(seed, 20));
        let module = emulator.load(&compile("exchange")).unwrap();
        let ranks = swap(&mut emulator, module, 2);
        let fault = emulator.inject(Fault::Stall {
            rank: Rank(1),
            op: Op::GlobalStoreDwordx2,
            occurrence: 5,
            ticks: 7_000_000,
        });
        emulator.synchronize().unwrap();
        assert!(emulator.has_fired(fault) && emulator.ticks() > 7_000_000);
        for (rank, wanted) in ranks.iter().zip(expected(2)) {
            assert_eq!(read_words(&emulator, rank.1, PAIRS), wanted);
        }
    }
}

#[test]
fn a_lost_copy_leaves_what_was_there() {
    let mut emulator = Emulator::new(two_ranks(0, 20));
    let word = buffer(&mut emulator, 0, 4, "word");
    emulator.write(word, &[1, 0, 0, 0]).unwrap();
    let fault = emulator.inject(Fault::LoseCopy { rank: Rank(0), occurrence: 1 });
    for value in 2..5_u8 {
        emulator.queue_write(Rank(0), word, &[value, 0, 0, 0]).unwrap();
        emulator.synchronize().unwrap();
        let seen = read_words(&emulator, word, 1)[0];
        assert_eq!(seen, if value == 3 { 2 } else { u32::from(value) });
    }
    assert!(emulator.has_fired(fault));
}
