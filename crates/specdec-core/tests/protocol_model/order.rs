//! Partial order: events of failed workgroups that nobody can tell the time of come first, alone.

use crate::model::{Event, Look, Protocol};
use crate::program::Op;
use crate::rules::{Break, GiveUp};
use crate::state::{Phase, RankState, State, Workgroup, RANKS};
use crate::walk::Item;

impl Protocol {
    /// An event that commutes with whatever else can happen, now and later, and that nothing can prevent.
    pub fn alone(&self, state: &State) -> Option<Event> {
        // A fault may still come between; a rank that forgets may publish good words again.
        let fault_ahead = state.faults == 0 && !self.rules.faults.is_empty();
        if fault_ahead || self.rules.breaks(Break::FailureForgotten) {
            return None;
        }
        let lost: [bool; RANKS] = std::array::from_fn(|rank| self.is_lost(&state.ranks[rank], state, rank));
        let running = (0..RANKS).filter(|rank| state.ranks[*rank].phase == Phase::Running);
        let mut workgroups = running.flat_map(|rank| (0..self.grid).map(move |cta| (rank, cta)));
        workgroups.find_map(|(rank, cta)| self.alone_of(state, rank, cta, lost))
    }

    /// Nobody on this rank will ever take a word for good again, in this launch or a later one.
    fn is_lost(&self, mine: &RankState, state: &State, rank: usize) -> bool {
        let is_deaf = |cta: usize| {
            let workgroup = &mine.workgroups[cta];
            workgroup.failed || workgroup.stalled || matches!(self.item(state, rank, cta), Item::End)
        };
        match mine.phase {
            Phase::Dead | Phase::Stopped | Phase::Refused => true,
            Phase::Running => mine.failed && (0..self.grid).all(is_deaf),
            _ => mine.failed,
        }
    }

    fn alone_of(&self, state: &State, rank: usize, cta: usize, lost: [bool; RANKS]) -> Option<Event> {
        let mine = &state.ranks[rank];
        let workgroup = &mine.workgroups[cta];
        let (r, c) = (rank as u8, cta as u8);
        if workgroup.stalled {
            return None;
        }
        if workgroup.giving_up > 0 {
            return self.tells_nothing(state, rank, workgroup).then_some(Event::GoOn { rank: r, cta: c });
        }
        let chains = match self.item(state, rank, cta) {
            Item::Start => return mine.failed.then_some(Event::Start { rank: r, cta: c }),
            Item::End => return None,
            Item::Chains(chains) => chains,
        };
        let mut left = chains
            .iter()
            .enumerate()
            .filter_map(|(chain, ops)| ops.get(workgroup.at[chain] as usize).map(|op| (chain as u8, op)));
        if workgroup.failed {
            return left
                .find(|(_, op)| self.is_unseen(state, rank, workgroup, op, lost))
                .map(|(chain, _)| Event::Act { rank: r, cta: c, chain });
        }
        // A wait that sees poison ends in vain, whatever comes.
        let (chain, op) = left.next()?;
        let poisoned = left.next().is_none() && matches!(self.look(state, rank, cta, &op.waits), Look::Poison);
        poisoned.then_some(Event::GiveUp { rank: r, cta: c, chain })
    }

    /// Whether nobody can still take for good what this poison overwrites: on a lost rank nobody takes anything; on
    /// another one the last version of each word has had its readers, and no good one will ever come behind it.
    fn is_unseen(&self, state: &State, rank: usize, workgroup: &Workgroup, op: &Op, lost: [bool; RANKS]) -> bool {
        let clears = op.scrubs.as_ref().is_some_and(|idle| !idle.is_empty() || self.programs.rows[rank].len() > 1);
        let unread = |word: &u16| {
            let address = self.address(*word, workgroup.epoch);
            !lost[self.programs.rank(*word)] && self.is_still_wanted(state, *word, address)
        };
        (!clears || lost[rank]) && !op.publishes.iter().any(unread)
    }

    /// Whether the next step of giving up repeats what another workgroup has already said.
    fn tells_nothing(&self, state: &State, rank: usize, workgroup: &Workgroup) -> bool {
        match self.rules.give_up()[workgroup.giving_up as usize - 1] {
            GiveUp::Alarm(to) => state.ranks[to].alarms >> rank & 1 != 0,
            GiveUp::Failed => state.ranks[rank].failed,
            // Others see it by what the workgroup does then.
            GiveUp::Workgroup => true,
        }
    }
}
