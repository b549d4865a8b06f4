//! Waves that poll are parked on the lines they polled, instead of being run until something changes.
//!
//! The first `s_sleep` of a wave only makes it remember the device- and system-scope loads that follow. It is
//! subscribed to a line the moment it loads it, so a store between the load and the next `s_sleep` is seen: that
//! `s_sleep` then does not park. A subscription ends with the first store to its line; one too many costs a poll.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::memory::Memory;
use super::visibility::LaneAddresses;

/// Bytes that one subscription watches.
const LINE_BYTES_LOG2: u32 = 6;
/// A wave that remembers more lines than this is streaming data, not polling.
const MAX_LINES: usize = 512;

/// What one wave polls.
#[derive(Clone, Debug, Default)]
struct Watch {
    lines: Vec<u64>,
    /// First address of each load instruction since the last `s_sleep`, for reports.
    places: Vec<u64>,
    is_recording: bool,
    was_signaled: bool,
    is_parked: bool,
}

/// What an `s_sleep` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sleep {
    /// Sleep for the instruction's own time: nothing is known to be polled.
    Timed,
    /// Do not sleep: a polled line has changed meanwhile.
    Changed,
    /// Park until a polled line changes.
    Park,
}

/// All waves' watches, by wave number of the machine.
#[derive(Debug, Default)]
pub(super) struct Parking {
    watches: Vec<Watch>,
    subscribers: HashMap<u64, Vec<u32>, std::hash::BuildHasherDefault<LineHasher>>,
    /// Polled lines that other processes can store to, as they were when the first poll looked.
    remote: HashMap<u64, [u64; 8], std::hash::BuildHasherDefault<LineHasher>>,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    /// Waves that a store has woken since the scheduler last looked.
    woken: Vec<u32>,
    /// Stores to lines that somebody watched; tells whether a round of polls could see anything new.
    pub num_signals: u64,
}

/// Lines are well spread by one multiplication; the default hasher costs more than the look-up.
#[derive(Debug, Default)]
struct LineHasher(u64);

impl std::hash::Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte as u64);
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 29;
    }
}

impl Parking {
    /// Makes room for a wave.
    pub fn add_wave(&mut self, wave: usize) {
        if self.watches.len() <= wave {
            self.watches.resize_with(wave + 1, Watch::default);
        }
        self.watches[wave] = Watch::default();
    }

    /// Forgets everything: no launch is running.
    pub fn clear(&mut self) {
        *self = Self { num_signals: self.num_signals, ..Self::default() };
    }

    /// Whether a wave's polling loads are remembered.
    #[inline]
    pub fn is_recording(&self, wave: usize) -> bool {
        self.watches[wave].is_recording
    }

    /// Remembers the lines of a wave's device- or system-scope load.
    pub fn record(&mut self, wave: usize, lanes: &LaneAddresses, bytes: u64, memory: &Memory) {
        let watch = &mut self.watches[wave];
        let mut previous = None;
        for lane in lanes.active() {
            let address = lanes.at[lane];
            if previous.is_none() {
                watch.places.push(address);
            }
            for line in address >> LINE_BYTES_LOG2..=address.wrapping_add(bytes - 1) >> LINE_BYTES_LOG2 {
                if previous != Some(line) && !watch.lines.contains(&line) {
                    watch.lines.push(line);
                    self.subscribers.entry(line).or_default().push(wave as u32);
                    if memory.has_shared {
                        // Before the load: what changes from here on differs from it.
                        if let Some(contents) = memory.shared_line(line << LINE_BYTES_LOG2) {
                            self.remote.entry(line).or_insert(contents);
                        }
                    }
                }
                previous = Some(line);
            }
        }
        if watch.lines.len() > MAX_LINES {
            // The subscriptions stay behind and fire once at most.
            *watch = Watch::default();
        }
    }

    /// A wave executes `s_sleep`.
    pub fn sleep(&mut self, wave: usize) -> Sleep {
        let watch = &mut self.watches[wave];
        if std::mem::take(&mut watch.was_signaled) {
            watch.places.clear();
            return Sleep::Changed;
        }
        if !watch.is_recording {
            watch.is_recording = true;
            return Sleep::Changed;
        }
        if watch.places.is_empty() {
            return Sleep::Timed;
        }
        watch.is_parked = true;
        Sleep::Park
    }

    /// A wave passes a barrier: its poll is over, what it loads next is data.
    #[inline]
    pub fn stop_recording(&mut self, wave: usize) {
        let watch = &mut self.watches[wave];
        watch.is_recording = false;
        watch.places.clear();
    }

    /// Sets a timer for a wave that sleeps for a time.
    pub fn set_timer(&mut self, wave: usize, tick: u64) {
        self.timers.push(Reverse((tick, wave as u32)));
    }

    /// The earliest timer.
    pub fn next_timer(&self) -> Option<u64> {
        self.timers.peek().map(|&Reverse((tick, _))| tick)
    }

    /// Takes one wave whose timer has passed.
    pub fn take_expired(&mut self, now: u64) -> Option<u32> {
        let &Reverse((tick, wave)) = self.timers.peek()?;
        if tick > now {
            return None;
        }
        self.timers.pop();
        Some(wave)
    }

    /// Lets a parked wave go on.
    pub fn unpark(&mut self, wave: usize) {
        let watch = &mut self.watches[wave];
        watch.is_parked = false;
        watch.was_signaled = false;
        watch.places.clear();
    }

    /// The addresses that a parked wave polls.
    pub fn places(&self, wave: usize) -> &[u64] {
        &self.watches[wave].places
    }

    /// Tells the watchers of the lines that an instruction stored to.
    #[inline]
    pub fn signal(&mut self, lanes: &LaneAddresses, bytes: u64) {
        if self.subscribers.is_empty() {
            return;
        }
        let mut previous = None;
        for lane in lanes.active() {
            let address = lanes.at[lane];
            for line in address >> LINE_BYTES_LOG2..=address.wrapping_add(bytes - 1) >> LINE_BYTES_LOG2 {
                if previous != Some(line) {
                    self.signal_line(line);
                }
                previous = Some(line);
            }
        }
    }

    /// Tells the watchers of every line of a range.
    pub fn signal_range(&mut self, address: u64, bytes: u64) {
        if self.subscribers.is_empty() || bytes == 0 {
            return;
        }
        for line in address >> LINE_BYTES_LOG2..=(address + bytes - 1) >> LINE_BYTES_LOG2 {
            self.signal_line(line);
        }
    }

    /// Tells the watchers of lines that other processes have changed.
    pub fn signal_remote(&mut self, memory: &Memory) {
        let changed = |(&line, seen): (&u64, &[u64; 8])| {
            (memory.shared_line(line << LINE_BYTES_LOG2).as_ref() != Some(seen)).then_some(line)
        };
        let changed: Vec<u64> = self.remote.iter().filter_map(changed).collect();
        for line in changed {
            self.signal_line(line);
        }
    }

    fn signal_line(&mut self, line: u64) {
        let Some(waves) = self.subscribers.remove(&line) else { return };
        if !self.remote.is_empty() {
            self.remote.remove(&line);
        }
        self.num_signals += 1;
        for wave in waves {
            let watch = &mut self.watches[wave as usize];
            if let Some(at) = watch.lines.iter().position(|&known| known == line) {
                watch.lines.swap_remove(at);
            }
            if !std::mem::replace(&mut watch.was_signaled, true) && watch.is_parked {
                self.woken.push(wave);
            }
        }
    }

    /// Takes one woken wave.
    #[inline]
    pub fn take_woken(&mut self) -> Option<u32> {
        self.woken.pop()
    }
}
