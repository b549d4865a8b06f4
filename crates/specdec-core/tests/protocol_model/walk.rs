//! From the visits of the event graph to the actions of every workgroup, in the order in which it walks them.

use std::collections::BTreeMap;

use specdec_core::abi::Stage;
use specdec_core::event_graph::{Touch, Visit, World};
use specdec_core::layout::Region;
use specdec_core::protocol::{is_pairs, Exchange, Memory};
use specdec_core::tasks::TaskTable;

/// One way a step can go.
#[derive(Clone, Debug)]
pub struct StepKind {
    /// Its width.
    pub table: TaskTable,
    /// Workgroups that the routing gives tasks, by layer.
    pub producers: Vec<u32>,
    /// The host abandons it behind so many launches.
    pub abandoned_behind: Option<usize>,
}

/// What nobody else comes between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grain {
    pub cut: Cut,
    /// Whether waves that nothing joins act alone, or all waves of a workgroup at once.
    pub waves: bool,
}

impl Grain {
    /// Visits of whole workgroups.
    pub const COARSE: Self = Self { cut: Cut::Visit, waves: false };
    /// Visits of waves.
    pub const WAVES: Self = Self { cut: Cut::Visit, waves: true };
    /// Single accesses of waves.
    pub const FINE: Self = Self { cut: Cut::Access, waves: true };
    /// Single accesses of waves, publications in the opposite order.
    pub const BACKWARDS: Self = Self { cut: Cut::Backwards, waves: true };
}

/// How a visit is cut into actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Wait, read, store and publish at once (`main.rs` says why that loses nothing).
    Visit,
    /// Waits, reads, stores and the publication of each region to each rank alone.
    Access,
    /// The same, the publications in the opposite order: nothing orders them in the kernels.
    Backwards,
    /// A defect: flags before the data that they announce.
    FlagFirst,
}

/// One row of one cell in the memory of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    pub rank: usize,
    pub exchange: Exchange,
    pub number: u32,
    pub row: Option<u32>,
}

/// A place in a workgroup's program: done when the workgroup is past it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    pub rank: u8,
    pub cta: u8,
    pub item: u8,
    pub chain: u8,
    pub at: u8,
}

/// One atomic action, in cells; with each cell the layer whose version is meant.
#[derive(Clone, Debug, Default)]
pub struct Action {
    pub stage: Option<Stage>,
    pub layer: u8,
    pub waits: Vec<(Cell, u8)>,
    pub reads: Vec<(Cell, u8)>,
    /// Plain data.
    pub stores: Vec<Cell>,
    /// Flags and pairs.
    pub publishes: Vec<Cell>,
    pub advances_epoch: bool,
    /// Clears rows beyond the width, and the flags of these cells.
    pub scrubs: Option<Vec<Cell>>,
}

impl Action {
    /// Does what another one does, at once.
    fn take_in(&mut self, other: Self) {
        self.waits.extend(other.waits);
        self.reads.extend(other.reads);
        self.stores.extend(other.stores);
        self.publishes.extend(other.publishes);
        self.advances_epoch |= other.advances_epoch;
    }
}

/// What a workgroup does between two barriers that join it.
#[derive(Clone, Debug)]
pub enum Item<A> {
    /// Reads the epoch.
    Start,
    /// Chains of actions; a workgroup that acts as one has a single chain.
    Chains(Vec<Vec<A>>),
    /// The launch is over when every workgroup of the rank is here.
    End,
}

/// A row's task is alone in its wave; these chains stand for what any wave may do as late as the next barrier.
const TAIL: u32 = 100;
const SCRUB: u32 = 101;

/// The walk of one workgroup while it grows.
struct Walker<'a> {
    world: &'a World,
    kind: &'a StepKind,
    grain: Grain,
    items: Vec<Item<Action>>,
    /// Waves of the last item's chains, if waves act alone there.
    waves: Option<Vec<u32>>,
}

/// The items of every workgroup by rank.
pub fn walk(world: &World, kind: &StepKind, grain: Grain, scrubs: bool) -> Vec<Vec<Vec<Item<Action>>>> {
    let layers: Vec<Vec<Visit>> = (0..world.layers.len()).map(|layer| world.visits(&kind.table, layer)).collect();
    let workgroup = |rank: usize, cta: u32| {
        let mut walker = Walker { world, kind, grain, items: Vec::new(), waves: None };
        for (layer, visits) in layers.iter().enumerate() {
            let mine: Vec<&Visit> = visits.iter().filter(|v| v.rank == rank && v.cta == cta).collect();
            walker.layer(layer, &mine, scrubs, rank, cta);
        }
        walker.items
    };
    (0..world.ranks.len()).map(|rank| (0..kind.table.grid).map(|cta| workgroup(rank, cta)).collect()).collect()
}

impl Walker<'_> {
    fn layer(&mut self, layer: usize, visits: &[&Visit], scrubs: bool, rank: usize, cta: u32) {
        let layers = &self.world.layers;
        let begins = |at: usize| at == 0 || layers[at].starts_launch;
        let ends = layer + 1 == layers.len() || begins(layer + 1);
        if begins(layer) {
            self.items.push(Item::Start);
            self.waves = None;
        }
        for visit in visits.iter().filter(|v| v.stage != Stage::Output) {
            if self.takes_place(visit, layer) {
                self.visit(visit);
            }
        }
        if scrubs && layer + 1 == layers.len() {
            let idle = self.idle_flags(rank, cta, layer);
            self.alone(SCRUB, vec![Action { layer: layer as u8, scrubs: Some(idle), ..Action::default() }]);
        }
        for visit in visits.iter().filter(|v| v.stage == Stage::Output) {
            self.visit(visit);
        }
        if ends {
            self.items.push(Item::End);
            self.waves = None;
        }
    }

    fn place_of(&self, cta: u32) -> u32 {
        let order = &self.kind.table.orders[Stage::ExpertUp as usize];
        order.iter().position(|other| *other == cta).unwrap_or(0) as u32
    }

    fn takes_place(&self, visit: &Visit, layer: usize) -> bool {
        !visit.routed || self.place_of(visit.cta) < self.kind.producers[layer]
    }

    /// Flags that this workgroup does not produce in the step's last layer.
    fn idle_flags(&self, rank: usize, cta: u32, layer: usize) -> Vec<Cell> {
        let (exchange, cell) = (Exchange::Region(Region::ExpertHidden), self.place_of(cta));
        let idle = cell >= self.kind.producers[layer];
        if idle {
            vec![Cell { rank, exchange, number: cell, row: None }]
        } else {
            Vec::new()
        }
    }

    fn visit(&mut self, visit: &Visit) {
        let actions = self.actions(visit);
        match visit.wave {
            Some(wave) => self.alone(wave, actions),
            None if visit.tail => self.alone(TAIL, actions),
            None => self.joined(actions),
        }
    }

    /// Adds to the chain of a wave that nothing joins to the others.
    fn alone(&mut self, wave: u32, actions: Vec<Action>) {
        if self.waves.is_none() {
            self.items.push(Item::Chains(Vec::new()));
        }
        let apart = self.grain.waves || wave == TAIL || wave == SCRUB;
        let wave = if apart { wave } else { 0 };
        let waves = self.waves.get_or_insert_with(Vec::new);
        let at = waves.iter().position(|other| *other == wave).unwrap_or(waves.len());
        let Some(Item::Chains(chains)) = self.items.last_mut() else { return };
        if at == waves.len() {
            waves.push(wave);
            chains.push(Vec::new());
        }
        for action in actions {
            let same = |other: &&mut Action| !apart && (other.stage, other.layer) == (action.stage, action.layer);
            match chains[at].iter_mut().find(same) {
                Some(other) => other.take_in(action),
                None => chains[at].push(action),
            }
        }
    }

    /// Adds to the workgroup's own chain. What waits for nothing belongs to the action before.
    fn joined(&mut self, actions: Vec<Action>) {
        let first = self.waves.take().is_some() || !matches!(self.items.last(), Some(Item::Chains(_)));
        for action in actions {
            let coarse = self.grain.cut == Cut::Visit && action.waits.is_empty() && !first;
            match self.items.last_mut() {
                Some(Item::Chains(chains)) if coarse => {
                    chains[0][0].take_in(action);
                }
                _ => self.items.push(Item::Chains(vec![vec![action]])),
            }
        }
    }

    /// One visit as actions.
    fn actions(&self, visit: &Visit) -> Vec<Action> {
        let layer = visit.waits.iter().chain(&visit.reads).chain(&visit.writes).map(|t| t.layer).max().unwrap_or(0);
        let empty = Action { stage: Some(visit.stage), layer: layer as u8, ..Action::default() };
        let epoch = Exchange::Memory(Memory::Epoch);
        let whole = Action {
            waits: visit.waits.iter().flat_map(|touch| self.wanted(visit, touch)).collect(),
            reads: visit.reads.iter().filter(|t| is_guarded(t.exchange)).flat_map(|t| self.wanted(visit, t)).collect(),
            stores: visit.writes.iter().filter(|t| is_plain(t.exchange)).flat_map(|t| self.written(visit, t)).collect(),
            publishes: visit
                .writes
                .iter()
                .filter(|touch| matches!(touch.exchange, Exchange::Region(_)))
                .flat_map(|touch| self.written(visit, touch))
                .collect(),
            advances_epoch: visit.writes.iter().any(|touch| touch.exchange == epoch),
            ..empty.clone()
        };
        let actions = match self.grain.cut {
            Cut::Visit => vec![whole],
            Cut::FlagFirst => {
                let stores = Action { stores: whole.stores.clone(), ..empty };
                vec![Action { stores: Vec::new(), ..whole }, stores]
            }
            Cut::Access => apart(&whole, &empty, false),
            Cut::Backwards => apart(&whole, &empty, true),
        };
        let does = |a: &Action| {
            !(a.waits.is_empty() && a.reads.is_empty() && a.stores.is_empty() && a.publishes.is_empty())
                || a.advances_epoch
        };
        actions.into_iter().filter(does).collect()
    }

    /// The cells that a wait or read covers, as far as somebody produces them.
    fn wanted(&self, visit: &Visit, touch: &Touch) -> Vec<(Cell, u8)> {
        let Touch { exchange, layer, .. } = *touch;
        let mut cells = touch.cells.clone();
        let producers = self.kind.producers[layer as usize];
        if exchange == Exchange::Region(Region::ExpertHidden) {
            cells.end = cells.end.min(producers);
        }
        if exchange == Exchange::Memory(Memory::Delta) {
            // The step's first input is the host's; a later launch reads what the one before has left.
            return layer.checked_sub(1).map_or(Vec::new(), |before| {
                cells.map(|cell| (Cell { rank: visit.rank, exchange, number: cell, row: None }, before as u8)).collect()
            });
        }
        let rows = |cell| self.rows(exchange, cell, touch.row);
        cells
            .flat_map(|cell| rows(cell).into_iter().map(move |row| (cell, row)))
            .map(|(cell, row)| (Cell { rank: visit.rank, exchange, number: cell, row }, layer as u8))
            .collect()
    }

    fn written(&self, visit: &Visit, touch: &Touch) -> Vec<Cell> {
        let pairs = matches!(touch.exchange, Exchange::Region(region) if is_pairs(region));
        let ranks = if pairs { 0..self.world.ranks.len() } else { visit.rank..visit.rank + 1 };
        let mut cells = Vec::new();
        for rank in ranks {
            for cell in touch.cells.clone() {
                let rows = self.rows(touch.exchange, cell, touch.row);
                cells.extend(rows.into_iter().map(|row| Cell { rank, exchange: touch.exchange, number: cell, row }));
            }
        }
        cells
    }

    /// The rows of a cell that a step uses: a pair cell has all of them, a cell of a wave's task is one row's.
    fn rows(&self, exchange: Exchange, cell: u32, row: Option<u32>) -> Vec<Option<u32>> {
        let shard = &self.world.shard;
        let Exchange::Region(region) = exchange else { return vec![None] };
        match region {
            Region::AttentionDots | Region::AttentionX | Region::MlpDots | Region::MlpX => {
                vec![Some(cell / shard.slices())]
            }
            Region::LatentZ => vec![Some(cell / shard.latent_slices())],
            _ if !is_pairs(region) => vec![None],
            _ => row.map_or_else(|| (0..self.kind.table.shape.rows()).map(Some).collect(), |row| vec![Some(row)]),
        }
    }
}

/// Data that no tag travels with.
fn is_plain(exchange: Exchange) -> bool {
    match exchange {
        Exchange::Region(region) => !is_pairs(region),
        Exchange::Memory(memory) => memory == Memory::Delta,
    }
}

/// Data that a reader needs of a certain layer.
fn is_guarded(exchange: Exchange) -> bool {
    matches!(exchange, Exchange::Region(_) | Exchange::Memory(Memory::Delta))
}

/// Every access alone; what goes to different ranks, regions or rows lands one after the other.
fn apart(whole: &Action, empty: &Action, backwards: bool) -> Vec<Action> {
    let mut parts: BTreeMap<_, Vec<Cell>> = BTreeMap::new();
    for cell in &whole.publishes {
        parts.entry((is_plain(cell.exchange), cell.rank, cell.exchange, cell.row)).or_default().push(*cell);
    }
    let stores = Action { stores: whole.stores.clone(), ..empty.clone() };
    let publish = |(key, publishes): (_, Vec<Cell>)| (key, Action { publishes, ..empty.clone() });
    let (flags, mut pairs): (Vec<_>, Vec<_>) = parts.into_iter().map(publish).partition(|((plain, ..), _)| *plain);
    let flags = flags.into_iter().map(|(_, action)| action);
    let mut actions = vec![
        Action { waits: whole.waits.clone(), ..empty.clone() },
        Action { reads: whole.reads.clone(), ..empty.clone() },
    ];
    // Only a flag comes behind the data that it announces.
    if backwards {
        pairs.reverse();
        actions.extend(pairs.into_iter().map(|(_, action)| action));
        actions.push(stores);
        actions.extend(flags);
    } else {
        actions.push(stores);
        actions.extend(flags);
        actions.extend(pairs.into_iter().map(|(_, action)| action));
    }
    actions.push(Action { advances_epoch: whole.advances_epoch, ..empty.clone() });
    actions
}
