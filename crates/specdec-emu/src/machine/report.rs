//! Where waves are and what they wait for, in words.

use super::parts::named_place;
use std::collections::HashMap;

use super::action::Action;
use super::dispatch::Queued;
use super::error::EmulatorError;
use super::lines::Lines;
use super::location::{Location, Waiter, Waiting};
use super::residency::Residency;
use super::shared::Shared;
use super::slot::{Slot, WaveState};

/// Polled places of one wave that a report names.
const MAX_PLACES: usize = 4;

fn locate(slot: &Slot, launch: &Queued, step: usize, lines: &mut Lines) -> Location {
    let module = &launch.module;
    let step = module.program.step(step);
    let pc = step.map_or(slot.wave.pc, |step| step.inst.pc);
    let instruction = step.map_or_else(String::new, |step| match step.action {
        Action::Unknown(encoding) => format!("{encoding:#010x}"),
        _ => step.inst.to_string(),
    });
    Location {
        rank: slot.origin.rank,
        kernel: launch.kernel().info.symbol.clone(),
        workgroup: slot.origin.workgroup,
        wave: slot.index,
        lane: None,
        pc,
        instruction,
        functions: lines.functions(module.object.text.start as u64 + pc as u64),
    }
}

/// Where a wave's next instruction is.
pub(super) fn location(residency: &Residency, wave: usize) -> Location {
    let slot = &residency.slots[wave];
    let Some(launch) = residency.launch(wave) else { return Location::default() };
    // A wave that has passed its wait instruction is reported there, where the source shows what it waits for.
    let step = if slot.state == WaveState::Ready { slot.next } else { slot.next.saturating_sub(1) };
    locate(slot, launch, step, &mut Lines::open(&launch.module.object.elf))
}

/// The pc of the instruction that a wave waits in.
pub(super) fn waiting_pc(residency: &Residency, wave: usize) -> u32 {
    let before = residency.slots[wave].next.saturating_sub(1);
    let step = residency.launch(wave).and_then(|launch| launch.module.program.step(before));
    step.map_or(0, |step| step.inst.pc)
}

/// The error that lists every wave that waits.
pub(super) fn deadlock(residency: &Residency, shared: &Shared) -> EmulatorError {
    let mut opened: HashMap<u64, Lines> = HashMap::new();
    let mut waiters = Vec::new();
    for (wave, slot) in residency.slots.iter().enumerate() {
        let waiting = match slot.state {
            WaveState::Parked | WaveState::Asleep => Waiting::Poll(places(shared, wave)),
            WaveState::AtBarrier => Waiting::Barrier(missing(residency, slot)),
            WaveState::Ready | WaveState::Ended => continue,
        };
        let Some(launch) = residency.launch(wave) else { continue };
        let lines = opened.entry(launch.module.image).or_insert_with(|| Lines::open(&launch.module.object.elf));
        waiters.push(Waiter { at: locate(slot, launch, slot.next.saturating_sub(1), lines), waiting });
    }
    // Who polls is the cause, who waits at a barrier only follows.
    waiters.sort_by_key(|waiter| matches!(waiter.waiting, Waiting::Barrier(_)));
    EmulatorError::Deadlock { waiters }
}

/// Waves of the workgroup that are not at the barrier.
fn missing(residency: &Residency, slot: &Slot) -> Vec<u32> {
    let waves = residency.groups[slot.group].waves.iter().map(|&wave| &residency.slots[wave as usize]);
    waves.filter(|other| other.state != WaveState::AtBarrier).map(|other| other.index).collect()
}

fn places(shared: &Shared, wave: usize) -> Vec<String> {
    let mut addresses = shared.parking.places(wave).to_vec();
    addresses.dedup();
    let named = addresses.iter().take(MAX_PLACES).map(|&address| named_place(&shared.memory, &shared.tap, address));
    named.collect()
}
