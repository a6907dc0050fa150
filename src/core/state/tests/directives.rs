//! What operators decide: it is remembered, outlives sessions, and names itself in what follows from it.

use super::world::{World, by_fence, drain, epoch, join, release, worker};
use crate::ids::{LogIndex, PartitionId, PartitionKey};
use crate::placement::Weight;
use crate::state::{
    Command, CoolingWhy, DIRECTIVES_LEN, Directive, GrantReason, Join, MAX_DIRECTIVE_BYTES, Outcome,
    PartitionChange, PartitionSettings, Phase, PolicyChange, Refused, Released, Session, Subject,
    WorkerChange, WorkerSettings,
};
use std::time::Duration;

fn direct(subject: Subject, what: &str) -> Command {
    let (by, what, reason) = ("anna".to_owned(), what.to_owned(), "a disk is failing".to_owned());
    Command::Direct { subject, by, what, reason }
}

fn set(name: &str, change: WorkerChange) -> Command {
    Command::SetWorker { worker: worker(name), change }
}

fn drained(on: bool) -> WorkerChange {
    WorkerChange { drained: Some(on), ..WorkerChange::default() }
}

fn settings(world: &World, name: &str) -> WorkerSettings {
    world.state.worker_settings().get(&worker(name)).cloned().unwrap_or_default()
}

#[test]
fn t49_a_drain_until_the_next_join_ends_there_and_leaves_any_other_as_it_is() {
    let (mut world, key, session, _, _) = World::owned(PolicyChange::default());
    let until_join = |on| WorkerChange { drained_until_join: Some(on), ..WorkerChange::default() };
    world.ok(set("a", until_join(true)));
    assert!(settings(&world, "a").drain().is_some());
    // The same process, sent again.
    let (nonce, secret_hash) = world.state.session(session).map(|s| (s.nonce, s.secret_hash)).unwrap();
    let again = Join { secret_hash, ..join("a", nonce, key.keyspace) };
    assert_eq!(world.ok(Command::Join(Box::new(again))), Outcome::Joined(session));
    assert!(settings(&world, "a").drain().is_some(), "it has not been started anew");
    // It has lost its lease, and joins again.
    let rejoins = Join { replaces: Some(session), ..join("a", 98, key.keyspace) };
    let session = world.joined(rejoins);
    assert!(settings(&world, "a").drain().is_some(), "it is still to be stopped");
    // It is started anew, and drained once more after that was decided: whoever did has been told that it is drained.
    let ends_drain = world.state.drain_until_join(&worker("a"));
    world.ok(set("a", until_join(false)));
    let since = world.next_index();
    world.ok(set("a", until_join(true)));
    let session = world.joined(Join { replaces: Some(session), ends_drain, ..join("a", 97, key.keyspace) });
    assert_eq!(world.state.drain_until_join(&worker("a")), Some(since), "another drain than it knew of");
    world.ok(set("a", drained(true)));
    let ends_drain = Some(since);
    world.joined(Join { replaces: Some(session), ends_drain, ..join("a", 99, key.keyspace) });
    let now = settings(&world, "a");
    assert_eq!((now.drained.is_some(), now.drained_until_join), (true, None));

    world.ok(set("a", WorkerChange { drained: Some(false), ..until_join(true) }));
    let replaces = world.state.session_of(&worker("a")).map(Session::id);
    let ends_drain = world.state.drain_until_join(&worker("a"));
    world.joined(Join { replaces, ends_drain, ..join("a", 100, key.keyspace) });
    assert_eq!(settings(&world, "a"), WorkerSettings::default(), "nothing is left of it");
}

#[test]
fn what_is_set_about_a_worker_outlives_its_sessions_and_names_who_set_it() {
    let (mut world, _, a, _) = World::with_two_workers(PolicyChange::default());
    let at = world.next_index();
    let entry = vec![direct(Subject::Worker(worker("a")), "drain worker a"), set("a", drained(true))];
    world.apply(None, entry).outcome.unwrap();
    assert_eq!(settings(&world, "a").drained, Some(at));
    let directive = world.state.directive(at).unwrap();
    assert_eq!((directive.by.as_str(), directive.reason.as_str()), ("anna", "a disk is failing"));

    world.ok(Command::Leave { session: a });
    world.join("a", crate::ids::KeyspaceId::new(1));
    assert_eq!(settings(&world, "a").drained, Some(at), "the new session is drained as the old one was");

    // Setting it again changes nothing, so it goes on naming the directive that did.
    world.unchanged(set("a", drained(true)));
    world.ok(set("a", drained(false)));
    assert!(world.state.worker_settings().is_empty(), "nothing is kept of a worker of which nothing is set");
    world.unchanged(set("a", drained(false)));
}

#[test]
fn t49_settings_that_are_left_out_stay() {
    let mut world = World::new();
    let weight = Weight::new(7).unwrap();
    world.ok(set("a", WorkerChange { weight: Some(Some(weight)), ..drained(true) }));
    world.ok(set("a", WorkerChange { cordoned: Some(true), ..WorkerChange::default() }));
    world.ok(set("a", drained(false)));
    let now = settings(&world, "a");
    assert_eq!((now.drained, now.cordoned.is_some(), now.weight()), (None, true, Some(weight)));
    world.ok(set("a", WorkerChange { weight: Some(None), ..WorkerChange::default() }));
    assert_eq!(settings(&world, "a").weight, None);
}

#[test]
fn a_worker_is_forgotten_only_when_it_has_no_session() {
    let (mut world, _, a, _) = World::with_two_workers(PolicyChange::default());
    world.ok(set("a", drained(true)));
    let forget = || Command::ForgetWorker { worker: worker("a") };
    assert_eq!(world.refused(forget()), Refused::WorkerLives { worker: worker("a"), session: a });
    world.ok(Command::Leave { session: a });
    assert_eq!(world.ok(forget()), Outcome::Done);
    world.unchanged(forget());
}

#[test]
fn what_is_set_about_a_partition_goes_with_its_keyspace() {
    let (mut world, key, ..) = World::with_two_workers(PolicyChange::default());
    let change = |change| Command::SetPartition { partition: key, change };
    let by = world.next_index();
    let (pin, weight) = (Some(Some(worker("b"))), Some(Some(5)));
    world.ok(change(PartitionChange { pin, frozen: Some(true), weight }));
    let of =
        |world: &World| world.state.keyspace(key.keyspace).unwrap().settings().get(&key.partition).cloned();
    let expected =
        PartitionSettings { pin: Some((worker("b"), by)), frozen: Some(by), weight: Some((5, by)) };
    assert_eq!(of(&world), Some(expected));

    let too_heavy = |n| PartitionChange { weight: Some(Some(n)), ..PartitionChange::default() };
    assert_eq!(world.refused(change(too_heavy(0))), Refused::PartitionWeight(0));
    assert_eq!(world.refused(change(too_heavy(1_000_001))), Refused::PartitionWeight(1_000_001));
    let beyond = PartitionKey { partition: PartitionId::new(1), ..key };
    let of_nobody = Command::SetPartition { partition: beyond, change: too_heavy(2) };
    assert_eq!(world.refused(of_nobody), Refused::NoSuchPartition(beyond));

    world.ok(change(PartitionChange { pin: Some(None), frozen: Some(false), weight: Some(None) }));
    assert_eq!(of(&world), None);
    world.ok(change(too_heavy(9)));
    world.ok(Command::DeleteKeyspace { keyspace: key.keyspace });
    assert_ne!(world.create("orders", 1, PolicyChange::default()), key.keyspace);
    assert!(world.state.keyspaces().all(|keyspace| keyspace.settings().is_empty()));
}

#[test]
fn a_freeze_names_its_directive_and_is_lifted_by_name() {
    let (mut world, key, ..) = World::with_two_workers(PolicyChange::default());
    let at = world.next_index();
    world.ok(Command::Freeze { keyspace: None, frozen: true });
    world.ok(Command::Freeze { keyspace: Some(key.keyspace), frozen: true });
    assert_eq!(world.state.frozen(), Some(at));
    world.unchanged(Command::Freeze { keyspace: None, frozen: true });
    world.ok(Command::Freeze { keyspace: None, frozen: false });
    assert_eq!(world.state.frozen(), None);
    assert!(world.state.keyspace(key.keyspace).unwrap().frozen().is_some(), "that is another freeze");
    let gone = crate::ids::KeyspaceId::new(9);
    let freeze = Command::Freeze { keyspace: Some(gone), frozen: true };
    assert_eq!(world.refused(freeze), Refused::NoSuchKeyspace(gone));
}

#[test]
fn a_grant_says_by_whose_word_the_partition_moved() {
    let (mut world, key, a, b, e1) = World::owned(PolicyChange::default());
    assert_eq!(world.partition(key).history()[0].directive, None);
    let by = world.next_index();
    world
        .apply(None, vec![direct(Subject::Worker(worker("a")), "drain"), set("a", drained(true))])
        .outcome
        .unwrap();
    world.apply(None, vec![Command::Under { directive: by }, drain(key, e1, "b")]).outcome.unwrap();
    let Phase::Draining(draining) = world.phase(key) else { panic!("it drains") };
    assert_eq!(draining.directive, Some(by));
    let why = GrantReason::Drain;
    let grant = Command::Grant { partition: key, replaces: Some(e1), to: b, why };
    world.apply(None, vec![release(key, e1, a), grant]).outcome.unwrap();
    let last = world.partition(key).history().last().unwrap();
    assert_eq!((last.why, last.directive), (why, Some(by)));

    let never = Command::Under { directive: LogIndex::new(0) };
    assert_eq!(world.refused(never), Refused::NoSuchDirective(LogIndex::new(0)));
    let next = world.next_index();
    assert_eq!(world.refused(Command::Under { directive: next }), Refused::NoSuchDirective(next));
}

/// Nobody ordered what became of an owner that was lost, though somebody had ordered it away.
#[test]
fn an_owner_that_was_lost_while_it_drained_is_replaced_in_nobody_s_name() {
    for by_deadline in [true, false] {
        let (mut world, key, a, b, e1) = World::owned(by_fence());
        let by = world.next_index();
        let begun = vec![direct(Subject::Worker(worker("a")), "drain"), drain(key, e1, "b")];
        let outcomes = world.apply(None, begun).outcome.unwrap();
        let Outcome::Draining(move_id) = outcomes[1] else { panic!("{outcomes:?}") };
        let taken = match by_deadline {
            true => Command::DrainOver { partition: key, epoch: e1, move_id },
            false => Command::Seize { partition: key, epoch: e1, session: a },
        };
        let why = GrantReason::Failover;
        let grant = Command::Grant { partition: key, replaces: Some(e1), to: b, why };
        world.apply(None, vec![taken, grant]).outcome.unwrap();
        let last = world.partition(key).history().last().unwrap();
        assert_eq!((last.session, last.directive), (b, by_deadline.then_some(by)));
    }
}

#[test]
fn a_move_decided_before_a_freeze_does_not_begin_after_it() {
    let key = PartitionKey { keyspace: crate::ids::KeyspaceId::new(1), partition: PartitionId::new(0) };
    let frozen = || WorkerChange { frozen: Some(true), ..WorkerChange::default() };
    let of_partition = PartitionChange { frozen: Some(true), ..PartitionChange::default() };
    let freeze = |keyspace| Command::Freeze { keyspace, frozen: true };
    for (command, what) in [
        (freeze(None), Subject::Cluster),
        (freeze(Some(key.keyspace)), Subject::Keyspace(key.keyspace)),
        (Command::SetPartition { partition: key, change: of_partition }, Subject::Partition(key)),
        (set("a", frozen()), Subject::Worker(worker("a"))),
        (set("b", frozen()), Subject::Worker(worker("b"))),
    ] {
        let (mut world, owned, a, b, e1) = World::owned(PolicyChange::default());
        assert_eq!(owned, key);
        world.ok(command.clone());
        world.unchanged(drain(key, e1, "b"));
        let (to, deadline, why) = (worker("b"), Duration::from_secs(5), GrantReason::Operator);
        let asked = Command::Drain { partition: key, epoch: e1, to, deadline, why };
        assert_eq!(world.refused(asked), Refused::Frozen(what.clone()));

        // What has begun goes on.
        let (mut world, ..) = World::owned(PolicyChange::default());
        world.ok(drain(key, e1, "b"));
        world.ok(command);
        assert!(matches!(world.ok(drain(key, e1, "b")), Outcome::Draining(_)), "{what:?}");
        let why = GrantReason::Balance;
        let grant = Command::Grant { partition: key, replaces: Some(e1), to: b, why };
        let outcomes = world.apply(None, vec![release(key, e1, a), grant]).outcome.unwrap();
        assert_eq!(outcomes, [Outcome::Done, Outcome::Granted(epoch(2))], "{what:?}");
    }
}

#[test]
fn a_move_decided_before_a_pin_does_not_begin_after_it() {
    let pin = PartitionChange { pin: Some(Some(worker("a"))), ..PartitionChange::default() };
    let drain = |partition, epoch, why| {
        let (to, deadline) = (worker("b"), Duration::from_secs(5));
        Command::Drain { partition, epoch, to, deadline, why }
    };
    let pinned = || {
        let (mut world, key, _, _, e1) = World::owned(PolicyChange::default());
        world.ok(Command::SetPartition { partition: key, change: pin.clone() });
        (world, key, e1)
    };
    let (mut world, key, e1) = pinned();
    let to = worker("a");
    let refused = Refused::Pinned { partition: key, to };
    assert_eq!(world.refused(drain(key, e1, GrantReason::Operator)), refused);
    world.unchanged(drain(key, e1, GrantReason::Plan));
    // One whose worker takes nothing holds up nothing, and balancing has looked at pins itself.
    let taken_out = |change| set("a", change);
    for (out, why) in [
        (Some(WorkerChange { cordoned: Some(true), ..WorkerChange::default() }), GrantReason::Operator),
        (Some(WorkerChange { drained: Some(true), ..WorkerChange::default() }), GrantReason::Plan),
        (None, GrantReason::Balance),
    ] {
        let (mut world, key, e1) = pinned();
        out.map(|change| world.ok(taken_out(change)));
        assert!(matches!(world.ok(drain(key, e1, why)), Outcome::Draining(_)), "{why:?}");
    }
}

#[test]
fn directives_are_bounded_in_number_and_in_length() {
    let mut world = World::new();
    let long = "ä".repeat(MAX_DIRECTIVE_BYTES);
    world.ok(direct(Subject::Cluster, &long));
    let kept: Vec<&Directive> = world.state.directives().collect();
    assert_eq!(kept[0].what.len(), MAX_DIRECTIVE_BYTES);
    let first = kept[0].at;
    for _ in 0..DIRECTIVES_LEN {
        world.ok(direct(Subject::Cluster, "x"));
    }
    assert_eq!(world.state.directives().count(), DIRECTIVES_LEN);
    assert_eq!(world.state.directive(first), None, "the oldest is forgotten");
}

#[test]
fn a_worker_that_announced_its_restart_leaves_partitions_that_wait_for_it() {
    let hold = Duration::from_secs(30);
    let change = PolicyChange { rejoin_hold: Some(hold), ..PolicyChange::default() };
    let (mut world, key, a, _, e1) = World::owned(change);
    let released = |how| Command::Release { partition: key, epoch: e1, session: a, how };
    world.ok(released(Released::Restarting));
    let cooling = world.cooling(key);
    assert_eq!((cooling.lease_of, cooling.then, cooling.why), (None, hold, CoolingWhy::Hold));
    world.ok(Command::Leave { session: a });
    assert_eq!(world.cooling(key).why, CoolingWhy::Hold, "leaving is part of it");
    let back = world.joined(join("a", 99, key.keyspace));
    let why = GrantReason::Returned;
    let grant = Command::Grant { partition: key, replaces: Some(e1), to: back, why };
    world.apply(None, vec![Command::EndCooling { partition: key, epoch: e1 }, grant]).outcome.unwrap();
    assert_eq!(
        world.partition(key).epoch(),
        Some(epoch(2)),
        "the same worker, and a higher epoch all the same"
    );
    // Where nothing is held, it is an ordinary release.
    let (mut world, key, a, _, e1) = World::owned(PolicyChange::default());
    let how = Released::Restarting;
    world.ok(Command::Release { partition: key, epoch: e1, session: a, how });
    assert_eq!(*world.phase(key), Phase::Vacant);
}

#[test]
fn a_weight_names_who_set_it_and_goes_on_doing_so_when_it_is_set_again() {
    let (mut world, key, ..) = World::with_two_workers(PolicyChange::default());
    let weight = |number| WorkerChange { weight: Some(Weight::new(number).ok()), ..WorkerChange::default() };
    let by = world.next_index();
    world.ok(set("a", weight(7)));
    world.unchanged(set("a", weight(7)));
    assert_eq!(settings(&world, "a").weight, Some((Weight::new(7).unwrap(), by)));
    let again = world.next_index();
    world.ok(set("a", weight(8)));
    assert_eq!(settings(&world, "a").weight, Some((Weight::new(8).unwrap(), again)));

    let weigh = |weight| PartitionChange { weight: Some(weight), ..PartitionChange::default() };
    let change = |weight| Command::SetPartition { partition: key, change: weigh(weight) };
    let by = world.next_index();
    world.ok(change(Some(3)));
    world.unchanged(change(Some(3)));
    let of = |world: &World| world.state.keyspace(key.keyspace).unwrap().settings()[&key.partition].weight;
    assert_eq!(of(&world), Some((3, by)));
}

/// The list is bounded: what was said for nothing would push out what stands.
#[test]
fn a_directive_that_changes_nothing_is_not_remembered() {
    let (mut world, key, a, _, e1) = World::owned(PolicyChange::default());
    let said = |what, command| vec![direct(Subject::Worker(worker("a")), what), command];
    let done = world.apply(None, said("drain worker a", set("a", drained(true)))).outcome.unwrap();
    assert_eq!(done, [Outcome::Done, Outcome::Done]);
    let before = world.state.clone();
    let again = world.apply(None, said("drain worker a", set("a", drained(true)))).outcome.unwrap();
    assert_eq!(again, [Outcome::Unchanged, Outcome::Unchanged]);
    world.assert_same_but_for_the_index(before);

    // A move that is in flight is not begun again, and a grant to a worker that takes nothing is none.
    world.ok(set("a", drained(false)));
    let (to, deadline, why) = (worker("b"), Duration::from_secs(5), GrantReason::Operator);
    let asked = Command::Drain { partition: key, epoch: e1, to, deadline, why };
    world.apply(None, said("move", asked.clone())).outcome.unwrap();
    let before = world.state.clone();
    let outcomes = world.apply(None, said("move", asked)).outcome.unwrap();
    assert!(matches!(outcomes[..], [Outcome::Unchanged, Outcome::Draining(_)]), "{outcomes:?}");
    world.assert_same_but_for_the_index(before);
    world.ok(release(key, e1, a));
    world.ok(set("a", drained(true)));
    let before = world.state.clone();
    let grant = Command::Grant { partition: key, replaces: Some(e1), to: a, why };
    let outcomes = world.apply(None, said("move", grant)).outcome.unwrap();
    assert_eq!(outcomes, [Outcome::Unchanged, Outcome::LeftVacant]);
    world.assert_same_but_for_the_index(before);

    // One that stands alone is what is remembered.
    let alone = world.next_index();
    world.ok(direct(Subject::Cluster, "release the brake"));
    assert!(world.state.directive(alone).is_some());
}

/// A partition that is on its way to `b` by anna's word, and what its next grant is told to follow from.
#[test]
fn a_grant_names_nobody_who_did_not_order_it() {
    let ordered = || {
        let (mut world, key, a, b, e1) = World::owned(PolicyChange::default());
        let c = world.join("c", key.keyspace);
        let (to, deadline, why) = (worker("b"), Duration::from_secs(5), GrantReason::Operator);
        let asked = Command::Drain { partition: key, epoch: e1, to, deadline, why };
        let by = world.next_index();
        world.apply(None, vec![direct(Subject::Partition(key), "move"), asked]).outcome.unwrap();
        (world, key, a, b, c, e1, by)
    };
    let granted = |world: &mut World, key, e1, commands: Vec<Command>, to| {
        let grant = Command::Grant { partition: key, replaces: Some(e1), to, why: GrantReason::Failover };
        world.apply(None, commands.into_iter().chain([grant]).collect()).outcome.unwrap();
        world.partition(key).history().last().unwrap().directive
    };
    // Its target was gone, and another got it.
    let (mut world, key, a, _, c, e1, _) = ordered();
    let given_back = vec![release(key, e1, a)];
    assert_eq!(granted(&mut world, key, e1, given_back, c), None);
    // Its owner was lost: it would have been granted to somebody in any case.
    let (mut world, key, a, b, _, e1, _) = ordered();
    world.suspect(a, 1);
    let suspicion = world.suspect(a, 2);
    let lost = vec![Command::Expire { session: a, suspicion }];
    assert_eq!(granted(&mut world, key, e1, lost, b), None);
    // Its owner did not give it back in time: the move goes on.
    let (mut world, key, _, b, _, e1, by) = ordered();
    let Phase::Draining(drain) = world.phase(key) else { panic!("it drains") };
    let over = vec![Command::DrainOver { partition: key, epoch: e1, move_id: drain.move_id }];
    assert_eq!(granted(&mut world, key, e1, over, b), Some(by));
}
