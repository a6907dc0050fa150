//! From grant to release.

use super::*;
use crate::error::ErrorKind;
use crate::fence::{DeclaredFence, MemoryFence};
use crate::net::Coordinator;
use crate::ownership::{Phase, Why};
use crate::worker::outbox::{Item, Outbox, Sent, What};
use crate::worker::session::{Secret, Session};
use crate::worker::wire::{Keyspaces, Place};
use ringfence_api::Failure;
use ringfence_core::ids::{ClusterId, Epoch, KeyspaceName, PartitionId, Scope, SessionId};
use ringfence_core::lease::lessee::Timing;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn memory() -> MemoryFence {
    MemoryFence::new(ClusterId::new("test").unwrap())
}

#[tokio::test]
async fn join_own_drain_release_leave() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    assert_eq!(worker.session().map(SessionId::get), fake.session());
    assert!(fake.world().joins[0].replace, "the first join of a process may replace");

    fake.grant(3);
    let ownership = given.next().await;
    assert_eq!(ownership.stamp().unwrap().to_string(), "test/orders/3@1");
    ownership.ready().await.unwrap();
    assert_eq!((ownership.phase(), fake.world().said("ready 3@1")), (Phase::Active, 1));
    assert_eq!(worker.owned().len(), 1);

    fake.drain(3, Duration::from_secs(10));
    fake.heard("released 3@1").await;
    assert_eq!(ownership.stamp().unwrap_err().why(), Why::TaskEnded);

    fake.grant(4);
    let other = given.next().await;
    worker.leave().await.unwrap();
    assert_eq!(other.stamp().unwrap_err().why(), Why::TaskEnded);
    let world = fake.world();
    let tail = &world.said[world.said.len() - 2..];
    assert_eq!(
        tail,
        ["withdraw", "released 4@1"],
        "it takes no more grants before it gives the last ones back"
    );
    assert_eq!(world.left.len(), 1);
}

#[tokio::test]
async fn loads_are_told_to_a_coordinator_that_asks_and_to_no_other() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    ownership.ready().await.unwrap();
    let renewals = fake.world().renewals;
    fake.until("two more renewals", |world| world.renewals >= renewals + 2).await;
    assert!(fake.world().loads.is_empty());

    fake.world().measure =
        Some(ringfence_api::v1::Measure { keyspaces: vec!["orders".to_owned()], every_ms: 60 });
    fake.until("an idle partition is told of", |world| world.loads.contains(&("orders".to_owned(), 3, 0)))
        .await;
    ownership.report_load(41);
    fake.until("what the owner says", |world| world.loads.contains(&("orders".to_owned(), 3, 41))).await;
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn t04_every_declared_fence_is_raised_before_the_task_starts() {
    let fake = Fake::start(TTL).await;
    let (first, second) = (memory(), memory());
    let fences =
        [DeclaredFence::enforced("first", first.clone()), DeclaredFence::enforced("second", second.clone())];
    let (seen, mut seen_by_task) = mpsc::unbounded_channel();
    let owner = move |ownership: Ownership| {
        let scope = ownership.token().scope().clone();
        let _ = seen.send((first.highest(&scope), second.highest(&scope), ownership.phase()));
        async move {
            ownership.revoked().await;
            Ok::<(), Infallible>(())
        }
    };
    let worker = worker(&fake).own_fenced("orders", fences, owner).join().await.unwrap();
    let epoch = fake.grant(3);
    let (first, second, phase) = timeout(PATIENCE, seen_by_task.recv()).await.unwrap().unwrap();
    assert_eq!((first.map(Epoch::get), second.map(Epoch::get)), (Some(epoch), Some(epoch)));
    assert_eq!(phase, Phase::Loading);
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn t04_f018_an_owner_whose_fence_has_seen_a_newer_epoch_never_starts_and_says_what_was_seen() {
    let fake = Fake::start(TTL).await;
    let (fence, further, fresh) = (memory(), memory(), memory());
    fence.raise(&"test/orders/3@7".parse().unwrap()).unwrap();
    further.raise(&"test/orders/3@9".parse().unwrap()).unwrap();
    let declared = [("ledger", &fence), ("outbox", &further), ("new", &fresh)]
        .map(|(name, fence)| DeclaredFence::enforced(name, fence.clone()));
    let (owner, mut given) = polite();
    let worker = worker(&fake).own_fenced("orders", declared, owner).join().await.unwrap();
    fake.grant(3);
    // The highest of all: each of them alone would cost a grant.
    fake.until("behind", |world| world.said.iter().any(|said| said == "behind 9 of test 3@1")).await;
    given.nothing_for(Duration::from_millis(50)).await;
    let scope: Scope = "orders/3".parse().unwrap();
    let seen = [&fence, &further, &fresh].map(|fence| fence.highest(&scope).map(Epoch::get));
    assert_eq!(seen, [Some(7), Some(9), Some(1)]);
    worker.leave().await.unwrap();
}

/// A coordinator of an older version does not know the word, and has to hear that the task is over.
#[tokio::test]
async fn a_coordinator_that_knows_nothing_of_it_is_told_of_a_failure() {
    let fake = Fake::start(TTL).await;
    fake.world().knows_no_behind = true;
    let fence = memory();
    fence.raise(&"test/orders/3@7".parse().unwrap()).unwrap();
    let declared = DeclaredFence::enforced("ledger", fence);
    let (owner, _given) = polite();
    let worker = worker(&fake).own_fenced("orders", [declared], owner).join().await.unwrap();
    fake.grant(3);
    fake.until("failed", |world| {
        world.said.iter().any(|said| said.starts_with("failed (raising fence ledger: "))
    })
    .await;
    let said = fake.world().said.join(" ");
    assert!(said.contains("its epoch is 1, and the fence has seen 7"), "{said}");
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn f003_a_release_follows_the_task_and_the_lease_is_renewed_while_it_ends() {
    let fake = Fake::start(TTL).await;
    let written = Arc::new(AtomicUsize::new(0));
    let (give, given) = mpsc::unbounded_channel();
    let owner = {
        let written = Arc::clone(&written);
        move |ownership: Ownership| {
            let (written, give) = (Arc::clone(&written), give.clone());
            async move {
                let _ = give.send(ownership.clone());
                ownership.revoked().await;
                // It flushes for two TTLs, and every write of it is stamped.
                for _ in 0..20 {
                    tokio::time::sleep(TTL / 10).await;
                    ownership.stamp().map_err(|error| error.to_string())?;
                    written.fetch_add(1, Ordering::SeqCst);
                }
                Ok::<(), String>(())
            }
        }
    };
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = Given(given).next().await;
    let renewals = fake.world().renewals;
    let leaving = tokio::spawn(worker.leave());
    fake.heard("withdraw").await;
    assert!(ownership.is_valid() && ownership.is_revoked());
    fake.heard("released 3@1").await;
    assert_eq!(written.load(Ordering::SeqCst), 20, "released when the task had ended, and not before");
    leaving.await.unwrap().unwrap();
    assert!(fake.world().renewals - renewals >= 8, "renewed while it ended");
    assert!(!ownership.is_valid());
}

#[tokio::test]
async fn f003_a_drained_partition_is_released_when_its_task_has_ended() {
    let fake = Fake::start(TTL).await;
    let (give, given) = mpsc::unbounded_channel();
    let (finish, finished) = tokio::sync::watch::channel(false);
    let owner = move |ownership: Ownership| {
        let (give, mut finished) = (give.clone(), finished.clone());
        async move {
            let _ = give.send(ownership.clone());
            ownership.revoked().await;
            let _ = finished.wait_for(|finished| *finished).await;
            Ok::<(), Infallible>(())
        }
    };
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = Given(given).next().await;
    fake.drain(3, Duration::from_secs(30));
    fake.heard("revoke seen 3@1").await;
    let renewals = fake.world().renewals;
    fake.until("renewed meanwhile", |world| world.renewals > renewals + 2).await;
    assert!(ownership.is_valid(), "it flushes under its lease");
    assert_eq!(fake.world().said("released 3@1"), 0);
    finish.send_replace(true);
    fake.heard("released 3@1").await;
    assert!(!ownership.is_valid());
    worker.leave().await.unwrap();
}

#[test]
fn a_worker_without_a_runtime_is_an_error_and_no_panic() {
    use std::task::{Context, Poll, Waker};
    let builder = Worker::builder("w1").coordinator("http://127.0.0.1:1").own("orders", polite().0);
    let mut joining = std::pin::pin!(builder.join());
    match joining.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Err(error)) => assert_eq!(error.kind(), ErrorKind::Invalid),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn f058_how_a_task_ends_is_what_is_reported() {
    let fake = Fake::start(TTL).await;
    let owner = |ownership: Ownership| async move {
        match ownership.partition().get() {
            1 => Ok(()),
            2 => Err("disk on fire"),
            3 => panic!("index out of bounds"),
            _ => {
                ownership.revoked().await;
                Ok(())
            }
        }
    };
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    for partition in 1..=4 {
        fake.grant(partition);
    }
    fake.heard("returned 1@1").await;
    fake.heard("failed (disk on fire) 2@1").await;
    // The poisonous partition is given up, and its neighbour is not touched.
    fake.heard("failed (panicked: index out of bounds) 3@1").await;
    fake.drain(4, Duration::from_secs(10));
    fake.heard("released 4@1").await;
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn p04_f063_a_revoke_counts_as_seen_only_when_an_acknowledgement_has_named_the_drain() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = stubborn();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    fake.world().answering = false;
    let renewals = fake.world().renewals;
    fake.drain(3, TTL * 2);
    ownership.revoked().await;
    fake.until("a renewal without an answer", |world| world.renewals > renewals).await;
    assert_eq!(fake.world().said("revoke seen 3@1"), 0, "a push has no moment to count from");
    fake.world().answering = true;
    fake.heard("revoke seen 3@1").await;
    worker_gives_up(&fake, &ownership).await;
    drop(worker);
}

/// A task that ignores its revoke is aborted when its validity ends, and its partition is released then.
async fn worker_gives_up(fake: &Fake, ownership: &Ownership) {
    assert_eq!(ownership.lost().await.why(), Why::DrainOver);
    assert_eq!(ownership.stamp().unwrap_err().why(), Why::DrainOver);
    fake.heard("released 3@1").await;
    assert!(fake.session().is_some(), "one partition was lost, not the session");
}

#[tokio::test]
async fn a_worker_that_is_restarted_says_so_of_all_that_it_gives_back() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    for partition in 0..3 {
        fake.grant(partition);
        given.next().await;
    }
    worker.leave_to_restart().await.unwrap();
    let world = fake.world();
    let restarting = world.said.iter().filter(|said| said.starts_with("restarting")).count();
    let released = world.said.iter().filter(|said| said.starts_with("released")).count();
    assert_eq!((restarting, released), (3, 0), "{:?}", world.said);
}

#[tokio::test]
async fn f079_a_revoke_before_the_task_could_start_gives_back_at_once() {
    let fake = Fake::start(TTL).await;
    fake.world().answering = false;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.until("attached", |world| world.attached == 1).await;
    fake.grant(3);
    fake.drain(3, TTL);
    fake.heard("released 3@1").await;
    given.nothing_for(Duration::from_millis(20)).await;
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn f025_one_release_that_is_refused_does_not_keep_the_others() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    for partition in 0..10 {
        fake.grant(partition);
        given.next().await;
    }
    fake.world().poisonous = Some(4);
    worker.leave().await.unwrap();
    let world = fake.world();
    let released = world.said.iter().filter(|said| said.starts_with("released")).count();
    assert_eq!((released, world.left.len()), (9, 1));
}

#[tokio::test]
async fn f025_an_item_that_is_refused_does_not_take_the_withdrawal_with_it() {
    let fake = Fake::start(TTL).await;
    let secret = Secret::draw().unwrap();
    let session = Session {
        id: SessionId::new(fake.open_session(&secret.bytes())).unwrap(),
        cluster: ClusterId::new("test").unwrap(),
        secret,
        timing: Timing::new(TTL).unwrap(),
        keyspaces: Keyspaces::new(),
    };
    let coordinator = Coordinator::new(fake.url.parse().unwrap());
    let mut outbox = Outbox::new(coordinator, &session);
    fake.world().poisonous = Some(4);
    let place = Place { keyspace: KeyspaceName::new("orders").unwrap(), partition: PartitionId::new(4) };
    outbox.push(Item { place, epoch: Epoch::new(1).unwrap(), what: What::Released });
    outbox.withdraw();
    let saying = async {
        while !outbox.is_empty() {
            assert!(matches!(outbox.next().await, Sent::Known(items) if items.is_empty()));
        }
    };
    timeout(PATIENCE, saying).await.unwrap();
    assert_eq!(fake.world().said, ["withdraw"]);
}

#[tokio::test]
async fn t43_a_report_is_repeated_until_the_coordinator_knows() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    fake.world().report_failures = vec![
        Failure::unknown_outcome().into(),
        Failure::no_leader().into(),
        tonic::Status::unavailable("a proxy is restarting"),
        Failure::unavailable("starting").into(),
    ];
    timeout(PATIENCE, ownership.ready()).await.unwrap().unwrap();
    assert_eq!(fake.world().said("ready 3@1"), 1);
    worker.leave().await.unwrap();
}

#[tokio::test]
async fn f003_owners_that_do_not_return_are_aborted_at_the_shutdown_limit() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = stubborn();
    let limit = Some(Duration::from_millis(100));
    let worker = worker(&fake).shutdown_limit(limit).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    given.next().await;
    worker.leave().await.unwrap();
    assert_eq!(fake.world().said("released 3@1"), 1, "an aborted task has ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f003_a_task_that_cannot_be_aborted_is_not_released_and_the_error_names_it() {
    let fake = Fake::start(TTL).await;
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(std::sync::Mutex::new(blocked));
    let (give, given) = mpsc::unbounded_channel();
    let owner = move |ownership: Ownership| {
        let (give, blocked) = (give.clone(), Arc::clone(&blocked));
        async move {
            let _ = give.send(ownership);
            // Blocks a thread of the runtime: no `await`, no end.
            let _ = blocked.lock().unwrap().recv();
            Ok::<(), Infallible>(())
        }
    };
    let limit = Some(Duration::from_millis(50));
    let worker = worker(&fake).shutdown_limit(limit).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = Given(given).next().await;
    let error = worker.leave().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReleased);
    assert!(error.to_string().contains("orders/3"), "{error}");
    {
        let world = fake.world();
        assert_eq!((world.said("released 3@1"), world.left.len()), (0, 1));
    }
    assert!(!ownership.is_valid(), "what is left to the lease stamps nothing more");
    drop(unblock);
}

#[tokio::test]
async fn a_worker_that_cannot_work_says_which_setting_is_wrong() {
    let fine = || Worker::builder("w1").coordinator("http://127.0.0.1:1").own("orders", polite().0);
    for (builder, part) in [
        (Worker::builder("W 1").coordinator("http://127.0.0.1:1").own("orders", polite().0), "worker"),
        (Worker::builder("w1").own("orders", polite().0), "coordinator"),
        (Worker::builder("w1").coordinator("127.0.0.1:1").own("orders", polite().0), "http://"),
        (Worker::builder("w1").coordinator("http://127.0.0.1:1"), "keyspace"),
        (fine().own("Orders!", polite().0), "keyspace"),
        (fine().own("orders", polite().0), "two owner functions"),
        (fine().weight(0), "weight"),
        (fine().label("", "a"), "labels"),
        (fine().address("a\nb"), "address"),
    ] {
        let error = builder.join().await.map(drop).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(part), "{part}: {error}");
    }
    let nobody = fine().join_within(Duration::from_millis(200)).join().await.map(drop).unwrap_err();
    assert_eq!(nobody.kind(), ErrorKind::Unreachable);
}
