//! Locks: who gets one, in which order, and what a lost one waits for.

use super::world::{TTL, World, join, secs, worker};
use crate::ids::{Epoch, EpochFloor, KeyspaceId, LockName, SessionId};
use crate::state::{
    Command, Event, Join, LockCooling, LockMode, LockWish, MAX_LOCK_WAITERS, MAX_SESSION_LOCKS, Outcome,
    Refused, Request, Session, Takeover,
};
use std::collections::BTreeSet;
use std::time::Duration;

const ALONE: LockWish = LockWish::new(LockMode::Exclusive);
const TOGETHER: LockWish = LockWish::new(LockMode::Shared);

fn lock(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

fn after(epoch: Epoch) -> Epoch {
    Epoch::new(epoch.get() + 1).unwrap()
}

fn delayed(delay: Duration) -> LockWish {
    ALONE.with(Takeover::Lease, delay, None).unwrap()
}

fn by_fence(delay: Duration) -> LockWish {
    ALONE.with(Takeover::Fence, delay, None).unwrap()
}

fn acquire(session: SessionId, request: u64, wish: LockWish) -> Command {
    Command::AcquireLock { lock: lock("l"), session, request, wish, waits: true }
}

fn try_acquire(session: SessionId, wish: LockWish) -> Command {
    Command::AcquireLock { lock: lock("l"), session, request: 1, wish, waits: false }
}

fn release(epoch: Epoch, session: SessionId) -> Command {
    Command::ReleaseLock { lock: lock("l"), epoch, session }
}

fn session_only(name: &str, nonce: u128) -> Join {
    Join { keyspaces: BTreeSet::new(), ttl: Some(TTL), ..join(name, nonce, KeyspaceId::new(0)) }
}

/// Sessions that take locks and serve nothing.
fn with_sessions<const N: usize>() -> (World, [SessionId; N]) {
    let mut world = World::new();
    let sessions =
        std::array::from_fn(|n| world.joined(session_only(&format!("w{n}"), u128::from(n as u64) + 1)));
    (world, sessions)
}

impl World {
    fn granted(&mut self, command: Command) -> Epoch {
        match self.ok(command) {
            Outcome::Granted(epoch) => epoch,
            other => panic!("not granted: {other:?}"),
        }
    }

    fn holders(&self) -> Vec<SessionId> {
        self.state
            .lock(&lock("l"))
            .into_iter()
            .flat_map(crate::state::Lock::holders)
            .map(|grant| grant.session)
            .collect()
    }

    fn epoch_of(&self, session: SessionId) -> Epoch {
        self.state.lock(&lock("l")).and_then(|l| l.held_by(session)).expect("it holds the lock").epoch
    }

    fn lock_cooling(&self) -> LockCooling {
        let grants = self.state.lock(&lock("l")).map(|l| l.grants.clone()).unwrap_or_default();
        grants.iter().find_map(|grant| grant.cooling).expect("it cools")
    }

    fn expire(&mut self, session: SessionId) {
        let suspicion = self.suspect(session, 2);
        self.ok(Command::Expire { session, suspicion });
    }
}

#[test]
fn b18_c22_a_free_lock_is_granted_in_the_entry_that_asks_with_an_epoch_above_all_earlier_ones() {
    let (mut world, [a, b]) = with_sessions();
    let first = world.granted(acquire(a, 1, ALONE));
    assert_eq!(world.holders(), [a]);
    world.ok(release(first, a));
    assert_eq!(world.state.lock(&lock("l")), None, "an idle lock is forgotten");
    let second = world.granted(acquire(b, 1, ALONE));
    assert!(second > first);
}

/// The counter is the cluster's, so what is forgotten loses nothing.
#[test]
fn t46_a_lock_that_was_forgotten_repeats_no_epoch_and_the_cluster_s_floor_counts() {
    let (mut world, [a]) = with_sessions();
    let first = world.granted(acquire(a, 1, ALONE));
    let other = Command::AcquireLock { lock: lock("m"), session: a, request: 2, wish: ALONE, waits: true };
    let second = world.granted(other);
    assert!(second > first, "another lock's epoch is above, too");
    world.ok(release(first, a));
    assert!(world.granted(acquire(a, 3, ALONE)) > second);
    world.state.counters.floor = EpochFloor::of(Epoch::new(1_000).unwrap());
    let third = world.epoch_of(a);
    world.ok(release(third, a));
    assert_eq!(world.granted(acquire(a, 4, ALONE)).get(), 1_001);
}

#[test]
fn b19_a35_waiters_are_served_in_the_order_in_which_they_came_and_a_release_wakes_one() {
    let mut world = World::new();
    let sessions: Vec<SessionId> =
        (0..100_u64).map(|n| world.joined(session_only(&format!("w{n}"), u128::from(n) + 1))).collect();
    world.granted(acquire(sessions[0], 1, ALONE));
    for (place, session) in sessions[1..].iter().enumerate() {
        let place = u32::try_from(place).unwrap();
        assert_eq!(world.ok(acquire(*session, 1, ALONE)), Outcome::Queued(place));
    }
    for pair in sessions.windows(2) {
        let [holder, next] = pair else { unreachable!() };
        assert_eq!(world.holders(), [*holder]);
        let before: Vec<_> = world.state.sessions().map(Session::assignment).collect();
        let epoch = world.epoch_of(*holder);
        let applied = world.apply(None, vec![release(epoch, *holder)]);
        let woken: BTreeSet<SessionId> = applied
            .events
            .iter()
            .filter_map(|e| if let Event::LockOf { session, .. } = e { Some(*session) } else { None })
            .collect();
        assert_eq!(woken, BTreeSet::from([*holder, *next]));
        let after: Vec<_> = world.state.sessions().map(Session::assignment).collect();
        let changed = before.iter().zip(&after).filter(|(before, after)| before != after).count();
        assert_eq!(changed, 2, "whoever released it and the one who has it now");
    }
}

#[test]
fn a37_those_who_hold_it_together_have_one_epoch_and_whoever_wants_it_alone_is_not_overtaken() {
    let (mut world, [a, b, c, d, e]) = with_sessions();
    let first = world.granted(acquire(a, 1, TOGETHER));
    assert_eq!(
        world.granted(acquire(b, 1, TOGETHER)),
        first,
        "a fence takes neither for the other's successor"
    );
    assert_eq!(world.ok(acquire(c, 1, ALONE)), Outcome::Queued(0));
    assert_eq!(world.ok(acquire(d, 1, TOGETHER)), Outcome::Queued(1), "it would keep c out for ever");
    assert_eq!(world.ok(acquire(e, 1, TOGETHER)), Outcome::Queued(2));
    world.ok(release(first, a));
    assert_eq!(world.holders(), [b]);
    world.ok(release(first, b));
    assert_eq!(world.holders(), [c]);
    let alone = world.epoch_of(c);
    assert!(alone > first);
    world.ok(release(alone, c));
    assert_eq!(world.holders(), [d, e], "all who come next together are woken together");
    assert_eq!(world.epoch_of(d), world.epoch_of(e));
    assert!(world.epoch_of(d) > alone);
}

#[test]
fn who_does_not_wait_is_told_who_holds_it_and_joins_no_queue() {
    let (mut world, [a, b, c]) = with_sessions();
    let epoch = world.granted(try_acquire(a, ALONE));
    let refused = world.refused(try_acquire(b, ALONE));
    assert_eq!(refused, Refused::LockHeld { lock: lock("l"), by: Some(a) });
    world.ok(acquire(c, 1, ALONE));
    world.ok(release(epoch, a));
    assert_eq!(world.holders(), [c]);
    assert_eq!(world.state.session(b).unwrap().waits().len(), 0);
}

/// etcd-io/etcd#11456: the session of the waiter died, and its acquire answered with a lock that nobody held.
#[test]
fn f006_t40_a_waiter_whose_session_has_ended_is_never_granted_the_lock() {
    for ends in ["expiry", "leave", "evict"] {
        let (mut world, [a, b, c]) = with_sessions();
        let epoch = world.granted(acquire(a, 1, ALONE));
        world.ok(acquire(b, 1, ALONE));
        world.ok(acquire(c, 1, ALONE));
        match ends {
            "expiry" => world.expire(b),
            "leave" => drop(world.ok(Command::Leave { session: b })),
            _ => drop(world.ok(Command::Evict { session: b })),
        }
        world.ok(release(epoch, a));
        assert_eq!(world.holders(), [c], "{ends}");
        let why = world.refused(acquire(b, 2, ALONE));
        assert!(matches!(why, Refused::SessionEnded { session, .. } if session == b), "{why:?}");
    }
}

/// hazelcast/hazelcast#5601: an acquire that was on its way when its session was removed left a lock that nobody frees.
#[test]
fn f098_an_acquire_that_arrives_after_its_session_s_end_is_refused_and_leaves_nothing() {
    let (mut world, [a, b]) = with_sessions();
    world.granted(acquire(a, 1, ALONE));
    world.expire(b);
    world.refused(acquire(b, 1, ALONE));
    assert_eq!(world.state.lock(&lock("l")).unwrap().queue.len(), 0);
    world.expire(a);
    assert_eq!(world.state.locks().count(), 0);
}

/// etcd-io/etcd#22082: the retry of a release freed what the same session had been granted since.
#[test]
fn f007_t42_a_repeated_release_does_not_free_a_newer_grant_of_the_same_session() {
    let (mut world, [a, b]) = with_sessions();
    let first = world.granted(acquire(a, 1, ALONE));
    world.ok(release(first, a));
    let second = world.granted(acquire(a, 2, ALONE));
    world.unchanged(release(first, a));
    assert_eq!(world.epoch_of(a), second);
    world.unchanged(release(second, b));
    let above = after(second);
    assert_eq!(world.refused(release(above, a)), Refused::NoSuchLockEpoch { lock: lock("l"), epoch: above });
}

#[test]
fn t44_asking_again_is_answered_with_the_same_grant_or_the_same_place() {
    let (mut world, [a, b, c]) = with_sessions();
    let epoch = world.granted(acquire(a, 1, ALONE));
    let before = world.state.clone();
    assert_eq!(world.ok(acquire(a, 2, ALONE)), Outcome::Granted(epoch));
    world.assert_same_but_for_the_index(before);
    world.ok(acquire(b, 1, ALONE));
    world.ok(acquire(c, 1, ALONE));
    assert_eq!(world.ok(acquire(c, 2, ALONE)), Outcome::Queued(1));
    assert_eq!(world.state.lock(&lock("l")).unwrap().queue.len(), 2);
    assert_eq!(world.refused(acquire(a, 3, TOGETHER)), Refused::OtherLockMode(lock("l")));
    assert_eq!(world.refused(acquire(c, 3, TOGETHER)), Refused::OtherLockMode(lock("l")));
}

/// An acquire that was sent twice, and whose second copy arrives when the first one's grant was used and released.
#[test]
fn t43_a_request_that_was_answered_grants_nothing_a_second_time() {
    let (mut world, [a]) = with_sessions();
    let request = Some(Request::Session { session: a, number: 1, settled_below: 1 });
    let first = world.apply(request, vec![acquire(a, 1, ALONE)]).outcome.unwrap();
    let [Outcome::Granted(epoch)] = first[..] else { panic!("{first:?}") };
    world.ok(release(epoch, a));
    assert_eq!(world.apply(request, vec![acquire(a, 1, ALONE)]).outcome.unwrap(), first);
    assert_eq!(world.state.locks().count(), 0);
    let settled = Some(Request::Session { session: a, number: 2, settled_below: 2 });
    world
        .apply(settled, vec![Command::AbandonLock { lock: lock("l"), session: a, request: 9 }])
        .outcome
        .unwrap();
    let refused = world.apply(request, vec![acquire(a, 1, ALONE)]).outcome.unwrap_err();
    assert_eq!(refused.why, Refused::TooOld);
    assert_eq!(world.state.locks().count(), 0);
}

/// atomix/atomix#500: whoever gave up waiting was granted the lock later, and never released it.
#[test]
fn t41_an_abandoned_request_waits_no_longer_and_gives_back_what_it_was_granted() {
    let (mut world, [a, b, c]) = with_sessions();
    let epoch = world.granted(acquire(a, 1, ALONE));
    world.ok(acquire(b, 7, ALONE));
    world.ok(acquire(c, 1, ALONE));
    let abandon = |request| Command::AbandonLock { lock: lock("l"), session: b, request };
    world.unchanged(abandon(6));
    assert_eq!(world.ok(abandon(7)), Outcome::Done);
    world.unchanged(abandon(7));
    world.ok(release(epoch, a));
    assert_eq!(world.holders(), [c]);

    world.ok(acquire(b, 8, ALONE));
    let epoch = world.epoch_of(c);
    world.ok(release(epoch, c));
    assert_eq!(world.holders(), [b], "it was granted before it was abandoned");
    assert_eq!(world.ok(abandon(8)), Outcome::Done);
    assert_eq!(world.state.locks().count(), 0);
}

/// One who waits to have it alone may be all that keeps others from holding it together.
#[test]
fn an_abandoned_request_lets_those_behind_it_pass() {
    let (mut world, [a, b, c, d]) = with_sessions();
    world.granted(acquire(a, 1, TOGETHER));
    world.ok(acquire(b, 1, ALONE));
    world.ok(acquire(c, 1, TOGETHER));
    world.ok(acquire(d, 1, ALONE));
    world.expire(b);
    assert_eq!(world.holders(), [a, c]);
}

#[test]
fn b17_an_expired_holder_s_lock_goes_to_the_next_in_the_entry_that_ends_its_session() {
    let (mut world, [a, b]) = with_sessions();
    world.granted(acquire(a, 1, ALONE));
    world.ok(acquire(b, 1, ALONE));
    world.expire(a);
    assert_eq!(world.holders(), [b]);
    assert!(!world.state.lock(&lock("l")).unwrap().grants.iter().any(|grant| grant.session == a));
}

#[test]
fn a19_t47_the_lock_delay_follows_a_failure_and_no_release_and_the_queue_keeps_its_order() {
    let (mut world, [a, b, c]) = with_sessions();
    let first = world.granted(acquire(a, 1, delayed(secs(15))));
    world.ok(acquire(b, 1, ALONE));
    world.ok(acquire(c, 1, ALONE));
    world.expire(a);
    assert_eq!(world.holders(), []);
    let cooling = LockCooling { lease: None, then: secs(15) };
    assert_eq!(world.lock_cooling(), cooling);
    let refused = world.refused(try_acquire(c, TOGETHER));
    assert!(matches!(refused, Refused::OtherLockMode(_)), "it waits already: {refused:?}");
    let end = |epoch| Command::EndLockCooling { lock: lock("l"), epoch, session: a };
    world.unchanged(end(after(first)));
    assert_eq!(world.ok(end(first)), Outcome::Done);
    assert_eq!(world.holders(), [b]);

    let d = world.joined(session_only("d", 77));
    let second = world.epoch_of(b);
    world.ok(release(second, b));
    let third = world.epoch_of(c);
    world.ok(acquire(d, 1, delayed(secs(15))));
    world.ok(release(third, c));
    let fourth = world.epoch_of(d);
    world.ok(release(fourth, d));
    assert_eq!(world.state.locks().count(), 0, "what is released does not rest");
    world.unchanged(end(first));
}

/// Whoever left, was evicted or replaced may still believe in what it held, for as long as its lease runs.
#[test]
fn g3_a_session_that_ended_before_its_lease_leaves_its_locks_to_cool_for_it() {
    for ends in ["leave", "evict", "replace"] {
        let (mut world, [a, b]) = with_sessions();
        let epoch = world.granted(acquire(a, 1, delayed(secs(1))));
        world.ok(acquire(b, 1, ALONE));
        match ends {
            "leave" => drop(world.ok(Command::Leave { session: a })),
            "evict" => drop(world.ok(Command::Evict { session: a })),
            _ => drop(world.joined(Join { replaces: Some(a), ..session_only("w0", 99) })),
        }
        let cooling = LockCooling { lease: Some(TTL), then: secs(1) };
        assert_eq!(world.lock_cooling(), cooling, "{ends}");
        assert_eq!(world.holders(), []);
        world.ok(Command::EndLockCooling { lock: lock("l"), epoch, session: a });
        assert_eq!(world.holders(), [b]);
    }
}

#[test]
fn what_has_cooled_before_ends_nothing_that_is_held() {
    let (mut world, [a]) = with_sessions();
    let epoch = world.granted(acquire(a, 1, ALONE));
    world.unchanged(Command::EndLockCooling { lock: lock("l"), epoch, session: a });
    assert_eq!(world.holders(), [a]);
}

#[test]
fn by_fence_nobody_waits_for_a_lease_and_a_lost_connection_is_enough() {
    let (mut world, [a, b, c]) = with_sessions();
    let first = world.granted(acquire(a, 1, by_fence(Duration::ZERO)));
    world.ok(acquire(b, 1, by_fence(secs(2))));
    world.ok(acquire(c, 1, ALONE));
    let seize = |epoch, session| Command::SeizeLock { lock: lock("l"), epoch, session };
    world.unchanged(seize(after(first), a));
    assert_eq!(world.ok(seize(first, a)), Outcome::Done);
    assert_eq!(world.holders(), [b]);
    assert!(world.state.session(a).is_some(), "it lives on");
    let second = world.epoch_of(b);
    world.ok(seize(second, b));
    assert_eq!(world.lock_cooling().then, secs(2), "its delay is kept");
    world.ok(Command::EndLockCooling { lock: lock("l"), epoch: second, session: b });
    let third = world.epoch_of(c);
    world.unchanged(seize(third, c));
    assert_eq!(world.holders(), [c], "c is replaced by lease only");
}

/// The holder of a broken lock lives, and may not have heard of it: whoever is next waits for what it may believe. As soon as
/// it says that it knows, nobody waits any longer.
#[test]
fn g3_a_broken_lock_cools_for_its_holder_s_lease_or_until_it_says_that_it_knows() {
    let (mut world, [a, b, c]) = with_sessions();
    let first = world.granted(acquire(a, 1, ALONE));
    world.ok(acquire(b, 1, ALONE));
    let break_ = |epoch, at_once| Command::BreakLock { lock: lock("l"), epoch, at_once };
    world.unchanged(break_(Some(after(first)), false));
    world.ok(break_(Some(first), false));
    assert_eq!(world.lock_cooling().lease, Some(TTL));
    world.unchanged(break_(Some(first), false));
    world.ok(release(first, a));
    assert_eq!(world.holders(), [b]);

    world.ok(acquire(c, 1, ALONE));
    world.ok(break_(None, false));
    assert_eq!(world.holders(), []);
    world.ok(break_(None, true));
    assert_eq!(world.holders(), [c], "at once: nothing is waited for");
    world.ok(break_(None, true));
    assert_eq!(world.state.locks().count(), 0);
    world.unchanged(break_(None, false));
}

/// apache/curator#1121: a new session's acquire was answered because of what the process's earlier session had left.
#[test]
fn f046_what_an_earlier_session_of_the_same_worker_held_satisfies_nobody() {
    let (mut world, [a]) = with_sessions();
    let first = world.granted(acquire(a, 1, ALONE));
    let again = world.joined(Join { replaces: Some(a), ..session_only("w0", 99) });
    assert_eq!(world.ok(acquire(again, 1, ALONE)), Outcome::Queued(0));
    world.ok(Command::EndLockCooling { lock: lock("l"), epoch: first, session: a });
    assert!(world.epoch_of(again) > first);
    assert_eq!(world.state.lock(&lock("l")).unwrap().grants[0].worker, worker("w0"));
}

#[test]
fn a_session_without_keyspaces_says_how_long_its_lease_is_and_is_held_to_the_shortest() {
    let mut world = World::new();
    let none = Join { ttl: None, ..session_only("a", 1) };
    assert_eq!(world.refused(Command::Join(Box::new(none))), Refused::NoKeyspaces);
    for out in [Duration::from_millis(999), secs(601)] {
        let join = Join { ttl: Some(out), ..session_only("a", 1) };
        assert!(matches!(world.refused(Command::Join(Box::new(join))), Refused::Policy(_)));
    }
    let keyspace = world.create("orders", 1, crate::state::PolicyChange::default());
    let shorter = world.joined(Join { ttl: Some(secs(2)), ..join("b", 2, keyspace) });
    assert_eq!(world.state.session(shorter).unwrap().ttl(), secs(2));
    let longer = world.joined(Join { ttl: Some(secs(500)), ..join("c", 3, keyspace) });
    assert_eq!(
        world.state.session(longer).unwrap().ttl(),
        world.state.keyspace(keyspace).unwrap().policy().ttl()
    );
}

#[test]
fn locks_and_those_who_wait_have_bounds_and_the_error_names_them() {
    let (mut world, [a, b]) = with_sessions();
    let named = |n: usize, session, waits| Command::AcquireLock {
        lock: lock(&format!("l{n}")),
        session,
        request: n as u64 + 1,
        wish: ALONE,
        waits,
    };
    let all = (0..MAX_SESSION_LOCKS).map(|n| named(n, a, false)).collect();
    world.apply(None, all).outcome.unwrap();
    let full = world.refused(named(MAX_SESSION_LOCKS, a, false));
    assert_eq!(
        full,
        Refused::Limit {
            what: "the number of locks that a session holds or waits for",
            bound: MAX_SESSION_LOCKS as u64
        }
    );
    world.ok(named(0, b, true));
    let sessions: Vec<SessionId> = (0..MAX_LOCK_WAITERS as u64 - 1)
        .map(|n| {
            let join = session_only(&format!("w-{n}"), u128::from(n) + 1_000);
            let applied = world.state.apply(
                world.next_index(),
                &crate::state::Entry {
                    request: None,
                    proposed_unix_ms: 0,
                    commands: vec![Command::Join(Box::new(join))],
                },
            );
            match applied.outcome.unwrap()[..] {
                [Outcome::Joined(id)] => id,
                ref other => panic!("{other:?}"),
            }
        })
        .collect();
    let wait = |session| named(0, session, true);
    for session in sessions {
        let entry = crate::state::Entry { request: None, proposed_unix_ms: 0, commands: vec![wait(session)] };
        world.state.apply(world.next_index(), &entry).outcome.unwrap();
    }
    let last = world.joined(session_only("last", 9));
    let bound = MAX_LOCK_WAITERS as u64;
    let what = "the number of those who wait for a lock";
    assert_eq!(world.refused(wait(last)), Refused::Limit { what, bound });
}
