//! What a leader owes to the lease of a silent owner. Whatever happens, the world checks that no two workers believe.

use super::world::{TTL, World, at, by_fence, ms, policy};
use crate::ids::PartitionKey;
use crate::state::{Command, GrantReason, Phase, Released};

/// Workers `a` and `b`, one partition, owned by one of them; returns its owner and the other.
fn one_partition(policy: crate::state::PolicyChange) -> (World, PartitionKey, String, String) {
    let world = World::of(1, &["a", "b"], policy);
    let key = world.key(0);
    let owner = world.owner(key).unwrap().to_string();
    let other = if owner == "a" { "b" } else { "a" };
    (world, key, owner, other.to_string())
}

#[test]
fn g4_a05_a_dead_owner_is_replaced_when_its_lease_has_run_out_by_one_entry() {
    let (mut world, key, owner, other) = one_partition(policy());
    let (before, died) = (world.epoch(key), world.now);
    world.kill(&owner);
    let took = world.until_owner(key, &other, TTL + 1_000);
    assert!(took > TTL - TTL / 6 && world.now <= died + TTL + 50, "{took}");
    assert!(world.epoch(key) > before);
    let (_, entry) = world.log.iter().rev().find(|(_, entry)| entry.len() == 2).unwrap();
    assert!(matches!(entry[..], [Command::Expire { .. }, Command::Grant { why: GrantReason::Failover, .. }]));
}

#[test]
fn f017_elections_move_nothing_from_workers_that_go_on_renewing() {
    let mut world = World::of(20, &["a", "b", "c"], policy());
    let began = world.now;
    for gap in [100, 1_500, 2_500, 800, 1_900, 2_000, 100, 100, 2_500, 1_000] {
        world.elect(gap);
        world.pass(3_000);
    }
    assert_eq!((world.grants_since(began).len(), world.drains_since(began).len()), (0, 0));
}

#[test]
fn f015_a_leader_that_has_met_few_of_its_workers_moves_nothing() {
    let names: Vec<String> = (0..10).map(|i| format!("w{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::of(200, &names, policy());
    // All coordinators restart. Two workers are back at once, the others take most of a TTL.
    for name in &names[2..] {
        world.silence(name);
    }
    let began = world.now;
    world.elect(500);
    world.pass(TTL - 1_000);
    for name in &names[2..] {
        world.worker(name).up = true;
        world.connect(name);
    }
    world.pass(2 * TTL);
    assert_eq!((world.grants_since(began).len(), world.drains_since(began).len()), (0, 0));
}

#[test]
fn f002_t31_what_a_paused_leader_had_decided_changes_nothing_when_it_wakes_up() {
    let (mut world, key, owner, _) = one_partition(policy());
    let before = world.epoch(key);
    world.silence(&owner);
    world.pass(TTL / 2);
    // The leader is paused; its worker is heard by the next one.
    let (mut paused, what_it_knows) = (world.leader.clone(), world.state.clone());
    world.worker(&owner).up = true;
    world.elect(1_000);
    world.pass(2 * TTL);
    let stale = paused.due(at(world.now), &what_it_knows);
    assert!(matches!(stale[0][0], Command::Suspect { .. }), "{stale:?}");
    assert!(matches!(stale[1][0], Command::Expire { .. }), "{stale:?}");
    let expiry = stale[1].clone();
    assert!(world.apply(expiry).outcome.is_err());
    world.pass(2 * TTL);
    assert_eq!((world.owner(key), world.epoch(key)), (Some(owner.as_str()), before));
}

#[test]
fn p13_repeated_elections_end_a_dead_session_within_two_ttls_and_the_elections() {
    for (lasts, gap) in [(2_100, 300), (2_500, 700), (3_900, 300), (4_100, 300), (5_900, 900)] {
        let (mut world, key, owner, other) = one_partition(policy());
        let died = world.now;
        world.kill(&owner);
        let mut elections = 0;
        while world.owner(key) != Some(&other) {
            let until = world.now + lasts;
            while world.now < until && world.owner(key) != Some(&other) {
                world.pass(50);
            }
            if world.owner(key) != Some(&other) {
                elections += gap;
                world.elect(gap);
            }
            assert!(world.now - died <= 2 * TTL + elections, "leaders of {lasts} ms");
        }
    }
}

#[test]
fn p08_neither_a_join_nor_a_grant_is_worth_a_lease() {
    let mut world = World::new();
    let keyspace = world.create("orders", 1, policy());
    world.join("a", &[keyspace]);
    world.worker("a").up = false;
    world.work();
    let key = world.key(0);
    assert_eq!(world.owner(key), Some("a"));
    assert!(!world.believes("a", key));
    world.worker("a").up = true;
    world.pass(100);
    assert!(world.believes("a", key));
}

#[test]
fn p03_a_worker_that_hears_nothing_of_its_loss_stops_believing_in_time() {
    let (mut world, key, owner, other) = one_partition(policy());
    world.worker(&owner).hears = false;
    world.drain(key, &other, 2 * TTL);
    // It goes on renewing, and is acknowledged; neither pushes nor pictures arrive. What it does not catch up with
    // extends nothing, so it gives up by itself.
    let took = world.until_owner(key, &other, 2 * TTL);
    assert!(took >= TTL, "{took}");
    for _ in 0..4 {
        world.pass(TTL);
        assert!(!world.believes(&owner, key) && world.believes(&other, key));
    }
}

#[test]
fn p04_drain_deadline_an_owner_that_has_not_seen_it_keeps_the_partition_for_a_ttl() {
    for (deadline, granted) in [(1_000, TTL), (TTL, TTL), (TTL + 2_000, TTL + 2_000)] {
        let (mut world, key, owner, other) = one_partition(policy());
        world.worker(&owner).releases = false;
        world.worker(&owner).hears = false;
        world.drain(key, &other, deadline);
        assert_eq!(world.until_owner(key, &other, 2 * TTL), granted, "{deadline}");
        assert!(world.lives(&owner), "one partition is taken, not the session");
    }
}

#[test]
fn p04_drain_deadline_an_owner_that_has_seen_it_keeps_the_partition_until_then() {
    let (mut world, key, owner, other) = one_partition(policy());
    world.worker(&owner).releases = false;
    world.drain(key, &other, 2_000);
    world.pass(1_000);
    world.revoke_seen(key);
    assert_eq!(world.until_owner(key, &other, TTL), 1_000);
    // A new leader counts in full; what the owner was told is not longer for it.
    let (mut world, key, owner, other) = one_partition(policy());
    world.worker(&owner).releases = false;
    world.drain(key, &other, 2_000);
    world.pass(1_000);
    world.revoke_seen(key);
    world.elect(500);
    assert_eq!(world.until_owner(key, &other, TTL), 2_000);
}

#[test]
fn p04_a_second_drain_does_not_rearm() {
    let (mut world, key, owner, other) = one_partition(policy());
    world.worker(&owner).releases = false;
    world.worker(&owner).hears = false;
    world.drain(key, &other, 2_000);
    let began = world.now;
    let session = world.session(&owner);
    while world.owner(key) != Some(&other) {
        world.drain(key, &other, 600_000);
        // Nor does being told again that it drains.
        world.leader.timers.observe(key, at(world.now), &world.state, &world.leader.lessor);
        let left = world.leader.timers.drains_of(session, at(world.now));
        let expected = ms(2_000).saturating_sub(ms(world.now - began));
        assert_eq!(left.iter().map(|(_, _, left)| *left).collect::<Vec<_>>(), [expected]);
        world.pass(50);
    }
    assert_eq!(world.now - began, TTL);
}

#[test]
fn p04_each_acknowledgement_says_what_is_left_when_it_is_answered() {
    let (mut world, key, owner, other) = one_partition(policy());
    world.worker(&owner).releases = false;
    let epoch = world.epoch(key);
    world.drain(key, &other, 4_000);
    let session = world.session(&owner);
    world.pass(1_500);
    assert_eq!(world.leader.timers.drains_of(session, at(world.now)), [(key, epoch, ms(2_500))]);
    world.give_back(key, Released::Revoked);
    assert_eq!(world.leader.timers.drains_of(session, at(world.now)), []);
}

#[test]
fn takeover_by_fence_takes_at_the_drain_deadline_whether_it_was_seen_or_not() {
    let (mut world, key, owner, other) = one_partition(by_fence());
    world.worker(&owner).releases = false;
    world.worker(&owner).hears = false;
    world.drain(key, &other, 1_000);
    assert_eq!(world.until_owner(key, &other, TTL), 1_000);
}

#[test]
fn p05_replaced_partitions_cool_for_the_rest_of_the_lease() {
    let mut world = World::of(1, &["a"], policy());
    let (key, keyspace) = (world.key(0), world.orders());
    world.silence("a");
    let began = world.now;
    world.pass(1_000);
    world.join("a", &[keyspace]);
    world.work();
    assert!(matches!(world.phase(key), Phase::Cooling(_)));
    assert!(world.believes("a, replaced", key));
    world.until_owner(key, "a", TTL);
    // From its last renewal, not from the replacement.
    assert!(world.now - began > TTL - TTL / 6 && world.now - began <= TTL + 50, "{}", world.now - began);
}

#[test]
fn p05_under_a_new_leader_replaced_partitions_cool_for_a_full_ttl() {
    let mut world = World::of(1, &["a"], policy());
    let (key, keyspace) = (world.key(0), world.orders());
    world.silence("a");
    world.join("a", &[keyspace]);
    world.pass(3_000);
    world.elect(500);
    assert_eq!(world.until_owner(key, "a", 2 * TTL), TTL);
    // And when the leader that replaces has not heard of the earlier session itself.
    world.silence("a");
    world.elect(500);
    let began = world.now;
    world.join("a", &[keyspace]);
    world.until_owner(key, "a", 2 * TTL);
    assert!(world.now - began >= TTL - 50, "{}", world.now - began);
}

#[test]
fn p05_by_fence_a_replacement_takes_at_once() {
    let mut world = World::of(1, &["a"], by_fence());
    let (key, keyspace) = (world.key(0), world.orders());
    let before = world.epoch(key);
    world.silence("a");
    world.join("a", &[keyspace]);
    world.work();
    assert_eq!(world.owner(key), Some("a"));
    assert!(world.epoch(key) > before);
}

#[test]
fn p06_a_new_term_has_a_new_lessor_and_answers_no_renewal_of_an_earlier_one() {
    let (mut world, _, owner, _) = one_partition(policy());
    let (session, term) = (world.session(&owner), world.leader.term());
    world.leader.lessor.arrived(session);
    world.elect(100);
    assert!(world.leader.term() > term);
    // What waited in the earlier term does not hold the suspicion up in this one.
    world.silence(&owner);
    world.pass(TTL / 3);
    assert!(world.state.session(session).unwrap().suspicion().is_some());
}

#[test]
fn a_worker_that_left_without_releasing_keeps_its_lease() {
    let (mut world, key, owner, other) = one_partition(policy());
    let session = world.session(&owner);
    let began = world.now;
    world.silence(&owner);
    world.apply(vec![Command::Leave { session }]);
    world.work();
    assert!(world.believes(&owner, key));
    world.until_owner(key, &other, TTL);
    assert!(world.now - began > TTL - TTL / 6, "{}", world.now - began);
}

#[test]
fn f077_one_stuck_partition_holds_up_no_other() {
    let mut world = World::of(4, &["a", "b"], policy());
    let keys = world.owned_by("a");
    world.worker("a").releases = false;
    for key in &keys {
        world.drain(*key, "b", 60_000);
    }
    world.give_back(keys[1], Released::Revoked);
    assert_eq!(world.owner(keys[1]), Some("b"));
    assert!(matches!(world.phase(keys[0]), Phase::Draining(_)));
}
