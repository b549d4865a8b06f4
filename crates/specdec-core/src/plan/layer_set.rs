//! A set of layers, small enough to pass along with every step.

use serde::Serialize;

use crate::ids::Layer;

const WORD_BITS: u8 = 64;

/// Layers, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct LayerSet([u64; 4]);

impl LayerSet {
    /// No layer.
    pub const NONE: Self = Self([0; 4]);

    /// The set with one more layer.
    #[must_use]
    pub const fn with(mut self, layer: Layer) -> Self {
        self.0[(layer.0 / WORD_BITS) as usize] |= 1 << (layer.0 % WORD_BITS);
        self
    }

    /// Whether the layer is in the set.
    pub const fn contains(self, layer: Layer) -> bool {
        self.0[(layer.0 / WORD_BITS) as usize] >> (layer.0 % WORD_BITS) & 1 == 1
    }

    /// Whether every layer of this set is in `other`.
    pub fn is_subset_of(self, other: Self) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| own & !other == 0)
    }
}

impl FromIterator<Layer> for LayerSet {
    fn from_iter<I: IntoIterator<Item = Layer>>(layers: I) -> Self {
        layers.into_iter().fold(Self::NONE, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(own: BTreeSet<u8>, other: BTreeSet<u8>) {
            let set = |layers: &BTreeSet<u8>| layers.iter().copied().map(Layer).collect::<LayerSet>();
            for layer in 0..=u8::MAX {
                prop_assert_eq!(set(&own).contains(Layer(layer)), own.contains(&layer));
            }
            prop_assert_eq!(set(&own).is_subset_of(set(&other)), own.is_subset(&other));
            prop_assert!(set(&own).is_subset_of(set(&own)) && LayerSet::NONE.is_subset_of(set(&own)));
        }
    }
}
