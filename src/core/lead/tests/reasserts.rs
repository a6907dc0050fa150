//! Fences that are raised again because an operator says so, and owners whose storage has seen more.

use super::world::{TTL, World, policy};
use crate::ids::{Epoch, LogIndex, PartitionKey};
use crate::lead::{MAX_COMMANDS, release};
use crate::state::{Command, GrantReason, PartitionChange, Phase, Reasserted, Released, WorkerChange};
use std::collections::BTreeSet;

fn order(world: &mut World) -> LogIndex {
    let keyspace = world.orders();
    world.apply(vec![Command::Reassert { keyspace, partition: None }]).outcome.unwrap();
    world.state.applied()
}

fn stands(world: &World, key: PartitionKey) -> Reasserted {
    let order = world.state.reasserts().last().expect("an order");
    world.state.reasserted(order, key)
}

fn all_done(world: &World) -> bool {
    world.keys().iter().all(|key| stands(world, *key) == Reasserted::Done)
}

fn handed_out(world: &World) -> bool {
    world.state.reasserts().last().expect("an order").handed_out
}

fn owners(world: &World) -> Vec<String> {
    world.keys().into_iter().map(|key| world.owner(key).unwrap().to_owned()).collect()
}

#[test]
fn t15_every_owner_is_granted_what_it_has_anew_and_raises_again() {
    let mut world = World::of(6, &["a", "b"], policy());
    let before: Vec<(String, Epoch)> =
        owners(&world).into_iter().zip(world.keys().into_iter().map(|key| world.epoch(key))).collect();
    let given = order(&mut world);
    world.pass(TTL);
    assert!(all_done(&world) && handed_out(&world));
    for (key, (owner, epoch)) in world.keys().into_iter().zip(before) {
        assert_eq!(world.owner(key), Some(owner.as_str()));
        assert!(world.epoch(key) > epoch, "storage that forgot {epoch} gets a newer one");
        let last = world.state.partition(key).unwrap().history().last().unwrap();
        assert_eq!((last.why, last.directive), (GrantReason::Reassert, Some(given)));
    }
    // It is over, and nothing moves any more.
    let applied = world.state.applied();
    world.pass(TTL);
    assert_eq!(world.state.applied(), applied);
}

/// The budget is for moves that can wait, and storage that is closed for its restore cannot.
#[test]
fn it_waits_for_no_budget_and_comes_in_entries_of_bounded_size() {
    let budget =
        crate::state::PolicyChange { max_moves_in_flight: Some(1), moves_per_minute: Some(1), ..policy() };
    let mut world = World::of(2_500, &["a"], budget);
    order(&mut world);
    let first = world.due();
    let drains = |entries: &[Vec<Command>]| entries.iter().map(Vec::len).max();
    assert_eq!(drains(&first), Some(MAX_COMMANDS));
    world.pass(2_000);
    assert!(all_done(&world));
}

#[test]
fn the_next_leader_goes_on_with_it() {
    for steps in 0..6 {
        let mut world = World::of(3, &["a", "b"], policy());
        order(&mut world);
        for _ in 0..steps {
            world.pass(0);
        }
        world.elect(300);
        world.pass(2 * TTL);
        assert!(all_done(&world) && handed_out(&world), "after {steps} steps");
    }
}

#[test]
fn an_owner_that_never_gives_it_up_is_named_until_another_has_it() {
    let mut world = World::of(2, &["a", "b"], policy());
    let key = world.key(0);
    let owner = world.owner(key).unwrap().to_owned();
    world.worker(&owner).releases = false;
    order(&mut world);
    world.pass(TTL / 2);
    assert_eq!(stands(&world, key), Reasserted::Ending(world.session(&owner)));
    assert!(!handed_out(&world));
    world.pass(2 * TTL);
    assert!(all_done(&world) && handed_out(&world));
    assert_ne!(
        world.owner(key),
        Some(owner.as_str()),
        "its drain is over, and whoever gets it raises as well"
    );
}

#[test]
fn an_owner_that_dies_meanwhile_is_replaced_by_one_that_raises() {
    let mut world = World::of(4, &["a", "b"], policy());
    world.worker("a").releases = false;
    order(&mut world);
    world.pass(100);
    world.kill("a");
    world.pass(4 * TTL);
    assert!(all_done(&world) && handed_out(&world));
    assert_eq!(world.owned_by("b").len(), 4);
}

#[test]
fn what_is_frozen_waits_and_the_rest_does_not() {
    let mut world = World::of(3, &["a"], policy());
    let (key, owner) = (world.key(1), world.session("a"));
    let freeze = |on| {
        let change = PartitionChange { frozen: Some(on), ..PartitionChange::default() };
        vec![Command::SetPartition { partition: key, change }]
    };
    world.apply(freeze(true)).outcome.unwrap();
    order(&mut world);
    world.pass(TTL);
    assert!(matches!(stands(&world, key), Reasserted::Frozen(session, _) if session == owner));
    assert_eq!([0, 2].map(|n| stands(&world, world.key(n))), [Reasserted::Done, Reasserted::Done]);
    assert!(!handed_out(&world));
    world.apply(freeze(false)).outcome.unwrap();
    world.pass(TTL);
    assert!(all_done(&world) && handed_out(&world));
}

#[test]
fn a_worker_that_takes_nothing_new_keeps_what_it_has() {
    let mut world = World::of(2, &["a", "b"], policy());
    let before = owners(&world);
    let change = WorkerChange { cordoned: Some(true), ..WorkerChange::default() };
    let worker = crate::ids::WorkerId::new("a").unwrap();
    world.apply(vec![Command::SetWorker { worker, change }]).outcome.unwrap();
    order(&mut world);
    world.pass(TTL);
    assert!(all_done(&world));
    assert_eq!(owners(&world), before);
}

#[test]
fn f018_an_owner_whose_storage_has_seen_more_is_granted_above_it_in_the_same_entry() {
    let mut world = World::of(1, &["a", "b"], policy());
    let key = world.key(0);
    let owner = world.owner(key).unwrap().to_owned();
    let (epoch, session) = (world.epoch(key), world.session(&owner));
    let behind = |epoch, seen| {
        let how = Released::Behind(Epoch::new(seen).unwrap());
        move |world: &World| release(&world.state, key, epoch, session, how, &BTreeSet::new())
    };
    let (first, follows) = behind(epoch, 150)(&world);
    assert_eq!(follows.len(), 1);
    world.apply(std::iter::once(first).chain(follows).collect()).outcome.unwrap();
    let last = world.state.partition(key).unwrap().history().last().unwrap();
    assert_eq!((last.epoch.get(), last.why, last.session), (151, GrantReason::Behind, session));

    // Again, before it was ever ready: it waits, and another tries.
    let (again, follows) = behind(world.epoch(key), 500)(&world);
    assert!(follows.is_empty());
    world.apply(vec![again]).outcome.unwrap();
    assert!(matches!(world.phase(key), Phase::Cooling(_)));
    world.pass(TTL);
    assert!(world.epoch(key).get() > 500);
    assert_ne!(world.owner(key), Some(owner.as_str()));
}
