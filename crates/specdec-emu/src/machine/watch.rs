//! Tells the race check and weak memory what a wave is about to do.

use super::action::{Action, LocalKind};
use super::group::Group;
use super::races::LocalTurn;
use super::shared::Shared;
use super::slot::Slot;
use super::weak;

/// A wave is about to do what is not the executor's business.
pub(super) fn note(shared: &mut Shared, slot: &Slot, group: &Group, action: Action) {
    match action {
        Action::Vector(..) | Action::WriteBack => {
            if let Some(races) = &mut shared.races {
                races.issue(slot);
            }
            if let Some(weak) = &mut shared.weak {
                weak.issue(slot.origin.wave);
            }
        }
        Action::ScalarLoad { .. } => {
            if let Some(races) = &mut shared.races {
                races.turn(slot);
            }
        }
        Action::Local(kind) => {
            if let Some(local) = &group.lds.races {
                let is_atomic = matches!(kind, LocalKind::Atomic { .. });
                local.borrow_mut().turn = LocalTurn { wave: slot.index as u8, is_atomic, step: slot.next as u32 };
            }
        }
        Action::Wait { vector, .. } => weak::wait(shared, slot, u64::from(vector).min(slot.board.num_vector() as u64)),
        _ => {}
    }
}
