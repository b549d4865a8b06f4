//! The start-up self-test of one device: a small captured graph, replayed and compared.
//!
//! Some releases of the driver stack lose values in replays, or serve a replay what a small buffer held before it was
//! written last. Version numbers are no proof, so each process tries: before every replay the graph's source is written
//! anew on the same stream, and nothing waits until all replays are queued.

use std::fmt;

use specdec_core::ids::DeviceAddress;

use crate::library::Hip;
use crate::memory::{size, DeviceMemory, PinnedMemory};
use crate::module::Module;
use crate::stream::Stream;
use crate::HipError;

/// Bytes of the source, and of each result.
pub const BYTES: u64 = 1024;
/// Replays of the graph.
pub const REPLAYS: u64 = 32;
const FILL: u8 = 0xa5;
const WIPE: u8 = 0x3c;

/// A kernel of the caller's that the graph also launches.
pub struct KernelCheck<'a> {
    /// The code object.
    pub code_object: &'a [u8],
    /// Its kernel.
    pub symbol: &'a str,
    /// Workgroups.
    pub grid: u32,
    /// Work-items of a workgroup.
    pub block: u32,
    /// The explicit arguments, for an input and an output of [`BYTES`] bytes each.
    pub kernarg: &'a dyn Fn(DeviceAddress, DeviceAddress) -> Vec<u8>,
    /// What the kernel makes of these bytes.
    pub expected: &'a dyn Fn(&[u8]) -> Vec<u8>,
}

/// What the replays of a graph got right or wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every byte of every replay.
    Passed {
        /// Replays that were compared.
        replays: u64,
    },
    /// A byte that is another one.
    Differs {
        /// The replay, counted from 0.
        replay: u64,
        /// The part of the graph.
        part: Part,
        /// Which byte.
        offset: u64,
        /// What it should be.
        expected: u8,
        /// What it is.
        found: u8,
    },
}

/// A part of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Memory filled with a byte.
    Fill,
    /// The copy of the source.
    Copy,
    /// What the kernel made of the copy.
    Kernel,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed { replays } => write!(f, "{replays} replays of a graph were right"),
            Self::Differs { replay, part, offset, expected, found } => {
                let part = match part {
                    Part::Fill => "the fill",
                    Part::Copy => "the copy of bytes written just before",
                    Part::Kernel => "the kernel's result",
                };
                write!(f, "replay {replay} of a graph: {part} has {found:#04x} at {offset}, not {expected:#04x}")
            }
        }
    }
}

/// What the source holds for a replay.
fn source_of(replay: u64) -> Vec<u8> {
    (0..BYTES).map(|at| (at.wrapping_mul(13) ^ replay.wrapping_mul(101)) as u8).collect()
}

struct Rig {
    // Before the memory that it uses.
    stream: Stream,
    sources: PinnedMemory,
    results: PinnedMemory,
    source: DeviceMemory,
    parts: [DeviceMemory; 3],
}

/// Captures, replays and compares a graph on a device. An error is a call that failed; what the replays got wrong is in
/// the verdict.
pub fn run(hip: &Hip, device: u32, kernel: Option<&KernelCheck<'_>>) -> Result<Verdict, HipError> {
    let memory = || DeviceMemory::ordinary(hip, device, BYTES);
    let rig = Rig {
        stream: Stream::new(hip, device)?,
        sources: PinnedMemory::new(hip, device, BYTES * REPLAYS)?,
        results: PinnedMemory::new(hip, device, BYTES * REPLAYS * 3)?,
        source: memory()?,
        parts: [memory()?, memory()?, memory()?],
    };
    let mut module = kernel.map(|kernel| Module::load(hip, device, kernel.code_object)).transpose()?;
    let launch =
        module.as_mut().zip(kernel).map(|(module, kernel)| module.kernel(kernel.symbol).map(|found| (found, kernel)));
    let launch = launch.transpose()?;
    rig.stream.begin_capture()?;
    let [fill, copy, output] = rig.parts.each_ref().map(DeviceMemory::address);
    // SAFETY: the rig keeps all of its memory until its stream has passed everything: dropping any of it waits.
    unsafe { rig.stream.fill(fill, FILL, BYTES) }?;
    // SAFETY: as above.
    unsafe { rig.stream.copy(copy, rig.source.address(), BYTES) }?;
    if let Some((found, kernel)) = launch {
        let kernarg = (kernel.kernarg)(copy, output);
        // SAFETY: as above, and `module` outlives the stream's work for the same reason.
        unsafe { rig.stream.launch(found, kernel.grid, kernel.block, &kernarg) }?;
    }
    let graph = rig.stream.end_capture()?.instantiate()?;
    for replay in 0..REPLAYS {
        rig.sources.write(replay * BYTES, &source_of(replay));
        for part in &rig.parts {
            // SAFETY: as above.
            unsafe { rig.stream.fill(part.address(), WIPE, BYTES) }?;
        }
        // SAFETY: as above.
        unsafe { rig.stream.copy_pinned(rig.source.address(), (&rig.sources, replay * BYTES), BYTES) }?;
        // SAFETY: as above.
        unsafe { rig.stream.launch_graph(&graph) }?;
        for (index, part) in rig.parts.iter().enumerate() {
            let to = rig.results.address().offset((replay * 3 + index as u64) * BYTES);
            // SAFETY: as above.
            unsafe { rig.stream.copy(to, part.address(), BYTES) }?;
        }
    }
    rig.stream.synchronize()?;
    graph.release()?;
    Ok(judge(&rig.results, kernel))
}

fn judge(results: &PinnedMemory, kernel: Option<&KernelCheck<'_>>) -> Verdict {
    for replay in 0..REPLAYS {
        let source = source_of(replay);
        let output = kernel.map_or_else(|| vec![WIPE; source.len()], |kernel| (kernel.expected)(&source));
        let parts = [(Part::Fill, vec![FILL; source.len()]), (Part::Copy, source), (Part::Kernel, output)];
        for (index, (part, expected)) in (0..).zip(parts) {
            let mut found = vec![0; size(BYTES)];
            results.read((replay * 3 + index) * BYTES, &mut found);
            for (offset, (&expected, &found)) in (0..).zip(expected.iter().zip(&found)) {
                if expected != found {
                    return Verdict::Differs { replay, part, offset, expected, found };
                }
            }
        }
    }
    Verdict::Passed { replays: REPLAYS }
}
