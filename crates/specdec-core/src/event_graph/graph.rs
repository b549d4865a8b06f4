//! Events, what orders them, and reachability from many events at once.

use std::fmt;

use crate::abi::Stage;
use crate::ids::{Cta, Layer, Rank};

/// Where and when an event happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Step of the modelled world, from 0.
    pub step: u8,
    /// Layer of the step's contents, from 0.
    pub layer: Layer,
    /// Stage; `None` where a launch starts or ends.
    pub stage: Option<Stage>,
    /// Rank.
    pub rank: Rank,
    /// Workgroup.
    pub cta: Cta,
    /// Wave; `None` where a barrier joins the workgroup's waves.
    pub wave: Option<u8>,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stage {
            Some(stage) => write!(f, "{stage:?}")?,
            None => f.write_str("the launch's start")?,
        }
        write!(f, " of {}, {}", self.rank, self.cta)?;
        if let Some(wave) = self.wave {
            write!(f, ", wave {wave}")?;
        }
        write!(f, " ({} of step {})", self.layer, self.step)
    }
}

/// An event.
pub(super) type Node = u32;
/// No event.
pub(super) const NO_NODE: Node = Node::MAX;

/// The graph while it is built.
#[derive(Default)]
pub(super) struct Graph {
    pub sites: Vec<Site>,
    /// Place of the node's stage in the walk of all steps.
    pub positions: Vec<u32>,
    /// Edges into these hubs come from producers that the routing may leave without a task.
    pub adversarial: Vec<bool>,
    edges: Vec<(Node, Node)>,
}

impl Graph {
    pub fn node(&mut self, site: Site, position: u32) -> Node {
        self.sites.push(site);
        self.positions.push(position);
        self.adversarial.push(false);
        (self.sites.len() - 1) as Node
    }

    pub fn edge(&mut self, from: Node, to: Node) {
        if from != NO_NODE {
            self.edges.push((from, to));
        }
    }

    pub fn num_edges(&self) -> usize {
        self.edges.len()
    }

    /// Orders the events; the events of a cycle (and behind one) if there is no order.
    pub fn freeze(&self) -> Result<Frozen, Vec<Node>> {
        let num_nodes = self.sites.len();
        let place = if self.edges.iter().all(|(from, to)| from < to) {
            // Built in the walk's order: that is an order of the events.
            (0..num_nodes as Node).collect()
        } else {
            self.sort()?
        };
        let mut starts = vec![0_u32; num_nodes + 1];
        for (_, to) in &self.edges {
            starts[place[*to as usize] as usize + 1] += 1;
        }
        for i in 0..num_nodes {
            starts[i + 1] += starts[i];
        }
        let mut cursor = starts.clone();
        let mut before = vec![0; self.edges.len()];
        for (from, to) in &self.edges {
            let slot = &mut cursor[place[*to as usize] as usize];
            before[*slot as usize] = place[*from as usize];
            *slot += 1;
        }
        let mut adversarial = vec![false; num_nodes];
        for (node, flag) in self.adversarial.iter().enumerate() {
            adversarial[place[node] as usize] = *flag;
        }
        Ok(Frozen { place, starts, before, adversarial })
    }

    /// Kahn's order, as the place of every node in it.
    fn sort(&self) -> Result<Vec<Node>, Vec<Node>> {
        let num_nodes = self.sites.len();
        let mut after: Vec<Vec<Node>> = vec![Vec::new(); num_nodes];
        let mut missing = vec![0_u32; num_nodes];
        for (from, to) in &self.edges {
            after[*from as usize].push(*to);
            missing[*to as usize] += 1;
        }
        let mut ready: Vec<Node> = (0..num_nodes as Node).filter(|n| missing[*n as usize] == 0).collect();
        let mut place = vec![NO_NODE; num_nodes];
        let mut next = 0;
        while let Some(node) = ready.pop() {
            place[node as usize] = next;
            next += 1;
            for to in &after[node as usize] {
                missing[*to as usize] -= 1;
                if missing[*to as usize] == 0 {
                    ready.push(*to);
                }
            }
        }
        if next as usize == num_nodes {
            return Ok(place);
        }
        Err((0..num_nodes as Node).filter(|n| place[*n as usize] == NO_NODE).collect())
    }
}

/// The graph in an order of its events.
pub(super) struct Frozen {
    /// Place of a node in the order.
    pub place: Vec<Node>,
    starts: Vec<u32>,
    before: Vec<Node>,
    adversarial: Vec<bool>,
}

impl Frozen {
    /// The path of most weight, by place, where going through an event counts its weight.
    pub fn longest(&self, weights: &[u32]) -> Vec<Node> {
        let mut totals = weights.to_vec();
        let mut come_from = vec![NO_NODE; weights.len()];
        for node in 0..weights.len() {
            let before = &self.before[self.starts[node] as usize..self.starts[node + 1] as usize];
            // Of equals the first, so that the answer does not depend on anything but the graph.
            let mut best = 0;
            for from in before {
                if totals[*from as usize] > best || come_from[node] == NO_NODE {
                    (best, come_from[node]) = (totals[*from as usize], *from);
                }
            }
            totals[node] += best;
        }
        let mut path = Vec::new();
        let last = (0..weights.len()).rev().max_by_key(|node| totals[*node]);
        let mut node = last.map_or(NO_NODE, |last| last as Node);
        while node != NO_NODE {
            path.push(node);
            node = come_from[node as usize];
        }
        path.reverse();
        path
    }
}

/// Which of some sources happen before each event of a window.
pub(super) struct Reach {
    first: usize,
    words: usize,
    full: Vec<u64>,
    /// `NOTHING`, `EVERYTHING`, or the first word of the event's set.
    state: Vec<u32>,
    sets: Vec<u64>,
}

const NOTHING: u32 = u32::MAX;
const EVERYTHING: u32 = u32::MAX - 1;

impl Frozen {
    /// Runs from the sources, distinct and given by place, to the place `last`; bit i of a set is the i-th source.
    /// `routed` counts what a routed producer publishes, which no ordering may rely on.
    pub fn reach(&self, sources: &[Node], last: Node, routed: bool) -> Reach {
        let words = sources.len().div_ceil(64);
        let mut full = vec![u64::MAX; words];
        if let (Some(word), rest) = (full.last_mut(), sources.len() % 64) {
            *word = if rest == 0 { u64::MAX } else { (1 << rest) - 1 };
        }
        let first = sources.iter().copied().min().unwrap_or(0) as usize;
        let last = (last as usize).max(first);
        let mut own = vec![NOTHING; last + 1 - first];
        for (bit, source) in sources.iter().enumerate() {
            if let Some(slot) = own.get_mut(*source as usize - first) {
                *slot = bit as u32;
            }
        }
        let mut reach = Reach { first, words, full, state: vec![NOTHING; last + 1 - first], sets: Vec::new() };
        let mut set = vec![0_u64; words];
        for node in first..=last {
            let blocked = self.adversarial[node] && !routed;
            let range = self.starts[node] as usize..self.starts[node + 1] as usize;
            let before = if blocked { &[] } else { &self.before[range] };
            reach.state[node - first] = reach.gather(before, own[node - first], &mut set);
        }
        reach
    }
}

impl Reach {
    /// The state of an event from those before it and its own bit.
    fn gather(&mut self, before: &[Node], own: u32, set: &mut [u64]) -> u32 {
        let mut any = false;
        for node in before {
            let Some(index) = (*node as usize).checked_sub(self.first) else { continue };
            match self.state[index] {
                NOTHING => {}
                EVERYTHING => return EVERYTHING,
                at => {
                    let from = &self.sets[at as usize..at as usize + self.words];
                    if any {
                        set.iter_mut().zip(from).for_each(|(to, from)| *to |= from);
                    } else {
                        set.copy_from_slice(from);
                    }
                    any = true;
                }
            }
        }
        if own != NOTHING {
            if !any {
                set.fill(0);
            }
            set[own as usize / 64] |= 1 << (own % 64);
            any = true;
        }
        if !any {
            return NOTHING;
        }
        if set[..] == self.full[..] {
            return EVERYTHING;
        }
        let at = self.sets.len() as u32;
        self.sets.extend_from_slice(set);
        at
    }

    /// Whether all sources of `wanted` happen before the event, and if not, how many do not and the first of them.
    pub fn missing(&self, wanted: &[u64], place: Node) -> Option<(usize, usize)> {
        let state = (place as usize).checked_sub(self.first).map_or(NOTHING, |index| self.state[index]);
        if state == EVERYTHING {
            return None;
        }
        let mut count = 0;
        let mut first = None;
        for (word, wanted) in wanted.iter().enumerate() {
            let have = if state == NOTHING { 0 } else { self.sets[state as usize + word] };
            let lost = wanted & !have;
            count += lost.count_ones() as usize;
            if lost != 0 && first.is_none() {
                first = Some(word * 64 + lost.trailing_zeros() as usize);
            }
        }
        first.map(|first| (count, first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(num_nodes: u32, edges: &[(Node, Node)]) -> Graph {
        let mut graph = Graph::default();
        for _ in 0..num_nodes {
            let site = Site { step: 0, layer: Layer(0), stage: None, rank: Rank(0), cta: Cta(0), wave: None };
            graph.node(site, 0);
        }
        for (from, to) in edges {
            graph.edge(*from, *to);
        }
        graph
    }

    #[test]
    fn sets_travel_along_edges_only() {
        let Ok(frozen) = graph(5, &[(0, 2), (1, 3), (2, 4), (3, 4)]).freeze() else { panic!("no cycle") };
        let reach = frozen.reach(&[0, 1], 4, false);
        assert_eq!(reach.missing(&[0b11], 4), None);
        assert_eq!(reach.missing(&[0b11], 2), Some((1, 1)));
        assert_eq!(reach.missing(&[0b01], 2), None);
        assert_eq!(reach.missing(&[0b10], 0), Some((1, 1)));
    }

    #[test]
    fn the_longest_path_is_found() {
        let Ok(frozen) = graph(6, &[(0, 1), (1, 5), (0, 2), (2, 3), (3, 5), (4, 5)]).freeze() else {
            panic!("no cycle")
        };
        assert_eq!(frozen.longest(&[0, 1, 1, 1, 1, 0]), [0, 2, 3]);
        assert_eq!(frozen.longest(&[0, 9, 1, 1, 1, 0]), [0, 1]);
    }

    #[test]
    fn a_routed_producer_orders_nothing() {
        let mut graph = graph(3, &[(0, 1), (1, 2)]);
        graph.adversarial[1] = true;
        let Ok(frozen) = graph.freeze() else { panic!("no cycle") };
        assert!(frozen.reach(&[0], 2, false).missing(&[1], 2).is_some());
        assert!(frozen.reach(&[0], 2, true).missing(&[1], 2).is_none());
    }

    #[test]
    fn edges_against_the_walk_are_sorted_and_cycles_named() {
        let Ok(frozen) = graph(3, &[(2, 0), (0, 1)]).freeze() else { panic!("no cycle") };
        assert!(frozen.place[2] < frozen.place[0] && frozen.place[0] < frozen.place[1]);
        assert_eq!(graph(4, &[(0, 1), (1, 2), (2, 1), (2, 3)]).freeze().err(), Some(vec![1, 2, 3]));
    }
}
