//! Races, as they are reported: both accesses, and the edge that is missing.

use std::fmt;

use super::site::{AccessKind, Scope};
use crate::machine::location::Location;

/// What is missing between two accesses to the same bytes, at least one of which changes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RaceKind {
    /// No tag, barrier or launch orders them.
    Unordered,
    /// The first was still in flight when its wave published or met the barrier that would order them.
    InFlight,
    /// They are ordered, but the first is a plain store: it may stay in its XCD's L2.
    PlainStore,
    /// They are ordered, but the second is a plain load: it may return an older copy of its XCD.
    PlainLoad,
    /// Two waves of a workgroup use the same LDS bytes, with no barrier between.
    Lds,
}

impl RaceKind {
    /// Name in reports for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unordered => "unordered",
            Self::InFlight => "in-flight",
            Self::PlainStore => "plain-store",
            Self::PlainLoad => "plain-load",
            Self::Lds => "lds",
        }
    }

    /// What is missing, in words.
    pub const fn missing(self) -> &'static str {
        match self {
            Self::Unordered => "nothing orders them: no accepted tag, no barrier, no launch",
            Self::InFlight => {
                "the first was still in flight when its wave published or reached the barrier: \
                 `s_waitcnt vmcnt(0)` is missing behind it"
            }
            Self::PlainStore => {
                "ordered, but the store's scope is too narrow: it may stay in its XCD's L2 (sc1 for the device, \
                 sc0 sc1 between devices)"
            }
            Self::PlainLoad => {
                "ordered, but the load's scope is too narrow: it may return an older copy of its XCD (sc1 for the \
                 device, sc0 sc1 between devices)"
            }
            Self::Lds => "no barrier lies between them",
        }
    }
}

/// One of the two accesses of a race.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaceAccess {
    /// Rank, workgroup, wave, lane, instruction and source lines.
    pub at: Location,
    /// What it does.
    pub kind: AccessKind,
    /// Who was meant to see it.
    pub scope: Scope,
    /// Row of the watched table that its wave had last read from: the layer.
    pub row: Option<u32>,
}

/// Two accesses of which one may come before or after the other, or may not be seen by it. One report for each pair
/// of source places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaceReport {
    /// What is missing.
    pub kind: RaceKind,
    /// The access that came first in this schedule.
    pub first: RaceAccess,
    /// The one that came second.
    pub second: RaceAccess,
    /// Address of the word where it was seen first (an offset, in LDS).
    pub address: u64,
    /// That address in words: region and index, or allocation and offset.
    pub place: String,
    /// Words and executions that showed it.
    pub count: u64,
}

impl RaceAccess {
    /// Scope and kind, such as `plain store`.
    pub fn name(&self) -> String {
        let kind = match self.kind {
            AccessKind::Load => "load",
            AccessKind::Accept => "accepted poll",
            AccessKind::Store | AccessKind::Publish => "store",
            AccessKind::Atomic => "atomic",
            AccessKind::ScalarLoad => "scalar load",
            AccessKind::LdsRead => return "LDS read".into(),
            AccessKind::LdsWrite => return "LDS write".into(),
        };
        format!("{} {kind}", self.scope.name())
    }
}

impl fmt::Display for RaceAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.name())?;
        if let Some(row) = self.row {
            write!(f, "in layer {row} ")?;
        }
        write!(f, "by {}", self.at)
    }
}

impl fmt::Display for RaceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "race ({}) at {}, {} times: {}\n  first  {}\n  second {}",
            self.kind.name(),
            self.place,
            self.count,
            self.kind.missing(),
            self.first,
            self.second
        )
    }
}
