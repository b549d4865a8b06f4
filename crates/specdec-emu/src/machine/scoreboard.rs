//! Results that a wave has asked for and not yet waited for: the queues behind vmcnt and lgkmcnt.
//!
//! A load's value is taken when it issues, but its registers stay pending until a matching `s_waitcnt`.

use std::collections::VecDeque;

use super::lds::Lds;

/// Vector registers (unified file) and scalar registers, as words of a bit set: 8 + 2.
pub(super) const VECTOR_WORDS: usize = 8;
pub(super) const WORDS: usize = VECTOR_WORDS + 2;
/// Outstanding operations that the counters can express; issue stalls beyond.
const MAX_VECTOR: usize = 63;
const MAX_LOCAL: usize = 15;

/// Consecutive vector registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub first: u16,
    pub count: u16,
}

/// What an LDS DMA will deliver.
#[derive(Debug)]
pub(super) struct Dma {
    /// LDS address and position in `data` of each active lane.
    pub pieces: Vec<(u32, u32)>,
    pub bytes_per_lane: usize,
    pub data: Vec<u8>,
}

#[derive(Debug)]
struct VectorEntry {
    span: Span,
    load_bytes: u32,
    dma: Option<Box<Dma>>,
}

/// One wave's outstanding memory operations.
#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    vector_bits: [u64; VECTOR_WORDS],
    local_bits: [u64; VECTOR_WORDS],
    scalar_bits: [u64; WORDS - VECTOR_WORDS],
    vector: VecDeque<VectorEntry>,
    local: VecDeque<Span>,
    has_scalar: bool,
    /// Some register is the destination of two operations in flight, so clearing needs a recount.
    has_overlap: bool,
    /// Bytes of vector loads in flight.
    pub load_bytes: u64,
}

/// Sets the bits of a span; whether one was set before.
fn set(bits: &mut [u64], first: usize, count: usize) -> bool {
    let mut was_set = false;
    for register in first..first + count {
        if let Some(word) = bits.get_mut(register / 64) {
            was_set |= *word >> (register % 64) & 1 != 0;
            *word |= 1 << (register % 64);
        }
    }
    was_set
}

fn clear(bits: &mut [u64], span: Span) {
    for register in span.first as usize..(span.first + span.count) as usize {
        if let Some(word) = bits.get_mut(register / 64) {
            *word &= !(1 << (register % 64));
        }
    }
}

fn first_set(bits: &[u64], span: Span) -> Option<usize> {
    (span.first as usize..(span.first + span.count) as usize)
        .find(|register| bits.get(register / 64).is_some_and(|word| word >> (register % 64) & 1 != 0))
}

impl Scoreboard {
    /// Whether any register may be pending.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.vector.is_empty() && self.local.is_empty() && !self.has_scalar
    }

    /// Vector memory operations in flight.
    #[inline]
    pub fn num_vector(&self) -> usize {
        self.vector.len()
    }

    /// The first pending register among `touched` (word and mask pairs): 0..512 vector, 512.. scalar.
    #[inline]
    pub fn conflict(&self, touched: &[(u8, u64)]) -> Option<usize> {
        for &(word, mask) in touched {
            let word = word as usize;
            let pending = if word < VECTOR_WORDS {
                self.vector_bits[word] | self.local_bits[word]
            } else {
                self.scalar_bits[word - VECTOR_WORDS]
            };
            if pending & mask != 0 {
                return Some(word * 64 + (pending & mask).trailing_zeros() as usize);
            }
        }
        None
    }

    /// A register of a vector load's destination that an LDS read in flight also writes. Two vector loads may
    /// share a destination, because they return in order.
    pub fn vector_conflict(&self, span: Span) -> Option<usize> {
        first_set(&self.local_bits, span)
    }

    /// The same for an LDS read's destination and the vector loads in flight.
    pub fn local_conflict(&self, span: Span) -> Option<usize> {
        first_set(&self.vector_bits, span)
    }

    /// A vector memory operation was issued; stores and LDS DMA have an empty span.
    pub fn issue_vector(&mut self, span: Span, load_bytes: u32, dma: Option<Box<Dma>>, lds: &mut Lds) {
        if self.vector.len() >= MAX_VECTOR {
            self.wait_vector(MAX_VECTOR - 1, lds);
        }
        self.has_overlap |= set(&mut self.vector_bits, span.first as usize, span.count as usize);
        self.load_bytes += load_bytes as u64;
        self.vector.push_back(VectorEntry { span, load_bytes, dma });
    }

    /// An LDS operation was issued.
    pub fn issue_local(&mut self, span: Span) {
        if self.local.len() >= MAX_LOCAL {
            self.wait_local(MAX_LOCAL - 1);
        }
        self.has_overlap |= set(&mut self.local_bits, span.first as usize, span.count as usize);
        self.local.push_back(span);
    }

    /// A scalar load was issued.
    pub fn issue_scalar(&mut self, first: usize, count: usize) {
        self.has_scalar = true;
        set(&mut self.scalar_bits, first, count);
    }

    /// `vmcnt(newest)`: all but the newest operations complete.
    pub fn wait_vector(&mut self, newest: usize, lds: &mut Lds) {
        while self.vector.len() > newest {
            let Some(entry) = self.vector.pop_front() else { break };
            clear(&mut self.vector_bits, entry.span);
            self.load_bytes -= entry.load_bytes as u64;
            if let Some(dma) = entry.dma {
                for &(address, at) in &dma.pieces {
                    lds.finish_dma(address as u64, &dma.data[at as usize..][..dma.bytes_per_lane]);
                }
            }
        }
        self.recount();
    }

    /// `lgkmcnt(newest)`: LDS operations complete in order, scalar loads only when nothing may be left.
    pub fn wait_local(&mut self, newest: usize) {
        while self.local.len() > newest {
            let Some(span) = self.local.pop_front() else { break };
            clear(&mut self.local_bits, span);
        }
        if newest == 0 {
            self.scalar_bits = [0; WORDS - VECTOR_WORDS];
            self.has_scalar = false;
        }
        self.recount();
    }

    fn recount(&mut self) {
        if !self.has_overlap {
            return;
        }
        self.has_overlap = false;
        self.vector_bits = [0; VECTOR_WORDS];
        self.local_bits = [0; VECTOR_WORDS];
        for entry in &self.vector {
            self.has_overlap |= set(&mut self.vector_bits, entry.span.first as usize, entry.span.count as usize);
        }
        for span in &self.local {
            self.has_overlap |= set(&mut self.local_bits, span.first as usize, span.count as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(first: u16, count: u16) -> Span {
        Span { first, count }
    }

    #[test]
    fn vector_operations_complete_in_order() {
        let (mut board, mut lds) = (Scoreboard::default(), Lds::new(0));
        board.issue_vector(span(0, 4), 16, None, &mut lds);
        board.issue_vector(Span::default(), 0, None, &mut lds);
        board.issue_vector(span(62, 4), 16, None, &mut lds);
        assert_eq!(board.conflict(&[(0, 1)]), Some(0));
        board.wait_vector(1, &mut lds);
        assert_eq!(board.conflict(&[(0, 1)]), None);
        assert_eq!(board.conflict(&[(1, 0b11)]), Some(64));
        assert_eq!(board.load_bytes, 16);
        board.wait_vector(0, &mut lds);
        assert!(board.is_idle());
    }

    #[test]
    fn a_register_loaded_twice_stays_pending_until_the_second_load() {
        let (mut board, mut lds) = (Scoreboard::default(), Lds::new(0));
        board.issue_vector(span(3, 1), 4, None, &mut lds);
        board.issue_vector(span(3, 1), 4, None, &mut lds);
        board.wait_vector(1, &mut lds);
        assert_eq!(board.conflict(&[(0, 8)]), Some(3));
        board.wait_vector(0, &mut lds);
        assert_eq!(board.conflict(&[(0, 8)]), None);
    }

    #[test]
    fn scalar_loads_complete_only_at_zero() {
        let mut board = Scoreboard::default();
        board.issue_scalar(4, 2);
        board.issue_local(span(9, 1));
        board.wait_local(1);
        assert_eq!(board.conflict(&[(8, 1 << 4)]), Some(516));
        assert_eq!(board.conflict(&[(0, 1 << 9)]), Some(9));
        board.wait_local(0);
        assert!(board.is_idle());
    }
}
