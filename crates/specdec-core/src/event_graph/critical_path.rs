//! Hops on a layer's critical path: the longest chain of exchanges from its input to its output.

use std::fmt::Write as _;

use serde::Serialize;

use super::build::Builder;
use super::hazard::Hazard;
use super::{LayerShape, World};
use crate::abi::Stage;
use crate::geometry::Shard;
use crate::health::stage_name;
use crate::layout::Region;
use crate::tasks::{StepShape, TaskTable};

/// One exchange of the chain: a stage publishes, a later one waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// What is handed over.
    pub region: Region,
    /// Name of the stage that publishes it.
    pub from: &'static str,
    /// Name of the stage that waits for it.
    pub to: &'static str,
    /// Whether it crosses ranks.
    pub between_ranks: bool,
}

/// The hops of one layer that is a launch of its own; its last one brings the output to every rank. In a longer run the
/// next layer's first stage takes it instead, so that a run of n layers has n times as many.
pub fn critical_path(shard: &Shard, table: &TaskTable, layer: LayerShape) -> Result<Vec<Hop>, Vec<Hazard>> {
    let world = World::new(shard, table.grid, table.shape, &[layer]).map_err(|e| vec![Hazard::from(e)])?;
    hops(&World { tables: vec![table.clone()], ..world })
}

/// The longest chain of waits of a whole world.
fn hops(world: &World) -> Result<Vec<Hop>, Vec<Hazard>> {
    let mut builder = Builder::new(world);
    builder.build();
    let hazards = std::mem::take(&mut builder.hazards);
    if !hazards.is_empty() {
        return Err(hazards);
    }
    let Ok(frozen) = builder.graph.freeze() else { return world.check().map(|_| Vec::new()) };
    let mut weights = vec![0; builder.graph.sites.len()];
    let mut carried = vec![None; weights.len()];
    let mut nodes = vec![0; weights.len()];
    for (node, place) in frozen.place.iter().enumerate() {
        nodes[*place as usize] = node;
    }
    for (hub, region) in &builder.carried {
        let place = frozen.place[*hub as usize] as usize;
        weights[place] = 1;
        carried[place] = Some(*region);
    }
    let path = frozen.longest(&weights);
    let name = |place: u32| {
        let stage: Option<Stage> = builder.graph.sites[nodes[place as usize]].stage;
        stage.map_or("launch", |stage| stage_name(stage as u32))
    };
    let hops = path.iter().enumerate().filter_map(|(index, place)| {
        let region = carried[*place as usize]?;
        let from = index.checked_sub(1).map_or("launch", |before| name(path[before]));
        Some(Hop { region, from, to: name(*place), between_ranks: crate::protocol::is_pairs(region) })
    });
    Ok(hops.collect())
}

/// Kinds of layers, for tables.
pub const KINDS: [(&str, LayerShape); 3] =
    [("whole", LayerShape::WHOLE), ("whole, writes a block", LayerShape::BLOCK_WRITE), ("ffn", LayerShape::FFN)];

/// The hops of every kind of layer as a Markdown table.
pub fn hops_markdown(shard: &Shard, shape: StepShape) -> Result<String, Vec<Hazard>> {
    let table = TaskTable::new(shard, shape, shard.geometry.grid).map_err(|e| vec![Hazard::from(e)])?;
    let mut out = String::from("| layer | hops | exchanges |\n|---|---|---|\n");
    for (kind, layer) in KINDS {
        let hops = critical_path(shard, &table, layer)?;
        let names: Vec<&str> = hops.iter().map(|hop| hop.region.name()).collect();
        // Writing to a `String` cannot fail.
        let _ = writeln!(out, "| {kind} | {} | {} |", hops.len(), names.join(", "));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::MAX_ROWS;
    use crate::geometry::{K3, NANO};

    fn names(hops: &[Hop]) -> Vec<&'static str> {
        hops.iter().map(|hop| hop.region.name()).collect()
    }

    fn path(shard: &Shard, shape: StepShape, layer: LayerShape) -> Vec<Hop> {
        let Ok(table) = TaskTable::new(shard, shape, shard.geometry.grid) else { panic!("a table") };
        match critical_path(shard, &table, layer) {
            Ok(hops) => hops,
            Err(hazards) => panic!("{hazards:?}"),
        }
    }

    #[test]
    fn a_kda_layer_has_twelve_hops_and_half_an_mla_layer_eight() {
        let whole = [
            "attention_dots",
            "attention_x",
            "proj",
            "core",
            "attention_out",
            "mlp_dots",
            "mlp_x",
            "logits",
            "expert_hidden",
            "latent_out",
            "latent_z",
            "output",
        ];
        for (geometry, ranks) in [(&K3, 8), (&NANO, 2), (&NANO, 1)] {
            let Ok(shard) = geometry.shard(ranks) else { panic!("a split") };
            let shape = StepShape { requests: 1, rows_per_request: 2 };
            for layer in [LayerShape::WHOLE, LayerShape::BLOCK_WRITE] {
                assert_eq!(names(&path(&shard, shape, layer)), whole);
            }
            assert_eq!(names(&path(&shard, shape, LayerShape::FFN)), whole[4..]);
        }
    }

    #[test]
    fn the_hops_do_not_depend_on_the_width_and_chain() {
        let Ok(shard) = K3.shard(8) else { panic!("the published split") };
        for rows in [2, 4, 8, MAX_ROWS] {
            let hops = path(&shard, StepShape { requests: 1, rows_per_request: rows }, LayerShape::WHOLE);
            assert_eq!(hops.len(), 12, "{rows} rows");
            assert_eq!((hops[0].from, hops[11].to), ("attention_dots", "output"));
            assert_eq!(hops.iter().filter(|hop| hop.between_ranks).count(), 4);
        }
    }

    #[test]
    fn a_run_has_the_hops_of_each_of_its_layers() {
        let Ok(shard) = NANO.shard(2) else { panic!("a split") };
        let shape = StepShape { requests: 1, rows_per_request: 2 };
        let Ok(mut world) = World::new(&shard, NANO.grid, shape, &[LayerShape::WHOLE, LayerShape::WHOLE]) else {
            panic!("a table")
        };
        world.tables.truncate(1);
        assert_eq!(hops(&world).map(|hops| hops.len()), Ok(24));
    }
}
