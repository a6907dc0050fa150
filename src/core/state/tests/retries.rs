//! Requests that take effect once.

use super::world::{World, epoch, release};
use crate::ids::{KeyspaceName, LogIndex, SessionId};
use crate::placement::PartitionCount;
use crate::state::{
    Command, EndReason, OPERATOR_ANSWERS, Outcome, Policy, PolicyChange, Refused, Request, SESSION_ANSWERS,
    State,
};

fn create(name: &str) -> Vec<Command> {
    vec![Command::CreateKeyspace {
        keyspace: KeyspaceName::new(name).unwrap(),
        partitions: PartitionCount::new(1).unwrap(),
        policy: Policy::default(),
    }]
}

fn operator(id: u128, seen: u64) -> Option<Request> {
    Some(Request::Operator { id, seen: LogIndex::new(seen) })
}

fn of(session: SessionId, number: u64, settled_below: u64) -> Option<Request> {
    Some(Request::Session { session, number, settled_below })
}

/// What a new leader would have: the state out of a snapshot.
fn through_a_snapshot(world: &mut World) {
    world.state = State::from_parts(world.state.to_parts()).expect("a reachable state");
}

#[test]
fn f014_a_retry_gets_the_first_answer_and_has_no_second_effect() {
    let mut world = World::new();
    let first = world.apply(operator(1, 0), create("orders"));
    let before = world.state.clone();
    let again = world.apply(operator(1, 0), create("orders"));
    assert_eq!(again.outcome, first.outcome);
    assert_eq!(again.events, []);
    world.assert_same_but_for_the_index(before);
}

#[test]
fn f014_a_retry_is_known_at_another_leader_behind_a_snapshot() {
    let mut world = World::new();
    let first = world.apply(operator(1, 0), create("orders"));
    let keyspace = world.state.keyspaces().next().unwrap().id();
    let a = world.join("a", keyspace);
    let key = crate::ids::PartitionKey { keyspace, partition: crate::ids::PartitionId::new(0) };
    let granted = world.apply(of(a, 1, 0), vec![world.a_grant(key, a)]);
    through_a_snapshot(&mut world);

    assert_eq!(world.apply(operator(1, 0), create("orders")).outcome, first.outcome);
    let grant = world.a_grant(key, a);
    assert_eq!(world.apply(of(a, 1, 0), vec![grant]).outcome, granted.outcome);
    assert_eq!(world.partition(key).epoch(), Some(epoch(1)));
}

#[test]
fn t43_a_refused_request_changed_nothing_and_runs_again() {
    let mut world = World::new();
    world.apply(None, create("orders"));
    let refused = world.apply(operator(1, 0), create("orders"));
    assert!(matches!(refused.outcome.unwrap_err().why, Refused::KeyspaceExists(_)));
    let keyspace = world.state.keyspaces().next().unwrap().id();
    world.ok(Command::DeleteKeyspace { keyspace });
    assert!(world.apply(operator(1, 0), create("orders")).outcome.is_ok());
}

#[test]
fn p17_a_busy_operator_pushes_an_answer_out_and_the_retry_is_refused_not_run() {
    let mut world = World::new();
    world.apply(operator(1, 0), create("first"));
    let keyspace = world.state.keyspaces().next().unwrap().id();
    for n in 0..OPERATOR_ANSWERS as u128 {
        let update = Command::UpdateKeyspace { keyspace, change: PolicyChange::default() };
        world.apply(operator(100 + n, 1), vec![update]).outcome.unwrap();
    }
    through_a_snapshot(&mut world);
    let before = world.state.clone();
    let retry = world.apply(operator(1, 0), create("first"));
    assert_eq!(retry.outcome.unwrap_err().why, Refused::TooOld);
    world.assert_same_but_for_the_index(before);
    // One that was first sent after the forgotten one took effect cannot be it.
    assert!(world.apply(operator(2, 1), create("second")).outcome.is_ok());
}

#[test]
fn t43_a_session_s_answers_are_bounded_and_what_it_settled_is_too_old() {
    let mut world = World::new();
    let keyspace = world.create("orders", 1, PolicyChange::default());
    let a = world.join("a", keyspace);
    let nothing = || vec![Command::Clear { sessions: vec![] }];
    for number in 1..=SESSION_ANSWERS as u64 + 1 {
        assert!(world.apply(of(a, number, 0), nothing()).outcome.is_ok());
    }
    assert_eq!(world.state.session(a).unwrap().answers.kept.len(), SESSION_ANSWERS);
    let too_old =
        |world: &mut World, number| world.apply(of(a, number, 0), nothing()).outcome.unwrap_err().why;
    assert_eq!(too_old(&mut world, 1), Refused::TooOld);
    assert!(world.apply(of(a, 70, 70), nothing()).outcome.is_ok());
    through_a_snapshot(&mut world);
    assert_eq!(too_old(&mut world, 69), Refused::TooOld);
}

#[test]
fn f096_a_session_that_settles_everything_hurts_only_itself() {
    let mut world = World::new();
    let keyspace = world.create("orders", 1, PolicyChange::default());
    let a = world.join("a", keyspace);
    let b = world.join("b", keyspace);
    let clear = || vec![Command::Clear { sessions: vec![] }];
    assert!(world.apply(of(a, u64::MAX, u64::MAX), clear()).outcome.is_ok());
    assert_eq!(world.apply(of(a, 1, 0), clear()).outcome.unwrap_err().why, Refused::TooOld);
    assert!(world.apply(of(a, u64::MAX, u64::MAX), clear()).outcome.is_ok());
    assert!(world.apply(of(b, 1, 0), clear()).outcome.is_ok());
    assert!(world.apply(operator(u128::MAX, u64::MAX), clear()).outcome.is_ok());
}

#[test]
fn the_answers_of_a_session_die_with_it() {
    let (mut world, key, a, _, e1) = World::owned(PolicyChange::default());
    assert!(
        world.apply(of(a, 1, 0), vec![release(key, e1, a), Command::Leave { session: a }]).outcome.is_ok()
    );
    let retry = world.apply(of(a, 1, 0), vec![release(key, e1, a)]);
    let why = Refused::SessionEnded { session: a, how: Some(EndReason::Left) };
    assert_eq!(retry.outcome.unwrap_err().why, why);
}

#[test]
fn t43_two_sessions_number_their_requests_apart() {
    let (mut world, key, a, b) = World::with_two_workers(PolicyChange::default());
    let grant = world.a_grant(key, a);
    let granted = world.apply(of(a, 1, 0), vec![grant]);
    assert_eq!(granted.outcome, Ok(vec![Outcome::Granted(epoch(1))]));
    let other = world.apply(of(b, 1, 0), vec![Command::Clear { sessions: vec![] }]);
    assert_eq!(other.outcome, Ok(vec![Outcome::Done]));
}
