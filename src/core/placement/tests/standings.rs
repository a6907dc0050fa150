//! What operators want: cordons, drains, freezes, labels and pins; and the naming of what cannot be done.

use super::bounds::{busy_world, free_world, standing, with_avoids, with_pins, with_zones};
use super::world::{World, ix};
use crate::ids::PartitionId;
use crate::placement::{
    Constraint, Kept, Newly, Overfull, Pin, PinObstacle, Reason, Rules, Spot, Standing, UnmetPin, Unplaced,
    Vacancy, Weight, WorkerStanding,
};
use proptest::prelude::*;

fn ssd() -> Constraint {
    "disk=ssd".parse().unwrap()
}

fn movable(spot: &Spot) -> bool {
    matches!(spot.standing, Standing::Owned { movable: true, .. })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn f094_drained_and_ineligible_workers_end_empty_of_all_that_can_move(
        world in with_pins(with_zones(with_avoids(busy_world(8, 60), 60), 3, 8), 60),
    ) {
        let (after, plan) = world.planned();
        let anybody = (0..world.workers.len()).any(|worker| world.takes(ix(worker)));
        for (before, after) in world.spots.iter().zip(&after.spots).filter(|(before, _)| movable(before)) {
            let owner = after.counts_at().unwrap();
            let gives_up = world.workers[owner.get()].standing.gives_up();
            prop_assert!(!anybody || !gives_up, "{before:?} stayed");
        }
        // What stays on such a worker is named, with what keeps it.
        for (index, worker) in world.workers.iter().enumerate().filter(|(_, w)| w.standing.gives_up()) {
            let holds = after.loads()[index];
            let said = plan.overfull.iter().find(|overfull| overfull.worker == ix(index));
            prop_assert_eq!(said.map_or(0, |said| said.holds), holds, "{:?}", worker);
            if let Some(Overfull { kept: Kept { pinned, fixed, in_flight, by_rules, no_better_place }, .. }) = said {
                let kept = pinned + fixed + in_flight + by_rules + no_better_place;
                prop_assert_eq!(u64::from(kept), holds);
            }
        }
    }

    #[test]
    fn frozen_workers_are_left_as_they_are(
        world in with_pins(with_zones(with_avoids(busy_world(8, 60), 60), 3, 8), 60),
    ) {
        let (after, plan) = world.planned();
        for (before, after) in world.spots.iter().zip(&after.spots) {
            // What nobody owns goes to them when nobody takes partitions.
            let repaired = plan.takers.taking == 0 && matches!(before.standing, Standing::Vacant(_));
            for spot in [before, after] {
                let standing = spot.counts_at().map(|at| &world.workers[at.get()].standing);
                let frozen = standing.is_some_and(WorkerStanding::is_frozen);
                prop_assert!(!frozen || before == after || repaired);
            }
        }
    }

    /// A freeze is about balance: it must not keep partitions down, and it stays a freeze for all that has an owner.
    #[test]
    fn f089_what_nobody_else_may_have_goes_to_workers_that_are_only_frozen(
        world in with_pins(with_zones(with_avoids(busy_world(8, 60), 60), 3, 8), 60),
        keep in prop::collection::vec(any::<bool>(), 8),
    ) {
        // Nobody takes partitions: who did is frozen, or frozen and cordoned besides.
        let mut world = world;
        for at in 0..world.workers.len() {
            if world.workers[at].standing.takes() {
                world.set(at, if keep[at % 8] { WorkerStanding::Frozen } else { WorkerStanding::FrozenOut });
            }
        }
        let (after, plan) = world.planned();
        let stands_in = world.workers.iter().any(|worker| worker.standing == WorkerStanding::Frozen);
        let mut given = 0_usize;
        for (before, after) in world.spots.iter().zip(&after.spots) {
            let vacant = matches!(before.standing, Standing::Vacant(_));
            prop_assert!(vacant || before == after, "{:?} moved to {:?}", before, after);
            let Some(at) = after.counts_at().filter(|_| vacant) else {
                prop_assert!(!vacant || !stands_in, "{:?} is left down", before);
                continue;
            };
            prop_assert_eq!(&world.workers[at.get()].standing, &WorkerStanding::Frozen);
            given += 1;
        }
        prop_assert_eq!(plan.moves.len(), given);
        prop_assert!(plan.overfull.iter().all(|over| !world.workers[over.worker.get()].standing.is_frozen()));
        prop_assert!(after.plan().moves.is_empty(), "it settles");
    }

    #[test]
    fn f104_pins_are_met_when_their_workers_take_partitions_and_named_when_not(
        world in with_pins(with_zones(busy_world(8, 60), 3, 8), 60),
    ) {
        let (after, plan) = world.planned();
        for (number, spot) in (0..).zip(&world.spots).filter(|(_, spot)| spot.pin.is_some()) {
            let there = |spot: &Spot| spot.counts_at().map(Pin::To) == spot.pin;
            let free = match spot.standing {
                Standing::Vacant(_) => true,
                Standing::Owned { by, movable } => {
                    let stays = [WorkerStanding::Frozen, WorkerStanding::FrozenOut, WorkerStanding::Away];
                    movable && !stays.contains(&world.workers[by.get()].standing)
                }
                Standing::InFlight { .. } | Standing::Held => false,
            };
            let can_take = matches!(spot.pin, Some(Pin::To(worker)) if world.takes(worker));
            let met = there(&after.spots[number as usize]);
            prop_assert!(met || !(free && can_take), "{spot:?}");
            let said = plan.unmet_pins.iter().find(|unmet| unmet.partition == PartitionId::new(number));
            prop_assert_eq!(said.is_none(), met, "{:?}: {:?}", spot, said);
            let Some(said) = said else { continue };
            match said.why {
                PinObstacle::WorkerAbsent => prop_assert_eq!(spot.pin, Some(Pin::Absent)),
                PinObstacle::WorkerTakesNone => prop_assert!(!can_take && said.worker.is_some()),
                PinObstacle::RepairsOnly => prop_assert!(false, "nobody froze the keyspace"),
                _ => prop_assert!(can_take && !free),
            }
        }
    }

    #[test]
    fn f089_what_nobody_can_take_is_named_with_the_reason(
        standings in prop::collection::vec(standing(), 0..4),
        partitions in 1..10_usize,
    ) {
        let mut world = World::vacant(&vec![1; standings.len()], partitions);
        standings.iter().enumerate().for_each(|(worker, standing)| world.set(worker, standing.clone()));
        let plan = world.plan();
        let all = |wanted: &WorkerStanding| standings.iter().all(|standing| standing == wanted);
        let why = match standings.first() {
            None => Unplaced::NoWorkers,
            Some(_) if standings.iter().any(|s| [WorkerStanding::Takes, WorkerStanding::Frozen].contains(s)) => {
                prop_assert!(plan.unplaced.is_empty());
                return Ok(());
            }
            Some(first) if !all(first) => Unplaced::NoneTakes,
            Some(WorkerStanding::Cordoned) => Unplaced::AllCordoned,
            Some(WorkerStanding::Away) => Unplaced::AllAway,
            Some(WorkerStanding::Drained) => Unplaced::AllDrained,
            Some(WorkerStanding::FrozenOut) => Unplaced::AllFrozen,
            Some(_) => Unplaced::AllIneligible,
        };
        let all: Vec<_> = (0..partitions as u32).map(|number| (PartitionId::new(number), why)).collect();
        prop_assert_eq!(plan.unplaced, all);
        let ineligible = standings.iter().filter(|s| matches!(s, WorkerStanding::Ineligible(_))).count();
        prop_assert_eq!(plan.takers.ineligible.get(&ssd()).copied().unwrap_or(0), ineligible);
    }

    #[test]
    fn a_frozen_keyspace_has_only_repairs_and_loses_nothing_by_it(
        world in with_pins(with_zones(busy_world(8, 60), 3, 8), 60),
    ) {
        let mut frozen = world.clone();
        frozen.rules = Rules { repairs_only: true, ..Rules::default() };
        let (after, plan) = frozen.planned();
        prop_assert!(plan.moves.iter().all(|m| m.reason.is_repair()));
        let repairs = |moves: &[crate::placement::PlannedMove]| moves.iter().filter(|m| m.reason.is_repair()).count();
        prop_assert_eq!(plan.moves.len(), repairs(&world.plan().moves));
        prop_assert!(after.plan().moves.is_empty());
    }

    #[test]
    fn a_frozen_partition_is_repaired_and_not_moved(world in free_world(8, 60, 1..=4)) {
        let mut world = world;
        for spot in &mut world.spots {
            *spot = spot.counts_at().map_or(Spot::VACANT, Spot::fixed);
        }
        let vacant = world.spots.iter().filter(|spot| spot.counts_at().is_none()).count();
        let plan = world.plan();
        prop_assert_eq!((plan.moves.len(), plan.count(Reason::First)), (vacant, vacant));
    }

    #[test]
    fn f103_a_drain_moves_what_the_worker_had_and_nothing_else(
        workers in 2..12_usize,
        partitions in 1..150_usize,
        drained in any::<prop::sample::Index>(),
        by_label: bool,
    ) {
        let mut world = World::settled(&vec![1; workers], partitions);
        let drained = drained.index(workers);
        let (standing, reason) = if by_label {
            (WorkerStanding::Ineligible(ssd()), Reason::Label)
        } else {
            (WorkerStanding::Drained, Reason::Drain)
        };
        world.set(drained, standing);
        let had = world.loads()[drained] as usize;
        let (after, plan) = world.planned();
        prop_assert_eq!((plan.moves.len(), plan.count(reason), after.loads()[drained]), (had, had, 0));
        prop_assert!(plan.after.spread <= 1 && plan.overfull.is_empty());
        prop_assert!(after.plan().moves.is_empty());
    }
}

#[test]
fn a_drain_with_nobody_else_keeps_what_there_is_and_says_so() {
    let mut world = World::settled(&[1, 1], 6);
    world.set(0, WorkerStanding::Drained);
    world.set(1, WorkerStanding::Ineligible(ssd()));
    let plan = world.plan();
    assert_eq!((plan.moves.len(), plan.unplaced.len()), (0, 0));
    let kept = |overfull: &Overfull| (overfull.holds, overfull.share, overfull.kept.no_better_place);
    assert_eq!(plan.overfull.iter().map(kept).collect::<Vec<_>>(), [(3, 0, 3), (3, 0, 3)]);
    assert_eq!(plan.takers.to_string(), "1 drained, 1 ineligible (disk=ssd)");
}

#[test]
fn f104_a_worker_above_its_share_is_named_with_what_keeps_its_partitions() {
    let mut world = World::vacant(&[1, 1, 1], 9);
    for partition in 0..9 {
        world.spots[partition] = match partition {
            0..=2 => Spot::fixed(ix(0)),
            3 | 4 => Spot::owned(ix(0)).pinned(Pin::To(ix(0))),
            5 => Spot::in_flight(ix(0)),
            6 => Spot::owned(ix(0)),
            _ => Spot::owned(ix(1)),
        };
    }
    let plan = world.plan();
    let kept = Kept { pinned: 2, fixed: 3, in_flight: 1, ..Kept::default() };
    assert_eq!(plan.overfull, [Overfull { worker: ix(0), holds: 6, share: 3, kept }]);
    assert_eq!((plan.moves.len(), plan.moves[0].to, plan.shares), (1, ix(2), vec![3; 3]));

    world.rules.repairs_only = true;
    let kept = Kept { by_rules: 1, ..kept };
    assert_eq!(world.plan().overfull, [Overfull { worker: ix(0), holds: 7, share: 3, kept }]);
}

#[test]
fn f064_f093_a_pin_to_a_worker_that_is_gone_or_takes_none_holds_nothing_up() {
    let mut world = World::settled(&[1; 3], 9);
    let had =
        |world: &World, worker| world.spots.iter().position(|s| s.counts_at() == Some(ix(worker))).unwrap();
    let [lost, stays] = [had(&world, 0), had(&world, 1)];
    world.spots[lost] = Spot::vacant(Vacancy::Left).pinned(Pin::Absent);
    world.spots[stays].pin = Some(Pin::To(ix(2)));
    world.set(2, WorkerStanding::Cordoned);
    let plan = world.plan();
    assert!(plan.unplaced.is_empty());
    assert_eq!(plan.count(Reason::Leave), 1);
    let unmet = |partition: usize, worker, why| UnmetPin {
        partition: PartitionId::new(partition as u32),
        worker,
        why,
    };
    let mut expected = [
        unmet(lost, None, PinObstacle::WorkerAbsent),
        unmet(stays, Some(ix(2)), PinObstacle::WorkerTakesNone),
    ];
    expected.sort_by_key(|unmet| unmet.partition);
    assert_eq!(plan.unmet_pins, expected);

    world.set(2, WorkerStanding::Takes);
    let moves = world.plan().moves;
    let pinned = moves.iter().find(|m| m.reason == Reason::Pin).unwrap();
    assert_eq!((pinned.partition.get() as usize, pinned.to), (stays, ix(2)));
}

#[test]
fn f077_a_move_in_flight_and_a_wait_hold_up_no_other_partition() {
    let mut world = World::settled(&[1; 6], 60);
    let lost = world.loads()[5] as usize;
    world.leave(5);
    let stuck: Vec<usize> =
        (0..60).filter(|at| world.spots[*at].counts_at() == Some(ix(0))).take(2).collect();
    world.spots[stuck[0]] = Spot::in_flight(ix(1));
    world.spots[stuck[1]] = Spot::HELD;
    let plan = world.plan();
    assert_eq!(plan.moves.iter().filter(|m| m.reason.is_repair()).count(), lost);
    assert!(plan.moves.iter().all(|m| !stuck.contains(&(m.partition.get() as usize))));
}

#[test]
fn f080_a_worker_that_is_away_gives_nothing_and_gets_nothing() {
    let mut world = World::vacant(&[1; 3], 12);
    for (partition, spot) in world.spots.iter_mut().enumerate() {
        *spot = if partition < 9 { Spot::owned(ix(0)) } else { Spot::VACANT };
    }
    world.spots[0].pin = Some(Pin::To(ix(1)));
    world.set(0, WorkerStanding::Away);
    let plan = world.plan();
    assert_eq!((plan.moves.len(), plan.count(Reason::First)), (3, 3));
    assert_eq!(plan.after.partitions[0], 9);
    assert_eq!(plan.unmet_pins[0].why, PinObstacle::OwnerKeeps);
}

#[test]
fn f100_one_plan_has_all_moves_and_moves_nothing_twice() {
    let mut world = World::settled(&[1], 1_000);
    for number in 1..10 {
        let newcomer = world.join(&format!("w{number:03}"), 1);
        world.workers[newcomer.get()].newly = Some(Newly::Joined);
    }
    let (after, plan) = world.planned();
    assert_eq!((plan.moves.len(), plan.count(Reason::Join)), (900, 900));
    assert_eq!(after.loads(), [100; 10]);
}

#[test]
fn every_move_says_why() {
    let mut world = World::settled(&[1; 6], 60);
    let of = |world: &World, worker| -> Vec<usize> {
        (0..60).filter(|at| world.spots[*at].counts_at() == Some(ix(worker))).collect()
    };
    for (at, why) in
        of(&world, 0).into_iter().zip([Vacancy::First, Vacancy::Left, Vacancy::Failed, Vacancy::Returned])
    {
        world.spots[at] = Spot::vacant(why);
    }
    let pinned = of(&world, 1)[0];
    world.spots[pinned].pin = Some(Pin::To(ix(2)));
    world.set(3, WorkerStanding::Drained);
    world.set(4, WorkerStanding::Ineligible(ssd()));
    let plan = world.plan();
    for reason in [Reason::First, Reason::Leave, Reason::Failure, Reason::Returned, Reason::Pin] {
        assert_eq!(plan.count(reason), 1, "{reason}");
    }
    assert_eq!((plan.count(Reason::Drain), plan.count(Reason::Label)), (10, 10));

    let mut world = World::settled(&[1; 4], 40);
    world.workers[0].weight = Weight::new(3).unwrap();
    world.workers[0].newly = Some(Newly::Reweighted);
    assert_eq!(world.plan().counts(), [(Reason::Weight, 10)]);
    world.workers[0].newly = None;
    assert_eq!(world.plan().counts(), [(Reason::Balance, 10)]);
}
