//! The facts of a deployment that decide whether it is served, in the sections and names of vLLM's configuration.
//!
//! A missing field is what vLLM defaults it to; a missing section that decides (model, parallel, cache, scheduler,
//! speculative) is an error of the parser.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::environment::{Environment, Platform};
use super::text::TextConfig;

const ONE: NonZeroU32 = NonZeroU32::MIN;

/// Everything that a refusal, a setting or a warning looks at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deployment {
    /// The model.
    pub model_config: ModelConfig,
    /// How it is spread over GPUs.
    pub parallel_config: ParallelConfig,
    /// KV cache and recurrent states.
    pub cache_config: CacheConfig,
    /// Batches.
    pub scheduler_config: SchedulerConfig,
    /// Speculative decoding; `null`: none.
    #[serde(deserialize_with = "Option::deserialize")]
    #[schemars(required)]
    pub speculative_config: Option<SpeculativeConfig>,
    /// Compilation and graphs.
    #[serde(default)]
    pub compilation_config: CompilationConfig,
    /// Attention backend.
    #[serde(default)]
    pub attention_config: AttentionConfig,
    /// Kernels that vLLM runs.
    #[serde(default)]
    pub kernel_config: KernelConfig,
    /// KV transfer; `null`: none.
    #[serde(default)]
    pub kv_transfer_config: Option<KvTransferConfig>,
    /// Weight offload.
    #[serde(default)]
    pub offload_config: OffloadConfig,
    /// Outputs besides tokens.
    #[serde(default)]
    pub aux_output_config: AuxOutputConfig,
    /// `LoRA` adapters; `null`: none.
    #[serde(default)]
    pub lora_config: Option<Value>,
    /// Online weight updates; `null`: none.
    #[serde(default)]
    pub weight_transfer_config: Option<Value>,
    /// Watermarked sampling; `null`: none.
    #[serde(default)]
    pub watermark_config: Option<Value>,
    /// vLLM's free-form options: `decode_backend`, `decode_device` and what other parts of vLLM read.
    #[serde(default)]
    pub additional_config: Map<String, Value>,
    /// Whether vLLM runs its V2 model runner, as it resolves that.
    #[serde(default = "yes")]
    pub use_v2_model_runner: bool,
    /// Environment variables, as vLLM reads them.
    #[serde(default)]
    pub environment: Environment,
    /// The GPUs; `null`: not known here, taken for the target's.
    #[serde(default)]
    pub platform: Option<Platform>,
}

const fn yes() -> bool {
    true
}

/// The model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelConfig {
    /// Type of activations and weights.
    #[serde(default)]
    pub dtype: Dtype,
    /// Sleep mode.
    #[serde(default)]
    pub enable_sleep_mode: bool,
    /// What the model is run for.
    #[serde(default)]
    pub runner_type: RunnerType,
    /// The text model's configuration, of the checkpoint's `config.json`.
    pub hf_text_config: TextConfig,
}

/// Parallelism.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "vLLM's switches, each its own")]
pub struct ParallelConfig {
    /// Tensor-parallel ranks.
    pub tensor_parallel_size: NonZeroU32,
    /// Pipeline stages.
    pub pipeline_parallel_size: NonZeroU32,
    /// Data-parallel replicas.
    pub data_parallel_size: NonZeroU32,
    /// Expert parallelism.
    pub enable_expert_parallel: bool,
    /// Expert load balancing.
    pub enable_eplb: bool,
    /// Ranks that share a sequence's KV in decode.
    pub decode_context_parallel_size: NonZeroU32,
    /// Ranks that share a sequence in prefill.
    pub prefill_context_parallel_size: NonZeroU32,
    /// Dual-batch overlap.
    pub enable_dbo: bool,
    /// Micro-batches; more than 1 is dual-batch overlap too.
    pub ubatch_size: u32,
    /// Tokens of KV that a context-parallel rank holds in a row.
    pub cp_kv_cache_interleave_size: NonZeroU32,
    /// Hosts.
    pub nnodes: NonZeroU32,
    /// Surviving ranks go on after a fault.
    pub enable_fault_tolerance: bool,
    /// Ranks sample parts of the batch; `null`: vLLM decides (off for Kimi-K3).
    pub enable_batch_sharded_sampling: Option<bool>,
}

impl Default for ParallelConfig {
    fn default() -> Self {
        Self {
            tensor_parallel_size: ONE,
            pipeline_parallel_size: ONE,
            data_parallel_size: ONE,
            enable_expert_parallel: false,
            enable_eplb: false,
            decode_context_parallel_size: ONE,
            prefill_context_parallel_size: ONE,
            enable_dbo: false,
            ubatch_size: 0,
            cp_kv_cache_interleave_size: ONE,
            nnodes: ONE,
            enable_fault_tolerance: false,
            enable_batch_sharded_sampling: None,
        }
    }
}

/// KV cache and recurrent states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CacheConfig {
    /// KV cache type, by vLLM's name.
    pub cache_dtype: String,
    /// Type of the convolution states; `auto`: the model's.
    pub mamba_cache_dtype: StateDtype,
    /// Type of the recurrent states; `auto`: float32.
    pub mamba_ssm_cache_dtype: StateDtype,
    /// Replayed states.
    pub use_replayssm: bool,
    /// Recovered states.
    pub use_kda_recoverssm: bool,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            cache_dtype: "auto".into(),
            mamba_cache_dtype: StateDtype::Auto,
            mamba_ssm_cache_dtype: StateDtype::Auto,
            use_replayssm: false,
            use_kda_recoverssm: false,
        }
    }
}

/// Batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SchedulerConfig {
    /// Requests of a step, at most.
    pub max_num_seqs: NonZeroU32,
    /// Token budget of a step; `null`: not given.
    #[serde(default)]
    pub max_num_batched_tokens: Option<NonZeroU32>,
}

/// Speculative decoding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpeculativeConfig {
    /// Drafts of a request and step.
    pub num_speculative_tokens: NonZeroU32,
    /// Fewer drafts verified where they are unlikely.
    #[serde(default)]
    pub enable_adaptive_verification: bool,
    /// Draft counts by batch size; `null`: one count.
    #[serde(default)]
    pub num_speculative_tokens_per_batch_size: Option<Value>,
}

impl SpeculativeConfig {
    /// That many drafts and nothing else.
    pub const fn with_drafts(num_speculative_tokens: NonZeroU32) -> Self {
        Self {
            num_speculative_tokens,
            enable_adaptive_verification: false,
            num_speculative_tokens_per_batch_size: None,
        }
    }
}

/// Compilation and graphs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CompilationConfig {
    /// Compilation mode; `null`: vLLM decides.
    pub mode: Option<CompilationMode>,
    /// Graphs; `null`: vLLM decides.
    pub cudagraph_mode: Option<CudaGraphMode>,
}

/// Attention backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AttentionConfig {
    /// By vLLM's name; `null`: vLLM decides.
    pub backend: Option<String>,
}

/// Kernels that vLLM runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KernelConfig {
    /// Of the routed experts, by vLLM's name.
    pub moe_backend: String,
}

impl Default for KernelConfig {
    fn default() -> Self {
        Self { moe_backend: "auto".into() }
    }
}

/// KV transfer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KvTransferConfig {
    /// Connector by name.
    pub kv_connector: Option<String>,
    /// Module of a connector that vLLM does not ship.
    pub kv_connector_module_path: Option<String>,
    /// `kv_producer`, `kv_consumer` or `kv_both`.
    pub kv_role: Option<String>,
}

/// Weight offload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OffloadConfig {
    /// Weights read over the bus.
    pub uva: UvaOffload,
    /// Weights fetched ahead.
    pub prefetch: PrefetchOffload,
}

/// Weights read over the bus.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UvaOffload {
    /// GiB a GPU.
    #[serde(deserialize_with = "not_negative")]
    pub cpu_offload_gb: f64,
}

/// Weights fetched ahead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PrefetchOffload {
    /// Layers of a group; 0: off.
    pub offload_group_size: u32,
}

/// Outputs besides tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AuxOutputConfig {
    /// Capture of the routed experts.
    pub enable_return_routed_experts: bool,
}

/// What a model is run for, by vLLM's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RunnerType {
    /// Generation.
    #[default]
    Generate,
    /// Embeddings and scores.
    Pooling,
    /// A drafter.
    Draft,
}

/// Type of activations and weights; `auto` is what the checkpoint says, bfloat16 for Kimi-K3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// The checkpoint's.
    #[default]
    Auto,
    /// bfloat16.
    Bfloat16,
    /// float16.
    #[serde(alias = "half")]
    Float16,
    /// float32.
    #[serde(alias = "float")]
    Float32,
}

/// Type of a recurrent or convolution state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StateDtype {
    /// vLLM decides.
    #[default]
    Auto,
    /// float32.
    Float32,
    /// float16.
    Float16,
    /// bfloat16.
    Bfloat16,
}

/// vLLM's compilation modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CompilationMode {
    /// Eager.
    None,
    /// `torch.compile` of the whole forward.
    StockTorchCompile,
    /// One Dynamo trace.
    DynamoTraceOnce,
    /// vLLM's piecewise compilation.
    VllmCompile,
}

/// vLLM's graph modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CudaGraphMode {
    /// No graphs.
    None,
    /// Graphs between attention layers.
    Piecewise,
    /// Whole graphs.
    Full,
    /// Whole graphs of decode steps only.
    FullDecodeOnly,
    /// Whole graphs of decode steps, pieces of others.
    FullAndPiecewise,
}

impl CudaGraphMode {
    /// vLLM's names.
    pub const NAMES: &'static str = "NONE, PIECEWISE, FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE";

    /// The mode of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        serde_json::from_value(Value::from(name)).ok()
    }
}

fn not_negative<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(deserializer)?;
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(serde::de::Error::custom(format!("invalid value: {value}, expected a finite number of at least 0")))
    }
}
