//! Immediates with a meaning: waits, hardware registers, index modes, swizzles.

use std::fmt;

use crate::inst::Inst;
use crate::op::Op;

/// Appends the immediate of a scalar instruction, if it prints one.
pub(super) fn immediate(inst: &Inst, texts: &mut Vec<String>) {
    let value = inst.mods.offset & 0xffff;
    let text = match inst.op {
        Op::SMovkI32
        | Op::SCmovkI32
        | Op::SAddkI32
        | Op::SMulkI32
        | Op::SCmpkEqI32
        | Op::SCmpkLgI32
        | Op::SCmpkGtI32
        | Op::SCmpkGeI32
        | Op::SCmpkLtI32
        | Op::SCmpkLeI32
        | Op::SCmpkEqU32
        | Op::SCmpkLgU32
        | Op::SCmpkGtU32
        | Op::SCmpkGeU32
        | Op::SCmpkLtU32
        | Op::SCmpkLeU32 => format!("{value:#x}"),
        Op::SGetregB32 => hardware_register(value),
        Op::SSetregB32 => return texts.insert(0, hardware_register(value)),
        Op::SSetregImm32B32 => {
            texts.push(hardware_register(value));
            set_value(inst.literal)
        }
        Op::SSetGprIdxOn | Op::SSetGprIdxMode => index_mode(value),
        Op::SWaitcnt => wait(value),
        Op::SEndpgm if value == 0 => return,
        Op::SNop | Op::SSethalt | Op::SSleep | Op::SSetprio | Op::STrap if value > 64 => format!("{value:#x}"),
        Op::SEndpgm
        | Op::SNop
        | Op::SBranch
        | Op::SCbranchScc0
        | Op::SCbranchScc1
        | Op::SCbranchVccz
        | Op::SCbranchVccnz
        | Op::SCbranchExecz
        | Op::SCbranchExecnz
        | Op::SCbranchCdbgsys
        | Op::SSethalt
        | Op::SSleep
        | Op::SSetprio
        | Op::STrap
        | Op::SCallB64 => value.to_string(),
        _ => return,
    };
    texts.push(text);
}

/// The immediate of `s_setreg_imm32_b32`: spelled as a number where an inline constant has that value.
fn set_value(value: u32) -> String {
    const FLOATS: [&str; 9] = ["0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494"];
    let inline = (240..=248).zip(FLOATS).find(|(code, _)| crate::wave::inline_float(*code) == value);
    match (inline, value as i32) {
        (Some((_, name)), _) => name.into(),
        (None, integer @ -16..=64) => integer.to_string(),
        _ => format!("{value:#x}"),
    }
}

/// The counters that are waited for, or all of them where none is: LLVM's way to show a wait for nothing.
fn wait(value: i32) -> String {
    let (vector, export, scalar) = (value & 15 | (value >> 14 & 3) << 4, value >> 4 & 7, value >> 8 & 15);
    let idle = vector == 63 && export == 7 && scalar == 15;
    let parts: Vec<_> = [("vmcnt", vector, 63), ("expcnt", export, 7), ("lgkmcnt", scalar, 15)]
        .into_iter()
        .filter(|(_, count, most)| idle || count != most)
        .map(|(name, count, _)| format!("{name}({count})"))
        .collect();
    parts.join(" ")
}

fn hardware_register(value: i32) -> String {
    let (id, offset, size) = (value & 63, value >> 6 & 31, (value >> 11 & 31) + 1);
    let name = match id {
        1 => "HW_REG_MODE",
        2 => "HW_REG_STATUS",
        3 => "HW_REG_TRAPSTS",
        4 => "HW_REG_HW_ID",
        5 => "HW_REG_GPR_ALLOC",
        6 => "HW_REG_LDS_ALLOC",
        7 => "HW_REG_IB_STS",
        15 => "HW_REG_SH_MEM_BASES",
        16 => "HW_REG_TBA_LO",
        17 => "HW_REG_TBA_HI",
        18 => "HW_REG_TMA_LO",
        19 => "HW_REG_TMA_HI",
        20 => "HW_REG_XCC_ID",
        21 => "HW_REG_SQ_PERF_SNAPSHOT_DATA",
        22 => "HW_REG_SQ_PERF_SNAPSHOT_DATA1",
        23 => "HW_REG_SQ_PERF_SNAPSHOT_PC_LO",
        24 => "HW_REG_SQ_PERF_SNAPSHOT_PC_HI",
        _ => "",
    };
    let name = if name.is_empty() { id.to_string() } else { name.to_string() };
    if offset == 0 && size == 32 {
        format!("hwreg({name})")
    } else {
        format!("hwreg({name}, {offset}, {size})")
    }
}

fn index_mode(value: i32) -> String {
    if value > 15 {
        return format!("{value:#x}");
    }
    let names = ["SRC0", "SRC1", "SRC2", "DST"].into_iter().enumerate();
    let set: Vec<_> = names.filter(|(bit, _)| value >> bit & 1 != 0).map(|(_, name)| name).collect();
    format!("gpr_idx({})", set.join(","))
}

/// The offset of `ds_swizzle_b32`: within groups of 32 lanes, lane `l` reads lane `(l & and | or) ^ xor`.
pub(super) fn swizzle(offset: i32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (and, or, xor) = (offset & 31, offset >> 5 & 31, offset >> 10 & 31);
    match offset {
        0 => Ok(()),
        0xe000.. => write!(f, " offset:swizzle(FFT,{})", offset & 31),
        0xc000.. => write!(f, " offset:swizzle(ROTATE,{},{or})", xor & 1),
        _ if offset >> 8 == 0x80 => {
            let lane = |index: i32| offset >> (2 * index) & 3;
            write!(f, " offset:swizzle(QUAD_PERM,{},{},{},{})", lane(0), lane(1), lane(2), lane(3))
        }
        _ if offset >= 0x8000 => write!(f, " offset:{offset}"),
        _ if and == 31 && or == 0 && xor.count_ones() == 1 => write!(f, " offset:swizzle(SWAP,{xor})"),
        _ if and == 31 && or == 0 && xor > 0 && (xor + 1).count_ones() == 1 => {
            write!(f, " offset:swizzle(REVERSE,{})", xor + 1)
        }
        _ if xor == 0 && is_broadcast(and, or) => {
            write!(f, " offset:swizzle(BROADCAST,{},{or})", 32 - and)
        }
        _ => {
            let letter = |bit| mask_letter(and >> bit & 1, or >> bit & 1, xor >> bit & 1);
            let letters: String = (0..5).rev().map(letter).collect();
            write!(f, " offset:swizzle(BITMASK_PERM,\"{letters}\")")
        }
    }
}

/// Whether a group of two to 32 lanes reads one of its own.
fn is_broadcast(and: i32, or: i32) -> bool {
    let group = 32 - and;
    group > 1 && group.count_ones() == 1 && or < group
}

/// What becomes of one bit of the lane's number: kept, inverted, or set.
fn mask_letter(and: i32, or: i32, xor: i32) -> char {
    match (and != 0 && or == 0, or ^ xor, xor) {
        (true, _, 0) => 'p',
        (true, _, _) => 'i',
        (false, 0, _) => '0',
        _ => '1',
    }
}
