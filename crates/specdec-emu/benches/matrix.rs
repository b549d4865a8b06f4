//! Matrix instructions a second, by how many of B's sixteen columns hold anything: `cargo bench -p specdec-emu`.
#![allow(clippy::expect_used, missing_docs, reason = "a measurement stops at the first surprise")]

use criterion::{criterion_group, criterion_main, BenchmarkId, Criterion, Throughput};
use specdec_emu::decode::decode;
use specdec_emu::exec::handler;
use specdec_emu::wave::{Wave, LANES};

/// `v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[8:11], v[0:3], v12, v13 op_sel_hi:[0,0,0] cbsz:4 blgp:4`
const SCALED: [u32; 4] = [0xd3ac_0000, 0x0002_1b0c, 0xd3ad_0c00, 0x8402_1104];
/// `v_mfma_f32_16x16x32_bf16 v[0:3], v[4:7], v[8:11], v[0:3]`
const BF16: [u32; 2] = [0xd3b5_0000, 0x0402_1104];

/// A wave whose A is full, and whose B is in the first `columns` columns.
fn wave(columns: usize, a: u32, b: u32) -> Wave {
    let mut wave = Wave { sgpr: [0; 128], vgpr: vec![[0; LANES]; 16], scc: false, pc: 0, text_base: 0 };
    for (index, register) in wave.vgpr.iter_mut().enumerate() {
        for (lane, value) in register.iter_mut().enumerate() {
            *value = match index {
                4..=7 => a,
                8..=11 if lane % 16 < columns => b,
                12..=13 => 127,
                _ => 0,
            };
        }
    }
    wave
}

fn matrix(criterion: &mut Criterion) {
    for (name, words, a, b) in
        [("scaled FP4", &SCALED[..], 0x1234_5678, 0x7654_3219), ("bf16", &BF16[..], 0x3f80_3f00, 0x3f00_bf80)]
    {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(1));
        let text: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let inst = decode(&text, 0).expect("an instruction");
        let run = handler(&inst).expect("an executor");
        for columns in [1, 4, 16] {
            let mut wave = wave(columns, a, b);
            group.bench_function(BenchmarkId::new("columns", columns), |bencher| {
                bencher.iter(|| run(&inst, &mut wave));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, matrix);
criterion_main!(benches);
