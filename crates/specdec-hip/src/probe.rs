//! What a machine's HIP answers, as facts: a failed call is an answer too.

use specdec_core::doctor::facts::{self, Device, Failure, Library, Memory, Probe};
use specdec_core::doctor::topology::PciAddress;

use crate::result::{self, UncachedPage};
use crate::sys::{self, Functions};
use crate::{Hip, HipError};

/// Bytes of a handle by which processes share memory.
pub const HANDLE_BYTES: usize = sys::IPC_HANDLE_BYTES;

/// Imports a page in another process: takes the importing device and the handle; `None` if that was not tried.
pub type Import<'a> = dyn FnMut(u32, [u8; HANDLE_BYTES]) -> Option<Probe<bool>> + 'a;

/// Asks the machine's HIP everything. Takes a page of each device for a moment.
pub fn probe(import: &mut Import<'_>) -> facts::Hip {
    match Hip::load() {
        Ok(hip) => probe_library(&hip.functions, import),
        Err(HipError::NotFound { looked_for }) => {
            absent(Library::NotFound(looked_for.iter().map(|path| path.display().to_string()).collect()))
        }
        Err(error) => absent(Library::Unusable(error.to_string())),
    }
}

/// Imports a page that another process has exported, on `device` of this one.
pub fn import_page(device: u32, handle: [u8; HANDLE_BYTES]) -> Probe<bool> {
    let imported = Hip::load().and_then(|hip| {
        result::set_device(&hip.functions, device)?;
        result::import(&hip.functions, handle)
    });
    answer(imported.map(|()| true))
}

const fn absent(library: Library) -> facts::Hip {
    facts::Hip { library, driver: None, runtime: None, devices: None }
}

fn probe_library(functions: &Functions, import: &mut Import<'_>) -> facts::Hip {
    let devices = result::device_count(functions)
        .map(|count| (0..count).map(|device| ask(functions, device, count, import)).collect());
    facts::Hip {
        library: Library::Loaded(functions.path.display().to_string()),
        driver: Some(answer(result::driver_version(functions))),
        runtime: Some(answer(result::runtime_version(functions))),
        devices: Some(answer(devices)),
    }
}

fn ask(functions: &Functions, device: u32, count: u32, import: &mut Import<'_>) -> Device {
    let place = result::pci_bus_id(functions, device).map(|text| text.parse::<PciAddress>());
    let peers = (0..count).map(|peer| answer(result::can_access_peer(functions, device, peer)));
    let mut asked = Device {
        // An address of a form that is not known stays unknown: it says nothing about the machine.
        pci: match place {
            Ok(address) => address.ok().map(Probe::Value),
            Err(error) => Some(answer(Err(error))),
        },
        compute_units: Some(answer(result::compute_units(functions, device))),
        peers: peers.collect(),
        memory: None,
        uncached: None,
        exported: None,
        imported: None,
    };
    if let Err(error) = result::set_device(functions, device) {
        asked.memory = Some(answer(Err(error)));
        return asked;
    }
    let memory = result::memory_info(functions).map(|(free_bytes, total_bytes)| Memory { free_bytes, total_bytes });
    asked.memory = Some(answer(memory));
    try_uncached(functions, &mut asked, |handle| import((device + 1) % count, handle));
    asked
}

fn try_uncached(
    functions: &Functions,
    asked: &mut Device,
    import: impl FnOnce([u8; HANDLE_BYTES]) -> Option<Probe<bool>>,
) {
    let page = match UncachedPage::allocate(functions) {
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
    asked.uncached = Some(answer(page.free().map(|()| true)));
}

fn answer<T>(result: Result<T, HipError>) -> Probe<T> {
    match result {
        Ok(value) => Probe::Value(value),
        Err(HipError::MissingFunction { function, .. }) => Probe::Missing(function.into()),
        Err(HipError::Call { function, status }) => {
            Probe::Failed(Failure { call: function.into(), status: status.0, name: status.name().map(Into::into) })
        }
        // Only a process that lost sight of the library since gets here.
        Err(HipError::NotFound { .. }) => Probe::Missing("libamdhip64".into()),
    }
}
