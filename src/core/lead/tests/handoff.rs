//! Releases, back-offs, and what waits before the next grant.

use super::world::{TTL, World, at, by_fence, ms, policy};
use crate::ids::WorkerId;
use crate::lead::release;
use crate::state::{Command, CoolingWhy, GrantReason, Outcome, Phase, PolicyChange, Released};
use std::collections::BTreeSet;

fn failed() -> Released {
    Released::Failed("disk on fire".into())
}

fn with_lock_delay(delay: u64) -> PolicyChange {
    PolicyChange { lock_delay: Some(ms(delay)), ..policy() }
}

#[test]
fn a_planned_move_is_a_release_and_a_grant_in_one_entry() {
    let mut world = World::of(1, &["a", "b"], policy());
    let key = world.key(0);
    let (owner, before) = (world.owner(key).unwrap().to_string(), world.epoch(key));
    let other = if owner == "a" { "b" } else { "a" };
    world.drain(key, other, TTL);
    world.pass(0);
    assert_eq!(world.owner(key), Some(other));
    let mut entries = world.log.iter().rev();
    let (_, entry) = entries.find(|(_, entry)| matches!(entry[0], Command::Release { .. })).unwrap();
    assert_eq!(entry.len(), 2);
    assert!(matches!(entry[1], Command::Grant { why: GrantReason::Operator, .. }));
    assert!(world.epoch(key) > before);
}

#[test]
fn p16_a_release_counts_whatever_the_leader_has_begun_meanwhile() {
    let mut world = World::of(1, &["a", "b"], policy());
    let key = world.key(0);
    let owner = world.owner(key).unwrap().to_string();
    let (session, epoch) = (world.session(&owner), world.epoch(key));
    // Decided while the partition was owned; a drain is applied before it.
    let (command, grant) = release(&world.state, key, epoch, session, Released::Returned, &BTreeSet::new());
    assert_eq!(grant, []);
    world.drain(key, if owner == "a" { "b" } else { "a" }, TTL);
    assert_eq!(world.apply(vec![command.clone()]).outcome, Ok(vec![Outcome::Done]));
    world.work();
    assert_ne!(world.owner(key), Some(owner.as_str()));
    // Its answer was lost, and it comes again.
    assert_eq!(world.apply(vec![command]).outcome, Ok(vec![Outcome::Unchanged]));
}

#[test]
fn a_release_brings_the_grant_only_when_its_target_can_take_it() {
    let mut world = World::of(1, &["a", "b"], policy());
    let key = world.key(0);
    let owner = world.owner(key).unwrap().to_string();
    let other = if owner == "a" { "b" } else { "a" };
    let (session, epoch, to) = (world.session(&owner), world.epoch(key), world.session(other));
    let grant = |world: &World, how| release(&world.state, key, epoch, session, how, &BTreeSet::new()).1;
    assert_eq!(grant(&world, Released::Revoked), [], "nothing is drained");
    world.drain(key, other, TTL);
    assert_eq!(grant(&world, Released::Revoked).len(), 1);
    assert_eq!(grant(&world, Released::Returned).len(), 1);
    assert_eq!(grant(&world, failed()), [], "it waits for the back-off");
    let newer = crate::ids::Epoch::new(epoch.get() + 1).unwrap();
    assert_eq!(release(&world.state, key, newer, session, Released::Revoked, &BTreeSet::new()).1, []);
    assert_eq!(
        release(&world.state, key, epoch, to, Released::Revoked, &BTreeSet::new()).1,
        [],
        "not the owner"
    );

    world.apply(vec![Command::Suspect { sessions: vec![(to, 1)] }]);
    assert_eq!(grant(&world, Released::Revoked), [], "suspected");
    world.apply(vec![Command::Clear { sessions: vec![to] }]);
    let absent = BTreeSet::from([to]);
    assert_eq!(
        release(&world.state, key, epoch, session, Released::Revoked, &absent).1,
        [],
        "it is not there"
    );
    world.apply(vec![Command::Withdraw { session: to }]);
    assert_eq!(grant(&world, Released::Revoked), [], "about to leave");
    world.apply(vec![Command::Leave { session: to }]);
    assert_eq!(grant(&world, Released::Revoked), [], "gone");
}

#[test]
fn p15_f064_a_release_stands_when_the_target_of_its_move_has_died_an_entry_earlier() {
    let mut world = World::of(1, &["a", "b"], policy());
    let key = world.key(0);
    let owner = world.owner(key).unwrap().to_string();
    let other = if owner == "a" { "b" } else { "a" };
    let (session, epoch) = (world.session(&owner), world.epoch(key));
    world.drain(key, other, TTL);
    let (command, grant) = release(&world.state, key, epoch, session, Released::Revoked, &BTreeSet::new());
    world.apply(vec![Command::Leave { session: world.session(other) }]);
    let applied = world.apply(std::iter::once(command).chain(grant).collect());
    assert_eq!(applied.outcome, Ok(vec![Outcome::Done, Outcome::LeftVacant]));
    world.work();
    assert_eq!(world.owner(key), Some(owner.as_str()), "the only one there is");
}

#[test]
fn f050_a_drain_whose_deadline_passed_goes_where_the_move_was_going() {
    // By its ring alone this partition would go back to the worker whose task hangs, and be moved off again.
    for number in 0..8 {
        let mut world = World::of(8, &["a", "b", "c"], policy());
        let key = world.key(number);
        let owner = world.owner(key).unwrap().to_string();
        let to = ["a", "b", "c"].into_iter().rfind(|name| *name != owner).unwrap();
        world.worker(&owner).releases = false;
        let began = world.now;
        world.drain(key, to, 1_000);
        world.pass(TTL + 50);
        assert_eq!(world.owner(key), Some(to), "{number}");
        let grants = world.grants_since(began).into_iter().filter(|granted| *granted == key);
        assert_eq!(grants.count(), 1, "{number}");
    }
}

#[test]
fn f064_f093_a_drain_whose_target_has_gone_does_not_end_at_the_worker_that_hangs() {
    let mut world = World::of(6, &["a", "b", "c"], policy());
    let key = world.owned_by("a")[0];
    world.worker("a").releases = false;
    world.drain(key, "c", 1_000);
    let session = world.session("c");
    world.silence("c");
    world.apply(vec![Command::Leave { session }]);
    world.pass(TTL + 100);
    assert_eq!(world.owner(key), Some("b"));
}

#[test]
fn t47_lock_delay_holds_what_its_owner_did_not_release_and_nothing_else() {
    let mut world = World::of(4, &["a", "b"], with_lock_delay(5_000));
    let keys = world.owned_by("a");
    // Given back: no delay.
    world.drain(keys[0], "b", TTL);
    assert_eq!(world.until_owner(keys[0], "b", 100), 0);
    // Taken at the end of a drain.
    world.worker("a").releases = false;
    world.drain(keys[1], "b", 1_000);
    let began = world.now;
    world.pass(TTL - 50);
    world.revoke_seen(keys[1]);
    world.pass(50);
    assert!(matches!(world.phase(keys[1]), Phase::Cooling(cooling) if cooling.why == CoolingWhy::LockDelay));
    world.pass(6_000);
    assert!(matches!(world.phase(keys[1]), Phase::Owned { .. }));
    assert!(world.now - began >= 6_000);
    // Left behind by a session whose lease ran out.
    let dead = world.owner(keys[0]).unwrap().to_string();
    let other = if dead == "a" { "b" } else { "a" };
    world.kill(&dead);
    let took = world.until_owner(keys[0], other, TTL + 6_000);
    assert!(took > TTL - TTL / 6 + 5_000 && took <= TTL + 5_000, "{took}");
    let expired =
        world.log.iter().rev().find(|(_, entry)| matches!(entry[0], Command::Expire { .. })).unwrap();
    assert_eq!(expired.1.len(), 1, "nothing to grant yet");
}

#[test]
fn p18_t39_timers_across_failovers_are_counted_in_full_and_end_under_a_leader_that_lasts() {
    let mut world = World::of(1, &["a", "b"], with_lock_delay(5_000));
    let key = world.key(0);
    let owner = world.owner(key).unwrap().to_string();
    let other = if owner == "a" { "b" } else { "a" };
    world.kill(&owner);
    world.pass(TTL);
    assert!(matches!(world.phase(key), Phase::Cooling(_)));
    for _ in 0..3 {
        world.pass(4_000);
        world.elect(500);
    }
    assert_eq!(world.until_owner(key, other, 6_000), 5_000);
}

#[test]
fn p18_an_operator_ends_what_cools() {
    let mut world = World::of(1, &["a", "b"], with_lock_delay(60_000));
    let key = world.key(0);
    let owner = world.owner(key).unwrap().to_string();
    let other = if owner == "a" { "b" } else { "a" };
    world.kill(&owner);
    world.pass(TTL);
    let epoch = world.epoch(key);
    world.apply(vec![Command::EndCooling { partition: key, epoch }]);
    assert_eq!(world.until_owner(key, other, 100), 0);
    // The timer has gone with it.
    world.pass(61_000);
}

#[test]
fn a_failed_task_waits_and_goes_to_another_worker() {
    let mut world = World::of(4, &["a", "b"], policy());
    let key = world.owned_by("a")[0];
    world.give_back(key, failed());
    world.work();
    assert!(matches!(world.phase(key), Phase::Cooling(cooling) if cooling.why == CoolingWhy::Backoff));
    assert_eq!(world.until_owner(key, "b", 2_000), 1_000);
    world.give_back(key, failed());
    assert_eq!(world.until_owner(key, "a", 3_000), 2_000);
    let setback = world.state.partition(key).unwrap().setback().unwrap();
    assert_eq!((setback.count, setback.error.as_str()), (2, "disk on fire"));
}

#[test]
fn a_failed_task_comes_back_to_the_only_worker_after_the_back_off_alone() {
    let mut world = World::of(1, &["a"], policy());
    let key = world.key(0);
    world.give_back(key, failed());
    assert_eq!(world.until_owner(key, "a", 2_000), 1_000);
    // Under a new leader the back-off is counted again, and once.
    world.give_back(key, failed());
    world.pass(500);
    world.elect(500);
    assert_eq!(world.until_owner(key, "a", 5_000), 2_000);
}

#[test]
fn a_poisonous_partition_is_tried_ever_more_rarely() {
    let mut world = World::of(2, &["a", "b"], policy());
    let key = world.key(0);
    let mut waits = Vec::new();
    for _ in 0..8 {
        world.give_back(key, failed());
        let freed = world.now;
        while world.owner(key).is_none() {
            world.pass(50);
        }
        waits.push((world.now - freed) / 1_000);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
}

#[test]
fn p16_t18_a_task_that_returns_by_itself_rests() {
    let mut world = World::of(1, &["a"], policy());
    let key = world.key(0);
    world.give_back(key, Released::Returned);
    assert_eq!(world.until_owner(key, "a", 2_000), 1_000);
    world.give_back(key, Released::Returned);
    assert_eq!(world.until_owner(key, "a", 3_000), 2_000);
    // A revoked task did what it was told to, and clears the record.
    world.join("b", &[world.orders()]);
    world.drain(key, "b", TTL);
    world.pass(0);
    assert_eq!((world.owner(key), world.state.partition(key).unwrap().setback()), (Some("b"), None));
}

#[test]
fn p16_two_workers_do_not_pass_a_partition_to_and_fro_that_nobody_wants() {
    let mut world = World::of(1, &["a", "b"], policy());
    let key = world.key(0);
    let (owner, began, before) = (world.owner(key).unwrap().to_string(), world.now, world.epoch(key).get());
    world.give_back(key, Released::Returned);
    world.work();
    assert!(world.owner(key).is_some_and(|other| other != owner), "the other one at once");
    while world.now < began + 60_000 {
        if world.owner(key).is_some() {
            world.give_back(key, Released::Returned);
        }
        world.pass(50);
    }
    assert!(world.epoch(key).get() - before <= 8, "{} epochs in a minute", world.epoch(key).get() - before);
}

/// A setback is remembered for minutes, and is no word about an owner that is lost since.
#[test]
fn an_old_setback_does_not_hold_up_the_failover_of_a_lost_owner() {
    let why = |world: &World, since| {
        world.commands_since(since, |c| match c {
            Command::Grant { why, .. } => Some(*why),
            _ => None,
        })
    };
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Grant {
        WithTheExpiry,
        InALaterEntry,
        OfANewLeader,
    }
    for grant in [Grant::WithTheExpiry, Grant::InALaterEntry, Grant::OfANewLeader] {
        let mut world = World::of(1, &["a", "b"], policy());
        let key = world.key(0);
        for _ in 0..6 {
            world.give_back(key, Released::Returned);
            world.pass(40_000);
        }
        let lost = world.owner(key).unwrap().to_owned();
        let other = if lost == "a" { "b" } else { "a" };
        assert_eq!(world.state.partition(key).unwrap().setback().unwrap().count, 6);
        let began = world.now;
        world.kill(&lost);
        world.pass(TTL - TTL / 6 - 50);
        while world.lives(&lost) {
            world.now += 50;
            for mut entry in world.due() {
                if grant != Grant::WithTheExpiry {
                    entry.retain(|command| !matches!(command, Command::Grant { .. }));
                }
                world.apply(entry).outcome.unwrap();
            }
        }
        if grant == Grant::OfANewLeader {
            world.elect(0);
        }
        assert_eq!(world.owner(key).is_some(), grant == Grant::WithTheExpiry, "{grant:?}");
        world.work();
        assert_eq!(world.owner(key), Some(other), "{grant:?}");
        assert_eq!(why(&world, began), [GrantReason::Failover], "{grant:?}");
    }
}

/// It is taken from a live owner, whose tasks returned by themselves earlier, and its grant comes in a later entry.
#[test]
fn an_old_setback_does_not_hold_up_what_was_taken_from_a_live_owner() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Taken {
        AtADeadline,
        ByFence,
        BeforeALockDelayAndANewLeader,
    }
    for (taken, change) in [
        (Taken::AtADeadline, policy()),
        (Taken::ByFence, by_fence()),
        (Taken::BeforeALockDelayAndANewLeader, with_lock_delay(200)),
    ] {
        let mut world = World::of(1, &["a"], change);
        let key = world.key(0);
        for _ in 0..6 {
            world.give_back(key, Released::Returned);
            world.pass(40_000);
        }
        world.join("b", &[world.orders()]);
        world.pass(1_000);
        let setback = world.state.partition(key).unwrap().setback().unwrap().clone();
        assert_eq!((world.owner(key), setback.worker.as_str(), setback.count), (Some("a"), "a", 6));
        let began = world.now;
        if taken == Taken::ByFence {
            let (session, epoch) = (world.session("a"), world.epoch(key));
            world.apply(vec![Command::Seize { partition: key, epoch, session }]).outcome.unwrap();
        } else {
            world.worker("a").releases = false;
            world.drain(key, "b", TTL / 2);
            world.pass(TTL / 2 - 100);
            world.revoke_seen(key);
        }
        let mut elected = false;
        while *world.phase(key) != Phase::Vacant {
            world.now += 50;
            for mut entry in world.due() {
                entry.retain(|command| !matches!(command, Command::Grant { .. }));
                world.apply(entry).outcome.unwrap();
            }
            if taken == Taken::BeforeALockDelayAndANewLeader && world.owner(key).is_none() && !elected {
                elected = true;
                world.elect(0);
            }
        }
        assert!(world.lives("a"), "{taken:?}");
        world.work();
        assert_eq!(world.owner(key), Some("b"), "{taken:?}");
        let why = |command: &Command| match command {
            Command::Grant { why, .. } => Some(*why),
            _ => None,
        };
        assert_eq!(world.commands_since(began, why), [GrantReason::Failover], "{taken:?}");
    }
}

#[test]
fn an_old_setback_does_not_keep_the_partition_from_the_worker_that_comes_back() {
    let mut world = World::of(1, &["a"], policy());
    let key = world.key(0);
    for _ in 0..6 {
        world.give_back(key, Released::Returned);
        world.pass(40_000);
    }
    world.kill("a");
    world.pass(2 * TTL);
    assert!(!world.lives("a"));
    world.join("a", &[world.orders()]);
    assert_eq!(world.until_owner(key, "a", 100), 0);
}

#[test]
fn a_new_leader_counts_the_rest_of_a_returned_task_in_full() {
    let mut world = World::of(1, &["a"], policy());
    let key = world.key(0);
    world.give_back(key, Released::Returned);
    world.pass(900);
    world.elect(100);
    assert_eq!(world.until_owner(key, "a", 2_000), 1_000);
}

#[test]
fn f102_a_withdrawn_worker_gives_back_and_gets_nothing() {
    let mut world = World::of(6, &["a", "b"], policy());
    let session = world.session("a");
    world.apply(vec![Command::Withdraw { session }]);
    for key in world.owned_by("a") {
        world.give_back(key, Released::Revoked);
    }
    world.work();
    assert_eq!(world.spread()["a"], 0);
    let session = world.session("b");
    for key in world.owned_by("b") {
        world.give_back(key, Released::Revoked);
    }
    world.apply(vec![Command::Withdraw { session }]);
    world.pass(1_000);
    assert_eq!(world.spread()["b"], 0, "nobody is left to take them");
    world.join("c", &[world.orders()]);
    world.pass(100);
    assert_eq!(world.spread()["c"], 6);
}

#[test]
fn the_timers_of_a_deleted_keyspace_are_gone_and_hold_up_nobody() {
    let mut world = World::of(2, &["a", "b"], with_lock_delay(2_000));
    let orders = world.orders();
    let others = world.create("others", 2, PolicyChange { lock_delay: Some(ms(2_000)), ..policy() });
    world.join("c", &[others]);
    world.join("d", &[others]);
    world.pass(1_000);
    // Something cools in both, and something drains in the one that is deleted.
    world.kill("a");
    world.kill("c");
    world.pass(TTL);
    assert!(world.keys().iter().filter(|key| matches!(world.phase(**key), Phase::Cooling(_))).count() >= 2);
    let owned = world.owned_by("b")[0];
    let (epoch, session) = (world.epoch(owned), world.session("b"));
    let (to, deadline, why) = (WorkerId::new("b").unwrap(), ms(1_000), GrantReason::Operator);
    world.apply(vec![Command::Drain { partition: owned, epoch, to, deadline, why }]);
    world.apply(vec![Command::DeleteKeyspace { keyspace: orders }]);
    assert_eq!(world.leader.timers.drains_of(session, at(world.now)), []);
    // `work` holds that nothing is refused.
    world.pass(5_000);
    assert_eq!(world.owned_by("d").len(), 2);
}

#[test]
fn g3_a_keyspace_created_again_is_granted_when_the_leases_of_the_old_one_have_run_out() {
    let mut world = World::of(1, &["a"], policy());
    world.apply(vec![Command::DeleteKeyspace { keyspace: world.key(0).keyspace }]);
    let again = world.create("orders", 1, policy());
    let began = world.now;
    world.join("b", &[again]);
    world.pass(TTL - 100);
    assert_eq!(world.grants_since(began).len(), 0, "its old owner may not have heard of it");
    world.pass(200);
    assert_eq!(world.grants_since(began).len(), 1);
}
