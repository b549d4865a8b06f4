//! Whether a machine can serve: facts in, one line each out. `docs/doctor.md` says what the lines mean.
//!
//! Nothing here looks at the machine: facts come from a probe or from a file, so that every verdict can be tested.

pub mod facts;
pub mod topology;
pub mod version;

mod verdicts;

use serde::Serialize;

pub use facts::Facts;
pub use version::Version;

/// What a fact means for serving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum State {
    /// As it should be.
    #[serde(rename = "ok")]
    Ok,
    /// Serving fails, or gives wrong results.
    #[serde(rename = "problem")]
    Problem,
    /// The thing is absent here, or the fact could not be known.
    #[serde(rename = "not here")]
    NotHere,
}

/// One verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// What it is about.
    pub topic: &'static str,
    /// The verdict.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do, or to mind.
    pub hint: Option<String>,
}

impl Line {
    fn new(topic: &'static str, state: State, found: impl Into<String>) -> Self {
        Self { topic, state, found: found.into(), hint: None }
    }

    fn ok(topic: &'static str, found: impl Into<String>) -> Self {
        Self::new(topic, State::Ok, found)
    }

    fn problem(topic: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(topic, State::Problem, found).hint(hint)
    }

    fn not_here(topic: &'static str, found: impl Into<String>) -> Self {
        Self::new(topic, State::NotHere, found)
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// Every line, and what they come to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// One verdict each, in the order in which causes precede effects.
    pub lines: Vec<Line>,
    /// `Problem` if one line is; else `NotHere` without a GPU to serve on, else `Ok`.
    pub verdict: State,
}

/// Judges all facts.
pub fn report(facts: &Facts) -> Report {
    let lines = examine(facts);
    let verdict = match &facts.gpus {
        _ if lines.iter().any(|line| line.state == State::Problem) => State::Problem,
        Some(gpus) if !gpus.is_empty() => State::Ok,
        _ => State::NotHere,
    };
    Report { lines, verdict }
}

/// Judges each fact.
pub fn examine(facts: &Facts) -> Vec<Line> {
    let parts = [verdicts::machine::lines(facts), verdicts::hip::lines(facts), verdicts::software::lines(facts)];
    parts.into_iter().flatten().chain(verdicts::environment::lines(facts)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::json;

    #[test]
    fn nothing_known_is_nothing_here() {
        let report = report(&Facts::default());
        assert!(report.lines.iter().all(|line| line.state == State::NotHere), "{:?}", report.lines);
        assert_eq!(report.verdict, State::NotHere);
    }

    #[test]
    fn a_served_machine_is_ok_and_survives_its_json() {
        let facts = verdicts::sample::served();
        let served = report(&facts);
        let odd: Vec<&Line> = served.lines.iter().filter(|line| line.state != State::Ok).collect();
        assert!(odd.is_empty(), "{odd:?}");
        assert_eq!(served.verdict, State::Ok);
        let again: json::Parsed<Facts> = json::parse(&serde_json::to_string(&facts).unwrap()).unwrap();
        assert_eq!(again, json::Parsed { value: facts, warnings: Vec::new() });
    }

    #[test]
    fn every_problem_says_what_to_do_and_every_topic_is_one_line() {
        let mut facts = verdicts::sample::served();
        facts.rocm = Some(Version::release(&[7, 0, 1]));
        facts.gpus.as_mut().unwrap().truncate(3);
        let report = report(&facts);
        assert_eq!(report.verdict, State::Problem);
        assert!(report.lines.iter().all(|line| line.state != State::Problem || line.hint.is_some()));
        let mut topics: Vec<&str> = report.lines.iter().map(|line| line.topic).collect();
        topics.sort_unstable();
        topics.dedup();
        assert_eq!(topics.len(), report.lines.len());
    }

    #[test]
    fn wrong_facts_are_placed() {
        for (text, path) in [
            (r#"{"rocm": "banana"}"#, "`$.rocm`: unknown version format `banana`"),
            (
                r#"{"gpus": [{"gfx": "gfx950", "compute_units": "all", "pci": "0000:75:00.0"}]}"#,
                "`$.gpus[0].compute_units`",
            ),
            (r#"{"hip": {"library": {"loaded": "x"}, "driver": {"value": -1}}}"#, "`$.hip.driver.value`"),
        ] {
            let error = json::parse::<Facts>(text).unwrap_err().to_string();
            assert!(error.starts_with(path), "{error}");
        }
    }
}
