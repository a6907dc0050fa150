//! Zones: each holds its share to less than one partition, at the fewest moves, and its loss is felt by nobody else.

use super::bounds::{free_world, with_zones, within_share};
use super::world::{World, ix};
use crate::placement::{Reason, Spot, Vacancy, ZoneIx};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The fewest moves when all weights are alike, by arithmetic: above the whole part of its share a worker keeps one
/// partition when it gets an extra, and a zone gets as many as its workers' fractions sum up to, rounded down or up.
fn fewest_moves_of_equals(world: &World) -> usize {
    let (workers, partitions) = (world.workers.len(), world.spots.len());
    let (whole, extras) = (partitions / workers, partitions % workers);
    // Each zone's number of workers, and of those among them above the whole part. One without a zone is its own.
    let mut zones: BTreeMap<(Option<ZoneIx>, usize), (usize, usize)> = BTreeMap::new();
    let mut above = 0;
    for (number, (worker, load)) in world.workers.iter().zip(world.loads()).enumerate() {
        let alone = if worker.zone.is_none() { number } else { 0 };
        let zone = zones.entry((worker.zone, alone)).or_default();
        zone.0 += 1;
        zone.1 += usize::from(load as usize > whole);
        above += (load as usize).saturating_sub(whole);
    }
    // In the zone's favour: its sum rounded down; and one more for some, of which `left` is the number.
    let down = |size: usize| size * extras / workers;
    let saved: usize = zones.values().map(|(size, above)| down(*size).min(*above)).sum();
    let left = extras - zones.values().map(|(size, _)| down(*size)).sum::<usize>();
    let could_use_more =
        |(size, above): &&(usize, usize)| size * extras % workers > 0 && *above > down(*size);
    let more = left.min(zones.values().filter(could_use_more).count());
    let vacant = world.spots.iter().filter(|spot| spot.counts_at().is_none()).count();
    vacant + above - saved - more
}

fn lose_zone(world: &World, zone: ZoneIx) -> (World, usize) {
    let (mut after, mut lost) = (world.clone(), 0);
    for index in (0..world.workers.len()).rev().filter(|index| world.workers[*index].zone == Some(zone)) {
        lost += after.loads()[index] as usize;
        after.leave(index);
    }
    (after, lost)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn f103_workers_and_zones_end_within_one_partition_of_their_weighted_shares(
        world in with_zones(free_world(12, 80, 1..=9), 4, 12),
    ) {
        let (after, plan) = world.planned();
        prop_assert!(within_share(&after, &after.loads()), "{:?}", after.loads());
        prop_assert!(plan.after.spread <= 1 && plan.after.zone_spread <= 1, "{plan:?}");
        prop_assert!(after.plan().moves.is_empty());
    }

    #[test]
    fn f103_with_equal_weights_the_spread_is_at_most_one_and_the_moves_are_the_fewest(
        world in with_zones(free_world(24, 200, 2..=2), 5, 24),
    ) {
        let (after, plan) = world.planned();
        prop_assert_eq!(plan.moves.len(), fewest_moves_of_equals(&world));
        let loads = after.loads();
        prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1);
    }

    #[test]
    fn f054_t38_the_loss_of_a_zone_moves_only_its_own_partitions(
        zones in 2..6_u32,
        workers_each in 1..6_u32,
        partitions in 1..200_usize,
        lost in 0..6_u32,
    ) {
        let world = World::vacant(&vec![1; (zones * workers_each) as usize], partitions).in_zones(zones);
        let (settled, _) = world.planned();
        let (mut after, lost) = lose_zone(&settled, ZoneIx::new(lost % zones));
        after.spots.iter_mut().filter(|spot| spot.counts_at().is_none()).for_each(|spot| {
            *spot = Spot::vacant(Vacancy::Failed);
        });
        let plan = after.plan();
        prop_assert_eq!((plan.moves.len(), plan.count(Reason::Failure)), (lost, lost));
    }

    // Zones of unlike sizes: what the others hold is rounded otherwise in the end, by one partition each.
    #[test]
    fn f054_the_loss_of_any_zone_moves_at_most_one_more_for_each_zone_that_is_left(
        world in with_zones(free_world(12, 80, 3..=3), 4, 12),
        lost in 0..4_u32,
    ) {
        let (settled, _) = world.planned();
        let (after, lost) = lose_zone(&settled, ZoneIx::new(lost));
        prop_assume!(!after.workers.is_empty());
        let moves = after.plan().moves.len();
        prop_assert!((lost..=lost + 4).contains(&moves), "{lost} lost, {moves} moves");
    }

    #[test]
    fn f043_how_zones_are_numbered_does_not_matter(
        world in with_zones(free_world(10, 80, 1..=5), 5, 10),
        numbers in Just([900_u32, 30, 7, 41, 2]).prop_shuffle(),
    ) {
        let mut other = world.clone();
        for worker in &mut other.workers {
            worker.zone = worker.zone.map(|zone| ZoneIx::new(numbers[zone.get() as usize]));
        }
        prop_assert_eq!(other.plan(), world.plan());
    }

    #[test]
    fn a_zone_for_everybody_and_a_zone_for_each_change_nothing(world in free_world(10, 80, 1..=5)) {
        let each = world.workers.len() as u32;
        for zones in [1, each] {
            let plan = world.clone().in_zones(zones).plan();
            prop_assert_eq!(&plan.moves, &world.plan().moves);
        }
    }
}

#[test]
fn a_move_that_only_zones_ask_for_says_so() {
    // Six workers in two zones, nine partitions: each zone is due 4 or 5, and the first holds 6.
    let mut world = World::vacant(&[1; 6], 9).in_zones(2);
    for (partition, worker) in [0, 0, 2, 2, 4, 4, 1, 3, 5].into_iter().enumerate() {
        world.spots[partition] = Spot::owned(ix(worker));
    }
    let (after, plan) = world.planned();
    assert_eq!((plan.before.spread, plan.before.zone_spread), (1, 3));
    assert_eq!((plan.after.spread, plan.after.zone_spread), (1, 1));
    assert_eq!((plan.moves.len(), plan.counts()), (1, vec![(Reason::Zone, 1)]));
    for worker in &mut world.workers {
        worker.zone = None;
    }
    assert!(world.plan().moves.is_empty(), "without zones nothing would move");
    assert!(after.plan().moves.is_empty());
}
