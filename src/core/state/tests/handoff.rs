//! The transition table of a partition.
//!
//! | from | by | to |
//! |---|---|---|
//! | Vacant | Grant | Owned |
//! | Owned | Ready | Owned, ready |
//! | Owned | Drain | Draining |
//! | Owned, Draining | Release: revoked, returned | Vacant |
//! | Owned, Draining | Release: failed | Cooling, back-off |
//! | Owned, Draining | DrainOver (drains only), Seize (by fence only) | Cooling, lock delay; Vacant without one |
//! | Owned, Draining | the session expires | Cooling, lock delay; Vacant without one |
//! | Owned, Draining | the session leaves or is replaced | Cooling, lease; by fence as if it had expired |
//! | Cooling | EndCooling | Vacant |

use super::world::{World, by_fence, drain, epoch, failed, release, secs, worker};
use crate::ids::{LogIndex, MoveId, PartitionId, PartitionKey};
use crate::state::{
    Command, CoolingWhy, Drain, Event, GrantReason, MAX_FAILURE_BYTES, Outcome, Phase, PolicyChange, Refused,
    Released, WorkerChange,
};
use std::time::Duration;

#[test]
fn a_vacant_partition_is_granted_owned_and_ready() {
    let (mut world, key, a, _) = World::with_two_workers(PolicyChange::default());
    assert_eq!(world.phase(key), &Phase::Vacant);
    let index = world.next_index();
    assert_eq!(world.grant(key, a), epoch(1));
    assert_eq!(world.phase(key), &Phase::Owned { session: a, ready: false });
    assert_eq!(world.state.revision().get(), index.get());
    assert_eq!(world.state.session(a).unwrap().assignment(), index);

    let ready = Command::Ready { partition: key, epoch: epoch(1), session: a };
    assert_eq!(world.ok(ready.clone()), Outcome::Done);
    assert!(world.partition(key).ready());
    world.unchanged(ready);
}

#[test]
fn a_grant_names_the_epoch_that_it_replaces_and_a_partition_that_is_vacant() {
    let (mut world, key, a, b) = World::with_two_workers(PolicyChange::default());
    let stale = world.a_grant(key, b);
    world.grant(key, a);
    assert_eq!(
        world.refused(stale),
        Refused::StaleEpoch { partition: key, named: None, current: Some(epoch(1)) }
    );
    let current = world.a_grant(key, b);
    assert_eq!(world.refused(current), Refused::NotVacant(key));
    world.ok(drain(key, epoch(1), "b"));
    let draining = world.a_grant(key, b);
    assert_eq!(world.refused(draining), Refused::NotVacant(key));
}

#[test]
fn a_planned_move_drains_releases_and_grants_the_next_epoch_in_one_entry() {
    let (mut world, key, a, b, e1) = World::owned(PolicyChange::default());
    assert_eq!(world.ok(drain(key, e1, "b")), Outcome::Draining(MoveId::new(1)));
    assert_eq!(world.partition(key).owner(), Some(a), "the owner owns it until it lets go");
    assert!(!world.partition(key).ready(), "callers are not sent to a worker that stops");

    let grant = Command::Grant { partition: key, replaces: Some(e1), to: b, why: GrantReason::Balance };
    let applied = world.apply(None, vec![release(key, e1, a), grant]);
    assert_eq!(applied.outcome, Ok(vec![Outcome::Done, Outcome::Granted(epoch(2))]));
    let owners: Vec<_> = applied
        .events
        .iter()
        .map(|event| match event {
            Event::Partition { before, after, .. } => (*before, *after),
            Event::GivenBack { session, .. } => (Some(*session), Some(*session)),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(owners, [(Some(a), None), (Some(a), Some(a)), (None, Some(b))], "in this order");
    assert_eq!(world.partition(key).history().last().unwrap().why, GrantReason::Balance);
}

#[test]
fn p04_draining_again_changes_nothing_its_deadline_included() {
    let (mut world, key, a, _, e1) = World::owned(PolicyChange::default());
    world.ok(drain(key, e1, "b"));
    let before = world.state.clone();
    let again = Command::Drain {
        partition: key,
        epoch: e1,
        to: worker("a"),
        deadline: secs(500),
        why: GrantReason::Operator,
    };
    assert_eq!(world.ok(again), Outcome::Draining(MoveId::new(1)), "the move in progress");
    world.assert_same_but_for_the_index(before);
    let Phase::Draining(drain) = world.phase(key).clone() else { panic!() };
    let why = GrantReason::Balance;
    let to = worker("b");
    let first = Drain {
        session: a,
        move_id: MoveId::new(1),
        to,
        deadline: secs(5),
        why,
        revoke_seen: false,
        directive: None,
    };
    assert_eq!(*drain, first);
}

#[test]
fn a_drain_of_what_nobody_owns_or_of_another_epoch_is_refused_or_passed_over() {
    let (mut world, key, a, _) = World::with_two_workers(PolicyChange::default());
    let drain_by = |why| {
        let mut other = key;
        other.partition = PartitionId::new(1);
        [key, other].map(|partition| Command::Drain {
            partition,
            epoch: epoch(1),
            to: worker("b"),
            deadline: secs(5),
            why,
        })
    };
    let [asked, of_nothing] = drain_by(GrantReason::Operator);
    let [planned, planned_of_nothing] = drain_by(GrantReason::Balance);
    let stale = Refused::StaleEpoch { partition: key, named: Some(epoch(1)), current: None };
    assert_eq!(world.refused(asked.clone()), stale);
    world.unchanged(planned.clone());
    world.grant(key, a);
    world.ok(release(key, epoch(1), a));
    assert_eq!(world.refused(asked), Refused::NotOwned(key));
    world.unchanged(planned);
    assert!(matches!(world.refused(of_nothing), Refused::NoSuchPartition(_)));
    world.unchanged(planned_of_nothing);
}

#[test]
fn f055_a_planned_drain_that_was_overtaken_takes_no_other_with_it() {
    let mut world = World::new();
    let keyspace = world.create("orders", 3, PolicyChange::default());
    let a = world.join("a", keyspace);
    world.join("b", keyspace);
    let keys = [0, 1, 2].map(|n| PartitionKey { keyspace, partition: PartitionId::new(n) });
    keys.iter().for_each(|key| assert_eq!(world.grant(*key, a), epoch(1)));
    // Its task returned while the entry was on its way.
    world.ok(release(keys[1], epoch(1), a));
    let outcomes = world.apply(None, keys.map(|key| drain(key, epoch(1), "b")).to_vec()).outcome.unwrap();
    let (first, third) = (MoveId::new(1), MoveId::new(2));
    assert_eq!(outcomes, [Outcome::Draining(first), Outcome::Unchanged, Outcome::Draining(third)]);
    assert_eq!(world.phase(keys[1]), &Phase::Vacant);
}

#[test]
fn a_grant_decided_before_its_worker_was_taken_out_leaves_the_partition_vacant() {
    let on = Some(true);
    for change in [
        WorkerChange { drained: on, ..WorkerChange::default() },
        WorkerChange { drained_until_join: on, ..WorkerChange::default() },
        WorkerChange { cordoned: on, ..WorkerChange::default() },
    ] {
        let (mut world, key, a, b, e1) = World::owned(PolicyChange::default());
        world.ok(drain(key, e1, "b"));
        let why = GrantReason::Balance;
        let grant = Command::Grant { partition: key, replaces: Some(e1), to: b, why };
        world.ok(Command::SetWorker { worker: worker("b"), change: change.clone() });
        let outcomes = world.apply(None, vec![release(key, e1, a), grant]).outcome.unwrap();
        assert_eq!(outcomes, [Outcome::Done, Outcome::LeftVacant], "{change:?}");
        assert_eq!(world.partition(key).epoch(), Some(e1), "no epoch is spent on it");
    }
}

#[test]
fn f079_the_owner_s_own_release_counts_in_every_phase() {
    // Owned.
    let (mut world, key, a, _, e1) = World::owned(PolicyChange::default());
    assert_eq!(world.ok(release(key, e1, a)), Outcome::Done);
    assert_eq!(world.phase(key), &Phase::Vacant);
    // Vacant already: the retry of a release whose answer was lost.
    world.unchanged(release(key, e1, a));
    // Draining.
    let e2 = world.grant(key, a);
    world.ok(drain(key, e2, "b"));
    assert_eq!(world.ok(release(key, e2, a)), Outcome::Done);
    assert_eq!(world.phase(key), &Phase::Vacant);
    // Cooling.
    let e3 = world.grant(key, a);
    world.ok(failed(key, e3, a, "it broke"));
    world.unchanged(release(key, e3, a));
}

#[test]
fn f007_t42_c24_a_retried_release_frees_no_newer_grant_of_the_same_session() {
    let (mut world, key, a, _, e1) = World::owned(PolicyChange::default());
    world.ok(release(key, e1, a));
    let e2 = world.grant(key, a);
    world.unchanged(release(key, e1, a));
    world.unchanged(failed(key, e1, a, "late"));
    assert_eq!(world.partition(key).owner(), Some(a));
    world.ok(drain(key, e2, "b"));
    world.unchanged(release(key, e1, a));
    assert!(matches!(world.phase(key), Phase::Draining(_)));
}

#[test]
fn f021_t50_a_release_by_another_session_frees_nothing() {
    let (mut world, key, _, b, e1) = World::owned(PolicyChange::default());
    world.unchanged(release(key, e1, b));
    world.unchanged(Command::Ready { partition: key, epoch: e1, session: b });
}

#[test]
fn a_release_or_ready_of_an_epoch_that_was_never_granted_is_refused() {
    let (mut world, key, a, _, e1) = World::owned(PolicyChange::default());
    let stale = Refused::StaleEpoch { partition: key, named: Some(epoch(2)), current: Some(e1) };
    assert_eq!(world.refused(release(key, epoch(2), a)), stale);
    assert_eq!(world.refused(Command::Ready { partition: key, epoch: epoch(2), session: a }), stale);
}

#[test]
fn a_late_report_about_a_keyspace_that_is_gone_is_a_success() {
    let (mut world, key, a, _, e1) = World::owned(PolicyChange::default());
    world.ok(Command::DeleteKeyspace { keyspace: key.keyspace });
    world.unchanged(release(key, e1, a));
    world.unchanged(Command::Ready { partition: key, epoch: e1, session: a });
    world.unchanged(Command::RevokeSeen { partition: key, epoch: e1, session: a });
}

#[test]
fn p16_a_worker_that_is_ready_while_it_drains_is_not_owner_again() {
    let (mut world, key, a, _, e1) = World::owned(PolicyChange::default());
    world.ok(drain(key, e1, "b"));
    world.unchanged(Command::Ready { partition: key, epoch: e1, session: a });
    assert!(matches!(world.phase(key), Phase::Draining(_)));
}

#[test]
fn the_owner_s_knowledge_of_a_drain_moves_neither_the_map_nor_the_assignment() {
    let (mut world, key, a, b, e1) = World::owned(PolicyChange::default());
    world.ok(drain(key, e1, "b"));
    let (revision, assignment) = (world.state.revision(), world.state.session(a).unwrap().assignment());
    world.unchanged(Command::RevokeSeen { partition: key, epoch: e1, session: b });
    let seen = Command::RevokeSeen { partition: key, epoch: e1, session: a };
    let applied = world.apply(None, vec![seen.clone()]);
    assert_eq!((applied.outcome, applied.events), (Ok(vec![Outcome::Done]), vec![]));
    assert!(matches!(world.phase(key), Phase::Draining(drain) if drain.revoke_seen));
    assert_eq!(
        (world.state.revision(), world.state.session(a).unwrap().assignment()),
        (revision, assignment)
    );
    world.unchanged(seen);
}

#[test]
fn f004_a_drain_that_is_over_takes_the_partition_and_names_its_move() {
    let (mut world, key, a, b, e1) = World::owned(PolicyChange::default());
    let over = |number| Command::DrainOver { partition: key, epoch: e1, move_id: MoveId::new(number) };
    assert_eq!(world.refused(over(1)), Refused::OtherMove(key));
    world.ok(drain(key, e1, "b"));
    assert_eq!(world.refused(over(2)), Refused::OtherMove(key));
    assert_eq!(world.ok(over(1)), Outcome::Done);
    assert_eq!(world.phase(key), &Phase::Vacant);
    assert!(world.state.session(a).unwrap().holds().is_empty());
    assert_eq!(world.grant(key, b), epoch(2));
    world.unchanged(release(key, e1, a));
}

#[test]
fn a_partition_is_seized_from_a_live_session_only_where_the_fence_takes_over() {
    let (mut world, key, a, b, e1) = World::owned(PolicyChange::default());
    let seize = |session| Command::Seize { partition: key, epoch: e1, session };
    assert_eq!(world.refused(seize(a)), Refused::TakesOverByLease(key.keyspace));

    world.ok(Command::UpdateKeyspace { keyspace: key.keyspace, change: by_fence() });
    assert_eq!(world.refused(seize(b)), Refused::NotOwner { partition: key, session: b });
    assert_eq!(world.ok(seize(a)), Outcome::Done);
    assert_eq!(world.phase(key), &Phase::Vacant);
    assert!(world.state.session(a).is_some(), "the session goes on");
    assert_eq!(world.refused(seize(a)), Refused::NotOwner { partition: key, session: a });
}

#[test]
fn p18_a_lock_delay_follows_every_loss_but_the_owner_s_own_release() {
    let delay = PolicyChange { lock_delay: Some(secs(3)), ..by_fence() };
    let lost: [fn(&mut World, crate::ids::PartitionKey, crate::ids::SessionId); 4] = [
        |world, key, a| {
            world.ok(drain(key, epoch(1), "b"));
            world.ok(Command::DrainOver { partition: key, epoch: epoch(1), move_id: MoveId::new(1) });
            assert!(world.state.session(a).is_some());
        },
        |world, key, a| {
            world.ok(Command::Seize { partition: key, epoch: epoch(1), session: a });
        },
        |world, _, a| {
            let suspicion = world.suspect(a, 2);
            world.ok(Command::Expire { session: a, suspicion });
        },
        |world, _, a| {
            world.ok(Command::Leave { session: a });
        },
    ];
    for lose in lost {
        let (mut world, key, a, _, _) = World::owned(delay.clone());
        lose(&mut world, key, a);
        let cooling = world.cooling(key);
        assert_eq!((cooling.lease_of, cooling.then), (None, secs(3)));
        assert_eq!(cooling.why, CoolingWhy::LockDelay);
    }
    let (mut world, key, a, _, e1) = World::owned(delay);
    world.ok(release(key, e1, a));
    assert_eq!(world.phase(key), &Phase::Vacant);
}

#[test]
fn cooling_ends_once_and_names_the_epoch() {
    let (mut world, key, a, b, e1) = World::owned(PolicyChange::default());
    let end = |epoch| Command::EndCooling { partition: key, epoch };
    assert_eq!(world.refused(end(e1)), Refused::NotCooling(key));
    world.ok(failed(key, e1, a, "it broke"));
    let cooling = world.a_grant(key, b);
    assert_eq!(world.refused(cooling), Refused::NotVacant(key));
    assert!(matches!(world.refused(end(epoch(2))), Refused::StaleEpoch { .. }));
    assert_eq!(world.ok(end(e1)), Outcome::Done);
    assert_eq!(world.phase(key), &Phase::Vacant);
    assert_eq!(world.refused(end(e1)), Refused::NotCooling(key));
}

#[test]
fn failed_tasks_back_off_from_1_s_doubling_to_60_s() {
    let (mut world, key, a, _) = World::with_two_workers(PolicyChange::default());
    let mut waits = Vec::new();
    for n in 1..=8u32 {
        let epoch = world.grant(key, a);
        world.ok(failed(key, epoch, a, "poison"));
        let cooling = world.cooling(key);
        assert_eq!((cooling.why, cooling.lease_of), (CoolingWhy::Backoff, None));
        waits.push(cooling.then.as_secs());
        let setback = world.partition(key).setback().unwrap();
        assert_eq!((setback.count, setback.worker.as_str(), setback.error.as_str()), (n, "a", "poison"));
        world.ok(Command::EndCooling { partition: key, epoch });
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);

    let last = world.grant(key, a);
    world.ok(release(key, last, a));
    assert_eq!(world.partition(key).setback(), None, "a task that did as it was told ends the row");
}

#[test]
fn a_task_that_returns_by_itself_is_remembered_and_the_partition_is_free_at_once() {
    let (mut world, key, a, _, e1) = World::owned(PolicyChange::default());
    world.ok(Command::Release { partition: key, epoch: e1, session: a, how: Released::Returned });
    assert_eq!(world.phase(key), &Phase::Vacant, "another worker may have it now");
    let setback = world.partition(key).setback().unwrap();
    assert_eq!((setback.count, setback.worker.as_str(), setback.error.as_str()), (1, "a", ""));
}

#[test]
fn f021_a_failed_task_s_error_is_cut_between_characters() {
    let (mut world, key, a, _, e1) = World::owned(PolicyChange::default());
    world.ok(failed(key, e1, a, &format!("x{}", "ä".repeat(10_000))));
    let kept = world.partition(key).setback().unwrap().error.len();
    assert_eq!(kept, MAX_FAILURE_BYTES - 1);
}

#[test]
fn the_history_holds_the_last_four_owners() {
    let (mut world, key, a, b) = World::with_two_workers(PolicyChange::default());
    for n in 1..=6 {
        let to = if n % 2 == 0 { a } else { b };
        let epoch = world.grant(key, to);
        world.ok(release(key, epoch, to));
    }
    let history = world.partition(key).history();
    let epochs: Vec<u64> = history.iter().map(|tenure| tenure.epoch.get()).collect();
    assert_eq!(epochs, [3, 4, 5, 6]);
    let last = history.last().unwrap();
    assert_eq!((last.session, &last.worker), (a, &worker("a")));
    assert_eq!(last.at, LogIndex::new(last.unix_ms), "the entry that granted it, and its wall clock");
}

#[test]
fn f096_a_drain_of_the_longest_time_there_is_does_not_overflow() {
    let (mut world, key, _, _, e1) = World::owned(PolicyChange::default());
    let why = GrantReason::Operator;
    let drain = Command::Drain { partition: key, epoch: e1, to: worker("b"), deadline: Duration::MAX, why };
    assert_eq!(world.ok(drain), Outcome::Draining(MoveId::new(1)));
}
