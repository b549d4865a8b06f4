//! The one table of single changes from a served deployment to a refused value, in the documented order, and the
//! dependencies between them.

use serde_json::json;
use specdec_core::config::{
    CompilationMode, Deployment, Dtype, KvTransferConfig, Platform, RunnerType, SituV2, StateDtype,
};

use crate::number;

/// A change and the reason that it alone gives at DCP8.
#[derive(Clone, Copy)]
pub struct Change {
    /// Changes of one field exclude each other.
    pub field: &'static str,
    /// Makes it.
    pub apply: fn(&mut Deployment),
    /// The reason, by its message.
    pub reason: &'static str,
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.reason)
    }
}

macro_rules! changes {
    ($($field:literal, $reason:literal, |$d:ident| $apply:expr;)*) => {
        &[$(Change { field: $field, reason: $reason, apply: |$d: &mut Deployment| { $apply; } },)*]
    };
}

const KV: &str = "KV transfer connectors other than a MoRIIO consumer";

fn connector(name: &str, module: Option<&str>, role: &str) -> KvTransferConfig {
    KvTransferConfig {
        kv_connector: Some(name.into()),
        kv_connector_module_path: module.map(Into::into),
        kv_role: Some(role.into()),
    }
}

fn platform(kind: &str, gfx: &str, compute_units: u32) -> Platform {
    Platform { kind: kind.into(), gfx: Some(gfx.into()), compute_units: Some(compute_units) }
}

/// Every refused value, in the documented order of the reasons.
pub const CHANGES: &[Change] = changes! {
    "tp", "TP 1 (TP8 only)", |d| d.parallel_config.tensor_parallel_size = number(1);
    "tp", "TP 4 (TP8 only)", |d| d.parallel_config.tensor_parallel_size = number(4);
    "pp", "pipeline parallelism", |d| d.parallel_config.pipeline_parallel_size = number(2);
    "dp", "data parallelism", |d| d.parallel_config.data_parallel_size = number(2);
    "ep", "expert parallelism", |d| d.parallel_config.enable_expert_parallel = true;
    "eplb", "EPLB", |d| d.parallel_config.enable_eplb = true;
    "dcp", "decode context parallelism other than 1 or 8 (over the TP group)",
        |d| d.parallel_config.decode_context_parallel_size = number(2);
    "pcp", "prefill context parallelism", |d| d.parallel_config.prefill_context_parallel_size = number(2);
    "dbo", "DBO (dual-batch overlap)", |d| d.parallel_config.enable_dbo = true;
    "dbo", "DBO (dual-batch overlap)", |d| d.parallel_config.ubatch_size = 2;
    "lora", "LoRA", |d| d.lora_config = Some(json!({"max_loras": 1}));
    "aiter", "AITER off (set VLLM_ROCM_USE_AITER=1, VLLM_ROCM_USE_AITER_MOE=1)",
        |d| d.environment.use_aiter = false;
    "aiter", "AITER off (set VLLM_ROCM_USE_AITER=1, VLLM_ROCM_USE_AITER_MOE=1)",
        |d| d.environment.use_aiter_moe = false;
    "kv", "KV transfer connectors other than a MoRIIO consumer",
        |d| d.kv_transfer_config = Some(connector("NixlConnector", None, "kv_consumer"));
    "kv", "KV transfer connectors other than a MoRIIO consumer",
        |d| d.kv_transfer_config = Some(connector("MoRIIOConnector", None, "kv_both"));
    "kv", "KV transfer connectors other than a MoRIIO consumer",
        |d| d.kv_transfer_config = Some(connector("MoRIIOConnector", Some("mine"), "kv_consumer"));
    "kv", "KV transfer connectors other than a MoRIIO consumer",
        |d| d.kv_transfer_config = Some(KvTransferConfig::default());
    "capture", "routed-expert capture", |d| d.aux_output_config.enable_return_routed_experts = true;
    "sleep", "sleep mode", |d| d.model_config.enable_sleep_mode = true;
    "offload", "CPU weight offload", |d| d.offload_config.uva.cpu_offload_gb = 0.5;
    "offload", "CPU weight offload", |d| d.offload_config.prefetch.offload_group_size = 1;
    "transfer", "weight updates", |d| d.weight_transfer_config = Some(json!({"backend": "nccl"}));
    "drafts", "decoding without speculative decoding", |d| d.speculative_config = None;
    "drafts", "more than 15 speculative tokens",
        |d| if let Some(spec) = &mut d.speculative_config { spec.num_speculative_tokens = number(16) };
    "adaptive", "adaptive verification",
        |d| if let Some(spec) = &mut d.speculative_config { spec.enable_adaptive_verification = true };
    "dynamic", "dynamic speculative decoding",
        |d| if let Some(spec) = &mut d.speculative_config {
            spec.num_speculative_tokens_per_batch_size = Some(json!([[1, 4, 7]]));
        };
    "dtype", "KDA cache dtypes other than a BF16 conv state and an FP32 recurrent state (mamba cache dtype)",
        |d| d.model_config.dtype = Dtype::Float16;
    "dtype", "KDA cache dtypes other than a BF16 conv state and an FP32 recurrent state (mamba cache dtype)",
        |d| d.cache_config.mamba_cache_dtype = StateDtype::Float32;
    "dtype", "KDA cache dtypes other than a BF16 conv state and an FP32 recurrent state (mamba cache dtype)",
        |d| d.cache_config.mamba_ssm_cache_dtype = StateDtype::Bfloat16;
    "dtype", "KDA cache dtypes other than a BF16 conv state and an FP32 recurrent state (mamba cache dtype)",
        |d| d.cache_config.mamba_ssm_cache_dtype = StateDtype::Float16;
    "replay", "ReplaySSM / RecoverSSM", |d| d.cache_config.use_replayssm = true;
    "replay", "ReplaySSM / RecoverSSM", |d| d.cache_config.use_kda_recoverssm = true;
    "runner", "the V1 model runner (set VLLM_USE_V2_MODEL_RUNNER=1)", |d| d.use_v2_model_runner = false;
    "compile", "torch.compile (compilation mode STOCK_TORCH_COMPILE)",
        |d| d.compilation_config.mode = Some(CompilationMode::StockTorchCompile);
    "shapes", "model shapes (4096, 896, 96, 128, 4) (hidden, experts, KDA heads, KDA head dim, conv width; Kimi-K3 is (7168, 896, 96, 128, 4))",
        |d| d.model_config.hf_text_config.hidden_size = Some(4096);
    "shapes", "model shapes (7168, None, 96, 128, 4) (hidden, experts, KDA heads, KDA head dim, conv width; Kimi-K3 is (7168, 896, 96, 128, 4))",
        |d| d.model_config.hf_text_config.num_experts = None;
    "shapes", "model shapes (7168, 896, None, None, None) (hidden, experts, KDA heads, KDA head dim, conv width; Kimi-K3 is (7168, 896, 96, 128, 4))",
        |d| d.model_config.hf_text_config.linear_attn_config = None;
    "attn_res", "models without AttnRes", |d| d.model_config.hf_text_config.attn_res_block_size = None;
    "seqs", "max_num_seqs 3 at 7 speculative tokens (max_num_seqs 1, 2, 4 or 8 with max_num_seqs x (k + 1) <= 16)",
        |d| d.scheduler_config.max_num_seqs = number(3);
    "seqs", "max_num_seqs 4 at 7 speculative tokens (max_num_seqs 1, 2, 4 or 8 with max_num_seqs x (k + 1) <= 16)",
        |d| d.scheduler_config.max_num_seqs = number(4);
    "seqs", "max_num_seqs 4294967295 at 7 speculative tokens (max_num_seqs 1, 2, 4 or 8 with max_num_seqs x (k + 1) <= 16)",
        |d| d.scheduler_config.max_num_seqs = number(u32::MAX);
    "platform", "this platform (ROCm only)", |d| d.platform = Some(platform("cuda", "sm_90", 132));
    "platform", "this GPU (gfx950 / MI355X only)", |d| d.platform = Some(platform("rocm", "gfx942", 304));
    "platform", "32 CUs (a partitioned GPU; the kernels need 256)",
        |d| d.platform = Some(platform("rocm", "gfx950", 32));
    "fault tolerance", "fault tolerance", |d| d.parallel_config.enable_fault_tolerance = true;
    "sampling", "batch-sharded sampling", |d| d.parallel_config.enable_batch_sharded_sampling = Some(true);
    "watermark", "watermarking", |d| d.watermark_config = Some(json!({}));
    "nodes", "more than one node", |d| d.parallel_config.nnodes = number(2);
    "pooling", "pooling models", |d| d.model_config.runner_type = RunnerType::Pooling;
    "moe backend", "MoE backend triton (auto or aiter only)", |d| d.kernel_config.moe_backend = "triton".into();
    "invariant", "batch-invariant mode (VLLM_BATCH_INVARIANT)", |d| d.environment.batch_invariant = true;
    "mla", "MLA off (VLLM_MLA_DISABLE)", |d| d.environment.mla_disable = true;
    "situ", "VLLM_ROCM_USE_AITER_MOE_SITUV2=a8w4 (a4w4 only)", |d| d.environment.situ_v2 = SituV2::A8w4;
    "situ", "VLLM_ROCM_USE_AITER_MOE_SITUV2=a16w4 (a4w4 only)", |d| d.environment.situ_v2 = SituV2::A16w4;
};

/// A reason and those that it hides, by the first words of their messages (spec/runtime.md §1.2, notes; §1.3).
pub const HIDES: &[(&str, &[&str])] = &[
    ("decoding without speculative", &["adaptive verification", "dynamic speculative", "max_num_seqs", "DCP1"]),
    ("more than 15", &["max_num_seqs", "DCP1"]),
    ("max_num_seqs", &["DCP1"]),
    ("DCP1 without M1", &["DCP1 at"]),
    ("this platform", &["DCP1 at"]),
    ("this GPU", &["DCP1 at"]),
    ("32 CUs", &["DCP1 at"]),
];

/// A reason and what it adds at DCP1, where M1 is needed.
pub const ADDS_AT_DCP1: &[(&str, &str)] = &[(
    "VLLM_ROCM_USE_AITER=0",
    "DCP1 without M1 (the ROCM_AITER_MLA attention backend; AITER's MXFP4 bmms (VLLM_ROCM_USE_AITER_FP4BMM=1))",
)];

#[test]
fn the_table_is_in_order_and_knows_its_fields() {
    let first = |reason: &str| CHANGES.iter().position(|change| change.reason.starts_with(reason));
    for (reason, hidden) in HIDES {
        assert!(first(reason).is_some() || reason.starts_with("DCP1"), "{reason}");
        assert!(hidden.iter().all(|h| first(h).is_some() || h.starts_with("DCP1")), "{hidden:?}");
    }
    assert!(first(KV) > first("AITER off"));
}
