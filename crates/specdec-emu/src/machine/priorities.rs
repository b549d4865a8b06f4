//! A scheduler that is unfair on purpose: fixed random priorities, which change now and then.
//!
//! Fair turns let every wave run a little, so that a wave which is far behind all others hardly ever occurs. Here the
//! ready wave of the highest priority runs until it waits; at random points a wave, a workgroup or a whole rank drops
//! behind everybody else, as if it had stalled, until the others can do nothing without it (the idea of probabilistic
//! concurrency testing: few well-placed changes reach most orders that matter).

use super::random::Random;
use super::slot::Slot;

/// Mean wave instructions between two changes.
const CHANGE_INSTRUCTIONS: u64 = 50_000;
/// Turns in a row after which a wave lets any other run: it may spin without sleeping.
const MAX_STREAK: u32 = 256;

/// How waves take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// Any wave that can run, each as likely as the others.
    #[default]
    Turns,
    /// By random priorities, with long stalls of waves, workgroups and ranks.
    Priorities,
}

/// Priorities of the waves and when they change.
#[derive(Debug, Default)]
pub(super) struct Priorities {
    /// By wave number of the machine; the highest runs.
    by_wave: Vec<u64>,
    /// Below every priority that was given so far.
    floor: u64,
    next_change: u64,
    last: u32,
    streak: u32,
}

impl Priorities {
    /// The position of the wave to run among `waves`, which is not empty.
    pub fn pick(&mut self, waves: &[u32], slots: &[Slot], executed: u64, random: &mut Random) -> usize {
        while self.by_wave.len() < slots.len() {
            self.by_wave.push(1 << 63 | random.below(1 << 62));
            self.floor = 1 << 63;
        }
        if executed >= self.next_change {
            self.next_change = executed + 1 + random.below(2 * CHANGE_INSTRUCTIONS);
            self.stall(waves[random.below(waves.len() as u64) as usize] as usize, slots, random);
        }
        if self.streak >= MAX_STREAK {
            self.streak = 0;
            return random.below(waves.len() as u64) as usize;
        }
        let best = (0..waves.len()).max_by_key(|&at| self.by_wave[waves[at] as usize]).unwrap_or(0);
        let is_same = std::mem::replace(&mut self.last, waves[best]) == waves[best];
        self.streak = if is_same { self.streak + 1 } else { 0 };
        best
    }

    /// Drops a wave, or with it its workgroup or rank, below everybody else.
    fn stall(&mut self, victim: usize, slots: &[Slot], random: &mut Random) {
        let (origin, group) = (slots[victim].origin, slots[victim].group);
        let extent = random.below(4);
        self.floor -= slots.len() as u64 + 1;
        for (wave, slot) in slots.iter().enumerate() {
            let is_hit = match extent {
                0 | 1 => wave == victim,
                2 => slot.group == group,
                _ => slot.origin.rank == origin.rank,
            };
            if is_hit {
                self.by_wave[wave] = self.floor + random.below(slots.len() as u64);
            }
        }
    }
}
