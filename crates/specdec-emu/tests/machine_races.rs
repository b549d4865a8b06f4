//! The race check and weak memory, on kernels with one mistake each.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

mod machine_rig;

use std::sync::OnceLock;

use machine_rig::{buffer, compile, launch, read_words, Kernarg};
use specdec_core::device::{Device, MemoryKind};
use specdec_core::ids::Rank;
use specdec_emu::machine::{AccessKind, Emulator, EmulatorError, Options, RaceKind, RaceReport, Schedule, Scope};

const GROUPS: u32 = 4;
const FIRST_TAG: u32 = 5;

fn code() -> &'static [u8] {
    static CODE: OnceLock<Vec<u8>> = OnceLock::new();
    CODE.get_or_init(|| compile("races"))
}

fn checked(seed: u64) -> Options {
    let schedule = if seed.is_multiple_of(2) { Schedule::Turns } else { Schedule::Priorities };
    Options { seed, schedule, quantum: 1 + seed % 20, check_races: true, ..Options::default() }
}

/// Exchanges rows among the workgroups of one rank; the result, and the races.
fn exchange(symbol: &'static str, options: Options) -> (Result<Vec<u32>, EmulatorError>, Vec<RaceReport>) {
    let mut emulator = Emulator::new(options);
    let module = emulator.load(code()).unwrap();
    let memory = buffer(&mut emulator, 0, 1 << 17, "rows");
    let out = buffer(&mut emulator, 0, u64::from(GROUPS) * 512, "out");
    let arguments = Kernarg::new().pointer(memory).pointer(memory).pointer(out).word(GROUPS).word(FIRST_TAG);
    launch(&mut emulator, 0, module, symbol, (GROUPS, 128), arguments).unwrap();
    let result = emulator.synchronize();
    let words = result.map(|()| read_words(&emulator, out, GROUPS as usize * 128));
    let races = emulator.races();
    (words, races)
}

/// Moves rows to and fro in four launches that nothing but their order separates; the rows, and the races.
fn shift(options: Options) -> (Vec<u32>, Vec<RaceReport>) {
    let mut emulator = Emulator::new(options);
    let module = emulator.load(code()).unwrap();
    let rows = [0, 1].map(|_| buffer(&mut emulator, 0, u64::from(GROUPS) * 512, "rows"));
    for step in 0..4 {
        let arguments = Kernarg::new().pointer(rows[step % 2]).pointer(rows[1 - step % 2]).pointer(rows[0]);
        launch(&mut emulator, 0, module, "shift", (GROUPS, 128), arguments.word(GROUPS).word(0)).unwrap();
    }
    emulator.synchronize().unwrap();
    let races = emulator.races();
    (read_words(&emulator, rows[0], 512), races)
}

/// What every workgroup must compute: two rounds, read in reverse.
fn expected() -> Vec<u32> {
    let rounds = |item: u32| (FIRST_TAG * 2 + 1) * 1000 + 2 * (127 - item);
    (0..GROUPS * 128).map(|index| rounds(index % 128)).collect()
}

/// Kinds of the races of a kernel over some schedules.
fn kinds(symbol: &'static str) -> Vec<RaceKind> {
    let mut found: Vec<RaceKind> =
        (0..8).flat_map(|seed| exchange(symbol, checked(seed)).1).map(|report| report.kind).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn a_right_kernel_has_no_race_under_fifty_schedules() {
    for seed in 0..50 {
        let (words, races) = exchange("right", checked(seed));
        assert_eq!(words.unwrap(), expected(), "seed {seed}");
        assert!(races.is_empty(), "seed {seed}: {}", races[0]);
    }
}

#[test]
fn each_mistake_is_a_race_of_its_kind() {
    assert_eq!(kinds("no_vmcnt"), [RaceKind::InFlight]);
    assert_eq!(kinds("plain_store"), [RaceKind::PlainStore]);
    assert_eq!(kinds("plain_load"), [RaceKind::PlainLoad]);
    assert_eq!(kinds("no_local_barrier"), [RaceKind::Lds]);
    for symbol in ["no_barrier", "no_poll", "looks_once", "early"] {
        assert!(kinds(symbol).contains(&RaceKind::Unordered), "{symbol}");
    }
}

#[test]
fn a_race_is_found_although_the_result_is_right() {
    for symbol in ["no_vmcnt", "plain_store", "plain_load"] {
        let (words, races) = exchange(symbol, checked(0));
        assert_eq!(words.unwrap(), expected(), "{symbol}");
        assert!(!races.is_empty(), "{symbol}");
    }
}

#[test]
fn a_report_names_both_accesses() {
    let (_, races) = exchange("plain_store", checked(0));
    let [race] = &races[..] else { panic!("{} reports", races.len()) };
    assert_eq!((race.first.kind, race.first.scope), (AccessKind::Store, Scope::Plain));
    assert_eq!((race.second.kind, race.second.scope), (AccessKind::Load, Scope::Device));
    assert_ne!(race.first.at.workgroup, race.second.at.workgroup);
    assert_eq!((race.first.at.workgroup + GROUPS - 1) % GROUPS, race.second.at.workgroup);
    let (first, second) = (&race.first.at.functions, &race.second.at.functions);
    assert!(first[0].function.starts_with("put") && second[0].function.starts_with("get"), "{race}");
    assert!(first.last().unwrap().function == "plain_store" && first[1].line < second[1].line, "{race}");
    // Two rounds of 128 words from each workgroup.
    assert_eq!(race.count, 2 * 128 * u64::from(GROUPS));
    assert!(race.place.starts_with("`rows` + 0x"), "{}", race.place);
    assert!(race.to_string().contains("it may stay in its XCD's L2"), "{race}");
}

#[test]
fn the_layer_is_the_row_of_the_table_that_the_wave_last_read() {
    let mut emulator = Emulator::new(checked(0));
    let module = emulator.load(code()).unwrap();
    let memory = buffer(&mut emulator, 0, 1 << 17, "rows");
    let out = buffer(&mut emulator, 0, u64::from(GROUPS) * 512, "out");
    emulator.watch_rows(0, u64::MAX >> 1, 2);
    let arguments = Kernarg::new().pointer(memory).pointer(memory).pointer(out).word(GROUPS).word(1);
    launch(&mut emulator, 0, module, "plain_load", (GROUPS, 128), arguments).unwrap();
    emulator.synchronize().unwrap();
    assert_eq!(emulator.races()[0].first.row, Some(0));
}

fn between_ranks(symbol: &'static str) -> Vec<RaceReport> {
    let mut emulator = Emulator::new(Options { ranks: 2, ..checked(3) });
    let module = emulator.load(code()).unwrap();
    let memories = [0, 1].map(|rank| emulator.allocate(Rank(rank), MemoryKind::Uncached, 1 << 17, "peer").unwrap());
    for rank in 0..2u8 {
        let out = buffer(&mut emulator, rank, u64::from(GROUPS) * 512, "out");
        let (to, from) = (memories[1 - rank as usize], memories[rank as usize]);
        let arguments = Kernarg::new().pointer(to).pointer(from).pointer(out).word(GROUPS).word(FIRST_TAG);
        launch(&mut emulator, rank, module, symbol, (GROUPS, 128), arguments).unwrap();
    }
    emulator.synchronize().unwrap();
    emulator.races()
}

#[test]
fn ranks_meet_at_system_scope_only() {
    let none = between_ranks("right_between_ranks");
    assert!(none.is_empty(), "{}", none[0]);
    let races = between_ranks("device_scope");
    assert!(!races.is_empty() && races.iter().all(|race| race.kind == RaceKind::PlainStore), "{}", races[0]);
    assert!(races.iter().all(|race| race.first.at.rank != race.second.at.rank));
}

#[test]
fn launches_of_a_rank_follow_each_other_and_see_plain_stores() {
    let (words, races) = shift(checked(1));
    assert!(races.is_empty(), "{}", races[0]);
    assert_eq!(words, [4; 512]);
}

#[test]
fn one_buffer_for_both_is_a_race_within_the_launch() {
    let mut emulator = Emulator::new(checked(1));
    let module = emulator.load(code()).unwrap();
    let rows = buffer(&mut emulator, 0, u64::from(GROUPS) * 512, "rows");
    let arguments = Kernarg::new().pointer(rows).pointer(rows).pointer(rows).word(GROUPS).word(0);
    launch(&mut emulator, 0, module, "shift", (GROUPS, 128), arguments).unwrap();
    emulator.synchronize().unwrap();
    assert!(emulator.races().iter().any(|race| race.kind == RaceKind::Unordered));
}

#[test]
fn a_counter_orders_those_who_raise_it() {
    for seed in 0..10 {
        let mut emulator = Emulator::new(checked(seed));
        let module = emulator.load(code()).unwrap();
        let rows = buffer(&mut emulator, 0, u64::from(GROUPS) * 512, "rows");
        let (counter, out) = (buffer(&mut emulator, 0, 4, "counter"), buffer(&mut emulator, 0, 512, "out"));
        let arguments = Kernarg::new().pointer(rows).pointer(counter).pointer(out).word(GROUPS).word(0);
        launch(&mut emulator, 0, module, "last_one", (GROUPS, 128), arguments).unwrap();
        emulator.synchronize().unwrap();
        assert!(emulator.races().is_empty(), "{}", emulator.races()[0]);
        let sums: Vec<u32> = (0..128).map(|item| (0..GROUPS).map(|group| group + item).sum()).collect();
        assert_eq!(read_words(&emulator, out, 128), sums);
    }
}

#[test]
fn memory_that_is_given_back_has_no_history() {
    let mut emulator = Emulator::new(checked(1));
    let module = emulator.load(code()).unwrap();
    let place = 1 << 40;
    for rank_of_round in 0..2u32 {
        emulator.allocate_at(Rank(0), specdec_core::ids::DeviceAddress(place), 4096, "rows", true).unwrap();
        let other = buffer(&mut emulator, 0, 4096, "other");
        let rows = specdec_core::ids::DeviceAddress(place);
        let arguments = Kernarg::new().pointer(other).pointer(rows).pointer(other).word(GROUPS).word(rank_of_round);
        launch(&mut emulator, 0, module, "shift", (GROUPS, 128), arguments).unwrap();
        emulator.synchronize().unwrap();
        emulator.free(rows).unwrap();
    }
    assert!(emulator.races().is_empty());
}

/// Runs a kernel in weak memory under some seeds; how often it computes something else or does not end.
fn wrong_in_weak_memory(symbol: &'static str) -> usize {
    let runs = (0..20).map(|seed| Options { weak_memory: true, check_races: false, ..checked(seed) });
    let is_wrong = |words: Result<Vec<u32>, EmulatorError>| words.map_or(true, |words| words != expected());
    runs.filter(|&options| is_wrong(exchange(symbol, options).0)).count()
}

#[test]
fn weak_memory_shows_mistakes_in_the_results_and_nothing_else() {
    assert_eq!(wrong_in_weak_memory("right"), 0);
    for symbol in ["no_vmcnt", "plain_store", "plain_load"] {
        assert!(wrong_in_weak_memory(symbol) >= 5, "{symbol}: {}", wrong_in_weak_memory(symbol));
    }
}

#[test]
fn weak_memory_is_written_back_by_the_end_of_the_launch() {
    let (words, races) = shift(Options { weak_memory: true, ..checked(2) });
    assert_eq!(words, [4; 512]);
    assert!(races.is_empty(), "{}", races[0]);
}
