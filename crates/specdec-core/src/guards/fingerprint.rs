//! One word for everything of a binding that a captured launch has baked in, to compare before it is replayed.

use crate::abi::{LayerDescriptor, StateGroup};
use crate::encode::Encode;
use crate::replay::Fingerprint;

/// Of layers, in the order given, and of their state groups: addresses, strides and numbers.
pub fn binding_fingerprint(layers: &[LayerDescriptor], groups: &[StateGroup]) -> Fingerprint {
    let mut bytes = Vec::new();
    for layer in layers {
        layer.encode(&mut bytes);
    }
    for group in groups {
        group.encode(&mut bytes);
    }
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    Fingerprint::of(std::iter::once(layers.len() as u64).chain(words))
}
