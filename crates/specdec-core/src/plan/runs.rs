//! Which layers a step launches together: runs of consecutive served layers (spec: DESIGN "Runs").

use std::ops::RangeInclusive;

use serde::Serialize;

use crate::abi::LayerKind;
use crate::geometry::Geometry;
use crate::ids::Layer;
use crate::plan::LayerSet;

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
    runs_ending_after(LayerSet::NONE, layers)
}

/// The runs of served layers, given in order, of which none goes on behind a layer whose output somebody else reads:
/// prefix and delta of a layer inside a run exist only while the launch rewrites them.
pub fn runs_ending_after(read: LayerSet, layers: impl IntoIterator<Item = (Layer, LayerKind)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (layer, kind) in layers {
        let goes_on = |run: &Run| {
            kind == LayerKind::Whole && run.last.0.checked_add(1) == Some(layer.0) && !read.contains(run.last)
        };
        match runs.last_mut() {
            Some(run) if goes_on(run) => run.last = layer,
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

    #[test]
    fn no_run_swallows_what_a_drafter_reads() {
        let kinds =
            |g: &'static Geometry| (0..g.num_layers as u8).filter_map(|i| Some((Layer(i), g.layer_kind(Layer(i))?)));
        let read: LayerSet = [2, 23, 47, 71, 89].map(Layer).into_iter().collect();
        let split = runs_ending_after(read, kinds(&K3));
        // 2 ends a run as it is; 23, 47 and 71 are halves that a run begins with; 89 is inside one.
        assert_eq!(split.len(), 29);
        assert!(split.iter().all(|run| (run.first.0..run.last.0).all(|layer| !read.contains(Layer(layer)))));
        assert!(split.contains(&Run { first: Layer(87), last: Layer(89) }));
        assert!(split.contains(&Run { first: Layer(90), last: Layer(90) }));
        assert!(split.contains(&Run { first: Layer(23), last: Layer(23) }));
    }
}
