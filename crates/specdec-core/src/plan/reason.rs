//! Why vLLM's own decode runs a step.

use std::fmt;

use serde::Serialize;

/// The first fact that decided, in the order of spec/runtime.md §3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StockReason {
    /// An earlier pipeline stage's tensors came in.
    IntermediateTensors,
    /// No KV cache is bound.
    NoKvCache,
    /// There is no forward context.
    NoContext,
    /// The forward is a piece of a PIECEWISE graph.
    PiecewiseGraph,
    /// Nothing is planned for this many rows.
    Width,
    /// The context holds no dict of metadata.
    NoMetadata,
    /// The dict does not hold the first KDA layer.
    NoFirstLayer,
    /// Its metadata has no speculative sequence masks.
    NoSpecMasks,
    /// A request is in prefill.
    Prefills,
    /// A request decodes without drafts.
    PlainDecodes,
    /// No request verifies drafts.
    NoSpecDecodes,
    /// Requests verify different numbers of rows.
    Ragged,
    /// The requests' rows are not the step's.
    RowsElsewhere,
    /// All requests verify as many rows, but not as many as was configured.
    OtherRowsPerRequest,
}

impl StockReason {
    /// Every reason, in order.
    pub const ALL: [Self; 14] = [
        Self::IntermediateTensors,
        Self::NoKvCache,
        Self::NoContext,
        Self::PiecewiseGraph,
        Self::Width,
        Self::NoMetadata,
        Self::NoFirstLayer,
        Self::NoSpecMasks,
        Self::Prefills,
        Self::PlainDecodes,
        Self::NoSpecDecodes,
        Self::Ragged,
        Self::RowsElsewhere,
        Self::OtherRowsPerRequest,
    ];

    /// Name of its counter.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IntermediateTensors => "intermediate_tensors",
            Self::NoKvCache => "no_kv_cache",
            Self::NoContext => "no_context",
            Self::PiecewiseGraph => "piecewise_graph",
            Self::Width => "width",
            Self::NoMetadata => "no_metadata",
            Self::NoFirstLayer => "no_first_layer",
            Self::NoSpecMasks => "no_spec_masks",
            Self::Prefills => "prefills",
            Self::PlainDecodes => "plain_decodes",
            Self::NoSpecDecodes => "no_spec_decodes",
            Self::Ragged => "ragged",
            Self::RowsElsewhere => "rows_elsewhere",
            Self::OtherRowsPerRequest => "other_rows_per_request",
        }
    }

    /// Its condition in spec/runtime.md §3.1.
    pub const fn condition(self) -> u32 {
        match self {
            Self::IntermediateTensors => 1,
            Self::NoKvCache => 2,
            Self::NoContext => 3,
            Self::PiecewiseGraph => 4,
            Self::Width => 5,
            Self::NoMetadata => 6,
            Self::NoFirstLayer | Self::NoSpecMasks => 7,
            Self::Prefills | Self::PlainDecodes | Self::NoSpecDecodes => 8,
            Self::Ragged | Self::RowsElsewhere | Self::OtherRowsPerRequest => 9,
        }
    }

    /// vLLM's word for it where it has one.
    pub const fn upstream(self) -> Option<&'static str> {
        match self.condition() {
            6 => Some("no metadata"),
            7 => Some("not spec-verify"),
            8 => Some("not pure decode"),
            9 => Some("not uniform"),
            _ => None,
        }
    }

    /// The reason in words: vLLM's, then what exactly.
    pub const fn text(self) -> &'static str {
        match self {
            Self::IntermediateTensors => "intermediate tensors of an earlier pipeline stage",
            Self::NoKvCache => "no KV cache is bound",
            Self::NoContext => "no forward context",
            Self::PiecewiseGraph => "a PIECEWISE graph",
            Self::Width => "a row count that is not planned",
            Self::NoMetadata => "no metadata",
            Self::NoFirstLayer => "not spec-verify: no metadata of the first KDA layer",
            Self::NoSpecMasks => "not spec-verify: no speculative sequence masks",
            Self::Prefills => "not pure decode: a request is in prefill",
            Self::PlainDecodes => "not pure decode: a request decodes without drafts",
            Self::NoSpecDecodes => "not pure decode: no request verifies drafts",
            Self::Ragged => "not uniform: requests verify different numbers of rows",
            Self::RowsElsewhere => "not uniform: the requests' rows are not the step's",
            Self::OtherRowsPerRequest => "not uniform with the configuration: another number of speculative tokens",
        }
    }
}

impl fmt::Display for StockReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_in_the_order_in_which_they_decide() {
        for (index, reason) in StockReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
            assert!(reason.upstream().is_none_or(|text| reason.text().starts_with(text)), "{reason}");
        }
        assert!(StockReason::ALL.windows(2).all(|pair| pair[0].condition() <= pair[1].condition()));
        let names: std::collections::BTreeSet<_> = StockReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), StockReason::ALL.len());
    }
}
