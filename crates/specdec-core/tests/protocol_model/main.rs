//! A model of the in-kernel protocol, explored exhaustively (docs/verification.md, "The protocol, exhaustively").
//!
//! *What runs.* Every workgroup of two ranks walks the visits that `event_graph` takes from `Protocol::shipped()` and
//! from `TaskTable::new`: the table that the kernels read, and the one from which their stage headers are checked. The
//! geometry is the smallest that two ranks can split; the planner's code is used as it is. Cells that the same visits
//! touch are one word. Beside its tag, modulo a small number of epochs, a word holds whose it truly is (step, layer,
//! good or not). Steps are counted from the slowest rank's, so a world without end has finitely many states, and what is
//! shown holds for runs of any length, over any number of wraps.
//!
//! *Grain.* A visit (wait, read, store, publish) is one action. Behind its wait nothing blocks it, and what it touches is
//! its own until it publishes: anything that came between could have come before or behind, as long as nobody reads
//! what is not yet his or overwrites what others still read, and each of these is looked for. Three things are not left
//! to that argument. A stale word is an error when a wait *looks* at it, whatever else the wait lacks. Reads count as
//! done only when the whole action is. And since a reader that leans on another word of the same action would be
//! hidden, the same world is explored with every access alone, publications in both orders, and a dropped wait is
//! looked for there. What follows a stage's last barrier (the convolution's state, the scrub) is a chain of its own up
//! to the next barrier: later than any wave can be. All workgroups clear every unused word, not each its part.
//!
//! *Failing.* Giving up is an alarm word at each rank, then the workgroup's poison and FAILED in either order. Fair
//! time-outs come when nothing else can happen; early ones whatever is under way, one a run. `order.rs` lets events
//! of failed workgroups that commute with all others come first. In the worlds of several widths the waves of a
//! workgroup act at once; `waves_apart` takes them apart.
//!
//! *Invariants*, that is, why wraps and long-unused widths are safe by construction:
//! - a rank enters a step only when every rank has left the one before but for its own last reads, so ranks are at most
//!   one step apart, and a half of the peer buffer is used by one step at a time;
//! - a row that a step uses is overwritten in it; one that it does not use is cleared within `2 * MAX_ROWS` steps; a flag
//!   without a producer is cleared at the step's end; a step that was closed unrun has its row and all flags cleared.
//!   So no word is older than `2 * MAX_ROWS` steps, and `TAG_EPOCHS` is a multiple of that, and more than once;
//! - a rank that has FAILED publishes poison only, in later launches as well, so its peers take nothing of it for good.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test prints what it counted and stops at the first surprise"
)]

mod check;
mod effects;
mod fault_free;
mod faults;
mod model;
mod mutants;
mod order;
mod program;
mod rules;
mod state;
mod walk;
mod worlds;

/// What the model shows for few epochs and rows holds for the kernels' numbers.
#[test]
fn epochs_outnumber_the_scrubs_cycle() {
    use specdec_core::abi::{MAX_ROWS, TAG_EPOCHS};
    assert_eq!(TAG_EPOCHS % (2 * MAX_ROWS), 0);
    const { assert!(TAG_EPOCHS > 2 * MAX_ROWS) };
}
