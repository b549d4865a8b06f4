//! The switch, the settings, and what `check` says beside the reasons.

use proptest::prelude::*;
use serde_json::json;
use specdec_core::config::{
    examine, m1c_serves, piecewise_graphs_only, specialized_decode_config, CudaGraphMode, DecodeConfig, EXAMPLE,
    PIECEWISE_ONLY,
};

use crate::{number, served, served_at_dcp1};

proptest! {
    #[test]
    fn widths_are_the_multiples_of_q_up_to_the_limits(q in 1..40_u32, max_num_seqs in 1..600_u32) {
        let config = DecodeConfig { q, m1: true, interleave: 1, max_num_seqs };
        let wanted: Vec<u32> = (1..=16).filter(|n| n % q == 0 && *n <= max_num_seqs * q).collect();
        prop_assert_eq!(config.widths(), wanted);
    }
}

#[test]
fn widths_of_the_documented_table() {
    let widths = |k: u32, max_num_seqs| DecodeConfig { q: k + 1, m1: true, interleave: 1, max_num_seqs }.widths();
    assert_eq!(widths(7, 1), [8]);
    assert_eq!(widths(7, 2), [8, 16]);
    assert_eq!(widths(3, 4), [4, 8, 12, 16]);
    assert_eq!(widths(1, 8), [2, 4, 6, 8, 10, 12, 14, 16]);
    assert_eq!(widths(2, 4), [3, 6, 9, 12]);
    assert_eq!(widths(4, 2), [5, 10]);
    assert_eq!(widths(15, 1), [16]);
}

#[test]
fn a_served_deployment_has_settings() {
    let config = specialized_decode_config(&served());
    assert_eq!(config, Ok(Some(DecodeConfig { q: 8, m1: false, interleave: 1, max_num_seqs: 2 })));
    let mut deployment = served_at_dcp1();
    deployment.parallel_config.cp_kv_cache_interleave_size = number(16);
    let config = specialized_decode_config(&deployment);
    assert_eq!(config, Ok(Some(DecodeConfig { q: 8, m1: true, interleave: 16, max_num_seqs: 2 })));
}

#[test]
fn the_switch_is_parsed_first() {
    let with = |value: serde_json::Value| {
        let mut deployment = served();
        deployment.additional_config.insert("decode_backend".into(), value);
        deployment.parallel_config.enable_eplb = true;
        specialized_decode_config(&deployment).map_err(|e| e.to_string())
    };
    assert_eq!(with(json!("auto")), Ok(None));
    for (value, printed) in [
        (json!("fast"), "'fast'"),
        (json!("it's"), "\"it's\""),
        (json!(null), "None"),
        (json!(true), "True"),
        (json!(3), "3"),
        (json!(["a", {"b": false}]), "['a', {'b': False}]"),
    ] {
        let wanted = format!("decode_backend must be 'auto' or 'latency_specialized', got {printed}");
        assert_eq!(with(value), Err(wanted));
    }
    let mut deployment = served();
    deployment.additional_config.clear();
    assert_eq!(specialized_decode_config(&deployment), Ok(None));
    deployment.additional_config.insert("decode_backend".into(), json!("latency_specialized"));
    deployment.additional_config.insert("decode_device".into(), json!("tpu"));
    let error = specialized_decode_config(&deployment).map_err(|e| e.to_string());
    assert_eq!(error, Err("decode_device must be 'hip' or 'emulator', got 'tpu'".into()));
}

#[test]
fn graphs_in_pieces_only() {
    use CudaGraphMode::{Full, FullAndPiecewise, FullDecodeOnly, None as NoGraphs, Piecewise};
    let warned: Vec<_> = [Option::None, Some(NoGraphs), Some(Full), Some(FullDecodeOnly), Some(FullAndPiecewise)]
        .into_iter()
        .filter(|mode| piecewise_graphs_only(*mode))
        .collect();
    assert!(warned.is_empty() && piecewise_graphs_only(Some(Piecewise)));
}

#[test]
fn m1c_serves_what_is_documented() {
    for q in 1..20 {
        for seqs in 1..20 {
            assert_eq!(m1c_serves(q, seqs), [4, 8].contains(&q) && seqs <= 2, "{q} {seqs}");
        }
    }
}

#[test]
fn the_example_is_served_and_told_about() {
    let examination = examine(&served()).expect("a known switch");
    assert!(examination.served && examination.refusals.is_empty() && examination.next.is_empty());
    assert_eq!(examination.target, "Kimi-K3 on MI355X (gfx950)");
    assert_eq!((examination.layers.whole, examination.layers.ffn, examination.layers.launches), (68, 24, 25));
    assert_eq!((examination.layers.stock, examination.widths), (vec![0], vec![8, 16]));
    let memory = examination.memory.expect("a code object serves it");
    assert_eq!(memory.code_object, "layers_k3_tp8");
    assert!(memory.total_bytes > memory.buffers.peer_bytes && memory.buffers.peer_bytes > 1 << 20);
    assert!(examination.warnings.iter().any(|w| w.contains("then K2 (M1 needs an fp8 (E4M3) KV cache; AITER's")));
    assert!(EXAMPLE.contains("latency_specialized"));
}

#[test]
fn what_would_be_refused_next_is_told_at_once() {
    let mut deployment = served();
    deployment.scheduler_config.max_num_seqs = number(4);
    deployment.parallel_config.decode_context_parallel_size = number(1);
    deployment.platform = Some(specdec_core::config::Platform {
        kind: "cuda".into(),
        gfx: Some("sm_90".into()),
        compute_units: Some(132),
    });
    let examination = examine(&deployment).expect("a known switch");
    let text = |reasons: &[specdec_core::config::Reason]| reasons.iter().map(|r| r.reason.clone()).collect::<Vec<_>>();
    assert_eq!(
        text(&examination.refusals),
        [
            "max_num_seqs 4 at 7 speculative tokens (max_num_seqs 1, 2, 4 or 8 with max_num_seqs x (k + 1) <= 16)",
            "this platform (ROCm only)"
        ]
    );
    assert_eq!(
        text(&examination.next),
        [
            "DCP1 without M1 (an fp8 (E4M3) KV cache; AITER's MXFP4 bmms (VLLM_ROCM_USE_AITER_FP4BMM=1))",
            "DCP1 at 7 speculative tokens, max_num_seqs 4 (DCP1 runs M1c only: 3 or 7 speculative tokens, max_num_seqs \
             1 or 2; use DCP8)",
            "this GPU (gfx950 / MI355X only)",
            "132 CUs (a partitioned GPU; the kernels need 256)",
        ]
    );
    assert!(examination.refusals.iter().chain(&examination.next).all(|reason| !reason.change.is_empty()));
}

#[test]
fn without_a_draft_count_the_mildest_is_assumed() {
    let next = |max_num_seqs, dcp| {
        let mut deployment = served_at_dcp1();
        deployment.speculative_config = None;
        deployment.scheduler_config.max_num_seqs = number(max_num_seqs);
        deployment.parallel_config.decode_context_parallel_size = number(dcp);
        examine(&deployment).expect("a known switch").next.len()
    };
    assert_eq!((next(1, 8), next(8, 8), next(1, 1), next(2, 1)), (0, 0, 0, 0));
    assert_eq!((next(3, 8), next(4, 1), next(3, 1)), (1, 1, 2));
}

#[test]
fn the_nearest_served_settings_come_first() {
    let nearest = |k, seqs, dcp1| -> Vec<(u32, u32, u32)> {
        let mut deployment = if dcp1 { served_at_dcp1() } else { served() };
        deployment.speculative_config.iter_mut().for_each(|spec| spec.num_speculative_tokens = number(k));
        deployment.scheduler_config.max_num_seqs = number(seqs);
        let settings = examine(&deployment).expect("a known switch").nearest;
        settings.iter().map(|s| (s.num_speculative_tokens, s.max_num_seqs, s.decode_context_parallel_size)).collect()
    };
    let wanted: Vec<Vec<(u32, u32, u32)>> =
        vec![vec![], vec![(7, 2, 8), (3, 4, 8), (7, 1, 8)], vec![(7, 2, 1), (7, 1, 1), (3, 2, 1)]];
    assert_eq!(vec![nearest(7, 2, false), nearest(7, 4, false), nearest(7, 128, true)], wanted);
}

#[test]
fn what_surprises_is_warned_about() {
    let warned = |change: fn(&mut specdec_core::config::Deployment), text: &str| {
        let mut deployment = served();
        let has = |d: &_| examine(d).expect("a known switch").warnings.iter().any(|w| w.contains(text));
        assert!(!has(&deployment), "{text} without a cause");
        change(&mut deployment);
        assert!(has(&deployment), "{text}");
    };
    warned(|d| d.scheduler_config.max_num_batched_tokens = Some(number(15)), "is below max_num_seqs x (k + 1) = 16");
    warned(|d| d.environment.aiter_situv2_a8w4 = Some("1".into()), "vLLM 0.33 ignores and overwrites it");
    warned(|d| d.environment.plugins = Some("other,kimi".into()), "leaves out `kimi_k3_specdec`");
    warned(|d| d.compilation_config.cudagraph_mode = Some(CudaGraphMode::Piecewise), PIECEWISE_ONLY);
    warned(|d| d.compilation_config.cudagraph_mode = Some(CudaGraphMode::None), "every launch waits for the host");
    warned(|d| d.platform = None, "taken for 8 whole MI355X");
    warned(
        |d| {
            d.additional_config.clear();
            d.additional_config.insert("decode_backnd".into(), json!("latency_specialized"));
        },
        "did you mean `decode_backend`?",
    );
    warned(
        |d| {
            d.additional_config.insert("decode_device".into(), json!("emulator"));
        },
        "for tests only",
    );
    let mut deployment = served();
    deployment.environment.plugins = Some("other, kimi_k3_specdec".into());
    assert!(examine(&deployment).expect("a known switch").warnings.iter().all(|w| !w.contains("VLLM_PLUGINS")));
}
