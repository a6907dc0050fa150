//! Holding locks: stamps, the fence, giving back.

use super::*;
use crate::ErrorKind;
use crate::clock::Clock;
use crate::fence::{FenceError, MemoryFence};
use crate::lock::Takeover;
use ringfence_api::Failure;
use ringfence_core::ids::ClusterId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tonic::Status;

fn fence() -> MemoryFence {
    MemoryFence::new(ClusterId::new("test").unwrap())
}

/// A session on a clock that a test can move: the process was paused.
async fn pausable(fake: &Fake) -> (Locks, Arc<AtomicU64>) {
    let shift = Arc::new(AtomicU64::new(0));
    let locks = builder(fake).clock(Clock::Shifted(Arc::clone(&shift))).connect().await.unwrap();
    (locks, shift)
}

fn pause(shift: &AtomicU64) {
    shift.fetch_add(60_000_000_000, Ordering::SeqCst);
}

/// The late write of a paused holder, whose lock the next one has had meanwhile: what became of it.
async fn late_write(fenced: bool) -> (u64, Result<(), FenceError>) {
    let fake = Fake::start(TTL).await;
    let (locks, shift) = pausable(&fake).await;
    let guard = soon(locks.lock("nightly").acquire()).await.unwrap();
    let (storage, mut value) = (fence(), 0);
    storage.raise(guard.token()).unwrap();
    // The operation begins: this is the last look.
    let stamp = guard.stamp().unwrap();
    pause(&shift);
    // The next one has it, and writes.
    fake.end_session(ringfence_api::convert::SessionEnd::Expired);
    let next = fake.occupy("nightly");
    let newer = stamp_of(&stamp, next);
    storage.raise(&newer).unwrap();
    storage.guarded(&newer, || value = 34).unwrap();
    let late = if fenced {
        storage.guarded(&stamp, || value = 33)
    } else {
        value = 33;
        Ok(())
    };
    assert!(!guard.is_held(), "a new operation does not begin");
    assert_eq!(soon(guard.lost()).await.epoch(), stamp.epoch());
    (value, late)
}

fn stamp_of(stamp: &crate::FencingToken, epoch: u64) -> crate::FencingToken {
    let epoch = ringfence_core::ids::Epoch::new(epoch).unwrap();
    crate::FencingToken::new(stamp.cluster().clone(), stamp.scope().clone(), epoch)
}

#[tokio::test]
async fn t51_f016_the_late_write_of_a_paused_holder_is_refused_by_the_fence() {
    let (value, late) = late_write(true).await;
    assert!(matches!(late, Err(FenceError::Fenced(_))), "{late:?}");
    assert_eq!(value, 34);
}

#[tokio::test]
async fn t57_without_the_fence_the_late_write_of_a_paused_holder_is_accepted() {
    let (value, late) = late_write(false).await;
    assert!(late.is_ok());
    assert_eq!(value, 33);
}

#[cfg(feature = "rusqlite")]
#[tokio::test]
async fn t05_the_stamp_of_a_lock_works_with_sqlite_and_is_never_refreshed() {
    use crate::fence::sqlite::SqliteFence;
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    let first = soon(locks.lock("nightly").acquire()).await.unwrap();
    let early = first.stamp().unwrap();
    fake.break_lock("nightly");
    let lost = soon(first.lost()).await;
    assert_eq!((lost.why(), lost.is_final()), (Why::Taken, true));
    let second = soon(locks.lock("nightly").acquire()).await.unwrap();
    assert!(second.epoch() > first.epoch());
    assert_eq!(first.stamp().unwrap_err().why(), Why::Taken, "the first guard stays over");
    assert_eq!(first.stamps().stamp().unwrap_err().epoch(), first.epoch());
    let mut db = rusqlite::Connection::open_in_memory().unwrap();
    db.execute_batch("CREATE TABLE report (day TEXT)").unwrap();
    let fence = SqliteFence::install(&db, early.cluster()).unwrap();
    fence.raise(&mut db, second.token()).unwrap();
    write(&fence, &mut db, &second.stamp().unwrap()).unwrap();
    let late = write(&fence, &mut db, &early).unwrap_err();
    assert!(late.to_string().contains("@locks/nightly"), "{late}");
    let rows: i64 = db.query_row("SELECT count(*) FROM report", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1);
    let lost = soon(first.release()).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::NotHeld, "it had been lost before");
    soon(second.release()).await.unwrap();
}

#[tokio::test]
async fn t42_a_guard_that_is_dropped_in_an_outage_is_given_back_by_its_exact_epoch_when_a_coordinator_is_there()
 {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    let guard = soon(locks.lock("nightly").acquire()).await.unwrap();
    fake.world().lock_failures = vec![Status::from(Failure::unavailable("it stops")); 4];
    drop(guard);
    fake.returned("release nightly@1").await;
    assert!(fake.world().lock_failures.is_empty());
    assert_eq!(fake.lock_of("nightly"), None);
}

#[tokio::test]
async fn t45_a_grant_that_arrives_after_its_release_is_not_believed() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    let guard = soon(locks.lock("nightly").acquire()).await.unwrap();
    let granted = fake.world().revision();
    soon(guard.release()).await.unwrap();
    let next = soon(locks.lock("nightly").acquire()).await.unwrap();
    // Late, out of order: as it was told when it was granted, and as if it were news.
    fake.push_grant("nightly", 1, 1, granted);
    let revision = fake.world().revision();
    fake.push_grant("nightly", 1, 1, revision);
    let news = fake.world().next_revision();
    fake.push_grant("nightly", 1, 1, news);
    fake.returned("abandon nightly#1").await;
    assert!(next.is_held() && next.epoch().get() == 2);
    drop(next);
}

#[tokio::test]
async fn f095_a_renewal_whose_answer_was_lost_locks_nobody_out_of_their_own_lease() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    let guard = soon(locks.lock("nightly").acquire()).await.unwrap();
    fake.world().answering = false;
    let before = fake.world().renewals;
    fake.until("a renewal is not answered", |world| world.renewals > before).await;
    fake.world().answering = true;
    let before = fake.world().renewals;
    // For longer than the lease that was acknowledged last.
    fake.until("renewals go on", |world| world.renewals > before + 9).await;
    assert!(guard.is_held() && guard.epoch().get() == 1);
    assert_eq!(fake.world().joins.len(), 1);
    drop(guard);
}

#[tokio::test]
async fn f035_one_lock_that_is_gone_stops_no_renewals() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    let locks = worker.locks();
    fake.grant(3);
    let ownership = soon(given.next()).await;
    let kept = soon(locks.lock("kept").acquire()).await.unwrap();
    let dead = soon(locks.lock("dead").acquire()).await.unwrap();
    let (told, mut called) = tokio::sync::mpsc::unbounded_channel();
    dead.on_lost(move |lost| told.send(lost.why()).unwrap());
    kept.on_lost(|_| panic!("it is given back"));
    let epoch = fake.break_lock("dead");
    assert_eq!(soon(called.recv()).await, Some(Why::Taken));
    let before = fake.world().renewals;
    fake.until("renewals go on for longer than a lease", |world| world.renewals > before + 9).await;
    assert!(kept.is_held() && ownership.is_valid() && !dead.is_held());
    // What it guards may still be going on, and so the coordinator is told that this is known only when the guard has gone.
    let release = format!("release dead@{epoch}");
    assert!(!fake.world().returned.contains(&release));
    drop(dead);
    fake.returned(&release).await;
    assert_eq!(fake.world().joins.len(), 1);
    soon(kept.release()).await.unwrap();
    soon(worker.leave()).await.unwrap();
}

#[tokio::test]
async fn a_worker_that_leaves_gives_its_locks_back_when_its_owners_have_returned() {
    let fake = Fake::start(TTL).await;
    let (held, mut holds) = tokio::sync::mpsc::unbounded_channel();
    let (go, gone) = tokio::sync::watch::channel(false);
    let (give, mut given) = tokio::sync::mpsc::unbounded_channel();
    let owner = move |ownership: crate::Ownership| {
        let (give, held, mut gone) = (give.clone(), held.clone(), gone.clone());
        async move {
            give.send(()).unwrap();
            ownership.revoked().await;
            let _ = gone.wait_for(|gone| *gone).await;
            // What it does to the end may need the lock.
            let guard: LockGuard = held_guard().await;
            held.send(guard.is_held()).unwrap();
            drop(guard);
            Ok::<(), std::convert::Infallible>(())
        }
    };
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    soon(given.recv()).await.unwrap();
    let outside = soon(worker.locks().lock("outside").acquire()).await.unwrap();
    GUARD.lock().await.replace(soon(worker.locks().lock("nightly").acquire()).await.unwrap());
    let leaving = tokio::spawn(worker.leave());
    fake.heard("withdraw").await;
    go.send(true).unwrap();
    assert_eq!(soon(holds.recv()).await, Some(true));
    soon(leaving).await.unwrap().unwrap();
    assert_eq!(outside.stamp().unwrap_err().why(), Why::Released);
    let world = fake.world();
    assert!(world.returned.contains(&"release outside@1".to_owned()), "{:?}", world.returned);
    assert!(world.returned.contains(&"release nightly@2".to_owned()), "{:?}", world.returned);
    assert_eq!(world.left.len(), 1);
}

static GUARD: tokio::sync::Mutex<Option<LockGuard>> = tokio::sync::Mutex::const_new(None);

async fn held_guard() -> LockGuard {
    GUARD.lock().await.take().unwrap()
}

#[tokio::test]
async fn dropping_the_last_handle_stops_the_renewals_and_what_was_given_back_is_told() {
    let fake = Fake::start(TTL).await;
    let locks = connect(&fake).await;
    let (dropped, kept) = (
        soon(locks.lock("dropped").acquire()).await.unwrap(),
        soon(locks.lock("kept").acquire()).await.unwrap(),
    );
    drop(dropped);
    let waiting = waiter(&locks, "dropped");
    drop(locks);
    fake.returned("release dropped@1").await;
    assert_eq!(soon(kept.lost()).await.why(), Why::Expired);
    let error = soon(waiting).await.unwrap();
    assert!(error.is_err() || !error.unwrap().is_held());
}

#[tokio::test]
async fn where_it_is_taken_over_by_fence_a_holder_without_a_connection_pauses_and_goes_on() {
    let fake = Fake::start(TTL).await;
    let (locks, _) = pausable(&fake).await;
    let by_fence = soon(locks.lock("fenced").takeover(Takeover::Fence).acquire()).await.unwrap();
    let by_lease = soon(locks.lock("leased").acquire()).await.unwrap();
    fake.world().answering = false;
    fake.close_streams(Some(Failure::unavailable("it stops")));
    let paused = async {
        loop {
            match by_fence.stamp() {
                Err(paused) => return paused,
                Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let paused = soon(paused).await;
    fake.world().answering = true;
    assert_eq!((paused.why(), paused.is_final()), (Why::Disconnected, false));
    assert!(by_lease.is_held());
    let again = async {
        while !by_fence.is_held() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(again).await;
    assert_eq!(by_fence.epoch().get(), 1);
    assert!(by_fence.read(|| 7).is_ok_and(|answer| answer == 7));
}

#[tokio::test]
async fn an_efficiency_lock_may_fail_open_and_a_correctness_lock_never_does() {
    let fake = Fake::start(Duration::from_secs(60)).await;
    let locks = builder(&fake).ttl(Duration::from_secs(60)).connect().await.unwrap();
    let guard = soon(locks.efficiency("report").fail_open(true).acquire()).await.unwrap();
    assert!(guard.is_protected() && guard.name().is_some());
    soon(guard.release()).await.unwrap();
    fake.occupy("taken");
    let busy = soon(locks.efficiency("taken").fail_open(true).try_acquire()).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "somebody has it: that is an answer");
    fake.stop();
    let within = Duration::from_millis(300);
    let open = soon(locks.efficiency("report").fail_open(true).acquire_within(within)).await.unwrap();
    assert!(!open.is_protected() && open.name().is_none() && open.held_for().is_none());
    soon(open.release()).await.unwrap();
    let closed = soon(locks.efficiency("report").acquire_within(within)).await.unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Unreachable, "{closed}");
    let closed = soon(locks.lock("report").acquire_within(within)).await.unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Unreachable, "{closed}");
}

#[cfg(feature = "rusqlite")]
fn write(
    fence: &crate::fence::sqlite::SqliteFence,
    db: &mut rusqlite::Connection,
    token: &crate::FencingToken,
) -> Result<(), Box<dyn std::error::Error>> {
    fence.write(db, std::slice::from_ref(token), |tx| {
        tx.execute("INSERT INTO report VALUES ('today')", [])?;
        Ok(())
    })
}
