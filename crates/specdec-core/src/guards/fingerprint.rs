//! One word for everything that a captured launch has baked in, to compare before it is replayed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::abi::{LayerDescriptor, StateGroup};
use crate::encode::Encode;

/// FNV-1a of addresses, strides and numbers: equal when nothing moved, stable over processes and versions of Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BindingFingerprint(pub u64);

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

impl BindingFingerprint {
    /// Of layers, in the order given, and of their state groups.
    pub fn of(layers: &[LayerDescriptor], groups: &[StateGroup]) -> Self {
        let mut bytes = Vec::new();
        (layers.len() as u64).encode(&mut bytes);
        for layer in layers {
            layer.encode(&mut bytes);
        }
        for group in groups {
            group.encode(&mut bytes);
        }
        Self::of_bytes(&bytes)
    }

    /// Of plain words: addresses that no descriptor holds.
    pub fn of_words(words: &[u64]) -> Self {
        Self::of_bytes(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME)))
    }
}

impl fmt::Display for BindingFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
