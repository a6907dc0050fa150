//! Asking for locks: retries, those who wait no longer, and the order in one process.

use super::*;
use crate::ErrorKind;
use ringfence_api::{Failure, v1};
use std::time::Duration;
use tonic::Status;

#[tokio::test]
async fn t43_t44_an_acquire_whose_answer_was_lost_is_repeated_under_its_number_and_granted_once() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    fake.world().acquire_answer_lost = true;
    let guard = soon(locks.lock("nightly").acquire()).await.unwrap();
    assert_eq!(guard.epoch().get(), 1);
    let request = fake.world().joins[0].clone();
    assert_eq!((request.keyspaces.len(), request.ttl_ms), (0, 1_000));
    // The picture may be there before the answer is, and then nobody asks any more.
    assert!(fake.world().acquires.iter().all(|asked| asked.number == 1));
    assert_eq!(
        (guard.token().short().to_string().as_str(), fake.world().lock_epoch),
        ("@locks/nightly@1", 1)
    );
    soon(guard.release()).await.unwrap();
    assert_eq!(fake.world().returned, ["release nightly@1"]);
    soon(locks.close()).await.unwrap();
    assert_eq!(fake.world().left.len(), 1);
}

#[tokio::test]
async fn t43_a_request_that_was_refused_for_now_is_made_again_under_the_same_number() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    let failures = [Failure::unavailable("it starts"), Failure::unknown_outcome(), Failure::no_leader()];
    fake.world().lock_failures = failures.into_iter().map(Status::from).collect();
    let guard = soon(locks.lock("nightly").acquire()).await.unwrap();
    let asked: Vec<_> = fake.world().acquires.iter().map(|asked| asked.number).collect();
    assert_eq!(asked, [1, 1, 1, 1]);
    drop(guard);
    fake.returned("release nightly@1").await;
}

#[tokio::test]
async fn t41_whoever_waits_no_longer_leaves_the_queue() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    fake.occupy("nightly");
    let waiting = waiter(&locks, "nightly");
    fake.queued("nightly").await;
    waiting.abort();
    fake.returned("abandon nightly#1").await;
    fake.vacate("nightly");
    assert_eq!(fake.lock_of("nightly"), None);
    // And whoever asks next has a number and a place of their own.
    let guard = soon(locks.lock("nightly").acquire()).await.unwrap();
    assert_eq!(fake.world().acquires.last().unwrap().number, 2);
    drop(guard);
}

#[tokio::test]
async fn t41_f098_a_grant_that_nobody_wants_any_more_is_given_back_at_once() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    // The request is under way and not answered when it is given up: it takes effect all the same.
    fake.world().acquires_held = true;
    let waiting = waiter(&locks, "nightly");
    fake.until("it was asked", |world| !world.acquires.is_empty()).await;
    waiting.abort();
    fake.returned("abandon nightly#1").await;
    let news = fake.world().next_revision();
    fake.push_grant("nightly", 1, 9, news);
    fake.until("it was given back", |world| {
        world.returned.iter().filter(|one| *one == "abandon nightly#1").count() == 2
    })
    .await;
    // Nobody in the process has had it, and the next one is granted another.
    fake.world().acquires_held = false;
    fake.world().lock_epoch = 9;
    let guard = soon(locks.lock("nightly").acquire()).await.unwrap();
    assert_eq!(guard.epoch().get(), 10);
    drop(guard);
}

#[tokio::test]
async fn t41_a_late_request_that_took_the_place_of_the_next_one_costs_it_nothing() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    fake.world().acquires_held = true;
    let first = waiter(&locks, "nightly");
    fake.until("it was asked", |world| !world.acquires.is_empty()).await;
    first.abort();
    fake.returned("abandon nightly#1").await;
    let second = waiter(&locks, "nightly");
    fake.until("the next one asks", |world| world.acquires.last().is_some_and(|asked| asked.number == 2))
        .await;
    // The first request arrives only now: the session has the lock by it, and the second is answered so.
    let news = {
        let mut world = fake.world();
        world.acquires_held = false;
        world.lock_epoch = 5;
        world.next_revision()
    };
    fake.push_grant("nightly", 1, 5, news);
    let guard = soon(second).await.unwrap().unwrap();
    assert!(guard.epoch().get() > 5 && guard.is_held());
    drop(guard);
}

#[tokio::test]
async fn t44_two_tasks_of_one_process_exclude_each_other_in_the_order_in_which_they_asked() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    let first = soon(locks.lock("nightly").acquire()).await.unwrap();
    let busy = soon(locks.lock("nightly").try_acquire()).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    let held = busy.busy().unwrap();
    assert!(
        held.is_ours()
            && held.holder().is_some_and(|by| by.worker.as_str() == "l1" && by.epoch == first.epoch())
    );
    let (said, mut order) = tokio::sync::mpsc::unbounded_channel();
    let mut others = Vec::new();
    for turn in 0..5 {
        let (locks, said) = (locks.clone(), said.clone());
        let mut asking = Box::pin(async move { locks.lock("nightly").acquire().await });
        // Polled once: it has asked, and the next one comes after it.
        assert!(futures_util::poll!(&mut asking).is_pending());
        others.push(tokio::spawn(async move {
            let guard = asking.await.unwrap();
            said.send((turn, guard.epoch().get())).unwrap();
        }));
    }
    assert_eq!(fake.world().acquires.len(), 1, "the process asks once at a time");
    drop(first);
    for turn in 0..5 {
        assert_eq!(soon(order.recv()).await.unwrap(), (turn, turn + 2));
    }
    assert_eq!(fake.world().acquires.len(), 6);
}

#[tokio::test]
async fn those_who_share_a_lock_share_the_sessions_grant_and_the_last_gives_it_back() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    let first = soon(locks.lock("table").shared().acquire()).await.unwrap();
    let second = soon(locks.lock("table").shared().try_acquire()).await.unwrap();
    assert_eq!((first.epoch(), fake.world().acquires.len()), (second.epoch(), 1));
    // On other terms it is another grant, and alone another too: both wait.
    let mut alone = Box::pin(locks.lock("table").acquire());
    assert!(futures_util::poll!(&mut alone).is_pending());
    let late = soon(locks.lock("table").shared().try_acquire()).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Busy, "somebody waits for it alone");
    soon(first.release()).await.unwrap();
    assert!(second.is_held() && fake.world().returned.is_empty());
    drop(second);
    fake.returned("abandon table#1").await;
    let alone = soon(alone).await.unwrap();
    assert!(alone.is_held());
    soon(alone.release()).await.unwrap();
}

/// The epoch of a shared lock is that of whoever has it already, so a session may be granted the same twice.
#[tokio::test]
async fn a_shared_lock_that_is_given_back_and_had_again_under_its_epoch_is_held() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    for number in 1..5 {
        let guard = soon(locks.lock("table").shared().acquire()).await.unwrap();
        assert_eq!((guard.epoch().get(), guard.is_held()), (1, true));
        drop(guard);
        fake.returned(&format!("abandon table#{number}")).await;
    }
}

#[tokio::test]
async fn a_try_names_the_holder_and_a_wait_that_ran_out_says_what_it_waited_behind() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    let epoch = fake.occupy("nightly");
    let busy = soon(locks.lock("nightly").try_acquire()).await.unwrap_err();
    assert!(busy.kind() == ErrorKind::Busy && busy.is_retryable(), "{busy}");
    let holder = busy.busy().and_then(|busy| busy.holder()).unwrap();
    assert_eq!((holder.worker.as_str(), holder.epoch.get()), ("somebody", epoch));
    let mut waiting = Box::pin(locks.lock("nightly").acquire_within(Duration::from_millis(300)));
    let queued = fake.queued("nightly");
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("the wait is longer than that"),
        () = queued => {}
    }
    let busy = soon(waiting).await.unwrap_err();
    assert_eq!((busy.kind(), busy.busy().unwrap().behind()), (ErrorKind::Busy, Some(0)), "{busy}");
    fake.returned("abandon nightly#2").await;
}

#[tokio::test]
async fn a_lock_that_was_granted_and_taken_again_unseen_is_asked_for_anew() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    fake.world().silent_about_locks = true;
    let waiting = waiter(&locks, "nightly");
    fake.until("it has it", |world| world.locks.get("nightly").is_some_and(|lock| lock.mine.is_some())).await;
    fake.break_lock("nightly");
    fake.world().silent_about_locks = false;
    // Something else changes, and the session hears of that.
    let revision = fake.world().next_revision();
    let news = v1::Assignment { revision, ..Default::default() };
    fake.push(v1::attach_response::Message::Assignment(news));
    let guard = soon(waiting).await.unwrap().unwrap();
    assert_eq!((guard.epoch().get(), fake.world().acquires.len()), (2, 2));
    drop(guard);
}

#[tokio::test]
async fn what_is_out_of_bounds_is_said_before_anything_is_asked() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    for (request, part) in [
        (locks.lock("Nightly"), "Nightly"),
        (locks.lock("nightly").lock_delay(Duration::from_secs(61)), "lock_delay"),
        (locks.lock("nightly").alert_after(Duration::ZERO), "alert_after"),
    ] {
        let error = soon(request.acquire()).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(part), "{error}");
    }
    assert!(fake.world().acquires.is_empty());
    let error = Locks::builder("nowhere").connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = builder(&fake).id("No").connect().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

/// The coordinator keeps 64 answers a session.
#[tokio::test]
async fn t43_no_more_numbers_are_without_an_answer_than_the_coordinator_keeps() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    fake.world().acquires_held = true;
    let names: Vec<String> = (0..100).map(|n| format!("lock-{n}")).collect();
    let mut waiting = Vec::new();
    for name in &names {
        let mut asking = Box::pin(locks.lock(name).acquire());
        assert!(futures_util::poll!(&mut asking).is_pending());
        waiting.push(asking);
    }
    let numbers = |world: &super::super::fake::World| {
        world.acquires.iter().map(|asked| asked.number).collect::<std::collections::BTreeSet<_>>()
    };
    fake.until("64 were asked", |world| numbers(world).len() == 64).await;
    assert_eq!(numbers(&fake.world()).last(), Some(&64));
    fake.world().acquires_held = false;
    // Those that were asked are asked again, for the answer did not come; as they are answered the others follow.
    let mut guards = Vec::new();
    for asking in waiting {
        guards.push(soon(asking).await.unwrap());
    }
    let world = fake.world();
    assert_eq!(numbers(&world).len(), 100);
    assert!(world.acquires.iter().all(|asked| asked.number < asked.settled_below + 64));
}

/// Numbers become free by giving up, and then whoever waits for one is to be asked for.
#[tokio::test]
async fn a_request_that_waits_for_a_number_is_made_when_those_before_it_are_given_up() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    fake.world().acquires_held = true;
    let request = |name: String| tokio::spawn(locks.lock(&name).acquire());
    let first: Vec<_> = (0..64).map(|n| request(format!("l{n}"))).collect();
    fake.until("all numbers are used", |world| world.acquires.len() == 64).await;
    // Asked for before the others are given up: what is wanted of locks is heard in order.
    let mut last = Box::pin(locks.lock("last").acquire());
    tokio::select! {
        biased;
        _ = &mut last => panic!("there is no number for it"),
        () = std::future::ready(()) => {}
    }
    first.iter().for_each(tokio::task::JoinHandle::abort);
    fake.until("it is asked for", |world| world.acquires.len() == 65).await;
    fake.world().acquires_held = false;
    drop(soon(last).await.unwrap());
}
