//! How often steps ran how: what an operator reads to see whether the deployment is served.

use serde::Serialize;

use crate::abi::MAX_ROWS;
use crate::ids::Rows;
use crate::plan::{StepPlan, StockReason};

/// Counts since the start, plain enough to export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepCounters {
    /// Specialised steps by width - 1, replays of graphs included.
    pub specialized: [u64; MAX_ROWS as usize],
    /// Stock steps by reason, in the order of [`StockReason::ALL`].
    pub stock: [u64; StockReason::ALL.len()],
    /// Rows that graphs ran for no request.
    pub padded_rows: u64,
}

impl StepCounters {
    /// Counts a planned step: eager ones have no padding.
    pub fn count(&mut self, plan: &StepPlan) {
        match plan {
            StepPlan::Stock(reason) => self.stock[*reason as usize] += 1,
            StepPlan::Specialized(step) => self.count_specialized(step.width, step.width),
        }
    }

    /// Counts a specialised step of `width` rows, of which `live` belong to requests; a replay has no other plan.
    pub fn count_specialized(&mut self, width: Rows, live: Rows) {
        if let Some(count) = (width.0 as usize).checked_sub(1).and_then(|index| self.specialized.get_mut(index)) {
            *count += 1;
            self.padded_rows += u64::from(width.0.saturating_sub(live.0));
        }
    }

    /// Stock steps of each reason that happened, most frequent first.
    pub fn stock_reasons(&self) -> Vec<(StockReason, u64)> {
        let counts = StockReason::ALL.into_iter().zip(self.stock);
        let mut happened: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
        happened.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        happened
    }

    /// Specialised and stock steps.
    pub fn totals(&self) -> (u64, u64) {
        (self.specialized.iter().sum(), self.stock.iter().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_counted_by_width_and_reason() {
        let mut counters = StepCounters::default();
        for reason in [StockReason::Ragged, StockReason::NoContext, StockReason::Ragged] {
            counters.count(&StepPlan::Stock(reason));
        }
        counters.count_specialized(Rows(8), Rows(6));
        counters.count_specialized(Rows(16), Rows(16));
        // Nothing serves such widths: they are not counted, and do not end the process either.
        counters.count_specialized(Rows(0), Rows(0));
        counters.count_specialized(Rows(17), Rows(1));
        assert_eq!(counters.stock_reasons(), [(StockReason::Ragged, 2), (StockReason::NoContext, 1)]);
        assert_eq!((counters.totals(), counters.padded_rows), ((2, 3), 2));
        assert_eq!((counters.specialized[7], counters.specialized[15]), (1, 1));
    }
}
