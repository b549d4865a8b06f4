//! Versions of what is installed, and the code objects.

use super::is_rocm_machine;
use crate::doctor::facts::{CodeObjects, Facts};
use crate::doctor::{Line, Version};

/// Releases that give wrong results or hang.
pub struct KnownBad {
    /// First release that has the fault, `None` for every earlier one.
    pub first: Option<&'static [u32]>,
    /// Last release to compare with.
    pub last: &'static [u32],
    /// Whether `last` itself has the fault.
    pub last_has_it: bool,
    /// The fault.
    pub fault: &'static str,
}

/// Faults of the GPU stack's releases.
pub const KNOWN_BAD_ROCM: &[KnownBad] = &[
    KnownBad {
        first: None,
        last: &[7, 0, 2],
        last_has_it: false,
        fault: "uncached peer memory is not really uncached on MI350: exchanges between ranks hang",
    },
    KnownBad { first: None, last: &[7, 2, 0], last_has_it: true, fault: "event queries break graph capture" },
    KnownBad {
        first: Some(&[7, 2, 0]),
        last: &[7, 2, 3],
        last_has_it: true,
        fault: "graph replays give wrong results in about one process in five",
    },
];

/// The series of vLLM that this package plugs into.
const VLLM: [u32; 2] = [0, 33];
/// The oldest torch.
const TORCH: [u32; 2] = [2, 10];

impl KnownBad {
    fn has(&self, version: &Version) -> bool {
        let last = Version::release(self.last);
        let is_late_enough = self.first.is_none_or(|first| *version >= Version::release(first));
        is_late_enough && (*version < last || self.last_has_it && *version == last)
    }
}

/// Lines about software.
pub fn lines(facts: &Facts) -> Vec<Line> {
    vec![rocm(facts), vllm(facts), aiter(facts), torch(facts), code_objects(facts)]
}

fn rocm(facts: &Facts) -> Line {
    let topic = "ROCm";
    let Some(version) = &facts.rocm else { return Line::not_here(topic, "no version found") };
    let faults: Vec<&str> = KNOWN_BAD_ROCM.iter().filter(|bad| bad.has(version)).map(|bad| bad.fault).collect();
    if faults.is_empty() {
        return Line::ok(topic, version.to_string());
    }
    Line::problem(topic, format!("{version}: {}", faults.join("; ")), "install a ROCm newer than 7.2.3")
}

fn vllm(facts: &Facts) -> Line {
    let topic = "vLLM";
    match &facts.packages.vllm {
        None => Line::not_here(topic, "not installed"),
        Some(version) if version.starts_with(&VLLM) => Line::ok(topic, version.to_string()),
        Some(version) => Line::problem(
            topic,
            format!("{version}, this release plugs into 0.33"),
            "install vLLM 0.33: `pip install 'kimi-k3-specdec[vllm]'`, or AMD's image of it",
        ),
    }
}

fn aiter(facts: &Facts) -> Line {
    let topic = "AITER";
    let version = facts.packages.aiter.as_ref().map_or_else(|| "no version".into(), Version::to_string);
    match facts.packages.aiter_importable {
        None => Line::not_here(topic, "not known"),
        Some(true) => Line::ok(topic, version),
        Some(false) if is_rocm_machine(facts) => {
            let hint =
                "install AITER for this ROCm and torch: prefill, attention and the experts' weights come from it";
            Line::problem(topic, "cannot be imported", hint)
        }
        Some(false) => Line::not_here(topic, "not installed"),
    }
}

fn torch(facts: &Facts) -> Line {
    let topic = "torch";
    match &facts.packages.torch {
        None => Line::not_here(topic, "not installed"),
        Some(version) if *version >= Version::release(&TORCH) => Line::ok(topic, version.to_string()),
        Some(version) => {
            Line::problem(topic, version.to_string(), "install torch 2.10 or newer, the one vLLM 0.33 pins")
        }
    }
}

fn code_objects(facts: &Facts) -> Line {
    let topic = "code objects";
    match &facts.code_objects {
        None => Line::not_here(topic, "not known"),
        Some(CodeObjects::Unusable { found, hint }) => Line::problem(topic, found, hint),
        Some(CodeObjects::Verified(objects)) if objects.is_empty() => {
            Line::problem(topic, "the manifest lists none", "build them with `python3 kernels/build.py`")
        }
        Some(CodeObjects::Verified(objects)) => {
            let names: Vec<&str> = objects.keys().map(String::as_str).collect();
            Line::ok(topic, format!("{} verified: {}", names.len(), names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sample::{line, served};
    use super::*;
    use crate::doctor::State;

    fn faults(text: &str) -> usize {
        let version = text.parse().unwrap();
        KNOWN_BAD_ROCM.iter().filter(|bad| bad.has(&version)).count()
    }

    #[test]
    fn known_bad_releases_are_told_from_good_ones() {
        let cases = [
            ("6.4.3", 2),
            ("7.0.1", 2),
            ("7.0.2", 1),
            ("7.1.1", 1),
            ("7.2.0", 2),
            ("7.2", 2),
            ("7.2.0-43", 2),
            ("7.2.1", 1),
            ("7.2.3", 1),
            ("7.2.4", 0),
            ("7.14.0", 0),
            ("10.0", 0),
            ("10.0.0a20260901", 0),
        ];
        for (text, count) in cases {
            assert_eq!(faults(text), count, "{text}");
            let facts = Facts { rocm: Some(text.parse().unwrap()), ..served() };
            assert_eq!(line(&facts, "ROCm").state == State::Problem, count > 0, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_release_after_the_last_fault_is_bad(major in 7_u32..40, minor in 0_u32..40, patch in 0_u32..40) {
            let numbers = [major, minor, patch];
            let bad = KNOWN_BAD_ROCM.iter().any(|bad| bad.has(&Version::release(&numbers)));
            prop_assert_eq!(bad, numbers <= [7, 2, 3]);
        }
    }

    #[test]
    fn packages_are_judged_by_series() {
        let mut facts = served();
        for (text, state) in
            [("0.33.0", State::Ok), ("0.33.2rc1", State::Ok), ("0.34.0", State::Problem), ("0.3.3", State::Problem)]
        {
            facts.packages.vllm = Some(text.parse().unwrap());
            assert_eq!(line(&facts, "vLLM").state, state, "{text}");
        }
        for (text, state) in
            [("2.9.1", State::Problem), ("2.10.0", State::Ok), ("2.14.0+cpu", State::Ok), ("3.0", State::Ok)]
        {
            facts.packages.torch = Some(text.parse().unwrap());
            assert_eq!(line(&facts, "torch").state, state, "{text}");
        }
    }

    #[test]
    fn aiter_is_missed_only_where_rocm_is() {
        let mut facts = served();
        facts.packages.aiter_importable = Some(false);
        assert_eq!(line(&facts, "AITER").state, State::Problem);
        let mut elsewhere = Facts::default();
        elsewhere.packages.aiter_importable = Some(false);
        assert_eq!(line(&elsewhere, "AITER").state, State::NotHere);
    }

    #[test]
    fn code_objects_that_do_not_verify_say_why() {
        let mut facts = served();
        facts.code_objects = Some(CodeObjects::Unusable { found: "altered".into(), hint: "install again".into() });
        let unusable = line(&facts, "code objects");
        assert_eq!((unusable.state, unusable.found.as_str()), (State::Problem, "altered"));
        assert_eq!(unusable.hint.as_deref(), Some("install again"));
        facts.code_objects = Some(CodeObjects::Verified(std::collections::BTreeMap::new()));
        assert_eq!(line(&facts, "code objects").state, State::Problem);
    }
}
