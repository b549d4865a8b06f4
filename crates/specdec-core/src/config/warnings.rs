//! What is served, but not as one might think (spec/field.md), and which steps vLLM's own decode runs.

use super::checks::{m1_reasons, piecewise_graphs_only};
use super::decode::{DecodeBackend, DecodeDevice, BACKEND_KEY, DEVICE_KEY, SPECIALIZED};
use super::deployment::{CudaGraphMode, Deployment};
use super::json::nearest;
use super::refusal::{joined, ConfigError};
use super::target::Target;

/// The plug-in's entry point, as `VLLM_PLUGINS` names it.
pub const PLUGIN: &str = "kimi_k3_specdec";
/// Keys of `additional_config` that vLLM or this package reads for Kimi-K3.
const KNOWN_KEYS: [&str; 4] = [BACKEND_KEY, DEVICE_KEY, "kda_prefill_backend", "kda_prefill_checkpoint"];
/// What vLLM logs for graphs that hold no specialised step (spec/runtime.md §1.5).
pub const PIECEWISE_ONLY: &str = "Kimi-K3 specialized decode: PIECEWISE-only CUDA graphs capture every decode step as \
                                  stock; use FULL decode graphs";

/// Said wherever the emulator is chosen.
const EMULATED: &str =
    "Kimi-K3 specialized decode: decode_device=emulator runs the kernels in the emulator on the CPU, for tests only";

/// The start-up line about MLA layers (spec/runtime.md §1.5): what M1 lacks, or that it is not shipped.
pub fn mla_line(deployment: &Deployment) -> String {
    let missing = m1_reasons(deployment);
    let why =
        if missing.is_empty() { "no M1 kernel is shipped".into() } else { format!("M1 needs {}", joined(&missing)) };
    format!("Kimi-K3 specialized decode: the MLA layers run vLLM's attention ops, then K2 ({why})")
}

/// How loud a line is, by the names of Python's logging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// To know.
    Info,
    /// To act upon.
    Warning,
}

impl Level {
    /// The name of the logging method.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
        }
    }
}

/// What a served deployment logs as its model is made, in order (spec/runtime.md §1.5).
pub fn start_up_lines(deployment: &Deployment) -> Vec<(Level, String)> {
    let mut lines = Vec::new();
    if deployment.decode_device() == Ok(DecodeDevice::Emulator) {
        lines.push((Level::Warning, EMULATED.into()));
    }
    if piecewise_graphs_only(deployment.compilation_config.cudagraph_mode) {
        lines.push((Level::Warning, PIECEWISE_ONLY.into()));
    }
    lines.push((Level::Info, mla_line(deployment)));
    lines
}

/// Every warning.
pub fn warnings(deployment: &Deployment, target: &Target) -> Result<Vec<String>, ConfigError> {
    let mut warnings = Vec::new();
    for key in deployment.additional_config.keys().filter(|key| !KNOWN_KEYS.contains(&key.as_str())) {
        if let Some(known) = nearest(key, KNOWN_KEYS.into_iter()) {
            warnings.push(format!("`$.additional_config.{key}` is ignored; did you mean `{known}`?"));
        }
    }
    if deployment.decode_backend()? == DecodeBackend::Auto {
        warnings.push(format!(
            "`$.additional_config.{BACKEND_KEY}` is not `{SPECIALIZED}`: vLLM runs its own decode; examined as if it were"
        ));
    }
    if deployment.decode_device()? == DecodeDevice::Emulator {
        warnings.push(EMULATED.into());
    } else if deployment.platform.is_none() {
        warnings.push(format!(
            "`$.platform` is not given: taken for {} whole {}",
            target.tensor_parallel_sizes.iter().max().unwrap_or(&1),
            target.gpu.map_or("GPUs", |gpu| gpu.product)
        ));
    }
    warnings.extend(of_batches(deployment));
    warnings.extend(of_environment(deployment));
    warnings.push(mla_line(deployment));
    Ok(warnings)
}

fn of_batches(deployment: &Deployment) -> Vec<String> {
    let mut warnings = Vec::new();
    let scheduler = &deployment.scheduler_config;
    if let (Some(drafts), Some(budget)) = (deployment.speculative_tokens(), scheduler.max_num_batched_tokens) {
        let rows = u64::from(scheduler.max_num_seqs.get()) * (u64::from(drafts) + 1);
        if u64::from(budget.get()) < rows {
            warnings.push(format!(
                "max_num_batched_tokens {budget} is below max_num_seqs x (k + 1) = {rows}: full steps do not fit the \
                 budget, and cut ones run vLLM's decode"
            ));
        }
    }
    let mode = deployment.compilation_config.cudagraph_mode;
    if piecewise_graphs_only(mode) {
        warnings.push(PIECEWISE_ONLY.into());
    }
    if mode == Some(CudaGraphMode::None) {
        warnings.push("cudagraph_mode NONE: specialised steps run, but every launch waits for the host".into());
    }
    warnings
}

fn of_environment(deployment: &Deployment) -> Vec<String> {
    let mut warnings = Vec::new();
    let environment = &deployment.environment;
    if let Some(value) = &environment.aiter_situv2_a8w4 {
        warnings.push(format!(
            "AITER_SITUV2_A8W4={value}: vLLM 0.33 ignores and overwrites it; VLLM_ROCM_USE_AITER_MOE_SITUV2 decides"
        ));
    }
    if let Some(plugins) = &environment.plugins {
        if !plugins.split(',').any(|name| name.trim() == PLUGIN) {
            warnings.push(format!(
                "VLLM_PLUGINS={plugins} leaves out `{PLUGIN}`: vLLM would not load this package, and run its own decode"
            ));
        }
    }
    warnings
}

/// Which steps vLLM's own decode runs, and why.
pub fn stock_steps(deployment: &Deployment) -> Vec<String> {
    if piecewise_graphs_only(deployment.compilation_config.cudagraph_mode) {
        return vec!["every decode step: the graphs are PIECEWISE".into()];
    }
    let drafts = deployment.speculative_tokens().map_or_else(|| "k".into(), |drafts| drafts.to_string());
    vec![
        "steps with a prefill, alone or mixed with decodes".into(),
        format!("steps in which a request has fewer than {drafts} drafts"),
        "steps of requests that do not speculate".into(),
    ]
}
