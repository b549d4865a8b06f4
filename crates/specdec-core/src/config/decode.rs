//! The switch, and what it resolves to.

use serde::Serialize;
use serde_json::Value;

use super::checks::{m1_reasons, unsupported};
use super::deployment::Deployment;
use super::refusal::ConfigError;
use super::target::Target;
use crate::abi::MAX_ROWS;

/// vLLM's own decode.
pub const AUTO: &str = "auto";
/// Ours.
pub const SPECIALIZED: &str = "latency_specialized";
/// Key of the switch in `additional_config`.
pub const BACKEND_KEY: &str = "decode_backend";
/// Key of the device in `additional_config`.
pub const DEVICE_KEY: &str = "decode_device";

/// What runs decode steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeBackend {
    /// vLLM.
    Auto,
    /// The kernels of this package.
    Specialized,
}

/// Where the kernels run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DecodeDevice {
    /// On the GPUs.
    #[default]
    Hip,
    /// In the emulator, for tests.
    Emulator,
}

impl Deployment {
    /// The switch.
    pub fn decode_backend(&self) -> Result<DecodeBackend, ConfigError> {
        match self.additional_config.get(BACKEND_KEY) {
            None => Ok(DecodeBackend::Auto),
            Some(Value::String(text)) if text == AUTO => Ok(DecodeBackend::Auto),
            Some(Value::String(text)) if text == SPECIALIZED => Ok(DecodeBackend::Specialized),
            Some(other) => Err(ConfigError::UnknownBackend { found: python(other) }),
        }
    }

    /// The device of the kernels.
    pub fn decode_device(&self) -> Result<DecodeDevice, ConfigError> {
        match self.additional_config.get(DEVICE_KEY) {
            None => Ok(DecodeDevice::Hip),
            Some(Value::String(text)) if text == "hip" => Ok(DecodeDevice::Hip),
            Some(Value::String(text)) if text == "emulator" => Ok(DecodeDevice::Emulator),
            Some(other) => Err(ConfigError::UnknownDevice { found: python(other) }),
        }
    }

    /// What the deployment is compared with.
    pub fn target(&self) -> Result<Target, ConfigError> {
        Ok(match self.decode_device()? {
            DecodeDevice::Hip => Target::KIMI_K3,
            DecodeDevice::Emulator => Target::emulator(self.model_config.hf_text_config.shapes()),
        })
    }
}

/// A JSON value as Python prints it.
fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::String(text) => {
            let (quote, escaped) = if text.contains('\'') && !text.contains('"') {
                ('"', text.replace('\\', "\\\\"))
            } else {
                ('\'', text.replace('\\', "\\\\").replace('\'', "\\'"))
            };
            format!("{quote}{}{quote}", escaped.replace('\n', "\\n"))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(python).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let parts: Vec<String> =
                map.iter().map(|(k, v)| format!("{}: {}", python(&Value::String(k.clone())), python(v))).collect();
            format!("{{{}}}", parts.join(", "))
        }
        Value::Number(number) => number.to_string(),
    }
}

/// Settings of a served deployment (spec/runtime.md §1.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DecodeConfig {
    /// Rows that a request verifies: its last token and the drafts.
    pub q: u32,
    /// Whether the deployment meets what M1 asks for. No M1 kernel is shipped yet: MLA layers run vLLM's attention.
    pub m1: bool,
    /// Tokens of KV that a context-parallel rank holds in a row.
    pub interleave: u32,
    /// Requests of a step, at most.
    pub max_num_seqs: u32,
}

impl DecodeConfig {
    /// Row counts that launches serve: whole requests, at most `MAX_ROWS` rows.
    pub fn widths(&self) -> Vec<u32> {
        let most = self.max_num_seqs.saturating_mul(self.q).min(MAX_ROWS);
        (self.q..=most).step_by(self.q.max(1) as usize).collect()
    }

    /// The settings of a deployment that speculates, served or not.
    pub fn of(deployment: &Deployment) -> Option<Self> {
        Some(Self {
            q: deployment.speculative_tokens()?.saturating_add(1),
            m1: m1_reasons(deployment).is_empty(),
            interleave: deployment.parallel_config.cp_kv_cache_interleave_size.get(),
            max_num_seqs: deployment.scheduler_config.max_num_seqs.get(),
        })
    }
}

/// The deployment's settings, `None` for vLLM's decode; an error lists every reason.
pub fn specialized_decode_config(deployment: &Deployment) -> Result<Option<DecodeConfig>, ConfigError> {
    if deployment.decode_backend()? == DecodeBackend::Auto {
        return Ok(None);
    }
    let reasons = unsupported(deployment, &deployment.target()?);
    match DecodeConfig::of(deployment) {
        Some(config) if reasons.is_empty() => Ok(Some(config)),
        _ => Err(ConfigError::Unsupported { reasons }),
    }
}
