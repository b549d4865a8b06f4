//! Forms of memory and machine instructions that compilers seldom mix: sub-dword, two-address, flat, registers.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod machine_rig;

use machine_rig::{assemble, buffer, compile, compile_with, launch, read_words, words, Kernarg};
use specdec_core::device::Device;
use specdec_core::ids::Rank;
use specdec_emu::machine::{Emulator, GridLaunch, Options};

/// Runs `instructions` on one wave: 64 words 0x80008000 + lane in s[4:5], 256 words of result in s[6:7], 4 * lane
/// in v1.
fn run(instructions: &str, lds_bytes: u32) -> Vec<u32> {
    let text = format!(
        "s_load_dwordx4 s[4:7], s[0:1], 0x0\nv_lshlrev_b32_e32 v1, 2, v0\ns_waitcnt lgkmcnt(0)\n{instructions}"
    );
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&assemble(&text, lds_bytes)).unwrap();
    let input: Vec<u32> = (0..64).map(|lane| 0x8000_8000 + lane).collect();
    let (input, out) = (words(&mut emulator, "in", &input), buffer(&mut emulator, 0, 1024, "out"));
    launch(&mut emulator, 0, module, "f", (1, 64), Kernarg::new().pointer(input).pointer(out)).unwrap();
    emulator.synchronize().unwrap();
    read_words(&emulator, out, 256)
}

const STORE_V2: &str = "\ns_waitcnt vmcnt(0) lgkmcnt(0)\nglobal_store_dword v1, v2, s[6:7]";

#[test]
fn sub_dword_loads_extend_or_place() {
    let load = |form: &str| run(&format!("global_load_{form} v2, v1, s[4:5]{STORE_V2}"), 0)[5];
    assert_eq!(load("ubyte"), 0x05);
    assert_eq!(load("ushort"), 0x8005);
    assert_eq!(load("sshort"), 0xffff_8005);
    assert_eq!(load("short_d16"), 0x8005);
    assert_eq!(load("short_d16_hi"), 0x8005_0000);
    let byte = run(&format!("global_load_sbyte v2, v1, s[4:5] offset:1{STORE_V2}"), 0)[5];
    assert_eq!(byte, 0xffff_ff80);
}

#[test]
fn sub_dword_stores_write_only_their_bytes() {
    let text = "v_mov_b32_e32 v2, -1\nglobal_store_dword v1, v2, s[6:7]\nv_mov_b32_e32 v3, 0x12345678\n";
    let store = |form: &str| run(&format!("{text}global_store_{form} v1, v3, s[6:7]"), 0)[9];
    assert_eq!(store("byte"), 0xffff_ff78);
    assert_eq!(store("short"), 0xffff_5678);
    assert_eq!(store("short_d16_hi"), 0xffff_1234);
    assert_eq!(store("byte_d16_hi"), 0xffff_ff34);
}

#[test]
fn two_address_lds_forms_scale_their_offsets() {
    let text = "v_lshlrev_b32_e32 v4, 3, v0\nv_add_u32_e32 v5, 100, v0\nds_write2_b32 v4, v0, v5 offset0:2 offset1:3
        s_waitcnt lgkmcnt(0)\nds_read2_b32 v[2:3], v4 offset0:3 offset1:2\ns_waitcnt lgkmcnt(0)
        v_lshl_add_u32 v2, v3, 16, v2";
    assert_eq!(run(&format!("{text}{STORE_V2}"), 1024)[7], (7 << 16) + 107);
    let text = "v_add_u32_e32 v5, 100, v0\nds_write2st64_b32 v1, v0, v5 offset0:0 offset1:2
        s_waitcnt lgkmcnt(0)\nds_read_b32 v2, v1 offset:512";
    assert_eq!(run(&format!("{text}{STORE_V2}"), 1024)[7], 107);
    let text = "v_lshlrev_b32_e32 v4, 4, v0\nv_mov_b32_e32 v6, 5\nv_mov_b32_e32 v7, 6\nv_mov_b32_e32 v8, v0
        v_mov_b32_e32 v9, 8\nds_write_b128 v4, v[6:9]\ns_waitcnt lgkmcnt(0)\nds_read_b64 v[2:3], v4 offset:8";
    assert_eq!(run(&format!("{text}{STORE_V2}"), 1024)[7], 7);
}

#[test]
fn lds_atomics_go_lane_by_lane() {
    let text = "v_mov_b32_e32 v4, 0\nv_mov_b32_e32 v5, 10\nds_write_b32 v4, v5\nv_mov_b32_e32 v6, 3
        s_waitcnt lgkmcnt(0)\nds_add_rtn_u32 v2, v4, v6";
    let old = run(&format!("{text}{STORE_V2}"), 64);
    assert!((0..64).all(|lane| old[lane] as usize == 10 + 3 * lane));
    let text = "v_mov_b32_e32 v4, 0\nv_mov_b32_e32 v5, 0\nds_write_b32 v4, v5\nv_mov_b32_e32 v6, 20
        v_add_u32_e32 v7, 1, v0\ns_waitcnt lgkmcnt(0)\nds_cmpst_rtn_b32 v2, v4, v0, v7";
    let old = run(&format!("{text}{STORE_V2}"), 64);
    assert!((0..64).all(|lane| old[lane] as usize == lane), "lane n finds n and leaves n + 1");
}

#[test]
fn a_flat_access_to_global_memory_is_a_global_access() {
    let text = "v_mov_b32_e32 v4, s4\nv_mov_b32_e32 v5, s5\nflat_load_dword v2, v[4:5]";
    assert_eq!(run(&format!("{text}{STORE_V2}"), 0)[3], 0x8000_8000);
}

#[test]
fn two_loads_of_one_register_complete_in_order() {
    let text = "global_load_dword v2, v1, s[4:5]\ns_mov_b64 exec, 0xff\nglobal_load_ubyte v2, v1, s[4:5]
        s_mov_b64 exec, -1";
    let values = run(&format!("{text}{STORE_V2}"), 0);
    assert_eq!((values[3], values[30]), (3, 0x8000_801e));
}

#[test]
fn hardware_registers_and_clocks_answer() {
    let text = "s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_getreg_b32 s8, hwreg(HW_REG_XCC_ID)
        s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 1\ns_getreg_b32 s9, hwreg(HW_REG_MODE, 4, 4)
        s_memrealtime s[10:11]\ns_memtime s[12:13]\ns_waitcnt lgkmcnt(0)\ns_lshl_b32 s14, s2, 4
        v_mov_b32_e32 v1, s14\nv_mov_b32_e32 v4, s8\nv_mov_b32_e32 v5, s9\nv_mov_b32_e32 v6, s10
        v_mov_b32_e32 v7, s12\nglobal_store_dwordx4 v1, v[4:7], s[4:5]";
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&assemble(text, 0)).unwrap();
    let out = buffer(&mut emulator, 0, 256, "out");
    let kernel = emulator.kernels(module).unwrap().remove(0);
    assert_eq!((kernel.symbol.as_str(), kernel.explicit_kernarg_bytes), ("f", 16));
    emulator.advance_clock(1000);
    launch(&mut emulator, 0, module, "f", (16, 64), Kernarg::new().pointer(out).pointer(out)).unwrap();
    emulator.synchronize().unwrap();
    for (group, values) in read_words(&emulator, out, 64).chunks(4).enumerate() {
        assert_eq!((values[0] as usize, values[1]), (group % 8, 0b1101), "the denormal bits of f64 are on");
        assert!(values[2] > 1000 && values[3] >= 24 * values[2]);
    }
}

#[test]
fn work_item_ids_are_packed_and_grids_have_three_dimensions() {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&compile("arithmetic")).unwrap();
    let out = buffer(&mut emulator, 0, 4 * 2 * 12 * 96, "out");
    let launch = GridLaunch {
        module,
        symbol: "ids".into(),
        grid: [2, 3, 2],
        block: [4, 6, 4],
        dynamic_lds_bytes: 0,
        kernarg: Kernarg::new().pointer(out).bytes(),
    };
    emulator.launch_grid(Rank(0), &launch).unwrap();
    emulator.synchronize().unwrap();
    let values = read_words(&emulator, out, 12 * 96);
    for (at, value) in values.into_iter().enumerate() {
        let (group, item) = (at / 96, at % 96);
        let digits = [group / 6, group / 2 % 3, group % 2, item / 24, item / 4 % 6, item % 4];
        assert_eq!(value as usize, digits.iter().fold(0, |number, digit| number * 10 + digit));
    }
}

#[test]
fn arguments_can_be_preloaded_into_scalar_registers() {
    let mut emulator = Emulator::new(Options::default());
    let code = compile_with("arithmetic", &["-mllvm", "-amdgpu-kernarg-preload-count=4"]);
    let module = emulator.load(&code).unwrap();
    let input: Vec<u32> = (0..512).collect();
    let (input, out) = (words(&mut emulator, "in", &input), buffer(&mut emulator, 0, 4, "out"));
    launch(&mut emulator, 0, module, "reduce", (1, 512), Kernarg::new().pointer(input).pointer(out)).unwrap();
    emulator.synchronize().unwrap();
    assert_eq!(read_words(&emulator, out, 1), [511 * 256]);
}

#[test]
fn a_table_in_the_code_object_is_readable() {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&compile("arithmetic")).unwrap();
    let out = buffer(&mut emulator, 0, 4 * 64, "out");
    launch(&mut emulator, 0, module, "look_up", (1, 64), Kernarg::new().pointer(out)).unwrap();
    emulator.synchronize().unwrap();
    assert_eq!(read_words(&emulator, out, 6), [2, 3, 5, 7, 2, 3]);
}
