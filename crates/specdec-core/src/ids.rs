//! Newtypes: what would otherwise be an integer that fits everywhere.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A tensor-parallel rank, `0..ranks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rank(pub u8);

/// A decoder layer, 0-based as in vLLM (`model.layers[i]`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Layer(pub u8);

/// Token rows of a step, `1..=MAX_ROWS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rows(pub u8);

/// A workgroup of the persistent grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cta(pub u16);

/// A device address in bytes; on the emulator it is the host's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceAddress(pub u64);

impl DeviceAddress {
    /// The null address: "not there" in an ABI struct.
    pub const NULL: Self = Self(0);

    /// The address `bytes` further on.
    #[must_use]
    pub const fn offset(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

macro_rules! display_number {
    ($($type:ident $word:literal),*) => {
        $(impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}"), self.0)
            }
        })*
    };
}

display_number!(Rank "rank", Layer "layer", Cta "CTA");

impl fmt::Display for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
