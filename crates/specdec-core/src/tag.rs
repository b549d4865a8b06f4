//! Tags: how a reader knows that an exchanged word belongs to this step and layer (spec: DESIGN "Tags").

use serde::{Deserialize, Serialize};

use crate::abi::{POISON_TAG, TAG_EPOCHS, TAG_LAYERS};
use crate::ids::Layer;

/// A step of the specialised decode, counted on the device; wraps at 2^32, in tags at 2^24.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Which half of a peer buffer this step's pairs live in.
    pub const fn parity(self) -> u32 {
        self.0 & 1
    }
}

/// `(epoch mod 2^24) * 256 + layer + 1`: never 0, so zeroed memory never matches, and never the poison, because a
/// model has fewer than 255 layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tag(pub u32);

impl Tag {
    /// What a failed rank publishes.
    pub const POISON: Self = Self(POISON_TAG);

    /// The tag of `layer` in step `epoch`.
    pub const fn new(epoch: Epoch, layer: Layer) -> Self {
        Self((epoch.0 % TAG_EPOCHS) * TAG_LAYERS + layer.0 as u32 + 1)
    }

    /// The layer, unless the tag is the poison or no tag at all.
    pub const fn layer(self) -> Option<Layer> {
        if self.0 == POISON_TAG || self.0.is_multiple_of(TAG_LAYERS) {
            return None;
        }
        Some(Layer((self.0 % TAG_LAYERS - 1) as u8))
    }

    /// The epoch modulo `TAG_EPOCHS`.
    pub const fn epoch(self) -> u32 {
        self.0 / TAG_LAYERS
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_tag_names_its_layer_and_is_neither_zero_nor_poison(epoch: u32, layer in 0u8..254) {
            let tag = Tag::new(Epoch(epoch), Layer(layer));
            prop_assert_eq!(tag.layer(), Some(Layer(layer)));
            prop_assert_eq!(tag.epoch(), epoch % TAG_EPOCHS);
            prop_assert!(tag.0 != 0 && tag != Tag::POISON);
        }

        #[test]
        fn neighbouring_epochs_use_different_halves_and_tags(epoch: u32, layer in 0u8..254) {
            let (now, then) = (Epoch(epoch), Epoch(epoch).next());
            prop_assert_ne!(now.parity(), then.parity());
            prop_assert_ne!(Tag::new(now, Layer(layer)), Tag::new(then, Layer(layer)));
        }
    }
}
