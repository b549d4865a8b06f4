//! Work on its way to a device: queued, or recorded by a capture and queued by each launch of its graph.

use std::ffi::c_int;

use specdec_core::device::Device;
use specdec_core::ids::DeviceAddress;
use specdec_emu::machine::GridLaunch;

use crate::machine::{Machine, CAPTURES};
use crate::status::{
    emulated, failure, refuse, Failure, Outcome, CAPTURE_IMPLICIT, CAPTURE_UNSUPPORTED, ILLEGAL_STATE, INVALID_DEVICE,
    INVALID_HANDLE,
};

/// One piece of work of one device.
#[derive(Clone, Debug)]
pub enum Work {
    Launch(GridLaunch),
    Copy { to: u64, from: u64, bytes: u64 },
    Write { to: u64, bytes: Vec<u8> },
}

impl Machine {
    /// Queues or records work on a stream. The null stream takes no launches, and does the rest when it is waited for.
    pub fn submit(&mut self, stream: usize, work: Work) -> Outcome {
        if stream == 0 {
            self.null_stream.push(work);
            return Ok(());
        }
        let current = self.device()?;
        let found = self.stream(stream)?;
        let device = found.device;
        if let Some(capture) = &mut found.capture {
            capture.work.push(work);
            return Ok(());
        }
        if device != current && matches!(work, Work::Launch(_)) {
            return refuse(INVALID_DEVICE, format!("a launch on device {device} while the thread's is {current}"));
        }
        self.queue(device, work)?;
        self.stream(stream)?.is_busy = true;
        Ok(())
    }

    /// Hands work to the emulator.
    fn queue(&mut self, device: c_int, work: Work) -> Outcome {
        let rank = Self::rank(device);
        let queued = match work {
            Work::Launch(launch) => self.emulator.launch_grid(rank, &launch),
            Work::Copy { to, from, bytes } => {
                self.emulator.queue_copy(rank, DeviceAddress(to), DeviceAddress(from), bytes)
            }
            Work::Write { to, bytes } => self.emulator.queue_write(rank, DeviceAddress(to), &bytes),
        };
        queued.map_err(|error| emulated(&error))
    }

    fn do_now(&mut self, work: Work) -> Outcome {
        let done = match work {
            Work::Launch(_) => return refuse(INVALID_HANDLE, "a launch on the null stream"),
            Work::Copy { to, from, bytes } => {
                let mut held = vec![0; bytes as usize];
                let read = self.emulator.read(DeviceAddress(from), &mut held);
                read.and_then(|()| self.emulator.write_now(DeviceAddress(to), &held))
            }
            Work::Write { to, bytes } => self.emulator.write_now(DeviceAddress(to), &bytes),
        };
        done.map_err(|error| emulated(&error))
    }

    /// Does what the null stream still has to do.
    pub fn finish_null_stream(&mut self) -> Outcome {
        std::mem::take(&mut self.null_stream).into_iter().try_for_each(|work| self.do_now(work))
    }

    /// Queues everything that a graph recorded, in one piece.
    pub fn launch_graph(&mut self, instance: usize, stream: usize) -> Outcome {
        let missing = || failure(INVALID_HANDLE, format!("{instance:#x} is no graph instance that is alive"));
        let (made, work) = self.graph_instances.get(&instance).cloned().ok_or_else(missing)?;
        let device = self.stream(stream)?.device;
        if made != device {
            return refuse(INVALID_DEVICE, format!("a graph of device {made} on device {device}"));
        }
        let is_stale = self.stale_from_launch.is_some_and(|first| self.graph_launches >= first);
        self.graph_launches += 1;
        let mut kept = work.into_iter().filter(|work| !(is_stale && matches!(work, Work::Copy { .. })));
        kept.try_for_each(|work| self.submit(stream, work))
    }

    /// Waits for one stream: what is queued anywhere runs if anything is queued on it.
    pub fn synchronize_stream(&mut self, stream: usize) -> Outcome {
        if stream == 0 {
            return self.finish_null_stream();
        }
        let found = self.stream(stream)?;
        if let Some(capture) = &mut found.capture {
            capture.is_spoiled = true;
            return refuse(CAPTURE_UNSUPPORTED, "a stream that captures was waited for");
        }
        if found.is_busy {
            return self.run();
        }
        Ok(())
    }

    /// Refuses what must not happen on a thread that captures, and spoils its captures as HIP does.
    pub fn forbid_in_capture(&mut self, what: &str) -> Outcome {
        let captures = CAPTURES.with_borrow(Clone::clone);
        if captures.is_empty() {
            return Ok(());
        }
        for stream in captures {
            if let Some(capture) = self.streams.get_mut(&stream).and_then(|stream| stream.capture.as_mut()) {
                capture.is_spoiled = true;
            }
        }
        refuse(CAPTURE_UNSUPPORTED, format!("`{what}` on a thread that captures"))
    }

    /// Refuses what goes to the null stream while any thread captures, and spoils every capture as HIP does.
    pub fn forbid_on_null_stream(&mut self, what: &str) -> Outcome {
        let captures: Vec<_> = self.streams.values_mut().filter_map(|stream| stream.capture.as_mut()).collect();
        if captures.is_empty() {
            return Ok(());
        }
        for capture in captures {
            capture.is_spoiled = true;
        }
        refuse(CAPTURE_IMPLICIT, format!("`{what}` on the null stream while a stream captures"))
    }

    /// Refuses to give something back while work is queued that may use it: a GPU would, and fault or not.
    pub fn forbid_while_busy(&self, what: &str) -> Outcome {
        if self.is_busy() {
            return refuse(ILLEGAL_STATE, format!("`{what}` while work is queued that may use it"));
        }
        Ok(())
    }

    /// Whether one allocation holds a range that a device reaches.
    pub fn reaches(&self, address: u64, bytes: u64) -> bool {
        self.emulator.check_range(DeviceAddress(address), bytes).is_ok()
    }

    /// A failure for something that is gone or never was.
    pub fn stale(what: &str, handle: usize) -> Failure {
        failure(INVALID_HANDLE, format!("{handle:#x} is no {what} that is alive"))
    }
}
