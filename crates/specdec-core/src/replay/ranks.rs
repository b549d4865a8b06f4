//! Sets of ranks and values of ranks, in words.

use std::fmt;

use serde::Serialize;

use crate::abi::MAX_RANKS;
use crate::ids::Rank;

/// Ranks, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct RankSet(u32);

impl RankSet {
    /// The set with one more rank; ranks that cannot exist are left out.
    #[must_use]
    pub const fn with(self, rank: Rank) -> Self {
        if (rank.0 as u32) < MAX_RANKS {
            Self(self.0 | 1 << rank.0)
        } else {
            self
        }
    }

    /// Whether the rank is in the set.
    pub const fn contains(self, rank: Rank) -> bool {
        (rank.0 as u32) < MAX_RANKS && self.0 >> rank.0 & 1 == 1
    }

    /// Whether no rank is.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of ranks.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The lowest rank.
    pub fn first(self) -> Option<Rank> {
        self.iter().next()
    }

    /// The ranks, ascending.
    pub fn iter(self) -> impl Iterator<Item = Rank> {
        (0..MAX_RANKS as u8).map(Rank).filter(move |rank| self.contains(*rank))
    }
}

impl FromIterator<Rank> for RankSet {
    fn from_iter<I: IntoIterator<Item = Rank>>(ranks: I) -> Self {
        ranks.into_iter().fold(Self::default(), Self::with)
    }
}

impl fmt::Display for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.len() {
            0 => "no rank",
            1 => "rank ",
            _ => "ranks ",
        })?;
        for (index, rank) in self.iter().enumerate() {
            let separator = match (index as u32, self.len()) {
                (0, _) => "",
                (index, len) if index + 1 == len => " and ",
                _ => ", ",
            };
            write!(f, "{separator}{}", rank.0)?;
        }
        Ok(())
    }
}

/// A value of each rank that gave one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct PerRank {
    ranks: RankSet,
    values: [u64; MAX_RANKS as usize],
}

impl PerRank {
    /// Notes a rank's value; ranks that cannot exist are left out.
    pub fn set(&mut self, rank: Rank, value: u64) {
        if let Some(place) = self.values.get_mut(rank.0 as usize) {
            *place = value;
            self.ranks = self.ranks.with(rank);
        }
    }

    /// A rank's value.
    pub fn get(&self, rank: Rank) -> Option<u64> {
        self.values.get(rank.0 as usize).copied().filter(|_| self.ranks.contains(rank))
    }

    /// Ranks with their values.
    pub fn iter(&self) -> impl Iterator<Item = (Rank, u64)> + '_ {
        self.ranks.iter().filter_map(|rank| Some((rank, self.get(rank)?)))
    }

    /// Whether all values are equal.
    pub fn agree(&self) -> bool {
        let first = self.iter().next();
        self.iter().all(|(_, value)| first.is_some_and(|(_, first)| first == value))
    }

    /// Ranks that have the value.
    pub fn holders(&self, value: u64) -> RankSet {
        self.iter().filter(|(_, own)| *own == value).map(|(rank, _)| rank).collect()
    }

    /// Ranks that do not have the most frequent value; of two equally frequent ones, the lowest rank's counts.
    pub fn minority(&self) -> RankSet {
        let size = |value: &u64| (self.holders(*value).len(), std::cmp::Reverse(self.holders(*value).first()));
        let most = self.iter().map(|(_, value)| value).max_by_key(size);
        self.iter().filter(|(_, own)| Some(*own) != most).map(|(rank, _)| rank).collect()
    }
}

impl fmt::Display for PerRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (rank, value) in self.iter() {
            let holders = self.holders(value);
            if holders.first() == Some(rank) {
                write!(f, "{separator}{value} on {holders}")?;
                separator = "; ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_their_values_read_as_a_sentence() {
        let set = |ranks: &[u8]| ranks.iter().copied().map(Rank).collect::<RankSet>();
        assert_eq!(set(&[]).to_string(), "no rank");
        assert_eq!(set(&[3]).to_string(), "rank 3");
        assert_eq!(set(&[5, 0]).to_string(), "ranks 0 and 5");
        assert_eq!(set(&[7, 1, 2, 9]).to_string(), "ranks 1, 2 and 7");
        let mut values = PerRank::default();
        for (rank, value) in [(0, 42), (1, 41), (3, 42), (200, 1)] {
            values.set(Rank(rank), value);
        }
        assert_eq!(values.to_string(), "42 on ranks 0 and 3; 41 on rank 1");
        assert_eq!((values.agree(), values.minority()), (false, set(&[1])));
        assert_eq!((values.get(Rank(1)), values.get(Rank(2))), (Some(41), None));
        values.set(Rank(1), 42);
        assert_eq!((values.agree(), values.minority()), (true, set(&[])));
        values.set(Rank(1), 7);
        values.set(Rank(3), 7);
        values.set(Rank(2), 42);
        assert_eq!(values.minority(), set(&[1, 3]), "of two equal parts, the lowest rank's is right");
    }
}
