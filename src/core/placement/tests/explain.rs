//! What is said of one partition agrees with what the plan does with it.

use super::bounds::{busy_world, with_avoids, with_pins, with_zones};
use super::world::{World, ix};
use crate::ids::PartitionId;
use crate::placement::{
    Because, Constraint, Hold, MAX_OTHERS, Pin, PlanError, Reason, Rules, Spot, Standing, Unplaced, WhyNot,
    WorkerStanding, explain,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn of(world: &World, partition: usize) -> crate::placement::Explanation {
    explain(&world.view(), PartitionId::new(partition as u32)).unwrap()
}

proptest! {
    // Each case is a plan for every partition.
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn f104_every_partition_is_explained_as_the_plan_has_it(
        world in with_pins(with_zones(with_avoids(busy_world(8, 30), 30), 3, 8), 30),
    ) {
        let (after, plan) = world.planned();
        for (number, spot) in (0..).zip(&world.spots) {
            let said = of(&world, number);
            let planned = plan.moves.iter().find(|m| m.partition.get() as usize == number).copied();
            prop_assert_eq!((said.planned, said.owner), (planned, spot.counts_at()));
            let place = after.spots[number].counts_at();
            match said.because {
                Because::Home => prop_assert_eq!(place, said.home),
                Because::Pinned => prop_assert_eq!(place.map(Pin::To), spot.pin),
                Because::Overflow(_) => {
                    prop_assert!(place != said.home);
                    // The nearest of all that have room, as far as they are told.
                    prop_assert!(said.others.iter().all(|(_, why)| *why != WhyNot::OwnerKeeps));
                }
                Because::KeptOverflow(_) | Because::Kept | Because::Fixed => prop_assert!(place != said.home),
                Because::Arriving => {
                    let in_flight = matches!(spot.standing, Standing::InFlight { .. });
                    prop_assert!(in_flight);
                }
                Because::Waits => prop_assert_eq!(spot.standing, Standing::Held),
                Because::PinWaits => prop_assert!(planned.is_none() && place.map(Pin::To) != spot.pin),
                Because::StandsIn => {
                    prop_assert!(plan.takers.taking == 0 && spot.counts_at().is_none());
                    let standing = place.map(|at| &world.workers[at.get()].standing);
                    prop_assert_eq!(standing, Some(&WorkerStanding::Frozen));
                }
                Because::Unplaced(_) => prop_assert!(plan.takers.taking == 0 && place.is_none()),
            }
            // What does not move is held by something, and what moves by nothing.
            let vacant = matches!(spot.standing, Standing::Vacant(_));
            prop_assert_eq!(said.holds.is_empty(), planned.is_some() || vacant, "{:?}: {:?}", spot, said);
            // Everybody else is spoken of once, and nobody who takes none is said to have room.
            let others: BTreeSet<_> = said.others.iter().map(|(worker, _)| *worker).collect();
            prop_assert_eq!(others.len(), said.others.len());
            prop_assert_eq!(others.len(), world.workers.len() - usize::from(place.is_some()));
            for (worker, why) in said.others {
                prop_assert!(Some(worker) != place);
                let agrees = match (&world.workers[worker.get()].standing, why) {
                    (WorkerStanding::Takes, WhyNot::Full { holds, .. }) => plan.after.loads[worker.get()] == holds,
                    (WorkerStanding::Takes, WhyNot::Avoided) => spot.avoid == Some(worker),
                    (WorkerStanding::Takes, WhyNot::PinnedElsewhere) => spot.pin.is_some(),
                    (WorkerStanding::Takes, WhyNot::OwnerKeeps | WhyNot::FurtherRound) => place.is_some(),
                    (WorkerStanding::Takes, WhyNot::PartitionWaits) => place.is_none(),
                    (WorkerStanding::Takes, WhyNot::PartitionStays) => planned.is_none() && !said.holds.is_empty(),
                    (WorkerStanding::Cordoned, WhyNot::Cordoned)
                    | (WorkerStanding::Away, WhyNot::Away)
                    | (WorkerStanding::Drained, WhyNot::Drained)
                    | (WorkerStanding::Frozen | WorkerStanding::FrozenOut, WhyNot::Frozen)
                    | (WorkerStanding::Ineligible(_), WhyNot::Ineligible) => true,
                    _ => false,
                };
                prop_assert!(agrees, "{why:?} of {:?}", world.workers[worker.get()]);
            }
        }
    }
}

#[test]
fn a_partition_tells_its_story() {
    let mut world = World::settled(&[1; 4], 40);
    let home = of(&world, 0).home.unwrap();
    let at_home = (0..40).find(|at| of(&world, *at).because == Because::Home).unwrap();
    let said = of(&world, at_home);
    assert_eq!((said.owner, said.holds), (said.home, vec![Hold::WithinShare]));
    assert_eq!(said.others.len(), 3);
    assert!(said.others.iter().all(|(_, why)| *why == WhyNot::Full { holds: 10, share: 10 }));
    let away = (0..40).find(|at| of(&world, *at).because != Because::Home).unwrap();
    assert_eq!(of(&world, away).because, Because::Overflow(WhyNot::Full { holds: 10, share: 10 }));

    let elsewhere = ix((home.get() + 1) % 4);
    world.spots[0] = Spot::owned(home).pinned(Pin::To(elsewhere));
    let said = of(&world, 0);
    assert_eq!(
        (said.because, said.planned.map(|m| (m.to, m.reason))),
        (Because::Pinned, Some((elsewhere, Reason::Pin)))
    );
    assert!(said.others.contains(&(home, WhyNot::PinnedElsewhere)));

    world.spots[0] = Spot::fixed(elsewhere);
    assert_eq!((of(&world, 0).because, of(&world, 0).holds), (Because::Fixed, vec![Hold::Fixed]));
    world.rules = Rules { repairs_only: true, ..Rules::default() };
    assert_eq!(of(&world, 0).holds, [Hold::Fixed, Hold::RepairsOnly]);
    world.spots[0] = Spot::HELD;
    assert_eq!((of(&world, 0).because, of(&world, 0).holds), (Because::Waits, vec![Hold::Waits]));
}

#[test]
fn f089_a_partition_that_nobody_takes_says_of_each_worker_why() {
    let mut world = World::vacant(&[1; 3], 4);
    let constraint: Constraint = "!spot".parse().unwrap();
    world.set(0, WorkerStanding::Ineligible(constraint));
    world.set(1, WorkerStanding::Drained);
    world.set(2, WorkerStanding::Cordoned);
    let said = of(&world, 3);
    assert_eq!(said.because, Because::Unplaced(Unplaced::NoneTakes));
    let mut others = said.others;
    others.sort_by_key(|(worker, _)| *worker);
    assert_eq!(others, [(ix(0), WhyNot::Ineligible), (ix(1), WhyNot::Drained), (ix(2), WhyNot::Cordoned)]);
}

#[test]
fn an_explanation_is_bounded_and_asks_for_a_partition_that_is_there() {
    let world = World::settled(&[1; 50], 100);
    assert_eq!(of(&world, 0).others.len(), MAX_OTHERS);
    let error = explain(&world.view(), PartitionId::new(100));
    assert_eq!(error, Err(PlanError::NoSuchPartition { partition: PartitionId::new(100), partitions: 100 }));
}
