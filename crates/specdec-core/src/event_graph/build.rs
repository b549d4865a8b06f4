//! From the protocol and the task tables to events, edges and accesses.

use std::collections::{BTreeMap, HashMap};

use super::access::{Key, Log, Read, Write};
use super::cells::{is_routed, Cells};
use super::graph::{Graph, Node, Site, NO_NODE};
use super::hazard::Hazard;
use super::{LayerShape, World};
use crate::abi::{LayerKind, Stage, WAVES};
use crate::ids::{Cta, Layer, Rank};
use crate::layout::Region;
use crate::protocol::{is_pairs, Access, Exchange, Memory, Unit, Wait, When};
use crate::tasks::TaskTable;

/// Stages that a layer can have, for numbering places in the walk.
const PLACES: u32 = 64;

/// One layer of one step while its stages are built.
#[derive(Clone, Copy)]
pub(super) struct Moment<'a> {
    pub table: &'a TaskTable,
    pub shape: LayerShape,
    pub step: u32,
    /// In the step.
    pub layer: u32,
    /// Layers since the first step began.
    pub generation: u32,
    pub first_of_run: bool,
    pub last_of_run: bool,
    pub last_of_step: bool,
    pub stage: Option<Stage>,
    /// Place of the stage in the walk of all steps.
    pub position: u32,
}

impl Moment<'_> {
    pub fn holds(&self, when: When, has_task: bool) -> bool {
        match when {
            When::Always => true,
            When::Whole => self.shape.kind == LayerKind::Whole,
            When::FirstOfRun => self.first_of_run,
            When::LaterInRun => !self.first_of_run,
            When::LastOfRun => self.last_of_run,
            When::BlockWrite => self.shape.writes_block,
            When::NoBlockWrite => !self.shape.writes_block,
            When::HasTask => has_task,
            When::StepEnd => self.last_of_step,
        }
    }
}

/// A workgroup or a wave of one modelled rank, and its task.
#[derive(Clone, Copy)]
pub(super) struct Actor {
    /// Index of the modelled rank.
    pub rank: usize,
    pub cta: u32,
    pub wave: Option<u32>,
    pub task: u32,
}

/// Where the waves of one workgroup are.
#[derive(Clone)]
struct Flow {
    /// The last barrier of all waves.
    barrier: Node,
    /// What each wave has done since.
    waves: [Node; WAVES as usize],
}

/// Waits for the same cells of the same version share one event.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct HubKey {
    region: u32,
    rank: u8,
    version: u32,
    start: u32,
    end: u32,
}

pub(super) struct Builder<'a> {
    pub world: &'a World,
    pub cells: Cells<'a>,
    pub graph: Graph,
    pub logs: BTreeMap<Key, Log>,
    pub hazards: Vec<Hazard>,
    /// (modelled rank, step, event) of every clear.
    pub clears: Vec<(u8, u32, Node)>,
    /// What each event that stands for a wait has waited for.
    pub carried: Vec<(Node, Region)>,
    hubs: HashMap<HubKey, (Node, Key)>,
    flows: Vec<Vec<Flow>>,
    ends: Vec<Node>,
}

impl<'a> Builder<'a> {
    pub fn new(world: &'a World) -> Self {
        let grid = world.tables.iter().map(|table| table.grid).max().unwrap_or(0) as usize;
        let flow = Flow { barrier: NO_NODE, waves: [NO_NODE; WAVES as usize] };
        Self {
            world,
            cells: Cells { shard: &world.shard, ranks: &world.ranks },
            graph: Graph::default(),
            logs: BTreeMap::new(),
            hazards: Vec::new(),
            clears: Vec::new(),
            carried: Vec::new(),
            hubs: HashMap::new(),
            flows: vec![vec![flow; grid]; world.ranks.len()],
            ends: vec![NO_NODE; world.ranks.len()],
        }
    }

    /// All steps, all launches, all stages, in the walk's order.
    pub fn build(&mut self) {
        let layers = &self.world.layers;
        for (step, table) in self.world.tables.iter().enumerate() {
            for (index, shape) in layers.iter().enumerate() {
                let generation = (step * layers.len() + index) as u32;
                let last_of_step = index + 1 == layers.len();
                let mut moment = Moment {
                    table,
                    shape: *shape,
                    step: step as u32,
                    layer: index as u32,
                    generation,
                    first_of_run: index == 0 || shape.begins_launch(),
                    last_of_run: last_of_step || layers[index + 1].begins_launch(),
                    last_of_step,
                    stage: None,
                    position: generation * PLACES,
                };
                self.layer(&mut moment);
            }
        }
        self.join_hubs();
    }

    fn layer(&mut self, moment: &mut Moment) {
        let world = self.world;
        if moment.first_of_run {
            for rank in 0..world.ranks.len() {
                self.launch_start(moment, rank);
            }
        }
        for (place, row) in world.protocol.walk.iter().enumerate() {
            moment.stage = Some(row.stage);
            moment.position = moment.generation * PLACES + 1 + place as u32;
            if !moment.holds(row.when, true) {
                continue;
            }
            for rank in 0..world.ranks.len() {
                match row.unit {
                    Unit::Wave => self.waves(moment, row, rank),
                    Unit::Routed => self.routed(moment, row, rank),
                    Unit::Workgroup | Unit::EveryWorkgroup | Unit::Joined => self.workgroups(moment, row, rank),
                }
            }
        }
        moment.stage = None;
        if moment.last_of_run {
            for rank in 0..world.ranks.len() {
                self.launch_end(moment, rank);
            }
        }
    }

    /// Every workgroup reads the epoch, then its first barrier; a stream starts a launch when the one before has ended.
    fn launch_start(&mut self, moment: &Moment, rank: usize) {
        for cta in 0..moment.table.grid {
            let actor = Actor { rank, cta, wave: None, task: 0 };
            let node = self.node(moment, actor);
            self.graph.edge(self.ends[rank], node);
            self.flows[rank][cta as usize] = Flow { barrier: node, waves: [NO_NODE; WAVES as usize] };
            let key = self.key(moment, Exchange::Memory(Memory::Epoch), rank, moment.generation);
            self.log(key).read(moment.position, Read { start: 0, end: 1, node });
        }
    }

    fn launch_end(&mut self, moment: &Moment, rank: usize) {
        let end = self.node(moment, Actor { rank, cta: 0, wave: None, task: 0 });
        for flow in &self.flows[rank] {
            self.graph.edge(flow.barrier, end);
            flow.waves.iter().for_each(|wave| self.graph.edge(*wave, end));
        }
        self.ends[rank] = end;
    }

    fn node(&mut self, moment: &Moment, actor: Actor) -> Node {
        let site = Site {
            step: moment.step as u8,
            layer: Layer(moment.layer as u8),
            stage: moment.stage,
            rank: Rank(self.world.ranks[actor.rank] as u8),
            cta: Cta(actor.cta as u16),
            wave: actor.wave.map(|wave| wave as u8),
        };
        self.graph.node(site, moment.position)
    }

    /// The last barrier of a workgroup.
    pub fn last_barrier(&self, actor: Actor) -> Node {
        self.flows[actor.rank][actor.cta as usize].barrier
    }

    /// A barrier: behind everything that any wave of the workgroup has done.
    pub fn barrier(&mut self, moment: &Moment, actor: Actor) -> Node {
        let node = self.node(moment, actor);
        let flow = &mut self.flows[actor.rank][actor.cta as usize];
        self.graph.edge(flow.barrier, node);
        for wave in &mut flow.waves {
            self.graph.edge(*wave, node);
            *wave = NO_NODE;
        }
        flow.barrier = node;
        node
    }

    /// Something that one wave does alone: behind what that wave has done, and the last barrier.
    pub fn alone(&mut self, moment: &Moment, actor: Actor, wave: u32) -> Node {
        let node = self.node(moment, Actor { wave: Some(wave), ..actor });
        let flow = &mut self.flows[actor.rank][actor.cta as usize];
        let slot = &mut flow.waves[wave as usize];
        self.graph.edge(if *slot == NO_NODE { flow.barrier } else { *slot }, node);
        *slot = node;
        node
    }

    fn key(&self, moment: &Moment, exchange: Exchange, rank: usize, generation: u32) -> Key {
        let step = generation / self.world.layers.len() as u32;
        let instance = match exchange {
            Exchange::Region(region) if is_pairs(region) => step % self.world.protocol.halves.max(1),
            Exchange::Memory(Memory::ConvState | Memory::RecurrentState) => moment.layer,
            _ => 0,
        };
        Key { exchange, rank: rank as u8, instance }
    }

    fn log(&mut self, key: Key) -> &mut Log {
        self.logs.entry(key).or_default()
    }

    /// `node` does not pass before the region's cells carry their tag; it reads them while it polls.
    pub fn wait(&mut self, moment: &Moment, wait: Wait, actor: Actor, node: Node) {
        let exchange = Exchange::Region(wait.region);
        let version = moment.generation - u32::from(wait.previous_layer);
        let key = self.key(moment, exchange, actor.rank, version);
        for (start, end) in self.cells.read(moment.table, exchange, wait.extent, actor) {
            self.log(key).read(version, Read { start, end, node });
            let hub_key = HubKey { region: wait.region as u32, rank: key.rank, version, start, end };
            let hub = if let Some((hub, _)) = self.hubs.get(&hub_key) {
                *hub
            } else {
                let hub = self.node(moment, actor);
                self.hubs.insert(hub_key, (hub, key));
                self.carried.push((hub, wait.region));
                hub
            };
            self.graph.edge(hub, node);
        }
    }

    /// A read that is over at `node`.
    pub fn read(&mut self, moment: &Moment, access: Access, actor: Actor, node: Node) {
        let generation = moment.generation - u32::from(access.previous_layer);
        let key = self.key(moment, access.exchange, actor.rank, generation);
        let version = if matches!(access.exchange, Exchange::Region(_)) { generation } else { moment.position };
        for (start, end) in self.cells.read(moment.table, access.exchange, access.extent, actor) {
            self.log(key).read(version, Read { start, end, node });
        }
    }

    /// A write of the actor's task: stores behind `data`, known to readers behind `flag`.
    pub fn write(&mut self, moment: &Moment, access: Access, actor: Actor, data: Node, flag: Node) {
        let exchange = access.exchange;
        let cell = self.cells.written(moment.table, exchange, actor);
        let (version, ranks) = match exchange {
            Exchange::Region(region) if is_pairs(region) => (moment.generation, 0..self.world.ranks.len()),
            Exchange::Region(_) => (moment.generation, actor.rank..actor.rank + 1),
            Exchange::Memory(_) => (moment.position, actor.rank..actor.rank + 1),
        };
        for rank in ranks {
            let key = self.key(moment, exchange, rank, moment.generation);
            let other = self.log(key).at(cell, version).iter().map(|w| w.flag).find(|other| *other != flag);
            if let Some(other) = other {
                let (first, second) = (self.graph.sites[other as usize], self.graph.sites[flag as usize]);
                let known = |h: &Hazard| matches!(h, Hazard::TagReused { exchange: e, .. } if *e == exchange);
                if !self.hazards.iter().any(known) {
                    self.hazards.push(Hazard::TagReused { exchange, first, second });
                }
            }
            self.log(key).write(cell, Write { version, data, flag });
        }
    }

    /// Producers before the hubs that wait for them, and whether the walk has them in that order.
    fn join_hubs(&mut self) {
        let mut hubs: Vec<(HubKey, (Node, Key))> = self.hubs.drain().collect();
        hubs.sort_unstable_by_key(|(_, (hub, _))| *hub);
        for (hub_key, (hub, key)) in hubs {
            self.graph.adversarial[hub as usize] = is_routed(key.exchange);
            let Some(log) = self.logs.get(&key) else { continue };
            for write in (hub_key.start..hub_key.end).flat_map(|cell| log.at(cell, hub_key.version)) {
                self.graph.edge(write.flag, hub);
                let (reader, writer) = (self.graph.sites[hub as usize], self.graph.sites[write.flag as usize]);
                let late = self.graph.positions[write.flag as usize] >= self.graph.positions[hub as usize];
                let Exchange::Region(region) = key.exchange else { continue };
                let same = |h: &Hazard| matches!(h, Hazard::WaitsForLater { region: r, .. } if *r == region);
                if late && !self.hazards.iter().any(same) {
                    self.hazards.push(Hazard::WaitsForLater { region, reader, writer });
                }
            }
        }
    }
}
