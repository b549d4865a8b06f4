//! The protocol as a Markdown table, for the documentation.

use std::fmt::Write as _;

use crate::protocol::{Extent, Part, Phase, Protocol, Unit, When};

impl Protocol {
    /// The table of docs/design.md: exchanges, and who waits for what.
    pub fn markdown(&self) -> String {
        let mut out = String::from("| stage | by | waits for | reads | writes |\n|---|---|---|---|---|\n");
        for row in &self.walk {
            let by = match row.unit {
                Unit::Wave => "wave",
                Unit::Workgroup => "workgroup",
                Unit::EveryWorkgroup => "every workgroup",
                Unit::Joined => "every workgroup, same entry",
                Unit::Routed => "workgroup, routed",
            };
            let waits = row.waits.iter().map(|w| {
                let layer = if w.previous_layer { " of the layer before" } else { "" };
                format!("{}{layer}: {}{}", w.region.name(), extent_words(w.extent), when_words(w.when))
            });
            let reads = row.reads.iter().map(|r| {
                let tail = if r.phase == Phase::Tail { ", behind its pushes" } else { "" };
                format!("{}: {}{tail}{}", r.exchange, extent_words(r.extent), when_words(r.when))
            });
            let writes =
                row.writes.iter().map(|w| format!("{}{}{}", w.exchange, part_words(w.part), when_words(w.when)));
            let (waits, reads, writes) = (cell(waits), cell(reads), cell(writes));
            // Writing to a `String` cannot fail.
            let _ = writeln!(out, "| {:?}{} | {by} | {waits} | {reads} | {writes} |", row.stage, when_words(row.when));
        }
        out
    }
}

fn cell(entries: impl Iterator<Item = String>) -> String {
    entries.collect::<Vec<_>>().join("; ")
}

const fn extent_words(extent: Extent) -> &'static str {
    match extent {
        Extent::Task => "its task's",
        Extent::Row => "its row's",
        Extent::Columns => "its columns, every rank",
        Extent::Head => "its head's",
        Extent::Workgroup => "its own",
        Extent::All => "all",
    }
}

const fn part_words(part: Part) -> &'static str {
    match part {
        Part::All => "",
        Part::Router => " (router tiles)",
        Part::Latent => " (latent tiles)",
        Part::Shared => " (shared tiles)",
        Part::Own => " (own columns)",
        Part::Others => " (other ranks' columns)",
        Part::First => " (task 0)",
    }
}

const fn when_words(when: When) -> &'static str {
    match when {
        When::Always => "",
        When::Whole => ", in whole layers",
        When::FirstOfRun => ", first of a run",
        When::LaterInRun => ", later in a run",
        When::LastOfRun => ", last of a run",
        When::BlockWrite => ", if it writes a block",
        When::NoBlockWrite => ", unless it writes a block",
        When::HasTask => ", with a task",
        When::StepEnd => ", last launch of a step",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Region;

    #[test]
    fn every_stage_and_region_is_printed() {
        let protocol = Protocol::shipped();
        let table = protocol.markdown();
        assert_eq!(table.lines().count(), 2 + protocol.walk.len());
        assert!(Region::ALL.iter().all(|region| table.contains(region.name())), "{table}");
    }
}
