//! Splitting every partition in two, while workers own them.

use super::world::{TTL, World, at, ms, policy};
use crate::ids::{LogIndex, PartitionKey, WorkerId};
use crate::lead::{Leadership, Settings, release};
use crate::placement::PartitionCount;
use crate::state::{Command, GrantReason, PartitionChange, Phase, PolicyChange, Released};
use std::collections::BTreeSet;

fn start(world: &mut World) {
    let keyspace = world.orders();
    let from = world.state.keyspace(keyspace).unwrap().count();
    world.apply(vec![Command::StartSplit { keyspace, from }]).outcome.unwrap();
}

fn count(world: &World) -> u32 {
    world.state.keyspace(world.orders()).unwrap().count().get()
}

fn is_over(world: &World) -> bool {
    world.state.keyspace(world.orders()).unwrap().split().is_none()
}

fn all_ready(world: &World) -> bool {
    world.keys().iter().all(|key| world.state.partition(*key).unwrap().ready())
}

/// Where the command of each split stands in its entry, with that entry.
fn splits(world: &World) -> Vec<(PartitionKey, Vec<Command>)> {
    let entries = world.log.iter().map(|(_, entry)| entry);
    let split = |entry: &Vec<Command>| {
        entry
            .iter()
            .filter_map(|c| match c {
                Command::Split { partition, .. } => Some((*partition, entry.clone())),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    entries.flat_map(split).collect()
}

#[test]
fn every_partition_is_split_in_one_handoff_and_the_halves_are_balanced() {
    let mut world = World::of(4, &["a", "b"], policy());
    start(&mut world);
    world.pass(4 * TTL);
    assert!(is_over(&world) && all_ready(&world));
    assert_eq!(count(&world), 8);
    assert_eq!(world.spread().into_values().collect::<Vec<_>>(), [4, 4]);
    let splits = splits(&world);
    assert_eq!(splits.iter().map(|(key, _)| key.partition.get()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for (key, entry) in splits {
        assert!(
            matches!(&entry[..], [Command::Release { .. }, Command::Split { .. }, Command::Grant { partition, .. }, Command::Grant { why, .. }]
            if *partition == key && *why == GrantReason::Split),
            "{entry:?}"
        );
    }
    // It has come to rest.
    let before = world.state.applied();
    world.pass(TTL);
    assert_eq!(world.state.applied(), before);
}

/// Those with low numbers are split first, so their worker has more than its share in between.
#[test]
fn nothing_is_balanced_until_all_are_split() {
    let mut world = World::of(8, &["a", "b"], policy());
    let pin_all = |world: &mut World, to: fn(u32) -> Option<WorkerId>| {
        let pin = |number| {
            let change = PartitionChange { pin: Some(to(number)), ..PartitionChange::default() };
            Command::SetPartition { partition: world.key(number), change }
        };
        world.apply((0..8).map(pin).collect()).outcome.unwrap();
        world.pass(8 * TTL);
    };
    pin_all(&mut world, |number| WorkerId::new(if number < 4 { "a" } else { "b" }).ok());
    pin_all(&mut world, |_| None);
    let owners =
        |world: &World| (0..8).map(|n| world.owner(world.key(n)).unwrap().to_owned()).collect::<Vec<_>>();
    let before = owners(&world);
    assert_eq!(before, ["a", "a", "a", "a", "b", "b", "b", "b"]);
    start(&mut world);
    world.pass(8 * TTL);
    assert!(is_over(&world) && all_ready(&world));
    assert_eq!(
        owners(&world),
        before,
        "each half is where the whole was, and nobody has more than its share"
    );
    assert_eq!(world.spread().into_values().collect::<Vec<_>>(), [8, 8]);
    let moved = world.log.iter().flat_map(|(_, entry)| entry);
    let balanced = moved.filter(|c| matches!(c, Command::Drain { why: GrantReason::Balance, .. })).count();
    assert_eq!(balanced, 0);
}

#[test]
fn what_nobody_owns_is_split_at_once_and_granted_when_somebody_comes() {
    let mut world = World::new();
    let keyspace = world.create("orders", 5_000, policy());
    start(&mut world);
    world.work();
    assert_eq!((count(&world), is_over(&world)), (10_000, true));
    assert_eq!(world.log.len(), 2 + 6, "in entries of bounded size");
    world.join("a", &[keyspace]);
    world.pass(100);
    assert!(all_ready(&world));
}

/// What a leader does follows from the state: the next one goes on.
#[test]
fn a_split_that_is_interrupted_is_finished_by_the_next_leader() {
    for steps in 0..12 {
        let mut world = World::of(3, &["a", "b"], policy());
        start(&mut world);
        for _ in 0..steps {
            world.pass(0);
        }
        world.elect(300);
        world.pass(6 * TTL);
        assert!(is_over(&world) && all_ready(&world), "after {steps} steps");
        assert_eq!(count(&world), 6);
    }
}

#[test]
fn an_owner_that_does_not_give_back_is_waited_for_as_in_any_move() {
    let mut world = World::of(2, &["a"], policy());
    world.worker("a").releases = false;
    start(&mut world);
    world.pass(TTL - 1_000);
    assert_eq!(count(&world), 2);
    let drained = |world: &World| matches!(world.phase(world.key(0)), Phase::Draining(drain) if drain.why == GrantReason::Split);
    assert!(drained(&world));
    world.pass(2_000);
    assert_eq!(count(&world), 3, "its deadline has passed, and it is split before it is granted again");
    world.worker("a").releases = true;
    world.pass(4 * TTL);
    assert!(is_over(&world) && all_ready(&world));
}

#[test]
fn an_owner_that_dies_in_the_middle_of_it_is_replaced_and_the_split_goes_on() {
    let mut world = World::of(4, &["a", "b"], policy());
    let owner = world.owner(world.key(0)).unwrap().to_owned();
    world.worker(&owner).releases = false;
    start(&mut world);
    world.pass(200);
    world.kill(&owner);
    world.pass(8 * TTL);
    assert!(is_over(&world) && all_ready(&world));
    assert_eq!(world.owned_by(if owner == "a" { "b" } else { "a" }).len(), 8);
}

/// A task that always breaks is never vacant for a look: it cools, and is granted in the entry in which it has cooled.
#[test]
fn a_partition_that_fails_again_and_again_is_split_all_the_same() {
    let mut world = World::of(1, &["a"], policy());
    start(&mut world);
    let (key, session) = (world.key(0), world.session("a"));
    let epoch = world.epoch(key);
    world.apply(vec![Command::Release {
        partition: key,
        epoch,
        session,
        how: Released::Failed("it broke".to_owned()),
    }]);
    world.work();
    assert_eq!(count(&world), 2);
    assert!(matches!(world.phase(key), Phase::Cooling(_)), "its own back-off goes on");
    world.pass(2_000);
    assert!(all_ready(&world));
}

#[test]
fn g3_the_clock_of_a_cooling_goes_on_when_the_partition_is_split() {
    let mut world = World::of(1, &["a"], PolicyChange { lock_delay: Some(ms(4_000)), ..policy() });
    world.worker("a").releases = false;
    world.kill("a");
    let key = world.key(0);
    while !matches!(world.phase(key), Phase::Cooling(_)) {
        world.pass(50);
    }
    world.pass(3_000);
    start(&mut world);
    world.pass(0);
    let child = world.key(1);
    assert!(matches!(world.phase(child), Phase::Cooling(_)));
    world.pass(1_100);
    assert_eq!(world.phase(key), &Phase::Vacant);
    assert!(matches!(world.phase(child), Phase::Cooling(_)), "what is new is counted in full");
    world.pass(3_000);
    assert_eq!(world.phase(child), &Phase::Vacant);
}

#[test]
fn a_move_that_was_begun_for_another_reason_carries_the_split_with_it() {
    let mut world = World::of(2, &["a", "b"], policy());
    let key = world.key(0);
    let owner = world.owner(key).unwrap().to_owned();
    let other = if owner == "a" { "b" } else { "a" };
    world.drain(key, other, TTL);
    start(&mut world);
    let (epoch, session) = (world.epoch(key), world.session(&owner));
    let (command, follows) = release(&world.state, key, epoch, session, Released::Revoked, &BTreeSet::new());
    world.apply(std::iter::once(command).chain(follows).collect()).outcome.unwrap();
    assert_eq!((world.owner(key), world.owner(world.key(2))), (Some(other), Some(other)));
    assert_eq!(world.state.partition(key).unwrap().history().last().unwrap().why, GrantReason::Operator);
}

#[test]
fn a_release_whose_split_was_overtaken_counts_alone_and_the_split_follows() {
    let mut world = World::of(1, &["a"], policy());
    let keyspace = world.orders();
    start(&mut world);
    world.worker("a").releases = false;
    world.pass(100);
    let (key, session) = (world.key(0), world.session("a"));
    let epoch = world.epoch(key);
    let (command, follows) = release(&world.state, key, epoch, session, Released::Revoked, &BTreeSet::new());
    assert_eq!(follows.len(), 3);
    world.apply(vec![Command::CancelSplit { keyspace }]).outcome.unwrap();
    let entry: Vec<Command> = std::iter::once(command.clone()).chain(follows).collect();
    assert!(world.apply(entry).outcome.is_err());
    world.apply(vec![command]).outcome.unwrap();
    world.worker("a").releases = true;
    world.pass(500);
    assert!(all_ready(&world));
    assert_eq!(count(&world), 1);
    start(&mut world);
    world.pass(1_000);
    assert_eq!((count(&world), all_ready(&world)), (2, true));
}

#[test]
fn nothing_is_split_where_it_is_frozen() {
    let mut world = World::of(2, &["a"], policy());
    let keyspace = world.orders();
    world.apply(vec![Command::Freeze { keyspace: Some(keyspace), frozen: true }]);
    start(&mut world);
    world.pass(TTL);
    assert_eq!((count(&world), all_ready(&world)), (2, true));
    world.apply(vec![Command::Freeze { keyspace: Some(keyspace), frozen: false }]);
    let partition = world.key(1);
    let change = |frozen| PartitionChange { frozen: Some(frozen), ..PartitionChange::default() };
    world.apply(vec![Command::SetPartition { partition, change: change(true) }]);
    world.pass(TTL);
    assert_eq!((count(&world), all_ready(&world)), (3, true));
    world.apply(vec![Command::SetPartition { partition, change: change(false) }]);
    world.pass(TTL);
    assert_eq!((count(&world), all_ready(&world)), (4, true));
}

#[test]
fn a_split_keeps_within_the_budget_of_moves() {
    let mut world = World::of(8, &["a", "b"], PolicyChange { max_moves_in_flight: Some(1), ..policy() });
    start(&mut world);
    let mut most = 0;
    while !is_over(&world) {
        world.pass(0);
        world.now += 10;
        let draining = |key: &PartitionKey| matches!(world.phase(*key), Phase::Draining(_));
        most = most.max(world.keys().into_iter().filter(draining).count());
        assert!(world.now < 20 * TTL, "it is not finished");
    }
    assert!(most <= 1, "{most}");
    let per_minute = PolicyChange { moves_per_minute: Some(2), ..policy() };
    let mut world = World::of(4, &["a"], per_minute);
    start(&mut world);
    world.pass(30_000);
    assert_eq!(count(&world), 4 + 2);
    world.pass(40_000);
    assert!(is_over(&world));
}

#[test]
fn a_new_leader_has_nothing_to_remember_of_a_split_and_nothing_to_do_after_it() {
    let mut world = World::of(2, &["a"], policy());
    start(&mut world);
    world.pass(TTL);
    assert!(is_over(&world));
    let mut leader =
        Leadership::new(crate::ids::Term::new(9), at(world.now), &world.state, Settings::default());
    assert_eq!(leader.due(at(world.now), &world.state), Vec::<Vec<Command>>::new());
    assert!(world.state.applied() > LogIndex::new(0) && PartitionCount::new(count(&world)).is_ok());
}
