//! Where every exchange lives: scratch of one rank, and the peer buffer that all ranks push into.
//!
//! One region per kind of exchange, laid out for `MAX_ROWS` whatever the step's width, so that no two builds or
//! widths ever give one address two meanings (spec: DESIGN "Tags"). Rows regions (plain data behind flags) are in
//! scratch, pair regions (payload and tag in one word) in the peer buffer: they cannot overlap.

use serde::Serialize;

use crate::abi::{
    HIDDEN_SCALE_BYTES, MAX_RANKS, MAX_REQUESTS, MAX_ROWS, MAX_TOP_K, MX_GROUP, PEER_HEAD_BYTES, SEAM_VALUES,
    SHARED_COLUMNS, TILE, WITNESS_SOURCES,
};
use crate::geometry::Shard;

/// Regions start at multiples of this many bytes.
const ALIGN: u64 = 256;

/// A kind of exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Region {
    /// Products of the attention seam's sources: f32 `[rows, slices, SEAM_VALUES]`.
    AttentionDots,
    /// Input of `in_proj`: bf16 `[rows, hidden]`.
    AttentionX,
    /// q, k, v, g, `f_a`, beta: bf16 `[rows, in_proj_rows]`.
    Proj,
    /// Gated output before its norm: f32 `[rows, proj]`, then squares f32 `[rows, heads, chunks]`.
    Core,
    /// As `AttentionDots`, for the MLP seam.
    MlpDots,
    /// Input of the router, the latent and the shared experts: bf16 `[rows, hidden]`.
    MlpX,
    /// Shared experts' intermediate: bf16 `[rows, shared]`.
    SharedHidden,
    /// Picked experts' intermediate: MXFP4 `[rows, top_k, inter / 2]`, then E8M0 `[rows, top_k, 16]`.
    ExpertHidden,
    /// Latent before its norm: bf16 `[rows, latent]`, then squares f32 `[rows, latent_slices]`.
    LatentZ,
    /// `o_proj` partials: pairs of bf16 `[ranks, rows, hidden / 2]`.
    AttentionOut,
    /// Router logits: f32 pairs `[rows, experts]`.
    Logits,
    /// Latent: pairs of bf16 `[rows, latent / 2]`.
    Latent,
    /// Routed partials: pairs of bf16 `[ranks, rows, latent / 2]`.
    LatentOut,
    /// Layer output partials: pairs of bf16 `[ranks, rows, hidden / 2]`.
    Output,
}

impl Region {
    /// Every region, scratch first.
    pub const ALL: [Self; 14] = [
        Self::AttentionDots,
        Self::AttentionX,
        Self::Proj,
        Self::Core,
        Self::MlpDots,
        Self::MlpX,
        Self::SharedHidden,
        Self::ExpertHidden,
        Self::LatentZ,
        Self::AttentionOut,
        Self::Logits,
        Self::Latent,
        Self::LatentOut,
        Self::Output,
    ];

    /// Name in reports and in the generated header (snake case).
    pub const fn name(self) -> &'static str {
        match self {
            Self::AttentionDots => "attention_dots",
            Self::AttentionX => "attention_x",
            Self::Proj => "proj",
            Self::Core => "core",
            Self::MlpDots => "mlp_dots",
            Self::MlpX => "mlp_x",
            Self::SharedHidden => "shared_hidden",
            Self::ExpertHidden => "expert_hidden",
            Self::LatentZ => "latent_z",
            Self::AttentionOut => "attention_out",
            Self::Logits => "logits",
            Self::Latent => "latent",
            Self::LatentOut => "latent_out",
            Self::Output => "output",
        }
    }
}

/// One region's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Which exchange.
    pub region: Region,
    /// First data byte from the start of its buffer (scratch, or one parity half of the peer buffer).
    pub data: u64,
    /// Data bytes.
    pub data_bytes: u64,
    /// First flag byte, for rows regions.
    pub flags: Option<u64>,
    /// Flags (u32 tags), for rows regions.
    pub num_flags: u32,
}

/// Where a layer's witnessed values are in its block of the witness buffer, in bytes (spec: DESIGN "Witness").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WitnessLayout {
    /// Softmax weights: f32 `[2 (attention, MLP), rows, 16]`; blocks first, the prefix at `MAX_BLOCKS`.
    pub mix: u64,
    /// Picked experts in slot order: u32 `[rows, MAX_TOP_K]`.
    pub picks: u64,
    /// Their weights: f32 `[rows, MAX_TOP_K]`.
    pub pick_weights: u64,
    /// The latent's E2M1 codes: `[rows, latent / 2]`.
    pub codes: u64,
    /// The latent's E8M0 scales: `[rows, latent / 32]`.
    pub scales: u64,
    /// Bytes of a layer's block.
    pub bytes: u64,
}

impl WitnessLayout {
    /// The layout for one geometry.
    pub fn new(shard: &Shard) -> Self {
        let (rows, latent) = (u64::from(MAX_ROWS), u64::from(shard.geometry.latent));
        let picks = 2 * rows * u64::from(WITNESS_SOURCES) * 4;
        let pick_weights = picks + rows * u64::from(MAX_TOP_K) * 4;
        let codes = pick_weights + rows * u64::from(MAX_TOP_K) * 4;
        let scales = codes + rows * latent / 2;
        Self { mix: 0, picks, pick_weights, codes, scales, bytes: scales + rows * latent / u64::from(MX_GROUP) }
    }
}

/// Layout of one rank's scratch and peer buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layout {
    /// Every region, in the order of `Region::ALL`.
    pub places: Vec<Place>,
    /// Bytes of scratch.
    pub scratch_bytes: u64,
    /// Bytes of one parity half of the peer buffer.
    pub peer_half_bytes: u64,
}

impl Layout {
    /// The layout for one rank's shard. A region has a flag for every task that may produce it, so any grid fits.
    pub fn new(shard: &Shard) -> Self {
        let geometry = &shard.geometry;
        let rows = u64::from(MAX_ROWS);
        let wave_flags = MAX_ROWS * shard.slices();
        // (bytes, flags); a stage of workgroups uses one flag per producing workgroup, no more than it has tasks.
        let scratch = |region: Region| -> Option<(u64, u32)> {
            let hidden = u64::from(geometry.hidden);
            Some(match region {
                Region::AttentionDots | Region::MlpDots => {
                    (rows * u64::from(shard.slices() * SEAM_VALUES) * 4, wave_flags)
                }
                Region::AttentionX | Region::MlpX => (rows * hidden * 2, wave_flags),
                Region::Proj => (rows * u64::from(shard.in_proj_rows()) * 2, shard.in_proj_rows() / TILE),
                Region::Core => {
                    let squares = u64::from(shard.heads() * shard.chunks());
                    (rows * (u64::from(shard.proj()) + squares) * 4, MAX_REQUESTS * shard.heads() * shard.chunks())
                }
                Region::SharedHidden => (rows * u64::from(shard.shared()) * 2, shard.shared() / SHARED_COLUMNS),
                Region::ExpertHidden => {
                    let picks = MAX_ROWS * geometry.top_k;
                    (u64::from(picks) * u64::from(shard.inter() / 2 + HIDDEN_SCALE_BYTES), picks * shard.groups())
                }
                Region::LatentZ => (
                    rows * (u64::from(geometry.latent) * 2 + u64::from(shard.latent_slices()) * 4),
                    MAX_ROWS * shard.latent_slices(),
                ),
                _ => return None,
            })
        };
        let pairs = |region: Region| -> u64 {
            let ranks = u64::from(shard.ranks);
            8 * rows
                * match region {
                    Region::AttentionOut | Region::Output => ranks * u64::from(geometry.hidden / 2),
                    Region::Logits => u64::from(geometry.experts),
                    Region::Latent => u64::from(geometry.latent / 2),
                    _ => ranks * u64::from(geometry.latent / 2),
                }
        };
        let (mut scratch_bytes, mut peer_half_bytes) = (0, 0);
        let take = |total: &mut u64, bytes: u64| {
            let start = *total;
            *total = (start + bytes).next_multiple_of(ALIGN);
            start
        };
        let places = Region::ALL
            .iter()
            .map(|&region| {
                if let Some((data_bytes, num_flags)) = scratch(region) {
                    let data = take(&mut scratch_bytes, data_bytes);
                    let flags = take(&mut scratch_bytes, u64::from(num_flags) * 4);
                    return Place { region, data, data_bytes, flags: Some(flags), num_flags };
                }
                let data_bytes = pairs(region);
                let data = take(&mut peer_half_bytes, data_bytes);
                Place { region, data, data_bytes, flags: None, num_flags: 0 }
            })
            .collect();
        Self { places, scratch_bytes, peer_half_bytes }
    }

    /// Where a region is.
    pub fn place(&self, region: Region) -> Place {
        self.places[region as usize]
    }

    /// Bytes of a peer buffer: the alarm words, then two halves.
    pub const fn peer_bytes(&self) -> u64 {
        PEER_HEAD_BYTES as u64 + 2 * self.peer_half_bytes
    }
}

// One alarm word per rank fits the head.
const _: () = assert!(4 * MAX_RANKS <= PEER_HEAD_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{K3, NANO};

    #[test]
    fn regions_are_disjoint_and_inside_their_buffer() {
        for (geometry, ranks) in [(&K3, 8), (&NANO, 2), (&NANO, 1)] {
            let Ok(shard) = geometry.shard(ranks) else { panic!("{} splits over {ranks}", geometry.name) };
            let layout = Layout::new(&shard);
            let mut scratch: Vec<(u64, u64)> = Vec::new();
            let mut peer: Vec<(u64, u64)> = Vec::new();
            for place in &layout.places {
                assert_eq!(layout.place(place.region), *place);
                match place.flags {
                    Some(flags) => {
                        scratch.push((place.data, place.data + place.data_bytes));
                        scratch.push((flags, flags + 4 * u64::from(place.num_flags)));
                    }
                    None => peer.push((place.data, place.data + place.data_bytes)),
                }
            }
            for (mut spans, bytes) in [(scratch, layout.scratch_bytes), (peer, layout.peer_half_bytes)] {
                spans.sort_unstable();
                assert!(spans.windows(2).all(|w| w[0].1 <= w[1].0), "{spans:?}");
                assert!(spans.iter().all(|s| s.1 <= bytes));
            }
        }
    }
}
