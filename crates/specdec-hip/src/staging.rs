//! Pinned copies of host bytes on their way to a device, so that the caller may reuse the bytes at once.

use std::sync::Arc;

use specdec_core::ids::{DeviceAddress, Rank};

use crate::library::Hip;
use crate::memory::PinnedMemory;
use crate::shared::Lane;
use crate::stream::Stream;
use crate::HipError;

/// Bytes of half a ring: thousands of steps' metadata.
const HALF_BYTES: u64 = 256 << 10;
/// Copies begin on their own cache lines.
const LINE_BYTES: u64 = 64;

/// One half: it is filled from the front, and filled again once every stream that copied out of it has done so.
#[derive(Debug)]
struct Half {
    memory: PinnedMemory,
    used: u64,
    users: Vec<Arc<Lane>>,
}

/// Pinned memory of one rank, used over and over.
#[derive(Debug)]
pub struct Ring {
    halves: [Half; 2],
    current: usize,
}

impl Ring {
    pub fn new(hip: &Hip, device: u32) -> Result<Self, HipError> {
        let half = || Ok(Half { memory: PinnedMemory::new(hip, device, HALF_BYTES)?, used: 0, users: Vec::new() });
        Ok(Self { halves: [half()?, half()?], current: 0 })
    }

    /// Whether so many bytes fit without waiting for a stream.
    pub fn fits(&self, bytes: usize) -> bool {
        self.halves[self.current].used + bytes as u64 <= HALF_BYTES
    }

    /// Queues a copy of `bytes` to a device, keeping a copy of its own until the stream has passed it.
    ///
    /// # Safety
    /// As [`Stream::copy_pinned`].
    pub unsafe fn write(
        &mut self,
        hip: &Hip,
        stream: &Stream,
        to: DeviceAddress,
        bytes: &[u8],
    ) -> Result<(), HipError> {
        for (index, part) in bytes.chunks(HALF_BYTES as usize).enumerate() {
            if !self.fits(part.len()) {
                self.turn(hip)?;
            }
            let half = &mut self.halves[self.current];
            half.memory.write(half.used, part);
            if !half.users.iter().any(|lane| Arc::ptr_eq(lane, stream.lane())) {
                half.users.push(stream.lane().clone());
            }
            let to = to.offset(index as u64 * HALF_BYTES);
            // SAFETY: the caller's contract; the half stays as it is until every user has passed this.
            unsafe { stream.copy_pinned(to, (&half.memory, half.used), part.len() as u64) }?;
            half.used = (half.used + part.len() as u64).next_multiple_of(LINE_BYTES);
        }
        Ok(())
    }

    /// Turns to the other half, as soon as nobody copies out of it any more.
    fn turn(&mut self, hip: &Hip) -> Result<(), HipError> {
        let half = &mut self.halves[1 - self.current];
        for lane in &half.users {
            lane.synchronize(&hip.shared.functions)?;
        }
        half.users.clear();
        half.used = 0;
        self.current = 1 - self.current;
        Ok(())
    }
}

/// Pinned memory for the bytes that captured graphs write: used once, and kept as long as a graph may replay them.
#[derive(Debug)]
pub struct Arena {
    memory: Arc<PinnedMemory>,
    used: u64,
    /// Whether a capture that somebody else began has used it: nobody tells when that graph goes.
    is_foreign: bool,
    /// What foreign graphs replay; kept to the end.
    kept: Vec<Arc<PinnedMemory>>,
}

impl Arena {
    pub fn new(hip: &Hip, device: u32, bytes: u64) -> Result<Self, HipError> {
        let memory = Arc::new(PinnedMemory::new(hip, device, bytes)?);
        Ok(Self { memory, used: 0, is_foreign: false, kept: Vec::new() })
    }

    /// Makes room for the next capture; a capture forbids allocating, so this comes before.
    pub fn reserve(&mut self, hip: &Hip, device: u32, bytes: u64) -> Result<(), HipError> {
        if !self.is_foreign && Arc::strong_count(&self.memory) == 1 {
            self.used = 0;
        }
        if self.memory.bytes() - self.used >= bytes {
            return Ok(());
        }
        let memory = Arc::new(PinnedMemory::new(hip, device, bytes)?);
        let before = std::mem::replace(&mut self.memory, memory);
        if self.is_foreign {
            self.kept.push(before);
        }
        (self.used, self.is_foreign) = (0, false);
        Ok(())
    }

    /// What the graph that is being captured must keep.
    pub fn memory(&self) -> Arc<PinnedMemory> {
        self.memory.clone()
    }

    /// Records a copy of `bytes`, of which the arena keeps its own.
    ///
    /// # Safety
    /// As [`Stream::copy_pinned`], at each launch of the graph.
    pub unsafe fn write(
        &mut self,
        (rank, stream): (Rank, &Stream),
        to: DeviceAddress,
        bytes: &[u8],
    ) -> Result<(), HipError> {
        let left = self.memory.bytes() - self.used;
        if bytes.len() as u64 > left {
            return Err(HipError::CaptureFull { rank, bytes: bytes.len(), left: left as usize });
        }
        self.is_foreign |= !stream.captures();
        self.memory.write(self.used, bytes);
        // SAFETY: the caller's contract; these bytes of the arena are never written again while a graph may read them.
        unsafe { stream.copy_pinned(to, (&self.memory, self.used), bytes.len() as u64) }?;
        self.used = (self.used + bytes.len() as u64).next_multiple_of(LINE_BYTES).min(self.memory.bytes());
        Ok(())
    }
}
