//! The places that accesses come from: one number for an instruction, its layer and its kind.

use std::collections::HashMap;
use std::sync::Arc;

use super::polling::polling_steps;
use crate::machine::action::{Action, VectorKind};
use crate::machine::dispatch::Queued;
use crate::machine::lines::Lines;
use crate::machine::location::SourceLine;
use crate::machine::visibility::Policy;
use crate::op::Op;

/// Who must see an access, by its sc bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// No further than the workgroup: a store may stay in its XCD's L2, a load may return an older copy.
    Plain,
    /// The device: past the caches of the XCD.
    Device,
    /// All devices.
    System,
}

impl Scope {
    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Device => "device-scope",
            Self::System => "system-scope",
        }
    }

    /// The scope of a load or store: sc1 is the device, sc0 with it the system, sc0 alone the workgroup.
    pub(in crate::machine) fn of(policy: Policy) -> Self {
        match (policy.sc1, policy.sc0) {
            (false, _) => Self::Plain,
            (true, false) => Self::Device,
            (true, true) => Self::System,
        }
    }

    /// The scope of a read-modify-write: its sc0 asks for the old value, and the L2 is the nearest that executes it.
    pub(in crate::machine) fn of_atomic(policy: Policy) -> Self {
        if policy.sc1 {
            Self::System
        } else {
            Self::Device
        }
    }
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// A load.
    Load,
    /// A load of a polling loop whose value ended the wait.
    Accept,
    /// A store.
    Store,
    /// A store of one or two words at device or system scope, such as a poll may accept.
    Publish,
    /// A read-modify-write.
    Atomic,
    /// A scalar load.
    ScalarLoad,
    /// An LDS read.
    LdsRead,
    /// An LDS write.
    LdsWrite,
}

/// Where an access comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::machine) struct Site {
    /// Index of the kernel in [`Sites::kernels`].
    pub kernel: u32,
    /// Step of the program.
    pub step: u32,
    /// Row of the table that the wave last read from, see `Emulator::watch_rows`.
    pub row: Option<u32>,
    pub kind: AccessKind,
    pub scope: Scope,
}

/// A kernel that was launched under the check.
#[derive(Debug)]
pub(in crate::machine) struct Kernel {
    /// One of its launches.
    pub launch: Arc<Queued>,
    /// Its first step, and for each step from there whether it belongs to a polling loop.
    first: usize,
    polling: Vec<bool>,
    /// It writes back or invalidates caches itself: then no scope is too narrow for certain.
    pub has_fences: bool,
}

impl Kernel {
    fn of(launch: &Arc<Queued>) -> Self {
        let program = &launch.module.program;
        let code = &launch.kernel().code;
        let first = program.find(code.start).unwrap_or(0);
        let mut end = first;
        while program.step(end).is_some_and(|step| step.inst.pc < code.end) {
            end += 1;
        }
        let ops = (first..end).filter_map(|step| program.step(step).map(|step| step.inst.op));
        let has_fences = ops.clone().any(|op| matches!(op, Op::BufferInv | Op::BufferWbl2));
        let mut polling = polling_steps(program, first, end);
        add_peeled(launch, first, &mut polling);
        Self { launch: launch.clone(), first, polling, has_fences }
    }

    /// Whether a step belongs to a polling loop.
    #[inline]
    pub fn polls(&self, step: u32) -> bool {
        self.polling.get((step as usize).wrapping_sub(self.first)).copied().unwrap_or(false)
    }
}

/// A compiler may look once before it enters a loop: such a load has the source lines of one inside.
fn add_peeled(launch: &Queued, first: usize, polling: &mut [bool]) {
    let module = &launch.module;
    let mut lines = Lines::open(&module.object.elf);
    let mut sources: Vec<Option<Vec<SourceLine>>> = Vec::new();
    for step in first..first + polling.len() {
        let step =
            module.program.step(step).filter(|step| matches!(step.action, Action::Vector(_, VectorKind::Load(_))));
        sources.push(step.map(|step| lines.functions(module.object.text.start as u64 + u64::from(step.inst.pc))));
    }
    let inside: Vec<Vec<SourceLine>> =
        sources.iter().zip(&*polling).filter(|(_, polls)| **polls).filter_map(|(source, _)| source.clone()).collect();
    for (polls, source) in polling.iter_mut().zip(&sources) {
        *polls |= source.as_ref().is_some_and(|source| !source.is_empty() && inside.contains(source));
    }
}

/// All places so far.
#[derive(Debug, Default)]
pub(in crate::machine) struct Sites {
    numbers: HashMap<Site, u32>,
    known: Vec<Site>,
    /// By the kernel's number.
    pub kernels: Vec<Kernel>,
}

impl Sites {
    /// The number of a place.
    #[inline]
    pub fn number(&mut self, site: Site) -> u32 {
        if let Some(&number) = self.numbers.get(&site) {
            return number;
        }
        let number = self.known.len() as u32;
        self.numbers.insert(site, number);
        self.known.push(site);
        number
    }

    /// The place of a number.
    #[inline]
    pub fn site(&self, number: u32) -> Site {
        self.known[number as usize]
    }

    /// The number of a launch's kernel.
    pub fn kernel(&mut self, launch: &Arc<Queued>) -> u32 {
        let same = |known: &Kernel| {
            known.launch.module.image == launch.module.image
                && known.launch.kernel == launch.kernel
                && known.launch.shape == launch.shape
        };
        let known = self.kernels.iter().position(same);
        known.unwrap_or_else(|| {
            self.kernels.push(Kernel::of(launch));
            self.kernels.len() - 1
        }) as u32
    }
}
