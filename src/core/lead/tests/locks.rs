//! Lost locks: what a leader waits for, on its own clock.

use super::world::{TTL, World, at, ms, policy};
use crate::ids::{Epoch, LockName, SessionId};
use crate::state::{Command, LockMode, LockWish, Takeover};
use std::time::Duration;

const GRACE: u64 = 200;
const DELAY: u64 = 3_000;

fn nightly() -> LockName {
    LockName::new("nightly").unwrap()
}

fn wish(takeover: Takeover, delay: u64, alert: Option<u64>) -> LockWish {
    LockWish::new(LockMode::Exclusive).with(takeover, ms(delay), alert.map(ms)).unwrap()
}

/// Three workers with nothing but a lock: `a` holds it, and `b` waits.
fn held(takeover: Takeover, delay: u64) -> World {
    let mut world = World::of(1, &["a", "b", "c"], policy());
    world.pass(TTL);
    acquire(&mut world, "a", wish(takeover, delay, None));
    acquire(&mut world, "b", wish(takeover, 0, None));
    world
}

fn acquire(world: &mut World, name: &str, wish: LockWish) {
    let session = world.session(name);
    let acquire = Command::AcquireLock { lock: nightly(), session, request: 1, wish, waits: true };
    world.apply(vec![acquire]).outcome.unwrap();
}

fn holder(world: &World) -> Option<(SessionId, Epoch)> {
    world
        .state
        .lock(&nightly())
        .and_then(|lock| lock.holders().next())
        .map(|grant| (grant.session, grant.epoch))
}

fn is_held_by(world: &World, name: &str) -> bool {
    holder(world).is_some_and(|(session, _)| session == world.session(name))
}

/// How long until the lock is held by this worker.
fn until_held(world: &mut World, name: &str) -> u64 {
    let began = world.now;
    while !is_held_by(world, name) {
        assert!(world.now - began < 10 * TTL, "{name} never gets it");
        world.pass(50);
    }
    world.now - began
}

#[test]
fn g4_a_killed_holder_s_lock_is_held_by_the_next_when_its_lease_has_run_out() {
    let mut world = held(Takeover::Lease, 0);
    world.kill("a");
    let took = until_held(&mut world, "b");
    assert!((TTL - TTL / 6..=TTL + 100).contains(&took), "{took}");
}

#[test]
fn by_fence_a_killed_holder_s_lock_is_held_by_the_next_after_the_grace() {
    let mut world = held(Takeover::Fence, 0);
    world.kill("a");
    assert_eq!(until_held(&mut world, "b"), GRACE);
    assert!(world.lives("a"));
}

#[test]
fn a19_t39_a_lock_delay_is_counted_once_and_in_full_by_each_leader() {
    let mut world = held(Takeover::Lease, DELAY);
    world.kill("a");
    while world.lives("a") {
        world.pass(50);
    }
    assert_eq!(holder(&world), None);
    world.pass(DELAY - 100);
    // Something else about the lock does not begin it anew.
    acquire(&mut world, "c", wish(Takeover::Lease, 0, None));
    let lock = world.state.lock(&nightly()).unwrap().clone();
    world.leader.observe(&[crate::state::Event::Lock(lock.name)], at(world.now), &world.state);
    assert_eq!(until_held(&mut world, "b"), 100);

    let mut world = held(Takeover::Lease, DELAY);
    world.kill("a");
    while world.lives("a") {
        world.pass(50);
    }
    world.pass(DELAY - 100);
    world.elect(300);
    assert_eq!(until_held(&mut world, "b"), DELAY, "a new leader does not know how long it has waited");
}

/// The lease of whoever was evicted may run on; what its leader promised last is known, and a new leader takes a whole TTL.
#[test]
fn g3_an_evicted_holder_s_lease_is_waited_for() {
    let mut world = held(Takeover::Lease, 0);
    let session = world.session("a");
    world.apply(vec![Command::Evict { session }]);
    let took = until_held(&mut world, "b");
    assert!((TTL - TTL / 6..=TTL).contains(&took), "{took}");

    let mut world = held(Takeover::Lease, 0);
    let session = world.session("a");
    world.apply(vec![Command::Evict { session }]);
    world.elect(300);
    assert_eq!(until_held(&mut world, "b"), TTL);
}

/// The holder lives and renews all the time: what it was promised before the lock was broken lasts a TTL, and nothing it is
/// promised since speaks of the lock.
#[test]
fn g3_a_broken_lock_is_granted_a_ttl_later_to_the_next() {
    let mut world = held(Takeover::Lease, 0);
    world.apply(vec![Command::BreakLock { lock: nightly(), epoch: None, at_once: false }]);
    assert_eq!(until_held(&mut world, "b"), TTL);
}

#[test]
fn c27_a_lock_that_is_held_too_long_is_told_of_once() {
    let mut world = World::of(1, &["a", "b"], policy());
    acquire(&mut world, "a", wish(Takeover::Lease, 0, Some(1_000)));
    let mut told = Vec::new();
    for _ in 0..40 {
        world.pass(50);
        let (now, state) = (at(world.now), &world.state);
        told.extend(world.leader.locks.held_too_long(now, state));
    }
    let [told] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        (&told.lock, told.grant.session, told.held),
        (&nightly(), world.session("a"), Duration::from_secs(1))
    );
    let (session, epoch) = holder(&world).unwrap();
    world.apply(vec![Command::ReleaseLock { lock: nightly(), epoch, session }]);
    acquire(&mut world, "b", wish(Takeover::Lease, 0, None));
    world.pass(2_000);
    let (now, state) = (at(world.now), &world.state);
    assert_eq!(world.leader.locks.held_too_long(now, state), []);
}
