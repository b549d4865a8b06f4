//! Counting by label: what is counted, where, and that a poll behind weights is found.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

mod machine_rig;

use machine_rig::{assemble, buffer, launch, read_words, Kernarg};
use specdec_core::device::Device;
use specdec_emu::machine::{Counts, Emulator, Label, Options};

/// Workgroup 1 stores a flag, workgroup 0 polls it; weights are loaded before or behind the poll.
fn polling(before: &str, behind: &str) -> String {
    format!(
        "s_load_dwordx4 s[4:7], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\nv_lshlrev_b32 v1, 2, v0\nv_mov_b32 v2, 0\n\
         s_cmp_eq_u32 s2, 0\ns_cbranch_scc0 store\n{before}\npoll:\nglobal_load_dword v3, v2, s[6:7] sc1\n\
         s_waitcnt vmcnt(0)\nv_readfirstlane_b32 s8, v3\ns_cmp_eq_u32 s8, 7\ns_cbranch_scc1 done\ns_sleep 1\n\
         s_branch poll\nstore:\nv_mov_b32 v3, 7\nglobal_store_dword v2, v3, s[6:7] sc1\ns_waitcnt vmcnt(0)\n\
         s_branch end\ndone:\n{behind}\nend:"
    )
}

const LOAD: &str = "global_load_dword v4, v1, s[4:5] nt";

/// Counts of workgroups 0 and 1, all in bin 1 of 2.
fn counted(instructions: &str, (grid, block): (u32, u32)) -> Vec<Counts> {
    let mut emulator = Emulator::new(Options { quantum: 4, ..Options::default() });
    let module = emulator.load(&assemble(instructions, 0)).unwrap();
    emulator.count(module, 2, |_| Label { bins: [1, 1], phase: None, is_poll: true }).unwrap();
    let (weights, flag) = (buffer(&mut emulator, 0, 1024, "weights"), buffer(&mut emulator, 0, 64, "flag"));
    let arguments = Kernarg::new().pointer(weights).pointer(flag);
    launch(&mut emulator, 0, module, "f", (grid, block), arguments).unwrap();
    emulator.synchronize().unwrap();
    let profile = emulator.profile().unwrap();
    assert_eq!(profile.workgroups(0), grid as usize);
    let counts: Vec<Counts> = (0..grid as usize).map(|cta| profile.counts(0, cta, 1)).collect();
    assert!((0..grid as usize).all(|cta| profile.counts(0, cta, 0) == Counts::default()));
    let instructions: u64 = counts.iter().map(|counts| counts.instructions).sum();
    assert_eq!(instructions, emulator.statistics().wave_instructions);
    assert_eq!(counts.iter().map(|counts| counts.parks).sum::<u64>(), emulator.statistics().parks);
    counts
}

#[test]
fn a_poll_behind_weights_is_found_and_one_before_them_is_none() {
    let early = counted(&polling(LOAD, "s_nop 0"), (2, 64));
    assert_eq!((early[0].polls_behind_weights, early[0].weight_loads, early[0].weight_bytes), (1, 1, 256));
    let late = counted(&polling("s_nop 0", LOAD), (2, 64));
    assert_eq!((late[0].polls_behind_weights, late[0].weight_loads, late[0].weight_bytes), (0, 1, 256));
}

#[test]
fn each_kind_of_access_is_counted_where_it_belongs() {
    let [reader, writer] = counted(&polling(LOAD, "s_nop 0"), (2, 64))[..] else { panic!("two workgroups") };
    assert_eq!((writer.vector_stores, writer.stored_bytes, writer.vector_loads), (1, 256, 0));
    assert_eq!((reader.vector_stores, reader.stored_bytes), (0, 0));
    // Every look at the flag is a load of 64 lanes and a wait; all but the last are followed by a sleep.
    assert_eq!(reader.vector_loads, reader.polls + 1);
    assert_eq!(reader.other_bytes, 16 + 256 * reader.vector_loads);
    assert_eq!((reader.scalar_loads, writer.scalar_loads), (1, 1));
    assert_eq!((reader.waitcnts, writer.waitcnts), (1 + reader.vector_loads, 2));
}

#[test]
fn weights_in_flight_are_a_workgroups_at_its_barrier() {
    let prologue = "s_load_dwordx4 s[4:7], s[0:1], 0x0\ns_waitcnt lgkmcnt(0)\nv_lshlrev_b32 v1, 2, v0";
    let held = counted(&format!("{prologue}\n{LOAD}\ns_barrier\ns_waitcnt vmcnt(0)\ns_barrier"), (1, 128));
    assert_eq!((held[0].weights_in_flight, held[0].barriers), (512, 4));
    let waited = counted(&format!("{prologue}\n{LOAD}\ns_waitcnt vmcnt(0)\ns_barrier"), (1, 128));
    assert_eq!(waited[0].weights_in_flight, 0);
}

#[test]
fn counting_changes_nothing_that_runs() {
    let code = assemble(&polling(LOAD, "s_nop 0"), 0);
    let run = |is_counted: bool| {
        let mut emulator = Emulator::new(Options::default());
        let module = emulator.load(&code).unwrap();
        if is_counted {
            emulator.count(module, 2, |_| Label { bins: [0, 1], phase: Some(1), is_poll: false }).unwrap();
        }
        let (weights, flag) = (buffer(&mut emulator, 0, 1024, "weights"), buffer(&mut emulator, 0, 64, "flag"));
        launch(&mut emulator, 0, module, "f", (2, 64), Kernarg::new().pointer(weights).pointer(flag)).unwrap();
        emulator.synchronize().unwrap();
        // A label's phase chooses the bin.
        assert!(emulator.profile().is_none_or(|profile| profile.counts(0, 0, 0) == Counts::default()));
        (read_words(&emulator, flag, 1), emulator.statistics().wave_instructions, emulator.ticks())
    };
    assert_eq!(run(false), run(true));
}
