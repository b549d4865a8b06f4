//! The checks, in the documented order (spec/runtime.md §1.2, §1.3): every one is evaluated, nothing stops at the first.

use super::deployment::{CompilationMode, CudaGraphMode, Deployment, Dtype, RunnerType, StateDtype};
use super::environment::SituV2;
use super::refusal::{M1Reason, Refusal, FP8_KV, M1C_QLENS, MAX_SEQS};
use super::target::Target;
use crate::abi::MAX_ROWS;

impl Deployment {
    /// Drafts of a request, if it speculates.
    pub fn speculative_tokens(&self) -> Option<u32> {
        self.speculative_config.as_ref().map(|spec| spec.num_speculative_tokens.get())
    }

    /// Rows of a request, `None` without drafts or with more than a launch serves.
    fn rows_per_request(&self) -> Option<u32> {
        self.speculative_tokens().filter(|drafts| *drafts < MAX_ROWS).map(|drafts| drafts + 1)
    }

    fn is_dcp1(&self) -> bool {
        self.parallel_config.decode_context_parallel_size.get() == 1
    }
}

/// The reasons whose checks hold, in order.
fn those_that_hold<T>(checks: impl IntoIterator<Item = (bool, T)>) -> Vec<T> {
    checks.into_iter().filter_map(|(holds, reason)| holds.then_some(reason)).collect()
}

/// Every reason why `target` does not serve the deployment (empty: it does). From the configuration alone; weights and
/// caches are checked when they are there.
pub fn unsupported(deployment: &Deployment, target: &Target) -> Vec<Refusal> {
    let platform = platform_reasons(deployment, target);
    let mut reasons = table(deployment, target);
    reasons.extend(step_reasons(deployment, target, platform.is_empty()));
    reasons.extend(platform);
    reasons.extend(own_reasons(deployment));
    reasons
}

/// The checks that stand alone: rows 1 to 25.
fn table(deployment: &Deployment, target: &Target) -> Vec<Refusal> {
    let Deployment { model_config, parallel_config, cache_config, offload_config, environment, .. } = deployment;
    let spec = deployment.speculative_config.as_ref();
    let tp = parallel_config.tensor_parallel_size.get();
    let dcp = parallel_config.decode_context_parallel_size.get();
    let is_foreign = |kv: &super::deployment::KvTransferConfig| {
        kv.kv_connector.as_deref() != Some("MoRIIOConnector")
            || kv.kv_connector_module_path.is_some()
            || kv.kv_role.as_deref() != Some("kv_consumer")
    };
    let shapes = model_config.hf_text_config.shapes();
    let checks = [
        (
            !target.tensor_parallel_sizes.contains(&tp),
            Refusal::TensorParallel { found: tp, served: target.tensor_parallel_sizes },
        ),
        (parallel_config.pipeline_parallel_size.get() != 1, Refusal::PipelineParallel),
        (parallel_config.data_parallel_size.get() != 1, Refusal::DataParallel),
        (parallel_config.enable_expert_parallel, Refusal::ExpertParallel),
        (parallel_config.enable_eplb, Refusal::Eplb),
        (!target.dcp_sizes.contains(&dcp), Refusal::DecodeContextParallel { served: target.dcp_sizes }),
        (parallel_config.prefill_context_parallel_size.get() != 1, Refusal::PrefillContextParallel),
        (parallel_config.enable_dbo || parallel_config.ubatch_size > 1, Refusal::Dbo),
        (deployment.lora_config.is_some(), Refusal::Lora),
        (!(environment.use_aiter && environment.use_aiter_moe), Refusal::AiterOff),
        (deployment.kv_transfer_config.as_ref().is_some_and(is_foreign), Refusal::KvConnector),
        (deployment.aux_output_config.enable_return_routed_experts, Refusal::RoutedExpertCapture),
        (model_config.enable_sleep_mode, Refusal::SleepMode),
        (
            offload_config.uva.cpu_offload_gb > 0.0 || offload_config.prefetch.offload_group_size > 0,
            Refusal::CpuOffload,
        ),
        (deployment.weight_transfer_config.is_some(), Refusal::WeightUpdates),
        (spec.is_none(), Refusal::NoSpeculation),
        (spec.is_some() && deployment.rows_per_request().is_none(), Refusal::TooManySpeculativeTokens),
        (spec.is_some_and(|spec| spec.enable_adaptive_verification), Refusal::AdaptiveVerification),
        (spec.is_some_and(|spec| spec.num_speculative_tokens_per_batch_size.is_some()), Refusal::DynamicSpeculation),
        (!has_served_states(deployment), Refusal::StateDtypes),
        (cache_config.use_replayssm || cache_config.use_kda_recoverssm, Refusal::ReplaySsm),
        (!deployment.use_v2_model_runner, Refusal::V1ModelRunner),
        (deployment.compilation_config.mode == Some(CompilationMode::StockTorchCompile), Refusal::StockTorchCompile),
        (
            shapes != target.shapes(),
            Refusal::ModelShapes { found: shapes, model: target.model, served: target.shapes() },
        ),
        (model_config.hf_text_config.attn_res_block_size.is_none(), Refusal::NoAttnRes),
    ];
    those_that_hold(checks)
}

/// A bf16 convolution state and an f32 recurrent state. Upstream's check forgets `mamba_ssm_cache_dtype` and finds it
/// when the caches are bound, minutes later.
fn has_served_states(deployment: &Deployment) -> bool {
    let cache = &deployment.cache_config;
    let conv = match (cache.mamba_cache_dtype, deployment.model_config.dtype) {
        (StateDtype::Auto, Dtype::Auto | Dtype::Bfloat16) => true,
        (given, _) => given == StateDtype::Bfloat16,
    };
    conv && matches!(cache.mamba_ssm_cache_dtype, StateDtype::Auto | StateDtype::Float32)
}

/// Whether the steps fit the launches (row 26): the first reason only, as documented; [`every_step_reason`] has all.
pub fn step_reasons(deployment: &Deployment, target: &Target, check_m1c: bool) -> Vec<Refusal> {
    let is_m1c = |reason: &Refusal| matches!(reason, Refusal::Dcp1OutsideM1c { .. });
    every_step_reason(deployment, target).into_iter().take(1).filter(|reason| check_m1c || !is_m1c(reason)).collect()
}

/// Every reason of row 26.
pub fn every_step_reason(deployment: &Deployment, target: &Target) -> Vec<Refusal> {
    let Some(rows_per_request) = deployment.rows_per_request() else { return Vec::new() };
    let max_num_seqs = deployment.scheduler_config.max_num_seqs.get();
    let speculative_tokens = rows_per_request - 1;
    let fits = MAX_SEQS.contains(&max_num_seqs) && max_num_seqs.saturating_mul(rows_per_request) <= MAX_ROWS;
    // M1 needs a GPU; in the emulator vLLM's own attention serves DCP1.
    let needs_m1 = deployment.is_dcp1() && target.gpu.is_some();
    let missing = m1_reasons(deployment);
    let checks = [
        (!fits, Refusal::MaxNumSeqs { max_num_seqs, speculative_tokens }),
        (needs_m1 && !missing.is_empty(), Refusal::Dcp1WithoutM1 { missing }),
        (
            needs_m1 && !m1c_serves(rows_per_request, max_num_seqs),
            Refusal::Dcp1OutsideM1c { speculative_tokens, max_num_seqs },
        ),
    ];
    those_that_hold(checks)
}

/// What M1 lacks, all of it.
pub fn m1_reasons(deployment: &Deployment) -> Vec<M1Reason> {
    let environment = &deployment.environment;
    let backend = deployment.attention_config.backend.as_deref();
    let has_backend =
        environment.use_aiter && environment.use_aiter_mla && matches!(backend, None | Some("ROCM_AITER_MLA"));
    let checks = [
        (!has_backend, M1Reason::Backend),
        (!FP8_KV.contains(&deployment.cache_config.cache_dtype.as_str()), M1Reason::KvCache),
        (!(environment.use_aiter && environment.use_aiter_fp4bmm), M1Reason::Fp4Bmm),
    ];
    those_that_hold(checks)
}

/// Parts into which M1c splits a request's KV, by the rows that it verifies.
const fn m1c_splits(rows_per_request: u32) -> u32 {
    crate::geometry::K3.grid / rows_per_request
}

/// Whether M1c serves every batch of 1 to `max_num_seqs` requests: their splits share out evenly.
pub fn m1c_serves(rows_per_request: u32, max_num_seqs: u32) -> bool {
    M1C_QLENS.contains(&rows_per_request)
        && (1..=max_num_seqs.min(MAX_ROWS)).all(|requests| m1c_splits(rows_per_request).is_multiple_of(requests))
}

/// Whether the kernels run on the GPUs (row 27): the first reason only, as documented; [`every_platform_reason`] has
/// all.
pub fn platform_reasons(deployment: &Deployment, target: &Target) -> Vec<Refusal> {
    every_platform_reason(deployment, target).into_iter().take(1).collect()
}

/// Every reason of row 27. What is not known is taken for the target's.
pub fn every_platform_reason(deployment: &Deployment, target: &Target) -> Vec<Refusal> {
    let (Some(platform), Some(needed)) = (&deployment.platform, target.gpu) else { return Vec::new() };
    let is_gpu = platform.kind == needed.kind;
    let found = platform.compute_units.unwrap_or(needed.compute_units);
    // A platform that knows no gfx name is no ROCm GPU, or the facts are incomplete: not ours to call a wrong GPU.
    let checks = [
        (!is_gpu, Refusal::NotRocm),
        (platform.gfx.as_deref().is_some_and(|gfx| gfx != needed.gfx), Refusal::OtherGpu { needed }),
        (found != needed.compute_units, Refusal::ComputeUnits { found, needed: needed.compute_units }),
    ];
    those_that_hold(checks)
}

/// What upstream does not refuse and we must (spec/field.md, spec/vllm.md): they defeat the fail-stop or the layouts.
fn own_reasons(deployment: &Deployment) -> Vec<Refusal> {
    let Deployment { parallel_config, environment, .. } = deployment;
    let (found, moe_backend) = (environment.situ_v2, &deployment.kernel_config.moe_backend);
    let checks = [
        (parallel_config.enable_fault_tolerance, Refusal::FaultTolerance),
        (parallel_config.enable_batch_sharded_sampling == Some(true), Refusal::BatchShardedSampling),
        (deployment.watermark_config.is_some(), Refusal::Watermark),
        (parallel_config.nnodes.get() != 1, Refusal::MultipleNodes),
        (deployment.model_config.runner_type == RunnerType::Pooling, Refusal::Pooling),
        (!["auto", "aiter"].contains(&moe_backend.as_str()), Refusal::MoeBackend { found: moe_backend.clone() }),
        (environment.batch_invariant, Refusal::BatchInvariant),
        (environment.mla_disable, Refusal::MlaDisabled),
        (!matches!(found, SituV2::Auto | SituV2::A4w4), Refusal::SituV2Mode { found }),
    ];
    those_that_hold(checks)
}

/// Whether these graphs capture every decode step in pieces, so that none of them is specialised.
pub const fn piecewise_graphs_only(mode: Option<CudaGraphMode>) -> bool {
    matches!(mode, Some(CudaGraphMode::Piecewise))
}
