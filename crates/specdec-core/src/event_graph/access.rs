//! Which events write and read what, cell by cell.

use std::collections::BTreeMap;

use super::graph::Node;
use crate::protocol::Exchange;

/// One buffer of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub exchange: Exchange,
    /// Modelled rank that holds it.
    pub rank: u8,
    /// Parity half of a pair region; layer of a state.
    pub instance: u32,
}

/// One write of a cell.
#[derive(Clone, Copy)]
pub(super) struct Write {
    /// The layer (regions) or the place in the walk (memory) that it belongs to.
    pub version: u32,
    /// The stores come behind this event.
    pub data: Node,
    /// Readers learn of them behind this event.
    pub flag: Node,
}

/// A read of some cells, over at this event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Read {
    pub start: u32,
    pub end: u32,
    pub node: Node,
}

/// Everything that happens to one buffer.
#[derive(Default)]
pub(super) struct Log {
    /// By cell, versions ascending.
    pub cells: Vec<Vec<Write>>,
    /// By the version that a read wants (regions), or that it comes before (memory).
    pub reads: BTreeMap<u32, Vec<Read>>,
}

impl Log {
    pub fn write(&mut self, cell: u32, write: Write) {
        let cell = cell as usize;
        if self.cells.len() <= cell {
            self.cells.resize(cell + 1, Vec::new());
        }
        let writes = &mut self.cells[cell];
        let at = writes.partition_point(|w| w.version <= write.version);
        writes.insert(at, write);
    }

    pub fn read(&mut self, version: u32, read: Read) {
        self.reads.entry(version).or_default().push(read);
    }

    fn cell(&self, cell: u32) -> &[Write] {
        self.cells.get(cell as usize).map_or(&[], Vec::as_slice)
    }

    /// The writes of one version.
    pub fn at(&self, cell: u32, version: u32) -> &[Write] {
        let writes = self.cell(cell);
        let start = writes.partition_point(|w| w.version < version);
        let end = writes.partition_point(|w| w.version <= version);
        &writes[start..end]
    }

    /// The writes that a read wants.
    pub fn wanted(&self, cell: u32, version: u32, tagged: bool) -> &[Write] {
        if tagged {
            return self.at(cell, version);
        }
        let writes = self.cell(cell);
        let end = writes.partition_point(|w| w.version < version);
        end.checked_sub(1).map_or(&[], |last| self.at(cell, writes[last].version))
    }

    /// The writes that must not come before a read of that version is over.
    pub fn next(&self, cell: u32, version: u32, tagged: bool) -> &[Write] {
        let writes = self.cell(cell);
        // A memory access and its own event's write share their place: the read comes first.
        let start = writes.partition_point(|w| w.version < version + u32::from(tagged));
        writes.get(start).map_or(&[], |first| self.at(cell, first.version))
    }
}
