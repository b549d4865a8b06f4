//! The emulator: a machine with one device per rank.

use std::collections::VecDeque;
use std::sync::Arc;

use specdec_core::device::MemoryKind;
use specdec_core::ids::{DeviceAddress, Rank};

use super::abort::Abort;
use super::clock::Clock;
use super::code_object::KernelInfo;
use super::device_model::{DeviceModel, Shape};
use super::dispatch::{check_kernel, kernarg_segment, Module, Queued};
use super::error::EmulatorError;
use super::fault::{Fault, Faults};
use super::lines::Lines;
use super::location::SourceLine;
use super::memory::{Description, Memory};
use super::others;
use super::parking::Parking;
use super::peer::Import;
use super::priorities::Schedule;
use super::profile::{Label, Profile};
use super::random::Random;
use super::shared::Shared;
use super::statistics::Statistics;
use super::stream::{Capture, Entry};
use super::tap::{Tap, TapImage, TapRegion};
use super::weak::Weak;

/// What happens when every wave waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// The deadlock is an error that lists every waiter.
    Error,
    /// The clock jumps by so many ticks (10 ns each), so that waits with a time-out give up.
    Advance(u64),
}

/// How an emulator is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Devices, one per rank.
    pub ranks: usize,
    /// Seed of the scheduler: it changes the order of waves and nothing else.
    pub seed: u64,
    /// How waves take turns.
    pub schedule: Schedule,
    /// What happens when every wave waits.
    pub stall: Stall,
    /// Wave instructions that one `synchronize` may execute.
    pub budget: u64,
    /// Mean wave instructions of a turn.
    pub quantum: u64,
    /// Wave instructions, over all ranks, that a tick of the 100 MHz clock takes.
    pub instructions_per_tick: u64,
    /// Ticks after which parked polls look again although nothing that they poll has changed.
    pub poll_ticks: u64,
    /// Whether every access to memory is checked for races: some times slower.
    pub check_races: bool,
    /// Whether memory shows as little of stores as the model allows; see `weak`. Much slower.
    pub weak_memory: bool,
    /// Resources of a device.
    pub model: DeviceModel,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ranks: 1,
            seed: 0,
            schedule: Schedule::default(),
            stall: Stall::Error,
            budget: 1 << 40,
            quantum: 1024,
            instructions_per_tick: 256,
            poll_ticks: 10_000_000,
            check_races: false,
            weak_memory: false,
            model: DeviceModel::default(),
        }
    }
}

/// A loaded code object of one emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleHandle(pub(super) usize);

/// A launch in its general form: three dimensions, dynamic LDS, and a whole kernarg segment if one likes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridLaunch {
    /// The code object.
    pub module: ModuleHandle,
    /// Kernel symbol.
    pub symbol: String,
    /// Workgroups.
    pub grid: [u32; 3],
    /// Work-items of a workgroup.
    pub block: [u32; 3],
    /// LDS beyond what the kernel declares, in bytes.
    pub dynamic_lds_bytes: u32,
    /// The explicit arguments, or the whole segment with the hidden ones.
    pub kernarg: Vec<u8>,
}

/// A functional gfx950 machine with one device per rank.
#[derive(Debug)]
pub struct Emulator {
    pub(super) options: Options,
    pub(super) shared: Shared,
    pub(super) modules: Vec<Arc<Module>>,
    pub(super) queues: Vec<VecDeque<Entry>>,
    pub(super) captures: Vec<Option<Capture>>,
    pub(super) imports: Vec<Import>,
    pub(super) random: Random,
}

impl Emulator {
    /// A machine without memory or code.
    pub fn new(options: Options) -> Self {
        let shared = Shared {
            memory: Memory::default(),
            clock: Clock::new(options.instructions_per_tick),
            parking: Parking::default(),
            tap: Tap::default(),
            faults: Faults::default(),
            statistics: Statistics::default(),
            abort: Abort::default(),
            world: None,
            races: options.check_races.then(Box::default),
            weak: options.weak_memory.then(|| Box::new(Weak::new(options.seed))),
            profile: None,
        };
        let queues = (0..options.ranks).map(|_| VecDeque::new()).collect();
        let captures = (0..options.ranks).map(|_| None).collect();
        Self {
            options,
            shared,
            modules: Vec::new(),
            queues,
            captures,
            imports: Vec::new(),
            random: Random::new(options.seed),
        }
    }

    pub(super) fn memory_mut(&mut self) -> &mut Memory {
        &mut self.shared.memory
    }

    pub(super) fn check_rank(&self, rank: Rank) -> Result<(), EmulatorError> {
        let ranks = self.options.ranks;
        if (rank.0 as usize) < ranks {
            Ok(())
        } else {
            Err(EmulatorError::UnknownRank { rank, ranks })
        }
    }

    fn module(&self, handle: ModuleHandle) -> Result<&Arc<Module>, EmulatorError> {
        self.modules.get(handle.0).ok_or(EmulatorError::UnknownModule { index: handle.0 })
    }

    /// Allocates memory that nobody has written: a kernel that reads it before writing is stopped.
    pub fn allocate_unwritten(
        &mut self,
        rank: Rank,
        kind: MemoryKind,
        bytes: u64,
        name: &str,
    ) -> Result<DeviceAddress, EmulatorError> {
        self.check_rank(rank)?;
        let what = Description { rank, kind, name: name.into(), is_initialised: false };
        self.shared.memory.allocate(bytes, None, what).map(DeviceAddress)
    }

    /// Allocates memory at a guest address of the caller's choice: zeroed, or counted as never written. Pages that
    /// nobody touches cost nothing.
    pub fn allocate_at(
        &mut self,
        rank: Rank,
        address: DeviceAddress,
        bytes: u64,
        name: &str,
        is_initialised: bool,
    ) -> Result<(), EmulatorError> {
        self.check_rank(rank)?;
        let what = Description { rank, kind: MemoryKind::Device, name: name.into(), is_initialised };
        self.shared.memory.allocate(bytes, Some(address.0), what).map(|_| ())
    }

    /// Writes memory as it is now, before what is queued runs.
    pub fn write_now(&mut self, address: DeviceAddress, bytes: &[u8]) -> Result<(), EmulatorError> {
        self.shared.memory.host_write(address.0, bytes)?;
        others::tell(&mut self.shared);
        Ok(())
    }

    /// Checks that one allocation holds `bytes` at an address.
    pub fn check_range(&self, address: DeviceAddress, bytes: u64) -> Result<(), EmulatorError> {
        self.shared.memory.host_check(address.0, bytes).map(|_| ())
    }

    /// Kernels of a code object.
    pub fn kernels(&self, module: ModuleHandle) -> Result<Vec<KernelInfo>, EmulatorError> {
        Ok(self.module(module)?.object.kernels.iter().map(|kernel| kernel.info.clone()).collect())
    }

    /// SHA-256 of a code object's file.
    pub fn sha256(&self, module: ModuleHandle) -> Result<[u8; 32], EmulatorError> {
        Ok(self.module(module)?.object.sha256)
    }

    /// Instructions of a code object's kernels that would stop a run: pc and what the decoder makes of them.
    pub fn unsupported_instructions(&self, module: ModuleHandle) -> Result<Vec<(u32, String)>, EmulatorError> {
        let module = self.module(module)?;
        let code = module.object.kernels.iter().map(|kernel| &kernel.code);
        Ok(code.flat_map(|range| module.program.unsupported(range)).collect())
    }

    /// The functions at a pc of a code object's text section, innermost first.
    pub fn functions_at(&self, module: ModuleHandle, pc: u32) -> Result<Vec<SourceLine>, EmulatorError> {
        let object = &self.module(module)?.object;
        Ok(Lines::open(&object.elf).functions(object.text.start as u64 + pc as u64))
    }

    /// Checks and enqueues one launch on `rank`.
    pub fn launch_grid(&mut self, rank: Rank, launch: &GridLaunch) -> Result<(), EmulatorError> {
        self.check_rank(rank)?;
        let module = self.module(launch.module)?.clone();
        let shape = Shape { grid: launch.grid, block: launch.block, dynamic_lds_bytes: launch.dynamic_lds_bytes };
        let kernel = module.object.kernel(&launch.symbol)?;
        check_kernel(&module, kernel)?;
        self.options.model.check(kernel, &shape)?;
        let kernarg = kernarg_segment(kernel, &shape, &launch.kernarg)?;
        let kernel = module.object.kernels.iter().position(|known| known.info.symbol == launch.symbol).unwrap_or(0);
        self.enqueue(rank, Entry::Launch(Arc::new(Queued { rank, module, kernel, shape, kernarg })));
        Ok(())
    }

    /// Changes what happens when every wave waits.
    pub fn set_stall(&mut self, stall: Stall) {
        self.options.stall = stall;
    }

    /// Changes how many wave instructions one `synchronize` may execute.
    pub fn set_budget(&mut self, budget: u64) {
        self.options.budget = budget;
    }

    /// Virtual time in ticks of 10 ns.
    pub fn ticks(&self) -> u64 {
        self.shared.clock.ticks()
    }

    /// Lets virtual time pass between launches.
    pub fn advance_clock(&mut self, ticks: u64) {
        self.shared.clock.advance(ticks);
    }

    /// What ran since the start or [`Emulator::clear_statistics`].
    pub fn statistics(&self) -> &Statistics {
        &self.shared.statistics
    }

    /// Starts counting anew.
    pub fn clear_statistics(&mut self) {
        self.shared.statistics = Statistics::default();
        if let Some(profile) = &mut self.shared.profile {
            profile.clear();
        }
    }

    /// From now on counts what a code object does by label: `label` attributes an instruction by its inlined functions,
    /// innermost first. Slows every instruction down; a machine that was never asked to pays nothing.
    pub fn count(
        &mut self,
        module: ModuleHandle,
        num_bins: usize,
        label: impl Fn(&[SourceLine]) -> Label,
    ) -> Result<(), EmulatorError> {
        let module = self.module(module)?.clone();
        let mut lines = Lines::open(&module.object.elf);
        let text = module.object.text.start as u64;
        let pcs = (0..).map_while(|index| module.program.step(index)).map(|step| step.inst.pc);
        let labels = pcs.map(|pc| label(&lines.functions(text + u64::from(pc)))).collect();
        let profile = self.shared.profile.get_or_insert_with(|| Box::new(Profile::new(num_bins)));
        profile.attribute(module.image, labels);
        Ok(())
    }

    /// What was counted by label; `None` before [`Emulator::count`].
    pub fn profile(&self) -> Option<&Profile> {
        self.shared.profile.as_deref()
    }

    /// Records what is stored into an exchange region from now on.
    pub fn watch(&mut self, region: TapRegion) {
        self.shared.tap.watch(region);
    }

    /// Removes and returns what was stored into a region under a tag.
    pub fn take_tap(&mut self, rank: Rank, id: u32, tag: u32) -> Option<TapImage> {
        self.shared.tap.take(rank, id, tag)
    }

    /// Tags under which something was stored into a region.
    pub fn tap_tags(&self, rank: Rank, id: u32) -> Vec<u32> {
        self.shared.tap.tags(rank, id)
    }

    /// Forgets every tap region and image.
    pub fn clear_tap(&mut self) {
        self.shared.tap.clear();
    }

    /// Injects a fault; its handle for [`Emulator::has_fired`].
    pub fn inject(&mut self, fault: Fault) -> usize {
        self.shared.faults.inject(fault)
    }

    /// Whether an injected fault has fired.
    pub fn has_fired(&self, fault: usize) -> bool {
        self.shared.faults.has_fired(fault)
    }
}
