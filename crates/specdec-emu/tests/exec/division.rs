//! Division as clang compiles it: the quotient must be IEEE's, denormals and all.

use crate::{assemble, run, Random, SPECIAL};
use specdec_emu::inst::Inst;
use specdec_emu::wave::LANES;

/// The f32 division of LLVM's AMDGPU back end: v2 = v0 / v1.
fn sequence() -> Vec<Inst> {
    assemble(&[
        "v_div_scale_f32 v3, s[0:1], v1, v1, v0",
        "v_rcp_f32 v4, v3",
        "v_div_scale_f32 v5, vcc, v0, v1, v0",
        "v_fma_f32 v6, -v3, v4, 1.0",
        "v_fmac_f32 v4, v6, v4",
        "v_mul_f32 v6, v5, v4",
        "v_fma_f32 v7, -v3, v6, v5",
        "v_fmac_f32 v6, v7, v4",
        "v_fma_f32 v3, -v3, v6, v5",
        "v_div_fmas_f32 v3, v3, v4, v6",
        "v_div_fixup_f32 v2, v3, v1, v0",
    ])
}

fn check(sequence: &[Inst], numerators: [u32; LANES], denominators: [u32; LANES]) {
    let mut wave = crate::wave();
    (wave.vgpr[0], wave.vgpr[1]) = (numerators, denominators);
    for inst in sequence {
        run(inst, &mut wave);
    }
    for lane in 0..LANES {
        let (n, d) = (f32::from_bits(numerators[lane]), f32::from_bits(denominators[lane]));
        let (found, expected) = (wave.vgpr[2][lane], (n / d).to_bits());
        assert!(crate::same_float(found, expected), "{n:e} / {d:e}: {found:08x}, not {expected:08x}");
    }
}

#[test]
fn division_is_correctly_rounded() {
    let sequence = sequence();
    for numerator in SPECIAL {
        check(&sequence, [numerator; LANES], std::array::from_fn(|lane| SPECIAL[lane % SPECIAL.len()]));
    }
    let mut random = Random(41);
    for round in 0..20_000 {
        let numerators = std::array::from_fn(|_| random.word());
        let denominators = std::array::from_fn(|lane| match round % 4 {
            0 => random.word(),
            // Quotients around one, and denormal ones.
            1 => numerators[lane] ^ random.word() >> 12,
            2 => (numerators[lane] & 0x7fff_ffff).saturating_add(0x3f00_0000 + (random.word() >> 6)),
            _ => random.word() >> 9,
        });
        check(&sequence, numerators, denominators);
    }
}
