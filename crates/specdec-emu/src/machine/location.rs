//! Where something happened in a running kernel: rank, workgroup, wave, lane, pc and the source behind it.

use std::fmt;

use specdec_core::ids::Rank;

/// One function of an inlined chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// Function name as the line table has it.
    pub function: String,
    /// Source file.
    pub file: String,
    /// Line, 0 when unknown.
    pub line: u32,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.function, self.file, self.line)
    }
}

/// Where a wave was when an error arose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Rank whose launch it is.
    pub rank: Rank,
    /// Kernel symbol.
    pub kernel: String,
    /// Workgroup, numbered x fastest.
    pub workgroup: u32,
    /// Wave of the workgroup.
    pub wave: u32,
    /// Lane, where one lane is to blame.
    pub lane: Option<u8>,
    /// Byte offset of the instruction in the text section.
    pub pc: u32,
    /// The instruction as the disassembler prints it.
    pub instruction: String,
    /// Innermost inlined function first; empty without line tables.
    pub functions: Vec<SourceLine>,
}

impl Location {
    /// A location of which only the lane is known yet; the scheduler fills in the rest.
    #[expect(clippy::unnecessary_box_returns, reason = "the errors hold it boxed, to stay small")]
    pub(super) fn lane(lane: usize) -> Box<Self> {
        Box::new(Self { lane: Some(lane as u8), ..Self::default() })
    }

    /// A location of which nothing is known yet; the scheduler fills it in.
    #[expect(clippy::unnecessary_box_returns, reason = "the errors hold it boxed, to stay small")]
    pub(super) fn unknown() -> Box<Self> {
        Box::default()
    }
}

impl Default for Location {
    fn default() -> Self {
        Self {
            rank: Rank(0),
            kernel: String::new(),
            workgroup: 0,
            wave: 0,
            lane: None,
            pc: 0,
            instruction: String::new(),
            functions: Vec::new(),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, workgroup {}, wave {}", self.rank, self.workgroup, self.wave)?;
        if let Some(lane) = self.lane {
            write!(f, ", lane {lane}")?;
        }
        write!(f, " of `{}` at pc {:#x} `{}`", self.kernel, self.pc, self.instruction)?;
        for (depth, function) in self.functions.iter().enumerate() {
            write!(f, "{}{function}", if depth == 0 { ", in " } else { " inlined in " })?;
        }
        Ok(())
    }
}

/// What a wave of a deadlock waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// It polls these places: allocation name and byte offset, or exchange region and pair index.
    Poll(Vec<String>),
    /// It is at a barrier that these waves of its workgroup have not reached.
    Barrier(Vec<u32>),
}

/// One wave of a deadlock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Where it waits.
    pub at: Location,
    /// What for.
    pub waiting: Waiting,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poll(places) => write!(f, "polls {}", places.join(", ")),
            Self::Barrier(waves) => write!(f, "waits at a barrier for waves {waves:?}"),
        }
    }
}

impl fmt::Display for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.at, self.waiting)
    }
}
