//! Every located error, and every refusal to load or launch.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

mod machine_rig;

use machine_rig::{assemble, buffer, compile, compile_for, launch, words, Kernarg};
use specdec_core::device::{Device, MemoryKind};
use specdec_core::ids::{DeviceAddress, Rank};
use specdec_emu::machine::{Emulator, EmulatorError, Options, TapForm, TapRegion, Waiting};

const LOAD_ARGUMENTS: &str = "s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32_e32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    ";

/// Runs one wave of `instructions` with two 256-byte buffers in s[4:5] and s[6:7] and 4 * lane in v1.
fn fail_with(instructions: &str, lds_bytes: u32, block: u32) -> EmulatorError {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&assemble(&format!("{LOAD_ARGUMENTS}{instructions}"), lds_bytes)).unwrap();
    let first = words(&mut emulator, "first", &[3; 64]);
    let second = emulator.allocate_unwritten(Rank(0), MemoryKind::Device, 256, "second").unwrap();
    let arguments = Kernarg::new().pointer(first).pointer(second);
    launch(&mut emulator, 0, module, "f", (1, block), arguments).unwrap();
    let error = emulator.synchronize().unwrap_err();
    assert!(!error.hint().is_empty());
    emulator.synchronize().expect("after an error nothing is queued");
    error
}

#[test]
fn bits_that_are_no_instruction() {
    let error = fail_with(".long 0xf7ffffff", 0, 64);
    let EmulatorError::UnknownOpcode { encoding: 0xf7ff_ffff, at } = &error else { panic!("{error}") };
    assert_eq!((at.pc, at.workgroup, at.wave, at.kernel.as_str()), (16, 0, 0, "f"));
}

#[test]
fn an_access_outside_every_allocation() {
    let error = fail_with("v_mov_b32_e32 v4, 0x1234560\nv_mov_b32_e32 v5, 0\nglobal_load_dword v2, v[4:5], off", 0, 64);
    assert!(matches!(error, EmulatorError::OutsideAllocation { address: 0x1234560, bytes: 4, .. }), "{error}");
    let error = fail_with("global_load_dword v2, v1, s[4:5] offset:2048", 0, 64);
    let text = error.to_string();
    assert!(matches!(&error, EmulatorError::OutsideAllocation { at, .. } if at.lane == Some(0)), "{error}");
    assert!(text.contains("`global_load_dword v2, v1, s[4:5] offset:2048`") && text.contains("rank 0"), "{text}");
}

#[test]
fn an_access_across_the_end_of_an_allocation() {
    let error = fail_with("global_load_dwordx4 v[4:7], v1, s[4:5]", 0, 64);
    let EmulatorError::CrossesEnd { allocation, offset: 244, at, .. } = &error else { panic!("{error}") };
    assert_eq!((allocation.as_str(), at.lane), ("first", Some(61)));
}

#[test]
fn misaligned_accesses() {
    let error = fail_with("v_add_u32_e32 v1, 2, v1\nglobal_store_dword v1, v0, s[4:5]", 0, 64);
    assert!(matches!(error, EmulatorError::Misaligned { access: "store", needed: 4, .. }), "{error}");
    let error = fail_with("v_mov_b32_e32 v2, 1\nv_mov_b32_e32 v3, 0\nglobal_atomic_add_x2 v1, v[2:3], s[4:5]", 0, 2);
    let EmulatorError::Misaligned { access: "atomic", needed: 8, at, .. } = &error else { panic!("{error}") };
    assert_eq!(at.lane, Some(1));
    let error = fail_with("global_load_dwordx2 v[2:3], v1, s[4:5] sc1", 0, 2);
    assert!(matches!(error, EmulatorError::Misaligned { access: "load", needed: 8, .. }), "{error}");
}

#[test]
fn a_read_of_memory_that_nobody_has_written() {
    let error = fail_with(
        "v_cmp_ne_u32_e32 vcc, 9, v0\ns_and_saveexec_b64 s[8:9], vcc\nglobal_store_dword v1, v0, s[6:7]
        s_mov_b64 exec, s[8:9]\ns_waitcnt vmcnt(0)\nglobal_load_dword v2, v1, s[6:7]",
        0,
        64,
    );
    let EmulatorError::NeverWritten { allocation, offset: 36, at, .. } = &error else { panic!("{error}") };
    assert_eq!((allocation.as_str(), at.lane), ("second", Some(9)));
}

#[test]
fn lds_out_of_range_unwritten_and_in_flight() {
    let error = fail_with("ds_write_b32 v1, v0 offset:16", 256, 64);
    assert!(matches!(&error, EmulatorError::LdsOutOfRange { address: 256, at, .. } if at.lane == Some(60)), "{error}");
    let error = fail_with("ds_read_b32 v2, v1", 256, 64);
    assert!(matches!(error, EmulatorError::LdsNeverWritten { address: 0, .. }), "{error}");
    let dma = "s_mov_b32 m0, 0\ns_mov_b32 s10, -1\ns_mov_b32 s11, 0x27000\ns_mov_b64 s[8:9], s[4:5]
        buffer_load_dword v1, s[8:11], 0 offen lds\n";
    let error = fail_with(&format!("{dma}ds_read_b32 v2, v1"), 256, 64);
    assert!(matches!(error, EmulatorError::LdsInFlight { access: "load", address: 0, .. }), "{error}");
    let error =
        fail_with(&format!("{dma}s_waitcnt vmcnt(0)\nds_read_b32 v2, v1\nds_read_b32 v2, v1 offset:4"), 256, 64);
    assert!(matches!(error, EmulatorError::LdsOutOfRange { .. }), "{error}");
}

#[test]
fn results_used_before_their_wait() {
    let error = fail_with("global_load_dword v2, v1, s[4:5]\nv_add_u32_e32 v3, 1, v2", 0, 64);
    assert!(matches!(&error, EmulatorError::UseBeforeWait { register, .. } if register == "v2"), "{error}");
    let error = fail_with(
        "global_load_dword v2, v1, s[4:5]\nglobal_load_dword v3, v1, s[4:5]\ns_waitcnt vmcnt(1)
        v_mov_b32_e32 v4, v2\nv_mov_b32_e32 v3, v4",
        0,
        64,
    );
    assert!(matches!(&error, EmulatorError::UseBeforeWait { register, .. } if register == "v3"), "{error}");
    let error = fail_with("s_load_dword s8, s[4:5], 0x0\ns_add_u32 s9, s8, 1", 0, 64);
    assert!(matches!(&error, EmulatorError::UseBeforeWait { register, .. } if register == "s8"), "{error}");
    let error = fail_with("ds_write_b32 v1, v0\nds_read_b32 v2, v1\nglobal_store_dword v1, v2, s[4:5]", 256, 64);
    assert!(matches!(&error, EmulatorError::UseBeforeWait { register, .. } if register == "v2"), "{error}");
    let error = fail_with("ds_bpermute_b32 v2, v1, v0\nv_mov_b32_e32 v3, v2", 0, 64);
    assert!(matches!(&error, EmulatorError::UseBeforeWait { register, .. } if register == "v2"), "{error}");
}

#[test]
fn a_barrier_that_an_ended_wave_never_reaches() {
    let text = "v_readfirstlane_b32 s8, v0\ns_cmp_eq_u32 s8, 64\ns_cbranch_scc1 .Lout\ns_barrier\n.Lout:";
    let error = fail_with(text, 0, 192);
    let EmulatorError::BarrierNotReached { wave: 1, at } = &error else { panic!("{error}") };
    assert!(at.wave != 1 && at.instruction.starts_with("s_barrier"), "{error}");
}

#[test]
fn control_flow_that_leaves_the_kernel() {
    let error = fail_with("s_mov_b64 s[8:9], 0\ns_setpc_b64 s[8:9]", 0, 64);
    assert!(matches!(error, EmulatorError::LeftKernel { .. }), "{error}");
}

#[test]
fn a_structured_buffer_is_not_guessed_at() {
    let text = "s_mov_b64 s[8:9], s[4:5]\ns_or_b32 s9, s9, 0x100000\ns_mov_b32 s10, 16\ns_mov_b32 s11, 0x27000
        buffer_load_dword v2, v0, s[8:11], 0 idxen";
    let error = fail_with(text, 0, 64);
    assert!(matches!(error, EmulatorError::Unimplemented { .. }), "{error}");
}

#[test]
fn a_deadlock_lists_every_waiter() {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&compile("exchange")).unwrap();
    let (region, out) = (buffer(&mut emulator, 0, 512, "region"), buffer(&mut emulator, 0, 512, "out"));
    let queue = |emulator: &mut Emulator| {
        let arguments = Kernarg::new().pointer(region).pointer(out);
        launch(emulator, 0, module, "wait_for_ever", (1, 128), arguments).unwrap();
        emulator.synchronize().unwrap_err()
    };
    let error = queue(&mut emulator);
    let EmulatorError::Deadlock { waiters } = &error else { panic!("{error}") };
    assert_eq!(waiters.len(), 2);
    let poll = waiters.iter().find(|waiter| waiter.at.wave == 0).unwrap();
    assert_eq!(poll.waiting, Waiting::Poll(vec!["`region` + 0x28".into()]));
    assert_eq!(poll.at.functions[0].function, "wait_pair");
    let source = include_str!("machine_kernels/exchange.hip");
    let line = 1 + source.lines().position(|line| line.contains("s_sleep")).unwrap();
    assert!(poll.at.functions[0].file.ends_with("exchange.hip"));
    assert_eq!(poll.at.functions[0].line as usize, line);
    assert_eq!(poll.at.functions[1].function, "wait_for_ever");
    let barrier = waiters.iter().find(|waiter| waiter.at.wave == 1).unwrap();
    assert_eq!(barrier.waiting, Waiting::Barrier(vec![0]));
    assert_eq!(barrier.at.functions[0].function, "sync");

    let data = region.0..region.0 + 512;
    emulator.watch(TapRegion { rank: Rank(0), id: 0, name: "proj".into(), data, form: TapForm::Pairs });
    let text = queue(&mut emulator).to_string();
    assert!(text.contains("polls proj of rank 0 pair 5 (`region` + 0x28)"), "{text}");
}

#[test]
fn the_instruction_budget() {
    let mut emulator = Emulator::new(Options { budget: 10_000, ..Options::default() });
    let module = emulator.load(&assemble(".Lagain:\ns_branch .Lagain", 0)).unwrap();
    let out = buffer(&mut emulator, 0, 256, "out");
    launch(&mut emulator, 0, module, "f", (1, 64), Kernarg::new().pointer(out).pointer(out)).unwrap();
    let error = emulator.synchronize().unwrap_err();
    assert!(matches!(error, EmulatorError::BudgetPassed { budget: 10_000, .. }), "{error}");
}

#[test]
fn more_workgroups_than_fit() {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&assemble("", 60 << 10)).unwrap();
    let out = buffer(&mut emulator, 0, 256, "out");
    let arguments = Kernarg::new().pointer(out).pointer(out);
    launch(&mut emulator, 0, module, "f", (512, 64), arguments.clone()).unwrap();
    let error = launch(&mut emulator, 0, module, "f", (513, 64), arguments.clone()).unwrap_err();
    assert!(matches!(error, EmulatorError::TooManyWorkgroups { fits: 512, per_compute_unit: 2, .. }), "{error}");
    let error = launch(&mut emulator, 0, module, "f", (0, 64), arguments.clone()).unwrap_err();
    assert!(matches!(error, EmulatorError::BadShape { .. }), "{error}");
    let error = launch(&mut emulator, 0, module, "f", (1, 1025), arguments).unwrap_err();
    assert!(matches!(error, EmulatorError::BadShape { .. }), "{error}");
}

#[test]
fn code_objects_that_are_refused() {
    let mut emulator = Emulator::new(Options::default());
    let code = compile("arithmetic");
    for length in (0..code.len()).step_by(61).chain([code.len() - 1]) {
        let error = emulator.load(&code[..length]).unwrap_err();
        assert!(matches!(error, EmulatorError::BadElf { .. } | EmulatorError::BadMetadata { .. }), "{length}: {error}");
    }
    let error = emulator.load(&compile_for("arithmetic", "gfx942")).unwrap_err();
    assert!(matches!(error, EmulatorError::WrongTarget { .. }), "{error}");
    let host = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let error = emulator.load(&host).unwrap_err();
    assert!(matches!(error, EmulatorError::WrongTarget { .. }), "{error}");
}

#[test]
fn a_damaged_code_object_is_an_error_or_loads() {
    let code = compile("arithmetic");
    let mut emulator = Emulator::new(Options::default());
    for step in 0..4000usize {
        let mut damaged = code.clone();
        let at = step * 7919 % code.len();
        damaged[at] ^= 1 << (step % 8);
        damaged[(at * 31 + step) % 4096] = step as u8;
        if let Ok(module) = emulator.load(&damaged) {
            let arguments = Kernarg::new().pointer(DeviceAddress(8)).pointer(DeviceAddress(8));
            // Refused or queued, either is fine; a panic is not.
            drop(launch(&mut emulator, 0, module, "reduce", (1, 512), arguments));
        }
    }
}

#[test]
fn launches_that_are_refused() {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&compile("arithmetic")).unwrap();
    let out = DeviceAddress(0x1000);
    let error = launch(&mut emulator, 0, module, "missing", (1, 64), Kernarg::new()).unwrap_err();
    assert!(error.to_string().contains("`missing`; it has vector_add, reduce, hidden, "), "{error}");
    let error = launch(&mut emulator, 0, module, "reduce", (1, 512), Kernarg::new().pointer(out)).unwrap_err();
    assert!(matches!(error, EmulatorError::KernargSize { found: 8, needed: 16, .. }), "{error}");
    let error =
        launch(&mut emulator, 1, module, "reduce", (1, 512), Kernarg::new().pointer(out).pointer(out)).unwrap_err();
    assert!(matches!(error, EmulatorError::UnknownRank { .. }), "{error}");
    let mut other = Emulator::new(Options::default());
    let error =
        launch(&mut other, 0, module, "reduce", (1, 512), Kernarg::new().pointer(out).pointer(out)).unwrap_err();
    assert!(matches!(error, EmulatorError::UnknownModule { .. }), "{error}");
    let error = emulator.free(out).unwrap_err();
    assert!(matches!(error, EmulatorError::NotAnAllocation { .. }), "{error}");
    let error = emulator.read(out, &mut [0]).unwrap_err();
    assert!(matches!(error, EmulatorError::HostAccess { .. }), "{error}");
}
