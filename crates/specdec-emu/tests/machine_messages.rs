//! The words of every error and hint, against `machine_messages.txt`.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fmt::Write as _;

use specdec_core::device::MemoryKind;
use specdec_core::ids::Rank;
use specdec_emu::machine::{
    EmulatorError, HandleKind, Location, PeerError, SourceLine, StreamError, Waiter, Waiting, WorldError,
};

fn at(lane: Option<u8>) -> Location {
    let function = |function: &str, line| SourceLine { function: function.into(), file: "mailbox.hpp".into(), line };
    Location {
        rank: Rank(1),
        kernel: "layers".into(),
        workgroup: 7,
        wave: 2,
        lane,
        pc: 0x1c4,
        instruction: "global_load_dwordx2 v[2:3], v[0:1], off sc1".into(),
        functions: vec![function("wait_pair", 31), function("o_proj<4>", 88)],
    }
}

fn load_errors() -> Vec<EmulatorError> {
    let symbol = || "layers".to_owned();
    vec![
        EmulatorError::BadElf { reason: "Could not read file header".into() },
        EmulatorError::WrongTarget { found: "AMDGPU machine 0x4c".into(), needed: "gfx950" },
        EmulatorError::Relocations { count: 3 },
        EmulatorError::BadMetadata { reason: "no AMDGPU metadata note".into() },
        EmulatorError::UnknownSymbol { symbol: symbol(), available: vec!["close".into(), "probe".into()] },
        EmulatorError::UnsupportedKernel { symbol: symbol(), what: "16 bytes of scratch memory a work-item".into() },
        EmulatorError::KernargSize { symbol: symbol(), found: 8, needed: 216, segment: 472 },
        EmulatorError::BadShape { symbol: symbol(), grid: [0, 1, 1], block: [512, 1, 1], reason: "it is empty".into() },
        EmulatorError::TooManyWorkgroups {
            symbol: symbol(),
            workgroups: 513,
            fits: 512,
            per_compute_unit: 2,
            compute_units: 256,
            lds_bytes: 61440,
            vgprs: 128,
            waves: 8,
        },
        EmulatorError::UnknownRank { rank: Rank(2), ranks: 2 },
        EmulatorError::UnknownModule { index: 4 },
        EmulatorError::OutOfMemory { bytes: 1 << 60, name: "weights".into() },
        EmulatorError::Overlap { name: "view".into(), address: 0x1080, bytes: 256, other: "tensor".into() },
        EmulatorError::NotAnAllocation { address: 0x1000 },
        EmulatorError::HostAccess {
            address: 0x1000,
            bytes: 4,
            near: ", 0x20 bytes before `x` of rank 0 (Device)".into(),
        },
    ]
}

fn stream_errors() -> Vec<EmulatorError> {
    let errors = [
        StreamError::Capturing { call: "write", rank: Rank(1) },
        StreamError::AlreadyCapturing { rank: Rank(1) },
        StreamError::NotCapturing { rank: Rank(1) },
        StreamError::Void { rank: Rank(1), call: "write" },
        StreamError::OtherRank { graph: Rank(0), rank: Rank(1) },
        StreamError::Unwritten { rank: Rank(1), place: "`hidden` + 0x20".into(), bytes: 64 },
    ];
    errors.map(EmulatorError::from).into()
}

fn process_errors() -> Vec<EmulatorError> {
    let (name, process) = (|| "peer buffer of process 71".to_owned(), 71);
    let peers = [
        PeerError::NotUncached { name: "weights".into(), kind: MemoryKind::Device },
        PeerError::NotOwn { name: name() },
        PeerError::NotImported { address: 0x1000 },
        PeerError::Imported { name: name(), address: 0x1000 },
        PeerError::Foreign,
        PeerError::WrongKind { found: HandleKind::World, needed: HandleKind::Memory },
        PeerError::OwnProcess,
        PeerError::Ended { process },
        PeerError::Stale { process },
        PeerError::Truncated { process, found: 4096, needed: 8256 },
        PeerError::Unreachable { process, reason: "Permission denied (os error 13)".into() },
    ];
    let worlds = [
        WorldError::Size { processes: 0 },
        WorldError::AlreadyIn,
        WorldError::NoSuchProcess { index: 2, processes: 2 },
        WorldError::Taken { index: 1, process },
        WorldError::Host { reason: "Too many open files (os error 24)".into() },
    ];
    let all = peers.map(EmulatorError::from).into_iter().chain(worlds.map(EmulatorError::from));
    all.chain([EmulatorError::Interrupted]).collect()
}

fn run_errors() -> Vec<EmulatorError> {
    let (wave, lane) = (|| Box::new(at(None)), || Box::new(at(Some(9))));
    let allocation = || "hidden".to_owned();
    let waiters = vec![
        Waiter { at: at(None), waiting: Waiting::Poll(vec!["proj of rank 1 pair 5 (`peer` + 0x28)".into()]) },
        Waiter { at: at(None), waiting: Waiting::Barrier(vec![0]) },
    ];
    vec![
        EmulatorError::UnknownOpcode { encoding: 0xf7ff_ffff, at: wave() },
        EmulatorError::Unimplemented { what: "no executor for it".into(), at: wave() },
        EmulatorError::OutsideAllocation { access: "load", address: 0x2000, bytes: 8, near: String::new(), at: lane() },
        EmulatorError::CrossesEnd {
            access: "store",
            allocation: allocation(),
            offset: 244,
            bytes: 16,
            allocation_bytes: 256,
            at: lane(),
        },
        EmulatorError::NeverWritten { allocation: allocation(), offset: 36, bytes: 4, at: lane() },
        EmulatorError::Misaligned { access: "atomic", address: 0x1004, needed: 8, at: lane() },
        EmulatorError::LdsOutOfRange { access: "store", address: 256, bytes: 4, lds_bytes: 256, at: lane() },
        EmulatorError::LdsNeverWritten { address: 16, bytes: 4, at: lane() },
        EmulatorError::LdsInFlight { access: "load", address: 16, bytes: 4, at: lane() },
        EmulatorError::UseBeforeWait { register: "v2".into(), at: wave() },
        EmulatorError::BarrierNotReached { wave: 1, at: wave() },
        EmulatorError::LeftKernel { target: 0x40, at: wave() },
        EmulatorError::Deadlock { waiters },
        EmulatorError::BudgetPassed { budget: 10_000, at: wave() },
    ]
}

#[test]
fn messages_and_hints_are_as_committed() {
    let mut text = String::new();
    for error in load_errors().into_iter().chain(stream_errors()).chain(process_errors()).chain(run_errors()) {
        writeln!(text, "error: {error}\nhint: {}\n", error.hint()).unwrap();
    }
    assert_eq!(text, include_str!("machine_messages.txt"), "if the change is meant, commit the new text");
}
