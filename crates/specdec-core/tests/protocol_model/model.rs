//! The state machine: which actions are possible in a state, and what each does.

use specdec_core::event_graph::World;

use crate::program::{Op, Program, Programs, Want};
use crate::rules::{Break, Fault, Patience, Rules};
use crate::state::{Phase, State, MOST_LAYERS, POISON, RANKS, UNPLANNED};
use crate::walk::{Grain, Item, StepKind};

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A host launches the next step, of this kind.
    Launch { rank: u8, kind: u8 },
    /// A workgroup reads the epoch.
    Start { rank: u8, cta: u8 },
    /// The next action of a chain.
    Act { rank: u8, cta: u8, chain: u8 },
    /// A wait ends with a word that is not the one it wants.
    AcceptStale { rank: u8, cta: u8, chain: u8, word: u16 },
    /// A wait ends in vain.
    GiveUp { rank: u8, cta: u8, chain: u8 },
    /// The next step of giving up.
    GoOn { rank: u8, cta: u8 },
    /// The output rank copies the tokens and the alarm words.
    Deliver { rank: u8 },
    /// A host closes an abandoned step.
    Close { rank: u8 },
    /// A host that has seen a failure stops.
    Stop { rank: u8 },
    /// A workgroup stops for ever behind `stores` words of its next action, the last ones first or the first ones.
    Stall { rank: u8, cta: u8, chain: u8, stores: u8, backwards: bool },
    /// Another fault.
    Fault { rank: u8, fault: Fault },
}

/// What a wait finds.
pub enum Look {
    Ready,
    Pending,
    Poison,
    Stale(u16),
}

/// The model of one world.
pub struct Protocol {
    pub programs: Programs,
    pub rules: Rules,
    pub grid: usize,
}

impl Protocol {
    /// The walk of `world` under `rules`.
    pub fn new(world: &World, kinds: &[StepKind], grain: Grain, rules: Rules) -> Self {
        let programs = Programs::new(world, kinds, grain, world.protocol.clears);
        Self { programs, rules, grid: kinds[0].table.grid as usize }
    }

    /// The programs of the step that a rank is in.
    pub fn program(&self, state: &State, rank: usize) -> &Program {
        &self.programs.kinds[state.plans[state.ranks[rank].step as usize] as usize]
    }

    /// Where a workgroup is in its program.
    pub fn item<'a>(&'a self, state: &State, rank: usize, cta: usize) -> &'a Item<Op> {
        &self.program(state, rank).items[rank][cta][state.ranks[rank].workgroups[cta].item as usize]
    }

    /// Where a word is for a workgroup of that epoch.
    pub fn address(&self, word: u16, epoch: u8) -> usize {
        let word = word as usize;
        if word < self.programs.num_pairs {
            epoch as usize % self.rules.halves() * self.programs.num_pairs + word
        } else {
            (self.rules.halves() - 1) * self.programs.num_pairs + word
        }
    }

    /// A tag as the kernels make it.
    pub fn tag(&self, epoch: u8, layer: u8) -> u16 {
        1 + u16::from(epoch) * MOST_LAYERS
            + if self.rules.breaks(Break::TagsWithoutLayers) { 0 } else { u16::from(layer) }
    }

    /// What a workgroup's wait finds.
    pub fn look(&self, state: &State, rank: usize, cta: usize, waits: &[Want]) -> Look {
        let (step, epoch) = (state.ranks[rank].step, state.ranks[rank].workgroups[cta].epoch);
        let mut look = Look::Ready;
        for want in waits {
            let word = state.word(self.address(want.word, epoch));
            if word.tag() == self.tag(epoch, want.layer) {
                if (word.step(), word.layer()) != (step, want.layer) {
                    return Look::Stale(want.word);
                }
            } else if word.tag() == POISON {
                look = Look::Poison;
            } else if matches!(look, Look::Ready) {
                look = Look::Pending;
            }
        }
        look
    }

    fn workgroup_events(&self, state: &State, rank: usize, cta: usize, out: &mut Vec<Event>, waiting: &mut Vec<Event>) {
        let workgroup = &state.ranks[rank].workgroups[cta];
        let (r, c) = (rank as u8, cta as u8);
        if workgroup.stalled {
            return;
        }
        if workgroup.giving_up > 0 {
            out.push(Event::GoOn { rank: r, cta: c });
            if !workgroup.failed {
                return;
            }
        }
        match self.item(state, rank, cta) {
            Item::Start => out.push(Event::Start { rank: r, cta: c }),
            Item::End => {}
            Item::Chains(chains) => {
                for (chain, ops) in chains.iter().enumerate() {
                    let Some(op) = ops.get(workgroup.at[chain] as usize) else { continue };
                    let chain = chain as u8;
                    let look = if workgroup.failed { Look::Ready } else { self.look(state, rank, cta, &op.waits) };
                    match look {
                        Look::Ready => out.push(Event::Act { rank: r, cta: c, chain }),
                        Look::Stale(word) => out.push(Event::AcceptStale { rank: r, cta: c, chain, word }),
                        Look::Poison => out.push(Event::GiveUp { rank: r, cta: c, chain }),
                        Look::Pending if self.is_impatient(state, rank, op) => {
                            out.push(Event::GiveUp { rank: r, cta: c, chain });
                        }
                        Look::Pending => waiting.push(Event::GiveUp { rank: r, cta: c, chain }),
                    }
                }
            }
        }
    }

    /// Whether a workgroup of this rank may give up while others go on.
    pub fn is_impatient(&self, state: &State, rank: usize, op: &Op) -> bool {
        let mine = &state.ranks[rank];
        // As with other faults: in the steps from one on, when both halves have been used.
        let begun = i16::from(state.number) + i16::from(mine.step) >= i16::from(self.rules.fault_step);
        let may = mine.abort || self.rules.patience == Patience::Short && begun;
        let here = self.rules.early_in.is_none() || self.rules.early_in == op.stage;
        may && here && !state.early
    }

    fn host_events(&self, state: &State, rank: usize, out: &mut Vec<Event>) {
        let r = rank as u8;
        let mine = &state.ranks[rank];
        match mine.phase {
            Phase::Delivering => out.push(Event::Deliver { rank: r }),
            Phase::Closing => out.push(Event::Close { rank: r }),
            Phase::Between => {
                if mine.failed || mine.alarms != 0 {
                    out.push(Event::Stop { rank: r });
                }
                // A host learns of a failure one step later at the latest.
                if mine.failed && mine.failed_in < mine.step || self.is_over(state, rank) {
                    return;
                }
                match state.plans.get((mine.step + 1) as usize) {
                    Some(&UNPLANNED) => {
                        let kinds = 0..self.programs.kinds.len() as u8;
                        out.extend(kinds.map(|kind| Event::Launch { rank: r, kind }));
                    }
                    Some(kind) => out.push(Event::Launch { rank: r, kind: *kind }),
                    None => {}
                }
            }
            _ => {}
        }
    }

    /// Whether a rank has done all steps of a run that ends.
    fn is_over(&self, state: &State, rank: usize) -> bool {
        self.rules
            .steps
            .is_some_and(|steps| i16::from(state.number) + i16::from(state.ranks[rank].step) + 1 >= i16::from(steps))
    }

    /// Every fault that may happen now.
    pub fn fault_events(&self, state: &State, out: &mut Vec<Event>) {
        if state.faults > 0 {
            return;
        }
        for (rank, mine) in state.ranks.iter().enumerate() {
            let r = rank as u8;
            let step = i16::from(state.number) + i16::from(mine.step);
            if step != i16::from(self.rules.fault_step) {
                continue;
            }
            for fault in &self.rules.faults {
                match fault {
                    Fault::Stall if mine.phase == Phase::Running => self.stalls(state, rank, out),
                    Fault::Refuse if mine.phase == Phase::Between => out.push(Event::Fault { rank: r, fault: *fault }),
                    Fault::Stall | Fault::Refuse => {}
                    _ => out.push(Event::Fault { rank: r, fault: *fault }),
                }
            }
        }
    }

    /// Every way in which a workgroup can stop: before its next action, or with some of its stores done.
    fn stalls(&self, state: &State, rank: usize, out: &mut Vec<Event>) {
        for cta in 0..self.grid {
            let workgroup = &state.ranks[rank].workgroups[cta];
            let (r, c) = (rank as u8, cta as u8);
            out.push(Event::Stall { rank: r, cta: c, chain: 0, stores: 0, backwards: false });
            let Item::Chains(chains) = self.item(state, rank, cta) else { continue };
            for (chain, ops) in chains.iter().enumerate() {
                let Some(op) = ops.get(workgroup.at[chain] as usize) else { continue };
                let ready = workgroup.failed || matches!(self.look(state, rank, cta, &op.waits), Look::Ready);
                for stores in 1..if ready { op.publishes.len() as u8 } else { 0 } {
                    let chain = chain as u8;
                    out.extend([false, true].map(|backwards| Event::Stall {
                        rank: r,
                        cta: c,
                        chain,
                        stores,
                        backwards,
                    }));
                }
            }
        }
    }

    /// Everything but faults.
    pub fn events(&self, state: &State) -> Vec<Event> {
        let (mut out, mut waiting) = (Vec::new(), Vec::new());
        if state.violation.is_some() {
            return out;
        }
        if let Some(event) = self.alone(state) {
            return vec![event];
        }
        for (rank, mine) in state.ranks.iter().enumerate() {
            self.host_events(state, rank, &mut out);
            if mine.phase == Phase::Running {
                (0..self.grid).for_each(|cta| self.workgroup_events(state, rank, cta, &mut out, &mut waiting));
            }
        }
        if out.is_empty() && self.rules.patience != Patience::Endless {
            return waiting;
        }
        out
    }

    /// Whether nothing more happens although it should: someone lives and knows of no failure.
    pub fn is_stuck(&self, state: &State) -> bool {
        // An abort word that no wait has seen has stopped nobody.
        let unnoticed = state.ranks.iter().any(|rank| rank.abort) && !state.early;
        let stopped = |rank: usize| {
            let mine = &state.ranks[rank];
            let over = mine.phase == Phase::Between && self.is_over(state, rank);
            matches!(mine.phase, Phase::Stopped | Phase::Refused | Phase::Dead)
                || mine.failed
                || mine.alarms != 0
                || over && (state.faults == 0 || unnoticed)
        };
        state.violation.is_none() && self.events(state).is_empty() && !(0..RANKS).all(stopped)
    }
}

impl Protocol {
    /// What an event is, in words.
    pub fn sentence(&self, state: &State, event: Event) -> String {
        let stage = |rank: u8, cta: u8, chain: u8| {
            let (r, c) = (rank as usize, cta as usize);
            let Item::Chains(chains) = self.item(state, r, c) else { return format!("rank {rank} CTA {cta}") };
            let op = chains[chain as usize].get(state.ranks[r].workgroups[c].at[chain as usize] as usize);
            let name = op.map_or("nothing".into(), |op| match op.stage {
                Some(stage) => format!("{stage:?} of layer {}", op.layer),
                None => "scrub".into(),
            });
            let failed = if state.ranks[r].workgroups[c].failed { ", failed" } else { "" };
            format!("rank {rank} CTA {cta}{failed}: {name}")
        };
        match event {
            Event::Act { rank, cta, chain } => stage(rank, cta, chain),
            Event::GiveUp { rank, cta, chain } => format!("{} gives up", stage(rank, cta, chain)),
            Event::AcceptStale { rank, cta, chain, word } => {
                format!("{} accepts {}", stage(rank, cta, chain), self.programs.name(word))
            }
            Event::Stall { rank, cta, chain, .. } => format!("{} stalls: {event:?}", stage(rank, cta, chain)),
            Event::GoOn { rank, cta } => {
                let step = state.ranks[rank as usize].workgroups[cta as usize].giving_up as usize;
                format!("rank {rank} CTA {cta}: {:?}", self.rules.give_up()[step - 1])
            }
            _ => format!("{event:?}"),
        }
    }
}
