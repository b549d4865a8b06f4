//! From cells to the words of the model.
//!
//! Cells that the same actions write and the same actions read are one word: nothing that the model can see tells them
//! apart. A word keeps its identity over all kinds of step, since the key holds what happens to the cell in each.

use std::collections::BTreeMap;

use specdec_core::abi::Stage;
use specdec_core::event_graph::World;
use specdec_core::protocol::{is_pairs, Exchange, Memory};

use crate::walk::{walk, Action, Cell, Grain, Item, Place, StepKind};

/// A word, and the layer whose version a reader wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Want {
    pub word: u16,
    pub layer: u8,
}

/// One atomic action, in words.
#[derive(Clone, Debug, Default)]
pub struct Op {
    pub stage: Option<Stage>,
    pub layer: u8,
    pub waits: Vec<Want>,
    pub reads: Vec<Want>,
    pub stores: Vec<u16>,
    pub publishes: Vec<u16>,
    pub advances_epoch: bool,
    pub scrubs: Option<Vec<u16>>,
}

/// Everything static about one kind of step.
#[derive(Debug)]
pub struct Program {
    pub rows: u32,
    pub abandoned_behind: Option<usize>,
    pub last_layer: u8,
    /// Words of the output rank's result.
    pub results: Vec<u16>,
    /// By rank and workgroup.
    pub items: Vec<Vec<Vec<Item<Op>>>>,
    /// By word and layer: who waits for it or reads it.
    pub readers: Vec<Vec<Vec<Place>>>,
}

/// Programs of every kind of step over the same words.
#[derive(Debug)]
pub struct Programs {
    pub kinds: Vec<Program>,
    /// Words of one half that carry their own tags, numbered first.
    pub num_pairs: usize,
    /// Words behind both halves: flags, plain data.
    pub num_others: usize,
    /// By rank and row: what the scrub clears of a row.
    pub rows: Vec<Vec<Vec<u16>>>,
    /// By rank: flags of workgroups, which belong to no row.
    pub flags: Vec<Vec<u16>>,
    /// Whether steps end with a scrub.
    pub scrubs: bool,
    names: Vec<String>,
    holders: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Wait,
    Read,
    Store,
    Publish,
}

/// Kind of step, place, use, layer.
type User = (usize, Place, Use, u8);
type Walk = Vec<Vec<Vec<Item<Action>>>>;

fn sorted<T: Ord>(words: impl Iterator<Item = T>) -> Vec<T> {
    let mut words: Vec<T> = words.collect();
    words.sort_unstable();
    words.dedup();
    words
}

/// Every action with its place.
fn places(walk: &Walk) -> Vec<(Place, &Action)> {
    let mut found = Vec::new();
    for (rank, workgroups) in walk.iter().enumerate() {
        for (cta, items) in workgroups.iter().enumerate() {
            for (item, chains) in items.iter().enumerate() {
                let Item::Chains(chains) = chains else { continue };
                for (chain, actions) in chains.iter().enumerate() {
                    let place = |at| Place {
                        rank: rank as u8,
                        cta: cta as u8,
                        item: item as u8,
                        chain: chain as u8,
                        at: at as u8,
                    };
                    found.extend(actions.iter().enumerate().map(|(at, action)| (place(at), action)));
                }
            }
        }
    }
    found
}

fn is_pair(cell: &Cell) -> bool {
    matches!(cell.exchange, Exchange::Region(region) if is_pairs(region))
}

/// Words of cells: a flag (or pair), and the data behind it.
#[derive(Default)]
struct Numbers {
    tagged: BTreeMap<Cell, u16>,
    plain: BTreeMap<Cell, u16>,
    num_pairs: usize,
    names: Vec<String>,
    holders: Vec<usize>,
}

impl Numbers {
    fn new(walks: &[Walk]) -> Self {
        let mut uses: BTreeMap<Cell, Vec<User>> = BTreeMap::new();
        for (kind, walk) in walks.iter().enumerate() {
            for (place, action) in places(walk) {
                let mut add =
                    |cell: &Cell, what, layer| uses.entry(*cell).or_default().push((kind, place, what, layer));
                action.waits.iter().for_each(|(cell, layer)| add(cell, Use::Wait, *layer));
                action.reads.iter().for_each(|(cell, layer)| add(cell, Use::Read, *layer));
                action.stores.iter().for_each(|cell| add(cell, Use::Store, action.layer));
                action.publishes.iter().for_each(|cell| add(cell, Use::Publish, action.layer));
            }
        }
        let mut groups: BTreeMap<_, Vec<Cell>> = BTreeMap::new();
        for (cell, users) in uses {
            let key = (!is_pair(&cell), cell.rank, cell.exchange, cell.row, sorted(users.into_iter()));
            groups.entry(key).or_default().push(cell);
        }
        let mut numbers = Self::default();
        for ((_, rank, exchange, row, _), cells) in groups {
            let row = row.map_or(String::new(), |row| format!(" row {row}"));
            let name = format!(
                "{exchange}{row} at rank {rank}, cells {:?}",
                cells.iter().map(|c| c.number).collect::<Vec<_>>()
            );
            if matches!(exchange, Exchange::Region(_)) {
                let word = numbers.names.len() as u16;
                numbers.tagged.extend(cells.iter().map(|cell| (*cell, word)));
                numbers.names.push(format!("tag of {name}"));
            }
            if is_pair(&cells[0]) {
                numbers.num_pairs += 1;
            } else {
                let word = numbers.names.len() as u16;
                numbers.plain.extend(cells.iter().map(|cell| (*cell, word)));
                numbers.names.push(name);
            }
            numbers.holders.resize(numbers.names.len(), rank);
        }
        numbers
    }

    fn op(&self, action: &Action) -> Op {
        let word = |cell: &Cell, plain: bool| (if plain { &self.plain } else { &self.tagged }).get(cell).copied();
        let want = |wants: &[(Cell, u8)], plain: bool| {
            // What a pair carries is in the word of its tag.
            let wants = wants.iter().map(|(cell, layer)| (word(cell, plain && !is_pair(cell)), *layer));
            sorted(wants.filter_map(|(word, layer)| Some(Want { word: word?, layer })))
        };
        let words =
            |map: &BTreeMap<Cell, u16>, cells: &[Cell]| sorted(cells.iter().filter_map(|c| map.get(c).copied()));
        Op {
            stage: action.stage,
            layer: action.layer,
            waits: want(&action.waits, false),
            reads: want(&action.reads, true),
            stores: words(&self.plain, &action.stores),
            publishes: words(&self.tagged, &action.publishes),
            advances_epoch: action.advances_epoch,
            scrubs: action.scrubs.as_ref().map(|cells| words(&self.tagged, cells)),
        }
    }

    fn program(&self, world: &World, kind: &StepKind, walk: &Walk) -> Program {
        let mut readers = vec![vec![Vec::new(); world.layers.len()]; self.names.len()];
        for (place, action) in places(walk) {
            let op = self.op(action);
            for want in op.waits.iter().chain(&op.reads) {
                readers[want.word as usize][want.layer as usize].push(place);
            }
        }
        let item = |item: &Item<Action>| match item {
            Item::Start => Item::Start,
            Item::End => Item::End,
            Item::Chains(chains) => {
                Item::Chains(chains.iter().map(|chain| chain.iter().map(|a| self.op(a)).collect()).collect())
            }
        };
        let workgroups =
            |list: &Vec<Vec<Item<Action>>>| list.iter().map(|items| items.iter().map(item).collect()).collect();
        let items = walk.iter().map(workgroups).collect();
        let is_result = |cell: &Cell| cell.rank == 0 && cell.exchange == Exchange::Memory(Memory::Delta);
        let last_layer = (world.layers.len() - 1) as u8;
        let stored = places(walk).into_iter().filter(|(_, action)| action.layer == last_layer);
        let results = stored.flat_map(|(_, action)| action.stores.iter().filter(|cell| is_result(cell)));
        Program {
            rows: kind.table.shape.rows(),
            abandoned_behind: kind.abandoned_behind,
            last_layer,
            results: sorted(results.filter_map(|cell| self.plain.get(cell).copied())),
            items,
            readers,
        }
    }
}

impl Programs {
    /// The programs of `kinds`, all of which have the layers of `world`.
    pub fn new(world: &World, kinds: &[StepKind], grain: Grain, scrubs: bool) -> Self {
        let walks: Vec<Walk> = kinds.iter().map(|kind| walk(world, kind, grain, scrubs)).collect();
        let numbers = Numbers::new(&walks);
        let most_rows = kinds.iter().map(|kind| kind.table.shape.rows()).max().unwrap_or(1);
        let of_row = |rank: usize, row: Option<u32>| {
            let cells = numbers.tagged.iter().filter(|(cell, _)| cell.rank == rank && cell.row == row);
            sorted(cells.map(|(_, word)| *word))
        };
        let ranks = || 0..world.ranks.len();
        let rows = ranks().map(|rank| (0..most_rows).map(|row| of_row(rank, Some(row))).collect()).collect();
        let flags = ranks().map(|rank| of_row(rank, None)).collect();
        Self {
            kinds: walks.iter().zip(kinds).map(|(walk, kind)| numbers.program(world, kind, walk)).collect(),
            num_pairs: numbers.num_pairs,
            num_others: numbers.names.len() - numbers.num_pairs,
            rows,
            flags,
            scrubs,
            names: numbers.names,
            holders: numbers.holders,
        }
    }

    /// The rank in whose memory a word is.
    pub fn rank(&self, word: u16) -> usize {
        self.holders[word as usize]
    }

    /// What a word stands for.
    pub fn name(&self, word: u16) -> &str {
        &self.names[word as usize]
    }
}
