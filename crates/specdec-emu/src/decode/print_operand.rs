//! Operands as LLVM spells them.

use crate::inst::{Inst, Operand};

const LITERAL: u16 = 255;

/// `v[2:3]`, `s4`, `vcc`, `0.5`, `0x1234`, ...
pub(super) fn operand(inst: &Inst, operand: Operand) -> String {
    let Operand { code, dwords } = operand;
    match code {
        0..=101 => tuple("s", code, dwords),
        102..=107 | 126..=127 => special_pair(code, dwords),
        108..=123 => tuple("ttmp", code - 108, dwords),
        124 => "m0".into(),
        128..=192 => (code - 128).to_string(),
        193..=208 => format!("-{}", code - 192),
        235 => "src_shared_base".into(),
        236 => "src_shared_limit".into(),
        237 => "src_private_base".into(),
        238 => "src_private_limit".into(),
        239 => "src_pops_exiting_wave_id".into(),
        240..=248 if is_half(inst.op.name(), &["_u16", "_i16", "_b16"]) => inline_half(code).into(),
        240..=248 => inline_float(code, dwords).into(),
        251 => "src_vccz".into(),
        252 => "src_execz".into(),
        253 => "src_scc".into(),
        LITERAL => literal(inst, dwords),
        256..=511 => tuple("v", code - 256, dwords),
        512..=767 => tuple("a", code - 512, dwords),
        _ => format!("?{code}"),
    }
}

fn tuple(file: &str, first: u16, dwords: u8) -> String {
    if dwords <= 1 {
        format!("{file}{first}")
    } else {
        format!("{file}[{first}:{}]", first + u16::from(dwords) - 1)
    }
}

fn special_pair(code: u16, dwords: u8) -> String {
    let name = match code {
        102 | 103 => "flat_scratch",
        104 | 105 => "xnack_mask",
        106 | 107 => "vcc",
        _ => "exec",
    };
    match (dwords, code % 2) {
        (1, 0) => format!("{name}_lo"),
        (1, _) => format!("{name}_hi"),
        _ => name.into(),
    }
}

/// Whether a vector instruction's sources are 16 bits wide, by the type that ends its name.
fn is_half(name: &str, types: &[&str]) -> bool {
    let wide = ["_pk_", "_sad_", "_dot2", "_mad_u32_", "_mad_i32_"].iter().any(|part| name.contains(part));
    name.starts_with("v_") && !wide && types.iter().any(|end| name.ends_with(end))
}

/// A float constant of a 16-bit integer instruction: LLVM prints its bits.
fn inline_half(code: u16) -> &'static str {
    match code {
        240 => "0x3800",
        241 => "0xb800",
        242 => "0x3c00",
        243 => "0xbc00",
        244 => "0x4000",
        245 => "0xc000",
        246 => "0x4400",
        247 => "0xc400",
        _ => "0x3118",
    }
}

fn inline_float(code: u16, dwords: u8) -> &'static str {
    match (code, dwords) {
        (240, _) => "0.5",
        (241, _) => "-0.5",
        (242, _) => "1.0",
        (243, _) => "-1.0",
        (244, _) => "2.0",
        (245, _) => "-2.0",
        (246, _) => "4.0",
        (247, _) => "-4.0",
        (_, 2) => "0.15915494309189532",
        _ => "0.15915494",
    }
}

/// A literal in hexadecimal; `lit()` marks one that an inline constant could have encoded.
fn literal(inst: &Inst, dwords: u8) -> String {
    let value = inst.literal;
    let name = inst.op.name();
    if name.starts_with("v_fmaak") || name.starts_with("v_fmamk") {
        return format!("{value:#x}");
    }
    let half = is_half(name, &["_f16", "_u16", "_i16", "_b16"]);
    let integer = (0..=64).contains(&value) || (dwords == 1 && value >= 0xffff_fff0);
    let packed = name.starts_with("v_pk_") || name.starts_with("v_dot2c_");
    let float = dwords == 1 && !packed && (240..=248).any(|code| crate::wave::inline_float(code) == value);
    if integer || float {
        format!("lit({value:#x})")
    } else if half {
        format!("{:#x}", value & 0xffff)
    } else {
        format!("{value:#x}")
    }
}
