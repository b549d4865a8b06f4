//! Streams, their captures, and events.

use std::ffi::c_int;

use super::{calls, check_flags, give, number, pointer, Raw};
use crate::machine::{Capture, Event, Machine, Stream, CAPTURES};
use crate::status::{
    refuse, Failure, CAPTURE_IMPLICIT, CAPTURE_INVALIDATED, CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED,
    CAPTURE_WRONG_THREAD, ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE, NOT_READY,
};

/// `hipStreamNonBlocking`.
const NON_BLOCKING: u32 = 0x1;
/// `hipStreamCaptureModeThreadLocal`.
const THREAD_LOCAL: c_int = 1;
/// `hipStreamCaptureStatus`: none, active, invalidated.
const STATES: [c_int; 3] = [0, 1, 2];
/// Ticks of the virtual clock in a millisecond.
const TICKS_PER_MILLISECOND: f32 = 100_000.0;

impl Machine {
    fn event(&mut self, event: Raw) -> Result<&mut Event, Failure> {
        let handle = number(event) as usize;
        self.events.get_mut(&handle).ok_or_else(|| Self::stale("event", handle))
    }

    /// When an event has passed, in ticks.
    fn passed_at(&mut self, event: Raw) -> Result<u64, Failure> {
        let Some(run) = self.event(event)?.run else { return refuse(INVALID_HANDLE, "the event was never recorded") };
        let found = self.runs.get(run as usize).copied();
        // Recorded before anything ran, behind nothing: at the start of time.
        found.map_or_else(|| if self.is_busy() { refuse(NOT_READY, "it has not passed") } else { Ok(0) }, Ok)
    }
}

calls! {
    /// A stream that the null stream does not order.
    fn hipStreamCreateWithFlags(machine, stream: *mut Raw, flags: u32) {
        machine.forbid_in_capture("hipStreamCreateWithFlags")?;
        check_flags("hipStreamCreateWithFlags", flags, NON_BLOCKING)?;
        let (device, handle) = (machine.device()?, machine.fresh());
        machine.streams.insert(handle, Stream { device, capture: None, is_busy: false });
        // SAFETY: the caller's contract.
        unsafe { give(stream, pointer(handle as u64)) }
    }

    /// Ends a stream that has nothing queued and captures nothing.
    fn hipStreamDestroy(machine, stream: Raw) {
        let handle = number(stream) as usize;
        let found = machine.stream(handle)?;
        if found.is_busy || found.capture.is_some() {
            return refuse(ILLEGAL_STATE, "a stream that is busy or captures was destroyed");
        }
        machine.streams.remove(&handle);
        Ok(())
    }

    /// Waits for a stream.
    fn hipStreamSynchronize(machine, stream: Raw) {
        machine.forbid_in_capture("hipStreamSynchronize")?;
        machine.synchronize_stream(number(stream) as usize)
    }

    /// From now on a stream records.
    fn hipStreamBeginCapture(machine, stream: Raw, mode: c_int) {
        let handle = number(stream) as usize;
        if handle == 0 || mode != THREAD_LOCAL {
            return refuse(CAPTURE_UNSUPPORTED, format!("a capture of {handle:#x} in mode {mode}"));
        }
        let found = machine.stream(handle)?;
        if found.capture.is_some() {
            return refuse(ILLEGAL_STATE, "the stream captures already");
        }
        found.capture = Some(Capture::default());
        CAPTURES.with_borrow_mut(|captures| captures.push(handle));
        Ok(())
    }

    /// What was recorded; a spoiled capture ends with an error.
    fn hipStreamEndCapture(machine, stream: Raw, graph: *mut Raw) {
        let handle = number(stream) as usize;
        let is_ours = CAPTURES.with_borrow(|captures| captures.contains(&handle));
        let found = machine.stream(handle)?;
        if found.capture.is_some() && !is_ours {
            return refuse(CAPTURE_WRONG_THREAD, "another thread has begun the capture");
        }
        let Some(capture) = found.capture.take() else {
            return refuse(CAPTURE_UNMATCHED, "the stream does not capture");
        };
        CAPTURES.with_borrow_mut(|captures| captures.retain(|found| *found != handle));
        if capture.is_spoiled {
            return refuse(CAPTURE_INVALIDATED, "something forbidden was done during the capture");
        }
        let made = machine.fresh();
        machine.graphs.insert(made, capture.work);
        // SAFETY: the caller's contract.
        unsafe { give(graph, pointer(made as u64)) }
    }

    /// Whether a stream captures.
    fn hipStreamIsCapturing(machine, stream: Raw, state: *mut c_int) {
        let [none, active, spoiled] = STATES;
        let handle = number(stream) as usize;
        if handle == 0 && machine.streams.values().any(|stream| stream.capture.is_some()) {
            return refuse(CAPTURE_IMPLICIT, "the null stream was asked about while another stream captures");
        }
        let found = if handle == 0 { None } else { machine.stream(handle)?.capture.as_ref() };
        let found = found.map_or(none, |capture| if capture.is_spoiled { spoiled } else { active });
        // SAFETY: the caller's contract.
        unsafe { give(state, found) }
    }

    /// An event that keeps its time.
    fn hipEventCreateWithFlags(machine, event: *mut Raw, flags: u32) {
        machine.forbid_in_capture("hipEventCreateWithFlags")?;
        check_flags("hipEventCreateWithFlags", flags, 0)?;
        let handle = machine.fresh();
        machine.events.insert(handle, Event::default());
        // SAFETY: the caller's contract.
        unsafe { give(event, pointer(handle as u64)) }
    }

    /// Ends an event.
    fn hipEventDestroy(machine, event: Raw) {
        let handle = number(event) as usize;
        machine.events.remove(&handle).map(|_| ()).ok_or_else(|| Machine::stale("event", handle))
    }

    /// Puts an event behind what is queued; it passes with the run that the last of it is in.
    fn hipEventRecord(machine, event: Raw, stream: Raw) {
        let found = machine.stream(number(stream) as usize)?;
        if let Some(capture) = &mut found.capture {
            capture.is_spoiled = true;
            return refuse(CAPTURE_UNSUPPORTED, "an event during a capture");
        }
        let next = machine.runs.len() as u64;
        let run = if machine.stream(number(stream) as usize)?.is_busy { next } else { next.saturating_sub(1) };
        machine.event(event)?.run = Some(run);
        Ok(())
    }

    /// Whether an event has passed.
    fn hipEventQuery(machine, event: Raw) {
        machine.forbid_in_capture("hipEventQuery")?;
        machine.passed_at(event).map(|_| ())
    }

    /// Waits for an event.
    fn hipEventSynchronize(machine, event: Raw) {
        machine.forbid_in_capture("hipEventSynchronize")?;
        match machine.passed_at(event) {
            Err(Failure { status: NOT_READY, .. }) => machine.run(),
            passed => passed.map(|_| ()),
        }
    }

    /// Virtual milliseconds between the ends of the runs in which two events passed.
    fn hipEventElapsedTime(machine, milliseconds: *mut f32, start: Raw, end: Raw) {
        let (start, end) = (machine.passed_at(start)?, machine.passed_at(end)?);
        let Some(ticks) = end.checked_sub(start) else { return refuse(INVALID_VALUE, "the events are in the other order") };
        // SAFETY: the caller's contract.
        unsafe { give(milliseconds, ticks as f32 / TICKS_PER_MILLISECOND) }
    }
}
