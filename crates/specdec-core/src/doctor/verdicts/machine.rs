//! GPUs as the kernel driver lists them.

use std::collections::{BTreeMap, BTreeSet};

use super::{is_rocm_machine, target_gpus, RANKS, TARGET, WORKGROUPS};
use crate::doctor::facts::{DeviceNode, Facts, Gpu};
use crate::doctor::Line;

const NOT_KNOWN: &str = "not known";
const NO_GPU: &str = "no AMD GPU";

/// Lines about GPUs.
pub fn lines(facts: &Facts) -> Vec<Line> {
    vec![gpus(facts), compute_units(facts), physical(facts), partitions(facts), device_node(facts), driver(facts)]
}

fn gpus(facts: &Facts) -> Line {
    let topic = "GPUs";
    let Some(gpus) = &facts.gpus else { return Line::not_here(topic, NOT_KNOWN) };
    if gpus.is_empty() {
        let line = Line::not_here(topic, NO_GPU);
        let hint = "load the amdgpu driver; a container wants `--device /dev/kfd --device /dev/dri`";
        return if is_rocm_machine(facts) { line.hint(hint) } else { line };
    }
    let mut counts = BTreeMap::new();
    for gpu in gpus {
        *counts.entry(&gpu.gfx).or_insert(0) += 1;
    }
    let found = counts.iter().map(|(gfx, count)| format!("{count} x {gfx}")).collect::<Vec<_>>().join(", ");
    let served = target_gpus(facts).len();
    if served < RANKS {
        let hint = format!("serve on a machine with {RANKS} MI355X ({TARGET}), one for each rank");
        return Line::problem(topic, found, hint);
    }
    let line = Line::ok(topic, found);
    if served < gpus.len() {
        return line.hint(format!("only the {TARGET} are served; show no others in ROCR_VISIBLE_DEVICES"));
    }
    line
}

/// Partitioned GPUs show some of their compute units; a mask shows all and gives some (see the environment's lines).
fn compute_units(facts: &Facts) -> Line {
    let topic = "compute units";
    let gpus = target_gpus(facts);
    if gpus.is_empty() {
        return Line::not_here(topic, format!("no {TARGET} known"));
    }
    let other: Vec<_> = gpus.iter().filter(|gpu| gpu.compute_units != WORKGROUPS).collect();
    if other.is_empty() {
        return Line::ok(topic, format!("{WORKGROUPS} on each"));
    }
    let found: Vec<String> = other.iter().map(|gpu| format!("{} has {}", gpu.pci, gpu.compute_units)).collect();
    let hint = format!("{WORKGROUPS} workgroups must be resident at once: serve on whole GPUs (partition mode SPX)");
    Line::problem(topic, format!("{}; {WORKGROUPS} are needed", found.join(", ")), hint)
}

fn physical(facts: &Facts) -> Line {
    let topic = "physical GPUs";
    let gpus = target_gpus(facts);
    if gpus.is_empty() {
        return Line::not_here(topic, format!("no {TARGET} known"));
    }
    let places: BTreeSet<_> = gpus.iter().map(|gpu| gpu.pci.physical()).collect();
    let found = format!("{} devices on {} physical GPUs", gpus.len(), places.len());
    if places.len() < gpus.len() {
        let hint = format!("the {RANKS} ranks need a whole GPU each: set partition mode SPX");
        return Line::problem(topic, found, hint);
    }
    Line::ok(topic, found)
}

fn partitions(facts: &Facts) -> Line {
    let topic = "partition mode";
    let gpus = target_gpus(facts);
    let describe = |gpu: &&Gpu| {
        let compute = gpu.compute_partition.as_deref()?;
        Some(gpu.memory_partition.as_deref().map_or_else(|| compute.into(), |memory| format!("{compute}/{memory}")))
    };
    let modes: BTreeSet<String> = gpus.iter().filter_map(describe).collect();
    if modes.is_empty() {
        return Line::not_here(topic, "the kernel driver names no partition mode");
    }
    let found = modes.into_iter().collect::<Vec<_>>().join(", ");
    let is_whole = |gpu: &&Gpu| gpu.compute_partition.as_deref().is_none_or(|mode| mode.eq_ignore_ascii_case("SPX"));
    if gpus.iter().all(is_whole) {
        return Line::ok(topic, found);
    }
    Line::problem(
        topic,
        found,
        "set it back, as root, while nothing runs: `amd-smi set --gpu all --compute-partition SPX`",
    )
}

fn device_node(facts: &Facts) -> Line {
    let topic = "/dev/kfd";
    match facts.device_node {
        None => Line::not_here(topic, "not known"),
        Some(DeviceNode::Open) => Line::ok(topic, "can be opened"),
        Some(DeviceNode::Denied) => {
            let hint = "add the user to the groups that own it: `ls -l /dev/kfd /dev/dri`, mostly render and video";
            Line::problem(topic, "this user may not open it", hint)
        }
        Some(DeviceNode::Absent) if facts.gpus.as_ref().is_some_and(|gpus| !gpus.is_empty()) => {
            let hint = "start the container with `--device /dev/kfd --device /dev/dri`";
            Line::problem(topic, "absent, though the kernel driver lists GPUs", hint)
        }
        Some(DeviceNode::Absent) => Line::not_here(topic, "absent"),
    }
}

fn driver(facts: &Facts) -> Line {
    let topic = "amdgpu driver";
    match &facts.amdgpu {
        Some(version) => Line::ok(topic, version.to_string()),
        None => Line::not_here(topic, "no version: the kernel's own module has none, or none is loaded"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{line, served};
    use super::*;
    use crate::doctor::State;

    #[test]
    fn eight_whole_gpus_are_ok() {
        let facts = served();
        for (topic, found) in [
            ("GPUs", "8 x gfx950"),
            ("compute units", "256 on each"),
            ("physical GPUs", "8 devices on 8 physical GPUs"),
            ("partition mode", "SPX/NPS1"),
            ("/dev/kfd", "can be opened"),
            ("amdgpu driver", "6.16.6"),
        ] {
            let line = line(&facts, topic);
            assert_eq!((line.state, line.found.as_str(), line.hint), (State::Ok, found, None), "{topic}");
        }
    }

    #[test]
    fn a_slice_of_a_gpu_is_no_gpu() {
        let mut facts = served();
        for (index, gpu) in facts.gpus.iter_mut().flatten().enumerate() {
            gpu.compute_units = 32;
            gpu.pci = format!("0000:75:00.{index}").parse().unwrap();
            gpu.compute_partition = Some("CPX".into());
        }
        let physical = line(&facts, "physical GPUs");
        assert_eq!((physical.state, physical.found.as_str()), (State::Problem, "8 devices on 1 physical GPUs"));
        assert_eq!(line(&facts, "compute units").state, State::Problem);
        assert_eq!(line(&facts, "partition mode").found, "CPX/NPS1");
        assert_eq!(line(&facts, "partition mode").state, State::Problem);
    }

    #[test]
    fn too_few_and_foreign_gpus_are_named() {
        let mut facts = served();
        let foreign = Gpu { gfx: "gfx1036".parse().unwrap(), ..facts.gpus.as_ref().unwrap()[0].clone() };
        facts.gpus.as_mut().unwrap().push(foreign);
        let mixed = line(&facts, "GPUs");
        assert_eq!((mixed.state, mixed.found.as_str()), (State::Ok, "1 x gfx1036, 8 x gfx950"));
        assert!(mixed.hint.is_some_and(|hint| hint.contains("ROCR_VISIBLE_DEVICES")));
        facts.gpus.as_mut().unwrap().remove(0);
        assert_eq!(line(&facts, "GPUs").state, State::Problem);
    }

    #[test]
    fn the_device_node_is_a_problem_only_beside_gpus() {
        let mut facts = served();
        for (node, state) in [(DeviceNode::Denied, State::Problem), (DeviceNode::Absent, State::Problem)] {
            facts.device_node = Some(node);
            assert_eq!(line(&facts, "/dev/kfd").state, state);
        }
        facts.gpus = Some(Vec::new());
        assert_eq!(line(&facts, "/dev/kfd").state, State::NotHere);
        assert!(line(&facts, "GPUs").hint.is_some_and(|hint| hint.contains("--device /dev/kfd")));
    }
}
