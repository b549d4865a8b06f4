//! Builds the tests' kernels and runs them: compiler, arguments, typed memory.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::expect_used, reason = "a test stops at the first surprise")]

use std::path::{Path, PathBuf};
use std::process::Command;

use specdec_core::device::{Device, Launch, MemoryKind};
use specdec_core::ids::{DeviceAddress, Rank};
use specdec_emu::machine::{Emulator, EmulatorError, ModuleHandle};

/// A fresh place for a build product of this test process.
fn product(name: &str) -> PathBuf {
    static NEXT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{number}-{name}", std::process::id()))
}

fn run(command: &mut Command) {
    let output = command.output().expect("the compiler starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn take(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).expect("the product is there");
    std::fs::remove_file(path).expect("the product is ours");
    bytes
}

/// Compiles `machine_kernels/<name>.hip` for a target, with more flags.
fn compile_target(name: &str, target: &str, more: &[&str]) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/machine_kernels/{name}.hip"));
    let out = product("k.co");
    let offload = format!("--offload-arch={target}");
    let flags = "-x hip --offload-device-only -nogpuinc -nogpulib -O3 -std=c++20 -ffp-contract=off \
                 -gline-tables-only -mcode-object-version=6 --no-gpu-bundle-output -c";
    let mut command = Command::new("clang-22");
    run(command.args(flags.split_whitespace()).args(more).arg(offload).arg(source).arg("-o").arg(&out));
    take(&out)
}

/// Compiles `machine_kernels/<name>.hip` for a target.
pub fn compile_for(name: &str, target: &str) -> Vec<u8> {
    compile_target(name, target, &[])
}

/// Compiles `machine_kernels/<name>.hip` for gfx950 with more flags.
pub fn compile_with(name: &str, more: &[&str]) -> Vec<u8> {
    compile_target(name, "gfx950", more)
}

/// Compiles `machine_kernels/<name>.hip` for gfx950.
pub fn compile(name: &str) -> Vec<u8> {
    compile_target(name, "gfx950", &[])
}

/// Assembles and links one kernel `f` from its instructions: s[0:1] kernarg, s2 workgroup, v0 work-item, 16
/// vector registers, 16 bytes of arguments (two pointers).
pub fn assemble(instructions: &str, lds_bytes: u32) -> Vec<u8> {
    let text = format!(
        ".amdgcn_target \"amdgcn-amd-amdhsa--gfx950\"\n.amdhsa_code_object_version 6\n.text\n.globl f\n.p2align 8\n\
         .type f,@function\nf:\n{instructions}\ns_endpgm\n.Lend:\n.size f, .Lend-f\n.section .rodata,\"a\"\n.p2align 6\n\
         .amdhsa_kernel f\n.amdhsa_next_free_vgpr 16\n.amdhsa_next_free_sgpr 32\n.amdhsa_accum_offset 16\n\
         .amdhsa_group_segment_fixed_size {lds_bytes}\n.amdhsa_user_sgpr_kernarg_segment_ptr 1\n\
         .amdhsa_kernarg_size 16\n.end_amdhsa_kernel\n.amdgpu_metadata\n---\namdhsa.version: [1, 2]\n\
         amdhsa.target: amdgcn-amd-amdhsa--gfx950\namdhsa.kernels:\n  - .name: f\n    .symbol: f.kd\n\
         \x20   .kernarg_segment_size: 16\n    .kernarg_segment_align: 8\n    .group_segment_fixed_size: {lds_bytes}\n\
         \x20   .private_segment_fixed_size: 0\n    .wavefront_size: 64\n    .sgpr_count: 32\n    .vgpr_count: 16\n\
         \x20   .agpr_count: 0\n    .max_flat_workgroup_size: 1024\n    .args:\n\
         \x20     - {{.offset: 0, .size: 8, .value_kind: global_buffer, .address_space: global}}\n\
         \x20     - {{.offset: 8, .size: 8, .value_kind: global_buffer, .address_space: global}}\n\
         ...\n.end_amdgpu_metadata\n"
    );
    let (source, object, out) = (product("k.s"), product("k.o"), product("k.co"));
    std::fs::write(&source, text).expect("the source is written");
    let triple = ["--triple=amdgcn-amd-amdhsa", "--mcpu=gfx950", "--filetype=obj"];
    run(Command::new("llvm-mc-22").args(triple).arg(&source).arg("-o").arg(&object));
    run(Command::new("ld.lld-22").arg("-shared").arg(&object).arg("-o").arg(&out));
    std::fs::remove_file(source).expect("the source is ours");
    std::fs::remove_file(object).expect("the object is ours");
    take(&out)
}

/// Kernel arguments, laid out with natural alignment.
#[derive(Clone, Default)]
pub struct Kernarg(Vec<u8>);

impl Kernarg {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn pointer(mut self, address: DeviceAddress) -> Self {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        self.0.extend_from_slice(&address.0.to_le_bytes());
        self
    }

    pub fn word(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Zeroed device memory.
pub fn buffer(emulator: &mut Emulator, rank: u8, bytes: u64, name: &str) -> DeviceAddress {
    emulator.allocate(Rank(rank), MemoryKind::Device, bytes, name).expect("memory is there")
}

/// Device memory with these words.
pub fn words(emulator: &mut Emulator, name: &str, values: &[u32]) -> DeviceAddress {
    let address = buffer(emulator, 0, values.len() as u64 * 4, name);
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    emulator.write(address, &bytes).expect("the buffer holds them");
    address
}

/// Reads words back.
pub fn read_words(emulator: &Emulator, address: DeviceAddress, count: usize) -> Vec<u32> {
    let mut bytes = vec![0; count * 4];
    emulator.read(address, &mut bytes).expect("the buffer holds them");
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect()
}

/// Launches on a rank.
pub fn launch(
    emulator: &mut Emulator,
    rank: u8,
    module: ModuleHandle,
    symbol: &'static str,
    (grid, block): (u32, u32),
    kernarg: Kernarg,
) -> Result<(), EmulatorError> {
    let launch = Launch { module, symbol, grid, block, kernarg: kernarg.bytes() };
    emulator.launch(Rank(rank), &launch)
}
