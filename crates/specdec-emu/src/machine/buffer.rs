//! Raw buffer descriptors and the addresses that MUBUF instructions form with them.

use super::error::EmulatorError;
use super::location::Location;
use super::visibility::LaneAddresses;
use crate::inst::Inst;
use crate::wave::{Wave, LANES};

/// The four words of a buffer resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer {
    pub base: u64,
    pub num_records: u32,
}

impl Buffer {
    /// Decodes a raw buffer; structured, swizzled and per-thread forms are refused.
    pub fn parse(words: [u32; 4]) -> Result<Self, EmulatorError> {
        let stride = words[1] >> 16 & 0x3fff;
        let has_swizzle = words[1] >> 30 != 0;
        let adds_thread_id = words[3] >> 23 & 1 != 0;
        if stride != 0 || has_swizzle || adds_thread_id {
            let what = format!("buffer descriptor {words:08x?}: stride, swizzle or thread id");
            return Err(EmulatorError::Unimplemented { what, at: Location::unknown() });
        }
        Ok(Self { base: words[0] as u64 | (words[1] as u64 & 0xffff) << 32, num_records: words[2] })
    }

    /// The descriptor that an instruction's resource operand names.
    pub fn of(inst: &Inst, wave: &Wave) -> Result<Self, EmulatorError> {
        let first = inst.src[1].scalar().filter(|first| first + 4 <= wave.sgpr.len());
        let first = first.ok_or_else(|| EmulatorError::Unimplemented {
            what: "a buffer descriptor that is not in scalar registers".into(),
            at: Location::unknown(),
        })?;
        Self::parse([wave.sgpr[first], wave.sgpr[first + 1], wave.sgpr[first + 2], wave.sgpr[first + 3]])
    }

    /// Bytes of an element of `bytes` at `offset` that are inside: all, none, or its first dwords. A raw buffer is
    /// checked per dword, with the scalar offset (CDNA3 ISA, "Range checking").
    pub fn bytes_inside(self, offset: u64, bytes: usize) -> usize {
        let room = (self.num_records as u64).saturating_sub(offset);
        if bytes < 4 {
            return if room >= bytes as u64 { bytes } else { 0 };
        }
        (room.min(bytes as u64) / 4 * 4) as usize
    }
}

/// What a MUBUF instruction accesses.
pub(super) struct BufferAccess {
    /// Lanes whose whole element is inside.
    pub whole: LaneAddresses,
    /// Lanes of which only the first dwords are inside, and how many bytes.
    pub partial: Vec<(usize, usize)>,
    /// Lanes of EXEC.
    pub exec: u64,
}

/// Forms the addresses of a MUBUF instruction with elements of `bytes`.
pub(super) fn addresses(inst: &Inst, wave: &Wave, bytes: usize) -> Result<BufferAccess, EmulatorError> {
    let buffer = Buffer::of(inst, wave)?;
    let exec = wave.exec();
    let scalar = wave.scalar32(inst.src[2], inst.literal) as u64 + inst.mods.offset as u64;
    let first = inst.src[0].vector().map(|first| first + usize::from(inst.mods.idxen && inst.mods.offen));
    // With a stride of 0 an index adds nothing.
    let offsets = match first {
        Some(first) if inst.mods.offen => &wave.vgpr[first],
        _ => &[0; LANES],
    };
    let base = buffer.base.wrapping_add(scalar);
    let whole = LaneAddresses { at: std::array::from_fn(|lane| base.wrapping_add(offsets[lane] as u64)), mask: exec };
    let mut access = BufferAccess { whole, partial: Vec::new(), exec };
    // Inactive lanes may hold anything; when they alone are outside, the loop finds nothing.
    let highest = offsets.iter().fold(0, |highest, &offset| offset.max(highest));
    if buffer.bytes_inside(scalar + highest as u64, bytes) == bytes {
        return Ok(access);
    }
    for (lane, &offset) in offsets.iter().enumerate().filter(|(lane, _)| exec >> lane & 1 != 0) {
        let inside = buffer.bytes_inside(scalar + offset as u64, bytes);
        if inside < bytes {
            access.whole.mask &= !(1 << lane);
        }
        if inside > 0 && inside < bytes {
            access.partial.push((lane, inside));
        }
    }
    Ok(access)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_raw_buffer_is_checked_per_dword() {
        let buffer = Buffer::parse([0x1000, 0, 22, 0x0002_7000]).unwrap();
        assert_eq!(buffer.bytes_inside(0, 16), 16);
        assert_eq!(buffer.bytes_inside(8, 16), 12);
        assert_eq!(buffer.bytes_inside(20, 4), 0);
        assert_eq!(buffer.bytes_inside(20, 2), 2);
        assert_eq!(buffer.bytes_inside(100, 16), 0);
        assert!(Buffer::parse([0, 16 << 16, 22, 0]).is_err());
        assert!(Buffer::parse([0, 1 << 31, 22, 0]).is_err());
    }
}
