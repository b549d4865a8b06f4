//! Memory that consists of equal parts, so that an error names the one that it is about.

/// Equal parts of an allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// What one part is.
    pub what: String,
    /// Bytes of a part.
    pub bytes: u64,
    /// Number of the first part.
    pub first: u64,
}

impl Parts {
    /// The name of the part at an offset of the allocation `name`, and the offset there.
    pub(super) fn locate(&self, name: &str, offset: u64) -> (String, u64) {
        let bytes = self.bytes.max(1);
        (format!("{name}, {} {}", self.what, self.first + offset / bytes), offset % bytes)
    }
}
