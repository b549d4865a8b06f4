//! Making, joining and leaving a world of processes.

use std::sync::atomic::Ordering;

use specdec_core::device::PeerHandle;
use thiserror::Error;

use super::emulator::Emulator;
use super::error::EmulatorError;
use super::others;
use super::peer::{self, HandleKind};
use super::world::{World, MAX_PROCESSES, PROCESSES};

/// A world that cannot be made or joined.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorldError {
    /// No such number of processes.
    #[error("a world of {processes} processes; it can have 1 to {MAX_PROCESSES}")]
    Size {
        /// Processes asked for.
        processes: usize,
    },
    /// A second world.
    #[error("this emulator is in a world already")]
    AlreadyIn,
    /// No such place.
    #[error("the world has {processes} processes; there is no number {index}")]
    NoSuchProcess {
        /// The number asked for.
        index: usize,
        /// Processes of the world.
        processes: usize,
    },
    /// Somebody else's place.
    #[error("number {index} of the world is process {process} already")]
    Taken {
        /// The number asked for.
        index: usize,
        /// The process that has it.
        process: u32,
    },
    /// The host has no shared memory.
    #[error("the host cannot provide shared memory: {reason}")]
    Host {
        /// The host's words.
        reason: String,
    },
}

impl WorldError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Size { .. } => "make a world with one place for each process",
            Self::AlreadyIn => "make or join one world, once, before the first launch",
            Self::NoSuchProcess { .. } | Self::Taken { .. } => "give each process a number of its own, from 0 on",
            Self::Host { .. } => "run on Linux, and allow more open files or memory",
        }
    }
}

impl Emulator {
    /// Makes a world of so many processes, of which this one is number 0. The others join it by the handle.
    pub fn create_world(&mut self, processes: usize) -> Result<PeerHandle, EmulatorError> {
        if self.shared.world.is_some() {
            return Err(WorldError::AlreadyIn.into());
        }
        let mut world = World::create(processes, self.ticks())?;
        world.enter(self.ticks())?;
        let handle = peer::handle_of(&world.segment, HandleKind::World);
        self.shared.world = Some(Box::new(world));
        Ok(handle)
    }

    /// Joins another process's world as number `index`.
    pub fn join_world(&mut self, handle: &PeerHandle, index: usize) -> Result<(), EmulatorError> {
        if self.shared.world.is_some() {
            return Err(WorldError::AlreadyIn.into());
        }
        let (segment, _) = peer::open(handle, HandleKind::World)?;
        let processes = segment.unit(PROCESSES).load(Ordering::Acquire) as usize;
        if index >= processes {
            return Err(WorldError::NoSuchProcess { index, processes }.into());
        }
        let mut world = World::at(segment, index, processes);
        world.enter(self.ticks())?;
        self.shared.world = Some(Box::new(world));
        Ok(())
    }

    /// Before a run: the clock catches up with the world's.
    pub(super) fn begin_run(&mut self) {
        if let Some(world) = &self.shared.world {
            let ticks = self.shared.clock.ticks();
            self.shared.clock.advance(world.start(ticks) - ticks);
        }
    }

    /// After a run: the others learn of the last stores, and that this process is in host code.
    pub(super) fn end_run(&mut self) {
        others::tell(&mut self.shared);
        if let Some(world) = &self.shared.world {
            let ticks = self.shared.clock.ticks();
            self.shared.clock.advance(world.end(ticks) - ticks);
        }
    }

    /// Leaves the world, if this emulator is in one: nobody waits for it any more.
    pub fn leave_world(&mut self) {
        self.shared.world = None;
    }
}
