//! A step from its first launch to its report: step numbers, captured graphs, closing, and what the device says.

use std::mem::offset_of;

use super::{Engine, EngineError};
use crate::abi::{HealthHeader, HEALTH_HEADER_BYTES, MAX_RANKS, PEER_HEAD_BYTES};
use crate::device::Device;
use crate::ids::Rank;
use crate::replay::MAX_IN_FLIGHT;
use crate::tag::{Epoch, Tag};

/// Bytes of the alarm words of a rank's peer head.
const ALARM_BYTES: u64 = 4 * MAX_RANKS as u64;
/// Where in a report the mark of its arrival is: behind the health header and the alarm words.
const MARK_OFFSET: u64 = HEALTH_HEADER_BYTES as u64 + ALARM_BYTES;
/// From one step's report to the next one's.
const REPORT_STRIDE: u64 = 128;
const _: () = assert!(MARK_OFFSET + 8 <= REPORT_STRIDE);
/// Bytes of a rank's reports: as many as there may be steps without one, so that none is overwritten unread.
pub const REPORT_BYTES: u64 = REPORT_STRIDE * MAX_IN_FLIGHT as u64;

/// What a rank's device says of the steps that it has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// The step that runs next: as many have ended well.
    pub epoch: Epoch,
    /// Whether a workgroup of this rank has given up.
    pub has_failed: bool,
    /// The step whose metadata the device saw last.
    pub step: Epoch,
    /// By rank: the step and layer in which it gave up, as that rank told this one.
    pub alarms: [Option<Tag>; MAX_RANKS as usize],
}

impl DeviceReport {
    fn from_bytes(bytes: &[u8; REPORT_STRIDE as usize]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let alarm = |rank: usize| word(HEALTH_HEADER_BYTES as usize + 4 * rank);
        Self {
            epoch: Epoch(word(offset_of!(HealthHeader, epoch))),
            has_failed: word(offset_of!(HealthHeader, failed)) != 0,
            step: Epoch(word(offset_of!(HealthHeader, step))),
            alarms: std::array::from_fn(|rank| Some(alarm(rank)).filter(|&tag| tag != 0).map(Tag)),
        }
    }

    /// Whether no token of the steps up to this report may be handed out.
    pub fn is_alarmed(&self) -> bool {
        self.has_failed || self.alarms.iter().any(Option::is_some)
    }
}

/// Byte offset of a step's report.
const fn slot(of: Epoch) -> u64 {
    REPORT_STRIDE * (of.0 % MAX_IN_FLIGHT) as u64
}

/// What stands behind a step's report once all of it has arrived. Memory that nobody has written has 0.
const fn mark(of: Epoch) -> u64 {
    of.0 as u64 + 1
}

impl<D: Device> Engine<D> {
    /// The number of the step that `rank` launches next.
    pub fn next_step(&self, rank: Rank) -> Result<Epoch, EngineError<D::Error>> {
        self.state(rank).map(|state| state.next)
    }

    /// Tells the device, behind whatever is queued, for which step the metadata is that the caller queued before; the
    /// step's first launch does so by itself.
    pub fn open_step(&mut self, rank: Rank) -> Result<(), EngineError<D::Error>> {
        let state = self.state(rank)?;
        if state.is_step_open {
            return Ok(());
        }
        let (word, number) = (state.health.offset(offset_of!(HealthHeader, step) as u64), state.next);
        self.device.queue_write(rank, word, &number.0.to_le_bytes())?;
        self.state_mut(rank)?.is_step_open = true;
        Ok(())
    }

    /// The launch that ends the step is queued.
    pub(super) fn end_step(&mut self, rank: Rank) -> Result<(), EngineError<D::Error>> {
        let state = self.state_mut(rank)?;
        state.is_step_open = false;
        state.next = state.next.next();
        Ok(())
    }

    /// Gives up a step of which some runs were launched. Every rank must have launched the same ones, all of them must
    /// have ended on every rank, and none may go on before all have closed: then nobody waits for a tag of it any more,
    /// and those that it left here are cleared, so that no number of abandoned steps can bring one round again.
    pub fn close_step(&mut self, rank: Rank) -> Result<Epoch, EngineError<D::Error>> {
        let state = self.state(rank)?;
        if !state.is_step_open {
            return Err(EngineError::NoOpenStep(rank));
        }
        let (scratch, step) = (state.scratch, state.next);
        let word = state.health.offset(offset_of!(HealthHeader, epoch) as u64);
        let half = u64::from(PEER_HEAD_BYTES) + u64::from(step.parity()) * self.layout.peer_half_bytes;
        self.device.write(state.peer.offset(half), &vec![0; self.layout.peer_half_bytes as usize])?;
        for place in &self.layout.places {
            if let Some(flags) = place.flags {
                self.device.write(scratch.offset(flags), &vec![0; 4 * place.num_flags as usize])?;
            }
        }
        self.device.write(word, &step.next().0.to_le_bytes())?;
        self.end_step(rank)?;
        Ok(step.next())
    }

    /// From now on launches on `rank` are recorded. Shapes must have been prepared; no step may be open.
    pub fn begin_capture(&mut self, rank: Rank) -> Result<(), EngineError<D::Error>> {
        if self.state(rank)?.is_step_open {
            return Err(EngineError::OpenStep(rank));
        }
        Ok(self.device.begin_capture(rank)?)
    }

    /// Ends a capture: the launches of one step.
    pub fn end_capture(&mut self, rank: Rank) -> Result<D::Graph, EngineError<D::Error>> {
        self.state(rank)?;
        Ok(self.device.end_capture(rank)?)
    }

    /// Announces a captured step that the caller queues next, on the same stream.
    pub fn announce_replay(&mut self, rank: Rank) -> Result<(), EngineError<D::Error>> {
        if self.stopped {
            return Err(EngineError::Stopped);
        }
        if self.state(rank)?.is_step_open {
            return Err(EngineError::OpenStep(rank));
        }
        self.open_step(rank)?;
        self.end_step(rank)
    }

    /// Queues a captured step.
    pub fn replay(&mut self, rank: Rank, graph: &D::Graph) -> Result<(), EngineError<D::Error>> {
        self.announce_replay(rank)?;
        Ok(self.device.launch_graph(rank, graph)?)
    }

    /// Queues a copy of what the device has to say behind step `of`, to host memory: nobody waits for it.
    pub fn queue_report(&mut self, rank: Rank, of: Epoch) -> Result<(), EngineError<D::Error>> {
        let state = self.state(rank)?;
        let (report, health, head) = (state.report.offset(slot(of)), state.health, state.peer);
        self.device.queue_copy(rank, report, health, u64::from(HEALTH_HEADER_BYTES))?;
        let alarms = report.offset(u64::from(HEALTH_HEADER_BYTES));
        self.device.queue_copy(rank, alarms, head, ALARM_BYTES)?;
        Ok(self.device.queue_write(rank, report.offset(MARK_OFFSET), &mark(of).to_le_bytes())?)
    }

    /// The report behind step `of`; `None` while it is on its way.
    pub fn report(&self, rank: Rank, of: Epoch) -> Result<Option<DeviceReport>, EngineError<D::Error>> {
        let (report, mut arrived) = (self.state(rank)?.report.offset(slot(of)), [0; 8]);
        self.device.read(report.offset(MARK_OFFSET), &mut arrived)?;
        if u64::from_le_bytes(arrived) != mark(of) {
            return Ok(None);
        }
        let mut bytes = [0; REPORT_STRIDE as usize];
        self.device.read(report, &mut bytes)?;
        Ok(Some(DeviceReport::from_bytes(&bytes)))
    }

    /// By rank: the step and layer in which it gave up, as it told this one.
    pub fn alarms(&self, rank: Rank) -> Result<[Option<Tag>; MAX_RANKS as usize], EngineError<D::Error>> {
        let mut bytes = [0; REPORT_STRIDE as usize];
        let told = &mut bytes[HEALTH_HEADER_BYTES as usize..MARK_OFFSET as usize];
        self.device.read(self.state(rank)?.peer, told)?;
        Ok(DeviceReport::from_bytes(&bytes).alarms)
    }

    /// Continues at `epoch` on every rank of this process: all ranks of a group must agree on it.
    pub fn resume_at(&mut self, epoch: Epoch) -> Result<(), EngineError<D::Error>> {
        for state in &mut self.ranks {
            let word = state.health.offset(offset_of!(HealthHeader, epoch) as u64);
            self.device.write(word, &epoch.0.to_le_bytes())?;
            state.next = epoch;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_alarmed_by_its_own_word_and_by_any_ranks() {
        let mut bytes = [0; REPORT_STRIDE as usize];
        bytes[offset_of!(HealthHeader, epoch)] = 7;
        bytes[offset_of!(HealthHeader, step)] = 6;
        let quiet = DeviceReport::from_bytes(&bytes);
        assert_eq!((quiet.epoch, quiet.step, quiet.is_alarmed()), (Epoch(7), Epoch(6), false));
        for rank in 0..MAX_RANKS as usize {
            let mut told = bytes;
            told[HEALTH_HEADER_BYTES as usize + 4 * rank + 1] = 3;
            let report = DeviceReport::from_bytes(&told);
            assert!(report.is_alarmed() && !report.has_failed);
            assert_eq!(report.alarms[rank], Some(Tag(3 << 8)));
            assert_eq!(report.alarms.iter().flatten().count(), 1);
        }
        bytes[offset_of!(HealthHeader, failed)] = 1;
        assert!(DeviceReport::from_bytes(&bytes).is_alarmed());
    }
}
