//! Which GPUs a process sees: `ROCR_VISIBLE_DEVICES` chooses among the machine's, HIP's variable among what is left.

use std::collections::BTreeSet;

use super::{is_rocm_machine, RANKS};
use crate::doctor::facts::{Environment, Facts};
use crate::doctor::Line;

const TOPIC: &str = "visible devices";

/// A GPU as a list names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Choice {
    /// By its place among the devices that the layer below shows.
    Index(usize),
    /// By its UUID, which this page cannot follow to a place.
    Uuid(String),
}

/// The devices that the two variables leave, or why a list cannot be used; `machine` is how many there are, if known.
fn visible(
    machine: Option<usize>,
    rocr: Option<&str>,
    hip: Option<(&str, &str)>,
) -> Result<Option<Vec<Choice>>, String> {
    let mut devices = machine.map(|count| (0..count).map(Choice::Index).collect());
    if let Some(list) = rocr {
        devices = Some(choose("ROCR_VISIBLE_DEVICES", list, devices.as_deref(), "the machine")?);
    }
    if let Some((name, list)) = hip {
        let among = if rocr.is_some() { "ROCR_VISIBLE_DEVICES" } else { "the machine" };
        let chosen = choose(name, list, devices.as_deref(), among)?;
        devices = Some(match &devices {
            None => chosen,
            Some(devices) => chosen.iter().filter_map(|choice| resolve(choice, devices)).collect(),
        });
    }
    Ok(devices)
}

fn resolve(choice: &Choice, devices: &[Choice]) -> Option<Choice> {
    match choice {
        Choice::Index(index) => devices.get(*index).cloned(),
        Choice::Uuid(_) => Some(choice.clone()),
    }
}

/// Reads a list; every entry must exist among `devices`, and only once.
fn choose(name: &str, list: &str, devices: Option<&[Choice]>, among: &str) -> Result<Vec<Choice>, String> {
    let mut chosen = Vec::new();
    for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let choice = match entry.parse::<usize>() {
            Ok(index) => Choice::Index(index),
            Err(_) if entry.to_ascii_uppercase().starts_with("GPU-") => Choice::Uuid(entry.to_ascii_uppercase()),
            Err(_) => return Err(format!("{name}=`{list}`: `{entry}` is neither an index nor a UUID")),
        };
        if let (Choice::Index(index), Some(devices)) = (&choice, devices) {
            if *index >= devices.len() {
                let shown = devices.len();
                return Err(format!("{name}=`{list}`: {index} is out of range, {among} shows {shown}, counted from 0"));
            }
        }
        if chosen.contains(&choice) {
            return Err(format!("{name}=`{list}`: `{entry}` is named twice"));
        }
        chosen.push(choice);
    }
    Ok(chosen)
}

/// The line about all four variables.
pub fn line(facts: &Facts, environment: &Environment) -> Line {
    let set = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    // An empty ROCR_VISIBLE_DEVICES hides every GPU; HIP takes its own, empty, for unset.
    let rocr = environment.rocr_visible_devices.as_deref();
    let (hip, cuda) = (set(&environment.hip_visible_devices), set(&environment.cuda_visible_devices));
    if let (Some(value), None, None, false) = (&cuda, &hip, rocr, is_rocm_machine(facts)) {
        return Line::not_here(TOPIC, format!("CUDA_VISIBLE_DEVICES=`{value}`, on a machine of another kind"));
    }
    if let (Some(hip), Some(cuda)) = (&hip, &cuda) {
        if hip != cuda {
            let found = format!("HIP_VISIBLE_DEVICES=`{hip}`, CUDA_VISIBLE_DEVICES=`{cuda}`");
            return Line::problem(
                TOPIC,
                found,
                "unset CUDA_VISIBLE_DEVICES: HIP reads the first, and vLLM stops when they differ",
            );
        }
    }
    if let Some(value) = set(&environment.gpu_device_ordinal) {
        let hint = "unset it and use ROCR_VISIBLE_DEVICES alone: it hides GPUs once more";
        return Line::problem(TOPIC, format!("GPU_DEVICE_ORDINAL=`{value}`"), hint);
    }
    let of_hip = hip.as_deref().map(|list| ("HIP_VISIBLE_DEVICES", list));
    let of_hip = of_hip.or_else(|| cuda.as_deref().map(|list| ("CUDA_VISIBLE_DEVICES", list)));
    if rocr.is_none() && of_hip.is_none() {
        return Line::ok(TOPIC, "no variable hides any");
    }
    // A machine whose GPUs are not known, or has none, still tells whether the two lists fit each other.
    let machine = facts.gpus.as_ref().map(Vec::len).filter(|count| *count > 0);
    judge(visible(machine, rocr, of_hip), rocr.is_some() && of_hip.is_some())
}

fn judge(devices: Result<Option<Vec<Choice>>, String>, are_both: bool) -> Line {
    let both = if are_both { "; HIP counts among what ROCR_VISIBLE_DEVICES leaves" } else { "" };
    let devices = match devices {
        Ok(devices) => devices.unwrap_or_default(),
        Err(found) => return Line::problem(TOPIC, found, format!("name each GPU once, by an index that exists{both}")),
    };
    let names: Vec<String> = devices.iter().map(ToString::to_string).collect();
    let distinct: BTreeSet<&Choice> = devices.iter().collect();
    let found = if names.is_empty() {
        "none".into()
    } else {
        format!("{} of the machine's: {}", names.len(), names.join(", "))
    };
    if distinct.len() < RANKS {
        return Line::problem(TOPIC, found, format!("show all {RANKS} GPUs, or unset the variables{both}"));
    }
    Line::ok(TOPIC, found)
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Uuid(uuid) => f.write_str(uuid),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sample::{line as line_of, served};
    use super::*;
    use crate::doctor::State;

    const ALL: &str = "0,1,2,3,4,5,6,7";

    fn verdict(rocr: Option<&str>, hip: Option<&str>, cuda: Option<&str>) -> (State, String) {
        let mut facts = served();
        let environment = facts.environment.get_or_insert_default();
        environment.rocr_visible_devices = rocr.map(Into::into);
        environment.hip_visible_devices = hip.map(Into::into);
        environment.cuda_visible_devices = cuda.map(Into::into);
        let line = line_of(&facts, TOPIC);
        (line.state, line.found)
    }

    #[test]
    fn all_eight_are_ok_however_they_are_named() {
        assert_eq!(verdict(None, None, None), (State::Ok, "no variable hides any".into()));
        for (rocr, hip, cuda) in [
            (Some(ALL), None, None),
            (None, Some(ALL), Some(ALL)),
            (Some(ALL), Some(ALL), None),
            (None, None, Some(ALL)),
            (None, Some(""), None),
        ] {
            assert_eq!(verdict(rocr, hip, cuda).0, State::Ok, "{rocr:?} {hip:?} {cuda:?}");
        }
    }

    #[test]
    fn hip_counts_inside_what_rocr_leaves() {
        let (state, found) = verdict(Some("7,6,5,4,3,2,1,0"), Some("7,0,1,2,3,4,5,6"), None);
        assert_eq!((state, found.as_str()), (State::Ok, "8 of the machine's: 0, 7, 6, 5, 4, 3, 2, 1"));
        let (state, found) = verdict(Some("4,5,6,7"), Some("4,5,6,7"), None);
        assert_eq!(state, State::Problem);
        assert_eq!(
            found,
            "HIP_VISIBLE_DEVICES=`4,5,6,7`: 4 is out of range, ROCR_VISIBLE_DEVICES shows 4, counted from 0"
        );
        assert_eq!(verdict(Some("4,5,6,7"), Some("3,0"), None).1, "2 of the machine's: 7, 4");
    }

    #[test]
    fn lists_that_hide_or_repeat_or_miss_are_problems() {
        for (rocr, hip, cuda) in [
            (Some(""), None, None),
            (Some("0,1"), None, None),
            (None, Some("0,1,2,3,4,5,6,8"), None),
            (None, Some("0,0,1,2,3,4,5,6"), None),
            (None, Some("-1"), None),
            (None, Some(ALL), Some("0")),
            (Some("GPU-1,GPU-2"), None, None),
        ] {
            assert_eq!(verdict(rocr, hip, cuda).0, State::Problem, "{rocr:?} {hip:?} {cuda:?}");
        }
    }

    #[test]
    fn lists_are_judged_without_gpus_too() {
        let mut facts = Facts { gpus: Some(Vec::new()), environment: Some(Environment::default()), ..Facts::default() };
        facts.environment.get_or_insert_default().hip_visible_devices = Some("0".into());
        assert_eq!(line_of(&facts, TOPIC).state, State::Problem);
        facts.environment.get_or_insert_default().hip_visible_devices = Some(ALL.into());
        assert_eq!(line_of(&facts, TOPIC).state, State::Ok);
    }

    proptest! {
        #[test]
        fn what_is_left_are_places_of_the_machine(machine in 1_usize..10, rocr in prop::collection::vec(0_usize..10, 1..9), hip in prop::collection::vec(0_usize..10, 1..9)) {
            let write = |list: &[usize]| list.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
            let (rocr_text, hip_text) = (write(&rocr), write(&hip));
            if let Ok(Some(devices)) = visible(Some(machine), Some(&rocr_text), Some(("HIP_VISIBLE_DEVICES", &hip_text))) {
                let wanted: Vec<Choice> = hip.iter().map(|index| Choice::Index(rocr[*index])).collect();
                prop_assert_eq!(&devices, &wanted);
                prop_assert!(rocr.iter().all(|index| *index < machine));
                prop_assert_eq!(devices.iter().collect::<BTreeSet<_>>().len(), hip.len());
            }
        }
    }
}
