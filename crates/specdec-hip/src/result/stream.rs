//! Streams and events.

use std::ffi::c_int;
use std::ptr::null_mut;

use super::{check, make, take, take_pair, Handle};
use crate::sys::{Functions, CAPTURE_NONE, CAPTURE_THREAD_LOCAL, NOT_READY, STREAM_NON_BLOCKING};
use crate::{HipError, Status};

/// A stream of the thread's device that the null stream does not order.
pub fn create(functions: &Functions) -> Result<Handle, HipError> {
    make(functions, &functions.stream_create, STREAM_NON_BLOCKING)
}

pub fn destroy(functions: &Functions, stream: Handle) -> Result<(), HipError> {
    take(functions, &functions.stream_destroy, stream)
}

pub fn synchronize(functions: &Functions, stream: Handle) -> Result<(), HipError> {
    take(functions, &functions.stream_synchronize, stream)
}

pub fn begin_capture(functions: &Functions, stream: Handle) -> Result<(), HipError> {
    let call = functions.require(&functions.stream_begin_capture)?;
    // SAFETY: the stream's owner keeps it alive.
    let status = unsafe { call(stream.raw(), CAPTURE_THREAD_LOCAL) };
    check(functions, functions.stream_begin_capture.name, status)
}

/// The graph that was recorded.
pub fn end_capture(functions: &Functions, stream: Handle) -> Result<Handle, HipError> {
    let call = functions.require(&functions.stream_end_capture)?;
    let mut graph = null_mut();
    // SAFETY: the stream's owner keeps it alive; `call` writes one handle through the pointer, which is valid for it.
    let status = unsafe { call(stream.raw(), &raw mut graph) };
    check(functions, functions.stream_end_capture.name, status).map(|()| Handle::of(graph))
}

/// Whether a stream captures; a capture that something has invalidated and nobody has ended counts.
pub fn is_capturing(functions: &Functions, stream: Handle) -> Result<bool, HipError> {
    if stream == Handle::NULL {
        // It never captures, and asking is an error while another stream does.
        return Ok(false);
    }
    let call = functions.require(&functions.stream_is_capturing)?;
    let mut state: c_int = 0;
    // SAFETY: the stream's owner keeps it alive; `call` writes one int through the pointer, which is valid for it.
    let status = unsafe { call(stream.raw(), &raw mut state) };
    check(functions, functions.stream_is_capturing.name, status).map(|()| state != CAPTURE_NONE)
}

/// An event of the thread's device, with a time.
pub fn create_event(functions: &Functions) -> Result<Handle, HipError> {
    make(functions, &functions.event_create, 0)
}

pub fn destroy_event(functions: &Functions, event: Handle) -> Result<(), HipError> {
    take(functions, &functions.event_destroy, event)
}

pub fn record(functions: &Functions, event: Handle, stream: Handle) -> Result<(), HipError> {
    take_pair(functions, &functions.event_record, event, stream)
}

/// Whether the stream has passed the event.
pub fn has_passed(functions: &Functions, event: Handle) -> Result<bool, HipError> {
    match take(functions, &functions.event_query, event) {
        Ok(()) => Ok(true),
        Err(HipError::Call { status: Status(NOT_READY), .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

pub fn wait(functions: &Functions, event: Handle) -> Result<(), HipError> {
    take(functions, &functions.event_synchronize, event)
}

/// Milliseconds from one event to a later one.
pub fn elapsed(functions: &Functions, start: Handle, end: Handle) -> Result<f32, HipError> {
    let call = functions.require(&functions.event_elapsed)?;
    let mut milliseconds = 0.0;
    // SAFETY: the events' owners keep them alive; `call` writes one float through the pointer, which is valid for it.
    let status = unsafe { call(&raw mut milliseconds, start.raw(), end.raw()) };
    check(functions, functions.event_elapsed.name, status).map(|()| milliseconds)
}
