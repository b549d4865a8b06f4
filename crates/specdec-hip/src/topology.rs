//! GPUs as the kernel driver lists them below `/sys`.

use std::fs;
use std::path::{Path, PathBuf};

use specdec_core::doctor::facts::Gpu;
use specdec_core::doctor::topology::{gpu_of_node, TopologyError};
use thiserror::Error;

const NODES: &str = "class/kfd/kfd/topology/nodes";

/// Why the list cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A file or folder.
    #[error("`{}`: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A node's text.
    #[error("`{}`: {error}", path.display())]
    Node {
        /// The file.
        path: PathBuf,
        /// Why.
        error: TopologyError,
    },
}

/// GPUs, in the driver's order; none where the driver is not loaded. `root` is `/sys`.
pub fn read(root: &Path) -> Result<Vec<Gpu>, ReadError> {
    let folder = root.join(NODES);
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let failed = |path: &Path, error| ReadError::File { path: path.into(), error };
    let mut nodes = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|error| failed(&folder, error))? {
        let path = entry.map_err(|error| failed(&folder, error))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(number) = name.and_then(|name| name.parse::<u32>().ok()) {
            nodes.push((number, path.join("properties")));
        }
    }
    nodes.sort_unstable();
    let mut gpus = Vec::new();
    for (_, path) in nodes {
        // A container sees every node and may read only those of its GPUs.
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => continue,
            text => text.map_err(|error| failed(&path, error))?,
        };
        let gpu = gpu_of_node(&text).map_err(|error| ReadError::Node { path, error })?;
        gpus.extend(gpu.map(|gpu| with_partitions(root, gpu)));
    }
    Ok(gpus)
}

fn with_partitions(root: &Path, gpu: Gpu) -> Gpu {
    let device = root.join("bus/pci/devices").join(gpu.pci.physical().to_string());
    let read = |name| fs::read_to_string(device.join(name)).ok().map(|text| text.trim().to_owned());
    Gpu {
        compute_partition: read("current_compute_partition"),
        memory_partition: read("current_memory_partition"),
        ..gpu
    }
}
