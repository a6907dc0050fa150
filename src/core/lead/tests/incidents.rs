//! What went wrong in other systems between a decision and its effect, replayed on a leader and its workers.

use super::world::{TTL, World, policy};
use crate::ids::{Epoch, PartitionKey};
use crate::state::{Command, Outcome, Phase, Released};
use std::collections::BTreeSet;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three workers, one partition; its owner, and the two others.
fn one_partition() -> (World, PartitionKey, &'static str, &'static str, &'static str) {
    let world = World::of(1, &NAMES, policy());
    let key = world.key(0);
    let owner = NAMES.into_iter().find(|name| world.owner(key) == Some(name)).unwrap();
    let mut others = NAMES.into_iter().filter(|name| *name != owner);
    let (second, third) = (others.next().unwrap(), others.next().unwrap());
    (world, key, owner, second, third)
}

/// The leader has decided that one move is over, and is held up before it can say so. With nothing in between its
/// decision stands: the control.
#[test]
fn f004_what_was_decided_for_one_move_ends_no_other() {
    for overtaken in [false, true] {
        let (mut world, key, first, second, third) = one_partition();
        world.worker(first).releases = false;
        world.worker(second).releases = false;
        world.drain(key, second, 1_000);
        world.pass(950);
        world.revoke_seen(key);
        world.now += 50;
        let decided = world.due().remove(0);
        assert!(matches!(decided[..], [Command::DrainOver { .. }, Command::Grant { .. }]), "{decided:?}");
        if overtaken {
            world.give_back(key, Released::Revoked);
            assert_eq!(world.owner(key), Some(second));
            world.drain(key, third, TTL);
            let draining = world.phase(key).clone();
            assert!(world.apply(decided).outcome.is_err());
            assert_eq!(*world.phase(key), draining, "the second move needs its own release");
            world.give_back(key, Released::Revoked);
            assert_eq!(world.owner(key), Some(third));
        } else {
            assert!(world.apply(decided).outcome.is_ok());
            assert_eq!(world.owner(key), Some(second));
        }
    }
}

#[test]
fn f020_a_second_rebalance_in_the_middle_of_the_first_revokes_each_ownership_once() {
    let mut world = World::of(6, &["a"], policy());
    let orders = world.orders();
    let began = world.now;
    world.worker("a").releases = false;
    world.join("b", &[orders]);
    world.pass(1_000);
    assert!(!world.drains_since(began).is_empty(), "the first is under way");
    world.join("c", &[orders]);
    world.pass(2_000);
    world.worker("a").releases = true;
    world.pass(10_000);
    assert_eq!(world.spread().into_values().collect::<Vec<_>>(), [2, 2, 2]);
    let drained: Vec<(PartitionKey, Epoch)> = world.commands_since(began, |command| match command {
        Command::Drain { partition, epoch, .. } => Some((*partition, *epoch)),
        _ => None,
    });
    assert_eq!(drained.iter().collect::<BTreeSet<_>>().len(), drained.len(), "{drained:?}");
    // Who believes is who owns, and nobody else.
    for name in NAMES {
        let believed: Vec<_> = world.keys().into_iter().filter(|key| world.believes(name, *key)).collect();
        assert_eq!(believed, world.owned_by(name));
    }
}

#[test]
fn f030_what_was_sent_before_a_pause_is_answered_by_what_is_now() {
    let (mut world, key, first, _, _) = one_partition();
    let orders = world.orders();
    world.silence(first);
    world.pass(2 * TTL);
    let (owner, epoch) = (world.owner(key).map(str::to_owned), world.epoch(key));
    assert!(owner.is_some() && owner.as_deref() != Some(first));
    // The renewal that it was about to send.
    world.worker(first).up = true;
    world.pass(TTL);
    assert_eq!((world.owner(key), world.epoch(key)), (owner.as_deref(), epoch));
    // A join that was written down long ago: its lease is counted from when it was applied.
    let applied = world.now;
    world.join_unconnected("late", &[orders]);
    world.silence("late");
    world.pass(TTL - 50);
    assert!(world.lives("late"));
    world.pass(100);
    assert!(!world.lives("late"), "{} ms", world.now - applied);
    assert_eq!((world.owner(key), world.epoch(key)), (owner.as_deref(), epoch));
}

#[test]
fn f077_a_stuck_partition_does_not_keep_those_of_a_dead_worker() {
    let mut world = World::of(30, &NAMES, policy());
    let stuck = world.owned_by("a")[0];
    world.worker("a").releases = false;
    world.drain(stuck, "b", 60_000);
    let orphans = world.owned_by("c");
    world.kill("c");
    world.pass(TTL + 1_000);
    assert!(matches!(world.phase(stuck), Phase::Draining(_)));
    assert!(!orphans.is_empty() && orphans.iter().all(|key| world.owner(*key).is_some_and(|to| to != "c")));
}

#[test]
fn f078_a_release_that_comes_after_the_deadline_changes_nothing_and_starts_nothing() {
    let (mut world, key, first, second, _) = one_partition();
    let (session, epoch) = (world.session(first), world.epoch(key));
    world.worker(first).releases = false;
    world.drain(key, second, 1_000);
    world.revoke_seen(key);
    assert_eq!(world.until_owner(key, second, TTL), 1_000);
    let forced = world.epoch(key);
    for _ in 0..2 {
        let late = Command::Release { partition: key, epoch, session, how: Released::Revoked };
        assert_eq!(world.apply(vec![late]).outcome, Ok(vec![Outcome::Unchanged]));
    }
    let began = world.now + 50;
    world.pass(10 * TTL);
    assert_eq!((world.owner(key), world.epoch(key)), (Some(second), forced));
    assert_eq!((world.grants_since(began), world.drains_since(began)), (vec![], vec![]));
}
