//! Counts of what ran.

use std::collections::BTreeMap;

/// Counters since the emulator was made or [`super::Emulator::clear_statistics`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Wave instructions executed.
    pub wave_instructions: u64,
    /// Those of poll iterations: from one `s_sleep` to the next at the same place.
    pub poll_instructions: u64,
    /// Matrix instructions.
    pub mfma: u64,
    /// Those under an EXEC mask with a lane off: they read that lane's operands all the same, which the vector
    /// instructions before them may not have written.
    pub masked_mfma: u64,
    /// Vector loads, LDS DMA included.
    pub vector_loads: u64,
    /// Vector stores.
    pub vector_stores: u64,
    /// Loads straight into LDS.
    pub lds_dma: u64,
    /// Global and buffer atomics.
    pub atomics: u64,
    /// Scalar loads.
    pub scalar_loads: u64,
    /// LDS instructions.
    pub lds: u64,
    /// Bytes that vector and scalar loads asked for.
    pub bytes_loaded: u64,
    /// Bytes that vector stores and atomics wrote.
    pub bytes_stored: u64,
    /// Launches that ran to their end.
    pub launches: u64,
    /// Waves that were parked in a poll.
    pub parks: u64,
    /// Virtual time passed, in ticks of 10 ns.
    pub ticks: u64,
    /// Host time in `synchronize`, in seconds; the only figure that the seed does not determine.
    pub wall_seconds: f64,
    /// Per kernel and barrier pc: bytes of vector loads that a workgroup had in flight there.
    pub loads_in_flight: BTreeMap<(String, u32), LoadsInFlight>,
}

/// Bytes of vector loads in flight at one barrier, over the workgroups that passed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadsInFlight {
    /// The workgroup whose best pass had the least.
    pub min_bytes: u64,
    /// The workgroup whose best pass had the most.
    pub max_bytes: u64,
    /// Workgroups that passed this barrier.
    pub workgroups: u64,
}

impl LoadsInFlight {
    /// Adds one workgroup's best pass to a table entry.
    pub(super) fn add(entry: Option<Self>, bytes: u64) -> Self {
        entry.map_or(Self { min_bytes: bytes, max_bytes: bytes, workgroups: 1 }, |old| Self {
            min_bytes: old.min_bytes.min(bytes),
            max_bytes: old.max_bytes.max(bytes),
            workgroups: old.workgroups + 1,
        })
    }
}
