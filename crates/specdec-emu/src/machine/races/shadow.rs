//! What is remembered of each word of memory: its last writers and who has read it since.

use std::collections::HashMap;
use std::sync::Arc;

use super::clock::{Clock, WaveId};

/// Words of a page.
const PAGE_WORDS: usize = 1024;
/// Bytes of a word.
pub(super) const WORD_BYTES: u64 = 4;

/// One access to one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub id: WaveId,
    /// Number of the operation among the wave's vector memory operations, from 1.
    pub stamp: u32,
    /// What instruction, see `Sites`.
    pub site: u32,
    /// Serial number of the workgroup.
    pub group: u32,
    pub lane: u8,
    /// Bytes of the word.
    pub mask: u8,
}

/// One word.
#[derive(Clone, Debug, Default)]
pub(super) struct Word {
    /// The last store to each byte: mostly one for all four.
    pub writes: Vec<Record>,
    /// The last load of each wave since.
    pub reads: Vec<Record>,
    /// What the last store published, if it was one that a poll may accept.
    pub release: Option<Arc<Clock>>,
}

impl Word {
    /// Remembers a store, which ends what it overwrites.
    pub fn write(&mut self, record: Record, release: Option<Arc<Clock>>) {
        self.writes.retain_mut(|old| {
            old.mask &= !record.mask;
            old.mask != 0
        });
        self.reads.retain_mut(|old| {
            old.mask &= !record.mask;
            old.mask != 0
        });
        self.writes.push(record);
        self.release = release;
    }

    /// Remembers a load.
    pub fn read(&mut self, record: Record) {
        match self.reads.iter_mut().find(|old| old.id == record.id) {
            Some(old) => *old = Record { mask: old.mask | record.mask, ..record },
            None => self.reads.push(record),
        }
    }
}

/// All words that were stored to, or read in memory that is stored to.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    pages: HashMap<u64, Box<[Word]>>,
}

impl Shadow {
    /// The word at an address of a multiple of four.
    #[inline]
    pub fn word(&mut self, address: u64) -> &mut Word {
        let index = address / WORD_BYTES;
        let page =
            self.pages.entry(index / PAGE_WORDS as u64).or_insert_with(|| vec![Word::default(); PAGE_WORDS].into());
        &mut page[index as usize % PAGE_WORDS]
    }

    /// Forgets a range: other memory is there now.
    pub fn forget(&mut self, start: u64, bytes: u64) {
        let end = start.saturating_add(bytes);
        let page_bytes = PAGE_WORDS as u64 * WORD_BYTES;
        for (&page, words) in &mut self.pages {
            if page * page_bytes < end && start < (page + 1) * page_bytes {
                for (index, word) in words.iter_mut().enumerate() {
                    let address = page * page_bytes + index as u64 * WORD_BYTES;
                    if address < end && start < address + WORD_BYTES {
                        *word = Word::default();
                    }
                }
            }
        }
    }
}

/// The words that `bytes` from `address` touch, each with the bytes' mask.
#[inline]
pub(super) fn words(address: u64, bytes: usize) -> impl Iterator<Item = (u64, u8)> {
    let end = address + bytes as u64;
    (address / WORD_BYTES..end.div_ceil(WORD_BYTES)).map(move |index| {
        let start = index * WORD_BYTES;
        let (low, high) = (address.max(start) - start, end.min(start + WORD_BYTES) - start);
        (start, (0xF << low & 0xF & !(0xF << high)) as u8)
    })
}
