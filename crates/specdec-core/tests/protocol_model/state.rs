//! What the model remembers. Steps are counted from the slowest rank's, so that a world without end has finitely many
//! states; a step that lies whole cycles of the tag behind is as stale as one that lies one cycle behind.

/// Ranks.
pub const RANKS: usize = 2;
/// Most workgroups of a rank.
pub const CTAS: usize = 3;
/// Most chains between two barriers.
pub const CHAINS: usize = 5;
/// Most epochs that tags tell apart here.
pub const MOST_EPOCHS: i8 = 8;
/// Layers that tags tell apart here.
pub const MOST_LAYERS: u16 = 3;
/// No step is planned yet.
pub const UNPLANNED: u8 = u8::MAX;
/// Steps that a rank can be ahead before the model stops counting.
pub const AHEAD: usize = 3;

/// No tag at all: memory as it was zeroed.
pub const ZERO: u16 = 0;
/// What a failed workgroup publishes.
pub const POISON: u16 = 31;

/// One word: its tag as the kernels see it and, beside it, whose it truly is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Word(pub u16);

impl Word {
    /// A word that nobody has written.
    pub const EMPTY: Self = Self::new(ZERO, -1, 0, false);

    /// Five bits of tag, four of the step, two of the layer, one for garbage.
    pub const fn new(tag: u16, step: i8, layer: u8, garbage: bool) -> Self {
        Self(tag | ((step + MOST_EPOCHS) as u16) << 5 | (layer as u16) << 9 | (garbage as u16) << 11)
    }

    pub const fn tag(self) -> u16 {
        self.0 & 31
    }

    /// From the slowest rank's step on.
    pub const fn step(self) -> i8 {
        (self.0 >> 5 & 15) as i8 - MOST_EPOCHS
    }

    pub const fn layer(self) -> u8 {
        (self.0 >> 9 & 3) as u8
    }

    pub const fn is_garbage(self) -> bool {
        self.0 >> 11 != 0
    }

    /// The same word when the slowest rank enters the next step.
    pub const fn aged(self, epochs: i8) -> Self {
        let step = self.step() - 1;
        let step = if step < -epochs { step + epochs } else { step };
        Self::new(self.tag(), step, self.layer(), self.is_garbage())
    }
}

/// Where a rank's host and stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// A launch runs.
    Running,
    /// The step's launches are over; its alarm words are copied behind them.
    Delivering,
    /// The host may launch the next step.
    Between,
    /// The host has abandoned the step and meets the others.
    Meeting,
    /// The abandoned step is about to be closed.
    Closing,
    /// The host has seen a failure.
    Stopped,
    /// The host launches nothing any more, for a reason of its own.
    Refused,
    /// The rank has crashed: its memory stays.
    Dead,
}

/// One workgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Workgroup {
    pub item: u8,
    /// Actions done of each chain.
    pub at: [u8; CHAINS],
    /// The epoch that it has read.
    pub epoch: u8,
    pub failed: bool,
    /// Actions done of giving up, counted from 1; 0: it has not begun, or is through.
    pub giving_up: u8,
    /// It does nothing any more.
    pub stalled: bool,
}

/// One rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RankState {
    pub phase: Phase,
    /// From the slowest rank's step on.
    pub step: i8,
    /// The epoch word.
    pub epoch: u8,
    /// The FAILED word.
    pub failed: bool,
    /// The step in which it was set.
    pub failed_in: i8,
    /// Alarm words in this rank's memory, a bit a rank.
    pub alarms: u8,
    /// The abort word.
    pub abort: bool,
    pub workgroups: [Workgroup; CTAS],
}

/// A property that an action has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// A wait was content with a word of another step or layer.
    StaleTag,
    /// Plain data of another step or layer was read behind a wait.
    WrongData,
    /// Something that a failed workgroup made was taken for good.
    Garbage,
    /// A word was overwritten or cleared before its last reader of that step.
    Overwritten,
    /// A workgroup started in another epoch than its step's.
    WrongEpoch,
    /// A store of a failed workgroup is there before its rank's alarm.
    LateAlarm,
    /// The tokens of a step were handed out behind the failure of a rank in it.
    Delivered,
}

/// A state of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub words: Vec<u16>,
    pub ranks: [RankState; RANKS],
    /// Kind of each step, from the slowest rank's on.
    pub plans: [u8; AHEAD],
    /// Epoch of the slowest rank's step.
    pub base: u8,
    /// The slowest rank's step, counted from the start where runs end.
    pub number: u8,
    pub faults: u8,
    /// Whether a workgroup has given up early.
    pub early: bool,
    pub violation: Option<Violation>,
}

impl State {
    /// Everything zeroed, nothing launched.
    pub fn new(num_words: usize) -> Self {
        let workgroup = Workgroup { item: 0, at: [0; CHAINS], epoch: 0, failed: false, giving_up: 0, stalled: false };
        let rank = RankState {
            phase: Phase::Between,
            step: -1,
            epoch: 0,
            failed: false,
            failed_in: 0,
            alarms: 0,
            abort: false,
            workgroups: [workgroup; CTAS],
        };
        Self {
            words: vec![Word::EMPTY.0; num_words],
            ranks: [rank; RANKS],
            plans: [UNPLANNED; AHEAD],
            base: 0,
            number: 0,
            faults: 0,
            early: false,
            violation: None,
        }
    }

    pub fn word(&self, index: usize) -> Word {
        Word(self.words[index])
    }

    /// Counts from the next step once every rank has left the slowest one's behind.
    pub fn shift(&mut self, epochs: i8, counts: bool) {
        while self.ranks.iter().all(|rank| rank.step > 0) {
            for rank in &mut self.ranks {
                rank.step -= 1;
                rank.failed_in = (rank.failed_in - 1).max(-1);
            }
            self.words.iter_mut().for_each(|word| *word = Word(*word).aged(epochs).0);
            self.plans.rotate_left(1);
            self.plans[AHEAD - 1] = UNPLANNED;
            self.base = (self.base + 1) % epochs as u8;
            self.number += u8::from(counts);
        }
    }
}
