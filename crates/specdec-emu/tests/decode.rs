//! The decoder and its printer against LLVM's: the same instructions, the same text up to white space.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the counts show what was compared")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use specdec_emu::decode::{decode, print, RegisterFile, RegisterList};
use specdec_emu::inst::Inst;
use specdec_emu::op::Op;

const COMPILE: &[&str] = &[
    "-x",
    "hip",
    "--offload-arch=gfx950",
    "--offload-device-only",
    "-nogpuinc",
    "-nogpulib",
    "-std=c++20",
    "-ffp-contract=off",
    "--no-gpu-bundle-output",
    "-c",
];

/// Runs one of LLVM's tools and returns its output.
fn llvm(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool).args(arguments).output().unwrap_or_else(|error| {
        panic!("this test needs LLVM 22's `{tool}` on PATH (Debian: clang-22 and llvm-22): {error}")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {arguments:?} failed: {errors}");
    String::from_utf8(output.stdout).expect("LLVM prints UTF-8")
}

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels")
}

fn scratch(name: &str) -> String {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name).to_str().expect("a UTF-8 path").to_owned()
}

fn compile(source: &str, level: &str) -> String {
    let object = scratch(&format!("{source}{level}.co"));
    let source = kernels().join(source);
    let ends = [level, source.to_str().expect("a UTF-8 path"), "-o", &object];
    llvm("clang-22", &[COMPILE, &ends].concat());
    object
}

fn assemble(source: &str, name: &str) -> String {
    let object = scratch(name);
    llvm("llvm-mc-22", &["-arch=amdgcn", "-mcpu=gfx950", "-filetype=obj", source, "-o", &object]);
    object
}

/// One line of a disassembly.
struct Line {
    address: u32,
    words: Vec<u32>,
    text: String,
}

/// LLVM's disassembly. A branch to a symbol is printed as the symbol: its distance is put back.
fn disassemble(object: &str) -> Vec<Line> {
    let listing = llvm("llvm-objdump-22", &["-d", object]);
    let mut symbols = BTreeMap::new();
    for line in listing.lines() {
        if let Some((address, name)) = line.split_once(" <") {
            if let (Ok(address), Some(name)) = (u32::from_str_radix(address, 16), name.strip_suffix(">:")) {
                symbols.insert(name.to_owned(), address);
            }
        }
    }
    listing.lines().filter_map(|line| parse(line, &symbols)).collect()
}

fn parse(line: &str, symbols: &BTreeMap<String, u32>) -> Option<Line> {
    let (text, comment) = line.strip_prefix('\t')?.split_once("// ")?;
    let (address, words) = comment.split_once(": ")?;
    let address = u32::from_str_radix(address, 16).ok()?;
    let words = words.split(" <").next()?.split_whitespace();
    let words = words.map(|word| u32::from_str_radix(word, 16)).collect::<Result<_, _>>().ok()?;
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.starts_with("s_branch") || text.starts_with("s_cbranch") || text.starts_with("s_call") {
        let (rest, target) = text.rsplit_once(' ')?;
        if let Some(target) = symbols.get(target) {
            let distance = (target.wrapping_sub(address + 4) / 4) & 0xffff;
            text = format!("{rest} {distance}");
        }
    }
    Some(Line { address, words, text })
}

/// Decodes and prints every instruction of `object`, fails on all that differ, and returns them.
fn compare(object: &str) -> Vec<Inst> {
    let lines = disassemble(object);
    assert!(!lines.is_empty(), "`{object}` has no instructions");
    let base = lines.iter().map(|line| line.address).min().unwrap_or(0);
    let mut text = Vec::new();
    for line in &lines {
        text.resize((line.address - base) as usize, 0);
        text.extend(line.words.iter().flat_map(|word| word.to_le_bytes()));
    }
    let mut instructions = Vec::new();
    let mut differences = Vec::new();
    for line in &lines {
        match decode(&text, line.address - base) {
            Ok(inst) => {
                if print(&inst) != line.text || usize::from(inst.size) != 4 * line.words.len() {
                    differences.push(format!("{:08x?}: `{}` is `{}`", line.words, print(&inst), line.text));
                }
                instructions.push(inst);
            }
            Err(error) => differences.push(format!("{error}: is `{}`", line.text)),
        }
    }
    let count = differences.len();
    differences.truncate(20);
    assert!(count == 0, "{count} of {} in `{object}` differ:\n{}", lines.len(), differences.join("\n"));
    println!("{} instructions of {object} are as LLVM prints them", instructions.len());
    instructions
}

#[test]
fn compiled_kernels_print_as_llvm_prints_them() {
    let mut total = 0;
    let mut mnemonics = BTreeSet::new();
    for source in ["lanes.hip", "math.hip", "matrix.hip", "memory.hip"] {
        for level in ["-O3", "-O1", "-O0"] {
            let instructions = compare(&compile(source, level));
            total += instructions.len();
            mnemonics.extend(instructions.iter().map(|inst| inst.op));
        }
    }
    println!("{total} compiled instructions, {} mnemonics", mnemonics.len());
    assert!(mnemonics.len() > 250, "the kernels no longer use many kinds of instructions");
}

#[test]
fn every_modifier_prints_as_llvm_prints_it() {
    let source = kernels().join("modifiers.s");
    compare(&assemble(source.to_str().expect("a UTF-8 path"), "modifiers.o"));
}

/// A small generator with a fixed start: the same words in every run.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 32) as u32
    }

    /// Fewer bits set the higher `thin`.
    fn sparse(&mut self, thin: u32) -> u32 {
        (0..thin).fold(self.word(), |bits, _| bits & self.word())
    }
}

/// First dwords that select `opcode` of each encoding, with the bits that are free.
const ENCODINGS: &[(u32, u32, u32, u32)] = &[
    // (fixed bits, position of the opcode, opcodes, free bits)
    (0x8000_0000, 23, 96, 0x007f_ffff),
    (0xb000_0000, 23, 29, 0x007f_ffff),
    (0xbe80_0000, 8, 256, 0x007f_00ff),
    (0xbf00_0000, 16, 128, 0x0000_ffff),
    (0xbf80_0000, 16, 128, 0x0000_003f),
    (0xc000_0000, 18, 256, 0x0003_ffff),
    (0x0000_0000, 25, 62, 0x01ff_ffff),
    (0x7e00_0000, 9, 256, 0x01fe_01ff),
    (0x7c00_0000, 17, 256, 0x0001_ffff),
    (0xd000_0000, 16, 896, 0x0000_ffff),
    (0xd380_0000, 16, 128, 0x0000_ffff),
    (0xd800_0000, 17, 256, 0x0201_ffff),
    (0xdc00_0000, 18, 128, 0x0203_3fff),
    (0xdc00_4000, 18, 128, 0x0203_3fff),
    (0xdc00_8000, 18, 128, 0x0203_3fff),
    (0xe000_0000, 18, 128, 0x0203_ffff),
];

/// The second dword: sparse or dense, a scalar base switched off, a literal that no inline constant could hold.
fn second_word(random: &mut Random, first: u32) -> u32 {
    let source = first & 0x1ff;
    let variant = source == 0xf9 || source == 0xfa;
    if source == 0xff || first >> 30 == 0b10 || (first >> 31 == 0 && !variant) {
        return (random.word() & 0x0fff_ffff) | 0x1234_1234;
    }
    let word = match random.word() % 8 {
        0 => return 0,
        1 | 2 => random.word(),
        3 => random.word() & 0x0003_ffff,
        thin => random.sparse(thin % 2 + 1),
    };
    match random.word() % 4 {
        0 if first >> 26 == 0b11_0111 => word | 0x007f_0000,
        // VGPR sources, even, as tuples need them.
        0 | 1 if first >> 26 == 0b11_0100 => word & 0xf9fb_fdfe | 0x0402_0100,
        _ => word,
    }
}

/// Random encodings that the decoder accepts, as many as it finds of each opcode up to `wanted`.
fn accepted(random: &mut Random, fixed: u32, free: u32, wanted: usize) -> Vec<(Vec<u32>, Inst)> {
    let mut found = Vec::new();
    for attempt in 0..4000 {
        let mut first = fixed | (random.sparse(attempt % 5) & free);
        if first >> 31 == 0 && attempt % 4 < 2 {
            first = (first & !0x1ff) | (0xf9 + (attempt & 1));
        }
        let words = [first, second_word(random, first)];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if let Ok(inst) = decode(&bytes, 0) {
            found.push((words[..usize::from(inst.size) / 4].to_vec(), inst));
        }
        if found.len() == wanted {
            break;
        }
    }
    found
}

#[test]
fn accepted_encodings_of_every_opcode_print_as_llvm_prints_them() {
    let mut random = Random(950);
    let mut lines = Vec::new();
    let mut seen = BTreeSet::new();
    for &(fixed, position, opcodes, free) in ENCODINGS {
        for opcode in 0..opcodes {
            for (words, inst) in accepted(&mut random, fixed | opcode << position, free, 12) {
                seen.insert(inst.op);
                if inst.op == Op::DsNop {
                    // LLVM assembles it, but does not disassemble it.
                    continue;
                }
                let words: Vec<_> = words.iter().map(|word| format!("{word:#x}")).collect();
                lines.push(format!(".long {}\n", words.join(", ")));
            }
        }
    }
    let path = scratch("sweep.s");
    std::fs::write(&path, lines.concat()).expect("the scratch folder is writable");
    compare(&assemble(&path, "sweep.o"));
    // These two need four dwords, of which the modifiers' test has some, and the prefix is never alone.
    let elsewhere = [Op::VMfmaLdScaleB32, Op::VMfmaScaleF3216x16x128F8f6f4, Op::VMfmaScaleF3232x32x64F8f6f4];
    let missing: Vec<_> = Op::ALL.iter().filter(|op| !seen.contains(op) && !elsewhere.contains(op)).collect();
    assert!(missing.is_empty(), "no encoding decodes to {missing:?}");
}

fn one(source: &str) -> Inst {
    let name: String = source.chars().filter(char::is_ascii_alphanumeric).collect();
    let path = scratch(&format!("{name}.s"));
    std::fs::write(&path, format!("{source}\n")).expect("the scratch folder is writable");
    compare(&assemble(&path, &format!("{name}.o")))[0]
}

/// First registers and counts.
type Ranges = Vec<(u16, u8)>;

/// The vector and the scalar ranges.
fn ranges(list: RegisterList) -> (Ranges, Ranges) {
    let of = |file| {
        let ranges = list.as_slice().iter().filter(|range| range.file == file);
        ranges.map(|range| (range.first, range.count)).collect()
    };
    (of(RegisterFile::Vector), of(RegisterFile::Scalar))
}

#[test]
fn register_lists_name_every_register() {
    let load = one("global_load_dwordx4 a[4:7], v2, s[6:7]");
    assert_eq!(ranges(load.writes()), (vec![(260, 4)], vec![]));
    assert_eq!(ranges(load.reads()), (vec![(2, 1)], vec![(6, 2)]));

    let store = one("buffer_store_dwordx2 v[0:1], v2, s[8:11], s3 offen");
    assert_eq!(ranges(store.writes()), (vec![], vec![]));
    assert_eq!(ranges(store.reads()), (vec![(2, 1), (0, 2)], vec![(8, 4), (3, 1)]));

    let dma = one("buffer_load_dwordx4 v4, s[8:11], 0 offen lds");
    assert_eq!(ranges(dma.reads()), (vec![(4, 1)], vec![(8, 4), (124, 1)]));

    let scaled = one("v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:7], a[12:19], v[0:3], v24, v25 cbsz:4");
    assert_eq!(ranges(scaled.reads()), (vec![(4, 4), (268, 8), (0, 4), (24, 1), (25, 1)], vec![]));
    assert_eq!(ranges(scaled.writes()), (vec![(0, 4)], vec![]));

    let carry = one("v_addc_co_u32_e32 v0, vcc, v1, v2, vcc");
    assert_eq!(ranges(carry.reads()), (vec![(1, 1), (2, 1)], vec![(106, 2)]));
    assert_eq!(ranges(carry.writes()), (vec![(0, 1)], vec![(106, 2)]));

    let fmac = one("v_fmac_f32_e32 v0, s1, v2");
    assert_eq!(ranges(fmac.reads()), (vec![(2, 1), (0, 1)], vec![(1, 1)]));

    let masked = one("s_and_saveexec_b64 s[0:1], vcc");
    assert_eq!(ranges(masked.reads()), (vec![], vec![(106, 2), (126, 2)]));
    assert_eq!(ranges(masked.writes()), (vec![], vec![(0, 2), (126, 2)]));

    let swap = one("v_permlane32_swap_b32_e32 v0, v1");
    assert_eq!(ranges(swap.writes()), (vec![(0, 1), (1, 1)], vec![]));
    assert_eq!(ranges(swap.reads()), (vec![(1, 1), (0, 1)], vec![]));

    let half = one("ds_read_u16_d16_hi v0, v1");
    assert_eq!(ranges(half.reads()), (vec![(1, 1), (0, 1)], vec![]));
}

#[test]
fn unknown_words_are_refused_with_their_pc() {
    for words in [[0xffff_ffff, 0], [0x7e00_00d1, 0], [0xbf8a_0001, 0], [0xd3ac_0000, 0]] {
        let bytes: Vec<u8> = [0xbf80_0000_u32, words[0], words[1]].iter().flat_map(|word| word.to_le_bytes()).collect();
        let error = decode(&bytes, 4).expect_err("no instruction");
        assert_eq!((error.pc, error.words), (4, [words[0], words[1], 0, 0]));
    }
    assert_eq!(decode(&[0, 0], 0).expect_err("half a dword").words, [0; 4]);
    let error = decode(&[0xff; 4], 0).expect_err("no instruction");
    assert_eq!(error.to_string(), "unknown instruction at 0x0: ffffffff 00000000 00000000 00000000");
}
