//! Every reason not to serve a deployment: its message as users see it, and what to change.

use thiserror::Error;

use super::environment::SituV2;
use super::target::{Gpu, Target};
use super::text::Shapes;
use crate::abi::MAX_ROWS;

/// Requests of a step that a launch is planned for.
pub const MAX_SEQS: [u32; 4] = [1, 2, 4, 8];
/// KV cache types that are E4M3.
pub const FP8_KV: [&str; 2] = ["fp8", "fp8_e4m3"];
/// Rows of a request that M1c is made for.
pub const M1C_QLENS: [u32; 2] = [4, 8];

/// A reason. The variants stand in the documented order, which is the order of every list of them: first those of
/// spec/runtime.md §1.2, then our own (spec/field.md, spec/vllm.md).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
#[allow(missing_docs, reason = "each variant's message says what it is")]
pub enum Refusal {
    #[error("TP {found} ({} only)", one_of("TP", .served))]
    TensorParallel { found: u32, served: &'static [u32] },
    #[error("pipeline parallelism")]
    PipelineParallel,
    #[error("data parallelism")]
    DataParallel,
    #[error("expert parallelism")]
    ExpertParallel,
    #[error("EPLB")]
    Eplb,
    #[error("decode context parallelism other than {} (over the TP group)", one_of("", .served))]
    DecodeContextParallel { served: &'static [u32] },
    #[error("prefill context parallelism")]
    PrefillContextParallel,
    #[error("DBO (dual-batch overlap)")]
    Dbo,
    #[error("LoRA")]
    Lora,
    #[error("AITER off (set VLLM_ROCM_USE_AITER=1, VLLM_ROCM_USE_AITER_MOE=1)")]
    AiterOff,
    #[error("KV transfer connectors other than a MoRIIO consumer")]
    KvConnector,
    #[error("routed-expert capture")]
    RoutedExpertCapture,
    #[error("sleep mode")]
    SleepMode,
    #[error("CPU weight offload")]
    CpuOffload,
    #[error("weight updates")]
    WeightUpdates,
    #[error("decoding without speculative decoding")]
    NoSpeculation,
    #[error("more than {} speculative tokens", MAX_ROWS - 1)]
    TooManySpeculativeTokens,
    #[error("adaptive verification")]
    AdaptiveVerification,
    #[error("dynamic speculative decoding")]
    DynamicSpeculation,
    #[error("KDA cache dtypes other than a BF16 conv state and an FP32 recurrent state (mamba cache dtype)")]
    StateDtypes,
    #[error("ReplaySSM / RecoverSSM")]
    ReplaySsm,
    #[error("the V1 model runner (set VLLM_USE_V2_MODEL_RUNNER=1)")]
    V1ModelRunner,
    #[error("torch.compile (compilation mode STOCK_TORCH_COMPILE)")]
    StockTorchCompile,
    #[error("model shapes {found} (hidden, experts, KDA heads, KDA head dim, conv width; {model} is {served})")]
    ModelShapes { found: Shapes, model: &'static str, served: Shapes },
    #[error("models without AttnRes")]
    NoAttnRes,
    #[error(
        "max_num_seqs {max_num_seqs} at {speculative_tokens} speculative tokens (max_num_seqs 1, 2, 4 or 8 with \
         max_num_seqs x (k + 1) <= {MAX_ROWS})"
    )]
    MaxNumSeqs { max_num_seqs: u32, speculative_tokens: u32 },
    #[error("DCP1 without M1 ({})", joined(.missing))]
    Dcp1WithoutM1 { missing: Vec<M1Reason> },
    #[error(
        "DCP1 at {speculative_tokens} speculative tokens, max_num_seqs {max_num_seqs} (DCP1 runs M1c only: 3 or 7 \
         speculative tokens, max_num_seqs 1 or 2; use DCP8)"
    )]
    Dcp1OutsideM1c { speculative_tokens: u32, max_num_seqs: u32 },
    #[error("this platform (ROCm only)")]
    NotRocm,
    #[error("this GPU ({} / {} only)", .needed.gfx, .needed.product)]
    OtherGpu { needed: Gpu },
    #[error("{found} CUs (a partitioned GPU; the kernels need {needed})")]
    ComputeUnits { found: u32, needed: u32 },
    #[error("fault tolerance")]
    FaultTolerance,
    #[error("batch-sharded sampling")]
    BatchShardedSampling,
    #[error("watermarking")]
    Watermark,
    #[error("more than one node")]
    MultipleNodes,
    #[error("pooling models")]
    Pooling,
    #[error("MoE backend {found} (auto or aiter only)")]
    MoeBackend { found: String },
    #[error("batch-invariant mode (VLLM_BATCH_INVARIANT)")]
    BatchInvariant,
    #[error("MLA off (VLLM_MLA_DISABLE)")]
    MlaDisabled,
    #[error("VLLM_ROCM_USE_AITER_MOE_SITUV2={} (a4w4 only)", .found.name())]
    SituV2Mode { found: SituV2 },
}

/// What M1 lacks (spec/runtime.md §1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum M1Reason {
    /// Another attention backend.
    #[error("the ROCM_AITER_MLA attention backend")]
    Backend,
    /// Another KV cache type.
    #[error("an fp8 (E4M3) KV cache")]
    KvCache,
    /// AITER's batched MXFP4 products are off.
    #[error("AITER's MXFP4 bmms (VLLM_ROCM_USE_AITER_FP4BMM=1)")]
    Fp4Bmm,
}

impl Refusal {
    /// What to change.
    pub fn hint(&self) -> String {
        let change = match self {
            Self::TensorParallel { served, .. } => {
                return format!("set --tensor-parallel-size to {}", one_of("", served))
            }
            Self::DecodeContextParallel { served } => {
                return format!("set --decode-context-parallel-size to {}", one_of("", served))
            }
            Self::Dcp1WithoutM1 { missing } => return dcp1_hint(missing),
            Self::ModelShapes { model, .. } => {
                return format!("serve {model}; other models decode with decode_backend=auto")
            }
            Self::OtherGpu { needed } => return format!("serve on {} GPUs", needed.product),
            Self::ComputeUnits { .. } => "leave the GPUs whole: SPX partition mode, no CU mask",
            Self::PipelineParallel => "drop --pipeline-parallel-size",
            Self::DataParallel => "drop --data-parallel-size; run one server per replica",
            Self::ExpertParallel => "drop --enable-expert-parallel",
            Self::Eplb => "drop --enable-eplb",
            Self::PrefillContextParallel => "drop --prefill-context-parallel-size",
            Self::Dbo => "drop --enable-dbo and --ubatch-size",
            Self::Lora => "drop --enable-lora",
            Self::AiterOff => "export VLLM_ROCM_USE_AITER=1 and do not set VLLM_ROCM_USE_AITER_MOE to 0",
            Self::KvConnector => "use MoRIIOConnector with kv_role kv_consumer, or drop --kv-transfer-config",
            Self::RoutedExpertCapture => "drop --enable-return-routed-experts",
            Self::SleepMode => "drop --enable-sleep-mode",
            Self::CpuOffload => "drop --cpu-offload-gb and the offload group size; the weights must stay on the GPU",
            Self::WeightUpdates => "drop --weight-transfer-config",
            Self::NoSpeculation => "set --speculative-config with num_speculative_tokens",
            Self::TooManySpeculativeTokens => "lower num_speculative_tokens",
            Self::AdaptiveVerification => "drop enable_adaptive_verification from --speculative-config",
            Self::DynamicSpeculation => "drop num_speculative_tokens_per_batch_size from --speculative-config",
            Self::StateDtypes => {
                "serve a bfloat16 model and leave --mamba-cache-dtype and --mamba-ssm-cache-dtype at auto"
            }
            Self::ReplaySsm => "drop --use-replayssm",
            Self::V1ModelRunner => "export VLLM_USE_V2_MODEL_RUNNER=1",
            Self::StockTorchCompile => "leave the compilation mode at its default",
            Self::NoAttnRes => "serve Kimi-K3; other models decode with decode_backend=auto",
            Self::MaxNumSeqs { .. } => "set --max-num-seqs and num_speculative_tokens to a pair that fits",
            Self::Dcp1OutsideM1c { .. } => {
                "set --decode-context-parallel-size 8, or 3 or 7 speculative tokens with --max-num-seqs 1 or 2"
            }
            Self::NotRocm => "serve on ROCm, or set decode_device=emulator for tests",
            Self::FaultTolerance => "drop --enable-fault-tolerance: a rank that fails must stop all",
            Self::BatchShardedSampling => "set enable_batch_sharded_sampling to false",
            Self::Watermark => "drop the watermark configuration",
            Self::MultipleNodes => "serve on the eight GPUs of one host: ranks map each other's memory",
            Self::Pooling => "serve generation; pooling models decode nothing",
            Self::MoeBackend { .. } => "leave --moe-backend at auto",
            Self::BatchInvariant => "unset VLLM_BATCH_INVARIANT: specialised and stock steps round differently",
            Self::MlaDisabled => "unset VLLM_MLA_DISABLE",
            Self::SituV2Mode { .. } => "leave VLLM_ROCM_USE_AITER_MOE_SITUV2 unset, or set it to a4w4",
        };
        change.into()
    }
}

fn dcp1_hint(missing: &[M1Reason]) -> String {
    let change = |reason: &M1Reason| match reason {
        M1Reason::Backend => {
            "use the ROCM_AITER_MLA attention backend (VLLM_ROCM_USE_AITER=1, VLLM_ROCM_USE_AITER_MLA=1)"
        }
        M1Reason::KvCache => "set --kv-cache-dtype fp8",
        M1Reason::Fp4Bmm => "export VLLM_ROCM_USE_AITER_FP4BMM=1",
    };
    let changes: Vec<&str> = missing.iter().map(change).collect();
    format!("set --decode-context-parallel-size 8, or {}", changes.join(" and "))
}

/// `TP1, TP2 or TP8`.
fn one_of(prefix: &str, sizes: &[u32]) -> String {
    let names: Vec<String> = sizes.iter().map(|size| format!("{prefix}{size}")).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => "none".into(),
    }
}

/// Reasons as vLLM's users read them: one after another.
pub fn joined<T: std::fmt::Display>(reasons: &[T]) -> String {
    reasons.iter().map(T::to_string).collect::<Vec<_>>().join("; ")
}

impl ConfigError {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::UnknownBackend { .. } => "set decode_backend to latency_specialized, or leave it out",
            Self::UnknownDevice { .. } => "leave decode_device out, or set it to emulator for tests",
            Self::Unsupported { .. } => "`kimi-k3-specdec check` says what to change, and what would be refused next",
        }
    }
}

/// A refused deployment, or a switch that is neither on nor off.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// `decode_backend` is something else; `found` as Python prints it.
    #[error("decode_backend must be 'auto' or 'latency_specialized', got {found}")]
    UnknownBackend {
        /// The value.
        found: String,
    },
    /// `decode_device` is something else; `found` as Python prints it.
    #[error("decode_device must be 'hip' or 'emulator', got {found}")]
    UnknownDevice {
        /// The value.
        found: String,
    },
    /// Every reason.
    #[error(
        "{} specialized decode (decode_backend=latency_specialized) does not support: {} (decode_backend=auto runs vLLM's decode)",
        Target::KIMI_K3.model, joined(reasons)
    )]
    Unsupported {
        /// In the documented order.
        reasons: Vec<Refusal>,
    },
}
