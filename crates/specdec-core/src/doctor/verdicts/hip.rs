//! What the HIP library answered.

use std::collections::BTreeSet;
use std::fmt::Display;

use super::{is_rocm_machine, RANKS, WORKGROUPS};
use crate::doctor::facts::{Device, Facts, Failure, Hip, Library, Memory, Namespaces, Probe};
use crate::doctor::{Line, Version};

/// `hipErrorNoDevice`.
const NO_DEVICE: i32 = 100;
/// `hipErrorInvalidContext` and `hipErrorInvalidDevicePointer`: what an import says when the exporter is out of sight.
const OUT_OF_SIGHT: [i32; 2] = [201, 17];
/// Of 100, how much of a GPU's memory the public recipe lets vLLM take; it refuses to start when less is free.
const TAKEN_BY_RECIPE: u64 = 95;
const GIB: f64 = (1_u64 << 30) as f64;

/// Inode numbers of the host's own namespaces, fixed by Linux. That of the network is not.
const HOST_IPC: u64 = 0xEFFF_FFFF;
const HOST_PID: u64 = 0xEFFF_FFFC;

const BROKEN: &str = "install a complete ROCm newer than 7.2.3 with its driver, and see the lines above";

/// Lines about HIP, one for each thing that the runtime will ask of it.
pub fn lines(facts: &Facts) -> Vec<Line> {
    let version = |topic, probe: fn(&Hip) -> Option<&Probe<u32>>| version(facts, topic, probe);
    vec![
        library(facts),
        version("HIP driver", |hip| hip.driver.as_ref()),
        version("HIP runtime", |hip| hip.runtime.as_ref()),
        devices(facts),
        device_addresses(facts),
        device_units(facts),
        peers(facts),
        switches(facts, "uncached memory", "an uncached page", |device| device.uncached.as_ref()),
        switches(facts, "IPC export", "a handle of an uncached page", |device| device.exported.as_ref()),
        ipc_import(facts),
        namespaces(facts),
        memory(facts),
    ]
}

fn library(facts: &Facts) -> Line {
    let topic = "HIP library";
    match facts.hip.as_ref().map(|hip| &hip.library) {
        None => Line::not_here(topic, "not known"),
        Some(Library::Loaded(path)) => Line::ok(topic, format!("`{path}`")),
        Some(Library::Unusable(why)) => Line::problem(topic, why, BROKEN),
        Some(Library::NotFound(places)) => {
            let places: Vec<String> = places.iter().map(|place| format!("`{place}`")).collect();
            let found = format!("not found; looked for {}", places.join(", "));
            if is_rocm_machine(facts) {
                let hint = "install ROCm, or put its `lib` into LD_LIBRARY_PATH (ROCm's wheels: `_rocm_sdk_core/lib`)";
                return Line::problem(topic, found, hint);
            }
            Line::not_here(topic, found)
        }
    }
}

fn version(facts: &Facts, topic: &'static str, probe: fn(&Hip) -> Option<&Probe<u32>>) -> Line {
    match facts.hip.as_ref().and_then(probe) {
        None => Line::not_here(topic, "not known"),
        Some(Probe::Value(number)) => Line::ok(topic, Version::from_hip(*number).to_string()),
        Some(other) => refused(facts, topic, other),
    }
}

/// A question to the library that got no answer.
fn refused<T>(facts: &Facts, topic: &'static str, probe: &Probe<T>) -> Line {
    let has_gpus = facts.gpus.as_ref().is_none_or(|gpus| !gpus.is_empty());
    let found = why(probe).unwrap_or_default();
    match probe {
        Probe::Failed(Failure { status: NO_DEVICE, .. }) if !has_gpus => Line::not_here(topic, found),
        _ => Line::problem(topic, found, BROKEN),
    }
}

/// Why a probe has no value.
fn why<T>(probe: &Probe<T>) -> Option<String> {
    match probe {
        Probe::Value(_) => None,
        Probe::Missing(function) => Some(format!("the library has no `{function}`")),
        Probe::Failed(Failure { call, status, name }) => {
            let name = name.as_ref().map_or_else(|| format!("status {status}"), |name| format!("{name} ({status})"));
            Some(format!("`{call}` failed with {name}"))
        }
    }
}

fn known_devices(facts: &Facts) -> Option<&[Device]> {
    match facts.hip.as_ref()?.devices.as_ref()? {
        Probe::Value(devices) if !devices.is_empty() => Some(devices),
        _ => None,
    }
}

fn devices(facts: &Facts) -> Line {
    let topic = "HIP devices";
    match facts.hip.as_ref().and_then(|hip| hip.devices.as_ref()) {
        None => Line::not_here(topic, "not known"),
        Some(Probe::Value(devices)) if devices.is_empty() && facts.gpus.as_ref().is_some_and(Vec::is_empty) => {
            Line::not_here(topic, "none")
        }
        Some(Probe::Value(devices)) if devices.len() < RANKS => {
            let hint = "show this process eight GPUs: see the lines on GPUs, /dev/kfd and visible devices";
            Line::problem(topic, format!("{}, of {RANKS} that the ranks need", devices.len()), hint)
        }
        Some(Probe::Value(devices)) => Line::ok(topic, devices.len().to_string()),
        Some(other) => refused(facts, topic, other),
    }
}

/// What a probe says of all devices: answers, and complaints that name their device.
struct Answers<T> {
    values: Vec<(usize, T)>,
    complaints: Vec<String>,
}

/// `None` where no device was asked.
fn ask<T: Clone>(facts: &Facts, probe: impl Fn(&Device) -> Option<&Probe<T>>) -> Option<Answers<T>> {
    let mut answers = Answers { values: Vec::new(), complaints: Vec::new() };
    for (index, device) in known_devices(facts)?.iter().enumerate() {
        match probe(device) {
            None => {}
            Some(Probe::Value(value)) => answers.values.push((index, value.clone())),
            Some(other) => answers.complaints.extend(why(other).map(|why| format!("device {index}: {why}"))),
        }
    }
    (answers.values.len() + answers.complaints.len() > 0).then_some(answers)
}

impl<T: Display> Answers<T> {
    /// Adds a complaint for each value that is not wanted.
    fn complain_unless(&mut self, wanted: impl Fn(&T) -> bool, verb: &str) {
        let other = self.values.iter().filter(|(_, value)| !wanted(value));
        self.complaints.extend(other.map(|(index, value)| format!("device {index} {verb} {value}")));
    }
}

fn device_addresses(facts: &Facts) -> Line {
    let topic = "HIP physical GPUs";
    let Some(answers) = ask(facts, |device| device.pci.as_ref()) else { return Line::not_here(topic, "no device") };
    if !answers.complaints.is_empty() {
        return Line::problem(topic, answers.complaints.join("; "), BROKEN);
    }
    let places: BTreeSet<_> = answers.values.iter().map(|(_, address)| address.physical()).collect();
    let found = format!("{} devices on {} physical GPUs", answers.values.len(), places.len());
    if places.len() < answers.values.len() {
        return Line::problem(topic, found, "show each rank a physical GPU of its own: whole GPUs, each named once");
    }
    Line::ok(topic, found)
}

fn device_units(facts: &Facts) -> Line {
    let topic = "HIP compute units";
    let Some(mut answers) = ask(facts, |device| device.compute_units.as_ref()) else {
        return Line::not_here(topic, "no device");
    };
    answers.complain_unless(|units| *units == WORKGROUPS, "has");
    if answers.complaints.is_empty() {
        return Line::ok(topic, format!("{WORKGROUPS} on each"));
    }
    let hint = format!("{WORKGROUPS} workgroups must be resident at once: show whole MI355X (partition mode SPX)");
    Line::problem(topic, answers.complaints.join("; "), hint)
}

fn peers(facts: &Facts) -> Line {
    let topic = "peer access";
    let devices = known_devices(facts).unwrap_or_default();
    let mut asked = 0;
    let mut complaints = Vec::new();
    for (from, device) in devices.iter().enumerate() {
        for (to, probe) in device.peers.iter().enumerate().filter(|(to, _)| *to != from) {
            asked += 1;
            match probe {
                Probe::Value(true) => {}
                Probe::Value(false) => complaints.push(format!("{from} cannot reach {to}")),
                other => complaints.extend(why(other).map(|why| format!("{from} to {to}: {why}"))),
            }
        }
    }
    if !complaints.is_empty() {
        let hint =
            "the ranks write into each other's memory: link the GPUs by XGMI, keep IOMMU in pass-through (`iommu=pt`)";
        return Line::problem(topic, complaints.join("; "), hint);
    }
    if asked == 0 {
        return Line::not_here(topic, "no pair of devices");
    }
    Line::ok(topic, format!("{asked} of {asked} directed pairs"))
}

fn switches(facts: &Facts, topic: &'static str, what: &str, probe: fn(&Device) -> Option<&Probe<bool>>) -> Line {
    let Some(mut answers) = ask(facts, probe) else {
        return Line::not_here(topic, if known_devices(facts).is_some() { "not tried" } else { "no device" });
    };
    answers.complain_unless(|works| *works, "answered");
    if answers.complaints.is_empty() {
        return Line::ok(topic, format!("{what} on each of {} devices", answers.values.len()));
    }
    Line::problem(topic, answers.complaints.join("; "), BROKEN)
}

fn ipc_import(facts: &Facts) -> Line {
    let line = switches(facts, "IPC import", "by another process", |device| device.imported.as_ref());
    let is_out_of_sight = |device: &Device| match &device.imported {
        Some(Probe::Failed(failure)) => OUT_OF_SIGHT.contains(&failure.status),
        _ => false,
    };
    if !known_devices(facts).unwrap_or_default().iter().any(is_out_of_sight) {
        return line;
    }
    line.hint(
        "run all ranks in one container, or share its ipc, pid and network namespaces: \
               `--ipc host --pid host --network host`",
    )
}

fn namespaces(facts: &Facts) -> Line {
    let topic = "namespaces";
    let Some(Namespaces { ipc, pid, net }) = facts.namespaces else { return Line::not_here(topic, "not known") };
    let own: Vec<&str> = [("ipc", ipc != HOST_IPC), ("pid", pid != HOST_PID)]
        .into_iter()
        .filter_map(|(name, is_own)| is_own.then_some(name))
        .collect();
    let found = format!("ipc {ipc}, pid {pid}, net {net}");
    if own.is_empty() {
        return Line::ok(topic, found);
    }
    let own = own.join(" and ");
    Line::ok(topic, format!("{found}; {own} not the host's"))
        .hint("all ranks must run in this container: one in another could not import peer memory (errors 201 and 17)")
}

fn memory(facts: &Facts) -> Line {
    let topic = "memory";
    let values = known_devices(facts).unwrap_or_default();
    let Some(answers) = ask(facts, |device| device.memory.as_ref()) else { return Line::not_here(topic, "no device") };
    let mut complaints = answers.complaints;
    for (index, Memory { free_bytes, total_bytes }) in &answers.values {
        if u128::from(*free_bytes) * 100 < u128::from(*total_bytes) * u128::from(TAKEN_BY_RECIPE) {
            let (free, total) = (*free_bytes as f64 / GIB, *total_bytes as f64 / GIB);
            complaints.push(format!("device {index} has {free:.1} of {total:.1} GiB free"));
        }
    }
    if !complaints.is_empty() {
        let hint = format!("stop what holds the memory, or serve with a --gpu-memory-utilization below the recipe's 0.{TAKEN_BY_RECIPE}");
        return Line::problem(topic, complaints.join("; "), hint);
    }
    let least = answers.values.iter().map(|(_, memory)| memory.free_bytes).min().unwrap_or_default();
    Line::ok(topic, format!("at least {:.1} GiB free on each of {} devices", least as f64 / GIB, values.len()))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{line, served};
    use super::*;
    use crate::doctor::State;

    fn spoiled(change: impl Fn(&mut Device)) -> Facts {
        let mut facts = served();
        if let Some(Probe::Value(devices)) = facts.hip.as_mut().and_then(|hip| hip.devices.as_mut()) {
            change(&mut devices[3]);
        }
        facts
    }

    fn failed<T>(call: &str, status: i32) -> Probe<T> {
        Probe::Failed(Failure { call: call.into(), status, name: None })
    }

    #[test]
    fn each_probe_has_its_line() {
        let facts = served();
        for (topic, found) in [
            ("HIP library", "`libamdhip64.so.7`"),
            ("HIP driver", "7.14.26015"),
            ("HIP devices", "8"),
            ("HIP physical GPUs", "8 devices on 8 physical GPUs"),
            ("HIP compute units", "256 on each"),
            ("peer access", "56 of 56 directed pairs"),
            ("uncached memory", "an uncached page on each of 8 devices"),
            ("IPC import", "by another process on each of 8 devices"),
            ("memory", "at least 287.0 GiB free on each of 8 devices"),
        ] {
            let line = line(&facts, topic);
            assert_eq!((line.state, line.found.as_str()), (State::Ok, found), "{topic}");
        }
    }

    #[test]
    fn a_failed_call_is_named_with_its_device() {
        let facts = spoiled(|device| {
            device.uncached = Some(failed("hipExtMallocWithFlags", 2));
            device.exported = Some(Probe::Missing("hipIpcGetMemHandle".into()));
            device.peers[5] = Probe::Value(false);
            device.compute_units = Some(Probe::Value(128));
            device.memory = Some(Probe::Value(Memory { free_bytes: 1 << 30, total_bytes: 288 << 30 }));
        });
        for (topic, found) in [
            ("uncached memory", "device 3: `hipExtMallocWithFlags` failed with status 2"),
            ("IPC export", "device 3: the library has no `hipIpcGetMemHandle`"),
            ("peer access", "3 cannot reach 5"),
            ("HIP compute units", "device 3 has 128"),
            ("memory", "device 3 has 1.0 of 288.0 GiB free"),
        ] {
            let line = line(&facts, topic);
            assert_eq!((line.state, line.found.as_str()), (State::Problem, found), "{topic}");
        }
    }

    #[test]
    fn an_exporter_out_of_sight_means_other_namespaces() {
        for (status, names_them) in [(201, true), (17, true), (2, false)] {
            let facts = spoiled(|device| device.imported = Some(failed("hipIpcOpenMemHandle", status)));
            let line = line(&facts, "IPC import");
            assert_eq!(line.state, State::Problem);
            assert_eq!(line.hint.is_some_and(|hint| hint.contains("--ipc host --pid host --network host")), names_them);
        }
        let mut facts = served();
        facts.namespaces = Some(Namespaces { ipc: 4_026_532_300, pid: HOST_PID, net: 1 });
        let line = line(&facts, "namespaces");
        assert!(line.found.ends_with("ipc not the host's") && line.hint.is_some(), "{}", line.found);
    }

    #[test]
    fn an_absent_library_is_a_problem_only_beside_rocm() {
        let missing = |facts: Facts| Facts {
            hip: Some(Hip {
                library: Library::NotFound(vec!["libamdhip64.so.7".into()]),
                driver: None,
                runtime: None,
                devices: None,
            }),
            ..facts
        };
        assert_eq!(line(&missing(served()), "HIP library").state, State::Problem);
        assert_eq!(line(&missing(Facts::default()), "HIP library").state, State::NotHere);
        assert_eq!(line(&missing(Facts::default()), "peer access").state, State::NotHere);
    }

    #[test]
    fn no_device_is_no_fault_without_gpus() {
        let mut facts = served();
        facts.hip.as_mut().unwrap().devices = Some(failed("hipGetDeviceCount", NO_DEVICE));
        assert_eq!(line(&facts, "HIP devices").state, State::Problem);
        facts.gpus = Some(Vec::new());
        assert_eq!(line(&facts, "HIP devices").state, State::NotHere);
    }
}
