//! When a store becomes visible to whom: the one place that decides it.
//!
//! Every access of a wave to memory passes through here with its cache policy and origin. As a rule it takes effect at
//! once, for everybody. `races` checks that nothing depends on that; `weak` keeps stores in flight and copies old
//! instead.

use specdec_core::ids::Rank;

use super::atomic::AtomicOp;
use super::error::EmulatorError;
use super::lane_copy;
use super::location::Location;
use super::shared::Shared;
use super::weak;
use crate::inst::Mods;
use crate::wave::{Lanes, LANES};

/// Who accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub rank: Rank,
    pub workgroup: u32,
    /// Number of the wave in the machine.
    pub wave: usize,
}

/// Cache policy bits of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub sc0: bool,
    pub sc1: bool,
}

impl Policy {
    /// The policy of an instruction. `nt` only says how long a line stays, not who sees it.
    pub fn of(mods: &Mods) -> Self {
        Self { sc0: mods.sc0, sc1: mods.sc1 }
    }

    /// Device or system scope: the access passes the caches that are not coherent.
    pub fn is_beyond_workgroup(self) -> bool {
        self.sc0 || self.sc1
    }
}

/// Addresses of the active lanes.
#[derive(Clone, Debug)]
pub(super) struct LaneAddresses {
    pub at: [u64; LANES],
    pub mask: u64,
}

impl LaneAddresses {
    /// The active lanes, ascending.
    #[inline]
    pub fn active(&self) -> impl Iterator<Item = usize> {
        let mut rest = self.mask;
        std::iter::from_fn(move || {
            let lane = rest.trailing_zeros() as usize;
            rest &= rest.wrapping_sub(1);
            (lane < LANES).then_some(lane)
        })
    }

    /// The lowest and highest active address; `None` without active lanes.
    #[inline]
    pub fn bounds(&self) -> Option<(u64, u64)> {
        if self.mask == u64::MAX {
            let low = self.at.iter().copied().fold(u64::MAX, u64::min);
            return Some((low, self.at.iter().copied().fold(0, u64::max)));
        }
        let first = self.active().next()?;
        Some(self.active().fold((self.at[first], self.at[first]), |(low, high), lane| {
            (low.min(self.at[lane]), high.max(self.at[lane]))
        }))
    }

    /// Checks every active address against an alignment, a power of two.
    pub fn check_alignment(&self, access: &'static str, needed: u64) -> Result<(), EmulatorError> {
        let all = if self.mask == u64::MAX {
            self.at.iter().fold(0, |bits, address| bits | address)
        } else {
            self.active().fold(0, |bits, lane| bits | self.at[lane])
        };
        if all & (needed - 1) == 0 {
            return Ok(());
        }
        let lane = self.active().find(|&lane| self.at[lane] & (needed - 1) != 0).unwrap_or(0);
        Err(EmulatorError::Misaligned { access, address: self.at[lane], needed, at: Location::lane(lane) })
    }
}

/// One memory instruction's access.
pub(super) struct Access<'a> {
    pub lanes: &'a LaneAddresses,
    /// Bytes of a lane.
    pub bytes: usize,
    pub policy: Policy,
    pub origin: Origin,
}

/// Adds the lane to an error of a single lane's access.
pub(super) fn in_lane<T>(lane: usize, result: Result<T, EmulatorError>) -> Result<T, EmulatorError> {
    result.map_err(|error| error.locate_lane(lane))
}

/// Loads a lane's bytes into consecutive registers; sub-dword elements are zero-extended.
pub(super) fn load(shared: &mut Shared, access: &Access, out: &mut [Lanes]) -> Result<(), EmulatorError> {
    let Access { lanes, bytes, .. } = *access;
    let Some((low, high)) = lanes.bounds() else { return Ok(()) };
    if access.policy.is_beyond_workgroup() && shared.parking.is_recording(access.origin.wave) {
        shared.parking.record(access.origin.wave, lanes, bytes as u64, &shared.memory);
    }
    shared.statistics.bytes_loaded += bytes as u64 * lanes.mask.count_ones() as u64;
    if let Some(races) = &mut shared.races {
        races.load(access, &shared.memory);
    }
    if shared.weak.is_some() {
        return weak::load(shared, access, out);
    }
    let memory = &shared.memory;
    if let Some(index) = memory.find(low) {
        let allocation = memory.at(index);
        if allocation.is_plain() && high - allocation.base + bytes as u64 <= allocation.bytes {
            lane_copy::gather(allocation.view(), allocation.base, lanes, bytes, out);
            return Ok(());
        }
    }
    for lane in lanes.active() {
        let mut value = [0; 16];
        in_lane(lane, memory.load("load", lanes.at[lane], &mut value[..bytes]))?;
        for (word, chunk) in out.iter_mut().zip(value.chunks_exact(4)) {
            word[lane] = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        }
    }
    Ok(())
}

/// Stores a lane's bytes from consecutive registers.
pub(super) fn store(shared: &mut Shared, access: &Access, data: &[Lanes]) -> Result<(), EmulatorError> {
    let Access { lanes, bytes, origin, .. } = *access;
    let Some((low, high)) = lanes.bounds() else { return Ok(()) };
    shared.statistics.bytes_stored += bytes as u64 * lanes.mask.count_ones() as u64;
    let mut changed;
    let data = if shared.faults.has_corruptions && shared.tap.may_watch(lanes) {
        changed = data.to_vec();
        shared.faults.corrupt(origin.rank, &shared.tap, lanes, &mut changed);
        &changed
    } else {
        data
    };
    let memory = &mut shared.memory;
    if let Some(races) = &mut shared.races {
        races.store(access, data, memory);
    }
    if shared.weak.is_some() {
        weak::store(shared, access, data)?;
        if shared.tap.may_watch(lanes) {
            shared.tap.observe(origin, lanes, bytes, data);
        }
        return Ok(());
    }
    let whole = memory.find(low).filter(|&index| {
        let allocation = memory.at(index);
        high - allocation.base + bytes as u64 <= allocation.bytes && allocation.segment().is_none()
    });
    if let Some(index) = whole {
        let allocation = memory.at_mut(index);
        if !allocation.is_plain() {
            let base = allocation.base;
            lanes.active().for_each(|lane| allocation.mark(lanes.at[lane] - base, bytes as u64));
        }
        let base = allocation.base;
        lane_copy::scatter(allocation.view_mut(), base, lanes, bytes, data);
    } else {
        for lane in lanes.active() {
            in_lane(lane, memory.store("store", lanes.at[lane], &lane_copy::pack(data, lane)[..bytes]))?;
        }
    }
    if shared.tap.may_watch(lanes) {
        shared.tap.observe(origin, lanes, bytes, data);
    }
    shared.parking.signal(lanes, bytes as u64);
    Ok(())
}

/// Operands of an atomic, by lane: data and, for compare-and-swap, the value to compare with.
pub(super) struct AtomicData {
    pub data: [u64; LANES],
    pub compare: [u64; LANES],
}

/// Performs an atomic lane by lane and returns the old values.
pub(super) fn atomic(
    shared: &mut Shared,
    access: &Access,
    op: AtomicOp,
    operands: &AtomicData,
) -> Result<[u64; LANES], EmulatorError> {
    let Access { lanes, bytes, origin, .. } = *access;
    let mut old = [0; LANES];
    if shared.parking.is_recording(origin.wave) {
        shared.parking.record(origin.wave, lanes, bytes as u64, &shared.memory);
    }
    if let Some(races) = &mut shared.races {
        races.atomic(access, &shared.memory);
    }
    weak::prepare_atomic(shared, access);
    for lane in lanes.active() {
        let change = |old| op.apply(old, operands.data[lane], operands.compare[lane], bytes as u8);
        old[lane] = in_lane(lane, shared.memory.update(lanes.at[lane], bytes, change))?;
    }
    shared.statistics.bytes_stored += bytes as u64 * lanes.mask.count_ones() as u64;
    shared.parking.signal(lanes, bytes as u64);
    Ok(old)
}

/// Loads bytes for a scalar load. The scalar cache is never written, so a kernel that needs fresh values does not
/// load them this way.
pub(super) fn scalar_load(
    shared: &mut Shared,
    origin: Origin,
    address: u64,
    into: &mut [u8],
) -> Result<(), EmulatorError> {
    if let Some(races) = &mut shared.races {
        races.scalar_load(origin.wave, address, into.len(), &shared.memory);
    }
    shared.statistics.bytes_loaded += into.len() as u64;
    shared.memory.load("scalar load", address, into)
}
