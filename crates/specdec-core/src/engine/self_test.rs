//! The start-up test: captured steps without layers, replayed, in which every rank hands every rank pairs.

use super::{Engine, EngineError, SELF_TEST_SYMBOL};
use crate::abi::{LaunchArgs, BLOCK};
use crate::device::{Device, Launch};
use crate::encode::Encode;
use crate::ids::Rank;

/// Replays of the test: more than there are halves of a peer buffer, so that each half is used again.
pub const SELF_TEST_STEPS: u32 = 8;

impl<D: Device> Engine<D> {
    /// Captures a step without layers on every rank of this process, replays it [`SELF_TEST_STEPS`] times and runs all
    /// that. Collective: every rank of the group must do it, and it consumes as many steps. An error says what failed:
    /// a capture, a replay that saw old words, peer memory that is cached or not the peer's.
    pub fn self_test(&mut self) -> Result<(), EngineError<D::Error>> {
        let members: Vec<Rank> = self.members().collect();
        // Kept until every rank has run: to give one back waits for its rank, and that for those that are not queued yet.
        let mut graphs = Vec::with_capacity(members.len());
        for &rank in &members {
            self.begin_capture(rank)?;
            let launch = self.describe_self_test(rank)?;
            self.device.launch(rank, &launch)?;
            graphs.push((rank, self.end_capture(rank)?));
        }
        for (rank, graph) in &graphs {
            for _ in 0..SELF_TEST_STEPS {
                self.replay(*rank, graph)?;
            }
        }
        self.synchronize()?;
        for rank in members {
            let (expected, found) = (self.next_step(rank)?, self.epoch(rank)?);
            if expected != found {
                self.stopped = true;
                return Err(EngineError::SelfTest { rank, expected, found });
            }
        }
        Ok(())
    }

    fn describe_self_test(&self, rank: Rank) -> Result<Launch<D::Module>, EngineError<D::Error>> {
        let state = self.state(rank)?;
        let args = LaunchArgs {
            scratch: state.scratch.0,
            peers: state.peers,
            health: state.health.0,
            abort: state.abort.0,
            timeout_ticks: self.timeout_ticks,
            rows: 1,
            rank: u32::from(rank.0),
            grid: 1,
            ..LaunchArgs::default()
        };
        Ok(Launch { module: state.module, symbol: SELF_TEST_SYMBOL, grid: 1, block: BLOCK, kernarg: args.to_bytes() })
    }
}
