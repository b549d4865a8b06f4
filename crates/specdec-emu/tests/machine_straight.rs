//! Kernels that run to their end: results, arguments, listing, determinism.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

mod machine_rig;

use machine_rig::{buffer, compile, launch, read_words, words, Kernarg};
use specdec_core::device::Device;
use specdec_emu::machine::{Emulator, Options};

#[test]
fn vector_add_masks_the_tail() {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&compile("arithmetic")).unwrap();
    let count = 1000;
    let a: Vec<u32> = (0..count).map(|i| (i as f32).to_bits()).collect();
    let b: Vec<u32> = (0..count).map(|i| (0.5 * i as f32).to_bits()).collect();
    let (a, b) = (words(&mut emulator, "a", &a), words(&mut emulator, "b", &b));
    let c = buffer(&mut emulator, 0, 4 * 1024, "c");
    let arguments = Kernarg::new().pointer(a).pointer(b).pointer(c).word(count);
    launch(&mut emulator, 0, module, "vector_add", (4, 256), arguments).unwrap();
    emulator.synchronize().unwrap();
    let result = read_words(&emulator, c, 1024);
    assert!((0..count as usize).all(|i| f32::from_bits(result[i]) == 1.5 * i as f32));
    assert!(result[count as usize..].iter().all(|&value| value == 0));
    assert_eq!(emulator.statistics().launches, 1);
}

#[test]
fn launches_of_a_rank_run_in_order() {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&compile("arithmetic")).unwrap();
    let ones = words(&mut emulator, "ones", &[1.0f32.to_bits(); 256]);
    let sum = buffer(&mut emulator, 0, 1024, "sum");
    for _ in 0..5 {
        let arguments = Kernarg::new().pointer(ones).pointer(sum).pointer(sum).word(256);
        launch(&mut emulator, 0, module, "vector_add", (1, 256), arguments).unwrap();
    }
    emulator.synchronize().unwrap();
    assert_eq!(read_words(&emulator, sum, 256), [5.0f32.to_bits(); 256]);
    assert_eq!(emulator.statistics().launches, 5);
    emulator.free(ones).unwrap();
    let arguments = Kernarg::new().pointer(ones).pointer(sum).pointer(sum).word(256);
    launch(&mut emulator, 0, module, "vector_add", (1, 256), arguments.clone()).unwrap();
    launch(&mut emulator, 0, module, "vector_add", (1, 256), arguments).unwrap();
    assert!(emulator.synchronize().is_err(), "freed memory is gone");
    assert_eq!(read_words(&emulator, sum, 256), [5.0f32.to_bits(); 256], "the second launch did not run");
}

#[test]
fn a_reduction_in_lds_meets_at_its_barriers() {
    let mut emulator = Emulator::new(Options { quantum: 3, ..Options::default() });
    let module = emulator.load(&compile("arithmetic")).unwrap();
    let input: Vec<u32> = (0..4096).collect();
    let input = words(&mut emulator, "in", &input);
    let out = buffer(&mut emulator, 0, 32, "out");
    launch(&mut emulator, 0, module, "reduce", (8, 512), Kernarg::new().pointer(input).pointer(out)).unwrap();
    emulator.synchronize().unwrap();
    let expected: Vec<u32> = (0..8).map(|group| (group * 512..(group + 1) * 512).sum()).collect();
    assert_eq!(read_words(&emulator, out, 8), expected);
}

#[test]
fn hidden_arguments_are_filled_in_by_kind() {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&compile("arithmetic")).unwrap();
    let out = buffer(&mut emulator, 0, 64, "out");
    launch(&mut emulator, 0, module, "hidden", (3, 96), Kernarg::new().pointer(out).word(77)).unwrap();
    emulator.synchronize().unwrap();
    assert_eq!(read_words(&emulator, out, 5), [77, 3, 96, 0, 1]);
}

#[test]
fn the_listing_shows_what_the_metadata_says() {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&compile("arithmetic")).unwrap();
    let kernels = emulator.kernels(module).unwrap();
    let reduce = kernels.iter().find(|kernel| kernel.symbol == "reduce").unwrap();
    assert_eq!((reduce.lds_bytes, reduce.explicit_kernarg_bytes, reduce.private_bytes), (2048, 16, 0));
    assert_eq!((reduce.vgpr_spills, reduce.sgpr_spills, reduce.max_block), (0, 0, 512));
    assert!(reduce.vgprs > 0 && reduce.sgprs > 0 && reduce.code_bytes > 0);
}

#[test]
fn matrix_instructions_under_a_mask_are_counted() {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&compile("matrix")).unwrap();
    let ones = words(&mut emulator, "ones", &[0x3f80_3f80; 256]);
    let out = buffer(&mut emulator, 0, 1024, "out");
    launch(&mut emulator, 0, module, "half_product", (1, 64), Kernarg::new().pointer(ones).pointer(out)).unwrap();
    emulator.synchronize().unwrap();
    assert_eq!((emulator.statistics().mfma, emulator.statistics().masked_mfma), (1, 1));
}
