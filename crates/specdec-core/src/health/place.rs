//! What lies at the byte that a wait did not get: from a record's offset to region, source, row and columns.

use std::fmt;

use serde::Serialize;

use super::stage_name;
use crate::abi::{Stage, MAX_ROWS, PEER_HEAD_BYTES, SLICE};
use crate::geometry::Shard;
use crate::ids::Rank;
use crate::layout::{Layout, Region};
use crate::peer::PeerLayout;
use crate::protocol::{is_pairs, Exchange, Protocol};

/// Bytes of a flag.
const FLAG_BYTES: u64 = 4;

/// A word that a wait wanted, by what it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WaitPlace {
    /// Region.
    pub region: Region,
    /// The stage that stores it.
    pub producer: u32,
    /// The rank that stores it; `None` for the waiting rank itself.
    pub source: Option<Rank>,
    /// Row, and first and last column, where the word belongs to one row.
    pub cell: Option<(u32, u32, u32)>,
    /// Number of the flag or pair in its region.
    pub index: u64,
}

impl WaitPlace {
    /// The word at `offset` in the buffer in which `stage` waits: its peer buffer past the head, or its scratch.
    pub fn at(shard: &Shard, stage: u32, offset: u32) -> Option<Self> {
        let waits = Protocol::shipped();
        let is_peer =
            waits.walk.iter().any(|row| row.stage as u32 == stage && row.waits.iter().any(|w| is_pairs(w.region)));
        if is_peer {
            let pair = PeerLayout::new(shard).pair_at(u64::from(PEER_HEAD_BYTES) + u64::from(offset))?;
            Self::of_pair(shard, pair.region, pair.pair)
        } else {
            Self::of_flag(shard, u64::from(offset))
        }
    }

    fn of_pair(shard: &Shard, region: Region, index: u64) -> Option<Self> {
        let geometry = &shard.geometry;
        let pair = u32::try_from(index).ok()?;
        let partial = |width: u32| {
            let (source, row) = (pair / (MAX_ROWS * width / 2), pair / (width / 2) % MAX_ROWS);
            let column = pair % (width / 2) * 2;
            (source, row, column, column + 1)
        };
        let (source, row, first, last) = match region {
            Region::AttentionOut | Region::Output => partial(geometry.hidden),
            Region::LatentOut => partial(geometry.latent),
            Region::Latent => {
                let (row, column) = (pair / (geometry.latent / 2), pair % (geometry.latent / 2) * 2);
                (column / shard.latent_rows(), row, column, column + 1)
            }
            _ => {
                let (row, expert) = (pair / geometry.experts, pair % geometry.experts);
                (expert / shard.router_rows(), row, expert, expert)
            }
        };
        // A rank pushes other ranks' columns behind its shared experts, and its own ones behind the up projection.
        let owns = first / shard.up_rows() == source;
        let producer = match region {
            Region::Output => {
                if owns {
                    Stage::Up
                } else {
                    Stage::SharedDown
                }
            }
            _ => writer(region)?,
        };
        let cell = Some((row, first, last));
        Some(Self { region, producer: producer as u32, source: Some(Rank(source as u8)), cell, index })
    }

    fn of_flag(shard: &Shard, offset: u64) -> Option<Self> {
        let layout = Layout::new(shard);
        let (place, flags) = layout.places.iter().find_map(|place| {
            let flags = place.flags?;
            (flags..flags + FLAG_BYTES * u64::from(place.num_flags)).contains(&offset).then_some((place, flags))
        })?;
        let index = (offset - flags) / FLAG_BYTES;
        let slices = match place.region {
            Region::AttentionDots | Region::AttentionX | Region::MlpDots | Region::MlpX => Some(shard.slices()),
            Region::LatentZ => Some(shard.latent_slices()),
            _ => None,
        };
        let cell = slices.map(|slices| {
            let (row, slice) = (index as u32 / slices, index as u32 % slices);
            (row, slice * SLICE, slice * SLICE + SLICE - 1)
        });
        Some(Self { region: place.region, producer: writer(place.region)? as u32, source: None, cell, index })
    }
}

impl fmt::Display for WaitPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of stage {}", self.region.name(), stage_name(self.producer))?;
        match (self.region, self.cell) {
            (Region::Logits, Some((row, expert, _))) => write!(f, ", row {row}, expert {expert}"),
            (_, Some((row, first, last))) => write!(f, ", row {row}, columns {first} to {last}"),
            (_, None) => write!(f, ", workgroup at place {}", self.index),
        }
    }
}

/// The first stage that writes a region.
fn writer(region: Region) -> Option<Stage> {
    let protocol = Protocol::shipped();
    let mut walk = protocol.walk.iter();
    walk.find(|row| row.writes.iter().any(|w| w.exchange == Exchange::Region(region))).map(|row| row.stage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::{K3, NANO};

    #[test]
    fn a_stage_waits_in_one_buffer_only() {
        for row in Protocol::shipped().walk {
            let pairs = row.waits.iter().filter(|wait| is_pairs(wait.region)).count();
            assert!(pairs == 0 || pairs == row.waits.len(), "{:?}", row.stage);
        }
    }

    /// Offsets as the kernels compute them (`mailbox.hpp`, `route.hpp`), read back.
    #[test]
    fn every_pair_of_every_rank_is_read_back() {
        for (geometry, ranks) in [(&K3, 8), (&NANO, 2), (&NANO, 1)] {
            let shard = geometry.shard(ranks).unwrap();
            let layout = Layout::new(&shard);
            let (hidden, latent) = (geometry.hidden, geometry.latent);
            for parity in [0, layout.peer_half_bytes] {
                let at = |stage: Stage, region: Region, offset: u32| {
                    let offset = parity + layout.place(region).data + u64::from(offset);
                    WaitPlace::at(&shard, stage as u32, offset as u32).unwrap()
                };
                for (source, row, column) in
                    (0..ranks).flat_map(|s| (0..MAX_ROWS).flat_map(move |r| [0, 2, 254].map(|c| (s, r, c))))
                {
                    for (stage, region, width) in [
                        (Stage::MlpDots, Region::AttentionOut, hidden),
                        (Stage::LatentNorm, Region::LatentOut, latent),
                        (Stage::Output, Region::Output, hidden),
                        (Stage::AttentionDots, Region::Output, hidden),
                    ] {
                        let place = at(stage, region, ((source * MAX_ROWS + row) * width + column) * 4);
                        assert_eq!(
                            (place.region, place.source, place.cell),
                            (region, Some(Rank(source as u8)), Some((row, column, column + 1)))
                        );
                    }
                    let own = source * shard.latent_rows() + column % shard.latent_rows();
                    let place = at(Stage::Route, Region::Latent, (row * latent + own) * 4);
                    assert_eq!(
                        (place.region, place.source, place.cell),
                        (Region::Latent, Some(Rank(source as u8)), Some((row, own, own + 1)))
                    );
                    let expert = source * shard.router_rows() + column % shard.router_rows();
                    let place = at(Stage::Route, Region::Logits, (row * geometry.experts + expert) * 8);
                    assert_eq!(
                        (place.region, place.source, place.cell),
                        (Region::Logits, Some(Rank(source as u8)), Some((row, expert, expert)))
                    );
                    assert_eq!(place.producer, Stage::MoeIn as u32);
                }
            }
        }
    }

    #[test]
    fn output_comes_from_up_where_the_source_owns_the_columns() {
        let shard = NANO.shard(2).unwrap();
        let producer = |source: u32, column: u32| {
            let offset = Layout::new(&shard).place(Region::Output).data as u32 + (source * MAX_ROWS * 256 + column) * 4;
            WaitPlace::at(&shard, Stage::Output as u32, offset).map(|place| place.producer)
        };
        assert_eq!((producer(0, 0), producer(0, 128)), (Some(Stage::Up as u32), Some(Stage::SharedDown as u32)));
        assert_eq!((producer(1, 0), producer(1, 128)), (Some(Stage::SharedDown as u32), Some(Stage::Up as u32)));
    }

    #[test]
    fn flags_are_a_slice_of_a_row_or_a_workgroup() {
        let shard = K3.shard(8).unwrap();
        let layout = Layout::new(&shard);
        let words = |stage: Stage, region: Region, flag: u32| {
            let flags = layout.place(region).flags.unwrap() as u32;
            WaitPlace::at(&shard, stage as u32, flags + 4 * flag).map(|place| place.to_string())
        };
        let expected = "mlp_x of stage mlp_mix, row 1, columns 384 to 511";
        assert_eq!(words(Stage::MoeIn, Region::MlpX, 56 + 3).as_deref(), Some(expected));
        let expected = "latent_z of stage latent_norm, row 2, columns 0 to 127";
        assert_eq!(words(Stage::Up, Region::LatentZ, 56).as_deref(), Some(expected));
        assert_eq!(words(Stage::Kda, Region::Proj, 9).as_deref(), Some("proj of stage in_proj, workgroup at place 9"));
        let expected = "shared_hidden of stage moe_in, workgroup at place 3";
        assert_eq!(words(Stage::SharedDown, Region::SharedHidden, 3).as_deref(), Some(expected));
        // Data is no flag, and what lies past everything is nothing.
        assert_eq!(WaitPlace::at(&shard, Stage::Kda as u32, layout.place(Region::Proj).data as u32), None);
        assert_eq!(WaitPlace::at(&shard, Stage::Output as u32, u32::MAX), None);
    }
}
