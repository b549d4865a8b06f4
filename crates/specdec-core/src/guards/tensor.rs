//! A tensor as torch describes it: where it is, its shape, strides and type. No values.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A type of elements, by torch's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[allow(missing_docs, reason = "each variant is torch's name")]
pub enum Dtype {
    Bfloat16,
    Float32,
    Int32,
    Uint8,
    /// Two E2M1 values a byte.
    Float4E2m1fnX2,
    /// One E8M0 scale a byte.
    Float8E8m0fnu,
    Float8E4m3fn,
    /// A type that no kernel reads.
    Other(String),
}

const NAMES: [(&str, Dtype); 7] = [
    ("bfloat16", Dtype::Bfloat16),
    ("float32", Dtype::Float32),
    ("int32", Dtype::Int32),
    ("uint8", Dtype::Uint8),
    ("float4_e2m1fn_x2", Dtype::Float4E2m1fnX2),
    ("float8_e8m0fnu", Dtype::Float8E8m0fnu),
    ("float8_e4m3fn", Dtype::Float8E4m3fn),
];

impl From<String> for Dtype {
    fn from(name: String) -> Self {
        let short = name.strip_prefix("torch.").unwrap_or(&name);
        NAMES.into_iter().find(|(known, _)| *known == short).map_or_else(|| Self::Other(short.into()), |found| found.1)
    }
}

impl From<Dtype> for String {
    fn from(dtype: Dtype) -> Self {
        dtype.name().into()
    }
}

impl Dtype {
    /// Torch's name, without `torch.`.
    pub fn name(&self) -> &str {
        match self {
            Self::Other(name) => name,
            known => NAMES.iter().find(|(_, dtype)| dtype == known).map_or("", |(name, _)| name),
        }
    }

    /// Bytes of an element; of a type that no kernel reads, none.
    pub const fn bytes(&self) -> u64 {
        match self {
            Self::Bfloat16 => 2,
            Self::Float32 | Self::Int32 => 4,
            Self::Uint8 | Self::Float4E2m1fnX2 | Self::Float8E8m0fnu | Self::Float8E4m3fn => 1,
            Self::Other(_) => 0,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "torch.{}", self.name())
    }
}

/// Sizes by dimension; prints as Python prints a tuple.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(pub Vec<u64>);

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.iter().map(u64::to_string).collect();
        write!(f, "({}{})", sizes.join(", "), if sizes.len() == 1 { "," } else { "" })
    }
}

/// What torch says of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorFacts {
    /// Address of the first element, in bytes; 0: no memory.
    pub address: u64,
    /// Sizes by dimension.
    pub shape: Shape,
    /// Elements from one index to the next, by dimension.
    pub strides: Vec<u64>,
    /// Type of the elements.
    pub dtype: Dtype,
}

impl TensorFacts {
    /// Number of elements; a product beyond `u64` counts as the largest.
    pub fn elements(&self) -> u64 {
        self.shape.0.iter().fold(1, |product, size| product.saturating_mul(*size))
    }

    /// Whether the elements lie one behind the other, as torch means it: a dimension of one element may have any
    /// stride.
    pub fn is_contiguous(&self) -> bool {
        self.elements() == 0 || is_dense(&self.shape.0, &self.strides)
    }

    /// Size of a dimension; of one that is not there, 0.
    pub fn size(&self, dimension: usize) -> u64 {
        self.shape.0.get(dimension).copied().unwrap_or(0)
    }

    /// Stride of a dimension; of one that is not there, 0.
    pub fn stride(&self, dimension: usize) -> u64 {
        self.strides.get(dimension).copied().unwrap_or(0)
    }
}

/// Whether dimensions of these sizes and strides leave no gap and do not overlap, the last one innermost.
pub fn is_dense(shape: &[u64], strides: &[u64]) -> bool {
    let mut next = 1_u64;
    shape.len() == strides.len()
        && shape.iter().zip(strides).rev().all(|(&size, &stride)| {
            let dense = size == 1 || stride == next;
            next = next.saturating_mul(size);
            dense
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dimension_of_one_may_have_any_stride() {
        assert!(is_dense(&[1, 7, 1, 3], &[5, 3, 9, 1]) && is_dense(&[], &[]));
        assert!(!is_dense(&[2, 3], &[4, 1]) && !is_dense(&[2, 3], &[1, 2]) && !is_dense(&[2, 3], &[3]));
    }

    #[test]
    fn types_keep_their_names() {
        for name in ["bfloat16", "float4_e2m1fn_x2", "complex64"] {
            assert_eq!(Dtype::from(format!("torch.{name}")).to_string(), format!("torch.{name}"));
        }
    }
}
