//! Who goes first in each stage, so that every workgroup streams as many bytes of a whole layer as the others (spec:
//! DESIGN "Tasks").
//!
//! A stage's tiles seldom divide by the grid. Each stage therefore deals to the workgroups that have least so far; the
//! stage with the most and the least predictable tasks, the routed experts' first product, deals last and levels.

use crate::abi::{Stage, StageTasks, NUM_STAGES};
use crate::balance::task_bytes;
use crate::geometry::Shard;
use crate::tasks::StepShape;

/// Experts that a step is likely to pick, if rows pick independently.
fn expected_experts(shard: &Shard, shape: StepShape) -> u32 {
    let (experts, top_k) = (f64::from(shard.geometry.experts), f64::from(shard.geometry.top_k));
    (experts * (1.0 - (1.0 - top_k / experts).powi(shape.rows() as i32))).round() as u32
}

/// Bytes of every workgroup so far.
struct Loads(Vec<u64>);

impl Loads {
    /// These workgroups, those with least first.
    fn ascending(&self, mut ctas: Vec<u32>) -> Vec<u32> {
        ctas.sort_by_key(|cta| (self.0[*cta as usize], *cta));
        ctas
    }

    /// Deals `tasks` in turns.
    fn deal(&mut self, order: &[u32], tasks: u32, bytes: u64) {
        for cta in order.iter().cycle().take(tasks as usize) {
            self.0[*cta as usize] += bytes;
        }
    }
}

/// By `Stage`: the workgroup at each place.
pub fn orders(stages: &[StageTasks; NUM_STAGES as usize], shard: &Shard, shape: StepShape, grid: u32) -> Vec<Vec<u32>> {
    let identity: Vec<u32> = (0..grid).collect();
    let mut orders = vec![identity.clone(); NUM_STAGES as usize];
    let mut loads = Loads(vec![0; grid as usize]);
    let experts = expected_experts(shard, shape);
    let bytes = |stage| task_bytes(shard, stage, experts);
    // Coarse tiles first, fine ones level them. The recurrence streams no weights: it goes to those who wait.
    for stage in [Stage::InProj, Stage::Kda, Stage::MoeIn, Stage::OProj, Stage::ExpertDown] {
        let order = loads.ascending(identity.clone());
        let row = stages[stage as usize];
        loads.deal(&order[..row.head_ctas as usize], row.tasks, bytes(stage));
        orders[stage as usize] = order;
    }
    // Workgroups with a tile of `ExpertDown` come first in `SharedDown`; `Up` adds to what those keep.
    let (down, shared) = (&orders[Stage::ExpertDown as usize], stages[Stage::SharedDown as usize]);
    let (head, others) = down.split_at(shared.head_ctas as usize);
    let (head, others) = (loads.ascending(head.to_vec()), loads.ascending(others.to_vec()));
    loads.deal(&head, stages[Stage::Up as usize].tasks, bytes(Stage::Up));
    loads.deal(&head, shared.head_tasks, bytes(Stage::SharedDown));
    if !others.is_empty() {
        loads.deal(&others, shared.tasks - shared.head_tasks, bytes(Stage::SharedDown));
    }
    let order = [head, others].concat();
    orders[Stage::SharedDown as usize].clone_from(&order);
    orders[Stage::Up as usize] = order;
    let order = loads.ascending(identity);
    orders[Stage::ExpertUp as usize].clone_from(&order);
    orders[Stage::LatentNorm as usize] = order;
    orders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::LayerKind;
    use crate::balance::{seeded_union, Balance};
    use crate::geometry::K3;
    use crate::tasks::TaskTable;

    /// Whole tiles allow no better than this at few rows; dealing every stage from the first workgroup on misses it.
    #[test]
    fn a_layer_of_kimi_k3_is_level() {
        let Ok(shard) = K3.shard(8) else { panic!("the published split") };
        for (requests, drafts, most) in [(1, 1, 1.09), (1, 3, 1.09), (2, 3, 1.06), (2, 7, 1.06)] {
            let Ok(mut table) = StepShape::new(requests, drafts).and_then(|s| TaskTable::new(&shard, s, K3.grid))
            else {
                panic!("a table")
            };
            let experts = seeded_union(&shard, table.shape.rows(), 0);
            let ratio = |table: &TaskTable| Balance::new(&shard, table, LayerKind::Whole, experts).layer.ratio;
            assert!(ratio(&table) < most, "{requests} x {drafts}: {}", ratio(&table));
            table.orders.iter_mut().for_each(|order| order.sort_unstable());
            assert!(ratio(&table) > most, "{requests} x {drafts}, unsorted: {}", ratio(&table));
        }
    }
}
