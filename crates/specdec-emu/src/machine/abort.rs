//! What another thread may ask of a machine that runs: to raise its abort words, or to stop.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use specdec_core::ids::DeviceAddress;

use super::emulator::Emulator;
use super::error::EmulatorError;
use super::memory::Allocation;
use super::shared::Shared;

#[derive(Debug, Default)]
struct Wishes {
    abort: AtomicBool,
    interrupt: AtomicBool,
}

/// Asks a machine to give up, from any thread, also while it runs.
#[derive(Clone, Debug, Default)]
pub struct AbortHandle(Arc<Wishes>);

impl AbortHandle {
    /// Stores 1 to every abort word, now or when the next run begins, so that kernels give up by themselves.
    pub fn abort(&self) {
        self.0.abort.store(true, Ordering::Release);
    }

    /// Whether [`AbortHandle::abort`] was called since the last [`AbortHandle::clear`].
    pub fn is_aborted(&self) -> bool {
        self.0.abort.load(Ordering::Acquire)
    }

    /// Ends the run under way, or the next one, with [`EmulatorError::Interrupted`], whatever its kernels do.
    pub fn interrupt(&self) {
        self.0.interrupt.store(true, Ordering::Release);
    }

    /// Forgets what was asked. The abort words stay as they are; the host writes them.
    pub fn clear(&self) {
        self.0.abort.store(false, Ordering::Release);
        self.0.interrupt.store(false, Ordering::Release);
    }
}

/// The machine's side: the words, and whether they have been raised.
#[derive(Debug, Default)]
pub(super) struct Abort {
    handle: AbortHandle,
    words: Vec<u64>,
    is_raised: bool,
}

/// Does what was asked, if anything; polls of the words wake.
#[inline]
pub(super) fn obey(shared: &mut Shared) -> Result<(), EmulatorError> {
    let Wishes { abort, interrupt } = &*shared.abort.handle.0;
    if interrupt.load(Ordering::Relaxed) && interrupt.swap(false, Ordering::AcqRel) {
        return Err(EmulatorError::Interrupted);
    }
    let is_asked = abort.load(Ordering::Relaxed);
    if is_asked == shared.abort.is_raised {
        return Ok(());
    }
    shared.abort.is_raised = is_asked;
    if is_asked {
        for word in &shared.abort.words {
            shared.memory.host_write(*word, &1u32.to_le_bytes())?;
            shared.parking.signal_range(*word, 4);
        }
    }
    Ok(())
}

impl Emulator {
    /// A handle for other threads.
    pub fn abort_handle(&self) -> AbortHandle {
        self.shared.abort.handle.clone()
    }

    /// Names a 32-bit word that [`AbortHandle::abort`] raises, until it is freed.
    pub fn add_abort_word(&mut self, address: DeviceAddress) -> Result<(), EmulatorError> {
        self.check_range(address, 4)?;
        self.shared.abort.words.push(address.0);
        self.shared.abort.is_raised = false;
        Ok(())
    }

    /// An allocation is about to go, and abort words with it.
    pub(super) fn forget_abort_words(&mut self, address: u64) {
        let end = self.shared.memory.starting_at(address).map_or(address, Allocation::end);
        self.shared.abort.words.retain(|word| !(address..end).contains(word));
    }
}
