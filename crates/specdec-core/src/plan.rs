//! Which layers a step launches together: runs of consecutive served layers (spec: DESIGN "Runs").

use std::ops::RangeInclusive;

use serde::Serialize;

use crate::abi::LayerKind;
use crate::geometry::Geometry;
use crate::ids::Layer;

/// One launch: consecutive served layers. Only its first layer can be the half of an MLA layer, because vLLM runs that
/// layer's attention in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Run {
    /// First layer.
    pub first: Layer,
    /// Last layer.
    pub last: Layer,
}

impl Run {
    /// Layers of the run.
    pub const fn num_layers(self) -> u32 {
        (self.last.0 - self.first.0) as u32 + 1
    }
}

/// The runs of a geometry's served layers inside `layers`, in order.
pub fn runs(geometry: &Geometry, layers: RangeInclusive<u8>) -> Vec<Run> {
    let layers = layers.map(Layer).filter(|layer| u32::from(layer.0) < geometry.num_layers);
    runs_of(layers.filter_map(|layer| geometry.layer_kind(layer).map(|kind| (layer, kind))))
}

/// The runs of served layers, given in order.
pub fn runs_of(layers: impl IntoIterator<Item = (Layer, LayerKind)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (layer, kind) in layers {
        match runs.last_mut() {
            Some(run) if kind == LayerKind::Whole && run.last.0 + 1 == layer.0 => run.last = layer,
            _ => runs.push(Run { first: layer, last: layer }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{K3, NANO, NANO_DEEP};

    fn pairs(geometry: &Geometry, layers: RangeInclusive<u8>) -> Vec<(u8, u8)> {
        runs(geometry, layers).iter().map(|run| (run.first.0, run.last.0)).collect()
    }

    #[test]
    fn a_run_starts_at_every_mla_half_and_behind_every_gap() {
        assert_eq!(pairs(&NANO, 0..=255), [(1, 2), (3, 4), (5, 5)]);
        assert_eq!(pairs(&NANO_DEEP, 0..=255), [(1, 2), (3, 12), (13, 13)]);
        assert_eq!(pairs(&NANO_DEEP, 5..=7), [(5, 7)]);
        let k3 = pairs(&K3, 0..=255);
        assert_eq!((k3.len(), k3[0], k3[1], k3[24]), (25, (1, 2), (3, 6), (92, 92)));
        assert_eq!(runs(&K3, 0..=255).iter().map(|run| run.num_layers()).sum::<u32>(), 92);
    }
}
