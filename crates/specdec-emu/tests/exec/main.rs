//! Instruction semantics: LLVM assembles one line, our decoder reads it, its handler runs, and the registers are
//! compared with formulas written here from AMD's public ISA documents.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test stops at the first surprise"
)]
#![allow(clippy::needless_range_loop, clippy::verbose_bit_mask, clippy::precedence, reason = "lane and bit arithmetic")]

mod convert;
mod cross_lane;
mod division;
mod integer;
mod masks;
mod matrix;
mod modifier;
mod scalar;
mod single;

use specdec_emu::decode::decode;
use specdec_emu::exec::{handler, Flow};
use specdec_emu::inst::Inst;
use specdec_emu::wave::{Wave, EXEC, LANES, VCC};
use std::io::Write;
use std::process::{Command, Stdio};

/// Bit patterns where arithmetic goes wrong: zeros, denormals, limits, infinities, NaNs, and ordinary numbers.
pub const SPECIAL: [u32; 40] = [
    0,
    0x8000_0000,
    1,
    0x8000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x8080_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x3f7f_ffff,
    0x3f80_0001,
    0x4000_0000,
    0xc000_0000,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x7f80_0001,
    0xffc1_2345,
    0x3f00_0000,
    0xbf00_0000,
    0x4b00_0000,
    0x4b80_0001,
    0x4f00_0000,
    0x4f80_0000,
    0xcf00_0000,
    0x3fc0_0000,
    0x4020_0000,
    0x0000_ffff,
    0xffff_0000,
    0x7fff_ffff,
    0xffff_ffff,
    0x0000_001f,
    0x0000_0020,
    0x0000_8000,
    0x1234_5678,
    0xdead_beef,
    0x00ff_00ff,
    0x41c8_0000,
];

/// A small generator: tests need reproducible variety, not quality.
pub struct Random(pub u64);

impl Random {
    /// The next 32 bits.
    pub fn word(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// Half the time a special pattern, or one of the two shifted into small numbers.
    pub fn pattern(&mut self) -> u32 {
        match self.word() % 4 {
            0 | 1 => SPECIAL[self.word() as usize % SPECIAL.len()],
            2 => self.word(),
            _ => self.word() >> (self.word() & 31),
        }
    }

    /// All lanes, any lanes or one lane.
    pub fn mask(&mut self) -> u64 {
        match self.word() % 3 {
            0 => !0,
            1 => u64::from(self.word()) << 32 | u64::from(self.word()),
            _ => 1 << (self.word() % 64),
        }
    }

    /// A finite float of moderate size.
    pub fn float(&mut self) -> f32 {
        (self.word() as i32 as f32) * 2.0f32.powi(-((self.word() % 40) as i32))
    }
}

/// Assembles lines for gfx950 in one run of LLVM's assembler.
pub fn assemble(lines: &[&str]) -> Vec<Inst> {
    let mut child = Command::new("llvm-mc-22")
        .args(["-triple=amdgcn-amd-amdhsa", "-mcpu=gfx950", "-show-encoding"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("llvm-mc-22 is installed");
    child.stdin.take().unwrap().write_all(lines.join("\n").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "LLVM assembles {lines:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let insts: Vec<Inst> = text
        .lines()
        .filter_map(|line| line.split_once("encoding: [")?.1.split_once(']'))
        .map(|(bytes, _)| {
            let mut section = vec![0; 0x100];
            section.extend(bytes.split(',').map(|byte| u8::from_str_radix(&byte[2..], 16).unwrap()));
            decode(&section, 0x100).unwrap_or_else(|error| panic!("{bytes}: {error}"))
        })
        .collect();
    assert_eq!(insts.len(), lines.len(), "one encoding a line of {lines:?}");
    insts
}

/// A wave with zeroed registers and all lanes enabled.
pub fn wave() -> Wave {
    let mut wave = Wave { sgpr: [0; 128], vgpr: vec![[0; LANES]; 512], scc: false, pc: 0x104, text_base: 0 };
    wave.write64(EXEC, !0);
    wave
}

/// A wave whose VGPRs 0 to 31 and SGPRs 0 to 31 hold patterns.
pub fn random_wave(random: &mut Random) -> Wave {
    let mut wave = wave();
    for register in 0..32 {
        wave.vgpr[register] = std::array::from_fn(|_| random.pattern());
        wave.sgpr[register] = random.pattern();
    }
    let (exec, vcc) = (random.mask(), random.mask());
    wave.write64(EXEC, exec);
    wave.write64(VCC, vcc);
    wave.scc = random.word() & 1 == 1;
    wave
}

/// Runs one decoded instruction.
pub fn run(inst: &Inst, wave: &mut Wave) -> Flow {
    handler(inst).unwrap_or_else(|| panic!("{inst:?} is implemented"))(inst, wave)
}

/// Whether lane `lane` is enabled.
pub fn is_active(wave: &Wave, lane: usize) -> bool {
    wave.exec() >> lane & 1 == 1
}

/// Equal bits, any two NaNs being equal.
pub fn same_float(a: u32, b: u32) -> bool {
    a == b || (f32::from_bits(a).is_nan() && f32::from_bits(b).is_nan())
}

/// Checks `D = formula(v1, v2, v3, v0 before)` in enabled lanes of v0, and that nothing else changed.
pub fn check_lanes(text: &str, same: impl Fn(u32, u32) -> bool, formula: impl Fn([u32; 4]) -> u32) {
    let inst = &assemble(&[text])[0];
    let mut random = Random(text.len() as u64);
    for _ in 0..40 {
        let before = random_wave(&mut random);
        let mut after = before.clone();
        assert_eq!(run(inst, &mut after), Flow::Next, "{text}");
        for lane in 0..LANES {
            let [a, b, c, d] = [1, 2, 3, 0].map(|register: usize| before.vgpr[register][lane]);
            let expected = if is_active(&before, lane) { formula([a, b, c, d]) } else { d };
            let found = after.vgpr[0][lane];
            assert!(same(found, expected), "{text}: {a:08x} {b:08x} {c:08x} {d:08x}: {found:08x}, not {expected:08x}");
        }
        assert_eq!(before.vgpr[1..], after.vgpr[1..], "{text} writes v0 only");
    }
}
