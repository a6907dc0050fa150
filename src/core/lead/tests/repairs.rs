//! Grants: who gets what is vacant, at what pace, and that none is forgotten.

use super::world::{TTL, World, at, policy};
use crate::ids::{Epoch, EpochFloor};
use crate::lead::Share;
use crate::state::{Command, GrantReason, Outcome, Phase, PolicyChange, Released};
use std::collections::BTreeMap;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("w{i:02}")).collect()
}

fn with_workers(partitions: u32, count: usize, policy: PolicyChange) -> (World, Vec<String>) {
    let names = names(count);
    (World::of(partitions, &names.iter().map(String::as_str).collect::<Vec<_>>(), policy), names)
}

#[test]
fn partitions_are_granted_as_soon_as_somebody_serves_their_keyspace() {
    let mut world = World::new();
    let orders = world.create("orders", 8, policy());
    let other = world.create("other", 2, policy());
    world.pass(1_000);
    assert!(world.keys().iter().all(|key| *world.phase(*key) == Phase::Vacant));
    world.join("a", &[orders]);
    world.pass(0);
    assert_eq!(world.spread()["a"], 8);
    world.join("b", &[orders, other]);
    world.pass(0);
    assert_eq!(world.spread()["b"], 2, "balancing waits for more to join, grants do not");
}

#[test]
fn the_reason_of_a_grant_is_told() {
    let mut world = World::of(4, &["a", "b"], policy());
    let why = |world: &World, since| {
        world.commands_since(since, |c| match c {
            Command::Grant { why, .. } => Some(*why),
            _ => None,
        })
    };
    assert_eq!(why(&world, 0), [GrantReason::First; 4]);
    world.now += 50;
    let (now, keys) = (world.now, world.owned_by("a"));
    let session = world.session("a");
    for key in &keys {
        world.give_back(*key, Released::Revoked);
    }
    world.apply(vec![Command::Leave { session }]);
    world.pass(50);
    assert_eq!(why(&world, now), [GrantReason::Vacated; 2]);
    world.join("c", &[world.orders()]);
    world.pass(1_000);
    let now = world.now;
    world.kill("b");
    world.pass(TTL);
    assert_eq!(why(&world, now), [GrantReason::Failover; 2]);

    // A task that failed has lost its partition, and the worker has not been lost.
    let (now, key) = (world.now, world.owned_by("a").into_iter().chain(world.owned_by("c")).next().unwrap());
    world.give_back(key, Released::Failed("boom".to_owned()));
    world.pass(3_000);
    assert_eq!(why(&world, now), [GrantReason::Vacated]);
}

#[test]
fn a_suspected_worker_keeps_what_it_has_and_gets_nothing() {
    let mut world = World::of(6, &["a", "b"], policy());
    world.silence("a");
    world.pass(TTL / 3);
    assert!(world.state.session(world.session("a")).unwrap().suspicion().is_some());
    let (began, session) = (world.now, world.session("b"));
    for key in world.owned_by("b") {
        world.give_back(key, Released::Revoked);
    }
    world.silence("b");
    world.apply(vec![Command::Leave { session }]);
    world.pass(200);
    assert_eq!((world.spread()["a"], world.grants_since(began).len()), (3, 0));
    world.worker("a").up = true;
    world.pass(TTL / 6);
    assert_eq!(world.spread()["a"], 6, "it was heard from");
}

#[test]
fn p15_an_expiry_stands_when_the_target_of_a_grant_died_an_entry_earlier() {
    let (mut world, _) = with_workers(30, 3, policy());
    world.kill("w00");
    world.pass(TTL - TTL / 6 - 100);
    let mut entries = Vec::new();
    while entries.is_empty() {
        world.now += 50;
        entries = world.due();
    }
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!(entry.len(), 11, "the expiry and its grants ride in one entry");
    let session = world.session("w01");
    world.silence("w01");
    world.apply(vec![Command::Leave { session }]);
    let outcome = world.apply(entry.clone()).outcome.unwrap();
    let left = outcome.iter().filter(|outcome| **outcome == Outcome::LeftVacant).count();
    assert!(
        left > 0 && outcome[1..].iter().any(|outcome| matches!(outcome, Outcome::Granted(_))),
        "{outcome:?}"
    );
    assert!(!world.lives("w00"));
    world.pass(TTL);
    assert_eq!(world.spread()["w02"], 30, "and what was left vacant is granted by the next look");
}

#[test]
fn p15_a_refused_expiry_takes_only_its_own_grants_with_it() {
    let (mut world, _) = with_workers(40, 8, policy());
    for name in ["w00", "w01"] {
        world.kill(name);
    }
    world.pass(TTL - TTL / 6 - 100);
    let mut entries = Vec::new();
    while entries.is_empty() {
        world.now += 50;
        entries = world.due();
    }
    assert_eq!(entries.iter().map(Vec::len).collect::<Vec<_>>(), [6, 6]);
    // One of the two is heard from at the last moment.
    world.apply(vec![Command::Clear { sessions: vec![world.session("w00")] }]);
    let outcomes: Vec<bool> = entries.into_iter().map(|entry| world.apply(entry).outcome.is_ok()).collect();
    assert_eq!(outcomes, [false, true]);
    assert!(world.lives("w00") && !world.lives("w01"));
}

#[test]
fn f081_what_was_handed_out_and_did_not_take_effect_comes_again() {
    let mut world = World::new();
    let orders = world.create("orders", 8, policy());
    let other = world.create("other", 8, policy());
    world.join("a", &[orders, other]);
    let entries = world.due();
    assert_eq!(entries.iter().map(Vec::len).sum::<usize>(), 16);
    // Lost on the way to the log.
    assert_eq!(world.due(), entries);
    // Refused as a whole, because one of its keyspaces is deleted before it applies; no event tells of the other one.
    world.apply(vec![Command::DeleteKeyspace { keyspace: other }]);
    for entry in entries {
        assert!(world.apply(entry).outcome.is_err());
    }
    world.work();
    assert_eq!(world.spread()["a"], 8);
    // And then there is rest.
    assert_eq!(world.due(), Vec::<Vec<Command>>::new());
}

#[test]
fn f054_t38_mass_expiry_after_an_outage_is_repaired_at_the_budget_and_never_at_zero() {
    let change = PolicyChange { max_moves_in_flight: Some(4), ..policy() };
    let (mut world, names) = with_workers(60, 10, change);
    for name in &names[..6] {
        world.kill(name);
    }
    // The survivors take their time to get ready.
    for name in &names[6..] {
        world.worker(name).says_ready = false;
    }
    let began = world.now;
    while world.lives("w00") {
        world.pass(50);
    }
    assert!(names[..6].iter().all(|name| !world.lives(name)));
    assert!((4..=5).contains(&world.grants_since(began).len()));
    // None of them ever gets ready, and the repairs go on all the same.
    let before = world.grants_since(began).len();
    world.pass(1_000);
    let after = world.grants_since(began).len();
    assert!((8..=12).contains(&(after - before)), "one each 100 ms: {}", after - before);
    // With owners that get ready the budget is what counts; and when the TTL is over there is no brake.
    for name in &names[6..] {
        world.worker(name).says_ready = true;
    }
    world.pass(TTL);
    assert_eq!(names[6..].iter().map(|name| world.spread()[name.as_str()]).sum::<usize>(), 60);
    assert!(names[6..].iter().all(|name| world.spread()[name.as_str()] == 15), "{:?}", world.spread());
}

#[test]
fn a_third_of_the_sessions_is_no_mass_loss() {
    let change = PolicyChange { max_moves_in_flight: Some(1), ..policy() };
    let (mut world, names) = with_workers(90, 9, change);
    for name in &names[..3] {
        world.kill(name);
    }
    let began = world.now;
    world.pass(TTL);
    assert_eq!(world.grants_since(began).len(), 30);
    assert!(!world.leader.placing.braked(at(world.now), &world.state));
}

#[test]
fn an_operator_lets_the_brake_go_for_what_was_lost_and_not_for_what_is_lost_later() {
    let change = PolicyChange { max_moves_in_flight: Some(1), ..policy() };
    let (mut world, names) = with_workers(80, 16, change);
    for name in &names[..7] {
        world.kill(name);
    }
    for name in &names[7..] {
        world.worker(name).says_ready = false;
    }
    while world.lives("w00") {
        world.pass(50);
    }
    let brake = world.leader.placing.brake(at(world.now), &world.state).expect("it is on");
    assert_eq!((brake.lost, brake.of), (7, 16));
    assert!(world.leader.placing.brake_to_tell(at(world.now), &world.state).is_some());
    world.pass(100);
    assert!(world.leader.placing.brake_to_tell(at(world.now), &world.state).is_none(), "it is told once");
    let slow = world.keys().into_iter().filter(|key| world.owner(*key).is_none()).count();
    assert!(slow > 20, "{slow}");

    world.leader.placing.release_brake();
    world.pass(0);
    assert!(world.keys().into_iter().all(|key| world.owner(key).is_some()), "all of it at once");
    assert!(!world.leader.placing.braked(at(world.now), &world.state));
    assert!(world.leader.placing.brake_to_tell(at(world.now), &world.state).is_none());

    // The next incident is another one, although the first is not a TTL ago.
    for name in &names[7..12] {
        world.kill(name);
    }
    while world.lives("w07") {
        world.pass(50);
    }
    let brake = world.leader.placing.brake_to_tell(at(world.now), &world.state).expect("it is on again");
    assert_eq!((brake.lost, brake.of), (5, 9));
    assert!(world.keys().into_iter().any(|key| world.owner(key).is_none()));
}

#[test]
fn the_share_of_the_brake_is_a_setting() {
    for (percent, on) in [(20, true), (50, false), (100, false)] {
        let (mut world, names) = with_workers(20, 10, policy());
        world.leader.placing.set_brake(Share::percent(percent));
        names[..4].iter().for_each(|name| world.kill(name));
        while world.lives("w00") {
            world.pass(50);
        }
        assert_eq!(world.leader.placing.braked(at(world.now), &world.state), on, "{percent}");
    }
}

#[test]
fn the_brake_holds_balancing_too_and_lets_go_after_a_ttl() {
    let (mut world, names) = with_workers(40, 8, policy());
    for name in &names[..4] {
        world.kill(name);
    }
    world.pass(TTL + 50);
    assert!(world.leader.placing.braked(at(world.now), &world.state));
    let began = world.now;
    world.join("x", &[world.orders()]);
    world.pass(TTL - 500);
    assert_eq!(world.drains_since(began), []);
    world.pass(2_000);
    assert!(!world.leader.placing.braked(at(world.now), &world.state));
    assert_eq!(world.spread()["x"], 8);
}

#[test]
fn a_partition_whose_epochs_are_used_up_holds_up_no_other() {
    let mut world = World::of(6, &["a", "b"], policy());
    let key = world.owned_by("a")[0];
    let slot = world.state.keyspaces.get_mut(&key.keyspace).unwrap();
    slot.partitions[key.partition.get() as usize].epoch = EpochFloor::of(Epoch::MAX);
    let began = world.now;
    world.kill("a");
    // `work` holds that nothing is refused.
    world.pass(TTL);
    assert!(!world.lives("a"));
    assert_eq!((world.grants_since(began).len(), world.spread()["b"]), (2, 5));
    assert_eq!(*world.phase(key), Phase::Vacant);
    // It does not keep the others from being balanced either.
    world.join("c", &[world.orders()]);
    world.pass(2_000);
    assert_eq!(world.spread()["c"], 2);
}

#[test]
fn f055_the_first_look_of_a_leader_sees_what_its_predecessor_left_vacant() {
    let mut world = World::of(4, &["a", "b"], policy());
    let keys: BTreeMap<_, _> = world.keys().into_iter().map(|key| (key, world.epoch(key))).collect();
    world.kill("a");
    world.pass(TTL - TTL / 6 - 50);
    while world.lives("a") {
        world.now += 50;
        for entry in world.due() {
            // The leader dies between the expiry and its grants.
            world.apply(vec![entry[0].clone()]);
        }
    }
    assert_eq!(world.spread()["b"], 2);
    world.elect(300);
    world.pass(0);
    assert_eq!(world.spread()["b"], 4);
    assert!(keys.iter().all(|(key, before)| world.epoch(*key) >= *before));
}

#[test]
fn a_worker_that_was_replaced_is_not_granted_by_name() {
    // The grant names a session: what was decided for the earlier life of a worker does not reach the later one.
    let mut world = World::new();
    let orders = world.create("orders", 1, policy());
    world.join("a", &[orders]);
    let entries = world.due();
    world.join("a", &[orders]);
    assert_eq!(world.apply(entries[0].clone()).outcome, Ok(vec![Outcome::LeftVacant]));
    world.work();
    assert_eq!(world.owner(world.key(0)), Some("a"));
}

#[test]
fn under_the_brake_each_keyspace_has_turns_of_its_own() {
    let mut world = World::new();
    let change = || PolicyChange { max_moves_in_flight: Some(1), ..policy() };
    let keyspaces = ["many", "more"].map(|name| world.create(name, 30, change()));
    for name in ["a", "b", "x", "y", "z"] {
        world.join(name, &keyspaces);
    }
    world.pass(2_000);
    for name in ["a", "b"] {
        world.worker(name).says_ready = false;
    }
    ["x", "y", "z"].iter().for_each(|name| world.kill(name));
    while ["x", "y", "z"].iter().any(|name| world.lives(name)) {
        world.pass(50);
    }
    let braked = world.now;
    world.pass(1_000);
    assert!(world.leader.placing.braked(at(world.now), &world.state));
    for keyspace in keyspaces {
        let granted = world.grants_since(braked).into_iter().filter(|key| key.keyspace == keyspace).count();
        assert!((5..=12).contains(&granted), "{keyspace}: {granted}");
    }
}
