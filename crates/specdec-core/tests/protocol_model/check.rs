//! The model as stateright explores it, and what it found.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::model::{Event, Protocol};
use crate::state::{State, Violation};

fn never(name: &'static str, violation: Violation) -> Property<Protocol> {
    // Conditions are plain functions, so one for each.
    let condition: fn(&Protocol, &State) -> bool = match violation {
        Violation::StaleTag => |_, state| state.violation != Some(Violation::StaleTag),
        Violation::WrongData => |_, state| state.violation != Some(Violation::WrongData),
        Violation::Garbage => |_, state| state.violation != Some(Violation::Garbage),
        Violation::Overwritten => |_, state| state.violation != Some(Violation::Overwritten),
        Violation::WrongEpoch => |_, state| state.violation != Some(Violation::WrongEpoch),
        Violation::LateAlarm => |_, state| state.violation != Some(Violation::LateAlarm),
        Violation::Delivered => |_, state| state.violation != Some(Violation::Delivered),
    };
    Property::always(name, condition)
}

impl Model for Protocol {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.rules.halves() * self.programs.num_pairs + self.programs.num_others)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Event>) {
        actions.extend(self.events(state));
        if state.violation.is_none() && self.alone(state).is_none() {
            self.fault_events(state, actions);
        }
    }

    fn next_state(&self, state: &State, event: Event) -> Option<State> {
        let mut next = state.clone();
        self.apply(&mut next, event);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            never("no stale tag is accepted", Violation::StaleTag),
            never("data behind a flag are that step's", Violation::WrongData),
            never("nothing of a failed workgroup is taken for good", Violation::Garbage),
            never("no word is overwritten before its readers", Violation::Overwritten),
            never("every workgroup starts in its step's epoch", Violation::WrongEpoch),
            never("a rank's alarm comes before its poison", Violation::LateAlarm),
            never("no token behind a failure of its step", Violation::Delivered),
            Property::always("nobody waits for ever unaware", |model: &Self, state| !model.is_stuck(state)),
        ]
    }
}

/// A broken property.
#[derive(Clone, Debug)]
pub struct Broken {
    pub property: &'static str,
    /// A shortest way there.
    pub trace: Vec<String>,
}

/// What an exploration found.
#[derive(Clone, Debug)]
pub struct Findings {
    pub states: usize,
    pub seconds: f64,
    pub broken: Option<Broken>,
}

/// Explores every state, breadth first, up to the first broken property.
pub fn explore(protocol: Protocol) -> Findings {
    let start = Instant::now();
    let checker = protocol.checker().finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let seconds = start.elapsed().as_secs_f64();
    let broken = checker.discoveries().into_iter().next().map(|(property, path)| {
        let steps =
            path.into_vec().into_iter().filter_map(|(state, event)| Some(checker.model().sentence(&state, event?)));
        Broken { property, trace: steps.collect() }
    });
    Findings { states: checker.unique_state_count(), seconds, broken }
}
