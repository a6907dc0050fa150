//! What operators set is carried out by whoever leads, and what follows from it says so.

use super::world::{TTL, World, at, policy};
use crate::ids::{KeyspaceId, LogIndex, PartitionKey, WorkerId};
use crate::lead::{FORGIVEN_AFTER, Ownerless};
use crate::placement::{Unplaced, Weight};
use crate::state::{
    Command, GrantReason, PartitionChange, Phase, PolicyChange, Released, Subject, Tenure, WorkerChange,
};
use std::time::Duration;

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn set(world: &mut World, name: &str, change: WorkerChange) -> LogIndex {
    world.apply(vec![Command::SetWorker { worker: worker(name), change }]).outcome.unwrap();
    world.state.applied()
}

fn set_partition(world: &mut World, partition: PartitionKey, change: PartitionChange) -> LogIndex {
    world.apply(vec![Command::SetPartition { partition, change }]).outcome.unwrap();
    world.state.applied()
}

fn drained(on: bool) -> WorkerChange {
    WorkerChange { drained: Some(on), ..WorkerChange::default() }
}

fn last(world: &World, key: PartitionKey) -> &Tenure {
    world.state.partition(key).unwrap().history().last().unwrap()
}

fn manual() -> PolicyChange {
    PolicyChange { balance: Some(false), ..policy() }
}

#[test]
fn a_drained_worker_gives_up_all_it_has_also_where_balancing_is_manual() {
    for change in [policy(), manual()] {
        let mut world = World::of(12, &["a", "b", "c"], change);
        let had = world.owned_by("a");
        assert!(!had.is_empty());
        let by = set(&mut world, "a", drained(true));
        world.pass(3_000);
        assert_eq!(world.owned_by("a"), []);
        assert!(had.iter().all(|key| {
            let last = last(&world, *key);
            last.why == GrantReason::Drain && last.directive == Some(by)
        }));
        let settled = world.now;
        world.elect(300);
        world.pass(10_000);
        assert_eq!(world.drains_since(settled), [], "it stays so");
        set(&mut world, "a", drained(false));
        world.pass(3_000);
    }
}

#[test]
fn a_worker_that_is_no_longer_drained_gets_its_share_again() {
    let mut world = World::of(12, &["a", "b", "c"], policy());
    set(&mut world, "a", drained(true));
    world.pass(3_000);
    set(&mut world, "a", drained(false));
    world.pass(3_000);
    let back = world.owned_by("a");
    assert_eq!(back.len(), 4);
    assert!(back.iter().all(|key| last(&world, *key).why == GrantReason::Balance), "no weight has changed");
}

#[test]
fn where_every_worker_is_drained_a_partition_waits_also_one_that_is_pinned_or_was_on_its_way() {
    let mut world = World::of(4, &["a", "b"], policy());
    let (moving, pinned) = (world.owned_by("a")[0], world.owned_by("a")[1]);
    world.worker("a").releases = false;
    world.drain(moving, "b", 60_000);
    let pin = PartitionChange { pin: Some(Some(worker("b"))), ..PartitionChange::default() };
    set_partition(&mut world, pinned, pin);
    for name in ["a", "b"] {
        set(&mut world, name, drained(true));
    }
    world.worker("a").releases = true;
    // `work` holds that the leader comes to rest.
    world.pass(5_000);
    assert_eq!((world.owner(moving), world.owner(pinned)), (None, Some("a")));
    let began = world.now;
    world.kill("a");
    world.pass(12_000);
    assert_eq!((world.owner(pinned), world.grants_since(began).len()), (None, 0), "nobody takes it");
    set(&mut world, "b", drained(false));
    world.pass(1_000);
    assert_eq!(world.owned_by("b").len(), 4);
}

#[test]
fn a_cordoned_worker_keeps_what_it_has_and_gets_nothing_not_even_repairs() {
    let mut world = World::of(12, &["a", "b", "c"], policy());
    let had = world.owned_by("a");
    set(&mut world, "a", WorkerChange { cordoned: Some(true), ..WorkerChange::default() });
    world.kill("b");
    world.pass(12_000);
    assert_eq!(world.owned_by("a"), had);
    assert_eq!(world.owned_by("c").len(), 12 - had.len());
}

fn frozen(on: bool) -> WorkerChange {
    WorkerChange { frozen: Some(on), ..WorkerChange::default() }
}

/// A freeze of workers is about balance. It moves nothing, and it keeps nothing down.
#[test]
fn what_a_lost_worker_had_goes_to_frozen_workers_when_no_other_may_have_it() {
    let mut world = World::of(12, &["a", "b", "c"], policy());
    for name in ["a", "b"] {
        set(&mut world, name, frozen(true));
    }
    let (began, had) = (world.now, [world.owned_by("a"), world.owned_by("b")]);
    world.kill("c");
    world.pass(12_000);
    assert_eq!(world.owned_by("a").len() + world.owned_by("b").len(), 12, "nothing is down");
    for (name, had) in ["a", "b"].iter().zip(had) {
        assert!(had.iter().all(|key| world.owner(*key) == Some(*name)), "what they had has not moved");
        assert_eq!(world.owned_by(name).len(), 6, "evenly");
    }
    assert_eq!(world.drains_since(began), []);

    // As soon as another may have it, that one gets it.
    let orders = world.orders();
    world.join("d", &[orders]);
    world.pass(2_000);
    assert_eq!(world.owned_by("d"), [], "a freeze of workers holds up balance");
    world.kill("a");
    world.pass(12_000);
    assert_eq!((world.owned_by("b").len(), world.owned_by("d").len()), (6, 6));
    assert_eq!(world.drains_since(began), []);
}

#[test]
fn a_worker_that_is_frozen_and_drained_stands_in_for_nobody_and_the_reason_is_told() {
    let mut world = World::of(4, &["a", "b"], policy());
    let (lost, kept) = (world.owned_by("a"), world.owned_by("b"));
    set(&mut world, "b", WorkerChange { drained: Some(true), ..frozen(true) });
    world.kill("a");
    world.pass(12_000);
    assert_eq!(world.owned_by("b"), kept, "a freeze holds up its drain, and it gets nothing");
    let told = |world: &World| {
        let (state, orders) = (&world.state, world.orders());
        world.leader.ownerless(at(world.now), state, orders).into_iter().collect::<Vec<_>>()
    };
    assert_eq!(told(&world), [(Ownerless::NobodyMay(Unplaced::AllFrozen), 2)]);
    let why = world.leader.ownerless_why(at(world.now), &world.state, lost[0]);
    assert_eq!(why, Some(Ownerless::NobodyMay(Unplaced::AllFrozen)));
    set(&mut world, "b", drained(false));
    world.pass(1_000);
    assert_eq!((world.owned_by("b").len(), told(&world).len()), (4, 0));
}

/// Nobody has the label that the keyspace asks for: its owners are to give up all they have, and nobody may take it.
#[test]
fn what_has_to_go_and_nobody_may_take_is_told_with_the_reason() {
    let mut world = World::of(4, &["a", "b"], policy());
    let orders = world.orders();
    let told = |world: &World| world.leader.misplaced(at(world.now), &world.state, orders);
    assert_eq!(told(&world), None);
    let constraints = Some(vec!["disk=ssd".parse().unwrap()]);
    let change = PolicyChange { constraints, ..PolicyChange::default() };
    world.apply(vec![Command::UpdateKeyspace { keyspace: orders, change }]).outcome.unwrap();
    world.pass(1_000);
    assert_eq!(told(&world), Some((4, Unplaced::AllIneligible)));
    let c = world.join_labelled("c", &[orders], &[("disk", "ssd")]);
    assert_eq!(told(&world), None, "they go to it");
    world.apply(vec![Command::Suspect { sessions: vec![(c, 1)] }]).outcome.unwrap();
    assert_eq!(told(&world), None, "it is back in a moment, or its session ends");
    let cordon = |on| WorkerChange { cordoned: Some(on), ..WorkerChange::default() };
    set(&mut world, "c", cordon(true));
    assert_eq!(told(&world), Some((4, Unplaced::NoneTakes)), "back or not, it takes nothing");
    set(&mut world, "c", cordon(false));
    world.apply(vec![Command::Clear { sessions: vec![c] }]).outcome.unwrap();
    world.pass(5_000);
    assert_eq!((world.owned_by("c").len(), told(&world)), (4, None));
}

/// Two frozen workers pass nothing to and fro, and the one that did not return gets it at once.
#[test]
fn a_partition_that_a_frozen_worker_gets_at_once_is_not_said_to_wait() {
    let mut world = World::of(1, &["a", "b"], policy());
    for name in ["a", "b"] {
        set(&mut world, name, frozen(true));
    }
    let key = world.key(0);
    world.give_back(key, Released::Returned);
    let why = |world: &World| world.leader.ownerless_why(at(world.now), &world.state, key);
    assert_eq!(why(&world), Some(Ownerless::Granted));
    world.work();
    assert!(world.owner(key).is_some());
    // The next time nobody gets it at once.
    world.give_back(key, Released::Returned);
    assert_eq!(why(&world), Some(Ownerless::Rests));
    world.work();
    assert_eq!(world.owner(key), None);
}

#[test]
fn each_wait_of_a_partition_without_an_owner_is_told_by_its_reason() {
    let change = PolicyChange {
        rejoin_hold: Some(Duration::from_secs(60)),
        lock_delay: Some(Duration::from_secs(20)),
        ..policy()
    };
    let mut world = World::of(4, &["a"], change);
    let why = |world: &World, key| world.leader.ownerless_why(at(world.now), &world.state, key);
    let keys = world.keys();
    world.give_back(keys[0], Released::Failed("disk".to_owned()));
    assert_eq!(why(&world, keys[0]), Some(Ownerless::Backoff));
    world.give_back(keys[1], Released::Restarting);
    assert_eq!(why(&world, keys[1]), Some(Ownerless::Restart));
    for _ in 0..2 {
        world.give_back(keys[2], Released::Returned);
        assert_eq!(why(&world, keys[2]), Some(Ownerless::Rests));
        world.until_owner(keys[2], "a", 5_000);
    }
    let session = world.session("a");
    world.apply(vec![Command::Leave { session }]).outcome.unwrap();
    assert_eq!(why(&world, keys[3]), Some(Ownerless::Lease));
    world.silence("a");
    world.pass(TTL);
    assert_eq!(why(&world, keys[3]), Some(Ownerless::Lease), "and the lock delay after it");
    world.pass(25_000);
    assert_eq!(why(&world, keys[3]), Some(Ownerless::NobodyMay(Unplaced::NoWorkers)));
    assert_eq!(why(&world, keys[1]), Some(Ownerless::Restart));
}

/// Its owner fails once a month, and not for the fifth time in a row.
#[test]
fn an_owner_that_was_ready_for_long_enough_is_forgiven_and_its_next_failure_is_a_first_one() {
    let mut world = World::of(4, &["a", "b"], policy());
    let (bad, good) = (world.owned_by("a")[0], world.owned_by("a")[1]);
    let count = |world: &World, key| world.state.partition(key).unwrap().setback().map_or(0, |s| s.count);
    let fail = |world: &mut World, key, times: u32| {
        for n in 1..=times {
            world.give_back(key, Released::Failed("disk".to_owned()));
            assert_eq!(count(world, key), n);
            world.pass(20_000);
            assert!(world.owner(key).is_some());
        }
    };
    fail(&mut world, bad, 4);
    fail(&mut world, good, 1);
    let almost = FORGIVEN_AFTER.as_millis() as u64 - 60_000;
    world.pass(almost);
    assert_eq!(count(&world, bad), 4, "not yet");
    let began = world.now;
    world.pass(70_000);
    assert_eq!((count(&world, bad), count(&world, good)), (0, 0));
    world.pass(70_000);
    let forgiven = |command: &Command| matches!(command, Command::Forgive { .. }).then_some(());
    assert_eq!(world.commands_since(began, forgiven).len(), 2, "once each");
    assert_eq!(world.log.iter().filter(|(when, _)| *when >= began).count(), 2, "and nothing else is written");
    fail(&mut world, bad, 1);

    // A new leader counts in full.
    world.pass(almost);
    world.elect(300);
    world.pass(almost);
    assert_eq!(count(&world, bad), 1);
    world.pass(70_000);
    assert_eq!(count(&world, bad), 0);
}

/// The entry is one that nodes of the version before could not read.
#[test]
fn nothing_is_forgiven_before_something_new_was_used() {
    let mut world = World::of(2, &["a", "b"], policy());
    for session in world.state.sessions.values_mut() {
        session.splits = false;
    }
    let key = world.key(0);
    let forgiven = |world: &World| world.state.partition(key).unwrap().setback().is_none();
    world.give_back(key, Released::Failed("disk".to_owned()));
    world.pass(FORGIVEN_AFTER.as_millis() as u64 + 5_000);
    assert!(!forgiven(&world));
    // An operator says who they are: from now on it can be said.
    let (subject, by) = (Subject::Cluster, "ada".to_owned());
    let said = Command::Direct { subject, by, what: "look".to_owned(), reason: String::new() };
    let freeze = Command::Freeze { keyspace: None, frozen: true };
    world.apply(vec![said, freeze]).outcome.unwrap();
    world.pass(1_000);
    assert!(forgiven(&world));
}

#[test]
fn partitions_that_are_forgiven_together_are_forgiven_in_one_entry() {
    let mut world = World::of(6, &["a", "b"], policy());
    for key in world.keys() {
        world.give_back(key, Released::Failed("disk".to_owned()));
    }
    world.pass(5_000);
    let began = world.now;
    world.pass(FORGIVEN_AFTER.as_millis() as u64);
    let entries = world.log.iter().filter(|(when, _)| *when >= began);
    assert_eq!(entries.map(|(_, commands)| commands.len()).collect::<Vec<_>>(), [6]);
}

/// Who does not get ready holds the budget, and to move away from it is what gives it back.
#[test]
fn a_drain_of_an_owner_that_is_not_ready_does_not_wait_for_the_room_that_it_takes_itself() {
    let change = PolicyChange {
        max_moves_in_flight: Some(1),
        drain_deadline: Some(Duration::from_secs(60)),
        ..policy()
    };
    let mut world = World::of(3, &["a", "b", "c"], change);
    let key = world.owned_by("b")[0];
    // `a` loads what `b` had, and never gets ready: the one flight there is.
    world.worker("a").says_ready = false;
    let (epoch, deadline, why) = (world.epoch(key), Duration::from_secs(60), GrantReason::Balance);
    let to = worker("a");
    world.apply(vec![Command::Drain { partition: key, epoch, to, deadline, why }]).outcome.unwrap();
    world.pass(1_000);
    assert_eq!(world.owner(key), Some("a"));
    set(&mut world, "a", drained(true));
    world.pass(2_000);
    assert!(world.owner(key).is_some_and(|owner| owner != "a"), "long before the deadline of a drain");
    world.pass(2_000);
    assert_eq!(world.owned_by("a"), [], "and what it has beside that follows");
}

#[test]
fn a_frozen_worker_keeps_what_it_has_and_gets_nothing() {
    let mut world = World::of(12, &["a", "b", "c"], policy());
    let (orders, had) = (world.orders(), world.owned_by("a"));
    set(&mut world, "a", WorkerChange { frozen: Some(true), ..WorkerChange::default() });
    // What has no owner goes elsewhere, and whoever joins gets nothing of what it has.
    world.kill("b");
    world.pass(12_000);
    assert_eq!((world.owned_by("a"), world.owned_by("c").len()), (had.clone(), 12 - had.len()));
    world.join("d", &[orders]);
    world.pass(12_000);
    assert_eq!((world.owned_by("a"), world.owned_by("d").len()), (had, 4));
}

#[test]
fn a_pinned_partition_goes_to_its_worker_and_back_to_it_after_a_failure() {
    let mut world = World::of(6, &["a", "b"], policy());
    let key = world.owned_by("a")[0];
    let pin = PartitionChange { pin: Some(Some(worker("b"))), ..PartitionChange::default() };
    let by = set_partition(&mut world, key, pin);
    world.pass(2_000);
    assert_eq!(world.owner(key), Some("b"));
    assert_eq!((last(&world, key).why, last(&world, key).directive), (GrantReason::Pin, Some(by)));
    world.kill("b");
    world.pass(12_000);
    assert_eq!(world.owner(key), Some("a"), "it is served while its worker is gone");
    let orders = world.orders();
    world.join("b", &[orders]);
    world.pass(12_000);
    assert_eq!(world.owner(key), Some("b"));
}

#[test]
fn what_is_frozen_does_not_move_and_is_repaired_all_the_same() {
    let mut world = World::of(8, &["a"], policy());
    let orders = world.orders();
    world.apply(vec![Command::Freeze { keyspace: Some(orders), frozen: true }]).outcome.unwrap();
    world.join("b", &[orders]);
    let began = world.now;
    world.pass(10_000);
    assert_eq!(world.drains_since(began), []);
    world.kill("a");
    world.pass(12_000);
    assert_eq!(world.owned_by("b").len(), 8, "a freeze is no reason to leave a partition without an owner");
    world.join("a", &[orders]);
    world.apply(vec![Command::Freeze { keyspace: Some(orders), frozen: false }]).outcome.unwrap();
    world.pass(12_000);
    assert_eq!(world.owned_by("a").len(), 4);
}

#[test]
fn a_frozen_partition_stays_when_the_others_are_balanced() {
    let mut world = World::of(8, &["a"], policy());
    let orders = world.orders();
    let stays: Vec<PartitionKey> = world.keys().into_iter().take(6).collect();
    for key in &stays {
        let frozen = PartitionChange { frozen: Some(true), ..PartitionChange::default() };
        set_partition(&mut world, *key, frozen);
    }
    world.join("b", &[orders]);
    world.pass(5_000);
    assert!(stays.iter().all(|key| world.owner(*key) == Some("a")));
    assert_eq!(world.owned_by("b").len(), 2, "what can be moved is");
}

#[test]
fn a_worker_whose_labels_do_not_fit_owns_nothing() {
    let constraints = Some(vec!["disk=ssd".parse().unwrap()]);
    let mut world = World::of(4, &["a"], policy());
    let orders = world.orders();
    world.join_labelled("b", &[orders], &[("disk", "ssd")]);
    let change = PolicyChange { constraints, ..PolicyChange::default() };
    world.apply(vec![Command::UpdateKeyspace { keyspace: orders, change }]).outcome.unwrap();
    world.pass(5_000);
    assert_eq!((world.owned_by("a").len(), world.owned_by("b").len()), (0, 4));
}

#[test]
fn partitions_are_spread_over_the_zones_that_workers_name() {
    let mut world = World::new();
    let orders = world.create("orders", 9, policy());
    for (name, zone) in [("a", "east"), ("b", "east"), ("c", "west"), ("d", "west")] {
        world.join_labelled(name, &[orders], &[("zone", zone)]);
    }
    world.pass(5_000);
    let of = |names: [&str; 2]| names.iter().map(|name| world.owned_by(name).len()).sum::<usize>();
    let (east, west) = (of(["a", "b"]), of(["c", "d"]));
    assert!(east.abs_diff(west) == 1, "{east} and {west}");
}

#[test]
fn a_weight_that_an_operator_sets_counts_instead_of_the_worker_s_own() {
    let mut world = World::of(12, &["a", "b"], policy());
    let weight = crate::placement::Weight::new(3).unwrap();
    set(&mut world, "a", WorkerChange { weight: Some(Some(weight)), ..WorkerChange::default() });
    world.pass(3_000);
    assert_eq!((world.owned_by("a").len(), world.owned_by("b").len()), (9, 3));
    let moved: Vec<GrantReason> = world
        .owned_by("a")
        .iter()
        .map(|key| last(&world, *key).why)
        .filter(|why| *why == GrantReason::Weight)
        .collect();
    assert_eq!(moved.len(), 3);
}

#[test]
fn a_partition_that_weighs_more_is_balanced_by_its_weight() {
    let mut world = World::of(8, &["a", "b"], policy());
    let heavy = world.owned_by("a")[0];
    set_partition(&mut world, heavy, PartitionChange { weight: Some(Some(4)), ..Default::default() });
    world.pass(5_000);
    let load = |name| world.owned_by(name).iter().map(|key| if *key == heavy { 4 } else { 1 }).sum::<usize>();
    assert!(load("a").abs_diff(load("b")) <= 4, "{} and {}", load("a"), load("b"));
    let settled = world.now;
    world.pass(20_000);
    assert_eq!(world.drains_since(settled), []);
}

/// The worker gives all back and says that it is being restarted.
fn announce_restart(world: &mut World, name: &str) -> Vec<PartitionKey> {
    let (session, had) = (world.session(name), world.owned_by(name));
    for key in &had {
        world.give_back(*key, Released::Restarting);
    }
    world.silence(name);
    world.apply(vec![Command::Leave { session }]).outcome.unwrap();
    had
}

fn held(hold: Duration) -> (World, KeyspaceId) {
    let world = World::of(12, &["a", "b", "c"], PolicyChange { rejoin_hold: Some(hold), ..policy() });
    let orders = world.orders();
    (world, orders)
}

#[test]
fn a_restart_that_was_announced_moves_nothing_and_epochs_grow_all_the_same() {
    let (mut world, orders) = held(Duration::from_secs(30));
    let began = world.now;
    for name in ["a", "b", "c"] {
        let before: Vec<_> =
            world.keys().iter().map(|key| (world.epoch(*key), last(&world, *key).why)).collect();
        let had = announce_restart(&mut world, name);
        world.pass(4_000);
        assert!(had.iter().all(|key| world.owner(*key).is_none()), "they wait for it");
        world.join(name, &[orders]);
        world.pass(1_000);
        assert_eq!(world.owned_by(name), had);
        for (key, (epoch, why)) in world.keys().into_iter().zip(before) {
            let returned = had.contains(&key);
            assert_eq!(world.epoch(key) > epoch, returned, "{key}");
            assert_eq!(last(&world, key).why, if returned { GrantReason::Returned } else { why }, "{key}");
        }
    }
    assert_eq!(world.drains_since(began), [], "a rolling restart with a hold moves nothing");
}

/// Somebody else has less by then, and would be the one to give it to.
#[test]
fn what_waited_for_a_restarted_worker_goes_to_it_and_to_nobody_else() {
    let hold = PolicyChange { rejoin_hold: Some(Duration::from_secs(30)), balance: Some(false), ..policy() };
    let mut world = World::of(12, &["a", "b", "c"], hold);
    let orders = world.orders();
    let had = announce_restart(&mut world, "a");
    world.join("d", &[orders]);
    world.pass(2_000);
    world.join("a", &[orders]);
    world.pass(2_000);
    assert_eq!((world.owned_by("a"), world.owned_by("d")), (had.clone(), Vec::new()));
    assert!(had.iter().all(|key| last(&world, *key).why == GrantReason::Returned));
}

#[test]
fn a_new_leader_takes_a_worker_that_is_still_leaving_for_no_one_that_is_back() {
    let (mut world, orders) = held(Duration::from_secs(30));
    let (session, had) = (world.session("a"), world.owned_by("a"));
    world.apply(vec![Command::Withdraw { session }]).outcome.unwrap();
    let (slow, given) = had.split_last().unwrap();
    for key in given {
        world.give_back(*key, Released::Restarting);
    }
    world.elect(300);
    world.pass(2_000);
    assert!(world.lives("a") && given.iter().all(|key| world.owner(*key).is_none()), "they wait for it");
    world.give_back(*slow, Released::Restarting);
    world.silence("a");
    world.apply(vec![Command::Leave { session }]).outcome.unwrap();
    world.join("a", &[orders]);
    world.pass(1_000);
    assert_eq!(world.owned_by("a"), had);
}

#[test]
fn a_worker_that_does_not_come_back_in_time_is_replaced() {
    let (mut world, _) = held(Duration::from_secs(5));
    let had = announce_restart(&mut world, "a");
    world.pass(4_000);
    assert!(had.iter().all(|key| matches!(world.phase(*key), Phase::Cooling(_))));
    world.elect(300);
    world.pass(8_000);
    assert!(had.iter().all(|key| matches!(world.owner(*key), Some("b" | "c"))));
    assert!(had.iter().all(|key| last(&world, *key).why == GrantReason::Vacated), "another has not returned");
}

#[test]
fn a_move_for_a_weight_names_who_set_it() {
    let mut world = World::of(12, &["a", "b"], policy());
    let change = WorkerChange { weight: Some(Weight::new(3).ok()), ..WorkerChange::default() };
    let by = set(&mut world, "a", change);
    world.pass(5_000);
    assert_eq!(world.spread()["a"], 9);
    let keys = world.keys();
    let moved = keys.iter().map(|key| last(&world, *key)).filter(|last| last.why == GrantReason::Weight);
    let named: Vec<_> = moved.map(|last| last.directive).collect();
    assert_eq!(named, [Some(by); 3]);
}

#[test]
fn a_rolling_restart_that_waits_for_drain_and_balance_makes_two_moves_a_partition_at_the_most() {
    let mut world = World::of(24, &["a", "b", "c", "d"], policy());
    let orders = world.orders();
    let began = world.now;
    for name in ["a", "b", "c", "d"] {
        set(&mut world, name, drained(true));
        world.pass(3_000);
        assert_eq!(world.owned_by(name), []);
        let session = world.session(name);
        world.silence(name);
        world.apply(vec![Command::Leave { session }]).outcome.unwrap();
        world.pass(1_000);
        set(&mut world, name, drained(false));
        world.join(name, &[orders]);
        world.pass(3_000);
        assert_eq!(world.owned_by(name).len(), 6);
    }
    let moves = world.drains_since(began).len();
    assert!(moves <= 48, "{moves}");
}

#[test]
fn what_waits_for_a_restarted_worker_is_given_back_also_when_the_hold_was_switched_off_meanwhile() {
    let (mut world, orders) = held(Duration::from_secs(30));
    let had = announce_restart(&mut world, "a");
    let change = PolicyChange { rejoin_hold: Some(Duration::ZERO), ..PolicyChange::default() };
    world.apply(vec![Command::UpdateKeyspace { keyspace: orders, change }]).outcome.unwrap();
    world.join("a", &[orders]);
    world.pass(1_000);
    assert_eq!(world.owned_by("a"), had);
}

#[test]
fn a_worker_that_comes_back_and_leaves_again_at_once_is_not_back() {
    let (mut world, orders) = held(Duration::from_secs(30));
    let had = announce_restart(&mut world, "a");
    let session = world.join("a", &[orders]);
    world.apply(vec![Command::Withdraw { session }]).outcome.unwrap();
    world.pass(1_000);
    assert!(had.iter().all(|key| world.owner(*key).is_none()), "they wait for its next life");
    world.silence("a");
    world.apply(vec![Command::Leave { session }]).outcome.unwrap();
    world.join("a", &[orders]);
    world.pass(1_000);
    assert_eq!(world.owned_by("a"), had);
}

#[test]
fn an_owner_that_never_gets_ready_gives_up_what_operators_demand() {
    let stuck = || {
        let drain_deadline = Some(Duration::from_secs(3));
        let budget = PolicyChange { max_moves_in_flight: Some(4), drain_deadline, ..policy() };
        let mut world = World::of(12, &["a", "b"], budget);
        let orders = world.orders();
        world.join("c", &[orders]);
        world.worker("c").says_ready = false;
        world.pass(2_000);
        assert_eq!(world.owned_by("c").len(), 4);
        world
    };
    // A drain.
    let mut world = stuck();
    set(&mut world, "c", drained(true));
    world.pass(10_000);
    assert_eq!(world.owned_by("c"), []);
    // A pin.
    let mut world = stuck();
    let key = world.owned_by("c")[0];
    let pin = PartitionChange { pin: Some(Some(worker("a"))), ..PartitionChange::default() };
    set_partition(&mut world, key, pin);
    world.pass(10_000);
    assert_eq!(world.owner(key), Some("a"));
    // A label.
    let mut world = stuck();
    let (orders, constraints) = (world.orders(), Some(vec!["!broken".parse().unwrap()]));
    let session = world.session("c");
    world.state.sessions.get_mut(&session).unwrap().labels.insert("broken".to_owned(), String::new());
    let change = PolicyChange { constraints, ..PolicyChange::default() };
    world.apply(vec![Command::UpdateKeyspace { keyspace: orders, change }]).outcome.unwrap();
    world.pass(10_000);
    assert_eq!(world.owned_by("c"), []);
}
