//! A world: processes, each an emulator with some of the ranks, that share memory and keep their clocks together.
//!
//! A segment of shared memory holds a count of stores and a slot for each process, which only that process writes, under
//! a version number that is odd meanwhile. `world_clock` decides from these slots how far a clock may go.

use std::cell::RefCell;
use std::sync::atomic::{fence, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex;
use rustix::time::{clock_gettime, ClockId, Timespec};

use super::error::EmulatorError;
use super::life::{self, Life};
use super::membership::WorldError;
use super::segment::Segment;
use super::world_clock::{self, Doing, Member};

/// Places in the header.
const STORES: u64 = 0;
const BELL: u64 = 8;
const SLEEPERS: u64 = 12;
pub(super) const PROCESSES: u64 = 16;
/// One more than the count of stores at which a deadlock was found.
const DEADLOCK: u64 = 24;
/// Places in a slot.
const VERSION: u64 = 0;
const OWNER: u64 = 8;
const STARTED: u64 = 16;
const STATE: u64 = 24;
const TICKS: u64 = 32;
const EVENT: u64 = 40;
const SEEN: u64 = 48;
const SINCE: u64 = 56;
const SLOT_BYTES: u64 = 64;
/// Values of a slot's state; zeroed memory is a process that has not come yet.
const HOST: u64 = 0;
const RUNNING: u64 = 1;
const WAITING: u64 = 2;
const STUCK: u64 = 3;
const GONE: u64 = 4;

/// Processes that a world may have.
pub(super) const MAX_PROCESSES: usize = 256;
/// How often a slot is read again while its process writes it, before it counts as one that may do anything.
const MAX_READS: usize = 1000;
/// How long what the host said of a process is believed.
const LIFE_LASTS: Duration = Duration::from_millis(5);
/// Sleeps of a process that waits for others, unless one rings.
const MIN_SLEEP: Duration = Duration::from_micros(50);
const MAX_SLEEP: Duration = Duration::from_millis(1);

/// What was last heard of another process, and since when it has been standing still.
#[derive(Clone, Copy, Debug)]
struct Heard {
    life: Life,
    at: Instant,
    stopped_ns: Option<u64>,
}

/// This process's view of its world.
#[derive(Debug)]
pub(super) struct World {
    pub segment: Segment,
    index: usize,
    processes: usize,
    heard: RefCell<Vec<Option<Heard>>>,
    /// Stores up to which remote lines were looked at.
    pub seen: u64,
    sleep: Duration,
    /// Whether the slot is this process's.
    is_in: bool,
}

/// The wall clock, which all processes of a host share.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl World {
    pub fn create(processes: usize, ticks: u64) -> Result<Self, EmulatorError> {
        if processes == 0 || processes > MAX_PROCESSES {
            return Err(WorldError::Size { processes }.into());
        }
        let segment = Segment::create(SLOT_BYTES * (1 + processes as u64));
        let segment = segment.map_err(|error| WorldError::Host { reason: error.to_string() })?;
        segment.unit(PROCESSES).store(processes as u64, Ordering::Relaxed);
        let world = Self::at(segment, 0, processes);
        for index in 0..processes {
            world.of(index, TICKS).store(ticks, Ordering::Relaxed);
            world.of(index, SINCE).store(now_ns(), Ordering::Relaxed);
        }
        Ok(world)
    }

    pub fn at(segment: Segment, index: usize, processes: usize) -> Self {
        let heard = RefCell::new(vec![None; processes]);
        Self { segment, index, processes, heard, seen: 0, sleep: MIN_SLEEP, is_in: false }
    }

    fn of(&self, index: usize, field: u64) -> &AtomicU64 {
        self.segment.unit(SLOT_BYTES * (1 + index as u64) + field)
    }

    fn own(&self, field: u64) -> &AtomicU64 {
        self.of(self.index, field)
    }

    /// Takes the slot.
    pub fn enter(&mut self, ticks: u64) -> Result<(), WorldError> {
        let process = std::process::id();
        let free = self.own(OWNER).compare_exchange(0, process.into(), Ordering::AcqRel, Ordering::Acquire);
        free.map_err(|process| WorldError::Taken { index: self.index, process: process as u32 })?;
        self.is_in = true;
        self.own(STARTED).store(life::started(process).unwrap_or(0), Ordering::Release);
        let since = self.own(SINCE).load(Ordering::Acquire);
        let ticks = ticks.max(self.own(TICKS).load(Ordering::Acquire));
        self.say(ticks, Doing::Host { since_ns: since });
        Ok(())
    }

    /// Tells all others what this process does.
    fn say(&self, ticks: u64, doing: Doing) {
        let version = self.own(VERSION).load(Ordering::Relaxed);
        self.own(VERSION).store(version | 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let state = match doing {
            Doing::Host { since_ns } => {
                self.own(SINCE).store(since_ns, Ordering::Relaxed);
                HOST
            }
            Doing::Running => RUNNING,
            Doing::Waiting { event, seen, is_stuck } => {
                self.own(EVENT).store(event, Ordering::Relaxed);
                self.own(SEEN).store(seen, Ordering::Relaxed);
                if is_stuck {
                    STUCK
                } else {
                    WAITING
                }
            }
            Doing::Gone => GONE,
        };
        self.own(TICKS).store(ticks, Ordering::Relaxed);
        self.own(STATE).store(state, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.own(VERSION).store((version | 1).wrapping_add(1), Ordering::SeqCst);
    }

    /// What another process says of itself; `None` while it is writing.
    fn heard_from(&self, index: usize) -> Option<Member> {
        let field = |field| self.of(index, field).load(Ordering::Acquire);
        for _ in 0..MAX_READS {
            let version = field(VERSION);
            fence(Ordering::SeqCst);
            let (state, ticks, event, seen, since_ns) =
                (field(STATE), field(TICKS), field(EVENT), field(SEEN), field(SINCE));
            fence(Ordering::SeqCst);
            if version & 1 == 0 && version == field(VERSION) {
                let doing = match state {
                    HOST => Doing::Host { since_ns },
                    RUNNING => Doing::Running,
                    WAITING | STUCK => Doing::Waiting { event, seen, is_stuck: state == STUCK },
                    _ => Doing::Gone,
                };
                return Some(Member { ticks, doing });
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Another process as the clock rules see it: dead ones bound nobody, stopped ones stand in host code.
    fn member(&self, index: usize) -> Member {
        let said = self.heard_from(index);
        let mut heard = self.heard.borrow_mut();
        let process = self.of(index, OWNER).load(Ordering::Acquire) as u32;
        let started = self.of(index, STARTED).load(Ordering::Acquire);
        let is_known = process != 0 && started != 0 && process != std::process::id();
        let old = heard[index];
        if is_known && old.is_none_or(|old| old.at.elapsed() > LIFE_LASTS) {
            let life = Life::of(process, started);
            let stopped = old.and_then(|old| old.stopped_ns).unwrap_or_else(now_ns);
            let stopped_ns = (life == Life::Stopped).then_some(stopped);
            heard[index] = Some(Heard { life, at: Instant::now(), stopped_ns });
        }
        let ticks = said.map_or_else(|| self.of(index, TICKS).load(Ordering::Acquire), |said| said.ticks);
        let doing = said.map_or(Doing::Running, |said| said.doing);
        match heard[index] {
            Some(Heard { life: Life::Ended, .. }) => Member { ticks, doing: Doing::Gone },
            Some(Heard { stopped_ns: Some(since_ns), .. }) if !matches!(doing, Doing::Host { .. } | Doing::Gone) => {
                Member { ticks, doing: Doing::Host { since_ns } }
            }
            _ => Member { ticks, doing },
        }
    }

    fn others(&self) -> Vec<Member> {
        (0..self.processes).filter(|&index| index != self.index).map(|index| self.member(index)).collect()
    }

    /// Stores to shared memory so far, by everybody, as far as they were told.
    pub fn stores(&self) -> u64 {
        self.segment.unit(STORES).load(Ordering::SeqCst)
    }

    /// This process has stored: whoever waits looks again.
    pub fn tell(&self) {
        self.segment.unit(STORES).fetch_add(1, Ordering::SeqCst);
        self.ring();
    }

    fn ring(&self) {
        let bell = self.segment.word(BELL);
        bell.fetch_add(1, Ordering::SeqCst);
        if self.segment.word(SLEEPERS).load(Ordering::SeqCst) > 0 {
            // Nobody to wake is no failure; one who sleeps on wakes by himself soon.
            let _ = futex::wake(bell, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// The clock of a running process, after each turn.
    #[inline]
    pub fn publish(&self, ticks: u64) {
        self.own(TICKS).store(ticks, Ordering::Release);
    }

    /// Begins a run; the clock to begin with.
    pub fn start(&self, ticks: u64) -> u64 {
        let since = self.own(SINCE).load(Ordering::Relaxed);
        let ticks = world_clock::at_start(ticks, since, &self.others(), now_ns());
        self.run(ticks);
        ticks
    }

    /// Waves can run again.
    pub fn run(&self, ticks: u64) {
        self.say(ticks, Doing::Running);
    }

    /// Ends a run; the clock to end with.
    pub fn end(&self, ticks: u64) -> u64 {
        let now = now_ns();
        let ticks = world_clock::at_end(ticks, &self.others(), now);
        self.say(ticks, Doing::Host { since_ns: now });
        self.ring();
        ticks
    }

    /// How far the clock of this process, which waits, may go: `None` if the others changed meanwhile, else a limit or
    /// none; and whether all others wait for stores that nobody makes.
    pub fn limit(&self, stores: u64) -> Option<(Option<u64>, bool)> {
        let others = self.others();
        let found = (world_clock::limit(&others, stores, now_ns()), world_clock::is_deadlock(&others, stores));
        // The count is what makes the slots, read one after the other, one picture.
        (self.stores() == stores).then_some(found)
    }

    /// Whether a process has found that all wait in vain.
    pub fn is_deadlocked(&self, stores: u64) -> bool {
        self.segment.unit(DEADLOCK).load(Ordering::SeqCst) == stores + 1
    }

    /// Tells the others that all wait in vain.
    pub fn report_deadlock(&self, stores: u64) {
        self.segment.unit(DEADLOCK).store(stores + 1, Ordering::SeqCst);
        self.ring();
    }

    /// Says that this process waits, and until when by itself.
    pub fn wait(&self, ticks: u64, event: u64, seen: u64, is_stuck: bool) {
        self.say(ticks, Doing::Waiting { event, seen, is_stuck });
    }

    /// How often the bell has rung; read before looking at anything.
    pub fn rings(&self) -> u32 {
        self.segment.word(BELL).load(Ordering::SeqCst)
    }

    /// Sleeps until somebody rings, but not for long: clocks move without a ring.
    pub fn sleep(&mut self, rings: u32) {
        let sleepers = self.segment.word(SLEEPERS);
        sleepers.fetch_add(1, Ordering::SeqCst);
        let time = Timespec { tv_sec: 0, tv_nsec: self.sleep.as_nanos() as i64 };
        let woken = futex::wait(self.segment.word(BELL), futex::Flags::empty(), rings, Some(&time));
        sleepers.fetch_sub(1, Ordering::SeqCst);
        self.sleep = if woken.is_ok() { MIN_SLEEP } else { (self.sleep * 2).min(MAX_SLEEP) };
    }

    /// The next sleep is short again.
    pub fn wake(&mut self) {
        self.sleep = MIN_SLEEP;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !self.is_in {
            return;
        }
        self.say(self.own(TICKS).load(Ordering::Relaxed), Doing::Gone);
        self.ring();
    }
}
