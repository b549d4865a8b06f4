//! From code objects to ranks that reach each other: memory first, then peers. What is not linked cannot launch.

use std::collections::HashMap;

use super::{Engine, EngineError, RankState, TICKS_PER_SECOND};
use crate::abi::{MAX_RANKS, PEER_HEAD_BYTES};
use crate::buffers::RankBuffers;
use crate::device::{Device, MemoryKind, PeerHandle};
use crate::geometry::Shard;
use crate::ids::{DeviceAddress, Rank};
use crate::layout::{Layout, WitnessLayout};
use crate::tag::Epoch;

/// How an engine is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineOptions {
    /// How long a kernel waits for another before it gives up.
    pub timeout_seconds: f64,
    /// Whether launches store what lives only in registers.
    pub witness: bool,
}

/// The ranks of this process with their memory and code, before they reach their peers.
#[derive(Debug)]
pub struct Unlinked<D: Device> {
    device: D,
    shard: Shard,
    ranks: Vec<RankState<D::Module>>,
    options: EngineOptions,
}

impl<D: Device> Unlinked<D> {
    /// Loads the code objects (one for all members, or one each) and takes all memory of `members`, ranks of this
    /// process.
    pub fn new(
        mut device: D,
        shard: Shard,
        members: &[Rank],
        code_objects: &[Vec<u8>],
        options: EngineOptions,
    ) -> Result<Self, EngineError<D::Error>> {
        if code_objects.len() != 1 && code_objects.len() != members.len() {
            return Err(EngineError::CodeObjects(code_objects.len(), members.len()));
        }
        let mut modules = Vec::new();
        for code_object in code_objects {
            modules.push(device.load(code_object)?);
        }
        let mut ranks = Vec::new();
        for (index, &rank) in members.iter().enumerate() {
            let module = modules[if modules.len() == 1 { 0 } else { index }];
            ranks.push(RankState::allocate(&mut device, &shard, rank, module, options.witness)?);
        }
        Ok(Self { device, shard, ranks, options })
    }

    /// The device, to set it up further.
    pub const fn device_mut(&mut self) -> &mut D {
        &mut self.device
    }

    /// What the other processes need to reach this one's ranks.
    pub fn handles(&mut self) -> Result<Vec<(Rank, PeerHandle)>, EngineError<D::Error>> {
        let mut handles = Vec::new();
        for state in &self.ranks {
            handles.push((state.rank, self.device.export_peer(state.peer)?));
        }
        Ok(handles)
    }

    /// Reaches every rank: those of this process directly, the others through `handles`, one of each rank in order.
    /// Nothing may be launched on any rank before all ranks have come here.
    pub fn link(mut self, handles: &[PeerHandle]) -> Result<Engine<D>, EngineError<D::Error>> {
        let members: Vec<(Rank, DeviceAddress)> = self.ranks.iter().map(|state| (state.rank, state.peer)).collect();
        let is_whole = members.len() == self.shard.ranks as usize;
        if !is_whole && handles.len() != self.shard.ranks as usize {
            return Err(EngineError::Handles(handles.len(), self.shard.ranks));
        }
        for owner in (0..self.shard.ranks as u8).map(Rank) {
            let local = members.iter().find(|(rank, _)| *rank == owner);
            for state in &mut self.ranks {
                let mapped = match local {
                    Some(&(_, buffer)) => self.device.map_peer(buffer, owner, state.rank)?,
                    None => self.device.import_peer(&handles[owner.0 as usize], state.rank)?,
                };
                state.peers[owner.0 as usize] = mapped.offset(u64::from(PEER_HEAD_BYTES)).0;
            }
        }
        Ok(Engine {
            layout: Layout::new(&self.shard),
            witness: WitnessLayout::new(&self.shard),
            device: self.device,
            shard: self.shard,
            ranks: self.ranks,
            timeout_ticks: (self.options.timeout_seconds * TICKS_PER_SECOND) as u64,
            stopped: false,
        })
    }
}

impl<M: Copy> RankState<M> {
    fn allocate<D: Device<Module = M>>(
        device: &mut D,
        shard: &Shard,
        rank: Rank,
        module: M,
        with_witness: bool,
    ) -> Result<Self, EngineError<D::Error>> {
        let buffers = RankBuffers::new(shard);
        let num_layers = u64::from(shard.geometry.num_layers);
        let witness_bytes = WitnessLayout::new(shard).bytes * num_layers;
        let mut take = |kind, bytes, name: &str| device.allocate(rank, kind, bytes, name);
        Ok(Self {
            rank,
            module,
            scratch: take(MemoryKind::Device, buffers.scratch_bytes, "scratch")?,
            peer: take(MemoryKind::Uncached, buffers.peer_bytes, "peer buffer")?,
            peers: [0; MAX_RANKS as usize],
            health: take(MemoryKind::Device, buffers.health_bytes, "health")?,
            abort: take(MemoryKind::HostPinned, buffers.abort_bytes, "abort word")?,
            report: take(MemoryKind::HostPinned, buffers.report_bytes, "step report")?,
            witness: if with_witness { Some(take(MemoryKind::Device, witness_bytes, "witness")?) } else { None },
            descriptors: take(MemoryKind::Device, buffers.descriptor_bytes, "layer descriptors")?,
            bound: vec![false; num_layers as usize],
            groups: take(MemoryKind::Device, buffers.state_group_bytes, "state groups")?,
            bound_groups: Vec::new(),
            tables: HashMap::new(),
            next: Epoch(0),
            is_step_open: false,
        })
    }
}
