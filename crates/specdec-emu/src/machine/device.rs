//! The emulator as a `Device`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use specdec_core::device::{Device, Launch, MemoryKind, PeerHandle};
use specdec_core::ids::{DeviceAddress, Rank};

use super::code_object::CodeObject;
use super::dispatch::Module;
use super::emulator::{Emulator, GridLaunch, ModuleHandle};
use super::error::EmulatorError;
use super::memory::Description;
use super::program::Program;
use super::residency::Residency;
use super::scheduler::Scheduler;
use super::stream::Graph;

impl Device for Emulator {
    type Module = ModuleHandle;
    type Graph = Graph;
    type Error = EmulatorError;

    fn allocate(
        &mut self,
        rank: Rank,
        kind: MemoryKind,
        bytes: u64,
        name: &str,
    ) -> Result<DeviceAddress, EmulatorError> {
        self.not_while_capturing("allocate")?;
        self.check_rank(rank)?;
        let what = Description { rank, kind, name: name.into(), is_initialised: true };
        self.shared.memory.allocate(bytes, None, what).map(DeviceAddress)
    }

    fn free(&mut self, address: DeviceAddress) -> Result<(), EmulatorError> {
        self.not_while_capturing("free")?;
        self.check_own(address.0)?;
        self.forget_abort_words(address.0);
        self.forget_races(address.0);
        self.shared.memory.remove(address.0)
    }

    /// Every rank reaches every allocation at the same address.
    fn map_peer(&mut self, address: DeviceAddress, rank: Rank, peer: Rank) -> Result<DeviceAddress, EmulatorError> {
        self.check_rank(peer)?;
        let allocation = self.shared.memory.starting_at(address.0).filter(|allocation| allocation.rank == rank);
        allocation.map(|_| address).ok_or(EmulatorError::NotAnAllocation { address: address.0 })
    }

    fn export_peer(&mut self, address: DeviceAddress) -> Result<PeerHandle, EmulatorError> {
        self.export(address)
    }

    fn import_peer(&mut self, handle: &PeerHandle, rank: Rank) -> Result<DeviceAddress, EmulatorError> {
        self.import(handle, rank)
    }

    fn close_peer(&mut self, address: DeviceAddress) -> Result<(), EmulatorError> {
        self.close(address)
    }

    fn write(&mut self, address: DeviceAddress, bytes: &[u8]) -> Result<(), EmulatorError> {
        self.not_while_capturing("write")?;
        self.synchronize()?;
        self.write_now(address, bytes)
    }

    fn read(&self, address: DeviceAddress, bytes: &mut [u8]) -> Result<(), EmulatorError> {
        self.not_while_capturing("read")?;
        self.shared.memory.host_read(address.0, bytes)
    }

    fn queue_write(&mut self, rank: Rank, address: DeviceAddress, bytes: &[u8]) -> Result<(), EmulatorError> {
        self.enqueue_write(rank, address, bytes)
    }

    fn queue_copy(
        &mut self,
        rank: Rank,
        to: DeviceAddress,
        from: DeviceAddress,
        bytes: u64,
    ) -> Result<(), EmulatorError> {
        self.enqueue_copy(rank, to, from, bytes)
    }

    fn load(&mut self, code_object: &[u8]) -> Result<ModuleHandle, EmulatorError> {
        let object = CodeObject::parse(code_object)?;
        let program = Arc::new(Program::decode(&object.image[object.text.clone()]));
        let name = format!("code object {}", self.modules.len());
        let what = Description { rank: Rank(0), kind: MemoryKind::Device, name, is_initialised: true };
        let image = self.shared.memory.allocate(object.image.len() as u64, None, what)?;
        self.shared.memory.host_write(image, &object.image)?;
        self.modules.push(Arc::new(Module { object, program, image }));
        Ok(ModuleHandle(self.modules.len() - 1))
    }

    fn launch(&mut self, rank: Rank, launch: &Launch<ModuleHandle>) -> Result<(), EmulatorError> {
        let Launch { module, symbol, grid, block, kernarg } = launch.clone();
        let (symbol, grid, block) = (symbol.to_owned(), [grid, 1, 1], [block, 1, 1]);
        self.launch_grid(rank, &GridLaunch { module, symbol, grid, block, dynamic_lds_bytes: 0, kernarg })
    }

    fn begin_capture(&mut self, rank: Rank) -> Result<(), EmulatorError> {
        self.capture(rank)
    }

    fn is_capturing(&self, rank: Rank) -> Result<bool, EmulatorError> {
        self.check_rank(rank).map(|()| self.captures[rank.0 as usize].is_some())
    }

    fn end_capture(&mut self, rank: Rank) -> Result<Graph, EmulatorError> {
        self.captured(rank)
    }

    fn launch_graph(&mut self, rank: Rank, graph: &Graph) -> Result<(), EmulatorError> {
        self.replay(rank, graph)
    }

    /// Runs everything that was queued. After an error the queues are empty and memory is as the failing instruction
    /// left it.
    fn synchronize(&mut self) -> Result<(), EmulatorError> {
        self.not_while_capturing("synchronize")?;
        if self.queues.iter().all(VecDeque::is_empty) {
            return Ok(());
        }
        self.begin_run();
        let (start, first_tick) = (Instant::now(), self.shared.clock.ticks());
        let queues = self.queues.iter_mut().map(std::mem::take).collect();
        let random = self.random.clone();
        let scheduler = Scheduler::new(&self.options, random, &mut self.shared, Residency::new(queues));
        let (random, result) = scheduler.run();
        self.random = random;
        self.shared.statistics.ticks += self.shared.clock.ticks() - first_tick;
        self.shared.statistics.wall_seconds += start.elapsed().as_secs_f64();
        self.end_run();
        result
    }
}
