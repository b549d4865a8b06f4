//! Options of schedules and memory, and race reports as Python values.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use specdec_emu::machine::{Location, RaceAccess, RaceReport, Schedule};

use crate::error;

/// How waves take turns, by name.
pub fn schedule(name: &str) -> PyResult<Schedule> {
    match name {
        "turns" => Ok(Schedule::Turns),
        "priorities" => Ok(Schedule::Priorities),
        _ => Err(error::unknown("schedule", name, "turns, priorities")),
    }
}

/// Whether a check of that name is the race check: there is no other.
pub fn is_race_check(name: &str) -> PyResult<bool> {
    match name {
        "races" => Ok(true),
        _ => Err(error::unknown("check", name, "races")),
    }
}

/// Whether memory of that name is weak.
pub fn is_weak(memory: &str) -> PyResult<bool> {
    match memory {
        "strong" => Ok(false),
        "weak" => Ok(true),
        _ => Err(error::unknown("memory", memory, "strong, weak")),
    }
}

/// The kernel stage at a location: the outermost function of a file of `stages/`.
fn stage(at: &Location) -> Option<&str> {
    let mut stages = at.functions.iter().filter(|source| source.file.contains("stages/"));
    stages.next_back().map(|source| source.function.as_str())
}

fn access<'py>(py: Python<'py>, access: &RaceAccess) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    let at = &access.at;
    out.set_item("access", access.name())?;
    out.set_item("rank", at.rank.0)?;
    out.set_item("layer", access.row)?;
    out.set_item("stage", stage(at))?;
    out.set_item("workgroup", at.workgroup)?;
    out.set_item("wave", at.wave)?;
    out.set_item("lane", at.lane)?;
    out.set_item("pc", at.pc)?;
    out.set_item("instruction", &at.instruction)?;
    let source: Vec<String> = at.functions.iter().map(ToString::to_string).collect();
    out.set_item("source", source)?;
    Ok(out)
}

/// Each report as a dictionary: `kind`, `missing`, `place`, `address`, `count`, `message`, and `first` and `second`.
pub fn as_list<'py>(py: Python<'py>, reports: &[RaceReport]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for report in reports {
        let out = PyDict::new(py);
        out.set_item("kind", report.kind.name())?;
        out.set_item("missing", report.kind.missing())?;
        out.set_item("place", &report.place)?;
        out.set_item("count", report.count)?;
        out.set_item("first", access(py, &report.first)?)?;
        out.set_item("second", access(py, &report.second)?)?;
        out.set_item("message", report.to_string())?;
        list.append(out)?;
    }
    Ok(list)
}
