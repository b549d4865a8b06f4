//! Taps every exchange of an engine, so that each stage of each layer can be checked after a step.

use specdec_core::abi::LayerDescriptor;
use specdec_core::engine::{Engine, EngineError};
use specdec_core::ids::Rank;
use specdec_core::layout::Region;

use crate::machine::{Emulator, EmulatorError, TapForm, TapRegion};

/// Watches every region on every rank; a region's id is its number in `Region`. Both parity halves of a pair region
/// share an id: the tag tells them apart.
pub fn watch(engine: &mut Engine<Emulator>) -> Result<(), EngineError<EmulatorError>> {
    let layout = engine.layout().clone();
    let num_layers = u64::from(engine.shard().geometry.num_layers);
    for rank in engine.members().collect::<Vec<_>>() {
        // Race reports name the layer whose descriptor a wave has read last.
        let descriptors = engine.descriptors(rank)?.0;
        engine.device.watch_rows(descriptors, size_of::<LayerDescriptor>() as u64, num_layers);
        let scratch = engine.scratch(rank)?.0;
        for place in &layout.places {
            let (id, name) = (place.region as u32, place.region.name().to_owned());
            let span = |base: u64| base + place.data..base + place.data + place.data_bytes;
            match place.flags {
                Some(flags) => {
                    let flags = scratch + flags..scratch + flags + 4 * u64::from(place.num_flags);
                    engine.device.watch(TapRegion {
                        rank,
                        id,
                        name,
                        data: span(scratch),
                        form: TapForm::Rows { flags },
                    });
                }
                None => {
                    for (owner, peer) in peers(engine, rank)? {
                        for half in [peer, peer + layout.peer_half_bytes] {
                            let (name, data) = (name.clone(), span(half));
                            engine.device.watch(TapRegion { rank: owner, id, name, data, form: TapForm::Pairs });
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// Where a rank reaches its own pairs, and those of the ranks of other processes.
fn peers(engine: &Engine<Emulator>, rank: Rank) -> Result<Vec<(Rank, u64)>, EngineError<EmulatorError>> {
    let owners = (0..engine.shard().ranks as u8).map(Rank);
    let is_elsewhere = |owner: &Rank| engine.members().all(|member| member != *owner);
    owners
        .filter(|owner| *owner == rank || is_elsewhere(owner))
        .map(|owner| Ok((owner, engine.peer(rank, owner)?.0)))
        .collect()
}

/// Forgets what was recorded; goes on watching.
pub fn clear(engine: &mut Engine<Emulator>) {
    for rank in engine.members().collect::<Vec<_>>() {
        for id in Region::ALL.map(|region| region as u32) {
            for tag in engine.device.tap_tags(rank, id) {
                drop(engine.device.take_tap(rank, id, tag));
            }
        }
    }
}
