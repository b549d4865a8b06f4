//! A board on which the ranks of a group, each in a process of its own, show each other their votes.
//!
//! Every vote is as many bytes of every rank. A rank casts its own and goes on; it looks at the others' when it has to.
//! Nobody calls anybody, no thread runs, and the host's kernel is not asked, so a vote costs what its bytes cost.
//!
//! Two places a rank, used in turn, are enough: a rank casts a vote only after it has collected the one before
//! ([`Board::cast`] refuses otherwise), which it cannot before all ranks have cast that, and they have collected the one
//! before that one: nobody reads any more from the place that is written. It follows that a vote which one rank collects
//! is there for every rank, whoever ends afterwards.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use specdec_core::device::PeerHandle;
use specdec_core::ids::Rank;
use thiserror::Error;

use super::peer::{self, HandleKind, PeerError};
use super::segment::{Segment, LINE_BYTES};

/// The first line: ranks, and bytes of a vote.
const RANKS: u64 = 0;
const VOTE_BYTES: u64 = 8;
/// A place: the number of the vote that it holds, then the vote.
const NUMBER_BYTES: u64 = 8;
const PLACES: u64 = 2;
/// Votes that come within this many looks are not worth a sleep.
const MAX_LOOKS: u32 = 200;
const MIN_SLEEP: Duration = Duration::from_micros(20);
const MAX_SLEEP: Duration = Duration::from_millis(1);

/// A board that cannot be made, joined or used so.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BoardError {
    /// The host has no shared memory.
    #[error("the host cannot provide shared memory: {reason}")]
    Host {
        /// The host's words.
        reason: String,
    },
    /// The board's memory cannot be reached.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A rank without a place.
    #[error("{rank} has no place on a board of {ranks} ranks")]
    NoPlace {
        /// The rank.
        rank: Rank,
        /// Ranks of the board.
        ranks: u64,
    },
    /// Made for votes of another length.
    #[error("the board is for votes of {found} bytes, this process casts {needed}")]
    Length {
        /// Bytes of the board's votes.
        found: u64,
        /// Bytes of this process's.
        needed: u64,
    },
    /// Not the turn for it.
    #[error("{rank} casts vote {number} before it has collected the one before")]
    Early {
        /// The rank.
        rank: Rank,
        /// The vote.
        number: u64,
    },
}

impl BoardError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Host { .. } => "run on Linux, and allow more open files or memory",
            Self::Peer(error) => error.hint(),
            Self::NoPlace { .. } => "make the board for as many ranks as the group has",
            Self::Length { .. } => "run one version everywhere",
            Self::Early { .. } => "collect each vote before the next is cast",
        }
    }
}

/// One rank's place at a board.
#[derive(Debug)]
pub struct Board {
    segment: Segment,
    rank: Rank,
    ranks: u64,
    vote_bytes: u64,
    /// This rank's last vote; the first has number 1, so zeroed memory holds none.
    number: u64,
    is_collected: bool,
}

impl Board {
    /// A board for votes of `vote_bytes` bytes, and the place of rank 0.
    pub fn create(ranks: u32, vote_bytes: usize) -> Result<Self, BoardError> {
        let (ranks, vote_bytes) = (u64::from(ranks), vote_bytes as u64);
        let segment = Segment::create(LINE_BYTES + ranks * PLACES * place_bytes(vote_bytes));
        let segment = segment.map_err(|error| BoardError::Host { reason: error.to_string() })?;
        segment.unit(RANKS).store(ranks, Ordering::Relaxed);
        segment.unit(VOTE_BYTES).store(vote_bytes, Ordering::Release);
        Self::at(segment, Rank(0), vote_bytes)
    }

    /// The place of `rank` at the board of this handle, of this process or another.
    pub fn join(handle: &PeerHandle, rank: Rank, vote_bytes: usize) -> Result<Self, BoardError> {
        Self::at(peer::open(handle, HandleKind::Board)?.0, rank, vote_bytes as u64)
    }

    fn at(segment: Segment, rank: Rank, needed: u64) -> Result<Self, BoardError> {
        let vote_bytes = segment.unit(VOTE_BYTES).load(Ordering::Acquire);
        let ranks = segment.unit(RANKS).load(Ordering::Relaxed);
        if vote_bytes != needed {
            return Err(BoardError::Length { found: vote_bytes, needed });
        }
        if u64::from(rank.0) >= ranks {
            return Err(BoardError::NoPlace { rank, ranks });
        }
        Ok(Self { segment, rank, ranks, vote_bytes, number: 0, is_collected: true })
    }

    /// With what the other ranks join, while this board lives.
    pub fn handle(&self) -> PeerHandle {
        peer::handle_of(&self.segment, HandleKind::Board)
    }

    /// Where a rank's vote of a number is.
    fn place(&self, rank: u64, number: u64) -> u64 {
        LINE_BYTES + (rank * PLACES + number % PLACES) * place_bytes(self.vote_bytes)
    }

    /// Shows this rank's next vote. Nobody waits.
    pub fn cast(&mut self, vote: &[u8]) -> Result<(), BoardError> {
        if vote.len() as u64 != self.vote_bytes {
            return Err(BoardError::Length { found: self.vote_bytes, needed: vote.len() as u64 });
        }
        if !self.is_collected {
            return Err(BoardError::Early { rank: self.rank, number: self.number + 1 });
        }
        let place = self.place(self.rank.0.into(), self.number + 1);
        self.segment.write(place + NUMBER_BYTES, vote);
        // Behind the vote: whoever sees the number sees the vote.
        self.segment.unit(place).store(self.number + 1, Ordering::Release);
        (self.number, self.is_collected) = (self.number + 1, false);
        Ok(())
    }

    fn has_cast(&self, rank: u64) -> bool {
        self.segment.unit(self.place(rank, self.number)).load(Ordering::Acquire) == self.number
    }

    /// Ranks whose vote of this rank's last number is not there yet.
    pub fn missing(&self) -> impl Iterator<Item = Rank> + '_ {
        let awaited = if self.is_collected { 0 } else { self.ranks };
        (0..awaited).filter(|&rank| !self.has_cast(rank)).map(|rank| Rank(rank as u8))
    }

    /// Every rank's vote of this rank's last number, by rank, one behind the other; `None` while one is missing, and
    /// empty if they have been collected.
    pub fn collect(&mut self) -> Option<Vec<u8>> {
        if self.is_collected {
            return Some(Vec::new());
        }
        if self.missing().next().is_some() {
            return None;
        }
        let mut votes = vec![0; (self.ranks * self.vote_bytes) as usize];
        for (rank, vote) in (0..self.ranks).zip(votes.chunks_exact_mut(self.vote_bytes as usize)) {
            self.segment.read(self.place(rank, self.number) + NUMBER_BYTES, vote);
        }
        self.is_collected = true;
        Some(votes)
    }

    /// Waits until no vote is missing, but no longer than `at_most`; whether none is.
    pub fn wait(&self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        let (mut looks, mut sleep) = (0, MIN_SLEEP);
        while self.missing().next().is_some() {
            if looks < MAX_LOOKS {
                looks += 1;
                std::hint::spin_loop();
                continue;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            thread::sleep(sleep.min(left));
            sleep = MAX_SLEEP.min(sleep * 2);
        }
        true
    }
}

/// Whole lines: two ranks never write into one.
const fn place_bytes(vote_bytes: u64) -> u64 {
    (NUMBER_BYTES + vote_bytes).next_multiple_of(LINE_BYTES)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: usize = 12;

    fn group(ranks: u32) -> Vec<Board> {
        let first = Board::create(ranks, BYTES).unwrap();
        let others: Vec<_> =
            (1..ranks).map(|rank| Board::join(&first.handle(), Rank(rank as u8), BYTES).unwrap()).collect();
        std::iter::once(first).chain(others).collect()
    }

    /// Tells the rank, the vote, and which word of it this is.
    fn vote(rank: u32, number: u32) -> Vec<u8> {
        (0..BYTES as u32 / 4).flat_map(|word| (rank << 24 | number << 4 | word).to_le_bytes()).collect()
    }

    fn everybodys(ranks: u32, number: u32) -> Vec<u8> {
        (0..ranks).flat_map(|rank| vote(rank, number)).collect()
    }

    proptest! {
        /// In whatever order ranks come to it, each collects every rank's vote of its own number, whole.
        #[test]
        fn every_rank_collects_the_same(ranks in 1u32..9, order in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut boards = group(ranks);
            let mut votes = vec![0; ranks as usize];
            for who in order {
                let who = u32::from(who) % ranks;
                let (board, number) = (&mut boards[who as usize], &mut votes[who as usize]);
                match board.collect() {
                    Some(found) if found.is_empty() => prop_assert_eq!(*number, 0),
                    Some(found) => prop_assert_eq!(found, everybodys(ranks, *number)),
                    None => {
                        let early = board.cast(&vote(who, 0));
                        prop_assert_eq!(early, Err(BoardError::Early { rank: Rank(who as u8), number: (*number + 1).into() }));
                        let late: Vec<_> = votes.iter().map(|other| *other < votes[who as usize]).collect();
                        let missing: Vec<_> = boards[who as usize].missing().map(|rank| rank.0 as usize).collect();
                        let expected: Vec<_> = (0..ranks as usize).filter(|rank| late[*rank]).collect();
                        prop_assert_eq!(missing, expected);
                        continue;
                    }
                }
                *number += 1;
                board.cast(&vote(who, *number)).unwrap();
            }
        }
    }

    #[test]
    fn threads_never_see_a_torn_vote_or_another_ones() {
        let (ranks, last) = (4, 20_000);
        thread::scope(|scope| {
            for (who, mut board) in (0..).zip(group(ranks)) {
                scope.spawn(move || {
                    for number in 1..=last {
                        board.cast(&vote(who, number)).unwrap();
                        assert!(board.wait(Duration::from_secs(20)), "{:?}", board.missing().collect::<Vec<_>>());
                        assert_eq!(board.collect().unwrap(), everybodys(ranks, number));
                    }
                });
            }
        });
    }

    #[test]
    fn a_wait_ends_without_the_missing() {
        let mut boards = group(3);
        assert!(boards[1].wait(Duration::ZERO), "nothing has been cast");
        boards[1].cast(&vote(1, 1)).unwrap();
        assert!(!boards[1].wait(Duration::from_millis(5)));
        assert_eq!(boards[1].missing().collect::<Vec<_>>(), [Rank(0), Rank(2)]);
        assert_eq!(boards[1].collect(), None);
    }

    #[test]
    fn a_board_of_others_is_refused() {
        let board = Board::create(2, BYTES).unwrap();
        let refusal = |error: Result<Board, BoardError>| error.err().unwrap();
        assert_eq!(
            refusal(Board::join(&board.handle(), Rank(2), BYTES)),
            BoardError::NoPlace { rank: Rank(2), ranks: 2 }
        );
        let other_length = BoardError::Length { found: BYTES as u64, needed: 16 };
        assert_eq!(refusal(Board::join(&board.handle(), Rank(1), 16)), other_length);
        let handle = board.handle();
        drop(board);
        // Another test's file may have its number by now.
        let gone = refusal(Board::join(&handle, Rank(1), BYTES));
        assert!(matches!(gone, BoardError::Peer(PeerError::Stale { .. } | PeerError::Truncated { .. })));
    }
}
