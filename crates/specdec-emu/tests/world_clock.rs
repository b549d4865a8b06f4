//! The rule by which clocks of processes keep together, over any states of the processes.
#![allow(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use proptest::collection::vec;
use proptest::prelude::*;
use specdec_emu::machine::world_clock::{at_end, at_start, is_deadlock, limit, Doing, Member};

const STORES: u64 = 7;
const NOW_NS: u64 = 1_000_000;

fn doing() -> impl Strategy<Value = Doing> {
    prop_oneof![
        (0..NOW_NS).prop_map(|since_ns| Doing::Host { since_ns }),
        Just(Doing::Running),
        (0u64..200_000, STORES - 1..=STORES, any::<bool>()).prop_map(|(event, seen, is_stuck)| Doing::Waiting {
            event,
            seen,
            is_stuck
        }),
        Just(Doing::Gone),
    ]
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    let member = (0u64..100_000, doing()).prop_map(|(ticks, doing)| Member { ticks, doing });
    vec(member, 0..9)
}

/// Ticks of a member in host code: its own, and 100 a microsecond since.
fn by_wall(member: &Member, since_ns: u64) -> u64 {
    member.ticks + (NOW_NS - since_ns) / 10
}

proptest! {
    #[test]
    fn nobody_who_could_store_is_passed(members in members()) {
        let found = limit(&members, STORES, NOW_NS);
        prop_assert_eq!(found.is_none(), members.iter().all(|member| member.doing == Doing::Gone));
        for member in &members {
            let earliest = match member.doing {
                Doing::Gone => continue,
                Doing::Running => member.ticks,
                Doing::Host { since_ns } => by_wall(member, since_ns),
                Doing::Waiting { seen, .. } if seen != STORES => member.ticks,
                Doing::Waiting { event, .. } => event.max(member.ticks),
            };
            prop_assert!(found.unwrap() <= earliest, "{member:?} could store at {earliest}, but {found:?}");
        }
    }

    #[test]
    fn of_those_who_all_wait_the_first_goes_on(
        waits in vec((0u64..1000, 0u64..1000), 1..9),
        gone in 0usize..3,
    ) {
        let wait = |&(ticks, more)| {
            let doing = Doing::Waiting { event: ticks + more, seen: STORES, is_stuck: false };
            Member { ticks, doing }
        };
        let mut members: Vec<Member> = waits.iter().map(wait).collect();
        members.resize(members.len() + gone, Member { ticks: 0, doing: Doing::Gone });
        let may_go = |index: usize| {
            let mut others = members.clone();
            let Doing::Waiting { event, .. } = others.remove(index).doing else { return false };
            limit(&others, STORES, NOW_NS).is_none_or(|limit| event <= limit)
        };
        let first = waits.iter().map(|(ticks, more)| ticks + more).min().unwrap();
        for (index, (ticks, more)) in waits.iter().enumerate() {
            prop_assert_eq!(may_go(index), ticks + more == first);
        }
    }

    #[test]
    fn a_run_starts_no_later_than_the_slowest_and_the_wall_allow(
        ticks in 0u64..100_000, since_ns in 0..NOW_NS, others in members(),
    ) {
        let found = at_start(ticks, since_ns, &others, NOW_NS);
        prop_assert!(found >= ticks && found <= ticks + (NOW_NS - since_ns) / 10);
        let slow = |other: &&Member| matches!(other.doing, Doing::Running | Doing::Waiting { .. });
        for other in others.iter().filter(slow) {
            prop_assert!(found <= ticks.max(other.ticks));
        }
    }

    #[test]
    fn a_run_ends_with_the_slowest(ticks in 0u64..100_000, others in members()) {
        let found = at_end(ticks, &others, NOW_NS);
        prop_assert!(found >= ticks);
        let clocks: Vec<u64> = others.iter().filter_map(|other| other.clock(NOW_NS)).collect();
        prop_assert_eq!(found, clocks.into_iter().min().map_or(ticks, |slowest| slowest.max(ticks)));
    }

    #[test]
    fn a_deadlock_is_one_only_if_nobody_can_act(members in members()) {
        let can_act = |member: &Member| match member.doing {
            Doing::Gone => false,
            Doing::Waiting { seen, is_stuck, .. } => seen != STORES || !is_stuck,
            Doing::Host { .. } | Doing::Running => true,
        };
        prop_assert_eq!(is_deadlock(&members, STORES), !members.iter().any(can_act));
    }
}
