//! A machine on which everything is as it should be, for tests to spoil.

use std::collections::BTreeMap;

use crate::doctor::facts::{
    CodeObjects, Device, DeviceNode, Environment, Facts, Gpu, Hip, Library, Memory, Namespaces, Packages, Probe,
};
use crate::doctor::{examine, Line};

/// Eight MI355X, all software recent.
pub fn served() -> Facts {
    let pci = |index: usize| format!("0000:{index:02x}:00.0").parse().unwrap();
    let gpu = |index| Gpu {
        gfx: "gfx950".parse().unwrap(),
        compute_units: 256,
        pci: pci(index),
        compute_partition: Some("SPX".into()),
        memory_partition: Some("NPS1".into()),
    };
    let device = |index| Device {
        pci: Some(Probe::Value(pci(index))),
        compute_units: Some(Probe::Value(256)),
        peers: (0..8).map(|peer| Probe::Value(peer != index)).collect(),
        memory: Some(Probe::Value(Memory { free_bytes: 287 << 30, total_bytes: 288 << 30 })),
        uncached: Some(Probe::Value(true)),
        exported: Some(Probe::Value(true)),
        imported: Some(Probe::Value(true)),
    };
    Facts {
        gpus: Some((0..8).map(gpu).collect()),
        device_node: Some(DeviceNode::Open),
        hip: Some(Hip {
            library: Library::Loaded("libamdhip64.so.7".into()),
            driver: Some(Probe::Value(71_426_015)),
            runtime: Some(Probe::Value(71_426_015)),
            devices: Some(Probe::Value((0..8).map(device).collect())),
        }),
        amdgpu: Some("6.16.6".parse().unwrap()),
        rocm: Some("7.14.0".parse().unwrap()),
        packages: Packages {
            vllm: Some("0.33.0".parse().unwrap()),
            aiter: Some("0.1.9".parse().unwrap()),
            aiter_importable: Some(true),
            torch: Some("2.14.0".parse().unwrap()),
        },
        environment: Some(Environment {
            vllm_rocm_use_aiter: Some("1".into()),
            vllm_rocm_use_aiter_fp4bmm: Some("1".into()),
            ..Environment::default()
        }),
        namespaces: Some(Namespaces { ipc: 0xEFFF_FFFF, pid: 0xEFFF_FFFC, net: 0xEFFF_FFF9 }),
        code_objects: Some(CodeObjects::Verified(BTreeMap::from([("layers_k3_tp8".into(), "00".into())]))),
    }
}

/// The line about a topic.
pub fn line(facts: &Facts, topic: &str) -> Line {
    examine(facts).into_iter().find(|line| line.topic == topic).unwrap()
}
