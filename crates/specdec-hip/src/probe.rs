//! What a machine's HIP answers, as facts: a failed call is an answer too.

use std::sync::Arc;

use specdec_core::doctor::facts::{self, Device, Failure, Library, Memory, Probe};
use specdec_core::doctor::topology::PciAddress;

use crate::memory::{DeviceMemory, ImportedMemory};
use crate::result::device;
use crate::shared::Shared;
use crate::sys;
use crate::{Hip, HipError};

/// Bytes of a handle by which processes share memory.
pub const HANDLE_BYTES: usize = sys::IPC_HANDLE_BYTES;

/// Imports a page in another process: takes the importing device and the handle; `None` if that was not tried.
pub type Import<'a> = dyn FnMut(u32, [u8; HANDLE_BYTES]) -> Option<Probe<bool>> + 'a;

/// Asks the machine's HIP everything. Takes a page of each device for a moment.
pub fn probe(import: &mut Import<'_>) -> facts::Hip {
    match Hip::load() {
        Ok(hip) => probe_library(&hip.shared, import),
        Err(HipError::NotFound { looked_for }) => {
            absent(Library::NotFound(looked_for.iter().map(|path| path.display().to_string()).collect()))
        }
        Err(error) => absent(Library::Unusable(error.to_string())),
    }
}

/// Imports a page that another process has exported, on device `ordinal` of this one.
pub fn import_page(ordinal: u32, handle: [u8; HANDLE_BYTES]) -> Probe<bool> {
    let imported = Hip::load().and_then(|hip| {
        device::set(&hip.shared.functions, ordinal)?;
        ImportedMemory::on_current(&hip.shared, handle)?.release()
    });
    answer(imported.map(|()| true))
}

const fn absent(library: Library) -> facts::Hip {
    facts::Hip { library, driver: None, runtime: None, devices: None }
}

fn probe_library(shared: &Arc<Shared>, import: &mut Import<'_>) -> facts::Hip {
    let functions = &shared.functions;
    let devices =
        device::count(functions).map(|count| (0..count).map(|ordinal| ask(shared, ordinal, count, import)).collect());
    facts::Hip {
        library: Library::Loaded(functions.path.display().to_string()),
        driver: Some(answer(device::driver_version(functions))),
        runtime: Some(answer(device::runtime_version(functions))),
        devices: Some(answer(devices)),
    }
}

fn ask(shared: &Arc<Shared>, ordinal: u32, count: u32, import: &mut Import<'_>) -> Device {
    let functions = &shared.functions;
    let place = device::pci_bus_id(functions, ordinal).map(|text| text.parse::<PciAddress>());
    let peers = (0..count).map(|peer| answer(device::can_access_peer(functions, ordinal, peer)));
    let mut asked = Device {
        // An address of a form that is not known stays unknown: it says nothing about the machine.
        pci: match place {
            Ok(address) => address.ok().map(Probe::Value),
            Err(error) => Some(answer(Err(error))),
        },
        compute_units: Some(answer(device::compute_units(functions, ordinal))),
        peers: peers.collect(),
        memory: None,
        uncached: None,
        exported: None,
        imported: None,
    };
    if let Err(error) = device::set(functions, ordinal) {
        asked.memory = Some(answer(Err(error)));
        return asked;
    }
    let memory = device::memory_info(functions).map(|(free_bytes, total_bytes)| Memory { free_bytes, total_bytes });
    asked.memory = Some(answer(memory));
    try_uncached(shared, &mut asked, |handle| import((ordinal + 1) % count, handle));
    asked
}

fn try_uncached(
    shared: &Arc<Shared>,
    asked: &mut Device,
    import: impl FnOnce([u8; HANDLE_BYTES]) -> Option<Probe<bool>>,
) {
    let page = match DeviceMemory::uncached_page(shared) {
        Ok(page) => page,
        Err(error) => {
            asked.uncached = Some(answer(Err(error)));
            return;
        }
    };
    let exported = page.export();
    if let Ok(handle) = &exported {
        asked.imported = import(*handle);
    }
    asked.exported = Some(answer(exported.map(|_| true)));
    asked.uncached = Some(answer(page.release().map(|()| true)));
}

fn answer<T>(result: Result<T, HipError>) -> Probe<T> {
    match result {
        Ok(value) => Probe::Value(value),
        Err(HipError::MissingFunction { function, .. }) => Probe::Missing(function.into()),
        Err(HipError::Call { function, status, .. }) => {
            Probe::Failed(Failure { call: function.into(), status: status.0, name: status.name().map(Into::into) })
        }
        // Only a process that lost sight of the library since gets here.
        Err(_) => Probe::Missing("libamdhip64".into()),
    }
}
