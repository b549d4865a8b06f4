//! From sightings to reports: source lines, names of places, one report for each pair of source places.

use crate::machine::parts::named_place;
use std::collections::{BTreeMap, HashMap};

use super::report::{RaceAccess, RaceKind, RaceReport};
use super::shadow::Record;
use super::{Races, Sighting};
use crate::machine::lines::Lines;
use crate::machine::location::{Location, SourceLine};
use crate::machine::memory::Memory;
use crate::machine::tap::Tap;

/// Line tables of the kernels, opened once.
type Opened<'a> = HashMap<u32, Lines<'a>>;

/// What makes two sightings one report.
type Place = (RaceKind, Vec<(String, u32)>, Vec<(String, u32)>);

impl Races {
    /// Every race, grouped by source places.
    pub fn reports(&self, memory: &Memory, tap: &Tap) -> Vec<RaceReport> {
        let mut opened = Opened::new();
        let mut reports: BTreeMap<Place, RaceReport> = BTreeMap::new();
        let mut sightings: Vec<&Sighting> = self.sightings.values().collect();
        sightings.sort_by_key(|sighting| (sighting.kind, sighting.first.site, sighting.second.site));
        for sighting in sightings {
            let (first, second) =
                (self.access(&sighting.first, &mut opened), self.access(&sighting.second, &mut opened));
            let place = (sighting.kind, lines(&first.at), lines(&second.at));
            let report = reports.entry(place).or_insert_with(|| RaceReport {
                kind: sighting.kind,
                place: place_of(sighting, memory, tap),
                first,
                second,
                address: sighting.address,
                count: 0,
            });
            report.count += sighting.count;
        }
        reports.into_values().collect()
    }

    fn access<'a>(&'a self, record: &Record, opened: &mut Opened<'a>) -> RaceAccess {
        let site = self.sites.site(record.site);
        let launch = &self.sites.kernels[site.kernel as usize].launch;
        let lines = opened.entry(site.kernel).or_insert_with(|| Lines::open(&launch.module.object.elf));
        let inst = launch.module.program.step(site.step as usize).map(|step| &step.inst);
        let pc = inst.map_or(0, |inst| inst.pc);
        let waves = launch.shape.waves().max(1);
        let number = u32::from(record.id.number);
        let at = Location {
            rank: specdec_core::ids::Rank(record.id.rank as u8),
            kernel: launch.kernel().info.symbol.clone(),
            workgroup: number / waves,
            wave: number % waves,
            lane: (record.lane != u8::MAX).then_some(record.lane),
            pc,
            instruction: inst.map_or_else(String::new, ToString::to_string),
            functions: lines.functions(launch.module.object.text.start as u64 + u64::from(pc)),
        };
        RaceAccess { at, kind: site.kind, scope: site.scope, row: site.row }
    }
}

fn lines(at: &Location) -> Vec<(String, u32)> {
    let line = |source: &SourceLine| (source.file.clone(), source.line);
    if at.functions.is_empty() {
        return vec![(at.kernel.clone(), at.pc)];
    }
    at.functions.iter().map(line).collect()
}

fn place_of(sighting: &Sighting, memory: &Memory, tap: &Tap) -> String {
    if sighting.kind == RaceKind::Lds {
        return format!("LDS + {:#x}", sighting.address);
    }
    named_place(memory, tap, sighting.address)
}
