//! The small worlds: two ranks, two or three workgroups each, two layers, in the smallest geometry that the planner
//! accepts: every stage then has a task on each of two workgroups.

use specdec_core::abi::StageTasks;
use specdec_core::event_graph::{LayerShape, World};
use specdec_core::geometry::{Geometry, NANO};
use specdec_core::tasks::{StepShape, TaskTable};

use crate::walk::StepKind;

/// Two layers in one launch.
pub const ONE_LAUNCH: [LayerShape; 2] = [LayerShape::WHOLE, LayerShape::WHOLE];
/// One layer.
pub const ONE_LAYER: [LayerShape; 1] = [LayerShape::WHOLE];
/// The half of an MLA layer, then a whole layer, a launch each: the attention's regions are used once a step.
pub const FFN_THEN_WHOLE: [LayerShape; 2] = [LayerShape::FFN, LayerShape::WHOLE.in_new_launch()];
/// A launch each.
pub const TWO_LAUNCHES: [LayerShape; 2] = [LayerShape::WHOLE, LayerShape::WHOLE.in_new_launch()];

/// The smallest model that two ranks can share.
fn geometry() -> Geometry {
    Geometry { name: "small", experts: 32, top_k: 1, grid: 2, ..NANO }
}

/// A world of two ranks. Its own tables are not used: a step's kind brings its own.
pub fn small(grid: u32, layers: &[LayerShape]) -> World {
    let shard = Geometry { grid, ..geometry() }.shard(2).unwrap();
    World::new(&shard, grid, shape(1), layers).unwrap()
}

/// One request of so many rows. The kernels serve two and more; the table's rules hold for one as well.
const fn shape(rows: u32) -> StepShape {
    StepShape { requests: 1, rows_per_request: rows }
}

/// A step of so many rows, on every workgroup.
pub fn step(world: &World, rows: u32) -> StepKind {
    let grid = world.tables[0].grid;
    let table = TaskTable::new(&world.shard, shape(rows), grid).unwrap();
    StepKind { table, producers: vec![grid; world.layers.len()], abandoned_behind: None }
}

/// A step of one row on three workgroups, of which the last has no task but those that all have.
pub fn step_without_a_task_for_all(world: &World) -> StepKind {
    let mut kind = step(world, 1);
    for stage in &mut kind.table.stages {
        *stage = StageTasks { tasks: stage.tasks, head_ctas: 2, head_tasks: stage.tasks, reserved: 0 };
    }
    kind.table.orders = vec![vec![0, 1, 2]; kind.table.orders.len()];
    kind.producers = vec![2; world.layers.len()];
    kind
}
