//! What a step needs on its device, and its launches: generic over the [`Device`], so that every driver gets the same.
//!
//! One engine drives all ranks of a process. It owns scratch, peer buffers, tables and health; weights, states and
//! activations belong to the caller, who passes addresses.

use std::collections::HashMap;
use std::mem::size_of;

use thiserror::Error;

use crate::abi::{launch_flags, LaunchArgs, LayerDescriptor, StateGroup, BLOCK, MAX_RANKS, PEER_HEAD_BYTES};
use crate::buffers::{RankBuffers, MAX_GROUPS};
use crate::device::{Device, Launch, MemoryKind};
use crate::encode::Encode;
use crate::geometry::Shard;
use crate::health::{self, Failure};
use crate::ids::{DeviceAddress, Layer, Rank};
use crate::layout::{Layout, WitnessLayout};
use crate::plan::Run;
use crate::tag::Epoch;
use crate::tasks::{StepShape, StepShapeError, TaskTable};

/// Kernel symbol of every build.
const SYMBOL: &str = "layers";
/// Ticks of the kernels' clock in a second.
pub const TICKS_PER_SECOND: f64 = 1e8;

/// Why a launch or step could not be made, or failed.
#[derive(Debug, Error)]
pub enum EngineError<E: std::error::Error> {
    /// The device's own error.
    #[error(transparent)]
    Device(#[from] E),
    /// The step's shape is not served.
    #[error(transparent)]
    Shape(StepShapeError),
    /// No such rank.
    #[error("{0} does not exist: the engine has {1} ranks")]
    UnknownRank(Rank, u32),
    /// The wrong number of code objects.
    #[error("{0} code objects for {1} ranks: one for all, or one for each")]
    CodeObjects(usize, u32),
    /// A layer of the run has no weights yet.
    #[error("{1} of {0} is not bound")]
    Unbound(Rank, Layer),
    /// A layer behind the geometry's last.
    #[error("layer {0} does not exist: the engine's geometry has {1} layers")]
    UnknownLayer(u32, usize),
    /// Too many state groups.
    #[error("{0} state groups: at most {MAX_GROUPS}")]
    Groups(usize),
    /// A rank gave up in the step that just ran; no result of it may be used.
    #[error("the step failed on {} workgroups", .0.len())]
    Failed(Vec<Failure>),
    /// An earlier step failed.
    #[error("an earlier step failed: this engine launches nothing any more")]
    Stopped,
}

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
    module: M,
    scratch: DeviceAddress,
    peer: DeviceAddress,
    peers: [u64; MAX_RANKS as usize],
    alarm: DeviceAddress,
    epoch: DeviceAddress,
    health: DeviceAddress,
    abort: DeviceAddress,
    witness: Option<DeviceAddress>,
    descriptors: DeviceAddress,
    bound: Vec<bool>,
    groups: DeviceAddress,
    tables: HashMap<StepShape, DeviceAddress>,
}

/// All ranks of a process.
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
    /// Loads the code objects (one for all ranks, or one each), takes all memory and maps every rank's peer buffer.
    /// `timeout_seconds` is how long a kernel waits for another before it gives up.
    pub fn new(
        mut device: D,
        shard: Shard,
        code_objects: &[Vec<u8>],
        timeout_seconds: f64,
        with_witness: bool,
    ) -> Result<Self, EngineError<D::Error>> {
        if code_objects.len() != 1 && code_objects.len() != shard.ranks as usize {
            return Err(EngineError::CodeObjects(code_objects.len(), shard.ranks));
        }
        let layout = Layout::new(&shard);
        let witness = WitnessLayout::new(&shard);
        let buffers = RankBuffers::new(&shard);
        let num_layers = u64::from(shard.geometry.num_layers);
        let mut modules = Vec::new();
        for code_object in code_objects {
            modules.push(device.load(code_object)?);
        }
        let mut ranks = Vec::new();
        for index in 0..shard.ranks {
            let rank = Rank(index as u8);
            let mut take = |kind, bytes, name: &str| device.allocate(rank, kind, bytes, name);
            ranks.push(RankState {
                module: modules[if modules.len() == 1 { 0 } else { index as usize }],
                scratch: take(MemoryKind::Device, buffers.scratch_bytes, "scratch")?,
                peer: take(MemoryKind::Uncached, buffers.peer_bytes, "peer buffer")?,
                peers: [0; MAX_RANKS as usize],
                alarm: DeviceAddress::NULL,
                epoch: take(MemoryKind::Device, buffers.epoch_bytes, "epoch")?,
                health: take(MemoryKind::Device, buffers.health_bytes, "health")?,
                abort: take(MemoryKind::HostPinned, buffers.abort_bytes, "abort word")?,
                witness: if with_witness {
                    Some(take(MemoryKind::Device, witness.bytes * num_layers, "witness")?)
                } else {
                    None
                },
                descriptors: take(MemoryKind::Device, buffers.descriptor_bytes, "layer descriptors")?,
                bound: vec![false; num_layers as usize],
                groups: take(MemoryKind::Device, buffers.state_group_bytes, "state groups")?,
                tables: HashMap::new(),
            });
        }
        let peers: Vec<DeviceAddress> = ranks.iter().map(|state| state.peer).collect();
        for (index, state) in ranks.iter_mut().enumerate() {
            for (owner, &buffer) in peers.iter().enumerate() {
                let mapped = device.map_peer(buffer, Rank(owner as u8), Rank(index as u8))?;
                state.peers[owner] = mapped.offset(u64::from(PEER_HEAD_BYTES)).0;
                if owner == 0 {
                    state.alarm = mapped.offset(4 * index as u64);
                }
            }
        }
        let timeout_ticks = (timeout_seconds * TICKS_PER_SECOND) as u64;
        Ok(Self { device, shard, layout, witness, ranks, timeout_ticks, stopped: false })
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

    /// First byte of a rank's layer descriptors, one after the other.
    pub fn descriptors(&self, rank: Rank) -> Result<DeviceAddress, EngineError<D::Error>> {
        self.state(rank).map(|state| state.descriptors)
    }

    /// A rank's loaded code object.
    pub fn module(&self, rank: Rank) -> Result<D::Module, EngineError<D::Error>> {
        self.state(rank).map(|state| state.module)
    }

    fn state(&self, rank: Rank) -> Result<&RankState<D::Module>, EngineError<D::Error>> {
        self.ranks.get(rank.0 as usize).ok_or(EngineError::UnknownRank(rank, self.shard.ranks))
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
        self.ranks[rank.0 as usize].bound[layer as usize] = true;
        Ok(())
    }

    /// Writes a rank's state groups.
    pub fn bind_groups(&mut self, rank: Rank, groups: &[StateGroup]) -> Result<(), EngineError<D::Error>> {
        if groups.len() as u64 > MAX_GROUPS {
            return Err(EngineError::Groups(groups.len()));
        }
        let mut bytes = Vec::new();
        for group in groups {
            group.encode(&mut bytes);
        }
        let at = self.state(rank)?.groups;
        Ok(self.device.write(at, &bytes)?)
    }

    /// Plans a shape and writes its task table on every rank; a shape that is there already costs nothing.
    pub fn prepare(&mut self, shape: StepShape) -> Result<(), EngineError<D::Error>> {
        if self.ranks.iter().all(|state| state.tables.contains_key(&shape)) {
            return Ok(());
        }
        let table = TaskTable::new(&self.shard, shape, self.shard.geometry.grid).map_err(EngineError::Shape)?;
        let bytes = table.to_bytes();
        for (index, state) in self.ranks.iter_mut().enumerate() {
            let at = self.device.allocate(Rank(index as u8), MemoryKind::Device, bytes.len() as u64, "task table")?;
            self.device.write(at, &bytes)?;
            state.tables.insert(shape, at);
        }
        Ok(())
    }

    /// Enqueues one run on one rank; the last launch of a step advances the epoch.
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
        self.prepare(shape)?;
        let state = self.state(rank)?;
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
            stages: state.tables[&shape].0,
            scratch: state.scratch.0,
            peers: state.peers,
            epoch: state.epoch.0,
            health: state.health.0,
            alarm: state.alarm.0,
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
        let launch = Launch {
            module: state.module,
            symbol: SYMBOL.into(),
            grid: args.grid,
            block: BLOCK,
            kernarg: args.to_bytes(),
        };
        Ok(self.device.launch(rank, &launch)?)
    }

    /// Runs what is queued on every rank; an error if any workgroup gave up.
    pub fn synchronize(&mut self) -> Result<(), EngineError<D::Error>> {
        let ran = self.device.synchronize();
        self.stopped |= ran.is_err();
        ran?;
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
        for (index, state) in self.ranks.iter().enumerate() {
            let mut bytes = vec![0; health::bytes(self.shard.geometry.grid) as usize];
            self.device.read(state.health, &mut bytes)?;
            failures.extend(health::failures(Rank(index as u8), &bytes));
        }
        failures.sort_by_key(Failure::distance_from_cause);
        Ok(failures)
    }

    /// A rank's epoch.
    pub fn epoch(&self, rank: Rank) -> Result<Epoch, EngineError<D::Error>> {
        let mut bytes = [0; 4];
        self.device.read(self.state(rank)?.epoch, &mut bytes)?;
        Ok(Epoch(u32::from_le_bytes(bytes)))
    }

    /// Continues at `epoch` on every rank of this process: all ranks of a group must agree on it.
    pub fn resume_at(&mut self, epoch: Epoch) -> Result<(), EngineError<D::Error>> {
        for state in &self.ranks {
            self.device.write(state.epoch, &epoch.0.to_le_bytes())?;
        }
        Ok(())
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
