//! What every object of a loaded library shares: its functions, its streams, and the order of releases.
//!
//! Nothing is given back while something queued may touch it: a release first waits for every stream of this process
//! that has something queued. A capture forbids waiting and releasing, so releases are put off until it has ended.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::result::{device, graph, memory, module, stream, Handle};
use crate::sys::Functions;
use crate::HipError;

/// What an [`Owned`] handle is, and with it how it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Memory,
    Pinned,
    Registered,
    Import,
    Module,
    Stream,
    Event,
    Graph,
    GraphInstance,
    Released,
}

impl Kind {
    fn release(self, functions: &Functions, handle: Handle) -> Result<(), HipError> {
        match self {
            Self::Memory => memory::free(functions, handle),
            Self::Pinned => memory::free_pinned(functions, handle),
            Self::Registered => memory::unregister(functions, handle),
            Self::Import => memory::close_import(functions, handle),
            Self::Module => module::unload(functions, handle),
            Self::Stream => stream::destroy(functions, handle),
            Self::Event => stream::destroy_event(functions, handle),
            Self::Graph => graph::destroy(functions, handle),
            Self::GraphInstance => graph::destroy_instance(functions, handle),
            Self::Released => Ok(()),
        }
    }

    /// Whether something queued may use it.
    const fn may_be_in_use(self) -> bool {
        !matches!(self, Self::Event | Self::Graph | Self::Released)
    }
}

/// What is known of one stream.
#[derive(Debug)]
pub struct Lane {
    pub handle: Handle,
    /// A stream that somebody else made and may queue to without our knowledge.
    pub is_adopted: bool,
    /// Whether this crate has begun a capture on it.
    pub captures: AtomicBool,
    queued: AtomicU64,
    done: AtomicU64,
}

impl Lane {
    fn new(handle: Handle, is_adopted: bool) -> Arc<Self> {
        let (captures, queued, done) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { handle, is_adopted, captures, queued, done })
    }

    /// Notes that something is about to be queued.
    pub fn note(&self) {
        self.queued.fetch_add(1, Ordering::AcqRel);
    }

    /// Waits until everything that was queued has run. Also after an error nothing runs any more.
    pub fn synchronize(&self, functions: &Functions) -> Result<(), HipError> {
        let queued = self.queued.load(Ordering::Acquire);
        let result = stream::synchronize(functions, self.handle);
        if result.is_ok() {
            self.done.fetch_max(queued, Ordering::AcqRel);
        }
        result
    }

    fn is_busy(&self) -> bool {
        self.is_adopted || self.queued.load(Ordering::Acquire) > self.done.load(Ordering::Acquire)
    }

    /// Whether it captures, whoever has begun that.
    pub fn is_capturing(&self, functions: &Functions) -> Result<bool, HipError> {
        if self.captures.load(Ordering::Acquire) {
            return Ok(true);
        }
        if self.is_adopted {
            stream::is_capturing(functions, self.handle)
        } else {
            Ok(false)
        }
    }
}

/// A loaded library and what its objects have in common.
#[derive(Debug)]
pub struct Shared {
    pub functions: Functions,
    lanes: Mutex<Vec<Weak<Lane>>>,
    /// Streams of somebody else, who may go on queueing what has been captured through them.
    adopted: Mutex<Vec<Arc<Lane>>>,
    /// The first failure that nobody could be told of.
    failure: Mutex<Option<HipError>>,
    /// What a capture keeps from being given back.
    waiting: Mutex<Vec<(Kind, Handle)>>,
}

/// A panic elsewhere leaves these lists as they were.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn new(functions: Functions) -> Arc<Self> {
        let (lanes, adopted) = (Mutex::default(), Mutex::default());
        Arc::new(Self { functions, lanes, adopted, failure: Mutex::default(), waiting: Mutex::default() })
    }

    /// Makes `device` the thread's until the scope ends: torch, in the same process, has its own idea of it.
    pub fn enter(&self, device: u32) -> Result<DeviceScope<'_>, HipError> {
        let before = device::get(&self.functions)?;
        if before == device {
            return Ok(DeviceScope { shared: self, before: None });
        }
        device::set(&self.functions, device)?;
        Ok(DeviceScope { shared: self, before: Some(before) })
    }

    /// The lane of a new stream, for which releases wait from now on.
    pub fn lane(&self, handle: Handle) -> Arc<Lane> {
        let lane = Lane::new(handle, false);
        let mut lanes = lock(&self.lanes);
        lanes.retain(|known| known.strong_count() > 0);
        lanes.push(Arc::downgrade(&lane));
        lane
    }

    /// The one lane of somebody else's stream.
    pub fn adopted_lane(&self, handle: Handle) -> Arc<Lane> {
        let mut adopted = lock(&self.adopted);
        if let Some(known) = adopted.iter().find(|lane| lane.handle == handle) {
            return known.clone();
        }
        let lane = Lane::new(handle, true);
        adopted.push(lane.clone());
        lane
    }

    fn lanes(&self) -> Vec<Arc<Lane>> {
        let mut lanes = lock(&self.adopted).clone();
        lanes.extend(lock(&self.lanes).iter().filter_map(Weak::upgrade));
        lanes
    }

    /// Keeps a failure for the next call to report; the first one counts.
    pub fn record(&self, error: HipError) {
        lock(&self.failure).get_or_insert(error);
    }

    /// Reports a failure that nobody was told of.
    pub fn take_failure(&self) -> Result<(), HipError> {
        lock(&self.failure).take().map_or(Ok(()), |error| Err(HipError::Earlier(Box::new(error))))
    }

    /// Whether a stream captures; one that cannot say does not.
    fn is_capturing(&self) -> bool {
        let capturing = |lane: &Arc<Lane>| match lane.is_capturing(&self.functions) {
            Ok(is_capturing) => is_capturing,
            Err(error) => {
                self.record(error);
                false
            }
        };
        self.lanes().iter().any(capturing)
    }

    /// Waits for every stream that has something queued. A stream that fails twice is dead, and touches nothing.
    fn drain(&self) {
        for lane in self.lanes().iter().filter(|lane| lane.is_busy()) {
            if let Err(error) = twice(|| lane.synchronize(&self.functions)) {
                self.record(error);
            }
        }
    }

    /// Gives something back, once nothing uses it, or as soon as no capture keeps it.
    fn release(&self, kind: Kind, handle: Handle) -> Result<(), HipError> {
        if kind == Kind::Released {
            return Ok(());
        }
        if kind.may_be_in_use() {
            if self.is_capturing() {
                lock(&self.waiting).push((kind, handle));
                return Ok(());
            }
            self.drain();
        }
        self.release_waiting();
        twice(|| kind.release(&self.functions, handle))
    }

    /// Gives back what a capture has kept.
    pub fn release_waiting(&self) {
        if lock(&self.waiting).is_empty() || self.is_capturing() {
            return;
        }
        self.drain();
        self.release_all_waiting();
    }

    fn release_all_waiting(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        for (kind, handle) in waiting {
            if let Err(error) = twice(|| kind.release(&self.functions, handle)) {
                self.record(error);
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.release_all_waiting();
    }
}

/// Calls once more after a failure, and returns the first one: HIP reports what an earlier launch has done wrong by
/// whichever call comes next, and does not say whether that call did its work. A second release at once meets no new
/// owner of the handle.
fn twice(call: impl Fn() -> Result<(), HipError>) -> Result<(), HipError> {
    call().inspect_err(|_| {
        // The first failure is the one to report.
        let _ = call();
    })
}

/// The thread's device, for a while.
#[derive(Debug)]
pub struct DeviceScope<'a> {
    shared: &'a Shared,
    before: Option<u32>,
}

impl Drop for DeviceScope<'_> {
    fn drop(&mut self) {
        let Some(before) = self.before else { return };
        if let Err(error) = twice(|| device::set(&self.shared.functions, before)) {
            self.shared.record(error);
        }
    }
}

/// Something that HIP handed out, with its one owner.
#[derive(Debug)]
pub struct Owned {
    pub shared: Arc<Shared>,
    kind: Kind,
    handle: Handle,
}

impl Owned {
    pub fn new(shared: &Arc<Shared>, kind: Kind, handle: Handle) -> Self {
        Self { shared: shared.clone(), kind, handle }
    }

    pub fn handle(&self) -> Handle {
        self.handle
    }

    pub fn functions(&self) -> &Functions {
        &self.shared.functions
    }

    /// Gives it back and says how that went; a drop keeps a failure for the next call.
    pub fn release(mut self) -> Result<(), HipError> {
        let kind = std::mem::replace(&mut self.kind, Kind::Released);
        self.shared.release(kind, self.handle)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if let Err(error) = self.shared.release(self.kind, self.handle) {
            self.shared.record(error);
        }
    }
}
