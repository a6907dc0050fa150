//! Losing the session, or the connection, or a leader.

use super::*;
use crate::ErrorKind;
use ringfence_api::Failure;
use ringfence_api::convert::SessionEnd;
use std::time::Duration;

#[tokio::test]
async fn f024_f046_after_a_lost_session_nothing_is_had_again_by_itself() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    let guard = soon(locks.lock("nightly").acquire()).await.unwrap();
    fake.occupy("other");
    let waiting = waiter(&locks, "other");
    fake.queued("other").await;
    fake.end_session(SessionEnd::Expired);
    assert_eq!(soon(guard.lost()).await.why(), Why::SessionEnded);
    let gone = soon(waiting).await.unwrap().unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::SessionEnded, "{gone}");
    assert!(gone.to_string().contains("ask anew"), "{gone}");
    fake.until("it has joined anew", |world| world.joins.len() == 2 && world.attached == 2).await;
    let asked = fake.world().acquires.len();
    // The next session finds the lock under the name of the dead one, and is not granted it by that.
    let leftover = fake.occupy("nightly");
    let busy = soon(locks.lock("nightly").try_acquire()).await.unwrap_err();
    assert_eq!(busy.busy().unwrap().holder().unwrap().epoch.get(), leftover);
    assert_eq!(fake.world().acquires.len(), asked + 1, "only what was asked anew was asked");
    assert!(!guard.is_held() && guard.stamp().is_err());
    fake.vacate("nightly");
    let again = soon(locks.lock("nightly").acquire()).await.unwrap();
    assert!(again.epoch() > guard.epoch() && again.session() != guard.session());
    // The old guard says nothing about the new session.
    let lost = soon(guard.release()).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::NotHeld);
    assert!(again.is_held());
    assert!(fake.world().returned.is_empty(), "{:?}", fake.world().returned);
}

#[tokio::test]
async fn f006_f098_a_request_that_is_under_way_when_its_session_ends_is_granted_to_nobody() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    fake.world().acquires_held = true;
    let waiting = waiter(&locks, "nightly");
    fake.until("it was asked", |world| !world.acquires.is_empty()).await;
    fake.end_session(SessionEnd::Evicted);
    let gone = soon(waiting).await.unwrap().unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::SessionEnded, "{gone}");
    fake.world().acquires_held = false;
    fake.until("it has joined anew", |world| world.joins.len() == 2).await;
    // A number of the dead session means nothing in this one.
    let guard = soon(locks.lock("other").acquire()).await.unwrap();
    assert_eq!(fake.world().acquires.last().unwrap().number, 1);
    drop(guard);
}

#[tokio::test]
async fn whoever_waits_when_the_lease_runs_out_is_told_and_what_was_held_is_given_back() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    let guard = soon(locks.lock("nightly").acquire()).await.unwrap();
    fake.occupy("other");
    let waiting = waiter(&locks, "other");
    fake.queued("other").await;
    // Renewals are not answered any more; everything else is.
    fake.world().answering = false;
    assert_eq!(soon(guard.lost()).await.why(), Why::Expired);
    assert_eq!(soon(waiting).await.unwrap().unwrap_err().kind(), ErrorKind::SessionEnded);
    // Nobody waits for the lease: the session that was lost gives back what it had, and leaves.
    fake.returned("release nightly@1").await;
    fake.until("it has left", |world| world.left.len() == 1).await;
    fake.world().answering = true;
    fake.until("it has joined anew", |world| world.joins.len() == 2).await;
}

#[tokio::test]
async fn a_request_that_waits_survives_a_reconnect() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    let held = soon(locks.lock("held").acquire()).await.unwrap();
    fake.occupy("nightly");
    let waiting = waiter(&locks, "nightly");
    fake.queued("nightly").await;
    fake.close_streams(Some(Failure::no_leader()));
    fake.until("it is back", |world| world.attached == 2).await;
    fake.vacate("nightly");
    let guard = soon(waiting).await.unwrap().unwrap();
    assert!(guard.is_held() && held.is_held());
    // And a lock that was granted while the stream was away is found in the picture.
    fake.occupy("second");
    let waiting = waiter(&locks, "second");
    fake.queued("second").await;
    fake.world().silent_about_locks = true;
    fake.vacate("second");
    fake.world().silent_about_locks = false;
    fake.close_streams(None);
    assert!(soon(waiting).await.unwrap().unwrap().is_held());
}

#[tokio::test]
async fn whoever_asks_between_two_sessions_is_answered_by_the_next() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    fake.world().join_answers_lost = true;
    fake.end_session(SessionEnd::Expired);
    fake.until("it tries to join", |world| world.joins.len() >= 2).await;
    let waiting = waiter(&locks, "nightly");
    let none = soon(locks.lock("other").acquire_within(Duration::from_millis(100))).await.unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Unreachable, "{none}");
    fake.world().join_answers_lost = false;
    assert!(soon(waiting).await.unwrap().unwrap().is_held());
}

#[tokio::test]
async fn a_session_that_was_closed_takes_nothing_more_and_ends_what_it_had() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    let (first, second) = (locks.clone(), locks.clone());
    let guard = soon(first.lock("nightly").acquire()).await.unwrap();
    fake.occupy("other");
    let waiting = waiter(&locks, "other");
    fake.queued("other").await;
    soon(locks.close()).await.unwrap();
    assert_eq!(guard.stamp().unwrap_err().why(), Why::Released);
    assert_eq!(soon(waiting).await.unwrap().unwrap_err().kind(), ErrorKind::SessionEnded);
    let late = soon(second.lock("late").acquire()).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::SessionEnded);
    let world = fake.world();
    assert_eq!((world.returned.len(), world.left.len()), (2, 1), "{:?}", world.returned);
}

#[tokio::test]
async fn a_coordinator_that_is_gone_for_good_ends_in_a_loss_not_in_a_hang() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    let guard = soon(locks.lock("nightly").acquire()).await.unwrap();
    let waiting = waiter(&locks, "nightly");
    fake.stop();
    assert_eq!(soon(guard.lost()).await.why(), Why::Expired);
    assert_eq!(soon(waiting).await.unwrap().unwrap_err().kind(), ErrorKind::SessionEnded);
    let closed = soon(locks.close()).await;
    assert!(closed.is_ok() || closed.unwrap_err().kind() == ErrorKind::NotReleased);
    drop(guard);
}

/// The guard of a lock that was taken is out there, and nobody has to drop it first.
#[tokio::test]
async fn who_closes_does_not_wait_for_the_guard_of_a_lock_that_was_taken() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    let guard = soon(locks.lock("nightly").acquire()).await.unwrap();
    let epoch = fake.break_lock("nightly");
    soon(guard.lost()).await;
    soon(locks.close()).await.unwrap();
    assert!(fake.world().returned.contains(&format!("release nightly@{epoch}")));
    drop(guard);
}
