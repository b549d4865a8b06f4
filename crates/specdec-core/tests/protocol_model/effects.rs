//! What an action does to the state, and whether it breaks a property.

use crate::model::{Event, Look, Protocol};
use crate::program::Op;
use crate::rules::{Break, Fault, GiveUp};
use crate::state::Workgroup;
use crate::state::{Phase, RankState, State, Violation, Word, CHAINS, POISON, ZERO};
use crate::walk::Item;

impl Protocol {
    /// What an event does.
    pub fn apply(&self, state: &mut State, event: Event) {
        match event {
            Event::Launch { rank, kind } => self.launch(state, rank as usize, kind),
            Event::Start { rank, cta } => self.start(state, rank as usize, cta as usize),
            Event::Act { rank, cta, chain } => {
                let (r, c, chain) = (rank as usize, cta as usize, chain as usize);
                let Item::Chains(chains) = self.item(state, r, c) else { return };
                let op = &chains[chain][state.ranks[r].workgroups[c].at[chain] as usize];
                self.act(state, r, c, op, None);
                state.ranks[r].workgroups[c].at[chain] += 1;
                self.advance(state, r, c);
            }
            Event::AcceptStale { .. } => state.violation = Some(Violation::StaleTag),
            Event::GiveUp { rank, cta, chain } => {
                let (r, c, chain) = (rank as usize, cta as usize, chain as usize);
                let Item::Chains(chains) = self.item(state, r, c) else { return };
                let op = &chains[chain][state.ranks[r].workgroups[c].at[chain] as usize];
                let pending = matches!(self.look(state, r, c, &op.waits), Look::Pending);
                state.early |= pending && self.is_impatient(state, r, op);
                state.ranks[r].workgroups[c].giving_up = 1;
            }
            Event::GoOn { rank, cta } => self.give_up(state, rank as usize, cta as usize),
            Event::Deliver { rank } => self.deliver(state, rank as usize),
            Event::Close { rank } => self.close(state, rank as usize),
            Event::Stop { rank } => state.ranks[rank as usize].phase = Phase::Stopped,
            Event::Stall { rank, cta, chain, stores, backwards } => {
                let (r, c, chain) = (rank as usize, cta as usize, chain as usize);
                if let (Item::Chains(chains), true) = (self.item(state, r, c), stores > 0) {
                    let op = &chains[chain][state.ranks[r].workgroups[c].at[chain] as usize];
                    self.act(state, r, c, op, Some((stores, backwards)));
                }
                state.ranks[r].workgroups[c].stalled = true;
                state.faults = 1;
            }
            Event::Fault { rank, fault } => {
                let mine = &mut state.ranks[rank as usize];
                state.faults = 1;
                match fault {
                    Fault::Crash => mine.phase = Phase::Dead,
                    Fault::Refuse => mine.phase = Phase::Refused,
                    _ => mine.abort = true,
                }
            }
        }
    }

    fn launch(&self, state: &mut State, rank: usize, kind: u8) {
        let mine = &mut state.ranks[rank];
        mine.step += 1;
        state.plans[mine.step as usize] = kind;
        mine.phase = Phase::Running;
        mine.workgroups.iter_mut().for_each(|workgroup| (workgroup.item, workgroup.at) = (0, [0; CHAINS]));
        if self.programs.kinds[kind as usize].abandoned_behind == Some(0) {
            mine.phase = Phase::Meeting;
        }
        state.shift(self.rules.epochs as i8, self.rules.steps.is_some());
        self.meet(state);
    }

    fn start(&self, state: &mut State, rank: usize, cta: usize) {
        let mine = &mut state.ranks[rank];
        let (epoch, failed) = (mine.epoch, mine.failed && !self.rules.breaks(Break::FailureForgotten));
        let workgroup = &mut mine.workgroups[cta];
        (workgroup.epoch, workgroup.failed) = (epoch, failed);
        workgroup.item += 1;
        if !failed && epoch != (state.base + mine.step as u8) % self.rules.epochs {
            state.violation = Some(Violation::WrongEpoch);
        }
        self.advance(state, rank, cta);
    }

    fn give_up(&self, state: &mut State, rank: usize, cta: usize) {
        let step = state.ranks[rank].workgroups[cta].giving_up as usize;
        match self.rules.give_up()[step - 1] {
            GiveUp::Alarm(to) => state.ranks[to].alarms |= 1 << rank,
            GiveUp::Workgroup => state.ranks[rank].workgroups[cta].failed = true,
            GiveUp::Failed if !state.ranks[rank].failed => {
                let mine = &mut state.ranks[rank];
                (mine.failed, mine.failed_in) = (true, mine.step);
            }
            GiveUp::Failed => {}
        }
        let through = step == self.rules.give_up().len();
        state.ranks[rank].workgroups[cta].giving_up = if through { 0 } else { step as u8 + 1 };
        if through {
            self.end_launch(state, rank);
        }
    }

    /// The stream copies tokens, FAILED and the alarm words behind the step's last launch.
    fn deliver(&self, state: &mut State, rank: usize) {
        let mine = state.ranks[rank];
        if mine.failed || mine.alarms != 0 && !self.rules.breaks(Break::AlarmsUnread) {
            state.ranks[rank].phase = Phase::Stopped;
            return;
        }
        state.ranks[rank].phase = Phase::Between;
        if state.ranks.iter().any(|other| other.failed && other.failed_in <= mine.step) {
            state.violation = Some(Violation::Delivered);
        }
        let layer = self.programs.kinds[state.plans[mine.step as usize] as usize].last_layer;
        let is_good = |word: &u16| {
            let word = state.word(self.address(*word, 0));
            (word.step(), word.layer(), word.is_garbage()) == (mine.step, layer, false)
        };
        let results = &self.programs.kinds[state.plans[mine.step as usize] as usize].results;
        if !results.iter().all(is_good) {
            state.violation = Some(Violation::Garbage);
        }
    }

    /// What the last launch of a step would have done at its end.
    fn close(&self, state: &mut State, rank: usize) {
        let mine = &mut state.ranks[rank];
        let epoch = mine.epoch;
        mine.phase = Phase::Between;
        if !self.rules.breaks(Break::CloseKeepsEpoch) {
            mine.epoch = (epoch + 1) % self.rules.epochs;
        }
        if self.programs.scrubs {
            // A step that was not run has overwritten nothing: whatever its width, the row in turn goes, and every flag.
            let as_last = self.rules.breaks(Break::CloseAsLastLaunch);
            let rows = if as_last { self.program(state, rank).rows } else { 0 };
            let flags: &[u16] = if as_last { &[] } else { &self.programs.flags[rank] };
            self.scrub(state, rank, epoch, rows, flags);
        }
    }

    fn check_overwrite(&self, state: &mut State, word: u16, address: usize) {
        if self.is_still_wanted(state, word, address) {
            state.violation = Some(Violation::Overwritten);
        }
    }

    /// Whether somebody has yet to read the version of a word that is there.
    pub fn is_still_wanted(&self, state: &State, word: u16, address: usize) -> bool {
        let old = state.word(address);
        if old.tag() == ZERO || old.tag() == POISON || old.step() < 0 {
            return false;
        }
        let Some(&kind) = state.plans.get(old.step() as usize) else { return false };
        let Some(program) = self.programs.kinds.get(kind as usize) else { return false };
        program.readers[word as usize][old.layer() as usize].iter().any(|place| {
            let rank = &state.ranks[place.rank as usize];
            let workgroup = &rank.workgroups[place.cta as usize];
            let past = workgroup.item > place.item
                || workgroup.item == place.item && workgroup.at[place.chain as usize] > place.at;
            let gone = workgroup.failed || workgroup.giving_up > 0 || workgroup.stalled || rank.phase != Phase::Running;
            rank.step < old.step() || rank.step == old.step() && !past && !gone
        })
    }

    fn put(&self, state: &mut State, word: u16, epoch: u8, new: Word) {
        let address = self.address(word, epoch);
        if new.tag() != POISON {
            self.check_overwrite(state, word, address);
        }
        state.words[address] = new.0;
    }

    /// One action: reads, stores, publications, all at once; only the publications in `stores`.
    fn act(&self, state: &mut State, rank: usize, cta: usize, op: &Op, stores: Option<(u8, bool)>) {
        let RankState { step, .. } = state.ranks[rank];
        let Workgroup { epoch, failed, .. } = state.ranks[rank].workgroups[cta];
        if !failed {
            self.read(state, rank, cta, op);
        }
        let tag = self.tag(epoch, op.layer);
        let data = Word::new(tag, step, op.layer, failed);
        if !failed || self.rules.breaks(Break::FailedStoresData) {
            op.stores.iter().for_each(|word| self.put(state, *word, epoch, data));
        }
        let published =
            if failed && !self.rules.breaks(Break::NoPoison) { Word::new(POISON, step, op.layer, true) } else { data };
        let count = stores.map_or(op.publishes.len(), |(count, _)| count as usize);
        let backwards = stores.is_some_and(|(_, backwards)| backwards);
        let first = if backwards { op.publishes.len() - count } else { 0 };
        for word in &op.publishes[first..first + count] {
            self.put(state, *word, epoch, published);
        }
        let told = |to: &usize| state.ranks[*to].alarms >> rank & 1 != 0;
        let alarms = self.rules.give_up().iter();
        let mut heads = alarms.filter_map(|step| if let GiveUp::Alarm(to) = step { Some(to) } else { None });
        if failed && count > 0 && !heads.all(told) {
            state.violation = Some(Violation::LateAlarm);
        }
        if stores.is_some() {
            return;
        }
        if let Some(idle) = &op.scrubs {
            let rows = self.program(state, rank).rows;
            let idle: &[u16] = if self.rules.breaks(Break::IdleFlagsStay) { &[] } else { idle };
            self.scrub(state, rank, epoch, rows, idle);
        }
        if op.advances_epoch && !failed {
            let word = &mut state.ranks[rank].epoch;
            *word = (*word + 1) % self.rules.epochs;
        }
    }

    fn read(&self, state: &mut State, rank: usize, cta: usize, op: &Op) {
        let (step, epoch) = (state.ranks[rank].step, state.ranks[rank].workgroups[cta].epoch);
        for (want, plain) in op.waits.iter().map(|w| (w, false)).chain(op.reads.iter().map(|w| (w, true))) {
            let word = state.word(self.address(want.word, epoch));
            if plain && (word.tag() == ZERO || (word.step(), word.layer()) != (step, want.layer)) {
                state.violation = Some(Violation::WrongData);
            } else if word.is_garbage() {
                state.violation = Some(Violation::Garbage);
            }
        }
    }

    /// The row whose turn it is, if the step does not use it, and flags without a producer.
    fn scrub(&self, state: &mut State, rank: usize, epoch: u8, used: u32, idle: &[u16]) {
        let rows = &self.programs.rows[rank];
        let row = epoch as usize / 2 % rows.len();
        let unused = if row >= used as usize { rows[row].as_slice() } else { &[] };
        let step = state.ranks[rank].step;
        for word in unused.iter().chain(idle) {
            let address = self.address(*word, epoch);
            let old = state.word(address);
            if old.tag() != ZERO && old.tag() != POISON && old.step() > step {
                state.violation = Some(Violation::Overwritten);
            }
            self.check_overwrite(state, *word, address);
            state.words[address] = Word::EMPTY.0;
        }
    }

    /// Past every chain that is through, and past the launch when all workgroups are.
    fn advance(&self, state: &mut State, rank: usize, cta: usize) {
        if let Item::Chains(chains) = self.item(state, rank, cta) {
            let workgroup = &mut state.ranks[rank].workgroups[cta];
            if chains.iter().zip(&workgroup.at).any(|(ops, at)| (*at as usize) < ops.len()) {
                return;
            }
            workgroup.item += 1;
            workgroup.at = [0; CHAINS];
        }
        self.end_launch(state, rank);
    }

    fn end_launch(&self, state: &mut State, rank: usize) {
        let at_end = |cta: usize| {
            let workgroup = &state.ranks[rank].workgroups[cta];
            matches!(self.item(state, rank, cta), Item::End) && workgroup.giving_up == 0 && !workgroup.stalled
        };
        if !(0..self.grid).all(at_end) {
            return;
        }
        let program = self.program(state, rank);
        let at = state.ranks[rank].workgroups[0].item as usize;
        let is_end = |item: &&Item<Op>| matches!(item, Item::End);
        let launches = program.items[rank][0][..=at].iter().filter(is_end).count();
        let is_last = at + 1 == program.items[rank][0].len();
        let mine = &mut state.ranks[rank];
        if program.abandoned_behind == Some(launches) {
            mine.phase = Phase::Meeting;
        } else if is_last {
            mine.phase = if rank == 0 { Phase::Delivering } else { Phase::Between };
        } else {
            mine.workgroups.iter_mut().for_each(|workgroup| workgroup.item += 1);
        }
        self.meet(state);
    }

    /// Lets those who wait at the meeting close their step once all are there.
    fn meet(&self, state: &mut State) {
        let there = |rank: &RankState| rank.phase == Phase::Meeting && rank.step == state.ranks[0].step;
        if self.rules.breaks(Break::CloseAlone) || state.ranks.iter().all(there) {
            for rank in state.ranks.iter_mut().filter(|rank| rank.phase == Phase::Meeting) {
                rank.phase = Phase::Closing;
            }
        }
    }
}
