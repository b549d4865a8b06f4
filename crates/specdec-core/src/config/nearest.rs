//! The nearest served settings for those that were asked for.

use std::num::NonZeroU32;

use serde::Serialize;

use super::checks::every_step_reason;
use super::deployment::{Deployment, SpeculativeConfig};
use super::refusal::MAX_SEQS;
use super::target::Target;
use crate::abi::MAX_ROWS;

/// How many are offered.
const OFFERED: usize = 3;

/// What decides whether steps fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Drafts of a request.
    pub num_speculative_tokens: u32,
    /// Requests of a step.
    pub max_num_seqs: u32,
    /// Decode-context-parallel size.
    pub decode_context_parallel_size: u32,
}

impl Settings {
    /// Those of a deployment; 0 drafts without speculation.
    pub fn of(deployment: &Deployment) -> Self {
        Self {
            num_speculative_tokens: deployment.speculative_tokens().unwrap_or(0),
            max_num_seqs: deployment.scheduler_config.max_num_seqs.get(),
            decode_context_parallel_size: deployment.parallel_config.decode_context_parallel_size.get(),
        }
    }

    /// The same with another number of drafts.
    #[must_use]
    pub const fn with_drafts(self, num_speculative_tokens: u32) -> Self {
        Self { num_speculative_tokens, ..self }
    }

    /// The deployment with these settings.
    pub fn apply(self, deployment: &Deployment) -> Deployment {
        let positive = |n: u32| NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN);
        let mut changed = deployment.clone();
        let drafts = positive(self.num_speculative_tokens);
        changed.speculative_config = Some(SpeculativeConfig {
            num_speculative_tokens: drafts,
            ..changed.speculative_config.unwrap_or_else(|| SpeculativeConfig::with_drafts(drafts))
        });
        changed.scheduler_config.max_num_seqs = positive(self.max_num_seqs);
        changed.parallel_config.decode_context_parallel_size = positive(self.decode_context_parallel_size);
        changed
    }

    /// Settings that differ first, then how far.
    fn distance(self, asked: Self) -> (u32, f64) {
        let pairs = [
            (self.num_speculative_tokens, asked.num_speculative_tokens),
            (self.max_num_seqs, asked.max_num_seqs),
            (self.decode_context_parallel_size, asked.decode_context_parallel_size),
        ];
        let octaves = |(a, b): (u32, u32)| (f64::from(a + 1).log2() - f64::from(b.saturating_add(1)).log2()).abs();
        (pairs.iter().filter(|(a, b)| a != b).count() as u32, pairs.into_iter().map(octaves).sum())
    }
}

/// Served settings, the nearest first.
pub fn nearest_settings(deployment: &Deployment, target: &Target) -> Vec<Settings> {
    let asked = Settings::of(deployment);
    let mut served: Vec<Settings> = Vec::new();
    for num_speculative_tokens in 1..MAX_ROWS {
        for max_num_seqs in MAX_SEQS {
            for &decode_context_parallel_size in target.dcp_sizes {
                let settings = Settings { num_speculative_tokens, max_num_seqs, decode_context_parallel_size };
                if every_step_reason(&settings.apply(deployment), target).is_empty() {
                    served.push(settings);
                }
            }
        }
    }
    let distance = |settings: &Settings| settings.distance(asked);
    served.sort_by(|a, b| distance(a).partial_cmp(&distance(b)).unwrap_or(std::cmp::Ordering::Equal));
    served.truncate(OFFERED);
    served
}
