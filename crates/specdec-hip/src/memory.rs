//! Memory with an owner: of a device, pinned on the host, registered in place, imported from another process.

use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use specdec_core::ids::DeviceAddress;

use crate::library::Hip;
use crate::result::{device, memory, stream, Handle};
use crate::shared::{Kind, Owned, Shared};
use crate::sys::IPC_HANDLE_BYTES;
use crate::HipError;

const WORD_BYTES: usize = size_of::<u64>();

/// Memory of one device, given back once:
///
/// ```compile_fail
/// fn twice(memory: specdec_hip::DeviceMemory) {
///     let _ = memory.release();
///     let _ = memory.release();
/// }
/// ```
#[derive(Debug)]
pub struct DeviceMemory {
    owned: Owned,
    bytes: u64,
}

impl DeviceMemory {
    /// Ordinary memory on a device, zeroed.
    pub fn ordinary(hip: &Hip, device: u32, bytes: u64) -> Result<Self, HipError> {
        let _scope = hip.shared.enter(device)?;
        let address = memory::allocate(&hip.shared.functions, size(bytes).max(1))?;
        Self::zeroed(hip, address, bytes)
    }

    /// Uncached memory on a device, in whole pages, zeroed.
    pub fn uncached(hip: &Hip, device: u32, bytes: u64) -> Result<Self, HipError> {
        let _scope = hip.shared.enter(device)?;
        let address = memory::allocate_uncached(&hip.shared.functions, size(bytes).max(1))?;
        Self::zeroed(hip, address, bytes)
    }

    fn zeroed(hip: &Hip, address: Handle, bytes: u64) -> Result<Self, HipError> {
        let owned = Owned::new(&hip.shared, Kind::Memory, address);
        let functions = &hip.shared.functions;
        // SAFETY: the memory is new, and `owned` keeps it.
        unsafe { memory::fill(functions, address, 0, size(bytes)) }?;
        // The fill is queued on the null stream, which our own streams do not wait for.
        stream::synchronize(functions, Handle::NULL)?;
        Ok(Self { owned, bytes })
    }

    /// A page of uncached memory on the thread's device, as it comes.
    pub(crate) fn uncached_page(shared: &Arc<Shared>) -> Result<Self, HipError> {
        let address = memory::allocate_uncached(&shared.functions, memory::PAGE_BYTES)?;
        Ok(Self { owned: Owned::new(shared, Kind::Memory, address), bytes: memory::PAGE_BYTES as u64 })
    }

    /// Where it is.
    pub fn address(&self) -> DeviceAddress {
        DeviceAddress(self.owned.handle().0 as u64)
    }

    /// Bytes that were asked for.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The handle by which other processes can import it while this one keeps it.
    pub fn export(&self) -> Result<[u8; IPC_HANDLE_BYTES], HipError> {
        memory::export(self.owned.functions(), self.owned.handle())
    }

    /// Gives it back and says how that went.
    pub fn release(self) -> Result<(), HipError> {
        self.owned.release()
    }
}

/// Pinned host memory.
#[derive(Debug)]
pub struct PinnedMemory {
    owned: Owned,
    address: DeviceAddress,
    bytes: u64,
}

impl PinnedMemory {
    /// Zeroed memory of the host that every device reaches; `device` is the one whose address for it is wanted.
    pub fn new(hip: &Hip, device: u32, bytes: u64) -> Result<Self, HipError> {
        let _scope = hip.shared.enter(device)?;
        let functions = &hip.shared.functions;
        let host = memory::allocate_pinned(functions, size(bytes).max(1))?;
        let owned = Owned::new(&hip.shared, Kind::Pinned, host);
        let address = memory::device_pointer(functions, host)?;
        // SAFETY: the call gave that many bytes, and nobody else knows of them yet.
        unsafe { with_exposed_provenance_mut::<u8>(host.0).write_bytes(0, size(bytes)) };
        Ok(Self { owned, address: DeviceAddress(address.0 as u64), bytes })
    }

    /// Where the device sees it.
    pub const fn address(&self) -> DeviceAddress {
        self.address
    }

    /// Bytes that were asked for.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether `bytes` lie in it from `offset` on.
    pub fn holds(&self, offset: u64, bytes: usize) -> bool {
        offset.checked_add(bytes as u64).is_some_and(|end| end <= self.bytes)
    }

    /// Copies out of it, as far as it holds; `false` if it does not. Each byte is read once, whatever the device does.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        if !self.holds(offset, into.len()) {
            return false;
        }
        let start = self.owned.handle().0 + size(offset);
        let is_aligned = start.is_multiple_of(WORD_BYTES);
        for (index, part) in into.chunks_mut(WORD_BYTES).enumerate() {
            let at = start + index * WORD_BYTES;
            // Whole words where they can be: the device stores words, and half of one is of no use.
            if is_aligned && part.len() == WORD_BYTES {
                let word = with_exposed_provenance::<u64>(at);
                // SAFETY: `holds` was checked and `at` is aligned; the device may write meanwhile, so it is volatile.
                part.copy_from_slice(&unsafe { word.read_volatile() }.to_ne_bytes());
                continue;
            }
            for (offset, byte) in part.iter_mut().enumerate() {
                let at = with_exposed_provenance::<u8>(at + offset);
                // SAFETY: as above.
                *byte = unsafe { at.read_volatile() };
            }
        }
        true
    }

    /// Copies into it, as far as it holds; `false` if it does not.
    pub fn write(&self, offset: u64, from: &[u8]) -> bool {
        if !self.holds(offset, from.len()) {
            return false;
        }
        let start = with_exposed_provenance_mut::<u8>(self.owned.handle().0 + size(offset));
        // SAFETY: `holds` was checked, and `from` is memory of somebody else.
        unsafe { start.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        true
    }

    pub(crate) fn host(&self) -> Handle {
        self.owned.handle()
    }

    /// Gives it back and says how that went.
    pub fn release(self) -> Result<(), HipError> {
        self.owned.release()
    }
}

/// A 32-bit word of pinned memory that any thread may read and write while kernels run, e.g. to tell them to give up. It
/// keeps its memory.
#[derive(Clone, Debug)]
pub struct PinnedWord {
    memory: Arc<PinnedMemory>,
    offset: usize,
}

impl PinnedWord {
    /// The word at an offset; `None` if it is not aligned or not inside.
    pub fn new(memory: Arc<PinnedMemory>, offset: u64) -> Option<Self> {
        let is_aligned = (memory.host().0 as u64 + offset).is_multiple_of(size_of::<u32>() as u64);
        let is_word = is_aligned && memory.holds(offset, size_of::<u32>());
        is_word.then(|| Self { memory, offset: size(offset) })
    }

    fn word(&self) -> &AtomicU32 {
        let at = with_exposed_provenance_mut::<u32>(self.memory.host().0 + self.offset);
        // SAFETY: `new` has checked alignment and bounds, `self` keeps the memory, and the host accesses single words of
        // it either through this or by volatile copies.
        unsafe { AtomicU32::from_ptr(at) }
    }

    /// Its value.
    pub fn load(&self) -> u32 {
        self.word().load(Ordering::Acquire)
    }

    /// Gives it a value, which a running kernel sees.
    pub fn store(&self, value: u32) {
        self.word().store(value, Ordering::Release);
    }
}

/// Host memory of somebody else, pinned in place.
#[derive(Debug)]
pub struct RegisteredMemory {
    owned: Owned,
    address: DeviceAddress,
}

impl RegisteredMemory {
    /// Pins it; `device` is the one whose address for it is wanted.
    ///
    /// # Safety
    /// `host..host + bytes` stays where it is and alive until this is dropped.
    pub unsafe fn new(hip: &Hip, device: u32, host: usize, bytes: u64) -> Result<Self, HipError> {
        let _scope = hip.shared.enter(device)?;
        let functions = &hip.shared.functions;
        // SAFETY: the caller's contract.
        unsafe { memory::register(functions, Handle(host), size(bytes)) }?;
        let owned = Owned::new(&hip.shared, Kind::Registered, Handle(host));
        let address = memory::device_pointer(functions, Handle(host))?;
        Ok(Self { owned, address: DeviceAddress(address.0 as u64) })
    }

    /// Where the device sees it.
    pub const fn address(&self) -> DeviceAddress {
        self.address
    }

    /// Ends the registration and says how that went.
    pub fn release(self) -> Result<(), HipError> {
        self.owned.release()
    }
}

/// Another process's memory.
#[derive(Debug)]
pub struct ImportedMemory {
    owned: Owned,
}

impl ImportedMemory {
    /// Makes it reachable from `device`.
    pub fn new(hip: &Hip, device: u32, handle: [u8; IPC_HANDLE_BYTES]) -> Result<Self, HipError> {
        let _scope = hip.shared.enter(device)?;
        Self::on_current(&hip.shared, handle)
    }

    /// Makes it reachable from the thread's device.
    pub(crate) fn on_current(shared: &Arc<Shared>, handle: [u8; IPC_HANDLE_BYTES]) -> Result<Self, HipError> {
        let address = memory::import(&shared.functions, handle)?;
        Ok(Self { owned: Owned::new(shared, Kind::Import, address) })
    }

    /// Where the device sees it.
    pub fn address(&self) -> DeviceAddress {
        DeviceAddress(self.owned.handle().0 as u64)
    }

    /// Ends the import and says how that went.
    pub fn release(self) -> Result<(), HipError> {
        self.owned.release()
    }
}

/// Lets `device` reach the memory of `peer`, another device of this process.
pub fn enable_peer_access(hip: &Hip, device: u32, peer: u32) -> Result<(), HipError> {
    let _scope = hip.shared.enter(device)?;
    device::enable_peer_access(&hip.shared.functions, peer)
}

/// A size as the host counts; one that does not fit is refused by whoever is asked for it.
pub fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
