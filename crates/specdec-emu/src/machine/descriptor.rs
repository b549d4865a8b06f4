//! The 64-byte kernel descriptor (`<symbol>.kd`): what the command processor sets up before a wave starts.

/// Size of a descriptor in bytes.
pub(super) const DESCRIPTOR_BYTES: usize = 64;

/// User SGPRs that a descriptor asks for, in the order in which they are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one bit of the descriptor")]
pub(super) struct UserSgprs {
    pub private_segment_buffer: bool,
    pub dispatch_ptr: bool,
    pub queue_ptr: bool,
    pub kernarg_segment_ptr: bool,
    pub dispatch_id: bool,
    pub flat_scratch_init: bool,
    pub private_segment_size: bool,
    /// Kernarg dwords preloaded into the SGPRs that follow, and the dword they start at.
    pub preload_dwords: u32,
    pub preload_offset: u32,
}

/// A decoded descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    pub lds_bytes: u32,
    pub private_bytes: u32,
    pub kernarg_bytes: u32,
    /// Entry point relative to the descriptor.
    pub entry_offset: i64,
    /// Registers of the unified file that a wave is granted.
    pub vector_registers: u32,
    /// First accumulation register in the unified file.
    pub accum_offset: u32,
    pub workgroup_id: [bool; 3],
    pub workgroup_info: bool,
    pub user: UserSgprs,
    /// Initial MODE register: rounding, denormals, clamp of NaN, IEEE.
    pub mode: u32,
    pub wave32: bool,
}

impl Descriptor {
    /// Decodes a descriptor.
    pub fn parse(bytes: &[u8; DESCRIPTOR_BYTES]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (rsrc3, rsrc1, rsrc2) = (word(44), word(48), word(52));
        let properties = word(56) & 0xffff;
        let preload = word(56) >> 16;
        let bit = |value: u32, at: u32| value >> at & 1 != 0;
        Self {
            lds_bytes: word(0),
            private_bytes: word(4),
            kernarg_bytes: word(8),
            entry_offset: (word(16) as u64 | (word(20) as u64) << 32) as i64,
            vector_registers: ((rsrc1 & 63) + 1) * 8,
            accum_offset: ((rsrc3 & 63) + 1) * 4,
            workgroup_id: [bit(rsrc2, 7), bit(rsrc2, 8), bit(rsrc2, 9)],
            workgroup_info: bit(rsrc2, 10),
            user: UserSgprs {
                private_segment_buffer: bit(properties, 0),
                dispatch_ptr: bit(properties, 1),
                queue_ptr: bit(properties, 2),
                kernarg_segment_ptr: bit(properties, 3),
                dispatch_id: bit(properties, 4),
                flat_scratch_init: bit(properties, 5),
                private_segment_size: bit(properties, 6),
                preload_dwords: preload & 0x7f,
                preload_offset: preload >> 7,
            },
            mode: rsrc1 >> 12 & 0xff | (rsrc1 >> 21 & 1) << 8 | (rsrc1 >> 23 & 1) << 9,
            wave32: bit(properties, 10),
        }
    }

    /// What of this descriptor is not emulated, if anything.
    pub fn unsupported(&self) -> Option<String> {
        let user = self.user;
        [
            (self.private_bytes > 0, format!("{} bytes of scratch memory a work-item", self.private_bytes)),
            (
                user.private_segment_buffer || user.flat_scratch_init || user.private_segment_size,
                "scratch registers".into(),
            ),
            (self.wave32, "32-lane waves".into()),
        ]
        .into_iter()
        .find_map(|(is_needed, what)| is_needed.then_some(what))
    }
}
