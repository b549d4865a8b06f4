//! Runs one wave for a while.

use super::action::Action;
use super::clock::CORE_CLOCKS_PER_TICK;
use super::dispatch::Queued;
use super::error::EmulatorError;
use super::fault::Strike;
use super::group::Group;
use super::local_memory;
use super::location::Location;
use super::parking::Sleep;
use super::profile::Bytes;
use super::program::{span, Program, Step};
use super::scalar_memory;
use super::scoreboard::{Span, VECTOR_WORDS};
use super::shared::Shared;
use super::slot::Slot;
use super::vector_memory;
use super::watch;
use crate::exec::Flow;

/// Why a wave gave up its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Yield {
    /// Its quantum is over.
    Quantum,
    /// It reached a barrier.
    Barrier,
    /// It polls and nothing has changed.
    Parked,
    /// It sleeps for this many core clocks.
    Asleep(u64),
    /// It ended.
    Ended,
}

/// What running one wave needs.
pub(super) struct Interpreter<'a> {
    pub slot: &'a mut Slot,
    pub group: &'a mut Group,
    pub launch: &'a Queued,
    pub shared: &'a mut Shared,
}

/// Core clocks of one unit of `s_sleep`'s operand.
const SLEEP_UNIT_CLOCKS: u64 = 64;

impl Interpreter<'_> {
    /// Runs up to `quantum` instructions. On an error `slot.next` is the instruction that failed.
    pub fn run(&mut self, quantum: u64) -> Result<Yield, EmulatorError> {
        // Counting by label has a loop of its own, so that the usual one does not pay for it.
        if self.shared.profile.is_some() {
            self.run_loop::<true>(quantum)
        } else {
            self.run_loop::<false>(quantum)
        }
    }

    fn run_loop<const COUNTS: bool>(&mut self, quantum: u64) -> Result<Yield, EmulatorError> {
        let module = self.launch.module.clone();
        let program = &*module.program;
        let code = self.launch.kernel().code.clone();
        let start = self.slot.executed;
        let (mut num_mfma, mut num_masked) = (0, 0);
        let labels = if COUNTS { self.labels() } else { None };
        let outcome = loop {
            if self.slot.executed - start >= quantum {
                break Ok(Yield::Quantum);
            }
            let Some(step) = program.step(self.slot.next).filter(|step| step.inst.pc < code.end) else {
                break Err(EmulatorError::LeftKernel { target: code.end, at: Location::unknown() });
            };
            if !self.slot.board.is_idle() {
                if let Err(error) = self.check_pending(program, step) {
                    break Err(error);
                }
            }
            if self.shared.faults.strikes_instructions {
                match self.shared.faults.strike(self.launch.rank, step.inst.op) {
                    Some(Strike::Skip) => {
                        self.slot.next += 1;
                        continue;
                    }
                    Some(Strike::Stall(ticks)) => break Ok(Yield::Asleep(ticks.saturating_mul(CORE_CLOCKS_PER_TICK))),
                    None => {}
                }
            }
            self.slot.executed += 1;
            if step.is_mfma {
                num_mfma += 1;
                num_masked += u64::from(self.slot.wave.exec() != u64::MAX);
            }
            let before = if COUNTS { self.bytes() } else { Bytes::default() };
            let flow = match step.action {
                Action::Run(handler) => Ok(handler(&step.inst, &mut self.slot.wave)),
                _ => self.act(step),
            };
            if let (true, Some(labels)) = (COUNTS, &labels) {
                self.note(labels, step, before);
            }
            match flow {
                Ok(Flow::Next) => self.slot.next += 1,
                Ok(Flow::Branch(target)) => match program.find(target).filter(|_| code.contains(&target)) {
                    Some(next) => self.slot.next = next,
                    None => break Err(EmulatorError::LeftKernel { target, at: Location::unknown() }),
                },
                Ok(Flow::Barrier) => {
                    self.slot.next += 1;
                    break Ok(Yield::Barrier);
                }
                Ok(Flow::Sleep) => {
                    self.slot.next += 1;
                    break Ok(self.sleep(step));
                }
                Ok(Flow::End) => {
                    // What an LDS DMA brings after its wave's end is still there for the others.
                    self.slot.board.wait_vector(0, &mut self.group.lds);
                    break Ok(Yield::Ended);
                }
                Err(error) => break Err(error),
            }
        };
        if let Some(step) = program.step(self.slot.next) {
            self.slot.wave.pc = step.inst.pc;
        }
        self.shared.statistics.wave_instructions += self.slot.executed - start;
        self.shared.statistics.mfma += num_mfma;
        self.shared.statistics.masked_mfma += num_masked;
        outcome
    }

    fn check_pending(&self, program: &Program, step: &Step) -> Result<(), EmulatorError> {
        let board = &self.slot.board;
        let conflict = board.conflict(program.touched(step)).or_else(|| match step.action {
            Action::Vector(..) => board.vector_conflict(span(step.inst.dst)),
            Action::Local(_) | Action::CrossLane(_) => board.local_conflict(span(step.inst.dst)),
            _ => None,
        });
        match conflict {
            None => Ok(()),
            Some(register) => {
                Err(EmulatorError::UseBeforeWait { register: register_name(register), at: Location::unknown() })
            }
        }
    }

    fn act(&mut self, step: &Step) -> Result<Flow, EmulatorError> {
        let Self { slot, group, shared, .. } = self;
        let inst = &step.inst;
        if shared.is_watched() {
            watch::note(shared, slot, group, step.action);
        }
        let (lds, board) = (&mut group.lds, &mut slot.board);
        match step.action {
            Action::Run(handler) => return Ok(handler(inst, &mut slot.wave)),
            Action::CrossLane(handler) => {
                let flow = handler(inst, &mut slot.wave);
                board.issue_local(span(inst.dst));
                return Ok(flow);
            }
            Action::Vector(segment, kind) => vector_memory::run(segment, kind, inst, slot, lds, shared)?,
            Action::Local(kind) => {
                shared.statistics.lds += 1;
                local_memory::run(kind, inst, slot, lds)?;
            }
            Action::ScalarLoad { dwords, is_buffer } => {
                scalar_memory::load(inst, dwords as usize, is_buffer, slot, shared)?;
            }
            Action::Wait { vector, local } => {
                board.wait_vector(vector as usize, lds);
                board.wait_local(local as usize);
            }
            Action::Barrier => return Ok(Flow::Barrier),
            Action::Sleep => return Ok(Flow::Sleep),
            Action::End => return Ok(Flow::End),
            Action::Nothing => {}
            Action::WriteBack => board.issue_vector(Span::default(), 0, None, lds),
            Action::RealTime => scalar_memory::time(inst, true, slot, shared)?,
            Action::CoreTime => scalar_memory::time(inst, false, slot, shared)?,
            Action::GetRegister => scalar_memory::get_register(inst, slot)?,
            Action::SetRegister => scalar_memory::set_register(inst, slot)?,
            Action::Unimplemented => {
                let what = "no executor for it".into();
                return Err(EmulatorError::Unimplemented { what, at: Location::unknown() });
            }
            Action::Unknown(encoding) => {
                return Err(EmulatorError::UnknownOpcode { encoding, at: Location::unknown() });
            }
        }
        Ok(Flow::Next)
    }

    fn sleep(&mut self, step: &Step) -> Yield {
        let (slot, shared) = (&mut *self.slot, &mut *self.shared);
        let (executed, pc) = slot.slept;
        if pc == step.inst.pc {
            shared.statistics.poll_instructions += slot.executed - executed;
        }
        slot.slept = (slot.executed, step.inst.pc);
        if let Some(races) = &mut shared.races {
            races.sleep(slot.origin.wave, slot.wave.exec());
        }
        match shared.parking.sleep(slot.origin.wave) {
            Sleep::Changed => Yield::Quantum,
            Sleep::Park => {
                shared.statistics.parks += 1;
                if let Some(profile) = &mut shared.profile {
                    profile.park(slot.origin);
                }
                Yield::Parked
            }
            Sleep::Timed => Yield::Asleep(SLEEP_UNIT_CLOCKS * (step.inst.mods.offset as u64 & 0x7f)),
        }
    }
}

/// The name of a register by its scoreboard number.
fn register_name(number: usize) -> String {
    match number {
        0..=255 => format!("v{number}"),
        256..=511 => format!("a{}", number - 256),
        _ => match number - VECTOR_WORDS * 64 {
            106 | 107 => "vcc".into(),
            124 => "m0".into(),
            126 | 127 => "exec".into(),
            scalar => format!("s{scalar}"),
        },
    }
}
