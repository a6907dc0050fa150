//! Moves that an operator asks for: made, or refused with the reason.

use super::world::{TTL, World, policy};
use crate::ids::{PartitionId, PartitionKey, SessionId, WorkerId};
use crate::lead::{NoMove, Unfit, operators_move, receive, unfit};
use crate::placement::Constraint;
use crate::state::{Command, GrantReason, PartitionChange, PolicyChange, Released, Subject, WorkerChange};
use std::collections::BTreeSet;

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

fn asked(world: &World, key: PartitionKey, to: &str) -> Result<Option<Command>, NoMove> {
    operators_move(&world.state, &BTreeSet::new(), key, &worker(to))
}

/// Two workers, and a partition of `a`.
fn world() -> (World, PartitionKey) {
    let world = World::of(4, &["a", "b"], policy());
    let key = world.owned_by("a")[0];
    (world, key)
}

#[test]
fn an_operator_s_move_is_a_drain_a_grant_or_nothing() {
    let (mut world, key) = world();
    assert_eq!(asked(&world, key, "a"), Ok(None), "it is there");
    let step = asked(&world, key, "b").unwrap().unwrap();
    assert!(matches!(step, Command::Drain { why: GrantReason::Operator, .. }));
    world.worker("a").releases = false;
    world.apply(vec![step]).outcome.unwrap();
    assert!(matches!(asked(&world, key, "b"), Ok(Some(Command::Drain { .. }))), "the move in progress");
    world.join("c", &[key.keyspace]);
    assert!(matches!(asked(&world, key, "c"), Err(NoMove::OnItsWay { .. })));
    let (session, epoch) = (world.session("a"), world.epoch(key));
    let release = Command::Release { partition: key, epoch, session, how: Released::Revoked };
    world.apply(vec![release]).outcome.unwrap();
    assert!(matches!(asked(&world, key, "c"), Ok(Some(Command::Grant { .. }))));
}

#[test]
fn an_operator_s_move_to_a_worker_that_takes_nothing_says_why() {
    let unfit = |unfit| Err(NoMove::Unfit(worker("b"), unfit));
    let (world, key) = world();
    assert_eq!(asked(&world, key, "x"), Err(NoMove::NoSuchWorker(worker("x"))));
    let beyond = PartitionKey { partition: PartitionId::new(4), ..key };
    assert_eq!(asked(&world, beyond, "b"), Err(NoMove::NoSuchPartition(beyond)));
    let absent = BTreeSet::from([world.session("b")]);
    assert_eq!(operators_move(&world.state, &absent, key, &worker("b")), unfit(Unfit::Absent));

    let on = Some(true);
    for (change, why) in [
        (WorkerChange { drained: on, ..WorkerChange::default() }, Unfit::Drained),
        (WorkerChange { drained_until_join: on, ..WorkerChange::default() }, Unfit::Drained),
        (WorkerChange { cordoned: on, ..WorkerChange::default() }, Unfit::Cordoned),
        (WorkerChange { frozen: on, ..WorkerChange::default() }, Unfit::Frozen),
    ] {
        let (mut world, key) = self::world();
        world.apply(vec![Command::SetWorker { worker: worker("b"), change }]).outcome.unwrap();
        assert_eq!(asked(&world, key, "b"), unfit(why));
    }
    let with = |command: fn(SessionId) -> Command| {
        let (mut world, key) = self::world();
        let session = world.session("b");
        world.apply(vec![command(session)]).outcome.unwrap();
        asked(&world, key, "b")
    };
    assert_eq!(with(|session| Command::Withdraw { session }), unfit(Unfit::Leaving));
    assert_eq!(with(|session| Command::Suspect { sessions: vec![(session, 1)] }), unfit(Unfit::Suspected));

    let (mut world, key) = self::world();
    let constraint = "disk=ssd".parse().unwrap();
    let constraints = Some(vec![constraint]);
    let change = PolicyChange { constraints, ..PolicyChange::default() };
    world.apply(vec![Command::UpdateKeyspace { keyspace: key.keyspace, change }]).outcome.unwrap();
    assert_eq!(asked(&world, key, "b"), unfit(Unfit::Ineligible("disk=ssd".parse().unwrap())));
    let other = world.create("other", 1, policy());
    world.join("c", &[other]);
    assert_eq!(asked(&world, key, "c"), Err(NoMove::Unfit(worker("c"), Unfit::NotServing)));
}

/// Whatever is set or frozen: it is there.
#[test]
fn a_move_to_the_owner_is_nothing_to_do_whatever_is_frozen() {
    let on = Some(true);
    let of_partition = PartitionChange { frozen: on, ..PartitionChange::default() };
    let set = |change| Command::SetWorker { worker: worker("a"), change };
    let (_, key) = world();
    for command in [
        Command::Freeze { keyspace: None, frozen: true },
        Command::Freeze { keyspace: Some(key.keyspace), frozen: true },
        Command::SetPartition { partition: key, change: of_partition },
        set(WorkerChange { frozen: on, ..WorkerChange::default() }),
        set(WorkerChange { drained: on, ..WorkerChange::default() }),
        set(WorkerChange { cordoned: on, ..WorkerChange::default() }),
        Command::SetPartition {
            partition: key,
            change: PartitionChange { pin: Some(Some(worker("b"))), ..PartitionChange::default() },
        },
    ] {
        let (mut world, key) = self::world();
        world.apply(vec![command.clone()]).outcome.unwrap();
        assert_eq!(asked(&world, key, "a"), Ok(None), "{command:?}");
    }
}

/// A pin goes before a move; one whose worker may have nothing holds nothing up.
#[test]
fn a_pinned_partition_is_moved_to_its_pin_alone_while_that_may_have_it() {
    let (mut world, key) = world();
    world.join("c", &[key.keyspace]);
    let pin = PartitionChange { pin: Some(Some(worker("b"))), ..PartitionChange::default() };
    world.apply(vec![Command::SetPartition { partition: key, change: pin }]).outcome.unwrap();
    assert_eq!(asked(&world, key, "c"), Err(NoMove::Pinned(worker("b"))));
    assert!(matches!(asked(&world, key, "b"), Ok(Some(Command::Drain { .. }))));
    let cordoned = WorkerChange { cordoned: Some(true), ..WorkerChange::default() };
    world.apply(vec![Command::SetWorker { worker: worker("b"), change: cordoned }]).outcome.unwrap();
    assert!(matches!(asked(&world, key, "c"), Ok(Some(Command::Drain { .. }))));
}

/// Whether its worker comes back is known in a moment; what was moved before would be taken back.
#[test]
fn a_pin_whose_worker_is_only_away_holds_up_a_move_that_has_not_begun() {
    let (mut world, key) = world();
    world.join("c", &[key.keyspace]);
    let pin = PartitionChange { pin: Some(Some(worker("b"))), ..PartitionChange::default() };
    let pin = Command::SetPartition { partition: key, change: pin };
    world.apply(vec![pin.clone()]).outcome.unwrap();
    let session = world.session("b");
    let absent = BTreeSet::from([session]);
    let away = |unfit| Err(NoMove::PinAway(worker("b"), unfit));
    assert_eq!(operators_move(&world.state, &absent, key, &worker("c")), away(Unfit::Absent));
    let none = PartitionChange { pin: Some(None), ..PartitionChange::default() };
    world.apply(vec![Command::SetPartition { partition: key, change: none }]).outcome.unwrap();
    world.worker("a").releases = false;
    world.drain(key, "c", TTL);
    world.apply(vec![pin]).outcome.unwrap();
    assert!(matches!(asked(&world, key, "c"), Ok(Some(Command::Drain { .. }))), "it has begun");

    let other = world.owned_by("a").into_iter().find(|other| *other != key).unwrap();
    let pin = PartitionChange { pin: Some(Some(worker("b"))), ..PartitionChange::default() };
    world.apply(vec![Command::SetPartition { partition: other, change: pin }]).outcome.unwrap();
    world.apply(vec![Command::Suspect { sessions: vec![(session, 1)] }]).outcome.unwrap();
    assert_eq!(asked(&world, other, "c"), away(Unfit::Suspected));
    // It takes nothing when it is back, either.
    let cordoned = WorkerChange { cordoned: Some(true), ..WorkerChange::default() };
    world.apply(vec![Command::SetWorker { worker: worker("b"), change: cordoned }]).outcome.unwrap();
    assert!(matches!(asked(&world, other, "c"), Ok(Some(Command::Drain { .. }))));
}

#[test]
fn all_that_stands_in_the_way_is_named_and_the_first_of_it_is_the_refusal() {
    let constraint: Constraint = "disk=ssd".parse().unwrap();
    for set in 0u16..512 {
        let has = |bit: u8| set & (1 << bit) != 0;
        let (mut world, owned) = world();
        let session = world.session("b");
        // The worker joined one keyspace, and is asked about another.
        let key = if has(8) {
            PartitionKey { keyspace: world.create("other", 1, policy()), ..owned }
        } else {
            owned
        };
        let change = WorkerChange {
            frozen: has(0).then_some(true),
            drained: has(1).then_some(true),
            drained_until_join: has(2).then_some(true),
            cordoned: has(3).then_some(true),
            ..WorkerChange::default()
        };
        world.apply(vec![Command::SetWorker { worker: worker("b"), change }]).outcome.unwrap();
        let constraints = has(4).then(|| vec![constraint.clone()]);
        let change = PolicyChange { constraints, ..PolicyChange::default() };
        world.apply(vec![Command::UpdateKeyspace { keyspace: key.keyspace, change }]).outcome.unwrap();
        if has(5) {
            world.apply(vec![Command::Suspect { sessions: vec![(session, 1)] }]).outcome.unwrap();
        }
        if has(6) {
            world.apply(vec![Command::Withdraw { session }]).outcome.unwrap();
        }
        let absent: BTreeSet<SessionId> = has(7).then_some(session).into_iter().collect();
        let state = &world.state;
        let (keyspace, session) = (state.keyspace(key.keyspace).unwrap(), state.session(session).unwrap());
        let all = unfit(state, keyspace, session, &absent);
        let expected = [
            (has(8), Unfit::NotServing),
            (has(6), Unfit::Leaving),
            (has(5), Unfit::Suspected),
            (has(7), Unfit::Absent),
            (has(0), Unfit::Frozen),
            (has(4), Unfit::Ineligible(constraint.clone())),
            (has(1) || has(2), Unfit::Drained),
            (has(3), Unfit::Cordoned),
        ];
        let expected = expected.into_iter().filter_map(|(is, why)| is.then_some(why));
        assert_eq!(all, expected.collect::<Vec<_>>());
        assert_eq!(receive(state, keyspace, session, &absent).err().as_ref(), all.first());
    }
}

#[test]
fn an_operator_s_move_of_what_is_frozen_says_what_is() {
    let of_worker = || WorkerChange { frozen: Some(true), ..WorkerChange::default() };
    let of_partition = PartitionChange { frozen: Some(true), ..PartitionChange::default() };
    let (_, key) = world();
    let freeze = |keyspace| Command::Freeze { keyspace, frozen: true };
    for (command, what) in [
        (freeze(None), Subject::Cluster),
        (freeze(Some(key.keyspace)), Subject::Keyspace(key.keyspace)),
        (Command::SetPartition { partition: key, change: of_partition }, Subject::Partition(key)),
        (Command::SetWorker { worker: worker("a"), change: of_worker() }, Subject::Worker(worker("a"))),
    ] {
        let (mut world, key) = world();
        world.apply(vec![command]).outcome.unwrap();
        assert_eq!(asked(&world, key, "b"), Err(NoMove::Frozen(what)));
    }
}

#[test]
fn a_move_in_flight_ends_at_a_worker_that_was_frozen_meanwhile_and_not_at_one_that_was_cordoned() {
    let frozen = WorkerChange { frozen: Some(true), ..WorkerChange::default() };
    let cordoned = WorkerChange { cordoned: Some(true), ..WorkerChange::default() };
    for (change, ends_at) in [(frozen, "c"), (cordoned, "b")] {
        // The owner gives it up, or is not waited for.
        for releases in [true, false] {
            let mut world = World::of(4, &["a", "b", "c"], PolicyChange { balance: Some(false), ..policy() });
            let key = world.owned_by("a")[0];
            world.worker("a").releases = false;
            world.drain(key, "c", TTL);
            let change = change.clone();
            world.apply(vec![Command::SetWorker { worker: worker("c"), change }]).outcome.unwrap();
            world.worker("a").releases = releases;
            world.pass(2 * TTL);
            if ends_at == "c" {
                assert_eq!(world.owner(key), Some("c"), "{releases}");
            } else {
                assert_ne!(world.owner(key), Some("c"), "{releases}");
                assert!(world.owner(key).is_some(), "{releases}");
            }
        }
    }
}
