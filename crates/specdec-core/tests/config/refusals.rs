//! Every reason, in order, once each, whatever else is wrong.

use proptest::prelude::*;
use proptest::sample::subsequence;
use specdec_core::config::{every_step_reason, m1_reasons, specialized_decode_config, Deployment, Target};

use crate::changes::{Change, ADDS_AT_DCP1, CHANGES, HIDES};
use crate::{number, reasons, served, served_at_dcp1};

/// What a set of changes must give: their reasons in the table's order, once each, less those that another hides.
fn expected(changes: &[Change], at_dcp1: bool) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let is_off = changes.iter().any(|c| c.reason.starts_with("AITER off") && turns_aiter_off(c));
    for change in changes {
        // Row 26 and its kin stand in front of the platform's.
        let is_behind_steps = CHANGES.iter().position(|c| c.reason == change.reason) >= behind_steps();
        if at_dcp1 && is_off && is_behind_steps && !all.iter().any(|r| r.starts_with("DCP1")) {
            all.push(ADDS_AT_DCP1[0].1.into());
        }
        if !all.iter().any(|reason| reason == change.reason) {
            all.push(change.reason.into());
        }
    }
    if at_dcp1 && is_off && !all.iter().any(|r| r.starts_with("DCP1")) {
        all.push(ADDS_AT_DCP1[0].1.into());
    }
    let hidden: Vec<&str> = HIDES
        .iter()
        .filter(|(reason, _)| all.iter().any(|given| given.starts_with(reason)))
        .flat_map(|(_, hidden)| hidden.iter().copied())
        .collect();
    all.retain(|reason| !hidden.iter().any(|hidden| reason.starts_with(hidden)));
    all
}

/// `VLLM_ROCM_USE_AITER=0` takes M1 away too; `..._MOE=0` does not.
fn turns_aiter_off(change: &Change) -> bool {
    let mut deployment = served();
    (change.apply)(&mut deployment);
    !deployment.environment.use_aiter
}

fn behind_steps() -> Option<usize> {
    CHANGES.iter().position(|change| change.reason.starts_with("this platform"))
}

/// One change of each field at most.
fn compatible(changes: Vec<Change>) -> Vec<Change> {
    let mut kept: Vec<Change> = Vec::new();
    for change in changes {
        if kept.iter().all(|other| other.field != change.field) {
            kept.push(change);
        }
    }
    kept
}

fn apply(mut deployment: Deployment, changes: &[Change]) -> Deployment {
    for change in changes {
        (change.apply)(&mut deployment);
    }
    deployment
}

#[test]
fn what_is_served_has_no_reason() {
    assert_eq!(reasons(&served()), [""; 0]);
    assert_eq!(reasons(&served_at_dcp1()), [""; 0]);
}

#[test]
fn a_single_change_gives_its_reason_and_no_other() {
    for change in CHANGES {
        let deployment = apply(served(), std::slice::from_ref(change));
        assert_eq!(reasons(&deployment), [change.reason], "{change:?}");
    }
}

#[test]
fn at_dcp1_a_change_adds_what_it_takes_from_m1() {
    for change in CHANGES.iter().filter(|change| change.field != "dcp") {
        let deployment = apply(served_at_dcp1(), std::slice::from_ref(change));
        assert_eq!(reasons(&deployment), expected(std::slice::from_ref(change), true), "{change:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_set_of_changes_gives_all_their_reasons_in_order(
        changes in subsequence(CHANGES.to_vec(), 0..CHANGES.len()),
        at_dcp1: bool,
    ) {
        let mut changes = compatible(changes);
        if at_dcp1 {
            changes.retain(|change| change.field != "dcp");
        }
        let base = if at_dcp1 { served_at_dcp1() } else { served() };
        prop_assert_eq!(reasons(&apply(base, &changes)), expected(&changes, at_dcp1));
    }

    /// Row 26 over every pair, from the documented table.
    #[test]
    fn steps_fit_as_documented(drafts in 1..16_u32, seqs in 1..20_u32, dcp1: bool) {
        let mut deployment = if dcp1 { served_at_dcp1() } else { served() };
        if let Some(spec) = &mut deployment.speculative_config {
            spec.num_speculative_tokens = number(drafts);
        }
        deployment.scheduler_config.max_num_seqs = number(seqs);
        let most_drafts = match seqs { 1 => 15, 2 => 7, 4 => 3, 8 => 1, _ => 0 };
        let fits = drafts <= most_drafts;
        let is_m1c = [3, 7].contains(&drafts) && seqs <= 2;
        let wanted = match (fits, dcp1, is_m1c) {
            (false, ..) => vec![format!(
                "max_num_seqs {seqs} at {drafts} speculative tokens (max_num_seqs 1, 2, 4 or 8 with max_num_seqs x \
                 (k + 1) <= 16)"
            )],
            (true, true, false) => vec![format!(
                "DCP1 at {drafts} speculative tokens, max_num_seqs {seqs} (DCP1 runs M1c only: 3 or 7 speculative \
                 tokens, max_num_seqs 1 or 2; use DCP8)"
            )],
            _ => vec![],
        };
        prop_assert_eq!(reasons(&deployment), wanted);
    }
}

#[test]
fn the_error_lists_them_all_and_names_the_way_out() {
    let mut deployment = served();
    deployment.parallel_config.enable_eplb = true;
    deployment.use_v2_model_runner = false;
    let error = specialized_decode_config(&deployment).map_err(|e| e.to_string());
    let wanted =
        "Kimi-K3 specialized decode (decode_backend=latency_specialized) does not support: EPLB; the V1 model \
                  runner (set VLLM_USE_V2_MODEL_RUNNER=1) (decode_backend=auto runs vLLM's decode)";
    assert_eq!(error, Err(wanted.into()));
}

#[test]
fn twelve_problems_are_twelve_reasons() {
    let mut picked: Vec<Change> = Vec::new();
    for change in CHANGES {
        // Each hides or is hidden by nothing.
        if !["drafts", "seqs", "dcp"].contains(&change.field) && picked.iter().all(|c| c.field != change.field) {
            picked.push(*change);
        }
    }
    picked.truncate(12);
    assert_eq!(reasons(&apply(served(), &picked)).len(), 12);
}

#[test]
fn m1_lacks_what_it_lacks_in_order() {
    let lacks = |change: fn(&mut Deployment)| {
        let mut deployment = served_at_dcp1();
        change(&mut deployment);
        m1_reasons(&deployment).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (backend, kv, bmm) = (
        "the ROCM_AITER_MLA attention backend",
        "an fp8 (E4M3) KV cache",
        "AITER's MXFP4 bmms (VLLM_ROCM_USE_AITER_FP4BMM=1)",
    );
    assert!(lacks(|_| ()).is_empty());
    assert!(lacks(|d| d.attention_config.backend = Some("ROCM_AITER_MLA".into())).is_empty());
    assert!(lacks(|d| d.cache_config.cache_dtype = "fp8_e4m3".into()).is_empty());
    assert_eq!(lacks(|d| d.attention_config.backend = Some("TRITON_MLA".into())), [backend]);
    assert_eq!(lacks(|d| d.environment.use_aiter_mla = false), [backend]);
    assert_eq!(lacks(|d| d.environment.use_aiter = false), [backend, bmm]);
    for other in ["auto", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "bfloat16"] {
        let mut deployment = served_at_dcp1();
        deployment.cache_config.cache_dtype = other.into();
        assert_eq!(m1_reasons(&deployment).iter().map(ToString::to_string).collect::<Vec<_>>(), [kv], "{other}");
    }
    let all = lacks(|d| {
        d.environment = specdec_core::config::Environment::default();
        d.cache_config.cache_dtype = "auto".into();
    });
    assert_eq!(all, [backend, kv, bmm]);
}

#[test]
fn the_emulator_serves_its_models_with_vllms_attention() {
    let mut deployment = served();
    deployment.additional_config.insert("decode_device".into(), "emulator".into());
    deployment.platform = None;
    deployment.attention_config.backend = Some("CPU_MLA".into());
    deployment.parallel_config.decode_context_parallel_size = number(1);
    let text = &mut deployment.model_config.hf_text_config;
    (text.hidden_size, text.num_experts) = (Some(256), Some(32));
    if let Some(kda) = &mut text.linear_attn_config {
        kda.num_heads = Some(4);
    }
    for (ranks, served) in [(1, true), (2, true), (4, false), (8, false)] {
        deployment.parallel_config.tensor_parallel_size = number(ranks);
        let reasons = specialized_decode_config(&deployment).map_err(|e| e.to_string());
        assert_eq!(reasons.is_ok(), served, "{reasons:?}");
        if let Err(error) = reasons {
            assert!(error.contains(&format!("TP {ranks} (TP1 or TP2 only)")), "{error}");
        }
    }
    let target = deployment.target().expect("a known device");
    assert!(every_step_reason(&deployment, &target).is_empty() && target != Target::KIMI_K3);
}
