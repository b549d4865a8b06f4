//! An instruction as text, the way `llvm-objdump -d` prints it.

use std::fmt;

use super::print_operand::operand;
use super::print_scalar;
use super::row::{Row, MIX, NO_SUFFIX, ONLY_E32, RESULT_BYTE, WHOLE};
use super::valu_tables::{VOP1, VOP2, VOPC};
use super::vop3_tables::{VOP3, VOP3P};
use crate::inst::{Dpp, Format, Inst, Operand, Sdwa, Variant};
use crate::op::Op;

/// The mnemonics that LLVM prints with an encoding suffix: those with a 32-bit and a 64-bit form.
static SUFFIXED: [bool; Op::ALL.len()] = {
    let mut suffixed = [false; Op::ALL.len()];
    let mut index = 0;
    while index < 256 {
        mark(&mut suffixed, VOPC[index].as_ref());
        mark(&mut suffixed, VOP1[index % 128].as_ref());
        mark(&mut suffixed, VOP2[index % 64].as_ref());
        index += 1;
    }
    suffixed
};

const fn mark(suffixed: &mut [bool; Op::ALL.len()], row: Option<&Row>) {
    if let Some(row) = row {
        if !row.has(ONLY_E32 | NO_SUFFIX) {
            suffixed[row.op as usize] = true;
        }
    }
}

fn suffix(inst: &Inst) -> &'static str {
    match (inst.format, inst.variant) {
        (_, Variant::Sdwa(_)) => "_sdwa",
        (_, Variant::Dpp(_)) => "_dpp",
        _ if !SUFFIXED[inst.op as usize] => "",
        (Format::Vop3, _) => "_e64",
        _ => "_e32",
    }
}

impl fmt::Display for Inst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.op.name(), suffix(self))?;
        for (index, text) in operands(self).into_iter().enumerate() {
            write!(f, "{}{text}", if index == 0 { " " } else { ", " })?;
        }
        match self.format {
            Format::Vop1 | Format::Vop2 | Format::Vopc => variant_modifiers(self, f),
            Format::Vop3 => vop3_modifiers(self, f),
            Format::Vop3p => packed_modifiers(self, f),
            Format::Mai => matrix_modifiers(self, f),
            Format::Ds | Format::Flat | Format::Global | Format::Scratch | Format::Mubuf => memory_modifiers(self, f),
            Format::Smem => smem_modifiers(self, f),
            _ => Ok(()),
        }
    }
}

fn operands(inst: &Inst) -> Vec<String> {
    let plain = |operands: &[Operand]| -> Vec<String> {
        operands.iter().filter(|part| part.is_some()).map(|part| operand(inst, *part)).collect()
    };
    let or_off = |part: Operand| if part.is_some() { operand(inst, part) } else { "off".into() };
    match inst.format {
        Format::Sop1 | Format::Sop2 | Format::Sopc | Format::Sopk | Format::Sopp => {
            let mut texts = plain(&[inst.dst, inst.src[0], inst.src[1]]);
            print_scalar::immediate(inst, &mut texts);
            texts
        }
        Format::Smem => {
            let mut texts = plain(&[inst.dst, inst.src[0], inst.src[1]]);
            if inst.src[0].is_some() && !inst.src[1].is_some() {
                texts.push(signed_hex(inst.mods.offset));
            }
            texts
        }
        Format::Ds => plain(&[inst.dst, inst.src[0], inst.data, inst.data1]),
        Format::Flat | Format::Global | Format::Scratch => {
            let mut texts = plain(&[inst.dst]);
            texts.push(or_off(inst.src[0]));
            texts.extend(plain(&[inst.data]));
            if inst.format != Format::Flat {
                texts.push(or_off(inst.src[1]));
            }
            texts
        }
        Format::Mubuf => {
            if !inst.src[1].is_some() {
                return Vec::new();
            }
            let mut texts = plain(&[if inst.data.is_some() { inst.data } else { inst.dst }]);
            texts.push(or_off(inst.src[0]));
            texts.extend(plain(&inst.src[1..]));
            texts
        }
        _ => {
            let mut texts = plain(&[inst.dst, inst.sdst]);
            let sources = inst.src.iter().enumerate().filter(|(_, source)| source.is_some());
            texts.extend(sources.map(|(index, source)| signed(inst, index, *source)));
            texts.extend(plain(&inst.scale));
            texts
        }
    }
}

/// A vector source with its sign modifiers.
fn signed(inst: &Inst, index: usize, source: Operand) -> String {
    let mut text = operand(inst, source);
    if inst.format == Format::Mai || (inst.format == Format::Vop3p && !packed_has(inst.op, MIX)) {
        return text;
    }
    let number = matches!(source.code, 128..=208 | 240..=248);
    if inst.mods.abs[index] {
        text = format!("|{text}|");
    }
    if inst.mods.neg[index] {
        // A minus sign before a number would be another number.
        text = if number && !inst.mods.abs[index] { format!("neg({text})") } else { format!("-{text}") };
    }
    match inst.variant {
        Variant::Sdwa(sdwa) if index < 2 && sdwa.sext[index] => format!("sext({text})"),
        _ => text,
    }
}

fn packed_has(op: Op, trait_bit: u32) -> bool {
    VOP3P.iter().flatten().any(|row| row.op == op && row.has(trait_bit))
}

fn signed_hex(value: i32) -> String {
    format!("{}{:#x}", if value < 0 { "-" } else { "" }, value.unsigned_abs())
}

/// `name:[1,0,...]` from the low `count` bits.
fn bit_list(f: &mut fmt::Formatter<'_>, name: &str, bits: u8, count: usize) -> fmt::Result {
    let texts: Vec<_> = (0..count).map(|index| (bits >> index & 1).to_string()).collect();
    write!(f, " {name}:[{}]", texts.join(","))
}

fn result_modifiers(inst: &Inst, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if inst.mods.clamp {
        write!(f, " clamp")?;
    }
    match inst.mods.omod {
        1 => write!(f, " mul:2"),
        2 => write!(f, " mul:4"),
        3 => write!(f, " div:2"),
        _ => Ok(()),
    }
}

fn variant_modifiers(inst: &Inst, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match inst.variant {
        Variant::Plain => Ok(()),
        Variant::Sdwa(sdwa) => {
            result_modifiers(inst, f)?;
            sdwa_modifiers(inst, sdwa, f)
        }
        Variant::Dpp(dpp) => dpp_modifiers(dpp, f),
    }
}

fn sdwa_modifiers(inst: &Inst, sdwa: Sdwa, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const SELECTORS: [&str; 8] = ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD", "?"];
    const UNUSED: [&str; 4] = ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE", "?"];
    let fp8 = matches!(inst.op, Op::VCvtF32Fp8 | Op::VCvtF32Bf8 | Op::VCvtPkF32Fp8 | Op::VCvtPkF32Bf8);
    if inst.format != Format::Vopc && !fp8 {
        let unused = UNUSED[usize::from(sdwa.dst_unused & 3)];
        write!(f, " dst_sel:{} dst_unused:{unused}", SELECTORS[usize::from(sdwa.dst_sel & 7)])?;
    }
    write!(f, " src0_sel:{}", SELECTORS[usize::from(sdwa.src0_sel & 7)])?;
    if inst.format != Format::Vop1 {
        write!(f, " src1_sel:{}", SELECTORS[usize::from(sdwa.src1_sel & 7)])?;
    }
    Ok(())
}

fn dpp_modifiers(dpp: Dpp, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let ctrl = dpp.ctrl;
    match ctrl {
        0x000..=0x0ff => {
            write!(f, " quad_perm:[{},{},{},{}]", ctrl & 3, ctrl >> 2 & 3, ctrl >> 4 & 3, ctrl >> 6)?;
        }
        0x101..=0x10f => write!(f, " row_shl:{}", ctrl & 15)?,
        0x111..=0x11f => write!(f, " row_shr:{}", ctrl & 15)?,
        0x121..=0x12f => write!(f, " row_ror:{}", ctrl & 15)?,
        0x130 => write!(f, " wave_shl:1")?,
        0x134 => write!(f, " wave_rol:1")?,
        0x138 => write!(f, " wave_shr:1")?,
        0x13c => write!(f, " wave_ror:1")?,
        0x140 => write!(f, " row_mirror")?,
        0x141 => write!(f, " row_half_mirror")?,
        0x142 => write!(f, " row_bcast:15")?,
        0x143 => write!(f, " row_bcast:31")?,
        _ => write!(f, " row_newbcast:{}", ctrl & 15)?,
    }
    write!(f, " row_mask:{:#x} bank_mask:{:#x}", dpp.row_mask, dpp.bank_mask)?;
    if dpp.bound_ctrl {
        write!(f, " bound_ctrl:1")?;
    }
    Ok(())
}

fn num_sources(inst: &Inst) -> usize {
    inst.src.iter().filter(|source| source.is_some()).count()
}

fn vop3_modifiers(inst: &Inst, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mods = &inst.mods;
    if matches!(inst.op, Op::VPermlane16SwapB32 | Op::VPermlane32SwapB32) {
        if mods.op_sel & 2 != 0 {
            write!(f, " bound_ctrl:1")?;
        }
        if mods.op_sel & 1 != 0 {
            write!(f, " fi:1")?;
        }
        return Ok(());
    }
    if mods.bitop3 != 0 {
        // LLVM's way to print an immediate: small ones in decimal.
        match mods.bitop3 {
            table @ ..=10 => write!(f, " bitop3:{table}")?,
            table => write!(f, " bitop3:{table:#x}")?,
        }
    }
    if mods.op_sel != 0 {
        // The last of the list selects in the destination, whose bit is the fourth.
        let count = num_sources(inst);
        if count == 3 || VOP3.iter().flatten().any(|row| row.op == inst.op && row.has(RESULT_BYTE)) {
            bit_list(f, "op_sel", mods.op_sel, 4)?;
        } else {
            let sources = mods.op_sel & ((1 << count) - 1);
            bit_list(f, "op_sel", sources | (mods.op_sel >> 3) << count, count + 1)?;
        }
    }
    result_modifiers(inst, f)
}

fn packed_modifiers(inst: &Inst, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mods = &inst.mods;
    let count = num_sources(inst);
    let all = (1 << count) - 1;
    let flags = |list: [bool; 3]| u8::from(list[0]) | u8::from(list[1]) << 1 | u8::from(list[2]) << 2;
    let mix = packed_has(inst.op, MIX);
    let halves = !packed_has(inst.op, WHOLE);
    if halves && mods.op_sel != 0 {
        bit_list(f, "op_sel", mods.op_sel, count)?;
    }
    if halves && mods.op_sel_hi & all != if mix { 0 } else { all } {
        bit_list(f, "op_sel_hi", mods.op_sel_hi, count)?;
    }
    if !mix && flags(mods.neg) != 0 {
        bit_list(f, "neg_lo", flags(mods.neg), count)?;
    }
    if !mix && flags(mods.abs) != 0 {
        bit_list(f, "neg_hi", flags(mods.abs), count)?;
    }
    result_modifiers(inst, f)
}

fn matrix_modifiers(inst: &Inst, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mods = &inst.mods;
    if inst.scale[0].is_some() {
        if mods.op_sel != 0 {
            bit_list(f, "op_sel", mods.op_sel, 3)?;
        }
        bit_list(f, "op_sel_hi", mods.op_sel_hi, 3)?;
    }
    for (name, value) in [("cbsz", mods.cbsz), ("abid", mods.abid), ("blgp", mods.blgp)] {
        if value != 0 {
            write!(f, " {name}:{value}")?;
        }
    }
    Ok(())
}

fn memory_modifiers(inst: &Inst, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mods = &inst.mods;
    let pair = super::memory_tables::is_pair(inst.op);
    if inst.op == Op::DsSwizzleB32 {
        return print_scalar::swizzle(mods.offset, f);
    }
    for (set, name) in [(mods.idxen, "idxen"), (mods.offen, "offen")] {
        if set {
            write!(f, " {name}")?;
        }
    }
    if mods.offset != 0 {
        write!(f, " {}:{}", if pair { "offset0" } else { "offset" }, mods.offset)?;
    }
    if mods.offset1 != 0 {
        write!(f, " offset1:{}", mods.offset1)?;
    }
    let buffer_lds = mods.lds && inst.format == Format::Mubuf;
    for (set, name) in [(mods.sc0, "sc0"), (mods.nt, "nt"), (mods.sc1, "sc1"), (buffer_lds, "lds")] {
        if set {
            write!(f, " {name}")?;
        }
    }
    Ok(())
}

fn smem_modifiers(inst: &Inst, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if inst.mods.offen {
        write!(f, " offset:{}", signed_hex(inst.mods.offset))?;
    }
    if inst.mods.glc {
        write!(f, " glc")?;
    }
    Ok(())
}
