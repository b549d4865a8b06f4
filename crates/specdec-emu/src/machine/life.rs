//! Whether another process lives, stands still or has ended.

use std::fs;

/// What the host says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It runs, or would if it had anything to do.
    Alive,
    /// Somebody has stopped it.
    Stopped,
    /// It has ended, or its number is another's by now.
    Ended,
}

/// State letter and start time, in clock ticks since the host's start, of `/proc/PID/stat`.
fn facts(stat: &str) -> Option<(char, u64)> {
    // The command's name stands in brackets and may hold anything, brackets too.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

fn of(process: u32) -> Option<(char, u64)> {
    facts(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// When a process started: with its number, what tells it from every other.
pub(super) fn started(process: u32) -> Option<u64> {
    of(process).filter(|&(state, _)| !matches!(state, 'Z' | 'X')).map(|(_, start)| start)
}

impl Life {
    /// Of the process of that number that started then.
    pub fn of(process: u32, start: u64) -> Self {
        match of(process) {
            Some((state, found)) if found == start => match state {
                'Z' | 'X' => Self::Ended,
                'T' | 't' => Self::Stopped,
                _ => Self::Alive,
            },
            _ => Self::Ended,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_confuse() {
        let stat = "7 (a) S 1 b) T 1 7 7 0 -1 4 5 6 7 8 9 10 11 12 20 0 3 0 4711 99";
        assert_eq!(facts(stat), Some(('T', 4711)));
        assert_eq!(facts("7 (a) S 1"), None);
    }

    #[test]
    fn a_process_is_known_by_number_and_start() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let start = started(child.id()).unwrap();
        assert_eq!(Life::of(child.id(), start), Life::Alive);
        assert_eq!(Life::of(child.id(), start + 1), Life::Ended);
        child.kill().unwrap();
        while Life::of(child.id(), start) != Life::Ended {
            std::thread::yield_now();
        }
        assert_eq!(started(child.id()), None, "not yet waited for, but at its end");
        child.wait().unwrap();
    }
}
