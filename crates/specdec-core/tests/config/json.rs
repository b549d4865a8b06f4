//! Deployments as text: there and back, and nonsense.

use proptest::prelude::*;
use proptest::sample::subsequence;
use serde_json::Value;
use specdec_core::config::json::{parse, JsonError};
use specdec_core::config::{examine, Deployment, EXAMPLE};

use crate::changes::CHANGES;
use crate::served;

fn text(deployment: &Deployment) -> String {
    serde_json::to_string(deployment).expect("a deployment is JSON")
}

fn error(text: &str) -> String {
    match parse::<Deployment>(text) {
        Err(error) => {
            assert!(!error.hint().is_empty());
            error.to_string()
        }
        Ok(parsed) => format!("parsed: {:?}", parsed.warnings),
    }
}

/// The example with `value` at a path of keys.
fn with(path: &[&str], value: Value) -> String {
    let mut json: Value = serde_json::from_str(EXAMPLE).expect("JSON");
    let mut place = &mut json;
    for key in path {
        place = &mut place[*key];
    }
    *place = value;
    json.to_string()
}

proptest! {
    #[test]
    fn there_and_back(changes in subsequence(CHANGES.to_vec(), 0..CHANGES.len())) {
        let mut deployment = served();
        for change in &changes {
            (change.apply)(&mut deployment);
        }
        let parsed = parse::<Deployment>(&text(&deployment)).expect("its own text");
        prop_assert_eq!(&parsed.value, &deployment);
        prop_assert_eq!(parsed.warnings, Vec::<String>::new());
        prop_assert_eq!(text(&parsed.value), text(&deployment));
    }

    /// Any byte of the example replaced, cut or doubled: an error with a path, or a deployment that is examined.
    #[test]
    fn mutated_text_never_panics(at in 0..EXAMPLE.len(), mutation in 0..4, byte in 32..127_u8) {
        let mut bytes = EXAMPLE.as_bytes().to_vec();
        match mutation {
            0 => bytes[at] = byte,
            1 => { bytes.remove(at); }
            2 => bytes.insert(at, byte),
            _ => bytes.truncate(at),
        }
        let text = String::from_utf8(bytes).expect("ASCII");
        match parse::<Deployment>(&text) {
            Ok(parsed) => { let _ = examine(&parsed.value); }
            Err(error) => prop_assert!(error.to_string().starts_with("`$"), "{}", error),
        }
    }
}

#[test]
fn wrong_values_are_named_by_their_path() {
    for (path, value, wanted) in [
        (
            ["parallel_config", "tensor_parallel_size"],
            Value::from("8"),
            "`$.parallel_config.tensor_parallel_size`: invalid type",
        ),
        (
            ["parallel_config", "tensor_parallel_size"],
            Value::from(0),
            "`$.parallel_config.tensor_parallel_size`: invalid value",
        ),
        (["scheduler_config", "max_num_seqs"], Value::from(-2), "`$.scheduler_config.max_num_seqs`: invalid value"),
        (
            ["scheduler_config", "max_num_seqs"],
            Value::from(1_u64 << 40),
            "`$.scheduler_config.max_num_seqs`: invalid value",
        ),
        (["scheduler_config", "max_num_seqs"], Value::from(1.5), "`$.scheduler_config.max_num_seqs`: invalid type"),
        (
            ["speculative_config", "num_speculative_tokens"],
            Value::from(0),
            "`$.speculative_config.num_speculative_tokens`",
        ),
        (
            ["compilation_config", "cudagraph_mode"],
            Value::from("FULLISH"),
            "`$.compilation_config.cudagraph_mode`: unknown variant",
        ),
        (
            ["environment", "VLLM_ROCM_USE_AITER"],
            Value::from(2),
            "`$.environment.VLLM_ROCM_USE_AITER`: invalid value: 2",
        ),
        (
            ["environment", "VLLM_ROCM_USE_AITER_MOE_SITUV2"],
            Value::from("a3w3"),
            "`$.environment.VLLM_ROCM_USE_AITER_MOE_SITUV2`: invalid value: `a3w3`",
        ),
        (["model_config", "hf_text_config"], Value::Null, "`$.model_config.hf_text_config`: invalid type: null"),
    ] {
        let found = error(&with(&path, value));
        assert!(found.starts_with(wanted), "{found}");
    }
    assert!(error(&with(&["offload_config"], serde_json::json!({"uva": {"cpu_offload_gb": -1.0}})))
        .starts_with("`$.offload_config.uva.cpu_offload_gb`: invalid value: -1"));
    assert!(error(&EXAMPLE.replace("256 }", "NaN }")).starts_with("`$.platform.compute_units`: "));
    assert!(error(&EXAMPLE.replace("4096 }", "1e999 }")).starts_with("`$.scheduler_config.max_num_batched_tokens`: "));
}

#[test]
fn a_missing_section_is_an_error_and_an_unknown_key_a_warning() {
    for section in ["model_config", "parallel_config", "cache_config", "scheduler_config", "speculative_config"] {
        let mut json: Value = serde_json::from_str(EXAMPLE).expect("JSON");
        json.as_object_mut().expect("an object").remove(section);
        let found = error(&json.to_string());
        assert!(found.starts_with(&format!("`$`: missing field `{section}`")), "{found}");
    }
    let misspelt = EXAMPLE.replace("\"cudagraph_mode\"", "\"cuda_graph_mode\"");
    let wanted = "`$.compilation_config.cuda_graph_mode` is not read; did you mean `cudagraph_mode`?";
    assert_eq!(parse::<Deployment>(&misspelt).map(|parsed| parsed.warnings), Ok(vec![wanted.into()]));
    assert_eq!(parse::<Deployment>(" \n ").err(), Some(JsonError::Empty));
}

#[test]
fn switches_read_as_vllm_reads_them() {
    for (value, wanted) in [("true", true), ("1", true), ("TRUE", true), ("0", false), ("yes", false), ("", false)] {
        let path = ["environment", "VLLM_ROCM_USE_AITER"];
        let parsed = parse::<Deployment>(&with(&path, Value::from(value))).map(|p| p.value.environment.use_aiter);
        assert_eq!(parsed, Ok(wanted), "{value}");
    }
}
