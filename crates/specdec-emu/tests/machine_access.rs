//! Ways to reach memory: buffers with bounds, LDS DMA, atomics, host memory in place, placed memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

mod machine_rig;

use machine_rig::{assemble, buffer, compile, launch, read_words, words, Kernarg};
use specdec_core::device::Device;
use specdec_core::ids::{DeviceAddress, Rank};
use specdec_emu::machine::{Emulator, Options};

#[test]
fn a_buffer_ends_where_its_descriptor_says() {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&compile("access")).unwrap();
    let input: Vec<u32> = (1..=256).collect();
    let (input, out) = (words(&mut emulator, "in", &input), buffer(&mut emulator, 0, 2048, "out"));
    // 10 elements of 16 bytes, two dwords of the next and half a dword, which does not count.
    launch(&mut emulator, 0, module, "bounds", (1, 64), Kernarg::new().pointer(input).pointer(out).word(170)).unwrap();
    emulator.synchronize().unwrap();
    let values = read_words(&emulator, out, 512);
    assert!((0..256).all(|i| values[i] == if i < 42 { i as u32 + 1 } else { 0 }));
    assert!((0..256).all(|i| values[256 + i] == u32::from(i < 42)));
}

#[test]
fn lds_dma_puts_each_lane_behind_the_other() {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&compile("access")).unwrap();
    let input: Vec<u32> = (0..1024).collect();
    let (input, out) = (words(&mut emulator, "in", &input), buffer(&mut emulator, 0, 4096, "out"));
    launch(&mut emulator, 0, module, "dma", (1, 256), Kernarg::new().pointer(input).pointer(out)).unwrap();
    emulator.synchronize().unwrap();
    let values = read_words(&emulator, out, 1024);
    assert!((0..1024).all(|i| values[i] == ((i / 4 + 100) % 256 * 4 + i % 4) as u32));
    assert_eq!(emulator.statistics().lds_dma, 4);
    let in_flight: Vec<_> = emulator.statistics().loads_in_flight.iter().collect();
    assert_eq!(in_flight.len(), 1, "{in_flight:?}");
}

#[test]
fn atomics_return_the_old_value() {
    let mut emulator = Emulator::new(Options { quantum: 2, ..Options::default() });
    let module = emulator.load(&compile("access")).unwrap();
    let (out, old) = (words(&mut emulator, "out", &[0, 0, 0, 0, 5, 0]), buffer(&mut emulator, 0, 4 * 1024, "old"));
    launch(&mut emulator, 0, module, "atomics", (8, 128), Kernarg::new().pointer(out).pointer(old)).unwrap();
    emulator.synchronize().unwrap();
    let values = read_words(&emulator, out, 5);
    assert_eq!(values[..4], [1024, 1023, 0, 1024]);
    assert_eq!(values[4] % 64, 0, "the first lane of some wave won the exchange");
    let mut seen = read_words(&emulator, old, 1024);
    seen.sort_unstable();
    assert!(seen.iter().enumerate().all(|(i, &value)| value as usize == i));
    assert_eq!(emulator.statistics().atomics, 16 * 4);
}

const COPY: &str = "s_load_dwordx4 s[4:7], s[0:1], 0x0
    v_lshlrev_b32_e32 v1, 2, v0
    s_waitcnt lgkmcnt(0)
    global_load_dword v2, v1, s[4:5]
    s_waitcnt vmcnt(0)
    global_store_dword v1, v2, s[6:7]";

#[test]
fn memory_can_be_placed_and_huge() {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&assemble(COPY, 0)).unwrap();
    let place = DeviceAddress(17592186044416);
    emulator.allocate_at(Rank(0), place, 1 << 36, "sparse", true).unwrap();
    let far = place.offset((1 << 35) + 4096);
    emulator.write(far, &[7; 256]).unwrap();
    let out = place.offset(1 << 34);
    launch(&mut emulator, 0, module, "f", (1, 64), Kernarg::new().pointer(far).pointer(out)).unwrap();
    emulator.synchronize().unwrap();
    assert_eq!(read_words(&emulator, out, 64), [0x0707_0707; 64]);
}

#[test]
fn a_barrier_shows_the_loads_in_flight() {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&compile("access")).unwrap();
    let (input, out) = (buffer(&mut emulator, 0, 1 << 20, "in"), buffer(&mut emulator, 0, 1 << 16, "out"));
    let arguments = Kernarg::new().pointer(input).pointer(out).word(2).word(8);
    launch(&mut emulator, 0, module, "stream", (4, 512), arguments).unwrap();
    emulator.synchronize().unwrap();
    let statistics = emulator.statistics();
    let ((kernel, pc), loads) = statistics.loads_in_flight.iter().next().unwrap();
    assert_eq!((kernel.as_str(), loads.workgroups), ("stream", 4));
    // 8 waves with a ring of 8 loads of 16 bytes a lane.
    assert!((48 << 10..=64 << 10).contains(&loads.min_bytes) && loads.min_bytes <= loads.max_bytes, "{loads:?}");
    assert_eq!(emulator.functions_at(module, *pc).unwrap()[0].function, "stream");
    assert_eq!(emulator.unsupported_instructions(module).unwrap(), []);
    assert_eq!(statistics.mfma, 4 * 8 * 2 * 8);
}
