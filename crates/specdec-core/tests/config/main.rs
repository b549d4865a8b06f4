//! Refusals and settings, from outside: messages are written out here a second time, from spec/runtime.md §1.

#![allow(clippy::expect_used, missing_docs, reason = "a test may fail")]

mod changes;
mod json;
mod layers;
mod refusals;
mod settings;

use specdec_core::config::{json::parse, unsupported, Deployment, Target, EXAMPLE};

/// Kimi-K3 as served: 7 drafts, 2 requests, DCP8.
fn served() -> Deployment {
    parse(EXAMPLE).expect("the example is a deployment").value
}

/// As served at DCP1: M1's prerequisites too.
fn served_at_dcp1() -> Deployment {
    let mut deployment = served();
    deployment.parallel_config.decode_context_parallel_size = number(1);
    deployment.cache_config.cache_dtype = "fp8".into();
    deployment.environment.use_aiter_fp4bmm = true;
    deployment
}

fn number(n: u32) -> std::num::NonZeroU32 {
    std::num::NonZeroU32::new(n).expect("a positive number")
}

fn reasons(deployment: &Deployment) -> Vec<String> {
    unsupported(deployment, &Target::KIMI_K3).iter().map(ToString::to_string).collect()
}
