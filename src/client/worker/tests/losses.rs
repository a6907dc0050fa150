//! What is a loss, what is none, and what comes after one.

use super::*;
use crate::clock::Clock;
use crate::error::ErrorKind;
use crate::ownership::Why;
use ringfence_api::Failure;
use ringfence_api::convert::{NodeAddress, SessionEnd};
use ringfence_api::v1::{self, attach_response::Message};
use ringfence_core::ids::NodeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

#[tokio::test]
async fn f026_every_way_a_stream_can_end_is_a_reconnect() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    let this_node = fake.url.trim_start_matches("http://").to_owned();
    let leader = NodeAddress { node: NodeId::new(2).unwrap(), address: this_node };
    for why in [
        None,
        Some(Failure::unavailable("stopping")),
        Some(Failure::no_leader()),
        Some(Failure::not_leader(Some(leader))),
        Some(Failure::refused("something new")),
    ] {
        let attached = fake.world().attached;
        fake.close_streams(why);
        fake.until("attached again", |world| world.attached > attached).await;
    }
    let renewals = fake.world().renewals;
    fake.until("renewed", |world| world.renewals > renewals).await;
    assert!(ownership.is_valid() && !ownership.is_revoked());
    given.nothing_for(Duration::from_millis(20)).await;
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn f022_an_owner_keeps_its_partition_for_many_ttls_through_failures() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    for _ in 0..3 {
        // A renewal goes unanswered, as in an election, and then all is well again.
        let renewals = fake.world().renewals;
        fake.world().answering = false;
        fake.until("a renewal is lost", |world| world.renewals > renewals).await;
        fake.world().answering = true;
        let renewals = fake.world().renewals;
        fake.until("renewed for a ttl", |world| world.renewals >= renewals + 6).await;
        assert!(ownership.is_valid());
    }
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn f026_a_session_that_ended_is_lost_once_and_followed_by_a_new_one() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let first = given.next().await;
    fake.end_session(SessionEnd::Expired);
    assert_eq!(first.lost().await.why(), Why::SessionEnded);
    assert_eq!(first.stamp().unwrap_err().why(), Why::SessionEnded);

    fake.until("a new session", |world| world.attached == 2).await;
    {
        let world = fake.world();
        let (old, new) = (&world.joins[0], &world.joins[1]);
        assert!(!new.replace, "a rejoin never replaces a live session");
        assert!(old.nonce != new.nonce && old.secret_sha256 != new.secret_sha256);
        assert_eq!(new.cluster, "test");
        assert!(world.left.is_empty(), "a session that ended is not left");
    }
    fake.grant(3);
    let second = given.next().await;
    assert_eq!((second.epoch().get(), second.session() == first.session()), (2, false));
    // The new session has renewals of its own.
    let renewals = fake.world().renewals;
    fake.until("renewed for two ttls", |world| world.renewals > renewals + 12).await;
    assert!(second.is_valid() && !first.is_valid());
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn f010_the_local_deadline_fires_when_nothing_is_heard_and_no_error_arrives() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = stubborn();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    let session = fake.session();
    fake.world().answering = false;
    assert_eq!(ownership.lost().await.why(), Why::Expired);
    assert_eq!(fake.session(), session, "nobody but the worker itself has ended anything");
    assert!(fake.world().attached > 1, "a silent connection was given up and another tried");
    assert!(ownership.read(|| 1).is_err());

    // The session lives on there: what was held is released, since its task has ended, and the session is left.
    fake.world().answering = true;
    fake.until("a new session", |world| world.joins.len() == 2).await;
    assert_eq!(fake.world().said("released 3@1"), 1);
    assert_eq!(Some(fake.world().left[0]), session);
    fake.grant(3);
    assert_eq!(given.next().await.epoch().get(), 2);
    drop(worker);
}

#[tokio::test]
async fn f036_f016_after_a_suspend_the_very_next_call_refuses() {
    let fake = Fake::start(TTL).await;
    let shift = Arc::new(AtomicU64::new(0));
    let clock = Clock::Shifted(Arc::clone(&shift));
    let (owner, mut given) = polite();
    let worker = worker(&fake).clock(clock.clone()).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    assert!(ownership.read(|| "v1").is_ok());
    // The monotonic clock, and with it every timer, has not moved.
    clock.advance(Duration::from_secs(600));
    assert_eq!(ownership.read(|| "v1").unwrap_err().why(), Why::Expired);
    assert_eq!(ownership.lost().await.why(), Why::Expired);
    fake.until("a new session", |world| world.joins.len() == 2).await;
    drop(worker);
}

#[tokio::test]
async fn f053_away_and_back_is_a_loss_and_a_new_ownership() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let first = given.next().await;
    let begun = first.stamp().unwrap();
    fake.away_and_back(3);
    let second = given.next().await;
    assert_eq!(first.lost().await.why(), Why::Taken);
    assert_eq!((begun.epoch().get(), second.epoch().get()), (1, 3));
    assert!(first.stamp().is_err() && second.stamp().is_ok());
    worker.leave().await.unwrap();
}

/// A loop that nobody has told goes on asking. It is told by whatever it asks first, and the coordinator hears none of it.
#[tokio::test]
async fn f045_f049_a_loop_that_goes_on_after_the_loss_is_told_each_time_and_costs_the_coordinator_nothing() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = stubborn();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    fake.grant(4);
    let (lost, kept) = (given.next().await, given.next().await);
    let (lost, kept) = if lost.partition().get() == 3 { (lost, kept) } else { (kept, lost) };
    fake.take(3);
    assert_eq!(lost.lost().await.why(), Why::Taken);
    let asked = |world: &fake::World| (world.said.len(), world.joins.len(), world.attached);
    let before = asked(&fake.world());
    let loops = (0..4).map(|_| {
        let lost = lost.clone();
        tokio::spawn(async move {
            for _ in 0..1_000 {
                assert_eq!(lost.ready().await.unwrap_err().why(), Why::Taken);
                assert_eq!(lost.stamp().unwrap_err().why(), Why::Taken);
                assert_eq!(lost.guard().map(drop).unwrap_err().why(), Why::Taken);
                assert_eq!(lost.until_revoked(tokio::task::yield_now()).await, None, "no new work");
            }
        })
    });
    for looped in futures_util::future::join_all(loops).await {
        looped.unwrap();
    }
    let renewals = fake.world().renewals;
    fake.until("renewed", |world| world.renewals > renewals + 1).await;
    assert_eq!(asked(&fake.world()), before);
    assert!(kept.is_valid());
    drop(worker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f044_f052_two_tasks_of_one_partition_never_run_at_once() {
    let fake = Fake::start(TTL).await;
    let running = Arc::new(AtomicUsize::new(0));
    let (give, given) = mpsc::unbounded_channel();
    let owner = {
        let running = Arc::clone(&running);
        move |ownership: Ownership| {
            let (running, give) = (Arc::clone(&running), give.clone());
            async move {
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0);
                let _ = give.send(ownership.clone());
                if ownership.epoch().get() == 1 {
                    // A store call that blocks and knows no cancellation.
                    std::thread::sleep(TTL / 2);
                } else {
                    ownership.revoked().await;
                }
                running.fetch_sub(1, Ordering::SeqCst);
                Ok::<(), Infallible>(())
            }
        }
    };
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let mut given = Given(given);
    let first = given.next().await;
    fake.away_and_back(3);
    assert_eq!(first.lost().await.why(), Why::Taken);
    assert_eq!(running.load(Ordering::SeqCst), 1, "the first is stuck, and the second waits");
    let second = given.next().await;
    assert_eq!(second.epoch().get(), 3);
    assert!(second.is_valid() && !first.is_valid());
    worker.leave().await.unwrap();
    let world = fake.world();
    assert_eq!(
        world.said("released 3@1") + world.said("returned 3@1"),
        0,
        "what was taken is not given back"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f044_a_partition_whose_earlier_task_is_stuck_goes_to_another_worker() {
    let fake = Fake::start(TTL).await;
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(std::sync::Mutex::new(blocked));
    let (give, given) = mpsc::unbounded_channel();
    let owner = move |ownership: Ownership| {
        let (give, blocked) = (give.clone(), Arc::clone(&blocked));
        async move {
            let _ = give.send(ownership);
            let _ = blocked.lock().unwrap().recv();
            Ok::<(), Infallible>(())
        }
    };
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    Given(given).next().await;
    fake.away_and_back(3);
    fake.heard("failed (the task of epoch 1 has not ended on this worker) 3@3").await;
    drop(unblock);
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn f065_nothing_starts_before_a_renewal_is_acknowledged() {
    let fake = Fake::start(TTL).await;
    fake.world().answering = false;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.until("attached", |world| world.attached == 1).await;
    fake.grant(3);
    fake.until("asked in vain", |world| world.renewals >= 3).await;
    given.nothing_for(Duration::from_millis(20)).await;
    fake.world().answering = true;
    assert!(given.next().await.is_valid());
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn p03_an_acknowledgement_that_names_what_was_not_told_extends_nothing() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    // From now on the coordinator forgets to say what it acknowledges.
    fake.world().answering = false;
    for number in 1..40 {
        let ahead = v1::Acknowledgement { number, revision: 1_000, drains: Vec::new(), measure: None };
        fake.push(Message::Acknowledgement(ahead));
        if timeout(TTL / 10, ownership.lost()).await.is_ok() {
            break;
        }
    }
    assert_eq!(ownership.stamp().unwrap_err().why(), Why::Expired);
    drop(worker);
}

#[tokio::test]
async fn f035_a_message_that_makes_no_sense_costs_a_connection_and_no_partition() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    let held = vec![v1::Held { keyspace: "nobody".to_owned(), epoch: 1, ..Default::default() }];
    fake.push(Message::Assignment(v1::Assignment { revision: 50, held, ..Default::default() }));
    fake.until("attached again", |world| world.attached == 2).await;
    assert!(ownership.is_valid());
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn by_fence_without_a_connection_it_pauses_and_goes_on_when_confirmed() {
    let fake = Fake::start(Duration::from_secs(6)).await;
    fake.world().takeover = v1::Takeover::Fence;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    fake.world().answering = false;
    fake.close_streams(None);
    let paused = async {
        loop {
            match ownership.stamp() {
                Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(pause) => return pause,
            }
        }
    };
    let pause = timeout(PATIENCE, paused).await.unwrap();
    assert!(pause.why() == Why::Disconnected && !pause.is_final());
    fake.world().answering = true;
    let resumed = async {
        while !ownership.is_valid() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, resumed).await.unwrap();
    assert_eq!(ownership.epoch().get(), 1);
    worker.leave().await.unwrap();
}

/// An owner that passes on the error it was given is no poisonous partition: it would wait for its next owner longer and
/// longer, with every connection that broke.
#[tokio::test]
async fn by_fence_an_owner_that_ends_because_the_connection_is_gone_has_not_failed() {
    let fake = Fake::start(Duration::from_secs(6)).await;
    fake.world().takeover = v1::Takeover::Fence;
    let owner = async |partition: Ownership| -> Result<(), crate::NotOwner> {
        partition.ready().await?;
        loop {
            partition.stamp()?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    fake.heard("ready 3@1").await;
    fake.world().answering = false;
    fake.close_streams(None);
    let gone = async {
        while !worker.owned().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
    fake.world().answering = true;
    fake.heard("released 3@1").await;
    worker.leave().await.unwrap();
}

/// Neither has one that just returns, since it cannot stamp any more.
#[tokio::test]
async fn by_fence_an_owner_that_returns_because_the_connection_is_gone_has_not_failed() {
    let fake = Fake::start(Duration::from_secs(6)).await;
    fake.world().takeover = v1::Takeover::Fence;
    let owner = async |partition: Ownership| -> Result<(), crate::NotOwner> {
        partition.ready().await?;
        while partition.stamp().is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    fake.heard("ready 3@1").await;
    fake.world().answering = false;
    fake.close_streams(None);
    let gone = async {
        while !worker.owned().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
    fake.world().answering = true;
    fake.heard("released 3@1").await;
    worker.leave().await.unwrap();
}

/// What fails after the pause is over has failed.
#[tokio::test]
async fn by_fence_an_owner_that_fails_after_a_pause_has_failed() {
    let fake = Fake::start(Duration::from_secs(6)).await;
    fake.world().takeover = v1::Takeover::Fence;
    let paused = Arc::new(tokio::sync::Notify::new());
    let told = Arc::clone(&paused);
    let owner = move |partition: Ownership| {
        let told = Arc::clone(&told);
        async move {
            partition.ready().await.map_err(|_| "not ready")?;
            let mut paused = false;
            loop {
                match partition.stamp() {
                    Ok(_) if paused => return Err("disk on fire"),
                    Ok(_) => {}
                    Err(pause) if pause.is_final() => return Err("lost"),
                    Err(_) => {
                        paused = true;
                        told.notify_one();
                    }
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    fake.heard("ready 3@1").await;
    fake.world().answering = false;
    fake.close_streams(None);
    timeout(PATIENCE, paused.notified()).await.unwrap();
    fake.world().answering = true;
    fake.heard("failed (disk on fire) 3@1").await;
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn a_changed_takeover_counts_from_the_next_session() {
    let fake = Fake::start(Duration::from_secs(6)).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let before = given.next().await;
    fake.world().takeover = v1::Takeover::Fence;
    fake.world().answering = false;
    fake.close_streams(None);
    // Five times the grace of a keyspace that is taken over by fence.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(before.stamp().is_ok(), "it goes by the rule that its session joined with");
    fake.world().answering = true;
    fake.end_session(SessionEnd::Expired);
    assert_eq!(before.lost().await.why(), Why::SessionEnded);
    fake.until("a new session", |world| world.joins.len() == 2).await;
    fake.grant(3);
    let after = given.next().await;
    fake.world().answering = false;
    fake.close_streams(None);
    let paused = async {
        while after.stamp().is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(3), paused).await.expect("the new session goes by the new rule");
    drop(worker);
}

#[tokio::test]
async fn a_worker_that_joins_anew_while_its_keyspace_is_deleted_ends_and_says_so() {
    let fake = Fake::start(TTL).await;
    let worker = worker(&fake).own("orders", polite().0).join().await.unwrap();
    fake.until("attached", |world| world.attached == 1).await;
    fake.world().missing = true;
    fake.end_session(SessionEnd::Expired);
    let serving = worker.serve_until(std::future::pending::<()>());
    let error = timeout(PATIENCE, serving).await.unwrap().unwrap_err();
    assert_eq!((error.kind(), fake.world().joins.len()), (ErrorKind::NotFound, 2));
}

#[tokio::test]
async fn f059_a_live_process_of_the_same_name_is_fatal_and_both_addresses_are_said() {
    let fake = Fake::start(TTL).await;
    fake.world().duplicate = true;
    let error = worker(&fake).own("orders", polite().0).join().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DuplicateIdentity);
    assert_eq!(error.identities(), Some(("10.0.0.1:1", "10.0.0.2:1")));

    // The other way round: another process came, and this one was replaced.
    fake.world().duplicate = false;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    let serving = tokio::spawn(worker.serve_until(std::future::pending::<()>()));
    fake.world().duplicate = true;
    fake.end_session(SessionEnd::Replaced);
    let error = timeout(PATIENCE, serving).await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DuplicateIdentity);
    assert_eq!(ownership.stamp().unwrap_err().why(), Why::SessionEnded);
    assert_eq!(fake.world().joins.len(), 3, "it does not flap");
}

#[tokio::test]
async fn f059_a_rejoin_whose_answer_was_lost_finds_the_session_that_it_opened() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let within = Duration::from_millis(200);
    let worker = worker(&fake).join_within(within).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    given.next().await;
    fake.world().join_answers_lost = true;
    fake.end_session(SessionEnd::Expired);
    // More tries than one call makes: it was given up, its outcome unknown, and another follows.
    fake.until("another call to join", |world| world.joins.len() > 8).await;
    let opened = fake.session();
    fake.world().join_answers_lost = false;
    fake.until("attached to it", |world| world.attached == 2).await;
    {
        let world = fake.world();
        let tries = &world.joins[1..];
        assert!(tries.iter().all(|again| again.nonce == tries[0].nonce && !again.replace));
        assert!(tries.iter().all(|again| again.secret_sha256 == tries[0].secret_sha256));
        assert_ne!(tries[0].nonce, world.joins[0].nonce);
    }
    assert_eq!(fake.session(), opened);
    fake.grant(3);
    assert!(given.next().await.is_valid());
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn f003_a_shutdown_is_bounded_when_the_coordinator_is_gone() {
    const LONG: Duration = Duration::from_secs(60);
    let limit = Duration::from_millis(200);
    // With an owner, which gives its partition back; with none; and before the first renewal was acknowledged.
    for (owns, answering) in [(true, true), (false, true), (false, false)] {
        let fake = Fake::start(LONG).await;
        fake.world().answering = answering;
        let (owner, mut given) = polite();
        let worker = worker(&fake).shutdown_limit(Some(limit)).own("orders", owner).join().await.unwrap();
        fake.until("attached", |world| world.attached == 1).await;
        if owns {
            fake.grant(3);
            given.next().await;
        }
        fake.stop();
        // Far sooner than the lease of a minute.
        let error = timeout(PATIENCE, worker.leave()).await.expect("it ends").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotReleased);
    }
}

#[tokio::test]
async fn f003_a_shutdown_without_a_limit_ends_when_there_was_never_a_lease() {
    // A limit beyond the end of the clock is none.
    for limit in [None, Some(Duration::MAX)] {
        let fake = Fake::start(TTL).await;
        fake.world().answering = false;
        let worker = worker(&fake).shutdown_limit(limit).own("orders", polite().0).join().await.unwrap();
        fake.until("attached", |world| world.attached == 1).await;
        fake.stop();
        let error = timeout(PATIENCE, worker.leave()).await.expect("it ends").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotReleased);
    }
}

#[tokio::test]
async fn f003_a_shutdown_does_not_wait_for_the_burial_of_a_lost_session_nor_for_a_rejoin() {
    let shift = Arc::new(AtomicU64::new(0));
    let clock = Clock::Shifted(Arc::clone(&shift));
    // The lease runs out here, and the session cannot be left; or it is over, and no other can be opened.
    for confirmed in [false, true] {
        let fake = Fake::start(Duration::from_secs(60)).await;
        let (owner, mut given) = polite();
        let builder = worker(&fake).clock(clock.clone()).join_within(Duration::from_secs(60));
        let worker = builder.own("orders", owner).join().await.unwrap();
        fake.grant(3);
        let ownership = given.next().await;
        if confirmed {
            fake.world().join_answers_lost = true;
            fake.end_session(SessionEnd::Expired);
            fake.until("a rejoin", |world| world.joins.len() > 1).await;
        } else {
            fake.stop();
            clock.advance(Duration::from_secs(120));
            let lost = timeout(PATIENCE, ownership.lost()).await.expect("whoever owns is told");
            assert_eq!(lost.why(), Why::Expired);
        }
        // Far sooner than the minute that burying or joining may take.
        let _ = timeout(PATIENCE, worker.leave()).await.expect("it ends");
    }
}

#[tokio::test]
async fn a_session_lost_while_leaving_is_an_error_and_no_rejoin() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = stubborn();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    given.next().await;
    let leaving = tokio::spawn(worker.leave());
    fake.heard("withdraw").await;
    fake.end_session(SessionEnd::Expired);
    let error = timeout(PATIENCE, leaving).await.unwrap().unwrap().unwrap_err();
    assert_eq!((error.kind(), fake.world().joins.len()), (ErrorKind::NotReleased, 1));
}
