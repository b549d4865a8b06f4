//! `kimi-k3-specdec check`: everything that can be said of a deployment before it starts, in one value.

use serde::Serialize;

use super::checks::{every_platform_reason, every_step_reason, unsupported};
use super::decode::{DecodeBackend, DecodeConfig, DecodeDevice};
use super::deployment::Deployment;
use super::nearest::{nearest_settings, Settings};
use super::refusal::{ConfigError, Refusal};
use super::target::Target;
use super::text::layer_kinds;
use super::warnings::{stock_steps, warnings};
use crate::abi::{LayerKind, MAX_ROWS};
use crate::buffers::RankBuffers;
use crate::ids::Layer;
use crate::plan::runs_of;

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Examination {
    /// Whether the server would start with the specialised decode.
    pub served: bool,
    /// What the deployment was compared with: model and GPU, or the emulator.
    pub target: String,
    /// Every reason of the documented checks.
    pub refusals: Vec<Reason>,
    /// What would be refused next, once those are mended.
    pub next: Vec<Reason>,
    /// The nearest served settings, best first, where the steps do not fit.
    pub nearest: Vec<Settings>,
    /// What is served, but not as one might think.
    pub warnings: Vec<String>,
    /// The settings, if the deployment speculates.
    pub decode_config: Option<DecodeConfig>,
    /// Row counts that launches serve.
    pub widths: Vec<u32>,
    /// What the kernels run.
    pub layers: Layers,
    /// Which steps vLLM's own decode runs, and why.
    pub stock_steps: Vec<String>,
    /// What our buffers take of a rank's memory; `None`: no code object serves the deployment.
    pub memory: Option<Memory>,
}

/// A refusal and what to change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// As vLLM would print it.
    pub reason: String,
    /// What to change.
    pub change: String,
}

/// Layers by what runs them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layers {
    /// Decoder layers of the model.
    pub num_layers: u32,
    /// KDA layers, whole.
    pub whole: u32,
    /// MLA layers, the half behind the attention; vLLM runs the attention.
    pub ffn: u32,
    /// Layers that vLLM runs.
    pub stock: Vec<u32>,
    /// Launches of a step and rank; a drafter that reads a layer's output inside a run adds one each.
    pub launches: u32,
}

/// Bytes of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Name of the code object.
    pub code_object: String,
    /// Buffers.
    pub buffers: RankBuffers,
    /// Their sum.
    pub total_bytes: u64,
}

impl From<&Refusal> for Reason {
    fn from(refusal: &Refusal) -> Self {
        Self { reason: refusal.to_string(), change: refusal.hint() }
    }
}

/// Examines a deployment as if it asked for the specialised decode. An error is a switch that vLLM would refuse first.
pub fn examine(deployment: &Deployment) -> Result<Examination, ConfigError> {
    let backend = deployment.decode_backend()?;
    let target = deployment.target()?;
    let refusals = unsupported(deployment, &target);
    let next = next_reasons(deployment, &target, &refusals);
    let config = DecodeConfig::of(deployment);
    let steps_fit =
        config.is_some_and(|config| config.q <= MAX_ROWS) && every_step_reason(deployment, &target).is_empty();
    Ok(Examination {
        served: refusals.is_empty() && backend == DecodeBackend::Specialized,
        target: described(deployment.decode_device()?, &target),
        next: next.iter().map(Reason::from).collect(),
        nearest: if steps_fit { Vec::new() } else { nearest_settings(deployment, &target) },
        warnings: warnings(deployment, &target)?,
        decode_config: config,
        widths: config.map(|config| config.widths()).unwrap_or_default(),
        layers: layers(deployment),
        stock_steps: stock_steps(deployment),
        memory: memory(deployment, &target),
        refusals: refusals.iter().map(Reason::from).collect(),
    })
}

fn described(device: DecodeDevice, target: &Target) -> String {
    match (device, target.gpu) {
        (DecodeDevice::Hip, Some(gpu)) => format!("{} on {} ({})", target.model, gpu.product, gpu.gfx),
        _ => format!("{} in the emulator", target.model),
    }
}

/// The documented checks stop at the first reason about steps and about the platform; these come behind. Without a
/// usable draft count, a reason counts if it stands at the mildest of them.
fn next_reasons(deployment: &Deployment, target: &Target, refusals: &[Refusal]) -> Vec<Refusal> {
    let mut steps = every_step_reason(deployment, target);
    if deployment.speculative_tokens().is_none_or(|drafts| drafts >= MAX_ROWS) {
        let at = |drafts| Settings::of(deployment).with_drafts(drafts).apply(deployment);
        let kind = std::mem::discriminant::<Refusal>;
        let mildest: Vec<_> = every_step_reason(&at(1), target).iter().map(kind).collect();
        steps = every_step_reason(&at(3), target);
        steps.retain(|reason| mildest.contains(&kind(reason)));
    }
    steps.extend(every_platform_reason(deployment, target));
    steps.retain(|reason| !refusals.contains(reason));
    steps
}

fn layers(deployment: &Deployment) -> Layers {
    let text = &deployment.model_config.hf_text_config;
    let kinds = layer_kinds(text);
    let count = |wanted: LayerKind| kinds.values().filter(|kind| **kind == wanted).count() as u32;
    let num_layers = text.num_hidden_layers.unwrap_or(0);
    Layers {
        num_layers: num_layers.into(),
        whole: count(LayerKind::Whole),
        ffn: count(LayerKind::Ffn),
        stock: (0..num_layers).filter(|layer| !kinds.contains_key(&Layer(*layer))).map(u32::from).collect(),
        launches: runs_of(kinds).len() as u32,
    }
}

fn memory(deployment: &Deployment, target: &Target) -> Option<Memory> {
    let ranks = deployment.parallel_config.tensor_parallel_size.get();
    let fits = target.tensor_parallel_sizes.contains(&ranks)
        && target.shapes() == deployment.model_config.hf_text_config.shapes();
    let shard = target.geometry.shard(ranks).ok().filter(|_| fits)?;
    let buffers = RankBuffers::new(&shard);
    Some(Memory { code_object: shard.code_object(), total_bytes: buffers.total(), buffers })
}
