//! The `NT_AMDGPU_METADATA` note: kernels, their arguments and their register use, as `MessagePack`.

use serde::{Deserialize, Serialize};

use super::error::EmulatorError;

/// The note's top level.
#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    #[serde(rename = "amdhsa.kernels")]
    pub kernels: Vec<KernelMetadata>,
    #[serde(rename = "amdhsa.target")]
    pub target: String,
}

/// One kernel of the note.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct KernelMetadata {
    #[serde(rename = ".name")]
    pub name: String,
    #[serde(rename = ".symbol")]
    pub symbol: String,
    #[serde(rename = ".args", default)]
    pub arguments: Vec<Argument>,
    #[serde(rename = ".kernarg_segment_size")]
    pub kernarg_bytes: u32,
    #[serde(rename = ".max_flat_workgroup_size", default)]
    pub max_block: u32,
    #[serde(rename = ".vgpr_count", default)]
    pub vgprs: u32,
    #[serde(rename = ".agpr_count", default)]
    pub agprs: u32,
    #[serde(rename = ".sgpr_count", default)]
    pub sgprs: u32,
    #[serde(rename = ".vgpr_spill_count", default)]
    pub vgpr_spills: u32,
    #[serde(rename = ".sgpr_spill_count", default)]
    pub sgpr_spills: u32,
    #[serde(rename = ".uses_dynamic_stack", default)]
    pub has_dynamic_stack: bool,
}

/// One kernel argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Argument {
    /// Where it is in the kernarg segment.
    #[serde(rename(deserialize = ".offset"))]
    pub offset: u32,
    /// Its size.
    #[serde(rename(deserialize = ".size"))]
    pub bytes: u32,
    /// What it is, e.g. `global_buffer`, `by_value` or `hidden_block_count_x`.
    #[serde(rename(deserialize = ".value_kind"))]
    pub kind: String,
}

/// What hidden arguments are computed from.
#[derive(Clone, Copy, Debug)]
pub(super) struct HiddenValues {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub dynamic_lds_bytes: u32,
    /// High halves of the 64-bit windows through which flat instructions see LDS and scratch.
    pub shared_base: u32,
    pub private_base: u32,
}

impl Metadata {
    /// Parses the note's descriptor bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, EmulatorError> {
        rmp_serde::from_slice(bytes).map_err(|error| EmulatorError::BadMetadata { reason: error.to_string() })
    }
}

impl KernelMetadata {
    /// Bytes of the explicit arguments.
    pub fn explicit_bytes(&self) -> u32 {
        let explicit = self.arguments.iter().filter(|argument| !argument.is_hidden());
        explicit.map(|argument| argument.offset.saturating_add(argument.bytes)).max().unwrap_or(0)
    }

    /// Writes the hidden arguments into a whole kernarg segment.
    pub fn fill_hidden(&self, values: &HiddenValues, segment: &mut [u8]) -> Result<(), EmulatorError> {
        for argument in self.arguments.iter().filter(|argument| argument.is_hidden()) {
            let value = argument.hidden_value(values).ok_or_else(|| EmulatorError::UnsupportedKernel {
                symbol: self.name.clone(),
                what: format!("the hidden argument `{}`", argument.kind),
            })?;
            let (start, bytes) = (argument.offset as usize, (argument.bytes as usize).min(8));
            let field = segment.get_mut(start..start + bytes).ok_or_else(|| EmulatorError::BadMetadata {
                reason: format!("`{}` of `{}` lies outside the kernarg segment", argument.kind, self.name),
            })?;
            field.copy_from_slice(&value.to_le_bytes()[..bytes]);
        }
        Ok(())
    }
}

impl Argument {
    /// Whether the runtime fills it in, not the caller.
    pub fn is_hidden(&self) -> bool {
        self.kind.starts_with("hidden_")
    }

    fn hidden_value(&self, values: &HiddenValues) -> Option<u64> {
        let axis = match self.kind.as_bytes().last() {
            Some(b'y') => 1,
            Some(b'z') => 2,
            _ => 0,
        };
        let dimensions =
            (1..3).filter(|&axis| values.grid[axis] > 1 || values.block[axis] > 1).max().map_or(1, |axis| axis + 1);
        Some(match self.kind.as_str() {
            "hidden_block_count_x" | "hidden_block_count_y" | "hidden_block_count_z" => values.grid[axis] as u64,
            "hidden_group_size_x" | "hidden_group_size_y" | "hidden_group_size_z" => values.block[axis] as u64,
            "hidden_grid_dims" => dimensions as u64,
            "hidden_dynamic_lds_size" => values.dynamic_lds_bytes as u64,
            "hidden_shared_base" => values.shared_base as u64,
            "hidden_private_base" => values.private_base as u64,
            // Every workgroup is whole and every grid starts at 0, so remainders and offsets are 0. The pointers
            // are null: a kernel that follows one gets a located error.
            "hidden_remainder_x"
            | "hidden_remainder_y"
            | "hidden_remainder_z"
            | "hidden_global_offset_x"
            | "hidden_global_offset_y"
            | "hidden_global_offset_z"
            | "hidden_none"
            | "hidden_printf_buffer"
            | "hidden_hostcall_buffer"
            | "hidden_multigrid_sync_arg"
            | "hidden_heap_v1"
            | "hidden_default_queue"
            | "hidden_completion_action"
            | "hidden_queue_ptr" => 0,
            _ => return None,
        })
    }
}
