//! Streams, their captures, and events.

use std::sync::atomic::Ordering;
use std::sync::Arc;

use specdec_core::ids::DeviceAddress;

use crate::graph::{Graph, Recording};
use crate::library::Hip;
use crate::memory::{size, PinnedMemory};
use crate::module::Kernel;
use crate::result::{graph, memory, module, stream, Handle};
use crate::shared::{Kind, Lane, Owned, Shared};
use crate::HipError;

/// A stream of one device: of our own, or somebody else's that we queue to.
#[derive(Debug)]
pub struct Stream {
    shared: Arc<Shared>,
    device: u32,
    /// Ours to destroy, unless it is adopted; declared before the lane, by which its end waits for what is queued.
    _owned: Option<Owned>,
    lane: Arc<Lane>,
}

impl Stream {
    /// A new stream that is not ordered with the null stream.
    pub fn new(hip: &Hip, device: u32) -> Result<Self, HipError> {
        let _scope = hip.shared.enter(device)?;
        let handle = stream::create(&hip.shared.functions)?;
        let owned = Owned::new(&hip.shared, Kind::Stream, handle);
        let lane = hip.shared.lane(handle);
        Ok(Self { shared: hip.shared.clone(), device, _owned: Some(owned), lane })
    }

    /// Somebody else's stream, such as torch's current one.
    ///
    /// # Safety
    /// `raw` is a `hipStream_t` of `device` that stays alive as long as anything of this library does.
    pub unsafe fn adopt(hip: &Hip, device: u32, raw: usize) -> Self {
        Self { shared: hip.shared.clone(), device, _owned: None, lane: hip.shared.adopted_lane(Handle(raw)) }
    }

    /// The `hipStream_t`.
    pub fn raw(&self) -> usize {
        self.lane.handle.0
    }

    pub(crate) fn lane(&self) -> &Arc<Lane> {
        &self.lane
    }

    /// Waits until everything that was queued has run.
    pub fn synchronize(&self) -> Result<(), HipError> {
        self.lane.synchronize(&self.shared.functions)
    }

    /// Whether it captures, whoever has begun that.
    pub fn is_capturing(&self) -> Result<bool, HipError> {
        stream::is_capturing(&self.shared.functions, self.lane.handle)
    }

    /// Whether a capture has begun through this object.
    pub fn captures(&self) -> bool {
        self.lane.captures.load(Ordering::Acquire)
    }

    /// From now on what is queued is recorded, for this thread.
    pub fn begin_capture(&self) -> Result<(), HipError> {
        let _scope = self.shared.enter(self.device)?;
        stream::begin_capture(&self.shared.functions, self.lane.handle)?;
        self.lane.captures.store(true, Ordering::Release);
        Ok(())
    }

    /// What was recorded. After an error nothing is captured any more either.
    pub fn end_capture(&self) -> Result<Recording, HipError> {
        let _scope = self.shared.enter(self.device)?;
        let functions = &self.shared.functions;
        let recorded = stream::end_capture(functions, self.lane.handle);
        if recorded.is_err() && stream::is_capturing(functions, self.lane.handle).unwrap_or(true) {
            // The first error is the one to report; the capture goes either way.
            drop(stream::end_capture(functions, self.lane.handle).map(|graph| self.recording(graph)));
        }
        self.lane.captures.store(false, Ordering::Release);
        self.shared.release_waiting();
        recorded.map(|graph| self.recording(graph))
    }

    fn recording(&self, graph: Handle) -> Recording {
        Recording::new(Owned::new(&self.shared, Kind::Graph, graph), self.device)
    }

    /// Queues a copy between addresses that the device reaches.
    ///
    /// # Safety
    /// Both ranges are device or pinned memory of that size, and stay until the stream has passed the copy.
    pub unsafe fn copy(&self, to: DeviceAddress, from: DeviceAddress, bytes: u64) -> Result<(), HipError> {
        self.lane.note();
        let [to, from] = [to, from].map(|address| Handle(size(address.0)));
        // SAFETY: the caller's contract.
        unsafe { memory::copy_async(&self.shared.functions, to, from, size(bytes), self.lane.handle) }
    }

    /// Queues a copy out of pinned memory, which the caller keeps until the stream has passed it.
    ///
    /// # Safety
    /// `to` is device or pinned memory of that size, and stays until the stream has passed the copy.
    pub unsafe fn copy_pinned(
        &self,
        to: DeviceAddress,
        (from, offset): (&PinnedMemory, u64),
        bytes: u64,
    ) -> Result<(), HipError> {
        self.lane.note();
        let (to, from) = (Handle(size(to.0)), Handle(from.host().0 + size(offset)));
        // SAFETY: the caller's contract; `from` is pinned.
        unsafe { memory::copy_async(&self.shared.functions, to, from, size(bytes), self.lane.handle) }
    }

    /// Queues filling memory with a byte.
    ///
    /// # Safety
    /// The range is device memory that stays until the stream has passed this.
    pub unsafe fn fill(&self, address: DeviceAddress, byte: u8, bytes: u64) -> Result<(), HipError> {
        self.lane.note();
        let address = Handle(size(address.0));
        // SAFETY: the caller's contract.
        unsafe { memory::fill_async(&self.shared.functions, address, byte, size(bytes), self.lane.handle) }
    }

    /// Queues a kernel of this stream's device.
    ///
    /// # Safety
    /// What the arguments point to stays until the stream has passed the launch, as does the kernel's module.
    pub unsafe fn launch(&self, kernel: Kernel, grid: u32, block: u32, kernarg: &[u8]) -> Result<(), HipError> {
        let _scope = self.shared.enter(self.device)?;
        self.lane.note();
        // SAFETY: the caller's contract.
        unsafe { module::launch(&self.shared.functions, kernel.0, (grid, block), kernarg, self.lane.handle) }
    }

    /// Queues everything that a graph recorded.
    ///
    /// # Safety
    /// What was alive when it was recorded still is, and stays until the stream has passed this.
    pub unsafe fn launch_graph(&self, graph: &Graph) -> Result<(), HipError> {
        let _scope = self.shared.enter(self.device)?;
        self.lane.note();
        graph::launch(&self.shared.functions, graph.handle(), self.lane.handle)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.captures() {
            // Nobody wants what was recorded; what the capture has kept can go now.
            if let Err(error) = self.end_capture().and_then(Recording::release) {
                self.shared.record(error);
            }
        }
    }
}

/// A point of a stream, with its time.
#[derive(Debug)]
pub struct Event {
    owned: Owned,
}

impl Event {
    /// An event of a device.
    pub fn new(hip: &Hip, device: u32) -> Result<Self, HipError> {
        let _scope = hip.shared.enter(device)?;
        let event = stream::create_event(&hip.shared.functions)?;
        Ok(Self { owned: Owned::new(&hip.shared, Kind::Event, event) })
    }

    /// Puts it behind everything that is queued; never while the stream captures.
    pub fn record(&self, stream: &Stream) -> Result<(), HipError> {
        stream::record(self.owned.functions(), self.owned.handle(), stream.lane.handle)
    }

    /// Whether the stream has passed it.
    pub fn has_passed(&self) -> Result<bool, HipError> {
        stream::has_passed(self.owned.functions(), self.owned.handle())
    }

    /// Waits until the stream has passed it.
    pub fn wait(&self) -> Result<(), HipError> {
        stream::wait(self.owned.functions(), self.owned.handle())
    }

    /// Milliseconds from this one to a later one; both have passed.
    pub fn milliseconds_to(&self, later: &Self) -> Result<f32, HipError> {
        stream::elapsed(self.owned.functions(), self.owned.handle(), later.owned.handle())
    }

    /// Gives it back and says how that went.
    pub fn release(self) -> Result<(), HipError> {
        self.owned.release()
    }
}
