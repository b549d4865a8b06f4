//! The rules of the protocol that are not in its table, each of which a test can break, and what can go wrong.

use specdec_core::abi::Stage;

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Odd and even epochs share the peer buffer.
    OneHalf,
    /// Tags do not tell layers apart.
    TagsWithoutLayers,
    /// A failed workgroup's words cannot be told from others.
    NoPoison,
    /// A failed workgroup goes on storing plain data.
    FailedStoresData,
    /// A workgroup publishes poison before its rank's alarm is out.
    PoisonBeforeAlarm,
    /// FAILED comes before the alarm.
    FailedBeforeAlarm,
    /// Only the output rank is told.
    AlarmAtOutputRankOnly,
    /// A launch behind a failed one begins as if nothing had happened.
    FailureForgotten,
    /// The output rank does not look at alarm words before it hands out tokens.
    AlarmsUnread,
    /// A rank closes an abandoned step without meeting the others.
    CloseAlone,
    /// Closing an abandoned step does not advance the epoch.
    CloseKeepsEpoch,
    /// Closing clears what the last launch of the step would have, rows beyond its width, and no more.
    CloseAsLastLaunch,
    /// The last launch of a step leaves the flags of workgroups without a task.
    IdleFlagsStay,
}

/// When a wait gives up, beside poison and the host's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Never: without a fault nobody waits for long.
    Endless,
    /// When nothing else can happen any more: time-outs are long.
    Fair,
    /// As fair, but some workgroups at any time, whatever is under way.
    Short,
}

/// One step of giving up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUp {
    /// The alarm word in that rank's memory.
    Alarm(usize),
    /// The workgroup waits for nothing any more and publishes poison.
    Workgroup,
    /// The rank's FAILED word.
    Failed,
}

/// What happens to one rank, once, at any time in the first steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A workgroup stops for ever, with any part of its stores done.
    Stall,
    /// All workgroups and the host of a rank stop for ever.
    Crash,
    /// A host launches no further step.
    Refuse,
    /// A host sets its abort word.
    Abort,
}

/// The rules.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The one that does not hold.
    pub broken: Option<Break>,
    /// Time-outs.
    pub patience: Patience,
    /// The stage in which a workgroup gives up early, under short time-outs or on the host's word; none: any.
    pub early_in: Option<Stage>,
    /// Faults, at most one in a run.
    pub faults: Vec<Fault>,
    /// The step in which a fault may happen: both halves have been used before it.
    pub fault_step: u8,
    /// Steps after which hosts launch nothing more; none: runs never end.
    pub steps: Option<u8>,
    /// Epochs that tags tell apart.
    pub epochs: u8,
}

impl Rules {
    /// The protocol without faults, in runs without end.
    pub fn endless(epochs: u8) -> Self {
        Self {
            broken: None,
            patience: Patience::Endless,
            early_in: None,
            faults: Vec::new(),
            fault_step: 0,
            steps: None,
            epochs,
        }
    }

    /// The protocol in four steps, in the third of which one of these faults may happen.
    pub fn under(faults: &[Fault], patience: Patience) -> Self {
        Self { patience, faults: faults.to_vec(), fault_step: 2, steps: Some(4), ..Self::endless(8) }
    }

    /// One workgroup gives up early, in that stage.
    pub fn early_in(self, stage: Stage) -> Self {
        Self { early_in: Some(stage), ..self }
    }

    /// The same in the first of two steps: for worlds in which much can happen.
    pub fn briefly(self) -> Self {
        Self { fault_step: 0, steps: Some(2), ..self }
    }

    /// Without one rule.
    pub fn without(self, broken: Break) -> Self {
        Self { broken: Some(broken), ..self }
    }

    /// Whether a rule does not hold.
    pub fn breaks(&self, rule: Break) -> bool {
        self.broken == Some(rule)
    }

    /// Halves of the peer buffer.
    pub fn halves(&self) -> usize {
        if self.breaks(Break::OneHalf) {
            1
        } else {
            2
        }
    }

    /// Giving up, in order.
    pub const fn give_up(&self) -> &'static [GiveUp] {
        const ALARMS: [GiveUp; 2] = [GiveUp::Alarm(0), GiveUp::Alarm(1)];
        match self.broken {
            Some(Break::PoisonBeforeAlarm) => &[GiveUp::Workgroup, ALARMS[0], ALARMS[1], GiveUp::Failed],
            Some(Break::FailedBeforeAlarm) => &[GiveUp::Failed, ALARMS[0], ALARMS[1], GiveUp::Workgroup],
            Some(Break::AlarmAtOutputRankOnly) => &[ALARMS[0], GiveUp::Workgroup, GiveUp::Failed],
            // Nothing orders FAILED before the poison.
            _ => &[ALARMS[0], ALARMS[1], GiveUp::Workgroup, GiveUp::Failed],
        }
    }
}
