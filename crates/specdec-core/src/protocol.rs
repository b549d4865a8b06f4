//! What every stage waits for, reads and writes: the table that the kernels' stage headers, the event graph and the
//! documentation share (spec: DESIGN "Exchanges", "Overwrite rule").
//!
//! The table says *what* in the units in which kernels wait: a seam wave waits for the pairs of its own columns, a
//! wave of the mix for its row, a workgroup's entry for every producer. *Who* does it is in the task table.

use std::fmt;

use crate::abi::Stage;
use crate::layout::Region;
use Exchange::{Memory as M, Region as R};

/// What stages hand each other beside the regions: plain memory and LDS, which no tag guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Memory {
    /// The running prefix, a cell per (row, slice).
    Prefix,
    /// The bank of `AttnRes` blocks, a cell per (row, slice).
    Blocks,
    /// A run's input and output, a cell per (row, slice).
    Delta,
    /// Convolution states of one layer, a cell per (request, head, wave that stores it).
    ConvState,
    /// Recurrent states of one layer, a cell per (request, head, chunk).
    RecurrentState,
    /// The step's number.
    Epoch,
    /// LDS: picks, union and latent codes of one workgroup.
    Routing,
    /// LDS: the own columns' sums that `SharedDown` keeps for `Up`.
    OwnSums,
}

/// Something that one event writes and another reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Exchange {
    /// Behind tags: flags or pairs.
    Region(Region),
    /// Behind program order, barriers and launches only.
    Memory(Memory),
}

impl Exchange {
    /// Name in reports (snake case).
    pub const fn name(self) -> &'static str {
        match self {
            Self::Region(region) => region.name(),
            Self::Memory(Memory::Prefix) => "prefix",
            Self::Memory(Memory::Blocks) => "blocks",
            Self::Memory(Memory::Delta) => "delta",
            Self::Memory(Memory::ConvState) => "conv_state",
            Self::Memory(Memory::RecurrentState) => "recurrent_state",
            Self::Memory(Memory::Epoch) => "epoch",
            Self::Memory(Memory::Routing) => "routing",
            Self::Memory(Memory::OwnSums) => "own_sums",
        }
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether a region's words carry their own tags and go to every rank.
pub const fn is_pairs(region: Region) -> bool {
    matches!(region, Region::AttentionOut | Region::Logits | Region::Latent | Region::LatentOut | Region::Output)
}

/// Who carries a stage out, and what joins the waves of a workgroup there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A wave per task and no barrier: nothing joins the waves of a workgroup.
    Wave,
    /// A workgroup per task, a barrier on entry and one per task; a workgroup without a task has no barrier at all.
    Workgroup,
    /// As `Workgroup`, but every workgroup enters.
    EveryWorkgroup,
    /// As `EveryWorkgroup`, behind the entry barrier of the stage before, which has waited for both.
    Joined,
    /// A workgroup per task that the routing makes: any workgroup may have none.
    Routed,
}

/// Which cells of an exchange an access covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The task's own cell.
    Task,
    /// Every slice of the task's row.
    Row,
    /// The task's columns, from every rank.
    Columns,
    /// The task's request and head.
    Head,
    /// This workgroup's LDS.
    Workgroup,
    /// Everything that anybody wrote.
    All,
}

/// The tasks of a stage that write an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Every task.
    All,
    /// `MoeIn`'s router tiles.
    Router,
    /// `MoeIn`'s latent tiles.
    Latent,
    /// `MoeIn`'s shared gate-and-up tiles.
    Shared,
    /// `SharedDown`'s tiles of this rank's columns.
    Own,
    /// `SharedDown`'s tiles of other ranks' columns.
    Others,
    /// Task 0.
    First,
}

/// When in its stage an access happens. Waves that poll or store alone do everything at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A write before the stage's entry barrier.
    BeforeEntry,
    /// A read behind the entry barrier that ends before the first task's barrier.
    Entry,
    /// Around every task's barrier: reads end before it, stores come behind it.
    Tasks,
    /// Behind the stage's last barrier: no barrier of this stage joins it.
    Tail,
}

/// When a stage or an access applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Always.
    Always,
    /// In `LayerKind::Whole` layers.
    Whole,
    /// In the first layer of a run.
    FirstOfRun,
    /// In the other layers of a run.
    LaterInRun,
    /// In the last layer of a run.
    LastOfRun,
    /// In layers that write a block.
    BlockWrite,
    /// In layers that write none.
    NoBlockWrite,
    /// On workgroups that have a task of the stage.
    HasTask,
    /// In the step's last launch.
    StepEnd,
}

/// A wait for the flags or pairs of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Region.
    pub region: Region,
    /// Cells.
    pub extent: Extent,
    /// For the tag of the layer before.
    pub previous_layer: bool,
    /// Condition.
    pub when: When,
}

/// A read or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// What.
    pub exchange: Exchange,
    /// Cells, for reads; writes touch the cells of their tasks.
    pub extent: Extent,
    /// Tasks, for writes.
    pub part: Part,
    /// Of the layer before.
    pub previous_layer: bool,
    /// Where in the stage.
    pub phase: Phase,
    /// Condition.
    pub when: When,
}

/// One stage's row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageProtocol {
    /// Stage.
    pub stage: Stage,
    /// Who.
    pub unit: Unit,
    /// In which layers of a run.
    pub when: When,
    /// Waits.
    pub waits: Vec<Wait>,
    /// Reads; what a wait polls counts as read without standing here.
    pub reads: Vec<Access>,
    /// Writes.
    pub writes: Vec<Access>,
}

/// The protocol: a value, so that tests can break it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Stages in the order in which every workgroup walks them.
    pub walk: Vec<StageProtocol>,
    /// Halves of the peer buffer that consecutive steps take turns in.
    pub halves: u32,
    /// Whether a step's last launch clears rows beyond its width in its half (`stages/scrub.hpp`).
    pub clears: bool,
}

const fn wait(region: Region, extent: Extent) -> Wait {
    Wait { region, extent, previous_layer: false, when: When::Always }
}

const fn read(exchange: Exchange, extent: Extent, phase: Phase) -> Access {
    Access { exchange, extent, part: Part::All, previous_layer: false, phase, when: When::Always }
}

const fn write(exchange: Exchange, part: Part) -> Access {
    Access { part, ..read(exchange, Extent::Task, Phase::Tasks) }
}

impl Wait {
    const fn when(self, when: When) -> Self {
        Self { when, ..self }
    }
}

impl Access {
    const fn when(self, when: When) -> Self {
        Self { when, ..self }
    }
    const fn at(self, phase: Phase) -> Self {
        Self { phase, ..self }
    }
}

impl StageProtocol {
    fn new(stage: Stage, unit: Unit, when: When) -> Self {
        Self { stage, unit, when, waits: Vec::new(), reads: Vec::new(), writes: Vec::new() }
    }
    fn waits(mut self, waits: impl IntoIterator<Item = Wait>) -> Self {
        self.waits.extend(waits);
        self
    }
    fn reads(mut self, reads: impl IntoIterator<Item = Access>) -> Self {
        self.reads.extend(reads);
        self
    }
    fn writes(mut self, writes: impl IntoIterator<Item = Access>) -> Self {
        self.writes.extend(writes);
        self
    }
}

/// Stages of the attention half, up to the output projection.
fn attention_half() -> [StageProtocol; 5] {
    [
        StageProtocol::new(Stage::AttentionDots, Unit::Wave, When::Whole)
            .waits([Wait { previous_layer: true, ..wait(Region::Output, Extent::Columns).when(When::LaterInRun) }])
            .reads([
                read(M(Memory::Prefix), Extent::Task, Phase::Tasks),
                read(M(Memory::Blocks), Extent::Task, Phase::Tasks),
                read(M(Memory::Delta), Extent::Task, Phase::Tasks).when(When::FirstOfRun),
            ])
            .writes([
                write(M(Memory::Prefix), Part::All),
                write(M(Memory::Blocks), Part::All).when(When::BlockWrite),
                write(R(Region::AttentionDots), Part::All),
            ]),
        StageProtocol::new(Stage::AttentionMix, Unit::Wave, When::Whole)
            .waits([wait(Region::AttentionDots, Extent::Row)])
            .reads([read(R(Region::AttentionDots), Extent::Row, Phase::Tasks)])
            .writes([write(R(Region::AttentionX), Part::All)]),
        StageProtocol::new(Stage::InProj, Unit::Workgroup, When::Whole)
            .waits([wait(Region::AttentionX, Extent::All)])
            .reads([read(R(Region::AttentionX), Extent::All, Phase::Entry)])
            .writes([write(R(Region::Proj), Part::All)]),
        StageProtocol::new(Stage::Kda, Unit::Workgroup, When::Whole)
            .waits([wait(Region::Proj, Extent::All)])
            .reads([
                read(R(Region::Proj), Extent::All, Phase::Tasks),
                read(M(Memory::ConvState), Extent::Head, Phase::Tasks),
                read(M(Memory::RecurrentState), Extent::Task, Phase::Tasks),
            ])
            .writes([write(M(Memory::RecurrentState), Part::All), write(R(Region::Core), Part::All)]),
        StageProtocol::new(Stage::OProj, Unit::Workgroup, When::Always)
            .waits([wait(Region::Core, Extent::All).when(When::Whole)])
            .reads([
                read(R(Region::Core), Extent::All, Phase::Entry).when(When::Whole),
                read(R(Region::Proj), Extent::All, Phase::Tail).when(When::Whole),
            ])
            .writes([
                write(R(Region::AttentionOut), Part::All),
                write(M(Memory::ConvState), Part::All).at(Phase::Tail).when(When::Whole),
            ]),
    ]
}

/// Stages of the MLP half, up to the routing.
fn mlp_half() -> [StageProtocol; 4] {
    [
        StageProtocol::new(Stage::MlpDots, Unit::Wave, When::Always)
            .waits([wait(Region::AttentionOut, Extent::Columns)])
            .reads([
                read(M(Memory::Prefix), Extent::Task, Phase::Tasks).when(When::NoBlockWrite),
                read(M(Memory::Blocks), Extent::Task, Phase::Tasks),
            ])
            .writes([write(M(Memory::Prefix), Part::All), write(R(Region::MlpDots), Part::All)]),
        StageProtocol::new(Stage::MlpMix, Unit::Wave, When::Always)
            .waits([wait(Region::MlpDots, Extent::Row)])
            .reads([read(R(Region::MlpDots), Extent::Row, Phase::Tasks)])
            .writes([write(R(Region::MlpX), Part::All)]),
        StageProtocol::new(Stage::MoeIn, Unit::Workgroup, When::Always)
            .waits([wait(Region::MlpX, Extent::All)])
            .reads([read(R(Region::MlpX), Extent::All, Phase::Entry)])
            .writes([
                write(R(Region::Logits), Part::Router),
                write(R(Region::Latent), Part::Latent),
                write(R(Region::SharedHidden), Part::Shared),
            ]),
        StageProtocol::new(Stage::Route, Unit::EveryWorkgroup, When::Always)
            .waits([wait(Region::Logits, Extent::All), wait(Region::Latent, Extent::All)])
            .writes([write(M(Memory::Routing), Part::All).at(Phase::BeforeEntry)]),
    ]
}

/// Stages behind the routing.
fn expert_half() -> [StageProtocol; 6] {
    [
        StageProtocol::new(Stage::ExpertUp, Unit::Routed, When::Always)
            .reads([read(M(Memory::Routing), Extent::Workgroup, Phase::Tasks)])
            .writes([write(R(Region::ExpertHidden), Part::All)]),
        StageProtocol::new(Stage::ExpertDown, Unit::EveryWorkgroup, When::Always)
            .waits([wait(Region::ExpertHidden, Extent::All).when(When::HasTask)])
            .waits([wait(Region::SharedHidden, Extent::All)])
            .reads([
                read(R(Region::ExpertHidden), Extent::All, Phase::Tasks).when(When::HasTask),
                read(M(Memory::Routing), Extent::Workgroup, Phase::Tasks),
            ])
            .writes([write(R(Region::LatentOut), Part::All)]),
        StageProtocol::new(Stage::SharedDown, Unit::Joined, When::Always)
            .reads([read(R(Region::SharedHidden), Extent::All, Phase::Entry)])
            .writes([write(M(Memory::OwnSums), Part::Own), write(R(Region::Output), Part::Others)]),
        StageProtocol::new(Stage::LatentNorm, Unit::Wave, When::Always)
            .waits([wait(Region::LatentOut, Extent::Columns)])
            .writes([write(R(Region::LatentZ), Part::All)]),
        StageProtocol::new(Stage::Up, Unit::Workgroup, When::Always)
            .waits([wait(Region::LatentZ, Extent::All)])
            .reads([read(R(Region::LatentZ), Extent::All, Phase::Entry)])
            .reads([read(M(Memory::OwnSums), Extent::Task, Phase::Tasks)])
            .writes([write(R(Region::Output), Part::All)]),
        StageProtocol::new(Stage::Output, Unit::Wave, When::LastOfRun)
            .waits([wait(Region::Output, Extent::Columns)])
            .writes([write(M(Memory::Delta), Part::All), write(M(Memory::Epoch), Part::First).when(When::StepEnd)]),
    ]
}

impl Protocol {
    /// What `kernels/layers.hip` does.
    pub fn shipped() -> Self {
        let walk = attention_half().into_iter().chain(mlp_half()).chain(expert_half()).collect();
        Self { walk, halves: 2, clears: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::NUM_STAGES;

    #[test]
    fn the_walk_is_the_abis_order() {
        let walk: Vec<u32> = Protocol::shipped().walk.iter().map(|row| row.stage as u32).collect();
        assert_eq!(walk, (0..NUM_STAGES).collect::<Vec<_>>());
    }

    #[test]
    fn every_region_is_written_and_waited_for() {
        let protocol = Protocol::shipped();
        for region in Region::ALL {
            let mut writes = protocol.walk.iter().flat_map(|row| &row.writes);
            let mut waits = protocol.walk.iter().flat_map(|row| &row.waits);
            assert!(writes.any(|w| w.exchange == Exchange::Region(region)) && waits.any(|w| w.region == region));
        }
    }
}
