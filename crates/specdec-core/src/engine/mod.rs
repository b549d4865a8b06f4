//! What a step needs on its device, and its launches: generic over the [`Device`], so that every driver gets the same.
//!
//! One engine drives all ranks of a process: every rank of a group, or one where each rank is a process. It owns scratch, peer buffers, tables and health; weights, states and
//! activations belong to the caller, who passes addresses.

use std::collections::HashMap;
use std::mem::{offset_of, size_of};

pub use error::EngineError;
pub use self_test::SELF_TEST_STEPS;
pub use steps::{DeviceReport, REPORT_BYTES};
pub use unlinked::{EngineOptions, Unlinked};

use crate::abi::{launch_flags, HealthHeader, LaunchArgs, LayerDescriptor, StateGroup, BLOCK, MAX_RANKS};
use crate::buffers::MAX_GROUPS;
use crate::device::{Device, Launch, MemoryKind};
use crate::encode::Encode;
use crate::geometry::Shard;
use crate::health::{self, Failure};
use crate::ids::{DeviceAddress, Layer, Rank};
use crate::layout::{Layout, WitnessLayout};
use crate::plan::Run;
use crate::tag::Epoch;
use crate::tasks::{StepShape, TaskTable};

mod error;
mod self_test;
mod steps;
mod unlinked;

/// Kernel symbols of every build.
const SYMBOL: &str = "layers";
pub(crate) const SELF_TEST_SYMBOL: &str = "self_test";
/// Ticks of the kernels' clock in a second.
pub const TICKS_PER_SECOND: f64 = 1e8;

/// What a rank's launch works on: addresses on that rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activations {
    /// bf16 `[rows, hidden]`, rewritten in place.
    pub prefix: DeviceAddress,
    /// bf16 block bank.
    pub blocks: DeviceAddress,
    /// Its stride from row to row, in elements.
    pub blocks_row_stride: u32,
    /// Its stride from block to block, in elements.
    pub block_stride: u32,
    /// bf16 `[rows, hidden]`: in, the previous layer's output (if `has_delta`); out, the last layer's.
    pub delta: DeviceAddress,
    /// bf16 `[rows, heads * head_dim]`: input of a first MLA half's `o_proj`.
    pub core: DeviceAddress,
    /// Whether `delta` is still to be added to the prefix.
    pub has_delta: bool,
}

#[derive(Debug)]
struct RankState<M> {
    rank: Rank,
    module: M,
    scratch: DeviceAddress,
    peer: DeviceAddress,
    peers: [u64; MAX_RANKS as usize],
    health: DeviceAddress,
    abort: DeviceAddress,
    report: DeviceAddress,
    witness: Option<DeviceAddress>,
    descriptors: DeviceAddress,
    bound: Vec<bool>,
    groups: DeviceAddress,
    bound_groups: Vec<StateGroup>,
    tables: HashMap<StepShape, DeviceAddress>,
    /// The step that is launched next, or is being launched.
    next: Epoch,
    is_step_open: bool,
}

/// All ranks of a process, which reach every rank of their group.
#[derive(Debug)]
pub struct Engine<D: Device> {
    /// The machine.
    pub device: D,
    shard: Shard,
    layout: Layout,
    witness: WitnessLayout,
    ranks: Vec<RankState<D::Module>>,
    timeout_ticks: u64,
    stopped: bool,
}

impl<D: Device> Engine<D> {
    /// All ranks in this process: `code_objects` are one for all of them, or one each.
    pub fn new(
        device: D,
        shard: Shard,
        code_objects: &[Vec<u8>],
        options: EngineOptions,
    ) -> Result<Self, EngineError<D::Error>> {
        let members: Vec<Rank> = (0..shard.ranks as u8).map(Rank).collect();
        Unlinked::new(device, shard, &members, code_objects, options)?.link(&[])
    }

    /// The ranks of this process.
    pub fn members(&self) -> impl Iterator<Item = Rank> + '_ {
        self.ranks.iter().map(|state| state.rank)
    }

    /// The shard that this engine serves.
    pub const fn shard(&self) -> &Shard {
        &self.shard
    }

    /// Where the exchanges are.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// First byte of a rank's scratch.
    pub fn scratch(&self, rank: Rank) -> Result<DeviceAddress, EngineError<D::Error>> {
        self.state(rank).map(|state| state.scratch)
    }

    /// First byte of a rank's peer buffer, its head.
    pub fn peer_buffer(&self, rank: Rank) -> Result<DeviceAddress, EngineError<D::Error>> {
        self.state(rank).map(|state| state.peer)
    }

    /// First pair of `owner`'s peer buffer, as `rank` reaches it.
    pub fn peer(&self, rank: Rank, owner: Rank) -> Result<DeviceAddress, EngineError<D::Error>> {
        let peer = self.state(rank)?.peers.get(owner.0 as usize).copied().unwrap_or(0);
        Some(DeviceAddress(peer)).filter(|peer| peer.0 != 0).ok_or_else(|| self.unknown(owner))
    }

    /// First byte of a rank's health buffer, its header.
    pub fn health(&self, rank: Rank) -> Result<DeviceAddress, EngineError<D::Error>> {
        self.state(rank).map(|state| state.health)
    }

    /// A rank's abort word.
    pub fn abort_word(&self, rank: Rank) -> Result<DeviceAddress, EngineError<D::Error>> {
        self.state(rank).map(|state| state.abort)
    }

    /// First byte of a rank's layer descriptors, one after the other.
    pub fn descriptors(&self, rank: Rank) -> Result<DeviceAddress, EngineError<D::Error>> {
        self.state(rank).map(|state| state.descriptors)
    }

    /// A rank's loaded code object.
    pub fn module(&self, rank: Rank) -> Result<D::Module, EngineError<D::Error>> {
        self.state(rank).map(|state| state.module)
    }

    fn state(&self, rank: Rank) -> Result<&RankState<D::Module>, EngineError<D::Error>> {
        self.ranks.iter().find(|state| state.rank == rank).ok_or_else(|| self.unknown(rank))
    }

    fn state_mut(&mut self, rank: Rank) -> Result<&mut RankState<D::Module>, EngineError<D::Error>> {
        let index = self.ranks.iter().position(|state| state.rank == rank).ok_or_else(|| self.unknown(rank))?;
        Ok(&mut self.ranks[index])
    }

    fn unknown(&self, rank: Rank) -> EngineError<D::Error> {
        let members: Vec<String> = self.members().map(|member| member.to_string()).collect();
        EngineError::UnknownRank(rank, members.join(", "))
    }

    /// Writes one layer's descriptor on a rank.
    pub fn bind_layer(&mut self, rank: Rank, descriptor: &LayerDescriptor) -> Result<(), EngineError<D::Error>> {
        let layer = descriptor.layer;
        let layers = self.state(rank)?.bound.len();
        if layer as usize >= layers {
            return Err(EngineError::UnknownLayer(layer, layers));
        }
        let bytes = descriptor.to_bytes();
        let at = self.state(rank)?.descriptors.offset(bytes.len() as u64 * u64::from(layer));
        self.device.write(at, &bytes)?;
        self.state_mut(rank)?.bound[layer as usize] = true;
        Ok(())
    }

    /// Queues a rank's state groups for the launches behind; groups that are there already cost nothing.
    pub fn bind_groups(&mut self, rank: Rank, groups: &[StateGroup]) -> Result<(), EngineError<D::Error>> {
        if groups.len() as u64 > MAX_GROUPS {
            return Err(EngineError::Groups(groups.len()));
        }
        let state = self.state_mut(rank)?;
        if state.bound_groups == groups {
            return Ok(());
        }
        state.bound_groups.clear();
        state.bound_groups.extend_from_slice(groups);
        let mut bytes = Vec::new();
        for group in groups {
            group.encode(&mut bytes);
        }
        let at = self.state(rank)?.groups;
        Ok(self.device.queue_write(rank, at, &bytes)?)
    }

    /// Plans a shape and writes its task table on every rank; a shape that is there already costs nothing.
    pub fn prepare(&mut self, shape: StepShape) -> Result<(), EngineError<D::Error>> {
        if self.ranks.iter().all(|state| state.tables.contains_key(&shape)) {
            return Ok(());
        }
        let table = TaskTable::new(&self.shard, shape, self.shard.geometry.grid).map_err(EngineError::Shape)?;
        let bytes = table.to_bytes();
        for state in &mut self.ranks {
            let at = self.device.allocate(state.rank, MemoryKind::Device, bytes.len() as u64, "task table")?;
            self.device.write(at, &bytes)?;
            state.tables.insert(shape, at);
        }
        Ok(())
    }

    /// Queues one run on one rank. The first of a step tells the device which step its metadata is for; the last lets
    /// the device count it. While a capture records, neither happens: [`Engine::replay`] makes a step of the graph.
    pub fn launch(
        &mut self,
        rank: Rank,
        run: Run,
        shape: StepShape,
        activations: &Activations,
        last_of_step: bool,
    ) -> Result<(), EngineError<D::Error>> {
        if self.stopped {
            return Err(EngineError::Stopped);
        }
        let is_capturing = self.device.is_capturing(rank)?;
        if !is_capturing {
            self.prepare(shape)?;
            self.open_step(rank)?;
        }
        let launch = self.describe(rank, run, shape, activations, last_of_step)?;
        self.device.launch(rank, &launch)?;
        if last_of_step && !is_capturing {
            self.end_step(rank)?;
        }
        Ok(())
    }

    fn describe(
        &self,
        rank: Rank,
        run: Run,
        shape: StepShape,
        activations: &Activations,
        last_of_step: bool,
    ) -> Result<Launch<D::Module>, EngineError<D::Error>> {
        let state = self.state(rank)?;
        let table = state.tables.get(&shape).ok_or(EngineError::Unprepared(rank))?;
        for layer in run.first.0..=run.last.0 {
            if !state.bound.get(layer as usize).copied().unwrap_or(false) {
                return Err(EngineError::Unbound(rank, Layer(layer)));
            }
        }
        let descriptor_bytes = size_of::<LayerDescriptor>() as u64;
        let mut flags = if last_of_step { launch_flags::LAST_OF_STEP } else { 0 };
        if activations.has_delta {
            flags |= launch_flags::HAS_DELTA;
        }
        let args = LaunchArgs {
            layers: state.descriptors.offset(descriptor_bytes * u64::from(run.first.0)).0,
            groups: state.groups.0,
            stages: table.0,
            scratch: state.scratch.0,
            peers: state.peers,
            health: state.health.0,
            abort: state.abort.0,
            witness: state.witness.map_or(0, |block| block.offset(self.witness.bytes * u64::from(run.first.0)).0),
            prefix: activations.prefix.0,
            blocks: activations.blocks.0,
            delta: activations.delta.0,
            core: activations.core.0,
            blocks_row_stride: activations.blocks_row_stride,
            block_stride: activations.block_stride,
            timeout_ticks: self.timeout_ticks,
            num_layers: run.num_layers(),
            rows: shape.rows(),
            rows_per_request: shape.rows_per_request,
            requests: shape.requests,
            rank: u32::from(rank.0),
            grid: self.shard.geometry.grid,
            flags,
            reserved: 0,
        };
        Ok(Launch { module: state.module, symbol: SYMBOL, grid: args.grid, block: BLOCK, kernarg: args.to_bytes() })
    }

    /// Runs what is queued on every rank of this process, whether workgroups give up or not: reports say so.
    pub fn run(&mut self) -> Result<(), EngineError<D::Error>> {
        let ran = self.device.synchronize();
        self.stopped |= ran.is_err();
        Ok(ran?)
    }

    /// Runs what is queued on every rank of this process; an error if any workgroup gave up.
    pub fn synchronize(&mut self) -> Result<(), EngineError<D::Error>> {
        self.run()?;
        let failures = self.failures()?;
        self.stopped |= !failures.is_empty();
        if failures.is_empty() {
            Ok(())
        } else {
            Err(EngineError::Failed(failures))
        }
    }

    /// Every recorded failure, the nearest to the cause first.
    pub fn failures(&self) -> Result<Vec<Failure>, EngineError<D::Error>> {
        let mut failures = Vec::new();
        for state in &self.ranks {
            let mut bytes = vec![0; health::bytes(self.shard.geometry.grid) as usize];
            self.device.read(state.health, &mut bytes)?;
            failures.extend(health::failures(state.rank, &bytes));
        }
        failures.sort_by_key(Failure::distance_from_cause);
        Ok(failures)
    }

    /// A rank's epoch.
    pub fn epoch(&self, rank: Rank) -> Result<Epoch, EngineError<D::Error>> {
        let mut bytes = [0; 4];
        let word = self.state(rank)?.health.offset(offset_of!(HealthHeader, epoch) as u64);
        self.device.read(word, &mut bytes)?;
        Ok(Epoch(u32::from_le_bytes(bytes)))
    }

    /// Asks every wait of this process's ranks to give up at once: a step in flight fails, none can follow.
    pub fn abort(&mut self) -> Result<(), EngineError<D::Error>> {
        for state in &self.ranks {
            self.device.write(state.abort, &1_u32.to_le_bytes())?;
        }
        Ok(())
    }

    /// A layer's witness block on a rank, of the last launch that held the layer; `None` without a witness.
    pub fn witness(&self, rank: Rank, layer: Layer) -> Result<Option<Vec<u8>>, EngineError<D::Error>> {
        let Some(buffer) = self.state(rank)?.witness else { return Ok(None) };
        let mut bytes = vec![0; self.witness.bytes as usize];
        self.device.read(buffer.offset(self.witness.bytes * u64::from(layer.0)), &mut bytes)?;
        Ok(Some(bytes))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests;
