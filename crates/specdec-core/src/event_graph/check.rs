//! Every read behind the write that it needs and before the next one.

use std::collections::BTreeMap;

use super::access::{Key, Log, Read};
use super::build::Builder;
use super::cells::is_routed;
use super::graph::{Frozen, Node};
use super::hazard::Hazard;
use super::GraphReport;
use crate::abi::Stage;
use crate::protocol::{is_pairs, Exchange, Memory};

/// Defects that count as one: what, the stages of reader and writer, and the kind.
type Kind = (Exchange, Option<Stage>, Option<Stage>, u8);

/// The check of one world's accesses.
pub(super) struct Checker<'a> {
    builder: &'a Builder<'a>,
    graph: &'a Frozen,
    found: BTreeMap<Kind, Hazard>,
    checked_pairs: u64,
}

/// Readers of the same range of cells.
struct Class<'a> {
    range: (u32, u32),
    readers: &'a [Read],
}

impl Class<'_> {
    fn cells(&self) -> std::ops::Range<u32> {
        self.range.0..self.range.1
    }
}

fn classes(reads: &[Read]) -> Vec<Class<'_>> {
    reads
        .chunk_by(|a, b| (a.start, a.end) == (b.start, b.end))
        .map(|readers| Class { range: (readers[0].start, readers[0].end), readers })
        .collect()
}

/// Distinct events and the bit of each.
struct Sources {
    /// Places in the order, ascending.
    places: Vec<Node>,
    nodes: Vec<Node>,
}

impl Sources {
    fn new(nodes: impl Iterator<Item = Node>, graph: &Frozen) -> Self {
        let mut pairs: Vec<(Node, Node)> = nodes.map(|node| (graph.place[node as usize], node)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        let (places, nodes) = pairs.into_iter().unzip();
        Self { places, nodes }
    }

    fn mask(&self, nodes: impl Iterator<Item = Node>, graph: &Frozen) -> Vec<u64> {
        let mut mask = vec![0; self.places.len().div_ceil(64)];
        for node in nodes {
            if let Ok(bit) = self.places.binary_search(&graph.place[node as usize]) {
                mask[bit / 64] |= 1_u64 << (bit % 64);
            }
        }
        mask
    }
}

fn count(mask: &[u64]) -> u64 {
    mask.iter().map(|word| u64::from(word.count_ones())).sum()
}

impl<'a> Checker<'a> {
    pub fn new(builder: &'a Builder<'a>, graph: &'a Frozen) -> Self {
        Self { builder, graph, found: BTreeMap::new(), checked_pairs: 0 }
    }

    /// All logs; the hazards found, or what was looked at.
    pub fn run(mut self) -> Result<GraphReport, Vec<Hazard>> {
        for (key, log) in &self.builder.logs {
            let tagged = matches!(key.exchange, Exchange::Region(_));
            for (version, reads) in &log.reads {
                let mut reads = reads.clone();
                reads.sort_unstable();
                reads.dedup();
                let classes = classes(&reads);
                self.behind_its_write(*key, log, *version, tagged, &classes);
                self.before_the_next_write(*key, log, *version, tagged, &classes);
            }
            self.clears(*key, log);
        }
        if self.found.is_empty() {
            let graph = &self.builder.graph;
            let (nodes, edges) = (graph.sites.len(), graph.num_edges());
            return Ok(GraphReport { nodes, edges, checked_pairs: self.checked_pairs });
        }
        Err(self.found.into_values().collect())
    }

    fn behind_its_write(&mut self, key: Key, log: &Log, version: u32, tagged: bool, classes: &[Class]) {
        let wanted = |class: &Class| class.cells().map(|cell| (cell, log.wanted(cell, version, tagged)));
        let flags = |class: &Class| wanted(class).flat_map(|(_, writes)| writes.iter().map(|w| w.flag));
        let sources = Sources::new(classes.iter().flat_map(flags), self.graph);
        let Some(last) = self.last(classes.iter().flat_map(|c| c.readers.iter().map(|r| r.node))) else { return };
        // The first step finds memory as the steps before left it; a tag, or LDS, only the same launch can write.
        let must_exist = tagged || matches!(key.exchange, Exchange::Memory(Memory::OwnSums | Memory::Routing));
        // What a routed producer publishes orders its own readers only: they wait for as many as there are.
        let routed = is_routed(key.exchange);
        let reach = self.graph.reach(&sources.places, last, routed);
        for class in classes {
            for (cell, writes) in wanted(class) {
                if must_exist && writes.is_empty() {
                    self.never_written(key, cell, class.readers[0].node, class.readers.len());
                }
            }
            let mask = sources.mask(flags(class), self.graph);
            self.checked_pairs += count(&mask) * class.readers.len() as u64;
            for read in class.readers {
                if let Some((pairs, bit)) = reach.missing(&mask, self.graph.place[read.node as usize]) {
                    let (reader, writer) = (self.site(read.node), self.site(sources.nodes[bit]));
                    let exchange = key.exchange;
                    self.add(0, Hazard::ReadTooEarly { exchange, reader, writer, pairs });
                }
            }
        }
    }

    fn before_the_next_write(&mut self, key: Key, log: &Log, version: u32, tagged: bool, classes: &[Class]) {
        let next = |class: &Class| class.cells().map(|cell| (cell, log.next(cell, version, tagged)));
        if key.exchange == Exchange::Memory(Memory::ConvState) {
            // What a step's Kda reads, the same step replaces: a state that nobody stores would be stale for ever.
            for class in classes {
                for (cell, _) in next(class).filter(|(_, writes)| writes.is_empty()) {
                    self.never_written(key, cell, class.readers[0].node, class.readers.len());
                }
            }
        }
        let sources = Sources::new(classes.iter().flat_map(|c| c.readers.iter().map(|r| r.node)), self.graph);
        let writers = classes.iter().flat_map(|c| next(c).flat_map(|(_, w)| w.iter().map(|w| w.data)));
        let Some(last) = self.last(writers) else { return };
        let reach = self.graph.reach(&sources.places, last, false);
        for class in classes {
            let mask = sources.mask(class.readers.iter().map(|r| r.node), self.graph);
            let mut writers: Vec<Node> = next(class).flat_map(|(_, w)| w.iter().map(|w| w.data)).collect();
            writers.sort_unstable();
            writers.dedup();
            self.checked_pairs += count(&mask) * writers.len() as u64;
            for node in writers {
                if let Some((pairs, bit)) = reach.missing(&mask, self.graph.place[node as usize]) {
                    let (reader, writer) = (self.site(sources.nodes[bit]), self.site(node));
                    let exchange = key.exchange;
                    self.add(1, Hazard::Overwritten { exchange, reader, writer, pairs });
                }
            }
        }
    }

    /// A clear of rows that this step does not use comes before a wider step's pushes into the same half.
    fn clears(&mut self, key: Key, log: &Log) {
        let Exchange::Region(region) = key.exchange else { return };
        let layers = self.builder.world.layers.len() as u32;
        let halves = self.builder.world.protocol.halves.max(1);
        for step in (0..self.builder.world.tables.len() as u32).filter(|s| s % halves == key.instance) {
            let clearers = self.builder.clears.iter().filter(|(rank, s, _)| *rank == key.rank && *s == step);
            let sources = Sources::new(clearers.map(|(.., node)| *node), self.graph);
            if !is_pairs(region) || sources.nodes.is_empty() {
                continue;
            }
            // The last version of this step: what comes next in a cell belongs to a later step.
            let version = (step + 1) * layers - 1;
            let cells = 0..log.cells.len() as u32;
            let mut writers: Vec<Node> = cells.flat_map(|cell| log.next(cell, version, true)).map(|w| w.data).collect();
            writers.sort_unstable();
            writers.dedup();
            let Some(last) = self.last(writers.iter().copied()) else { continue };
            let reach = self.graph.reach(&sources.places, last, false);
            let mask = sources.mask(sources.nodes.iter().copied(), self.graph);
            self.checked_pairs += count(&mask) * writers.len() as u64;
            for node in writers {
                if let Some((pairs, bit)) = reach.missing(&mask, self.graph.place[node as usize]) {
                    let (clearer, writer) = (self.site(sources.nodes[bit]), self.site(node));
                    self.add(3, Hazard::Cleared { region, clearer, writer, pairs });
                }
            }
        }
    }

    fn last(&self, nodes: impl Iterator<Item = Node>) -> Option<Node> {
        nodes.map(|node| self.graph.place[node as usize]).max()
    }

    fn site(&self, node: Node) -> super::Site {
        self.builder.graph.sites[node as usize]
    }

    fn never_written(&mut self, key: Key, cell: u32, reader: Node, pairs: usize) {
        let (exchange, reader) = (key.exchange, self.site(reader));
        self.add(2, Hazard::NeverWritten { exchange, reader, cell, pairs });
    }

    fn add(&mut self, kind: u8, hazard: Hazard) {
        let (exchange, reader, writer) = match &hazard {
            Hazard::ReadTooEarly { exchange, reader, writer, .. }
            | Hazard::Overwritten { exchange, reader, writer, .. } => (*exchange, reader.stage, writer.stage),
            Hazard::NeverWritten { exchange, reader, .. } => (*exchange, reader.stage, None),
            Hazard::Cleared { region, clearer, writer, .. } => (Exchange::Region(*region), clearer.stage, writer.stage),
            _ => return,
        };
        match self.found.entry((exchange, reader, writer, kind)) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(hazard);
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => entry.get_mut().count(&hazard),
        }
    }
}
