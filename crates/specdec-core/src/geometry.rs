//! Dimensions of a model, and of one rank's share of it (spec/numerics.md §1 and §11).

use serde::Serialize;
use thiserror::Error;

use crate::abi::{LayerKind, KDA_CHUNK, MAX_BLOCKS, MAX_RANKS, MAX_TOP_K, MX_GROUP, SLICE, TILE, WAVES};
use crate::ids::Layer;

/// Width of the KDA short convolution.
pub const CONV_WIDTH: u32 = 4;
/// Columns that one bf16 matrix instruction takes of K.
pub const BF16_STEP: u32 = 32;
/// Columns that one MXFP4 matrix instruction takes of K.
pub const FP4_STEP: u32 = 128;

/// Attention of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Attention {
    /// Kimi delta attention.
    Kda,
    /// Multi-head latent attention.
    Mla,
}

/// A model's dimensions, whole (not one rank's).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Geometry {
    /// Name on the command line.
    pub name: &'static str,
    /// Name of the kernel build that serves it: geometries that differ only in their stack share one.
    pub build: &'static str,
    /// Decoder layers.
    pub num_layers: u32,
    /// Layers per AttnRes block.
    pub attn_res_block_size: u32,
    /// 0-based MLA layers; the others are KDA.
    pub mla_layers: &'static [u32],
    /// Hidden size.
    pub hidden: u32,
    /// KDA heads, and MLA heads.
    pub heads: u32,
    /// Key and value width of a head.
    pub head_dim: u32,
    /// Routed experts.
    pub experts: u32,
    /// Experts a token picks.
    pub top_k: u32,
    /// Width that the routed experts work in.
    pub latent: u32,
    /// Intermediate width of a routed expert.
    pub moe_intermediate: u32,
    /// Intermediate width of the fused shared experts.
    pub shared_intermediate: u32,
    /// Workgroups of the grid that the build is planned for: one per compute unit on the real machine.
    pub grid: u32,
}

const K3_MLA: &[u32] = &[3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63, 67, 71, 75, 79, 83, 87, 91, 92];

/// Kimi-K3.
pub const K3: Geometry = Geometry {
    name: "k3",
    build: "k3",
    num_layers: 93,
    attn_res_block_size: 12,
    mla_layers: K3_MLA,
    hidden: 7168,
    heads: 96,
    head_dim: 128,
    experts: 896,
    top_k: 16,
    latent: 3584,
    moe_intermediate: 3072,
    shared_intermediate: 6144,
    grid: 256,
};

/// The smallest model that has every feature of Kimi-K3.
pub const NANO: Geometry = Geometry {
    name: "nano",
    build: "nano",
    num_layers: 6,
    attn_res_block_size: 4,
    mla_layers: &[3, 5],
    hidden: 256,
    heads: 4,
    head_dim: 128,
    experts: 32,
    top_k: 4,
    latent: 256,
    moe_intermediate: 256,
    shared_intermediate: 512,
    grid: 8,
};

/// Nano with long runs: nine consecutive KDA layers, block writes inside.
pub const NANO_DEEP: Geometry = Geometry { name: "nano-deep", num_layers: 14, mla_layers: &[3, 13], ..NANO };

/// Every geometry.
pub const ALL: &[&Geometry] = &[&K3, &NANO, &NANO_DEEP];

/// Why a geometry cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GeometryError {
    /// No geometry of that name.
    #[error("unknown geometry `{name}` (known: {known})")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The rank count does not fit; every reason.
    #[error("geometry `{name}` cannot be split over {ranks} ranks: {}", reasons.join("; "))]
    Ranks {
        /// Geometry.
        name: &'static str,
        /// Ranks asked for.
        ranks: u32,
        /// Every reason.
        reasons: Vec<String>,
    },
}

impl GeometryError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Unknown { known, .. } => format!("choose one of {known}"),
            Self::Ranks { .. } => {
                "choose a rank count that divides the heads, experts and widths (k3: 8, nano: 1 or 2)".into()
            }
        }
    }
}

impl LayerKind {
    /// What the kernels run of a layer that has experts and a block before it.
    pub const fn of(is_kda: bool, writes_block: bool) -> Option<Self> {
        match (is_kda, writes_block) {
            (true, _) => Some(Self::Whole),
            (false, false) => Some(Self::Ffn),
            (false, true) => None,
        }
    }
}

impl Geometry {
    /// The geometry of that name.
    pub fn by_name(name: &str) -> Result<&'static Self, GeometryError> {
        ALL.iter().copied().find(|g| g.name == name).ok_or_else(|| GeometryError::Unknown {
            name: name.into(),
            known: ALL.iter().map(|g| g.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Attention of a layer.
    pub fn attention(&self, layer: Layer) -> Attention {
        if self.mla_layers.contains(&u32::from(layer.0)) {
            Attention::Mla
        } else {
            Attention::Kda
        }
    }

    /// Whether the layer writes an AttnRes block.
    pub const fn is_block_write(&self, layer: Layer) -> bool {
        (layer.0 as u32).is_multiple_of(self.attn_res_block_size)
    }

    /// Blocks in the bank before the layer.
    pub const fn prev_valid_blocks(&self, layer: Layer) -> u32 {
        (layer.0 as u32).div_ceil(self.attn_res_block_size)
    }

    /// Blocks of the bank.
    pub const fn num_blocks(&self) -> u32 {
        self.num_layers.div_ceil(self.attn_res_block_size)
    }

    /// What the kernels run of a layer, or `None`: layer 0 (dense), or an MLA layer that writes a block.
    pub fn layer_kind(&self, layer: Layer) -> Option<LayerKind> {
        match layer.0 {
            0 => None,
            _ => LayerKind::of(self.attention(layer) == Attention::Kda, self.is_block_write(layer)),
        }
    }

    /// One rank's share, if the split is possible; every reason otherwise.
    pub fn shard(&self, ranks: u32) -> Result<Shard, GeometryError> {
        let mut reasons = Vec::new();
        let mut divides = |what: &str, value: u32, by: u32| {
            if by == 0 || !value.is_multiple_of(by) {
                reasons.push(format!("{what} {value} is not a multiple of {by}"));
            }
        };
        divides("heads", self.heads, ranks);
        divides("hidden", self.hidden, TILE * ranks);
        divides("hidden", self.hidden, SLICE);
        divides("hidden", self.hidden, WAVES * BF16_STEP);
        divides("experts", self.experts, TILE * ranks);
        divides("latent", self.latent, TILE * ranks);
        divides("latent", self.latent, WAVES * BF16_STEP);
        divides("routed intermediate", self.moe_intermediate, FP4_STEP * ranks);
        divides("shared intermediate", self.shared_intermediate, WAVES * BF16_STEP * ranks);
        divides("heads x head dim", self.heads * self.head_dim, WAVES * BF16_STEP * ranks);
        if ranks == 0 || ranks > MAX_RANKS {
            reasons.push(format!("{ranks} ranks (1 to {MAX_RANKS})"));
        }
        if self.top_k > MAX_TOP_K || self.num_blocks() > MAX_BLOCKS {
            reasons.push(format!(
                "top-k {} or {} blocks exceed {MAX_TOP_K} and {MAX_BLOCKS}",
                self.top_k,
                self.num_blocks()
            ));
        }
        if !reasons.is_empty() {
            return Err(GeometryError::Ranks { name: self.name, ranks, reasons });
        }
        Ok(Shard { geometry: self.clone(), ranks })
    }
}

/// One rank's dimensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The whole model.
    pub geometry: Geometry,
    /// Tensor-parallel ranks.
    pub ranks: u32,
}

impl Shard {
    /// Name of the code object: the build and the ranks, since a rank's shapes are compiled in.
    pub fn code_object(&self) -> String {
        format!("layers_{}_tp{}", self.geometry.build, self.ranks)
    }

    /// KDA (and MLA) heads of this rank.
    pub const fn heads(&self) -> u32 {
        self.geometry.heads / self.ranks
    }

    /// Columns of q, k, v or g on this rank.
    pub const fn proj(&self) -> u32 {
        self.heads() * self.geometry.head_dim
    }

    /// Rows of the fused input projection, padded to tiles.
    pub const fn in_proj_rows(&self) -> u32 {
        (4 * self.proj() + self.geometry.head_dim + self.heads()).next_multiple_of(TILE)
    }

    /// Experts whose logits this rank computes.
    pub const fn router_rows(&self) -> u32 {
        self.geometry.experts / self.ranks
    }

    /// Latent columns that this rank computes.
    pub const fn latent_rows(&self) -> u32 {
        self.geometry.latent / self.ranks
    }

    /// Hidden columns that this rank's up projection owns.
    pub const fn up_rows(&self) -> u32 {
        self.geometry.hidden / self.ranks
    }

    /// Intermediate width of a routed expert on this rank.
    pub const fn inter(&self) -> u32 {
        self.geometry.moe_intermediate / self.ranks
    }

    /// Intermediate width of the shared experts on this rank.
    pub const fn shared(&self) -> u32 {
        self.geometry.shared_intermediate / self.ranks
    }

    /// Column slices of a seam.
    pub const fn slices(&self) -> u32 {
        self.geometry.hidden / SLICE
    }

    /// Column slices of the latent norm.
    pub const fn latent_slices(&self) -> u32 {
        self.geometry.latent / SLICE
    }

    /// Value-row chunks of a head.
    pub const fn chunks(&self) -> u32 {
        self.geometry.head_dim / KDA_CHUNK
    }

    /// MX groups of an expert's intermediate on this rank.
    pub const fn groups(&self) -> u32 {
        self.inter() / MX_GROUP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_shapes_come_out() {
        let shard = K3.shard(8).map_err(|e| e.to_string());
        let shard = shard.as_ref();
        assert_eq!(shard.map(Shard::in_proj_rows), Ok(6288));
        assert_eq!(shard.map(|s| (s.heads(), s.proj(), s.router_rows(), s.latent_rows())), Ok((12, 1536, 112, 448)));
        assert_eq!(shard.map(|s| (s.up_rows(), s.inter(), s.shared(), s.groups())), Ok((896, 384, 768, 12)));
        let kinds: Vec<_> = (0..93).map(|i| K3.layer_kind(Layer(i))).collect();
        assert_eq!(kinds.iter().filter(|k| **k == Some(LayerKind::Whole)).count(), 68);
        assert_eq!(kinds.iter().filter(|k| **k == Some(LayerKind::Ffn)).count(), 24);
        assert_eq!((K3.prev_valid_blocks(Layer(12)), K3.prev_valid_blocks(Layer(13)), K3.num_blocks()), (1, 2, 8));
    }

    #[test]
    fn a_split_that_does_not_divide_lists_every_reason() {
        let error = NANO.shard(3).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("heads 4 is not a multiple of 3"), "{error}");
        assert!(error.contains("experts 32 is not a multiple of 48"), "{error}");
        assert!(NANO.shard(2).is_ok() && NANO.shard(1).is_ok() && NANO.shard(4).is_err());
    }

    #[test]
    fn an_unknown_name_says_what_there_is() {
        let error = Geometry::by_name("k4").err().map(|e| e.to_string());
        assert_eq!(error.as_deref(), Some("unknown geometry `k4` (known: k3, nano, nano-deep)"));
    }
}
