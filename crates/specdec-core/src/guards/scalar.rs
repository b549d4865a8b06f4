//! A value as a Python object holds it: perhaps a number, perhaps none, perhaps something else.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A value of vLLM's as Python prints it, so that messages show what Python shows; `None`: there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Scalar(pub Option<String>);

impl Scalar {
    /// The number, if it is a finite one.
    pub fn value(&self) -> Option<f64> {
        self.0.as_ref()?.parse().ok().filter(|value: &f64| value.is_finite())
    }

    /// The number, if it is an integer of 32 bits.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "compared with what it was cast from")]
    pub fn integer(&self) -> Option<u32> {
        let value = self.value()?;
        Some(value as u32).filter(|integer| f64::from(*integer) == value)
    }

    /// Whether it is this integer.
    pub fn is(&self, wanted: u32) -> bool {
        self.integer() == Some(wanted)
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("None"))
    }
}
