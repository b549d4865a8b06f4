//! What launches are bound to, in numbers that can be compared.

use std::fmt;

use serde::Serialize;

/// The how-manieth binding of the KV caches, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct KvGeneration(pub u32);

impl fmt::Display for KvGeneration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KV binding {}", self.0)
    }
}

/// Addresses, strides and sizes in 64 bits: equal as long as nothing has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// The fingerprint of numbers in order. One number that changes always changes it: each step is a bijection.
    pub fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        let fold = |hash: u64, number: u64| {
            let mixed = (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ (mixed >> 29)
        };
        Self(numbers.into_iter().fold(0x243f_6a88_85a3_08d3, fold))
    }
}

/// Everything that a captured graph has baked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Pointers {
    /// KV and state caches, which vLLM may allocate again.
    pub kv: Fingerprint,
    /// Weights, metadata buffers, scratch and peers, which must stay where they are.
    pub fixed: Fingerprint,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn one_moved_pointer_always_shows(
            addresses in prop::collection::vec(any::<u64>(), 1..40), at: prop::sample::Index, moved: u64,
        ) {
            let mut others = addresses.clone();
            others[at.index(addresses.len())] = moved;
            let equal = Fingerprint::of(addresses.iter().copied()) == Fingerprint::of(others.iter().copied());
            prop_assert_eq!(equal, addresses == others);
        }
    }
}
