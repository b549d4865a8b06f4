//! What the host asks of the check.

use super::RaceReport;
use crate::machine::emulator::Emulator;
use crate::machine::shared::Shared;

impl Emulator {
    /// Other memory will be at these addresses.
    pub(in crate::machine) fn forget_races(&mut self, address: u64) {
        let bytes = self.shared.memory.starting_at(address).map_or(0, |allocation| allocation.bytes);
        if let Some(races) = &mut self.shared.races {
            races.forget(address, bytes);
        }
    }

    /// Names what waves work on in race reports: a wave works on the row of this table that it last read by a scalar
    /// load.
    pub fn watch_rows(&mut self, start: u64, row_bytes: u64, rows: u64) {
        if let Some(races) = &mut self.shared.races {
            races.add_table(start..start + row_bytes * rows, row_bytes);
        }
    }

    /// Every race found so far; empty when they are not checked.
    pub fn races(&self) -> Vec<RaceReport> {
        let Shared { races, memory, tap, .. } = &self.shared;
        races.as_ref().map_or_else(Vec::new, |races| races.reports(memory, tap))
    }
}
