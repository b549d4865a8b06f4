//! How fast the machine is: `cargo test --release --test machine_speed -- --ignored --nocapture`.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement prints, and stops at the first surprise")]

mod machine_rig;

use machine_rig::{buffer, compile, launch, Kernarg};
use specdec_core::device::Device;
use specdec_core::ids::DeviceAddress;
use specdec_emu::machine::{Emulator, ModuleHandle, Options};

fn measure(name: &str, queue: impl Fn(&mut Emulator, ModuleHandle, DeviceAddress, DeviceAddress)) -> f64 {
    let mut emulator = Emulator::new(Options::default());
    let module = emulator.load(&compile("access")).unwrap();
    let input = buffer(&mut emulator, 0, 64 << 20, "in");
    let out = buffer(&mut emulator, 0, 1 << 20, "out");
    queue(&mut emulator, module, input, out);
    emulator.synchronize().unwrap();
    let statistics = emulator.statistics();
    let rate = statistics.wave_instructions as f64 / statistics.wall_seconds;
    let (loaded, mfma) = (statistics.bytes_loaded as f64, statistics.mfma as f64);
    println!(
        "{name}: {:.1} M wave instructions/s, {:.2} GB/s loaded, {:.2} M MFMA/s ({} instructions, {} in polls)",
        rate / 1e6,
        loaded / statistics.wall_seconds / 1e9,
        mfma / statistics.wall_seconds / 1e6,
        statistics.wave_instructions,
        statistics.poll_instructions
    );
    rate
}

#[test]
#[ignore = "a measurement, not a check"]
fn wave_instructions_per_second() {
    measure("integer and float arithmetic", |emulator, module, input, out| {
        let arguments = Kernarg::new().pointer(input).pointer(out).word(20_000);
        launch(emulator, 0, module, "mix", (4, 512), arguments).unwrap();
    });
    measure("exchanges between 256 workgroups", |emulator, _, _, out| {
        let module = emulator.load(&compile("exchange")).unwrap();
        let region = buffer(emulator, 0, 16 * 256, "region");
        let arguments = Kernarg::new().pointer(region).pointer(out).word(256).word(20).word(200);
        launch(emulator, 0, module, "all_to_all", (256, 512), arguments).unwrap();
    });
    measure("weight stream with bf16 MFMA", |emulator, module, input, out| {
        let arguments = Kernarg::new().pointer(input).pointer(out).word(64).word(32);
        launch(emulator, 0, module, "stream", (64, 512), arguments).unwrap();
    });
}
