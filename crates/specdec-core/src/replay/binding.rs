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
    /// The fingerprint of numbers in order. One number that changes always changes it: it is a sum of bijections.
    pub fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        // A sum, not a chain, so that thousands of addresses can be mixed side by side before each replay.
        let add = |(sum, salt): (u64, u64), number: u64| {
            let spread = number.wrapping_add(salt).wrapping_mul(0xd6e8_feb8_6659_fd93);
            let mixed = (spread ^ (spread >> 32)).wrapping_mul(0xff51_afd7_ed55_8ccd);
            (sum.wrapping_add(mixed ^ (mixed >> 32)), salt.wrapping_add(STEP))
        };
        Self(numbers.into_iter().fold((0, STEP), add).0)
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
            // Two that change places show as well, and so does one that is gone.
            others.clone_from(&addresses);
            others.reverse();
            prop_assert_eq!(Fingerprint::of(others.iter().copied()) == Fingerprint::of(addresses.iter().copied()), others == addresses);
            prop_assert_ne!(Fingerprint::of(addresses[1..].iter().copied()), Fingerprint::of(addresses.iter().copied()));
        }
    }
}
