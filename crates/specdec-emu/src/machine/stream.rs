//! A rank's stream: launches and copies in order, and captures of them.

use std::cell::Cell;
use std::sync::Arc;

use specdec_core::ids::{DeviceAddress, Rank};
use thiserror::Error;

use super::dispatch::Queued;
use super::emulator::Emulator;
use super::error::EmulatorError;
use super::shared::Shared;

/// One thing that a stream does.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    Launch(Arc<Queued>),
    Write { address: u64, bytes: Arc<[u8]> },
    Copy { to: u64, from: u64, bytes: u64 },
}

/// What a stream recorded. Launching it again queues the same launches and copies.
#[derive(Clone, Debug)]
pub struct Graph {
    rank: Rank,
    entries: Vec<Entry>,
}

impl Graph {
    /// The rank whose stream recorded it.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many launches and copies it holds.
    pub fn num_entries(&self) -> usize {
        self.entries.len()
    }
}

/// A capture under way.
#[derive(Debug, Default)]
pub(super) struct Capture {
    entries: Vec<Entry>,
    /// The host call that made it void.
    broken_by: Cell<Option<&'static str>>,
}

/// A stream that was misused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// A host call that no graph can hold.
    #[error("`{call}` cannot run while {rank} captures; the capture is void")]
    Capturing {
        /// The call.
        call: &'static str,
        /// The rank that captures.
        rank: Rank,
    },
    /// A second begin.
    #[error("{rank} captures already")]
    AlreadyCapturing {
        /// The rank.
        rank: Rank,
    },
    /// An end without a begin.
    #[error("{rank} does not capture")]
    NotCapturing {
        /// The rank.
        rank: Rank,
    },
    /// A host call made the capture void.
    #[error("the capture of {rank} is void: `{call}` was called during it")]
    Void {
        /// The rank.
        rank: Rank,
        /// The call.
        call: &'static str,
    },
    /// A graph on a stream that is not its own.
    #[error("a graph of {graph} cannot be launched on {rank}")]
    OtherRank {
        /// The rank that recorded it.
        graph: Rank,
        /// The rank asked for.
        rank: Rank,
    },
    /// A copy of bytes that nobody wrote.
    #[error("a queued copy of {bytes} bytes from {place} on {rank} reads memory that nobody has written")]
    Unwritten {
        /// The rank whose stream it is.
        rank: Rank,
        /// Where, as an allocation and offset.
        place: String,
        /// Bytes.
        bytes: u64,
    },
}

impl StreamError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Capturing { .. } | Self::Void { .. } => {
                "end the capture first, or use `queue_write` and `queue_copy`, which a graph can hold"
            }
            Self::AlreadyCapturing { .. } => "end the first capture before the next begins",
            Self::NotCapturing { .. } => "begin a capture before ending it",
            Self::OtherRank { .. } => "capture a graph of its own for each rank",
            Self::Unwritten { .. } => "write the memory first, or allocate it zeroed",
        }
    }
}

/// Carries out a copy whose turn has come, and wakes who polls its bytes.
pub(super) fn perform(entry: &Entry, rank: Rank, shared: &mut Shared) -> Result<(), EmulatorError> {
    match entry {
        Entry::Launch(_) => Ok(()),
        Entry::Write { address, bytes } => land(*address, bytes, shared),
        Entry::Copy { to, from, bytes } => {
            let memory = &shared.memory;
            let (index, offset) = memory.host_check(*from, *bytes)?;
            if !memory.at(index).covers(offset, *bytes) {
                let place = memory.place(*from);
                return Err(StreamError::Unwritten { rank, place, bytes: *bytes }.into());
            }
            let mut copied = vec![0; *bytes as usize];
            memory.host_read(*from, &mut copied)?;
            land(*to, &copied, shared)
        }
    }
}

fn land(address: u64, bytes: &[u8], shared: &mut Shared) -> Result<(), EmulatorError> {
    shared.memory.host_write(address, bytes)?;
    shared.parking.signal_range(address, bytes.len() as u64);
    Ok(())
}

impl Emulator {
    /// Refuses a host call that no graph can hold while a rank captures, and makes the capture void, as HIP does.
    pub(super) fn not_while_capturing(&self, call: &'static str) -> Result<(), StreamError> {
        let capturing = self.captures.iter().position(Option::is_some);
        let Some(index) = capturing else { return Ok(()) };
        for capture in self.captures.iter().flatten() {
            capture.broken_by.set(Some(call));
        }
        Err(StreamError::Capturing { call, rank: Rank(index as u8) })
    }

    /// Queues or records one entry. The rank exists.
    pub(super) fn enqueue(&mut self, rank: Rank, entry: Entry) {
        match &mut self.captures[rank.0 as usize] {
            Some(capture) => capture.entries.push(entry),
            None => self.queues[rank.0 as usize].push_back(entry),
        }
    }

    pub(super) fn enqueue_write(&mut self, rank: Rank, to: DeviceAddress, bytes: &[u8]) -> Result<(), EmulatorError> {
        self.check_rank(rank)?;
        self.check_range(to, bytes.len() as u64)?;
        self.enqueue(rank, Entry::Write { address: to.0, bytes: bytes.into() });
        Ok(())
    }

    pub(super) fn enqueue_copy(
        &mut self,
        rank: Rank,
        to: DeviceAddress,
        from: DeviceAddress,
        bytes: u64,
    ) -> Result<(), EmulatorError> {
        self.check_rank(rank)?;
        self.check_range(to, bytes)?;
        self.check_range(from, bytes)?;
        self.enqueue(rank, Entry::Copy { to: to.0, from: from.0, bytes });
        Ok(())
    }

    pub(super) fn capture(&mut self, rank: Rank) -> Result<(), EmulatorError> {
        self.check_rank(rank)?;
        let capture = &mut self.captures[rank.0 as usize];
        if capture.is_some() {
            return Err(StreamError::AlreadyCapturing { rank }.into());
        }
        *capture = Some(Capture::default());
        Ok(())
    }

    pub(super) fn captured(&mut self, rank: Rank) -> Result<Graph, EmulatorError> {
        self.check_rank(rank)?;
        let capture = self.captures[rank.0 as usize].take().ok_or(StreamError::NotCapturing { rank })?;
        match capture.broken_by.get() {
            Some(call) => Err(StreamError::Void { rank, call }.into()),
            None => Ok(Graph { rank, entries: capture.entries }),
        }
    }

    pub(super) fn replay(&mut self, rank: Rank, graph: &Graph) -> Result<(), EmulatorError> {
        self.check_rank(rank)?;
        if graph.rank != rank {
            return Err(StreamError::OtherRank { graph: graph.rank, rank }.into());
        }
        for entry in &graph.entries {
            self.enqueue(rank, entry.clone());
        }
        Ok(())
    }
}
