//! Hazards of a peer buffer (spec/runtime.md §0 points 7 and 9, §5.5), each shown not to exist here.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::ops::Range;

use specdec_core::abi::{MAX_RANKS, MAX_ROWS};
use specdec_core::geometry::{Shard, ALL};
use specdec_core::ids::Rank;
use specdec_core::layout::{Layout, Region};
use specdec_core::peer::{PairPlace, PeerLayout, PAIR_BYTES};
use specdec_core::tag::Epoch;

fn every_shard() -> impl Iterator<Item = Shard> {
    ALL.iter().flat_map(|geometry| (1..=MAX_RANKS).filter_map(|ranks| geometry.shard(ranks).ok()))
}

fn are_disjoint(mut spans: Vec<Range<u64>>) -> bool {
    spans.sort_by_key(|span| span.start);
    spans.windows(2).all(|pair| pair[0].end <= pair[1].start)
}

/// First and last pair of each region that a step of `rows` rows uses, in bytes of a half: `mailbox.hpp`'s formulas.
fn used(shard: &Shard, rows: u32) -> Vec<(Region, Range<u64>)> {
    let layout = Layout::new(shard);
    let geometry = &shard.geometry;
    let partial = |width: u32| u64::from(((shard.ranks - 1) * MAX_ROWS + rows) * width) * 4;
    let sizes = [
        (Region::AttentionOut, partial(geometry.hidden)),
        (Region::Logits, u64::from(rows * geometry.experts) * 8),
        (Region::Latent, u64::from(rows * geometry.latent) * 4),
        (Region::LatentOut, partial(geometry.latent)),
        (Region::Output, partial(geometry.hidden)),
    ];
    sizes.map(|(region, bytes)| (region, layout.place(region).data..layout.place(region).data + bytes)).into()
}

#[test]
fn tags_never_lie_where_plain_data_may() {
    for shard in every_shard() {
        let layout = Layout::new(&shard);
        // Scratch: tags are flags. No byte of a flag belongs to any region's data, whatever the step's width.
        let mut spans = Vec::new();
        for place in layout.places.iter().filter(|place| place.flags.is_some()) {
            let flags = place.flags.unwrap();
            spans.extend([place.data..place.data + place.data_bytes, flags..flags + 4 * u64::from(place.num_flags)]);
        }
        assert!(spans.iter().all(|span| span.end <= layout.scratch_bytes));
        assert!(are_disjoint(spans), "{} on {} ranks", shard.geometry.name, shard.ranks);
        // Peer memory: there is nothing but pairs behind the head.
        let peer = PeerLayout::new(&shard);
        for rows in 1..=MAX_ROWS {
            for (region, span) in used(&shard, rows) {
                for offset in [span.start, span.end - PAIR_BYTES] {
                    let found = peer.pair_at(peer.head_bytes + offset).map(|pair| pair.region);
                    assert_eq!(found, Some(region), "{rows} rows");
                }
            }
        }
    }
}

#[test]
fn parity_halves_have_one_size_whatever_the_width() {
    for shard in every_shard() {
        let peer = PeerLayout::new(&shard);
        let (even, odd) = (peer.half(Epoch(0)), peer.half(Epoch(1)));
        assert_eq!((even.end, odd.end), (odd.start, peer.bytes()));
        assert_eq!(even.end - even.start, odd.end - odd.start);
        for epoch in [0, 1, 7, 1 << 24, u32::MAX].map(Epoch) {
            assert_eq!(peer.half(epoch), if epoch.0 % 2 == 0 { even.clone() } else { odd.clone() });
        }
        // What a wide step uses of one half never reaches what a narrow one uses of the other.
        for (wide, narrow) in [(MAX_ROWS, 1), (MAX_ROWS, 2), (8, 4)] {
            for (_, wide) in used(&shard, wide) {
                assert!(wide.end <= peer.half_bytes);
                assert!(used(&shard, narrow)
                    .iter()
                    .all(|(_, narrow)| even.start + wide.end <= odd.start + narrow.start));
            }
        }
    }
}

#[test]
fn every_region_is_inside_its_half_and_no_two_share_a_byte() {
    for shard in every_shard() {
        let peer = PeerLayout::new(&shard);
        for epoch in [Epoch(4), Epoch(5)] {
            let half = peer.half(epoch);
            let spans: Vec<_> = peer.regions.iter().filter_map(|place| peer.region(epoch, place.region)).collect();
            assert_eq!(spans.len(), 5);
            assert!(spans.iter().all(|span| half.start <= span.start && span.end <= half.end && span.start < span.end));
            assert!(are_disjoint(spans));
        }
        assert_eq!(peer.region(Epoch(0), Region::Proj), None, "plain data is in scratch");
        assert_eq!(peer.bytes(), Layout::new(&shard).peer_bytes());
    }
}

#[test]
fn alarm_words_are_outside_the_halves_one_for_each_rank() {
    for shard in every_shard() {
        let peer = PeerLayout::new(&shard);
        let words: Vec<_> = (0..MAX_RANKS as u8).map(|rank| peer.alarm(Rank(rank))).collect();
        assert!(words.iter().all(|word| word.end <= peer.half(Epoch(0)).start && peer.pair_at(word.start).is_none()));
        assert!(are_disjoint(words));
    }
}

#[test]
fn a_pair_is_found_where_it_was_put() {
    for shard in every_shard() {
        let peer = PeerLayout::new(&shard);
        for (parity, epoch) in [(0, Epoch(2)), (1, Epoch(3))] {
            for place in &peer.regions {
                let span = peer.region(epoch, place.region).unwrap();
                let last = (span.end - span.start) / PAIR_BYTES - 1;
                for pair in [0, 1, last] {
                    let expected = PairPlace { parity, region: place.region, pair };
                    assert_eq!(peer.pair_at(span.start + pair * PAIR_BYTES), Some(expected));
                }
            }
        }
        assert_eq!(peer.pair_at(peer.bytes()), None);
    }
}
