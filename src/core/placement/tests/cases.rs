//! Public incidents and single rules, one story each.

use super::world::{World, candidate, ix};
use crate::ids::{KeyspaceName, PartitionId};
use crate::placement::{
    PartitionCount, PartitionCountError, PartitionKeys, Plan, PlanError, Reason, Ring, Spot, Unplaced, View,
    Weight, WorkerStanding, plan,
};

fn balance(plan: &Plan) -> usize {
    plan.moves.iter().filter(|m| m.reason == Reason::Balance).count()
}

#[test]
fn f103_a_worker_that_joins_takes_its_share_and_nothing_else_moves() {
    let mut world = World::settled(&[1; 10], 1024);
    let newcomer = world.join("w0045", 1);
    let plan = world.plan();
    assert_eq!(plan.moves.len(), 1024 / 11);
    assert!(plan.moves.iter().all(|m| m.to == newcomer && m.reason == Reason::Balance));
    // Ten workers had 102 or 103, and eleven have 93 or 94.
    assert_eq!((plan.before.spread, plan.after.spread), (103, 1));
}

#[test]
fn f103_a_worker_that_leaves_moves_only_what_it_had() {
    let mut world = World::settled(&[1; 10], 1024);
    let had = world.loads()[3] as usize;
    world.leave(3);
    let plan = world.plan();
    assert_eq!((plan.moves.len(), balance(&plan)), (had, 0));
    assert_eq!(plan.after.spread, 1);
}

#[test]
fn f103_a_weight_that_doubles_draws_only_to_its_worker() {
    let mut world = World::settled(&[1; 10], 1024);
    let had = world.loads()[4] as usize;
    world.workers[4].weight = Weight::new(2).unwrap();
    let plan = world.plan();
    assert!(plan.moves.iter().all(|m| m.to == ix(4)));
    // Its share is 2/11 of 1024, which is 186.2.
    assert_eq!(plan.moves.len(), 186 - had);
}

#[test]
fn f103_a_worker_replaced_by_another_moves_nothing_between_the_rest() {
    let mut world = World::settled(&[1; 10], 1024);
    let had = world.loads()[7] as usize;
    world.leave(7);
    let newcomer = world.join("w900", 1);
    let plan = world.plan();
    assert_eq!((plan.moves.len(), balance(&plan)), (had, 0));
    let to_newcomer = plan.moves.iter().filter(|m| m.to == newcomer).count();
    assert!(to_newcomer >= 102, "all but an extra go to the newcomer: {to_newcomer} of {had}");
}

#[test]
fn f103_a_worker_that_returns_gets_most_of_its_homes_back() {
    let mut world = World::settled(&[1; 10], 1024);
    let before: Vec<String> = world.owners().iter().map(ToString::to_string).collect();
    world.leave(5);
    let plan = world.plan();
    world.carry_out(&plan.moves);
    let back = world.join("w005", 1);
    let plan = world.plan();
    assert_eq!(plan.moves.len(), 102);
    let same =
        plan.moves.iter().filter(|m| m.to == back && before[m.partition.get() as usize] == "w005").count();
    assert!(same > 70, "only {same} of 102 came home");
}

#[test]
fn f092_one_to_six_workers_join_and_every_time_it_settles() {
    for weights in [[1, 1, 1, 1, 1, 1], [3, 1, 2, 5, 1, 4]] {
        for name in ["orders", "carts", "users", "mails", "bills"] {
            let mut world = World { keyspace: KeyspaceName::new(name).unwrap(), ..World::vacant(&[], 64) };
            for (i, weight) in weights.into_iter().enumerate() {
                world.join(&format!("w{i}"), weight);
                let plan = world.plan();
                world.carry_out(&plan.moves);
                assert_eq!(world.plan().moves, [], "{name} with {} workers", i + 1);
            }
        }
    }
}

#[test]
fn f023_no_worker_or_none_that_accepts_is_said_and_takes_nothing_from_anybody() {
    let mut world = World::vacant(&[], 2);
    let plan = world.plan();
    let nobody = |why| [0, 1].map(|p| (PartitionId::new(p), why)).to_vec();
    assert_eq!((plan.moves, plan.unplaced), (vec![], nobody(Unplaced::NoWorkers)));

    world = World::settled(&[1, 1], 6);
    world.spots[0] = Spot::VACANT;
    world.spots[1] = Spot::VACANT;
    (0..2).for_each(|worker| world.set(worker, WorkerStanding::Cordoned));
    let plan = world.plan();
    assert_eq!((plan.moves, plan.unplaced), (vec![], nobody(Unplaced::AllCordoned)));
    assert_eq!((plan.before.spread, plan.after.spread), (0, 0));
}

#[test]
fn f023_a_view_that_contradicts_itself_is_an_error() {
    let world = World::settled(&[1, 1, 1], 6);

    let mut swapped = world.clone();
    swapped.workers.swap(0, 1);
    assert!(matches!(swapped.try_plan(), Err(PlanError::Unsorted { .. })));
    let mut twice = world.clone();
    twice.workers[1] = twice.workers[0].clone();
    assert!(matches!(twice.try_plan(), Err(PlanError::Unsorted { .. })));

    let mut unknown = world.clone();
    unknown.spots[4] = Spot::owned(ix(3));
    let error = unknown.try_plan().unwrap_err();
    assert_eq!(error, PlanError::NoSuchWorker { partition: PartitionId::new(4), index: 3, workers: 3 });
    unknown.spots[4] = Spot::VACANT.avoiding(ix(9));
    assert!(matches!(unknown.try_plan(), Err(PlanError::NoSuchWorker { index: 9, .. })));

    let none = World::vacant(&[1], 0);
    assert_eq!(none.try_plan(), Err(PlanError::Partitions(PartitionCountError { number: 0 })));
    assert!(World::vacant(&[1], 1_000_001).try_plan().is_err());
}

#[test]
fn f023_a_ring_or_keys_kept_too_long_are_refused() {
    let world = World::settled(&[1, 1, 1], 6);
    let view = View::new(&world.keyspace, &world.workers, &world.spots);
    let mut workers = world.workers.clone();
    workers[2].weight = Weight::new(2).unwrap();
    assert_eq!(plan(&view.with_ring(&Ring::new(&workers).unwrap())), Err(PlanError::ForeignRing));
    assert_eq!(plan(&view.with_ring(&Ring::new(&world.workers[..2]).unwrap())), Err(PlanError::ForeignRing));

    let six = PartitionCount::new(6).unwrap();
    let of = |keyspace: &str, count| PartitionKeys::new(&KeyspaceName::new(keyspace).unwrap(), count);
    assert!(plan(&view.with_keys(&of("orders", six))).is_ok());
    assert!(matches!(plan(&view.with_keys(&of("carts", six))), Err(PlanError::ForeignKeys { .. })));
    let seven = PartitionCount::new(7).unwrap();
    assert!(matches!(plan(&view.with_keys(&of("orders", seven))), Err(PlanError::ForeignKeys { .. })));
}

#[test]
fn a_cordoned_worker_keeps_what_it_has_and_gets_nothing() {
    let mut world = World::settled(&[1; 4], 40);
    world.set(2, WorkerStanding::Cordoned);
    assert_eq!(world.plan().moves, []);
    world.spots.iter_mut().take(20).for_each(|spot| *spot = Spot::VACANT);
    let kept = world.loads()[2];
    let plan = world.plan();
    world.carry_out(&plan.moves);
    assert_eq!(world.loads()[2], kept);
    assert_eq!((balance(&plan), plan.after.spread), (0, u64::from(!(40 - kept).is_multiple_of(3))));
}

#[test]
fn what_waits_keeps_its_share_and_moves_nobody() {
    // A poisonous partition, waiting out its back-off again and again, must not make the others wander.
    let mut world = World::settled(&[1; 3], 10);
    for partition in 0..10 {
        let spot = std::mem::replace(&mut world.spots[partition], Spot::HELD);
        assert_eq!(world.plan().moves, []);
        world.spots[partition] = spot;
    }
}

#[test]
fn a_failed_partition_goes_elsewhere_at_no_further_move_when_it_can() {
    for partition in 0..10 {
        let mut world = World::settled(&[1; 4], 10);
        let failed_at = world.spots[partition].counts_at().unwrap();
        world.spots[partition] = Spot::VACANT.avoiding(failed_at);
        let plan = world.plan();
        assert_ne!(plan.moves[0].to, failed_at);
        // Two workers have 3 and two have 2. Who had 3 can spare it; who had 2 is owed another in return.
        let had_extra = World::settled(&[1; 4], 10).loads()[failed_at.get()] == 3;
        assert_eq!((plan.moves.len(), plan.after.spread), (if had_extra { 1 } else { 2 }, 1));
    }
}

#[test]
fn a_failed_partition_returns_where_it_failed_when_nobody_else_accepts() {
    let mut world = World::settled(&[1, 1], 4);
    world.set(1, WorkerStanding::Cordoned);
    world.spots[0] = Spot::VACANT.avoiding(ix(0));
    let plan = world.plan();
    assert_eq!(plan.moves.iter().map(|m| (m.partition.get(), m.to)).collect::<Vec<_>>(), [(0, ix(0))]);
}

#[test]
fn many_small_keyspaces_do_not_all_load_the_same_workers() {
    let mut total = [0; 10];
    for number in 0..400 {
        let mut world = World::vacant(&[1; 10], 3);
        world.keyspace = KeyspaceName::new(&format!("tenant-{number}")).unwrap();
        let plan = world.plan();
        plan.moves.iter().for_each(|m| total[m.to.get()] += 1);
    }
    assert_eq!(total.iter().sum::<u32>(), 1_200);
    assert!(total.iter().all(|load| (80..=160).contains(load)), "{total:?}");
}

#[test]
fn f043_adding_worker_805_is_like_adding_any_other() {
    let mut world = World::settled(&vec![1; 804], 4_000);
    world.join("w805", 1);
    let plan = world.plan();
    assert_eq!(plan.moves.len(), 4);
    assert_eq!(candidate("w805", 1).worker, world.workers[804].worker);
}
