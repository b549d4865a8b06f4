//! What the machine does for an instruction that is not the executor's: memory, waits, barriers, clocks.

use super::atomic::AtomicOp;
use crate::exec::Handler;
use crate::inst::{Format, Inst};
use crate::op::Op;

/// Which address an instruction forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Buffer,
    /// Global, and flat instructions, whose address is checked like a global one.
    Global,
}

/// Where a loaded value goes in a 32-bit register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    Zero,
    Sign,
    /// Low half of a packed register; with SRAM ECC, which gfx950 has, the other half becomes zero.
    Low,
    LowSign,
    High,
    HighSign,
}

/// A lane's element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element {
    pub bytes: u8,
    pub placement: Placement,
}

/// A vector memory instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VectorKind {
    Load(Element),
    LoadToLds(Element),
    Store(Element),
    Atomic(AtomicOp, u8),
}

/// An LDS instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalKind {
    /// Eight bytes a lane, transposed as elements of this many bits.
    ReadTransposed(u8),
    Read(Element),
    Write(Element),
    /// Two elements of these bytes, offsets in units of the second number.
    ReadTwo(u8, u32),
    WriteTwo(u8, u32),
    Atomic {
        op: AtomicOp,
        bytes: u8,
        is_returning: bool,
    },
}

/// What an instruction is to the scheduler.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// The executor's business.
    Run(Handler),
    /// The executor's, but the result arrives like an LDS read.
    CrossLane(Handler),
    Vector(Segment, VectorKind),
    Local(LocalKind),
    /// Scalar load of this many dwords; through a buffer descriptor.
    ScalarLoad {
        dwords: u8,
        is_buffer: bool,
    },
    Wait {
        vector: u8,
        local: u8,
    },
    Barrier,
    Sleep,
    End,
    /// Hints that change nothing here.
    Nothing,
    /// `buffer_wbl2`: counts as a memory operation.
    WriteBack,
    RealTime,
    CoreTime,
    GetRegister,
    SetRegister,
    Unimplemented,
    /// Not decodable; the first dword.
    Unknown(u32),
}

fn element(kind: &str) -> Option<Element> {
    let (bytes, placement) = match kind {
        "dword" | "b32" => (4, Placement::Zero),
        "dwordx2" | "b64" => (8, Placement::Zero),
        "dwordx3" | "b96" => (12, Placement::Zero),
        "dwordx4" | "b128" => (16, Placement::Zero),
        "ubyte" | "byte" | "u8" | "b8" => (1, Placement::Zero),
        "sbyte" | "i8" => (1, Placement::Sign),
        "ushort" | "short" | "u16" | "b16" => (2, Placement::Zero),
        "sshort" | "i16" => (2, Placement::Sign),
        "ubyte_d16" | "u8_d16" => (1, Placement::Low),
        "sbyte_d16" | "i8_d16" => (1, Placement::LowSign),
        "short_d16" | "u16_d16" => (2, Placement::Low),
        "ubyte_d16_hi" | "u8_d16_hi" | "byte_d16_hi" | "b8_d16_hi" => (1, Placement::High),
        "sbyte_d16_hi" | "i8_d16_hi" => (1, Placement::HighSign),
        "short_d16_hi" | "u16_d16_hi" | "b16_d16_hi" => (2, Placement::High),
        _ => return None,
    };
    Some(Element { bytes, placement })
}

fn vector_action(segment: Segment, tail: &str, is_lds: bool) -> Action {
    let kind = match tail.split_once('_') {
        Some(("load", kind)) => {
            let (kind, is_lds) = kind.strip_prefix("lds_").map_or((kind, is_lds), |kind| (kind, true));
            element(kind).map(if is_lds { VectorKind::LoadToLds } else { VectorKind::Load })
        }
        Some(("store", kind)) => element(kind).map(VectorKind::Store),
        Some(("atomic", operation)) => AtomicOp::global(operation).map(|(op, bytes)| VectorKind::Atomic(op, bytes)),
        _ => None,
    };
    kind.map_or(Action::Unimplemented, |kind| Action::Vector(segment, kind))
}

fn local_action(tail: &str) -> Action {
    let two = |tail: &str| {
        let (tail, scale) = tail.strip_prefix("st64").map_or((tail, 1), |tail| (tail, 64));
        element(tail.strip_prefix('_')?).map(|element| (element.bytes, element.bytes as u32 * scale))
    };
    let kind = if let Some(tail) = tail.strip_prefix("read2") {
        two(tail).map(|(bytes, stride)| LocalKind::ReadTwo(bytes, stride))
    } else if let Some(tail) = tail.strip_prefix("write2") {
        two(tail).map(|(bytes, stride)| LocalKind::WriteTwo(bytes, stride))
    } else if let Some(bits) = tail.strip_prefix("read_b64_tr_b") {
        // Four and six bits have no kernel yet that would tell whether we read the documents right.
        matches!(bits, "8" | "16").then(|| LocalKind::ReadTransposed(if bits == "8" { 8 } else { 16 }))
    } else if let Some(kind) = tail.strip_prefix("read_") {
        element(kind).map(LocalKind::Read)
    } else if let Some(kind) = tail.strip_prefix("write_") {
        element(kind).map(LocalKind::Write)
    } else {
        AtomicOp::local(tail).map(|(op, bytes, is_returning)| LocalKind::Atomic { op, bytes, is_returning })
    };
    kind.map_or(Action::Unimplemented, Action::Local)
}

fn scalar_memory_action(name: &str) -> Action {
    let (kind, is_buffer) = name.strip_prefix("s_buffer_load_").map_or((name, false), |kind| (kind, true));
    let dwords = match kind.strip_prefix("s_load_").unwrap_or(kind) {
        "dword" => 1,
        "dwordx2" => 2,
        "dwordx4" => 4,
        "dwordx8" => 8,
        "dwordx16" => 16,
        _ => return Action::Unimplemented,
    };
    Action::ScalarLoad { dwords, is_buffer }
}

impl Action {
    /// Classifies a decoded instruction.
    pub fn of(inst: &Inst) -> Self {
        let immediate = inst.mods.offset as u16;
        match inst.op {
            Op::SWaitcnt => {
                let vector = (immediate & 15 | (immediate >> 14) << 4) as u8;
                return Self::Wait { vector, local: (immediate >> 8 & 15) as u8 };
            }
            Op::SBarrier => return Self::Barrier,
            Op::SSleep => return Self::Sleep,
            Op::SEndpgm | Op::SEndpgmSaved => return Self::End,
            Op::SNop
            | Op::SSetprio
            | Op::SIcacheInv
            | Op::SDcacheInv
            | Op::SDcacheWb
            | Op::STtracedata
            | Op::DsNop
            | Op::BufferInv => return Self::Nothing,
            Op::BufferWbl2 => return Self::WriteBack,
            Op::SMemrealtime => return Self::RealTime,
            Op::SMemtime => return Self::CoreTime,
            Op::SGetregB32 => return Self::GetRegister,
            Op::SSetregB32 | Op::SSetregImm32B32 => return Self::SetRegister,
            _ => {}
        }
        let name = inst.op.name();
        let (_, tail) = name.split_once('_').unwrap_or((name, ""));
        match inst.format {
            Format::Mubuf => vector_action(Segment::Buffer, tail, inst.mods.lds),
            Format::Global | Format::Flat => vector_action(Segment::Global, tail, inst.mods.lds),
            Format::Scratch => Self::Unimplemented,
            Format::Smem => scalar_memory_action(name),
            Format::Ds => match crate::exec::handler(inst) {
                Some(handler) => Self::CrossLane(handler),
                None => local_action(tail),
            },
            _ => crate::exec::handler(inst).map_or(Self::Unimplemented, Self::Run),
        }
    }
}

/// Whether the emulator, wave or machine, carries out the instruction.
pub fn implements(inst: &Inst) -> bool {
    !matches!(Action::of(inst), Action::Unimplemented | Action::Unknown(_))
}
