//! Loads: how close workers are brought, with how few surprises.

use super::bounds::{busy_world, free_world, with_avoids, with_pins, with_zones};
use super::world::{World, ix};
use crate::ids::PartitionId;
use crate::placement::{
    MAX_LOAD, Newly, Pin, PlanError, Reason, Rules, SmoothedLoad, Spot, Standing, ZoneIx,
};
use proptest::prelude::*;

fn weighed(world: impl Strategy<Value = World>, partitions: usize) -> impl Strategy<Value = World> {
    let load = prop_oneof![4 => 1..20_u32, 3 => 100..120_u32, 1 => 1..=MAX_LOAD];
    let tolerance = prop_oneof![Just(0), Just(100), Just(500)];
    (world, prop::collection::vec(load, partitions), tolerance).prop_map(|(mut world, loads, tolerance)| {
        world.weighed = Some(loads[..world.spots.len()].to_vec());
        world.rules.tolerance_permille = tolerance;
        world
    })
}

/// The workers that take partitions, each with its excess times the sum of the weights, and the smallest partition it
/// could give; and the tolerance times the sum of the weights. All of it from the world alone.
struct Measured {
    workers: Vec<(i128, Option<i128>)>,
    tolerance: i128,
}

impl Measured {
    fn of(world: &World) -> Measured {
        let loads = world.weighed.as_ref().unwrap();
        let takes = |index: usize| world.takes(ix(index));
        let weight = |index: usize| i128::from(world.workers[index].weight.get());
        let takers: Vec<usize> = (0..world.workers.len()).filter(|index| takes(*index)).collect();
        let weights: i128 = takers.iter().map(|index| weight(*index)).sum();
        let mut held = vec![0_i128; world.workers.len()];
        let mut smallest: Vec<Option<i128>> = vec![None; world.workers.len()];
        let mut shared = 0;
        for (spot, load) in world.spots.iter().zip(loads) {
            let load = i128::from(*load);
            let Some(at) = spot.counts_at() else {
                shared += load;
                continue;
            };
            if !world.takes(at) {
                continue;
            }
            shared += load;
            held[at.get()] += load;
            let free = matches!(spot.standing, Standing::Owned { movable: true, .. })
                && spot.avoid.is_none()
                && spot.pin != Some(Pin::To(at));
            if free {
                let smallest = &mut smallest[at.get()];
                *smallest = Some(smallest.map_or(load, |other| other.min(load)));
            }
        }
        let workers = takers
            .iter()
            .map(|&index| {
                let excess = held[index] * weights - shared * weight(index);
                (excess, smallest[index].map(|load| load * weights))
            })
            .collect();
        let permille = i128::from(world.rules.tolerance_permille);
        let of_mean = shared * permille / (1_000 * takers.len().max(1) as i128);
        let half_of_mean = |load: &i128| load * 2 * takers.len().max(1) as i128 <= shared;
        let largest = loads.iter().map(|load| i128::from(*load)).filter(half_of_mean).max().unwrap_or(0);
        Measured { workers, tolerance: of_mean.max(largest) * weights }
    }

    /// The first two workers of which one could give the other something to bring them closer together by a tolerance.
    fn pair_too_far_apart(&self) -> Option<(i128, i128)> {
        let pairs = self.workers.iter().flat_map(|a| self.workers.iter().map(move |b| (a, b)));
        let too_far = pairs.map(|(a, b)| (a.0 - b.0, a.1)).find(|(gap, smallest)| {
            *gap > self.tolerance && smallest.is_some_and(|smallest| *gap > smallest + self.tolerance / 4)
        });
        too_far.map(|(gap, smallest)| (gap, smallest.unwrap_or(0)))
    }

    fn furthest_apart(&self) -> i128 {
        let excess = || self.workers.iter().map(|worker| worker.0);
        excess().max().unwrap_or(0) - excess().min().unwrap_or(0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_two_workers_stay_further_apart_than_the_tolerance_or_what_one_could_give(
        world in weighed(with_pins(with_zones(with_avoids(busy_world(8, 60), 60), 3, 8), 60), 60),
    ) {
        let (after, plan) = world.planned();
        prop_assert_eq!(Measured::of(&after).pair_too_far_apart(), None);
        prop_assert!(plan.unplaced.is_empty() || plan.takers.taking == 0);
    }

    #[test]
    fn f092_a_plan_by_load_carried_out_leaves_nothing_to_plan(
        world in weighed(with_zones(free_world(8, 60, 1..=4), 3, 8), 60),
    ) {
        let (after, plan) = world.planned();
        let again = after.plan();
        prop_assert!(again.moves.is_empty(), "{again:?}");
        prop_assert_eq!(again.before, plan.after);
    }

    #[test]
    fn f092_with_everything_in_the_way_loads_settle(
        world in weighed(with_pins(with_zones(busy_world(8, 60), 3, 8), 60), 60),
    ) {
        let (after, _) = world.planned();
        prop_assert_eq!(after.plan().moves, vec![]);
    }

    // What one plan and the next move may differ, when only a part of the first was done. No further plan moves anything.
    #[test]
    fn f092_after_any_part_of_a_plan_by_load_one_more_settles_it(
        world in weighed(free_world(8, 60, 1..=4), 60),
        chosen in prop::collection::vec(0..3_u8, 60),
    ) {
        let plan = world.plan();
        let of = |kind| -> Vec<_> {
            plan.moves.iter().zip(&chosen).filter(|(_, chosen)| **chosen == kind).map(|(m, _)| *m).collect()
        };
        let mut part = world.clone();
        part.carry_out(&of(1));
        // Those under way are planned with, and arrive.
        let mut under_way = part.clone();
        under_way.carry_out_as(&of(2), Spot::in_flight);
        let second = under_way.plan();
        prop_assert!(second.moves.iter().all(|m| !of(2).iter().any(|other| other.partition == m.partition)));
        part.carry_out(&of(2));
        let (settled, _) = part.planned();
        prop_assert_eq!(settled.plan().moves, vec![]);
    }

    // A leader begins the first moves of a plan, as many as the budget allows, and plans again when some are done.
    #[test]
    fn f092_plans_by_load_of_which_only_the_first_moves_are_done_come_to_an_end(
        world in weighed(with_zones(free_world(8, 60, 1..=4), 3, 8), 60),
        budget in 1..5_usize,
    ) {
        let mut world = world;
        let mut done = 0;
        loop {
            let moves = world.plan().moves;
            if moves.is_empty() {
                break;
            }
            let first = moves.len().min(budget);
            world.carry_out(&moves[..first]);
            done += first;
            prop_assert!(done <= 2 * world.spots.len(), "{done} moves, and {} are planned", moves.len());
        }
        prop_assert_eq!(Measured::of(&world).pair_too_far_apart(), None);
    }

    #[test]
    fn what_is_within_the_tolerance_stays_and_what_is_beyond_is_brought_to_half(
        world in weighed(free_world(8, 60, 1..=4), 60),
    ) {
        let mut world = world;
        let settled = world.clone().planned().0;
        world.spots = settled.spots;
        let measured = Measured::of(&world);
        let moves = world.plan().moves;
        prop_assert!(measured.furthest_apart() > measured.tolerance || moves.is_empty());
        // A tolerance below what it has come to: it balances again, or cannot.
        let before = Measured::of(&world).furthest_apart();
        world.rules.tolerance_permille = 0;
        let after = Measured::of(&world.planned().0);
        prop_assert!(after.furthest_apart() <= before);
        prop_assert_eq!(after.pair_too_far_apart(), None);
    }

    #[test]
    fn what_is_vacant_lifts_nobody_above_its_share_by_more_than_itself(
        weights in prop::collection::vec(1..=5_u32, 1..8),
        loads in prop::collection::vec(1..1_000_u32, 1..60),
    ) {
        let mut world = World::vacant(&weights, loads.len());
        let largest = i128::from(*loads.iter().max().unwrap());
        world.weighed = Some(loads);
        world.rules = Rules { repairs_only: true, ..Rules::default() };
        let (after, plan) = world.planned();
        prop_assert_eq!(plan.moves.len(), world.spots.len());
        let weights: i128 = weights.iter().map(|weight| i128::from(*weight)).sum();
        prop_assert!(Measured::of(&after).workers.iter().all(|worker| worker.0 < largest * weights));
    }

    #[test]
    fn noise_of_a_tenth_in_what_is_measured_moves_nothing(
        weights in prop::collection::vec(1..=5_u32, 2..8),
        steady in prop::collection::vec(50..5_000_u64, 1..60),
        noise in prop::collection::vec(prop::collection::vec(-100..=100_i64, 60), 1..20),
    ) {
        let noisy = |round: &[i64], at: usize| (steady[at] as i64 * (1_000 + round[at]) / 1_000) as u64;
        let mut smoothed: Vec<_> = (0..steady.len()).map(|at| SmoothedLoad::new(noisy(&noise[0], at))).collect();
        let mut world = World::vacant(&weights, steady.len());
        world.weighed = Some(smoothed.iter().map(|load| load.load()).collect());
        let mut world = world.planned().0;
        for round in &noise {
            smoothed.iter_mut().enumerate().for_each(|(at, load)| *load = load.with(noisy(round, at)));
            world.weighed = Some(smoothed.iter().map(|load| load.load()).collect());
            prop_assert_eq!(world.plan().moves, vec![]);
        }
    }

    #[test]
    fn f043_loads_too_are_placed_whatever_the_order_in_which_workers_came(
        world in weighed(free_world(8, 60, 1..=4), 60),
        order in Just((0..8_usize).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let mut grown = World { workers: Vec::new(), ..world.clone() };
        grown.spots = vec![Spot::VACANT; world.spots.len()];
        for i in order.into_iter().filter(|i| *i < world.workers.len()) {
            grown.join(&format!("w{i:03}"), world.workers[i].weight.get());
        }
        grown.spots = world.spots.clone();
        prop_assert_eq!(grown.plan(), world.plan());
    }
}

#[test]
fn f103_a_worker_that_joins_takes_its_share_of_the_load_and_nothing_else_moves() {
    let mut world = World::vacant(&[1; 4], 400);
    world.weighed = Some((0..400).map(|number| 1 + number % 10).collect());
    let mut world = world.planned().0;
    let newcomer = world.join("w900", 1);
    world.workers[newcomer.get()].newly = Some(Newly::Joined);
    let (after, plan) = world.planned();
    assert!(plan.moves.iter().all(|m| m.to == newcomer && m.reason == Reason::Join));
    // 2,200 in all, so a share is 440; half of the tolerance is 22.
    assert!(plan.after.spread <= 22, "{:?}", plan.after);
    assert!(after.plan().moves.is_empty());
}

#[test]
fn a_heavy_partition_leaves_its_worker_little_else() {
    let mut world = World::vacant(&[1; 3], 21);
    world.weighed = Some((0..21).map(|number| if number == 0 { 100 } else { 10 }).collect());
    world.spots = vec![Spot::owned(ix(0)); 21];
    let (after, plan) = world.planned();
    assert_eq!(plan.after.spread, 0, "{:?}", plan.after);
    let heavy = after.spots[0].counts_at().unwrap();
    assert_eq!(plan.after.partitions[heavy.get()], 1);
    assert_eq!(plan.count(Reason::Load), plan.moves.len());
}

#[test]
fn a_partition_that_gets_hot_sends_its_neighbours_away_and_stays() {
    let mut world = World::vacant(&[1; 2], 8);
    let hot = |load| (0..8).map(|number| if number == 0 { load } else { 100 }).collect();
    world.weighed = Some(hot(100));
    let mut world = world.planned().0;
    for (load, apart) in [(300, 0), (500, 0), (600, 100), (1_000, 300), (5_000, 4_300)] {
        world.weighed = Some(hot(load));
        let owner = world.spots[0].counts_at();
        let (after, plan) = world.planned();
        assert_eq!((after.spots[0].counts_at(), plan.after.spread), (owner, apart), "at {load}");
        assert_eq!(after.plan().moves, vec![]);
        world = after;
    }
}

// Three partitions on two workers are never even; which of the two has two of them makes no difference worth a move.
#[test]
fn a_move_that_gains_nothing_to_speak_of_is_not_made() {
    let mut world = World::vacant(&[1; 2], 3);
    world.spots = vec![Spot::owned(ix(0)), Spot::owned(ix(0)), Spot::owned(ix(1))];
    world.weighed = Some(vec![1_000, 1_010, 990]);
    assert_eq!(world.plan().moves, vec![]);
    world.weighed = Some(vec![1_000, 2_000, 990]);
    assert_eq!(world.plan().moves.len(), 1);
}

/// Two hundred partitions that all count alike, on two workers: the tolerance is a tenth of a hundred.
#[test]
fn what_two_workers_differ_by_within_the_tolerance_moves_nothing() {
    let moves = |first: usize| {
        let mut world = World::vacant(&[1; 2], 200);
        world.weighed = Some(vec![1; 200]);
        world.spots = (0..200).map(|number| Spot::owned(ix(usize::from(number >= first)))).collect();
        world.plan().moves.len()
    };
    assert_eq!([100, 103, 105].map(moves), [0, 0, 0]);
    // One beyond it is brought to half of it.
    assert_eq!([106, 120].map(moves), [4, 18]);
}

#[test]
fn of_workers_about_equally_loaded_the_one_in_the_emptier_zone_receives() {
    // Two zones of two. One worker has all; the zone of the other two is empty.
    let mut world = World::vacant(&[1; 4], 40);
    for (worker, zone) in world.workers.iter_mut().zip([0, 0, 1, 1]) {
        worker.zone = Some(ZoneIx::new(zone));
    }
    world.weighed = Some(vec![5; 40]);
    world.spots = (0..40).map(|number| Spot::owned(ix(number % 2))).collect();
    let (_, plan) = world.planned();
    assert_eq!((plan.before.zone_spread, plan.after.zone_spread, plan.after.spread), (200, 0, 0));
    assert_eq!(plan.moves.len(), 20);
}

#[test]
fn f023_loads_that_cannot_be_are_refused() {
    let mut world = World::vacant(&[1], 3);
    world.weighed = Some(vec![1; 2]);
    assert_eq!(world.try_plan(), Err(PlanError::LoadCount { loads: 2, partitions: 3 }));
    for load in [0, MAX_LOAD + 1] {
        world.weighed = Some(vec![1, load, 1]);
        assert_eq!(world.try_plan(), Err(PlanError::Load { partition: PartitionId::new(1), load }));
    }
    world.weighed = Some(vec![MAX_LOAD; 3]);
    assert_eq!(world.plan().moves.len(), 3);
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let mut world = World::vacant(&[10_000; 3], 5_000);
    world.weighed = Some(vec![MAX_LOAD; 5_000]);
    world.spots = vec![Spot::owned(ix(0)); 5_000];
    let plan = world.plan();
    // Half of a tenth of the mean load is 83.3 partitions.
    assert_eq!((plan.before.spread, plan.after.spread), (5_000_000_000, 83_000_000));
}
