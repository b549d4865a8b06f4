//! What a deployment must be: Kimi-K3 on MI355X, or a model of ours in the emulator (spec: DESIGN "Targets").

use super::text::Shapes;
use crate::geometry::{Geometry, ALL, CONV_WIDTH, K3};

/// What a deployment is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The model's name in messages.
    pub model: &'static str,
    /// The model's dimensions.
    pub geometry: &'static Geometry,
    /// Tensor-parallel sizes that code objects exist for.
    pub tensor_parallel_sizes: &'static [u32],
    /// Decode-context-parallel sizes.
    pub dcp_sizes: &'static [u32],
    /// The GPU, or `None`: the emulator, which needs none.
    pub gpu: Option<Gpu>,
}

/// A GPU by what the kernels need of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gpu {
    /// vLLM's kind of platform.
    pub kind: &'static str,
    /// Target of the code objects.
    pub gfx: &'static str,
    /// Name on the box.
    pub product: &'static str,
    /// Compute units, one workgroup each.
    pub compute_units: u32,
}

impl Target {
    /// Kimi-K3 on eight MI355X: what `decode_backend` alone selects.
    pub const KIMI_K3: Self = Self {
        model: "Kimi-K3",
        geometry: &K3,
        tensor_parallel_sizes: &[8],
        dcp_sizes: &[1, 8],
        gpu: Some(Gpu { kind: "rocm", gfx: "gfx950", product: "MI355X", compute_units: K3.grid }),
    };

    /// The emulator with the geometry whose shapes are these; Kimi-K3 where none is, so that the refusal says what
    /// there is.
    pub fn emulator(shapes: Shapes) -> Self {
        let geometry = ALL.iter().find(|geometry| Self::shapes_of(geometry) == shapes).copied().unwrap_or(&K3);
        Self {
            model: if geometry == &K3 { Self::KIMI_K3.model } else { geometry.name },
            geometry,
            tensor_parallel_sizes: if geometry == &K3 { &[8] } else { &[1, 2] },
            dcp_sizes: &[1],
            gpu: None,
        }
    }

    /// Shapes of the model.
    pub fn shapes(&self) -> Shapes {
        Self::shapes_of(self.geometry)
    }

    fn shapes_of(geometry: &Geometry) -> Shapes {
        let Geometry { hidden, experts, heads, head_dim, .. } = geometry;
        Shapes([*hidden, *experts, *heads, *head_dim, CONV_WIDTH].map(Some))
    }
}
