//! Takeover by fence: lost connections, the grace, and crowds.

use super::world::{TTL, World, at, by_fence, policy};
use crate::state::Command;

const GRACE: u64 = 200;

fn seizures(world: &World, since: u64) -> usize {
    world.commands_since(since, |c| matches!(c, Command::Seize { .. }).then_some(())).len()
}

fn workers(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("w{i:02}")).collect()
}

fn with_workers(partitions: u32, count: usize) -> (World, Vec<String>) {
    let names = workers(count);
    let mut world = World::of(partitions, &names.iter().map(String::as_str).collect::<Vec<_>>(), by_fence());
    world.pass(TTL);
    (world, names)
}

fn lose(world: &mut World, name: &str) {
    let (session, now) = (world.session(name), at(world.now));
    world.leader.presence.disconnected(session, now);
}

#[test]
fn a_killed_worker_is_replaced_after_the_grace_and_its_session_lives_on() {
    let (mut world, _) = with_workers(9, 3);
    let (keys, began) = (world.owned_by("w01"), world.now);
    world.kill("w01");
    world.pass(GRACE - 50);
    assert_eq!(world.owned_by("w01"), keys);
    world.pass(50);
    assert_eq!(world.owned_by("w01"), []);
    assert!(world.lives("w01"));
    assert_eq!(world.grants_since(began).len(), keys.len());
    // And nothing of it is granted to the dead one again, until its lease runs out and after.
    world.pass(2 * TTL);
    assert_eq!((world.grants_since(began).len(), world.owned_by("w01").len()), (keys.len(), 0));
    assert!(!world.lives("w01"));
}

#[test]
fn what_is_taken_is_granted_in_the_same_entry() {
    let (mut world, _) = with_workers(9, 3);
    let began = world.now;
    world.kill("w00");
    world.pass(GRACE);
    let entries =
        world.log.iter().filter(|(at, entry)| *at >= began && matches!(entry[0], Command::Seize { .. }));
    let shape: Vec<Vec<bool>> = entries
        .map(|(_, entry)| entry.iter().map(|command| matches!(command, Command::Seize { .. })).collect())
        .collect();
    assert_eq!(shape, [[true, false].repeat(3)]);
}

#[test]
fn p10_a_connection_that_comes_back_within_the_grace_costs_nothing() {
    let (mut world, _) = with_workers(9, 3);
    let began = world.now;
    lose(&mut world, "w01");
    world.pass(GRACE - 50);
    world.connect("w01");
    world.pass(TTL);
    assert_eq!(world.grants_since(began).len(), 0);
}

#[test]
fn p10_a_rotated_connection_is_no_loss() {
    let (mut world, _) = with_workers(9, 3);
    let began = world.now;
    let session = world.session("w01");
    // The new stream is opened before the old one goes.
    world.leader.presence.connected(session);
    lose(&mut world, "w01");
    world.pass(TTL);
    assert_eq!(seizures(&world, began), 0);
    assert_eq!(world.leader.presence.lost_for(session, at(world.now)), None);
}

#[test]
fn p10_a_lost_connection_takes_nothing_from_keyspaces_that_take_over_by_lease() {
    let mut world = World::new();
    let fenced = world.create("orders", 4, by_fence());
    let leased = world.create("ledger", 4, policy());
    for name in ["a", "b"] {
        world.join(name, &[fenced, leased]);
    }
    world.pass(TTL);
    assert_eq!(world.spread()["a"], 4);
    world.kill("a");
    world.pass(GRACE);
    assert!(world.owned_by("a").iter().all(|key| key.keyspace == leased));
    assert_eq!(world.spread()["a"], 2);
    world.pass(TTL);
    assert_eq!(world.spread()["b"], 8);
}

#[test]
fn p10_nothing_is_taken_in_a_leader_s_first_third_of_a_ttl() {
    let (mut world, _) = with_workers(9, 3);
    world.elect(300);
    let began = world.now;
    lose(&mut world, "w01");
    world.silence("w01");
    world.pass(TTL / 3 - 50);
    assert_eq!(seizures(&world, began), 0);
    world.pass(50);
    assert_eq!(seizures(&world, began), 3);
}

#[test]
fn p10_a_worker_that_this_leader_never_met_is_not_lost() {
    let (mut world, _) = with_workers(9, 3);
    world.silence("w01");
    world.elect(300);
    let began = world.now;
    world.pass(TTL - 50);
    assert_eq!(seizures(&world, began), 0);
    assert!(world.lives("w01"));
}

#[test]
fn p10_t38_a_proxy_that_restarts_moves_nothing_however_long_it_takes() {
    let (mut world, names) = with_workers(60, 20);
    let began = world.now;
    for name in &names {
        lose(&mut world, name);
    }
    world.pass(3_000);
    for name in &names {
        world.connect(name);
    }
    world.pass(TTL);
    assert_eq!((seizures(&world, began), world.grants_since(began).len()), (0, 0));
    // Afterwards a single loss counts as one.
    world.kill("w03");
    let began = world.now;
    world.pass(GRACE);
    assert_eq!(seizures(&world, began), 3);
}

#[test]
fn those_lost_in_a_crowd_are_left_to_their_leases() {
    let (mut world, names) = with_workers(60, 20);
    let died = world.now;
    for name in &names[..4] {
        world.kill(name);
    }
    world.pass(TTL - TTL / 6 - 50);
    assert_eq!(seizures(&world, died), 0);
    world.pass(TTL / 6 + 100);
    assert!(names[..4].iter().all(|name| !world.lives(name) && world.spread()[name.as_str()] == 0));
}

#[test]
fn two_of_three_workers_are_no_crowd() {
    let (mut world, _) = with_workers(9, 3);
    world.kill("w00");
    world.kill("w01");
    world.pass(GRACE);
    assert_eq!(world.spread()["w02"], 9);
}

#[test]
fn workers_that_leave_cleanly_are_no_losses() {
    let (mut world, names) = with_workers(40, 20);
    // A rolling restart: their streams close after they have left.
    for name in &names[..6] {
        let session = world.session(name);
        world.silence(name);
        world.apply(vec![Command::Leave { session }]);
        lose(&mut world, name);
        assert_eq!(world.leader.presence.lost_for(session, at(world.now)), None);
    }
    world.kill(&names[10]);
    world.pass(GRACE);
    assert_eq!(world.spread()[names[10].as_str()], 0, "the brake is for losses");
}

#[test]
fn an_absent_worker_is_granted_nothing_and_comes_back_into_its_share() {
    let mut world = World::of(8, &["a", "b"], policy());
    lose(&mut world, "a");
    world.pass(GRACE);
    let keys = world.owned_by("b");
    let (began, session) = (world.now, world.session("b"));
    world.silence("b");
    world.apply(vec![Command::Leave { session }]);
    world.pass(TTL);
    assert_eq!(world.grants_since(began), [], "it would not learn of a grant");
    world.connect("a");
    world.pass(100);
    assert_eq!(world.grants_since(began), keys);
}

#[test]
fn f080_an_absent_worker_is_neither_source_nor_target_of_a_move_that_can_wait() {
    let mut world = World::of(12, &["a", "b"], policy());
    let orders = world.orders();
    world.join("c", &[orders]);
    lose(&mut world, "b");
    let began = world.now;
    world.pass(TTL);
    let drained = world.drains_since(began);
    assert_eq!(drained.len(), 3, "two workers share what the absent one does not hold");
    assert_eq!((world.spread()["a"], world.spread()["b"], world.spread()["c"]), (3, 6, 3));
    world.connect("b");
    world.pass(TTL);
    assert_eq!((world.spread()["a"], world.spread()["b"], world.spread()["c"]), (4, 4, 4));
}

#[test]
fn a_drain_that_is_over_when_its_owner_is_lost_is_taken_once() {
    // Both come due in one look: the second would be refused, and take the first with it.
    let (mut world, _) = with_workers(9, 3);
    world.worker("w00").releases = false;
    let key = world.owned_by("w00")[0];
    world.drain(key, "w01", TTL / 3);
    world.elect(300);
    world.kill("w00");
    // `work` holds that nothing is refused.
    world.pass(TTL / 3);
    assert_eq!(world.spread()["w00"], 0);
    assert_eq!(world.owner(key), Some("w01"));
}

#[test]
fn a_worker_that_has_joined_and_opens_no_stream_is_granted_nothing_and_loses_nothing() {
    let mut world = World::of(4, &["a"], policy());
    let orders = world.key(0).keyspace;
    world.join_unconnected("silent", &[orders]);
    world.worker("silent").up = false;
    world.pass(GRACE + 50);
    world.kill("a");
    let began = world.now;
    world.pass(GRACE + 50);
    assert_eq!(world.grants_since(began).len(), 0, "it would not learn of a grant");
    assert_eq!(seizures(&world, began), 0);
}
