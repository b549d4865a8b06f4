//! Vector clocks: what a wave knows that every wave has done.

/// A wave of one rank, the same over all its launches: they follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::machine) struct WaveId {
    pub rank: u16,
    /// Number in the launch: workgroup * waves of a workgroup + wave.
    pub number: u16,
}

/// How many of a wave's vector memory operations came before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::machine) struct Seen {
    /// Performed: the wave had waited for them (`vmcnt`).
    pub completed: u32,
    /// Issued, performed or not: enough inside a workgroup, whose waves share their compute unit's cache.
    pub issued: u32,
}

/// One entry a wave, by rank and number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::machine) struct Clock {
    ranks: Vec<Vec<Seen>>,
}

impl Clock {
    /// What is known of a wave.
    #[inline]
    pub fn get(&self, id: WaveId) -> Seen {
        let wave = self.ranks.get(id.rank as usize).and_then(|waves| waves.get(id.number as usize));
        wave.copied().unwrap_or_default()
    }

    /// Learns of one wave.
    pub fn learn(&mut self, id: WaveId, seen: Seen) {
        let (rank, number) = (id.rank as usize, id.number as usize);
        if self.ranks.len() <= rank {
            self.ranks.resize(rank + 1, Vec::new());
        }
        let waves = &mut self.ranks[rank];
        if waves.len() <= number {
            waves.resize(number + 1, Seen::default());
        }
        waves[number] = waves[number].or(seen);
    }

    /// Learns everything that another clock knows; whether anything was new.
    pub fn join(&mut self, other: &Self) -> bool {
        if self.ranks.len() < other.ranks.len() {
            self.ranks.resize(other.ranks.len(), Vec::new());
        }
        let mut is_new = false;
        for (mine, others) in self.ranks.iter_mut().zip(&other.ranks) {
            if mine.len() < others.len() {
                mine.resize(others.len(), Seen::default());
            }
            for (mine, &other) in mine.iter_mut().zip(others) {
                let joined = mine.or(other);
                is_new |= joined != *mine;
                *mine = joined;
            }
        }
        is_new
    }
}

impl Seen {
    fn or(self, other: Self) -> Self {
        Self { completed: self.completed.max(other.completed), issued: self.issued.max(other.issued) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_keeps_the_later_of_each() {
        let id = |rank, number| WaveId { rank, number };
        let seen = |completed, issued| Seen { completed, issued };
        let (mut a, mut b) = (Clock::default(), Clock::default());
        a.learn(id(0, 3), seen(5, 9));
        b.learn(id(0, 3), seen(7, 8));
        b.learn(id(2, 0), seen(1, 1));
        assert!(a.join(&b) && !a.join(&b));
        assert_eq!((a.get(id(0, 3)), a.get(id(2, 0)), a.get(id(1, 9))), (seen(7, 9), seen(1, 1), seen(0, 0)));
    }
}
