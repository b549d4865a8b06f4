//! ABI structs as the bytes that kernels read: fields in order, little-endian, no padding (`tests` compare with the
//! compiler's own offsets).

use crate::abi::{FailureRecord, LaunchArgs, LayerDescriptor, SeamWeights, StageTasks, StateGroup, MAX_RANKS};

/// Appends a value's bytes.
pub trait Encode {
    /// Appends this value's bytes to `out`.
    fn encode(&self, out: &mut Vec<u8>);

    /// This value's bytes.
    fn to_bytes(&self) -> Vec<u8> {
        // No struct here is written with gaps, so that is all of it: one allocation, in every launch of every step.
        let mut out = Vec::with_capacity(std::mem::size_of_val(self));
        self.encode(&mut out);
        out
    }
}

macro_rules! encode_numbers {
    ($($type:ty),*) => {$(
        impl Encode for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
encode_numbers!(u32, u64, f32);

impl Encode for [u64; MAX_RANKS as usize] {
    fn encode(&self, out: &mut Vec<u8>) {
        for address in self {
            address.encode(out);
        }
    }
}

macro_rules! encode_structs {
    ($($type:ident { $($field:ident),* $(,)? })*) => {$(
        impl Encode for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                let Self { $($field),* } = self;
                $($field.encode(out);)*
            }
        }
    )*};
}

encode_structs! {
    StageTasks { tasks, head_ctas, head_tasks, reserved }
    StateGroup { state_indices, num_accepted, row_stride, reserved }
    SeamWeights { norm, logit, output, eps, output_eps }
    LayerDescriptor {
        attention_seam, mlp_seam, in_proj, f_b, conv, a_log, dt_bias, o_norm, o_proj, router, router_bias,
        latent_down, shared_gate_up, shared_down, w13, w13_scale, w2, w2_scale, latent_norm, up, conv_state,
        conv_slot_stride, conv_channel_stride, conv_token_stride, recurrent_state, recurrent_slot_stride,
        num_slots, state_group, kind, layer, num_blocks, block_write, gate_lower_bound, o_norm_eps, latent_eps,
        reserved,
    }
    LaunchArgs {
        layers, groups, stages, scratch, peers, health, abort, witness, prefix, blocks, delta, core, blocks_row_stride,
        block_stride, timeout_ticks, num_layers, rows, rows_per_request, requests, rank, grid,
        flags, reserved,
    }
    FailureRecord { reason, stage, layer, offset, wanted, seen, source, clock }
}

impl FailureRecord {
    /// The record in these bytes; `None` if there is none or they are too few.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |i: usize| bytes.get(4 * i..4 * i + 4)?.try_into().ok().map(u32::from_le_bytes);
        let record = Self {
            reason: word(0)?,
            stage: word(1)?,
            layer: word(2)?,
            offset: word(3)?,
            wanted: word(4)?,
            seen: word(5)?,
            source: word(6)?,
            clock: word(7)?,
        };
        (record.reason != 0).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::size_of;

    use super::*;

    #[test]
    fn encoded_sizes_are_the_compilers() {
        assert_eq!(StageTasks::default().to_bytes().len(), size_of::<StageTasks>());
        assert_eq!(StateGroup::default().to_bytes().len(), size_of::<StateGroup>());
        assert_eq!(SeamWeights::default().to_bytes().len(), size_of::<SeamWeights>());
        assert_eq!(LayerDescriptor::default().to_bytes().len(), size_of::<LayerDescriptor>());
        assert_eq!(LaunchArgs::default().to_bytes().len(), size_of::<LaunchArgs>());
    }

    #[test]
    fn fields_are_encoded_where_the_compiler_puts_them() {
        let descriptor = LayerDescriptor { up: 0x1122, latent_eps: 1.0, num_slots: 77, ..LayerDescriptor::default() };
        let bytes = descriptor.to_bytes();
        let at = |offset: usize| {
            u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
        };
        assert_eq!(at(std::mem::offset_of!(LayerDescriptor, up)), 0x1122);
        assert_eq!(at(std::mem::offset_of!(LayerDescriptor, latent_eps)), 1.0_f32.to_bits());
        assert_eq!(at(std::mem::offset_of!(LayerDescriptor, num_slots)), 77);
        let args = LaunchArgs { timeout_ticks: 5, grid: 8, ..LaunchArgs::default() };
        let bytes = args.to_bytes();
        assert_eq!(bytes[std::mem::offset_of!(LaunchArgs, timeout_ticks)], 5);
        assert_eq!(bytes[std::mem::offset_of!(LaunchArgs, grid)], 8);
    }

    #[test]
    fn a_record_survives_the_round_trip_and_zero_is_none() {
        let record =
            FailureRecord { reason: 1, stage: 2, layer: 3, offset: 4, wanted: 5, seen: 6, source: 7, clock: 8 };
        assert_eq!(FailureRecord::from_bytes(&record.to_bytes()), Some(record));
        assert_eq!(FailureRecord::from_bytes(&[0; 32]), None);
        assert_eq!(FailureRecord::from_bytes(&[1; 31]), None);
    }
}
