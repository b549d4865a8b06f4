//! Which bytes of a memory somebody has written: one bit a byte.

/// A bit per byte, and how many bytes are still missing.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    /// Empty until something is marked: memory that nobody ever writes has no map.
    words: Vec<u64>,
    num_words: usize,
    missing: u64,
}

/// The bits of `word` that bytes `start..end` cover.
fn mask(word: u64, start: u64, end: u64) -> u64 {
    let low = start.max(word * 64) - word * 64;
    let high = end.min(word * 64 + 64) - word * 64;
    (u64::MAX >> (64 - (high - low))) << low
}

impl Written {
    /// Nothing of `bytes` is written; `None` if the host has no room for the map.
    pub fn none(bytes: u64) -> Option<Self> {
        let num_words = bytes.div_ceil(64) as usize;
        // `vec!` aborts the process when the host refuses, so ask first.
        Vec::<u64>::new().try_reserve_exact(num_words).ok()?;
        Some(Self { words: Vec::new(), num_words, missing: bytes })
    }

    #[inline]
    fn word(&self, word: u64) -> u64 {
        self.words.get(word as usize).copied().unwrap_or(0)
    }

    /// Whether all of `start..start + bytes` is written. The caller has checked the bounds.
    #[inline]
    pub fn covers(&self, start: u64, bytes: u64) -> bool {
        let end = start + bytes;
        (start / 64..end.div_ceil(64)).all(|word| {
            let mask = mask(word, start, end);
            self.word(word) & mask == mask
        })
    }

    /// Whether any of `start..start + bytes` is marked.
    pub fn touches(&self, start: u64, bytes: u64) -> bool {
        let end = start + bytes;
        (start / 64..end.div_ceil(64)).any(|word| self.word(word) & mask(word, start, end) != 0)
    }

    /// Marks `start..start + bytes`.
    #[inline]
    pub fn mark(&mut self, start: u64, bytes: u64) {
        if self.words.is_empty() {
            // A zeroed vector costs pages only where it is touched, so the map of a sparse memory is sparse too.
            self.words = vec![0; self.num_words];
        }
        let end = start + bytes;
        for word in start / 64..end.div_ceil(64) {
            let mask = mask(word, start, end);
            let bits = &mut self.words[word as usize];
            self.missing -= (mask & !*bits).count_ones() as u64;
            *bits |= mask;
        }
    }

    /// Unmarks `start..start + bytes`.
    pub fn unmark(&mut self, start: u64, bytes: u64) {
        let end = start + bytes;
        if self.words.is_empty() {
            return;
        }
        for word in start / 64..end.div_ceil(64) {
            let mask = mask(word, start, end);
            let bits = &mut self.words[word as usize];
            self.missing += (mask & *bits).count_ones() as u64;
            *bits &= !mask;
        }
    }

    /// Whether every byte is written.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn marks_cover_exactly_their_bytes() {
        let mut map = Written::none(200).unwrap();
        map.unmark(0, 200);
        assert!(!map.covers(0, 1) && !map.touches(0, 200) && !map.is_complete());
        map.mark(60, 10);
        assert!(map.covers(60, 10) && map.covers(63, 2));
        assert!(!map.covers(59, 2) && !map.covers(69, 2));
        map.mark(0, 200);
        assert!(map.is_complete());
        map.unmark(199, 1);
        assert!(!map.is_complete() && !map.covers(128, 72) && map.covers(0, 199));
    }
}
