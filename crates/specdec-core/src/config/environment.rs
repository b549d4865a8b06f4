//! What surrounds vLLM: its environment variables and the GPUs.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

/// Environment variables, by their names; a switch is `true` or `false`, or the text that the variable holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "vLLM's switches, each its own")]
pub struct Environment {
    /// AITER, the master switch.
    #[serde(rename = "VLLM_ROCM_USE_AITER", deserialize_with = "switch")]
    pub use_aiter: bool,
    /// AITER's fused experts.
    #[serde(rename = "VLLM_ROCM_USE_AITER_MOE", deserialize_with = "switch")]
    pub use_aiter_moe: bool,
    /// AITER's MLA attention.
    #[serde(rename = "VLLM_ROCM_USE_AITER_MLA", deserialize_with = "switch")]
    pub use_aiter_mla: bool,
    /// AITER's MXFP4 batched matrix products.
    #[serde(rename = "VLLM_ROCM_USE_AITER_FP4BMM", deserialize_with = "switch")]
    pub use_aiter_fp4bmm: bool,
    /// Results that do not depend on the batch.
    #[serde(rename = "VLLM_BATCH_INVARIANT", deserialize_with = "switch")]
    pub batch_invariant: bool,
    /// MLA layers as ordinary attention.
    #[serde(rename = "VLLM_MLA_DISABLE", deserialize_with = "switch")]
    pub mla_disable: bool,
    /// Form of the experts' first product.
    #[serde(rename = "VLLM_ROCM_USE_AITER_MOE_SITUV2")]
    pub situ_v2: SituV2,
    /// A variable of older recipes that vLLM 0.33 does not read; `null`: not set.
    #[serde(rename = "AITER_SITUV2_A8W4")]
    pub aiter_situv2_a8w4: Option<String>,
    /// Plug-ins that vLLM may load, by entry point; `null`: all.
    #[serde(rename = "VLLM_PLUGINS")]
    pub plugins: Option<String>,
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            use_aiter: false,
            use_aiter_moe: true,
            use_aiter_mla: true,
            use_aiter_fp4bmm: false,
            batch_invariant: false,
            mla_disable: false,
            situ_v2: SituV2::Auto,
            aiter_situv2_a8w4: None,
            plugins: None,
        }
    }
}

/// How the experts' first product is quantised, by vLLM's names: activations' bits, weights' bits. As in vLLM, case
/// does not matter, 1 is a4w4 and 0 is a16w4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", try_from = "String")]
pub enum SituV2 {
    /// a4w4 on gfx950.
    #[default]
    Auto,
    /// What our kernels read.
    A4w4,
    /// Gate and up rows interleaved.
    A8w4,
    /// Activations not quantised.
    A16w4,
}

impl TryFrom<String> for SituV2 {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.to_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "a4w4" | "1" => Ok(Self::A4w4),
            "a8w4" => Ok(Self::A8w4),
            "a16w4" | "0" => Ok(Self::A16w4),
            _ => Err(format!("invalid value: `{text}`, expected auto, a4w4, a8w4, a16w4, 0 or 1")),
        }
    }
}

impl SituV2 {
    /// vLLM's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::A4w4 => "a4w4",
            Self::A8w4 => "a8w4",
            Self::A16w4 => "a16w4",
        }
    }
}

/// The GPUs of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Platform {
    /// Kind of platform, by vLLM's name: `rocm`, `cuda`, `cpu`, ...
    pub kind: String,
    /// Target of the GPU's code; `null`: none or not known.
    #[serde(default)]
    pub gfx: Option<String>,
    /// Compute units that the process sees of one GPU; `null`: not known.
    #[serde(default)]
    pub compute_units: Option<u32>,
}

/// A switch as vLLM reads one: `1` and `true` are on, any other text is off.
fn switch<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected true, false, 0, 1 or the text of an environment variable")]
    enum Given {
        Switch(bool),
        Number(u8),
        Text(String),
    }
    match Given::deserialize(deserializer)? {
        Given::Switch(on) => Ok(on),
        Given::Number(number @ 0..=1) => Ok(number == 1),
        Given::Number(number) => Err(serde::de::Error::custom(format!("invalid value: {number}, expected 0 or 1"))),
        Given::Text(text) => Ok(["1", "true"].contains(&text.to_lowercase().as_str())),
    }
}
