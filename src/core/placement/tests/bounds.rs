//! The bounds, over random worlds and against brute force.

use super::world::{World, candidate, ix};
use crate::ids::KeyspaceName;
use crate::placement::{
    Constraint, PartitionCount, PartitionKeys, Pin, Reason, Ring, Spot, Standing, View, WorkerStanding,
    ZoneIx, plan,
};
use proptest::prelude::*;

/// Vacant and movable partitions on workers that all take some: nothing stands in the way of balance.
pub(super) fn free_world(
    workers: usize,
    partitions: usize,
    weights: std::ops::RangeInclusive<u32>,
) -> impl Strategy<Value = World> {
    let owner =
        |workers: usize| prop_oneof![1 => Just(None), 2 => (0..workers).prop_map(Some), 2 => Just(Some(0))];
    (prop::collection::vec(weights, 1..=workers), 0..1000_u32).prop_flat_map(move |(weights, name)| {
        prop::collection::vec(owner(weights.len()), 1..=partitions).prop_map(move |owners| {
            let mut world = World::vacant(&weights, 1);
            world.keyspace = KeyspaceName::new(&format!("k{name}")).unwrap();
            world.spots =
                owners.iter().map(|owner| owner.map_or(Spot::VACANT, |w| Spot::owned(ix(w)))).collect();
            world
        })
    })
}

pub(super) fn standing() -> impl Strategy<Value = WorkerStanding> {
    let ssd: Constraint = "disk=ssd".parse().unwrap();
    prop_oneof![
        15 => Just(WorkerStanding::Takes),
        1 => Just(WorkerStanding::Cordoned),
        1 => Just(WorkerStanding::Away),
        1 => Just(WorkerStanding::Drained),
        1 => Just(WorkerStanding::Frozen),
        1 => Just(WorkerStanding::FrozenOut),
        1 => Just(WorkerStanding::Ineligible(ssd)),
    ]
}

/// A world with everything in it but pins and zones: moves in flight, held and frozen partitions, workers that take none.
pub(super) fn busy_world(workers: usize, partitions: usize) -> impl Strategy<Value = World> {
    let odds = prop::collection::vec((0..10_u8, any::<prop::sample::Index>()), partitions);
    (free_world(workers, partitions, 1..=6), odds, prop::collection::vec(standing(), workers)).prop_map(
        |(mut world, odds, standings)| {
            for (spot, (odd, index)) in world.spots.iter_mut().zip(odds) {
                let worker = ix(index.index(world.workers.len()));
                match odd {
                    0 => *spot = Spot::HELD,
                    1 => *spot = Spot::in_flight(worker),
                    2 => *spot = Spot::fixed(worker),
                    _ => {}
                }
            }
            world.workers.iter_mut().zip(standings).for_each(|(worker, standing)| worker.standing = standing);
            world
        },
    )
}

/// Zones of any size, some workers without one.
pub(super) fn with_zones(
    world: impl Strategy<Value = World>,
    zones: u32,
    workers: usize,
) -> impl Strategy<Value = World> {
    let zone = prop::option::weighted(0.9, 0..zones);
    (world, prop::collection::vec(zone, workers)).prop_map(|(mut world, zones)| {
        for (worker, zone) in world.workers.iter_mut().zip(zones) {
            worker.zone = zone.map(ZoneIx::new);
        }
        world
    })
}

pub(super) fn with_pins(
    world: impl Strategy<Value = World>,
    partitions: usize,
) -> impl Strategy<Value = World> {
    let pin = prop::option::weighted(0.2, prop::option::weighted(0.9, any::<prop::sample::Index>()));
    (world, prop::collection::vec(pin, partitions)).prop_map(|(mut world, pins)| {
        for (spot, pin) in world.spots.iter_mut().zip(pins) {
            let to = |index: prop::sample::Index| Pin::To(ix(index.index(world.workers.len())));
            spot.pin = pin.map(|pin| pin.map_or(Pin::Absent, to));
        }
        world
    })
}

pub(super) fn with_avoids(
    world: impl Strategy<Value = World>,
    partitions: usize,
) -> impl Strategy<Value = World> {
    let avoids = prop::collection::vec(prop::option::weighted(0.3, any::<prop::sample::Index>()), partitions);
    (world, avoids).prop_map(|(mut world, avoids)| {
        for (spot, avoid) in world.spots.iter_mut().zip(avoids) {
            spot.avoid = avoid.map(|index| ix(index.index(world.workers.len())));
        }
        world
    })
}

/// Whether every worker and every zone holds its exact share to less than one partition.
pub(super) fn within_share(world: &World, loads: &[u64]) -> bool {
    let total: u64 = world.workers.iter().map(|w| u64::from(w.weight.get())).sum();
    let partitions = world.spots.len() as u64;
    let near = |load: u64, weight: u64| (load * total).abs_diff(partitions * weight) < total;
    let mut pairs = world.workers.iter().zip(loads);
    pairs.all(|(w, load)| near(*load, w.weight.get().into()))
        && zones(world, loads).all(|(w, load)| near(load, w))
}

/// Each zone's sum of weights, and what it holds.
fn zones(world: &World, loads: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    let mut zones = std::collections::BTreeMap::new();
    for (worker, load) in world.workers.iter().zip(loads) {
        if let Some(zone) = worker.zone {
            let sums = zones.entry(zone).or_insert((0, 0));
            *sums = (sums.0 + u64::from(worker.weight.get()), sums.1 + load);
        }
    }
    zones.into_values()
}

/// The fewest partitions that change hands on the way to any assignment within the shares, by trying every assignment.
fn fewest_moves(world: &World) -> usize {
    let (workers, partitions) = (world.workers.len(), world.spots.len());
    let mut best = usize::MAX;
    for number in 0..workers.pow(partitions as u32) {
        let (mut rest, mut loads, mut moves) = (number, vec![0; workers], 0);
        for spot in &world.spots {
            let owner = rest % workers;
            rest /= workers;
            loads[owner] += 1;
            moves += usize::from(spot.counts_at() != Some(ix(owner)));
        }
        if moves < best && within_share(world, &loads) {
            best = moves;
        }
    }
    best
}

proptest! {
    // A failure prints its smallest world, which is more use than a file of seeds beside the crate.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn f103_moves_are_the_fewest_of_all_assignments_within_the_shares(world in free_world(4, 6, 1..=5)) {
        let plan = world.plan();
        prop_assert_eq!(plan.moves.len(), fewest_moves(&world));
    }

    #[test]
    fn f103_with_zones_too_moves_are_the_fewest_of_all_assignments_within_the_shares(
        world in with_zones(free_world(4, 6, 1..=5), 2, 4),
    ) {
        let plan = world.plan();
        prop_assert_eq!(plan.moves.len(), fewest_moves(&world));
    }

    #[test]
    fn f103_equal_weights_end_within_one_partition(world in free_world(12, 80, 3..=3)) {
        let plan = world.plan();
        let mut after = world.clone();
        after.carry_out(&plan.moves);
        let spread = |world: &World| world.loads().iter().max().unwrap() - world.loads().iter().min().unwrap();
        prop_assert!(spread(&after) <= 1);
        prop_assert_eq!((spread(&world), spread(&after)), (plan.before.spread, plan.after.spread));
        prop_assert!(plan.unplaced.is_empty());
    }

    #[test]
    fn f103_every_worker_ends_within_one_partition_of_its_weighted_share(world in free_world(12, 80, 1..=9)) {
        let plan = world.plan();
        let mut after = world.clone();
        after.carry_out(&plan.moves);
        prop_assert!(within_share(&after, &after.loads()), "{:?}", after.loads());
        prop_assert!(plan.after.spread <= 1);
    }

    #[test]
    fn f092_a_plan_carried_out_leaves_nothing_to_plan(world in with_avoids(free_world(8, 60, 1..=6), 60)) {
        let mut world = world;
        let plan = world.plan();
        world.carry_out(&plan.moves);
        let again = world.plan();
        prop_assert!(again.moves.is_empty(), "{again:?}");
        prop_assert_eq!(again.before.spread, plan.after.spread);
    }

    // Where a forced exchange meets pins, the partition that was placed is free to go on in the next plan: once.
    #[test]
    fn f092_with_everything_in_the_way_it_still_settles(world in with_pins(with_zones(with_avoids(busy_world(8, 60), 60), 3, 8), 60)) {
        let mut world = world;
        let mut plans = 0;
        loop {
            let plan = world.plan();
            if plan.moves.is_empty() {
                break;
            }
            world.carry_out(&plan.moves);
            plans += 1;
            prop_assert!(plans <= 2, "{plan:?}");
        }
    }

    #[test]
    fn f092_any_part_of_a_plan_leaves_exactly_the_rest(
        world in with_pins(with_zones(busy_world(8, 60), 3, 8), 60),
        chosen in prop::collection::vec(0..3_u8, 60),
    ) {
        let mut world = world;
        let plan = world.plan();
        let of = |kind| -> Vec<_> {
            plan.moves.iter().zip(&chosen).filter(|(_, chosen)| **chosen == kind).map(|(m, _)| *m).collect()
        };
        let (done, under_way) = (of(1), of(2));
        world.carry_out(&done);
        world.carry_out_as(&under_way, Spot::in_flight);
        prop_assert_eq!(world.plan().moves.len(), plan.moves.len() - done.len() - under_way.len());
    }

    #[test]
    fn f023_f102_a_plan_moves_only_what_may_move_and_only_to_who_takes_partitions(
        world in with_pins(with_zones(with_avoids(busy_world(8, 60), 60), 3, 8), 60),
    ) {
        let plan = world.plan();
        for m in &plan.moves {
            // What nobody may have otherwise goes to who is frozen.
            let stands_in = plan.takers.taking == 0 && m.from.is_none();
            let frozen = world.workers[m.to.get()].standing == WorkerStanding::Frozen;
            prop_assert!(world.takes(m.to) || (stands_in && frozen));
            prop_assert_ne!(m.from, Some(m.to));
            match world.spot(m).standing {
                Standing::Vacant(_) => prop_assert!(m.reason.is_repair() && m.from.is_none()),
                Standing::Owned { by, movable: true } => {
                    prop_assert_eq!(m.from, Some(by));
                    if m.reason == Reason::Pin {
                        prop_assert_eq!(world.spot(m).pin, Some(Pin::To(m.to)));
                    }
                    match &world.workers[by.get()].standing {
                        WorkerStanding::Takes => prop_assert!(m.reason.is_balance() || m.reason == Reason::Pin),
                        WorkerStanding::Cordoned => prop_assert_eq!(m.reason, Reason::Pin),
                        WorkerStanding::Drained => prop_assert!([Reason::Drain, Reason::Pin].contains(&m.reason)),
                        WorkerStanding::Ineligible(_) => prop_assert!([Reason::Label, Reason::Pin].contains(&m.reason)),
                        standing => prop_assert!(false, "taken from one that is {standing:?}"),
                    }
                }
                standing => prop_assert!(false, "{m:?} of {standing:?}"),
            }
        }
        let class = |reason: Reason| u8::from(!reason.is_repair()) + u8::from(reason.is_balance());
        let order = |m: &crate::placement::PlannedMove| (class(m.reason), m.partition);
        prop_assert!(plan.moves.is_sorted_by(|a, b| order(a) < order(b)), "repairs first, none twice");
        let vacant = world.spots.iter().filter(|spot| matches!(spot.standing, Standing::Vacant(_))).count();
        let placed = plan.moves.iter().filter(|m| m.reason.is_repair()).count();
        prop_assert_eq!(vacant, placed + plan.unplaced.len());
        prop_assert!(plan.unplaced.is_empty() || plan.takers.taking == 0);
        prop_assert_eq!(plan.counts().iter().map(|(_, count)| count).sum::<usize>(), plan.moves.len());
    }

    #[test]
    fn a_partition_goes_to_the_worker_it_avoids_only_when_no_other_takes_it(
        world in with_avoids(busy_world(6, 40), 40),
    ) {
        let are = |standing| world.workers.iter().filter(|w| w.standing == standing).count();
        let accepting = match are(WorkerStanding::Takes) {
            0 => are(WorkerStanding::Frozen),
            takers => takers,
        };
        for m in world.plan().moves.iter().filter(|m| world.spot(m).avoid == Some(m.to)) {
            prop_assert!(!m.reason.is_balance() && accepting == 1, "{m:?}");
        }
    }

    #[test]
    fn f043_the_order_in_which_workers_came_is_forgotten(
        world in free_world(8, 60, 1..=4),
        order in Just((0..8_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let mut grown = World { workers: Vec::new(), ..world.clone() };
        let names = |i: usize| (format!("w{i:03}"), world.workers[i].weight.get());
        grown.spots = vec![Spot::VACANT; world.spots.len()];
        for (name, weight) in order.into_iter().filter(|i| *i < world.workers.len()).map(names) {
            grown.join(&name, weight);
        }
        grown.spots = world.spots.clone();
        prop_assert_eq!(grown.plan(), world.plan());
    }

    #[test]
    fn what_the_caller_kept_gives_the_same_plan(world in busy_world(8, 60)) {
        let mut shuffled = world.workers.clone();
        shuffled.reverse();
        let ring = Ring::new(&shuffled).unwrap();
        let keys = PartitionKeys::new(&world.keyspace, PartitionCount::new(world.spots.len() as u32).unwrap());
        let view = View::new(&world.keyspace, &world.workers, &world.spots);
        prop_assert_eq!(plan(&view.with_ring(&ring).with_keys(&keys)), plan(&view));
    }

    #[test]
    fn f092_workers_that_come_and_go_leave_a_world_that_settles(
        world in free_world(6, 60, 1..=4),
        steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), 1..=4_u32), 1..8),
    ) {
        let mut world = world;
        for (number, (join, index, weight)) in steps.into_iter().enumerate() {
            if join || world.workers.len() == 1 {
                world.join(candidate(&format!("x{}", number * 7 % 8), 1).worker.as_str(), weight);
            } else {
                world.leave(index.index(world.workers.len()));
            }
            let plan = world.plan();
            world.carry_out(&plan.moves);
            prop_assert!(within_share(&world, &world.loads()));
            prop_assert!(world.plan().moves.is_empty());
        }
    }
}
