//! What no state can have had is refused as parts, each for its own reason.

use super::world::{World, drain, epoch, failed, join, secs};
use crate::ids::{EpochFloor, KeyspaceName, LockName, LogIndex, SessionId};
use crate::state::{
    Command, Cooling, CoolingWhy, HISTORY_LEN, Join, Life, LockCooling, LockMode, LockWish, Outcome,
    PartsError, Phase, PolicyChange, Request, State, StateParts, Suspicion, Takeover,
};

/// A state with something in every corner.
fn full() -> StateParts {
    let mut world = World::new();
    let keyspace = world.create("orders", 4, PolicyChange::default());
    let key = |n| crate::ids::PartitionKey { keyspace, partition: crate::ids::PartitionId::new(n) };
    let (a, b) = (world.join("a", keyspace), world.join("b", keyspace));
    for n in 0..4 {
        world.grant(key(n), a);
    }
    world.ok(failed(key(0), epoch(1), a, "it broke"));
    world.ok(drain(key(1), epoch(1), "b"));
    let a2 = world.joined(Join { replaces: Some(a), ..join("a", 99, keyspace) });
    let gone = world.join("gone", keyspace);
    world.ok(Command::Leave { session: gone });
    world.ok(Command::EndCooling { partition: key(2), epoch: epoch(1) });
    world.grant(key(2), a2);
    world.ok(Command::EndCooling { partition: key(3), epoch: epoch(1) });
    world.grant(key(3), b);
    world.ok(drain(key(3), epoch(2), "a"));
    world.suspect(b, 1);
    let clear = || vec![Command::Clear { sessions: vec![] }];
    let session = Request::Session { session: b, number: 3, settled_below: 2 };
    world.apply(Some(session), clear()).outcome.unwrap();
    let seen = LogIndex::new(0);
    world.apply(Some(Request::Operator { id: 5, seen }), clear()).outcome.unwrap();
    world.apply(Some(Request::Operator { id: 6, seen }), clear()).outcome.unwrap();
    let lock = |name| LockName::new(name).unwrap();
    let wish = LockWish::new(LockMode::Shared).with(Takeover::Lease, secs(1), None).unwrap();
    let acquire = |name, session, wish| Command::AcquireLock {
        lock: lock(name),
        session,
        request: 1,
        wish,
        waits: true,
    };
    world.ok(acquire("l", a2, wish));
    world.ok(acquire("l", b, wish));
    let c = world.join("c", keyspace);
    world.ok(acquire("l", c, LockWish::new(LockMode::Exclusive)));
    world.ok(acquire("m", c, wish));
    world.ok(Command::Evict { session: c });
    let d = world.join("d", keyspace);
    world.ok(acquire("l", d, LockWish::new(LockMode::Exclusive)));
    world.state.to_parts()
}

fn locked(why: &str, break_it: impl FnOnce(&mut StateParts)) {
    let error = refuse(break_it);
    assert!(matches!(error, PartsError::Lock { .. }) && error.to_string().contains(why), "{error}");
}

#[test]
fn g2_locks_that_contradict_themselves_or_their_sessions_are_refused() {
    let gone = SessionId::new(99).unwrap();
    locked("never granted", |p| p.lock_epoch = EpochFloor::NONE);
    locked("have two", |p| p.locks[0].grants[1].epoch = epoch(2));
    locked("twice under one epoch", |p| p.locks[0].grants[1].session = p.locks[0].grants[0].session);
    locked("another worker's", |p| p.locks[0].grants[0].worker = crate::ids::WorkerId::new("z").unwrap());
    locked("one holds it alone", |p| p.locks[0].grants[0].wish = LockWish::new(LockMode::Exclusive));
    locked("nobody holds it", |p| p.locks[0].grants.clear());
    locked("not there waits", |p| p.locks[0].queue[0].session = gone);
    locked("holds it and waits", |p| p.locks[0].queue[0].session = p.locks[0].grants[0].session);
    locked("free for whoever is next", |p| p.locks[0].queue[0].wish = LockWish::new(LockMode::Shared));
    locked("waits for nothing", |p| {
        p.locks[1].grants[0].cooling = Some(LockCooling { lease: None, then: secs(0) });
    });
    locked("is not there, or is", |p| p.locks[1].grants[0].cooling = None);
    let twice = refuse(|p| p.locks[1].name = p.locks[0].name.clone());
    assert!(matches!(twice, PartsError::Order { what: "the locks" }), "{twice}");
    let to_come = refuse(|p| p.locks[0].grants[1].at = LogIndex::new(9_999));
    assert!(matches!(to_come, PartsError::NotAppliedYet { .. }), "{to_come}");
}

fn refuse(break_it: impl FnOnce(&mut StateParts)) -> PartsError {
    let mut parts = full();
    break_it(&mut parts);
    State::from_parts(parts).expect_err("refused")
}

fn partition(why: &str, break_it: impl FnOnce(&mut StateParts)) {
    let error = refuse(break_it);
    assert!(matches!(error, PartsError::Partition { .. }) && error.to_string().contains(why), "{error}");
}

fn session(why: &str, break_it: impl FnOnce(&mut StateParts)) {
    let error = refuse(break_it);
    assert!(matches!(error, PartsError::Session { .. }) && error.to_string().contains(why), "{error}");
}

#[test]
fn the_parts_of_a_state_make_it_again() {
    let state = State::from_parts(full()).unwrap();
    assert_eq!(state.to_parts(), full());
}

#[test]
fn g2_epochs_that_do_not_grow_are_refused() {
    partition("do not grow", |p| p.keyspaces[0].partitions[2].history[1].epoch = epoch(1));
    partition("do not grow", |p| p.keyspaces[0].partitions[2].history[1].at = LogIndex::new(1));
    partition("not that of its last grant", |p| {
        p.keyspaces[0].partitions[0].epoch = EpochFloor::of(epoch(7));
    });
    partition("not that of its last grant", |p| p.keyspaces[0].partitions[0].epoch = EpochFloor::NONE);
    partition("do not grow", |p| {
        p.floor = EpochFloor::of(epoch(9));
        p.keyspaces[0].floor = EpochFloor::of(epoch(9));
    });
    let above = refuse(|p| p.keyspaces[0].floor = EpochFloor::of(epoch(1)));
    assert!(matches!(above, PartsError::Floor { floor: 1, cluster: 0, .. }));
    let long = refuse(|p| {
        let tenure = p.keyspaces[0].partitions[2].history[0].clone();
        p.keyspaces[0].partitions[2].history = vec![tenure; HISTORY_LEN + 1];
    });
    assert!(matches!(long, PartsError::Bound { .. }));
}

#[test]
fn an_owner_is_a_live_session_that_serves_the_keyspace_and_was_granted_the_epoch() {
    let owned = |session: u64| Phase::Owned { session: SessionId::new(session).unwrap(), ready: true };
    partition("session is not there", |p| p.keyspaces[0].partitions[2].phase = owned(1));
    partition("not to its owner", |p| p.keyspaces[0].partitions[2].phase = owned(2));
    partition("does not serve", |p| {
        p.next_keyspace = 9;
        p.sessions[1].keyspaces = [crate::ids::KeyspaceId::new(8)].into();
    });
    partition("not to its owner", |p| {
        p.keyspaces[0].partitions[2].history[1].worker = crate::ids::WorkerId::new("b").unwrap();
    });
    partition("cools and nothing was ever granted", |p| {
        p.keyspaces[0].partitions[0].history.clear();
        p.keyspaces[0].partitions[0].epoch = EpochFloor::NONE;
    });
    partition("lease of a session that lives", |p| {
        let lease_of = Some((p.sessions[0].id, secs(1)));
        let why = CoolingWhy::Lease;
        p.keyspaces[0].partitions[0].phase = Phase::Cooling(Cooling { lease_of, then: secs(0), why });
    });
    partition("setback", |p| {
        if let Some(setback) = &mut p.keyspaces[0].partitions[0].setback {
            setback.count = 0;
        }
    });
}

#[test]
fn the_address_of_a_session_that_has_ended_is_bounded() {
    let ended = |bytes: usize| {
        move |p: &mut StateParts| {
            let (joined, address) = (p.ended[0].at, "x".repeat(bytes));
            p.ended[0].life = Some(Life { joined, joined_unix_ms: 0, address, ended_unix_ms: 0 });
        }
    };
    assert!(matches!(refuse(ended(256)), PartsError::Bound { count: 256, bound: 255, .. }));
}

#[test]
fn counters_are_above_what_they_count() {
    for (what, error) in [
        ("keyspace", refuse(|p| p.next_keyspace = 1)),
        ("session", refuse(|p| p.next_session = 4)),
        ("session", refuse(|p| p.next_session = 0)),
        ("move", refuse(|p| p.next_move = 2)),
    ] {
        assert!(matches!(error, PartsError::NotGivenYet { what: of, .. } if of == what), "{what}: {error}");
    }
    // The cause and the effect may both be in an answer only.
    let answers = |outcome: Outcome| refuse(|p| p.answers[0].outcomes = vec![outcome]);
    for outcome in [
        Outcome::Created(crate::ids::KeyspaceId::new(9)),
        Outcome::Joined(SessionId::new(99).unwrap()),
        Outcome::Draining(crate::ids::MoveId::new(99)),
    ] {
        assert!(matches!(answers(outcome), PartsError::NotGivenYet { .. }));
    }
}

#[test]
fn nothing_is_of_an_entry_that_was_not_applied_yet() {
    let late = LogIndex::new(1_000);
    let breaks: [fn(&mut StateParts, LogIndex); 8] = [
        |p, late| p.revision = late,
        |p, late| p.sessions[0].joined = late,
        |p, late| p.sessions[0].assignment = late,
        |p, late| p.sessions[0].suspicion = Some(Suspicion { thirds: 1, at: late }),
        |p, late| p.ended[2].at = late,
        |p, late| p.keyspaces[0].partitions[2].history[1].at = late,
        |p, late| p.answers[1].at = late,
        |p, late| {
            p.answers.clear();
            p.answers_dropped = Some(late);
        },
    ];
    for break_it in breaks {
        let error = refuse(|p| break_it(p, late));
        assert!(matches!(error, PartsError::NotAppliedYet { .. }), "{error}");
    }
}

#[test]
fn what_ascends_is_not_there_twice() {
    for error in [
        refuse(|p| p.sessions.swap(0, 1)),
        refuse(|p| p.keyspaces.push(p.keyspaces[0].clone())),
        refuse(|p| p.nodes = vec![crate::ids::NodeId::new(1).unwrap(); 2]),
        refuse(|p| p.ended.swap(0, 1)),
        refuse(|p| p.answers.swap(0, 1)),
        refuse(|p| p.answers[1].id = p.answers[0].id),
        refuse(|p| p.answers_dropped = Some(p.applied)),
        refuse(|p| p.sessions[0].answers.push((1, vec![]))),
    ] {
        assert!(matches!(error, PartsError::Order { .. } | PartsError::Session { .. }), "{error}");
    }
}

#[test]
fn f059_a_name_has_one_bearer() {
    let worker = refuse(|p| p.sessions[1].worker = p.sessions[0].worker.clone());
    assert!(matches!(&worker, PartsError::NameTwice { what: "worker", name } if name == "b"), "{worker}");
    let keyspace = refuse(|p| {
        p.next_keyspace = 3;
        let mut second = p.keyspaces[0].clone();
        second.id = crate::ids::KeyspaceId::new(2);
        second.name = KeyspaceName::new("orders").unwrap();
        for partition in &mut second.partitions {
            (partition.phase, partition.epoch) = (Phase::Vacant, EpochFloor::NONE);
            partition.history.clear();
        }
        p.keyspaces.push(second);
    });
    assert!(matches!(&keyspace, PartsError::NameTwice { what: "keyspace", .. }), "{keyspace}");
}

#[test]
fn a_session_that_contradicts_itself_is_refused() {
    session("1 or 2 thirds", |p| p.sessions[0].suspicion = Some(Suspicion { thirds: 3, at: p.applied }));
    session("older than it is", |p| p.sessions[0].assignment = LogIndex::new(1));
    session("it has settled", |p| p.sessions[0].settled_below = 9);
    session("it has ended", |p| {
        let at = p.ended[0].at;
        p.ended[1] = p.ended[0].clone();
        p.ended[1].at = at;
    });
    session("it has ended", |p| p.ended[1].session = p.sessions[0].id);
}

#[test]
fn a_keyspace_has_partitions() {
    let none = refuse(|p| p.keyspaces[0].partitions.clear());
    assert!(matches!(none, PartsError::PartitionCount { .. }), "{none}");
}
