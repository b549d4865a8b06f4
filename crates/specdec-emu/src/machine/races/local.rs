//! Races in LDS: two waves of a workgroup use the same bytes between two barriers, and one of them writes.

use crate::machine::visibility::LaneAddresses;

/// What one wave does between two barriers to one word.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// Barriers passed when it was last written and read, plus one.
    write_phase: u32,
    read_phase: u32,
    write_turn: LocalTurn,
    read_turn: LocalTurn,
    /// Bytes.
    write_mask: u8,
    read_mask: u8,
    /// Waves that have read it in `read_phase`.
    readers: u32,
}

/// Who uses LDS, and with what instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::machine) struct LocalTurn {
    pub wave: u8,
    pub is_atomic: bool,
    pub step: u32,
}

/// Two accesses of one race.
#[derive(Clone, Copy, Debug)]
pub(in crate::machine) struct LocalRace {
    pub first: LocalTurn,
    pub first_writes: bool,
    pub second: LocalTurn,
    pub second_writes: bool,
    pub address: u64,
    pub count: u64,
}

/// One workgroup's LDS as the check sees it.
#[derive(Debug)]
pub(in crate::machine) struct LocalShadow {
    cells: Vec<Cell>,
    phase: u32,
    pub turn: LocalTurn,
    pub races: Vec<LocalRace>,
}

/// The words of a range with their byte masks.
fn cells(address: u64, bytes: usize) -> impl Iterator<Item = (usize, u8)> {
    super::shadow::words(address, bytes).map(|(word, mask)| (word as usize / 4, mask))
}

impl LocalShadow {
    /// Nothing has been used.
    pub fn new(bytes: usize) -> Self {
        Self {
            cells: vec![Cell::default(); bytes.div_ceil(4)],
            phase: 1,
            turn: LocalTurn::default(),
            races: Vec::new(),
        }
    }

    /// All waves have met.
    pub fn pass_barrier(&mut self) {
        self.phase += 1;
    }

    /// The wave whose turn it is reads.
    pub fn read(&mut self, lanes: &LaneAddresses, bytes: usize) {
        for lane in lanes.active() {
            for (index, mask) in cells(lanes.at[lane], bytes) {
                let (turn, phase) = (self.turn, self.phase);
                let Some(cell) = self.cells.get_mut(index) else { continue };
                let was_written = cell.write_phase == phase && cell.write_turn.wave != turn.wave;
                let race = (was_written && cell.write_mask & mask != 0).then_some(cell.write_turn);
                if cell.read_phase != phase {
                    (cell.read_phase, cell.readers, cell.read_mask) = (phase, 0, 0);
                }
                cell.readers |= 1 << turn.wave;
                cell.read_mask |= mask;
                cell.read_turn = turn;
                if let Some(first) = race {
                    self.add(first, true, false, index);
                }
            }
        }
    }

    /// The wave whose turn it is writes; `changes` whether the bytes become others.
    pub fn write(&mut self, address: u64, bytes: usize, changes: bool) {
        for (index, mask) in cells(address, bytes) {
            let (turn, phase) = (self.turn, self.phase);
            let Some(cell) = self.cells.get_mut(index) else { continue };
            let mut race = None;
            if changes && cell.write_phase == phase && cell.write_turn.wave != turn.wave && cell.write_mask & mask != 0
            {
                race = (!(turn.is_atomic && cell.write_turn.is_atomic)).then_some((cell.write_turn, true));
            }
            let others = cell.readers & !(1 << turn.wave);
            if changes && cell.read_phase == phase && others != 0 && cell.read_mask & mask != 0 {
                // The last reader may be this wave itself; then any other stands for them all.
                let mut reader = cell.read_turn;
                if reader.wave == turn.wave {
                    reader.wave = others.trailing_zeros() as u8;
                }
                race = race.or(Some((reader, false)));
            }
            let is_same = cell.write_phase == phase && cell.write_turn.wave == turn.wave;
            cell.write_mask = if is_same { cell.write_mask | mask } else { mask };
            (cell.write_phase, cell.write_turn) = (phase, turn);
            if let Some((first, first_writes)) = race {
                self.add(first, first_writes, true, index);
            }
        }
    }

    fn add(&mut self, first: LocalTurn, first_writes: bool, second_writes: bool, index: usize) {
        let second = self.turn;
        let known = self.races.iter_mut().find(|known| {
            known.first.step == first.step && known.second.step == second.step && known.first_writes == first_writes
        });
        match known {
            Some(known) => known.count += 1,
            None => self.races.push(LocalRace {
                first,
                first_writes,
                second,
                second_writes,
                address: index as u64 * 4,
                count: 1,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(wave: u8) -> LocalTurn {
        LocalTurn { wave, is_atomic: false, step: u32::from(wave) }
    }

    fn lanes(address: u64) -> LaneAddresses {
        LaneAddresses { at: [address; 64], mask: 1 }
    }

    #[test]
    fn a_barrier_separates_and_other_bytes_do_not_meet() {
        let mut shadow = LocalShadow::new(64);
        shadow.turn = turn(0);
        shadow.write(8, 4, true);
        shadow.write(13, 1, true);
        shadow.turn = turn(1);
        shadow.write(12, 1, true);
        assert!(shadow.races.is_empty());
        shadow.read(&lanes(8), 4);
        assert_eq!(shadow.races.len(), 1);
        shadow.pass_barrier();
        shadow.read(&lanes(8), 4);
        shadow.write(8, 4, false);
        assert_eq!(shadow.races.len(), 1);
        shadow.turn = turn(2);
        shadow.write(8, 4, true);
        assert_eq!(shadow.races.len(), 2);
        // The store that changed nothing still loses to the one that does.
        assert!(shadow.races[1].first_writes && shadow.races[1].first.wave == 1);
    }
}
