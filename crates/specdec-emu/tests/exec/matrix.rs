//! Matrix instructions against triple loops over the operand maps of AMD's matrix-core documents.

use crate::{assemble, run, Random};
use specdec_emu::inst::Inst;
use specdec_emu::wave::{Wave, LANES};

const A: usize = 32;
const B: usize = 48;
const C: usize = 64;
const SCALE_A: usize = 100;
const SCALE_B: usize = 101;

fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

/// Register offset and lane of result element (row, column) of an n x n result.
fn result_place(n: usize, row: usize, column: usize) -> (usize, usize) {
    if n == 16 {
        (row % 4, row / 4 * 16 + column)
    } else {
        (row % 4 + row / 8 * 4, row / 4 % 2 * 32 + column)
    }
}

/// Compares D (v0 on) with chains over `a(row, k)` and `b(k, column)`.
fn check_product(
    before: &Wave,
    inst: &Inst,
    n: usize,
    num_k: usize,
    a: impl Fn(usize, usize) -> f32,
    b: impl Fn(usize, usize) -> f32,
) {
    let mut after = before.clone();
    after.write64(specdec_emu::wave::EXEC, 0x1234); // EXEC does not matter.
    run(inst, &mut after);
    for row in 0..n {
        for column in 0..n {
            let (register, lane) = result_place(n, row, column);
            let start = f(before.vgpr[C + register][lane]);
            let expected = (0..num_k).fold(start, |sum, k| a(row, k).mul_add(b(k, column), sum));
            let found = after.vgpr[register][lane];
            assert!(
                crate::same_float(found, expected.to_bits()),
                "({row}, {column}): {:e}, not {expected:e}",
                f(found)
            );
        }
    }
}

fn matrix_wave(random: &mut Random) -> Wave {
    let mut wave = crate::wave();
    for register in A..C {
        wave.vgpr[register] = std::array::from_fn(|_| random.word());
    }
    for register in C..C + 16 {
        wave.vgpr[register] = std::array::from_fn(|_| random.float().to_bits());
    }
    wave
}

#[test]
fn bf16_products() {
    let cases = [
        ("v_mfma_f32_16x16x32_bf16 v[0:3], v[32:35], v[48:51], v[64:67]", 16, 8),
        ("v_mfma_f32_32x32x16_bf16 v[0:15], v[32:35], v[48:51], v[64:79]", 32, 8),
        ("v_mfma_f32_16x16x16_bf16 v[0:3], v[32:33], v[48:49], v[64:67]", 16, 4),
        ("v_mfma_f32_32x32x8_bf16 v[0:15], v[32:33], v[48:49], v[64:79]", 32, 4),
    ];
    let mut random = Random(71);
    for (text, n, per_lane) in cases {
        let inst = &assemble(&[text])[0];
        for _ in 0..20 {
            let mut wave = matrix_wave(&mut random);
            for register in A..C {
                for lane in 0..LANES {
                    let [low, high] = [random.float(), random.float()].map(|x| x.to_bits() >> 16);
                    wave.vgpr[register][lane] = low | high << 16;
                }
            }
            let element = |first: usize, index: usize, k: usize| {
                let (lane, j) = (k / per_lane * n + index, k % per_lane);
                f(wave.vgpr[first + j / 2][lane] >> (16 * (j % 2)) << 16)
            };
            check_product(
                &wave,
                inst,
                n,
                per_lane * 64 / n,
                |row, k| element(A, row, k),
                |k, column| element(B, column, k),
            );
        }
    }
}

#[test]
fn half_and_byte_products() {
    let lines = [
        "v_mfma_f32_16x16x32_f16 v[0:3], v[32:35], v[48:51], v[64:67]",
        "v_mfma_f32_32x32x8_f16 v[0:15], v[32:33], v[48:49], v[64:79]",
        "v_mfma_f32_16x16x32_fp8_bf8 v[0:3], v[32:33], v[48:49], v[64:67]",
        "v_mfma_f32_32x32x16_bf8_fp8 v[0:15], v[32:33], v[48:49], v[64:79]",
    ];
    let insts = assemble(&lines);
    let mut random = Random(76);
    let mut wave = matrix_wave(&mut random);
    for register in A..C {
        wave.vgpr[register] = wave.vgpr[register].map(|x| x & 0xb7b7_b7b7);
    }
    let half = |first: usize, n: usize, per_lane: usize, index: usize, k: usize| {
        let (lane, j) = (k / per_lane * n + index, k % per_lane);
        half::f16::from_bits((wave.vgpr[first + j / 2][lane] >> (16 * (j % 2))) as u16).to_f32()
    };
    check_product(&wave, &insts[0], 16, 32, |row, k| half(A, 16, 8, row, k), |k, column| half(B, 16, 8, column, k));
    check_product(&wave, &insts[1], 32, 8, |row, k| half(A, 32, 4, row, k), |k, column| half(B, 32, 4, column, k));
    let byte = |first: usize, format: usize, n: usize, index: usize, k: usize| {
        let dword = wave.vgpr[first + k % 8 / 4][k / 8 * n + index];
        small_float(dword >> (8 * (k % 4)) & 0xff, format) as f32
    };
    check_product(&wave, &insts[2], 16, 32, |row, k| byte(A, 0, 16, row, k), |k, column| byte(B, 1, 16, column, k));
    check_product(&wave, &insts[3], 32, 16, |row, k| byte(A, 1, 32, row, k), |k, column| byte(B, 0, 32, column, k));
}

#[test]
fn single_products() {
    let inst = &assemble(&["v_mfma_f32_16x16x4_f32 v[0:3], v32, v48, v[64:67]"])[0];
    let mut random = Random(72);
    let mut wave = matrix_wave(&mut random);
    for register in [A, B] {
        wave.vgpr[register] = std::array::from_fn(|_| random.float().to_bits());
    }
    let element = |first: usize, index: usize, k: usize| f(wave.vgpr[first][16 * k + index]);
    check_product(&wave, inst, 16, 4, |row, k| element(A, row, k), |k, column| element(B, column, k));
}

#[test]
fn constant_and_accumulation_register_sources() {
    let insts = assemble(&[
        "v_mfma_f32_16x16x32_bf16 v[0:3], v[32:35], v[48:51], 1.0",
        "v_mfma_f32_16x16x32_bf16 a[0:3], v[32:35], a[4:7], a[0:3]",
    ]);
    let mut wave = crate::wave();
    // All ones: each element is C + 32.
    for register in (32..36).chain(48..52).chain(260..264) {
        wave.vgpr[register] = [0x3f80_3f80; LANES];
    }
    for register in 256..260 {
        wave.vgpr[register] = [10f32.to_bits(); LANES];
    }
    for inst in &insts {
        run(inst, &mut wave);
    }
    assert_eq!((f(wave.vgpr[3][40]), f(wave.vgpr[258][1])), (33.0, 42.0));
}

#[test]
fn small_blocks() {
    let inst = &assemble(&["v_mfma_f32_4x4x4_16b_bf16 v[0:3], v[32:33], v[48:49], v[64:67]"])[0];
    let mut random = Random(73);
    let mut wave = matrix_wave(&mut random);
    for register in [32, 33, 48, 49] {
        wave.vgpr[register] =
            std::array::from_fn(|_| random.float().to_bits() & 0xffff_0000 | random.float().to_bits() >> 16);
    }
    let before = wave.clone();
    run(inst, &mut wave);
    let element = |first: usize, lane: usize, k: usize| f(before.vgpr[first + k / 2][lane] >> (16 * (k % 2)) << 16);
    for lane in 0..LANES {
        for row in 0..4 {
            let start = f(before.vgpr[C + row][lane]);
            let expected =
                (0..4).fold(start, |sum, k| element(A, lane / 4 * 4 + row, k).mul_add(element(B, lane, k), sum));
            assert_eq!(f(wave.vgpr[row][lane]), expected);
        }
    }
}

/// Value of a small float from its definition: exponent and mantissa widths, bias, and whether the top exponent is
/// special.
fn small_float(code: u32, format: usize) -> f64 {
    let (exponent_bits, mantissa_bits, bias) = [(4, 3, 7), (5, 2, 15), (2, 3, 1), (3, 2, 3), (2, 1, 1)][format];
    let mantissa = f64::from(code & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
    let exponent = (code >> mantissa_bits & ((1 << exponent_bits) - 1)) as i32;
    let sign = if code >> (mantissa_bits + exponent_bits) & 1 == 1 { -1.0 } else { 1.0 };
    let top = (1 << exponent_bits) - 1;
    if format == 0 && code & 0x7f == 0x7f || format == 1 && exponent == top && mantissa != 0.0 {
        return f64::NAN;
    }
    if format == 1 && exponent == top {
        return sign * f64::INFINITY;
    }
    let scale = if exponent == 0 { (mantissa, 1 - bias) } else { (1.0 + mantissa, exponent - bias) };
    sign * scale.0 * 2f64.powi(scale.1)
}

/// Element `k` of row or column `index`, before scaling.
fn small_element(wave: &Wave, first: usize, format: usize, n: usize, index: usize, k: usize) -> f64 {
    let num_bits = [8, 8, 6, 6, 4][format];
    let num_groups = 64 / n;
    let (group, j) = if num_bits == 8 {
        // Two runs of sixteen: the lane groups take the first half of K, then the second.
        (k / 16 % num_groups, k / (16 * num_groups) * 16 + k % 16)
    } else {
        (k / 32, k % 32)
    };
    let bit = |at: usize| wave.vgpr[first + at / 32][group * n + index] >> (at % 32) & 1;
    let code = (0..num_bits).fold(0, |code, place| code | bit(j * num_bits + place) << place);
    small_float(code, format)
}

fn registers(first: usize, format: usize) -> String {
    let num_registers = [8, 8, 6, 6, 4][format];
    format!("v[{first}:{}]", first + num_registers - 1)
}

#[test]
fn scaled_products_of_every_format() {
    let mut random = Random(74);
    let shapes = [("16x16x128", 16, 3), ("32x32x64", 32, 15)];
    for ((shape, n, last), a_format, b_format) in
        shapes.iter().flat_map(|&shape| (0..25).map(move |pair| (shape, pair / 5, pair % 5)))
    {
        let (a, b) = (registers(A, a_format), registers(B, b_format));
        let c = C + last;
        // Byte 2 of A's scales and byte 1 of B's.
        let text = format!(
            "v_mfma_scale_f32_{shape}_f8f6f4 v[0:{last}], {a}, {b}, v[64:{c}], v100, v101 \
             op_sel:[0,1,0] op_sel_hi:[1,0,0] cbsz:{a_format} blgp:{b_format}"
        );
        let plain =
            format!("v_mfma_f32_{shape}_f8f6f4 v[0:{last}], {a}, {b}, v[64:{c}] cbsz:{a_format} blgp:{b_format}");
        let insts = assemble(&[&text, &plain]);
        for round in 0..3 {
            let mut wave = matrix_wave(&mut random);
            for register in A..C {
                if a_format < 2 || b_format < 2 {
                    // Fewer NaN codes: their handling has its own test.
                    wave.vgpr[register] = wave.vgpr[register].map(|x| x & 0xb7b7_b7b7);
                }
            }
            for register in [SCALE_A, SCALE_B] {
                let centre = [120, 110, 125][round];
                wave.vgpr[register] = std::array::from_fn(|_| {
                    u32::from_le_bytes([7, centre, centre, 9].map(|base| base + (random.word() % 12) as u8))
                });
            }
            let scale = |register: usize, byte: u32, index: usize, k: usize| {
                2f64.powi((wave.vgpr[register][k / 32 * n + index] >> (8 * byte) & 0xff) as i32 - 127)
            };
            let a_of = |row, k| small_element(&wave, A, a_format, n, row, k);
            let b_of = |k, column| small_element(&wave, B, b_format, n, column, k);
            check_product(
                &wave,
                &insts[0],
                n,
                2048 / n,
                |row, k| (a_of(row, k) * scale(SCALE_A, 2, row, k)) as f32,
                |k, column| (b_of(k, column) * scale(SCALE_B, 1, column, k)) as f32,
            );
            check_product(
                &wave,
                &insts[1],
                n,
                2048 / n,
                |row, k| a_of(row, k) as f32,
                |k, column| b_of(k, column) as f32,
            );
        }
    }
}

/// Unused columns, which the emulator may skip: zero data, with C's zeros and NaNs as the chain leaves them.
#[test]
fn unused_columns() {
    let inst = &assemble(&["v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[32:35], v[48:51], v[64:67], v100, v101 op_sel_hi:[0,0,0] cbsz:4 blgp:4"])[0];
    let mut random = Random(75);
    for round in 0..64 {
        let mut wave = matrix_wave(&mut random);
        // Zero to seven columns that are used, anywhere.
        let used = (0..round % 8).fold(0, |used, _| used | 1 << (random.word() % 16));
        for lane in (0..LANES).filter(|lane| used >> (lane % 16) & 1 == 0) {
            for register in B..B + 4 {
                wave.vgpr[register][lane] = 0;
            }
            wave.vgpr[C][lane] = [0, 0x8000_0000, 0x7f80_0000, 0x7fc0_0000][random.word() as usize % 4];
        }
        if round % 3 == 0 {
            // No negative zero anywhere: all unused columns are left out.
            for register in C..C + 4 {
                wave.vgpr[register] = wave.vgpr[register].map(|x| if x == 0x8000_0000 { 0 } else { x });
            }
        }
        (wave.vgpr[SCALE_A], wave.vgpr[SCALE_B]) = ([126; LANES], [129; LANES]);
        let a_of = |row, k| (small_element(&wave, A, 4, 16, row, k) / 2.0) as f32;
        let b_of = |k, column| (small_element(&wave, B, 4, 16, column, k) * 4.0) as f32;
        check_product(&wave, inst, 16, 128, a_of, b_of);
    }
}

/// One FP4 product per element with extreme scales: the exact result is known.
#[test]
fn extreme_scales() {
    let inst = &assemble(&[
        "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[32:35], v[48:51], 0, v100, v101 op_sel_hi:[0,0,0] cbsz:4 blgp:4",
    ])[0];
    let product = |a_scale: u32, b_scale: u32| {
        let mut wave = crate::wave();
        // 6 at K = 0 in every row and column, zero elsewhere.
        for lane in 0..16 {
            (wave.vgpr[A][lane], wave.vgpr[B][lane]) = (7, 7);
        }
        (wave.vgpr[SCALE_A], wave.vgpr[SCALE_B]) = ([a_scale; LANES], [b_scale; LANES]);
        run(inst, &mut wave);
        f(wave.vgpr[0][0])
    };
    assert_eq!(product(127, 127), 36.0);
    assert_eq!(product(254, 0), 36.0, "6 * 2^127 alone would overflow");
    assert_eq!(product(0, 254), 36.0);
    assert_eq!(product(254, 125), f32::INFINITY);
    assert_eq!(product(250, 4), 36.0);
    assert_eq!(product(0, 0), 0.0);
    assert_eq!(product(60, 50), (36.0 * 2f64.powi(110 - 254)) as f32, "a denormal, exactly");
    assert!(product(255, 127).is_nan() && product(254, 255).is_nan());
}
