//! The step's state slots and accepted counts of one KDA cache group, as torch holds them (spec/numerics.md §8).

use thiserror::Error;

use super::reason::{is_placed, placement};
use super::tensor::{Dtype, Shape, TensorFacts};
use crate::abi::StateGroup;

/// Bytes of a slot index and of a count.
const WORD: u64 = 4;

/// A reason against a group's metadata.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum MetadataReason {
    #[error("{name}: no {tensor}")]
    Missing { name: String, tensor: &'static str },
    #[error("{name}: {tensor} {found}, kernels read torch.int32")]
    Type { name: String, tensor: &'static str, found: Dtype },
    #[error("{name}: {tensor} {found}, {needed} or more needed")]
    Size { name: String, tensor: &'static str, found: Shape, needed: Shape },
    #[error("{name}: {tensor} stride {found} a {dimension}, kernels need {needed}")]
    Stride { name: String, tensor: &'static str, dimension: &'static str, found: u64, needed: String },
    #[error("{name}: {tensor} {}", placement(*.address, WORD))]
    Placement { name: String, tensor: &'static str, address: u64 },
}

const INDICES: &str = "spec_state_indices_tensor";
const COUNTS: &str = "num_accepted_tokens";

/// What a launch of `requests` times `rows_per_request` rows reads of a group named `name`, or every reason why it
/// cannot. Rows may lie further apart than they are long: the indices may be a view of a block table.
pub fn state_group(
    name: &str,
    requests: u32,
    rows_per_request: u32,
    indices: Option<&TensorFacts>,
    counts: Option<&TensorFacts>,
) -> Result<StateGroup, Vec<MetadataReason>> {
    let (requests, columns) = (u64::from(requests), u64::from(rows_per_request));
    let mut reasons = Vec::new();
    let mut row_stride = columns;
    if let Some(indices) = there(name, INDICES, indices, &[requests, columns], &mut reasons) {
        // Of a tensor with one row torch says any stride; the others hold for steps of more requests too.
        if indices.shape.0[0] > 1 {
            row_stride = indices.stride(0);
        }
        if row_stride < columns || u32::try_from(row_stride).is_err() {
            let needed = format!("{columns} to {}", u32::MAX);
            reasons.push(stride(name, INDICES, "row", row_stride, needed));
        }
        if columns > 1 && indices.stride(1) != 1 {
            reasons.push(stride(name, INDICES, "column", indices.stride(1), "1".into()));
        }
    }
    if let Some(counts) = there(name, COUNTS, counts, &[requests], &mut reasons) {
        if counts.shape.0[0] > 1 && counts.stride(0) != 1 {
            reasons.push(stride(name, COUNTS, "request", counts.stride(0), "1".into()));
        }
    }
    let (Some(indices), Some(counts), Ok(row_stride), true) =
        (indices, counts, u32::try_from(row_stride), reasons.is_empty())
    else {
        return Err(reasons);
    };
    Ok(StateGroup { state_indices: indices.address, num_accepted: counts.address, row_stride, reserved: 0 })
}

fn stride(name: &str, tensor: &'static str, dimension: &'static str, found: u64, needed: String) -> MetadataReason {
    MetadataReason::Stride { name: name.into(), tensor, dimension, found, needed }
}

/// The tensor if it is there and large enough, whatever its type and place; reasons against it besides its strides.
fn there<'a>(
    name: &str,
    tensor: &'static str,
    found: Option<&'a TensorFacts>,
    needed: &[u64],
    reasons: &mut Vec<MetadataReason>,
) -> Option<&'a TensorFacts> {
    let name = || name.to_owned();
    let Some(found) = found else {
        reasons.push(MetadataReason::Missing { name: name(), tensor });
        return None;
    };
    if found.dtype != Dtype::Int32 {
        reasons.push(MetadataReason::Type { name: name(), tensor, found: found.dtype.clone() });
    }
    let sizes = &found.shape.0;
    if sizes.len() != needed.len() || sizes.iter().zip(needed).any(|(found, needed)| found < needed) {
        let (found, needed) = (found.shape.clone(), Shape(needed.to_vec()));
        reasons.push(MetadataReason::Size { name: name(), tensor, found, needed });
        return None;
    }
    if !is_placed(found.address, WORD) {
        reasons.push(MetadataReason::Placement { name: name(), tensor, address: found.address });
    }
    Some(found)
}
