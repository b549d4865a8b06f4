//! What can be known about a machine: plain values, read from it or from a file.
//!
//! `None` is always "could not be known"; a probe that was tried and failed says so itself.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::topology::{Gfx, PciAddress};
use super::version::Version;

/// Everything that the verdicts look at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// GPUs as the kernel driver lists them, all of the machine or container.
    pub gpus: Option<Vec<Gpu>>,
    /// Whether this process may open the kernel driver's device.
    pub device_node: Option<DeviceNode>,
    /// What the HIP library says.
    pub hip: Option<Hip>,
    /// Version of the amdgpu kernel module; modules that come with the kernel have none.
    pub amdgpu: Option<Version>,
    /// Version of the GPU stack below `/opt/rocm`.
    pub rocm: Option<Version>,
    /// Python packages.
    pub packages: Packages,
    /// Environment variables that matter.
    pub environment: Option<Environment>,
    /// Kernel namespaces of this process.
    pub namespaces: Option<Namespaces>,
    /// The code objects of this package.
    pub code_objects: Option<CodeObjects>,
}

/// A GPU, or a partition of one, in the kernel driver's topology.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Instruction set.
    pub gfx: Gfx,
    /// Compute units.
    pub compute_units: u32,
    /// Where it sits; partitions of a GPU share it.
    pub pci: PciAddress,
    /// Compute partition mode, `SPX` for a whole GPU.
    #[serde(default)]
    pub compute_partition: Option<String>,
    /// Memory partition mode.
    #[serde(default)]
    pub memory_partition: Option<String>,
}

/// The kernel driver's device, which every HIP process opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceNode {
    /// It is not there.
    Absent,
    /// It is there, but not for this user.
    Denied,
    /// It can be opened.
    Open,
}

/// What came of a question to HIP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", try_from = "Answer<T>", bound(deserialize = "T: Deserialize<'de>"))]
pub enum Probe<T> {
    /// The answer.
    Value(T),
    /// The call failed.
    Failed(Failure),
    /// The library has no such function.
    Missing(String),
}

/// The same as a map, so that a key which is not read can be named with its whole path.
#[derive(Deserialize)]
struct Answer<T> {
    value: Option<T>,
    failed: Option<Failure>,
    missing: Option<String>,
}

impl<T> TryFrom<Answer<T>> for Probe<T> {
    type Error = &'static str;

    fn try_from(answer: Answer<T>) -> Result<Self, Self::Error> {
        match answer {
            Answer { value: Some(value), failed: None, missing: None } => Ok(Self::Value(value)),
            Answer { value: None, failed: Some(failure), missing: None } => Ok(Self::Failed(failure)),
            Answer { value: None, failed: None, missing: Some(function) } => Ok(Self::Missing(function)),
            _ => Err("a probe has exactly one of `value`, `failed` and `missing`"),
        }
    }
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Function.
    pub call: String,
    /// Its `hipError_t`.
    pub status: i32,
    /// The status' name, where it has one.
    #[serde(default)]
    pub name: Option<String>,
}

/// The HIP library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hip {
    /// Where it was found, or why it was not.
    pub library: Library,
    /// Version of the driver, as HIP numbers it.
    #[serde(default)]
    pub driver: Option<Probe<u32>>,
    /// Version of the runtime, as HIP numbers it.
    #[serde(default)]
    pub runtime: Option<Probe<u32>>,
    /// The devices that this process may use.
    #[serde(default)]
    pub devices: Option<Probe<Vec<Device>>>,
}

/// Whether there is a HIP library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Library {
    /// It was loaded, from here.
    Loaded(String),
    /// It was not found; where it was looked for.
    NotFound(Vec<String>),
    /// It is there and cannot be used, for this reason.
    Unusable(String),
}

/// A device as HIP sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Where it sits.
    #[serde(default)]
    pub pci: Option<Probe<PciAddress>>,
    /// Compute units.
    #[serde(default)]
    pub compute_units: Option<Probe<u32>>,
    /// For each device, whether this one can reach its memory; itself too, which does not count.
    #[serde(default)]
    pub peers: Vec<Probe<bool>>,
    /// Memory.
    #[serde(default)]
    pub memory: Option<Probe<Memory>>,
    /// Whether uncached memory can be had.
    #[serde(default)]
    pub uncached: Option<Probe<bool>>,
    /// Whether uncached memory can be exported to other processes.
    #[serde(default)]
    pub exported: Option<Probe<bool>>,
    /// Whether another process could import it.
    #[serde(default)]
    pub imported: Option<Probe<bool>>,
}

/// Memory of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes that nobody has taken.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// Python packages that matter, each absent or with its version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Packages {
    /// vLLM.
    pub vllm: Option<Version>,
    /// AITER's version, where it was installed as a package.
    pub aiter: Option<Version>,
    /// Whether `import aiter` would find something.
    pub aiter_importable: Option<bool>,
    /// torch.
    pub torch: Option<Version>,
}

/// Kernel namespaces, by inode number; two processes share one if the numbers are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// Of System V and POSIX IPC.
    pub ipc: u64,
    /// Of process numbers.
    pub pid: u64,
    /// Of the network.
    pub net: u64,
}

/// The code objects that the package holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodeObjects {
    /// Every one has the sha256 that the manifest names; by name.
    Verified(BTreeMap<String, String>),
    /// They cannot be used.
    Unusable {
        /// What is wrong.
        found: String,
        /// What to do.
        hint: String,
    },
}

macro_rules! environment {
    ($($(#[$doc:meta])* $field:ident = $name:literal,)*) => {
        /// Environment variables that change what the decode does; `None` is unset.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Environment {
            $($(#[$doc])* #[serde(rename = $name)] pub $field: Option<String>,)*
        }

        impl Environment {
            /// Their names.
            pub const NAMES: &'static [&'static str] = &[$($name),*];
        }
    };
}

environment! {
    /// Devices that the layer below HIP shows.
    rocr_visible_devices = "ROCR_VISIBLE_DEVICES",
    /// Devices that HIP shows, of those that the layer below shows.
    hip_visible_devices = "HIP_VISIBLE_DEVICES",
    /// What HIP reads where its own variable is unset.
    cuda_visible_devices = "CUDA_VISIBLE_DEVICES",
    /// A further choice among HIP's devices.
    gpu_device_ordinal = "GPU_DEVICE_ORDINAL",
    /// Compute units that queues may use.
    hsa_cu_mask = "HSA_CU_MASK",
    /// Compute units that HIP's queues may use.
    roc_global_cu_mask = "ROC_GLOBAL_CU_MASK",
    /// Plug-ins that vLLM loads; all of them where it is unset.
    vllm_plugins = "VLLM_PLUGINS",
    /// Whether vLLM uses AITER.
    vllm_rocm_use_aiter = "VLLM_ROCM_USE_AITER",
    /// Whether vLLM uses AITER's experts.
    vllm_rocm_use_aiter_moe = "VLLM_ROCM_USE_AITER_MOE",
    /// Number formats of the experts, which decide how their rows lie in memory.
    vllm_rocm_use_aiter_moe_situv2 = "VLLM_ROCM_USE_AITER_MOE_SITUV2",
    /// Whether vLLM uses AITER's MXFP4 batched products.
    vllm_rocm_use_aiter_fp4bmm = "VLLM_ROCM_USE_AITER_FP4BMM",
    /// What the public recipe sets and vLLM does not read.
    aiter_situv2_a8w4 = "AITER_SITUV2_A8W4",
    /// Which model runner vLLM uses.
    vllm_use_v2_model_runner = "VLLM_USE_V2_MODEL_RUNNER",
}
