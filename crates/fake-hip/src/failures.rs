//! Calls that fail on demand, and how often each was made.

use std::collections::BTreeMap;
use std::ffi::c_int;

/// A call that fails.
#[derive(Debug, PartialEq, Eq)]
struct Planned {
    name: String,
    /// Calls until the one that fails, that one included; 0: every one.
    countdown: u64,
    status: c_int,
}

/// What fails, and counts by name.
#[derive(Debug, Default)]
pub struct Failures {
    planned: Vec<Planned>,
    counts: BTreeMap<String, u64>,
}

impl Failures {
    /// Parses `name:nth:status,...`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut failures = Self::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let mut fields = item.split(':');
            let (name, nth, status) = (fields.next(), fields.next(), fields.next());
            let (nth, status) = (nth.and_then(|text| text.parse().ok()), status.and_then(|text| text.parse().ok()));
            match (name, nth, status, fields.next()) {
                (Some(name), Some(nth), Some(status), None) => failures.plan(name, nth, status),
                _ => return Err(format!("FAKE_HIP_FAIL: `{item}` is not `name:nth:status`")),
            }
        }
        Ok(failures)
    }

    /// From now on the `nth` call of this name fails, once; 0: every one does.
    pub fn plan(&mut self, name: &str, nth: u64, status: c_int) {
        self.planned.push(Planned { name: name.into(), countdown: nth, status });
    }

    /// Counts a call; its status if it is one that fails.
    pub fn count(&mut self, name: &str) -> Option<c_int> {
        *self.counts.entry(name.into()).or_default() += 1;
        let mut status = None;
        self.planned.retain_mut(|planned| {
            if planned.name != name {
                return true;
            }
            if planned.countdown == 0 {
                status = status.or(Some(planned.status));
                return true;
            }
            planned.countdown -= 1;
            if planned.countdown == 0 {
                status = status.or(Some(planned.status));
            }
            planned.countdown > 0
        });
        status
    }

    /// Calls of a name so far.
    pub fn calls(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_planned_call_fails_and_no_other() {
        let mut failures = Failures::parse("hipMalloc:2:2, hipFree:0:17").expect("it parses");
        let statuses = |failures: &mut Failures, name| [0; 4].map(|_| failures.count(name));
        assert_eq!(statuses(&mut failures, "hipMalloc"), [None, Some(2), None, None]);
        assert_eq!(statuses(&mut failures, "hipFree"), [Some(17); 4]);
        assert_eq!((failures.calls("hipMalloc"), failures.calls("hipMemset")), (4, 0));
        for bad in ["hipMalloc", "hipMalloc:1", "hipMalloc:one:2", "hipMalloc:1:2:3"] {
            assert!(Failures::parse(bad).is_err(), "{bad}");
        }
    }
}
