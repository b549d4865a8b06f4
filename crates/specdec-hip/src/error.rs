//! Why something on HIP failed, and what to do.

use std::path::PathBuf;

use specdec_core::ids::{DeviceAddress, Rank};
use thiserror::Error;

use crate::status::Status;

/// Why HIP cannot be used here, or what it refused.
#[derive(Debug, Error)]
pub enum HipError {
    /// No library.
    #[error("HIP not found: looked for {}", looked_for.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", "))]
    NotFound {
        /// Names and paths that were tried, in order.
        looked_for: Vec<PathBuf>,
    },
    /// A library that lacks a function.
    #[error("`{}` has no function `{function}`", library.display())]
    MissingFunction {
        /// The library.
        library: PathBuf,
        /// The function.
        function: &'static str,
    },
    /// A call failed.
    #[error("`{function}`{} failed with {status}{}", clause(" of ", .subject), clause(": ", .text))]
    Call {
        /// The function.
        function: &'static str,
        /// HIP's status.
        status: Status,
        /// HIP's own words for the status; empty if it has none.
        text: String,
        /// What the call was about; empty if the function says it all.
        subject: String,
    },
    /// A release failed where nobody could be told.
    #[error("while something was given back, earlier: {0}")]
    Earlier(Box<HipError>),
    /// No rank, or a rank that this process does not have.
    #[error("{rank} of a driver that has {ranks} in this process")]
    UnknownRank {
        /// The rank.
        rank: Rank,
        /// Ranks of this process.
        ranks: usize,
    },
    /// An address at which nothing of this driver starts.
    #[error("nothing that this driver holds on {rank} starts at {address}", rank = .rank.map_or("any rank".into(), |rank| rank.to_string()))]
    NotHeld {
        /// The address.
        address: DeviceAddress,
        /// The rank, if one was asked for.
        rank: Option<Rank>,
    },
    /// A module of another driver.
    #[error("code object {index} was not loaded by this driver")]
    UnknownModule {
        /// Its number.
        index: usize,
    },
    /// Bytes that are no whole ELF file.
    #[error("no whole code object: {reason}")]
    BadCodeObject {
        /// What is wrong.
        reason: String,
    },
    /// A kernel name that no code object can have.
    #[error("`{symbol}` is no name of a kernel")]
    BadSymbol {
        /// The name.
        symbol: String,
    },
    /// Something that a capture forbids.
    #[error("`{what}` while the stream of {rank} captures")]
    Capturing {
        /// What was asked for.
        what: &'static str,
        /// Who captures.
        rank: Rank,
    },
    /// The end of a capture that this driver did not begin.
    #[error("no capture was begun on {rank}")]
    NotCapturing {
        /// The rank.
        rank: Rank,
    },
    /// A graph of another rank.
    #[error("a graph of {made} launched on {asked}")]
    OtherRank {
        /// Whose it is.
        made: Rank,
        /// Where it was launched.
        asked: Rank,
    },
    /// More bytes written in one capture than there is pinned memory for.
    #[error("a capture on {rank} writes {bytes} more bytes where {left} are reserved")]
    CaptureFull {
        /// The rank.
        rank: Rank,
        /// Bytes of the write.
        bytes: usize,
        /// Bytes left.
        left: usize,
    },
}

fn clause(before: &str, text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("{before}{text}")
    }
}

impl HipError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "install a ROCm newer than 7.2.3, or use `--device emulator`",
            Self::MissingFunction { .. } => "install a complete ROCm; the library is too old or another one",
            Self::Call { function, status, .. } => status.hint(function),
            Self::Earlier(error) => error.hint(),
            Self::UnknownRank { .. } => "name one device for each rank of this process",
            Self::NotHeld { .. } => "give back what `allocate` or `import_peer` returned, once",
            Self::UnknownModule { .. } => "use modules on the driver that loaded them",
            Self::BadCodeObject { .. } => "read the file again; it must be one ELF code object, not a bundle",
            Self::BadSymbol { .. } => "a kernel's symbol has no zero byte",
            Self::Capturing { .. } => "end the capture first",
            Self::NotCapturing { .. } => "who begins a capture ends it",
            Self::OtherRank { .. } => "launch a graph on the rank that captured it",
            Self::CaptureFull { .. } => "reserve more with `set_capture_bytes` before the capture begins",
        }
    }

    /// Says what a failed call was about, where that is not known yet.
    pub(crate) fn about(mut self, what: impl FnOnce() -> String) -> Self {
        if let Self::Call { subject, .. } = &mut self {
            if subject.is_empty() {
                *subject = what();
            }
        }
        self
    }
}
