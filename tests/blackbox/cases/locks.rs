//! Named locks: the SDK's holders against real coordinators.

use crate::cluster::proxy::Network;
use crate::cluster::{Cluster, soon, until};
use ringfence::ErrorKind;
use ringfence::fence::{FenceError, MemoryFence};
use ringfence::lock::{Election, LockGuard, Locks, Takeover, Why};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(2);
/// A lease that a loaded machine does not lose.
const LONG: Duration = Duration::from_secs(6);

async fn connect(endpoints: &str, id: &str, ttl: Duration) -> Locks {
    let address = format!("{id}:80");
    Locks::builder(endpoints).id(id).address(&address).ttl(ttl).connect().await.unwrap()
}

/// How many wait for the lock.
async fn waiting(cluster: &Cluster, lock: &str) -> u32 {
    cluster.admin().lock(lock).await.unwrap().lock.waiting
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b19_sixteen_processes_have_a_lock_in_the_order_in_which_they_asked() {
    let cluster = Cluster::one().await;
    let endpoints = cluster.endpoints();
    let first = connect(&endpoints, "holder", LONG).await;
    let held = soon("it is free", first.lock("nightly").acquire()).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for turn in 0..16_u32 {
        let (locks, order) = (connect(&endpoints, &format!("w{turn}"), LONG).await, Arc::clone(&order));
        let asking = tokio::spawn(async move {
            let guard = locks.lock("nightly").acquire().await.unwrap();
            order.lock().unwrap().push((turn, guard.epoch().get()));
            assert!(guard.is_held());
            guard.release().await.unwrap();
            locks.close().await.unwrap();
        });
        tasks.push(asking);
        until("it waits", async || (waiting(&cluster, "nightly").await == turn + 1).then_some(())).await;
    }
    let busy = soon("it is held", first.lock("nightly").try_acquire()).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    let epoch = held.epoch().get();
    soon("it is given back", held.release()).await.unwrap();
    for task in tasks {
        soon("everybody has it once", task).await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    let expected: Vec<(u32, u64)> = (0..16).map(|turn| (turn, epoch + 1 + u64::from(turn))).collect();
    assert_eq!(order, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f017_whoever_holds_a_lock_or_waits_for_it_keeps_it_through_new_leaders() {
    let mut cluster = Cluster::three().await;
    let endpoints = cluster.endpoints();
    let (a, b) = (connect(&endpoints, "a", LONG).await, connect(&endpoints, "b", LONG).await);
    let held = soon("it is free", a.lock("nightly").acquire()).await.unwrap();
    let request = b.lock("nightly");
    let waits = tokio::spawn(request.acquire());
    until("it waits", async || (waiting(&cluster, "nightly").await == 1).then_some(())).await;
    let mut leaders =
        soon("the election is followed", async { Election::new(&b, "nightly").observe() }).await.unwrap();
    let leads = soon("who leads is heard", leaders.next()).await.unwrap();
    assert_eq!((leads.worker.as_str(), leads.address.as_str(), leads.epoch), ("a", "a:80", held.epoch()));
    for _ in 0..2 {
        cluster.another_leader().await;
    }
    let leader = cluster.leader().await;
    cluster.crash(leader);
    cluster.leader().await;
    until("it waits on", async || {
        let lock = cluster.admin().lock("nightly").await.ok()?.lock;
        (lock.waiting == 1 && lock.holders.len() == 1).then_some(())
    })
    .await;
    assert!(held.is_held());
    let epoch = held.epoch();
    soon("it is given back", held.release()).await.unwrap();
    let next = soon("the next one has it", waits).await.unwrap().unwrap();
    assert!(next.is_held() && next.epoch() > epoch);
    until("the new leader is heard of", async || {
        (leaders.next().await?.worker.as_str() == "b").then_some(())
    })
    .await;
}

/// The holder's connection is cut, so that it can tell nobody anything, and the next one gets the lock; then what the holder had begun
/// arrives.
async fn taken_over(takeover: Takeover, fenced: bool) -> (LockGuard, LockGuard, Result<(), FenceError>) {
    let cluster = Cluster::one().await;
    let network = Network::to(cluster.addresses()).await;
    let a = Locks::builder_over(&network.coordinator()).id("a").ttl(TTL).connect().await.unwrap();
    let b = connect(&cluster.endpoints(), "b", LONG).await;
    let old = soon("it is free", a.lock("nightly").takeover(takeover).acquire()).await.unwrap();
    let storage = MemoryFence::new(cluster.id().await);
    storage.raise(old.token()).unwrap();
    let stamp = old.stamp().unwrap();
    network.all(|weather| weather.refuses = true);
    network.reset();
    let new = soon("the next one has it", b.lock("nightly").acquire()).await.unwrap();
    assert!(new.epoch() > old.epoch());
    storage.raise(new.token()).unwrap();
    storage.guarded(&new.stamp().unwrap(), || ()).unwrap();
    let late = if fenced { storage.guarded(&stamp, || ()) } else { Ok(()) };
    // Nobody else is told that the holder of before may do anything.
    assert!(!old.is_held() && new.is_held());
    drop((a, b));
    (old, new, late)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b31_a_holder_that_is_silent_is_followed_when_its_lease_has_run_out_and_its_late_write_is_refused() {
    let (old, _new, late) = taken_over(Takeover::Lease, true).await;
    assert!(matches!(late, Err(FenceError::Fenced(_))), "{late:?}");
    assert_eq!(soon("it is told", old.lost()).await.why(), Why::Expired);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b31_by_fence_it_is_followed_when_its_connection_is_lost() {
    let (old, _new, late) = taken_over(Takeover::Fence, true).await;
    assert!(matches!(late, Err(FenceError::Fenced(_))), "{late:?}");
    assert!(old.stamp().is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t57_without_the_fence_the_late_write_is_taken() {
    let (_, _, late) = taken_over(Takeover::Lease, false).await;
    assert!(late.is_ok());
}

/// Those who share a lock have one epoch, so whoever gives it back and asks again is granted the one that they had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_lock_is_had_again_under_its_epoch_while_others_hold_it() {
    let cluster = Cluster::one().await;
    let endpoints = cluster.endpoints();
    let (a, b) = (connect(&endpoints, "a", LONG).await, connect(&endpoints, "b", LONG).await);
    let kept = soon("it is free", a.lock("table").shared().acquire()).await.unwrap();
    for _ in 0..20 {
        let again = soon("it is shared", b.lock("table").shared().acquire()).await.unwrap();
        assert_eq!((again.epoch(), again.is_held()), (kept.epoch(), true));
        drop(again);
    }
    let busy = soon("it is shared", b.lock("table").try_acquire()).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    soon("it is given back", kept.release()).await.unwrap();
    let alone = soon("nobody shares it", b.lock("table").acquire()).await.unwrap();
    assert!(alone.epoch().get() > 1 && alone.is_held());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_candidates_one_leads_and_the_next_one_when_it_resigns_or_is_broken() {
    let cluster = Cluster::one().await;
    let endpoints = cluster.endpoints();
    let (sees, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let mut candidates = Vec::new();
    for id in ["a", "b", "c"] {
        let (locks, sees) = (connect(&endpoints, id, LONG).await, sees.clone());
        candidates.push(tokio::spawn(async move {
            let leadership = Election::new(&locks, "scheduler").campaign().await.unwrap();
            sees.send((leadership, locks)).unwrap();
        }));
        until("it is a candidate", async || {
            let lock = cluster.admin().lock("scheduler").await.unwrap().lock;
            (lock.holders.len() + lock.waiting as usize == candidates.len()).then_some(())
        })
        .await;
    }
    let (first, kept_a) = soon("one leads", seen.recv()).await.unwrap();
    assert!(seen.try_recv().is_err() && first.is_held());
    let epoch = first.epoch();
    soon("it resigns", first.resign()).await.unwrap();
    let (second, kept_b) = soon("the next one leads", seen.recv()).await.unwrap();
    assert!(second.epoch() > epoch && second.is_held());
    let admin = cluster.admin();
    admin.break_lock("scheduler", None, false).await.unwrap();
    assert_eq!(soon("it is told", second.lost()).await.why(), Why::Taken);
    // It says that it knows, and nobody waits for its lease, which is renewed all the while.
    let (third, _kept_c) = soon("the last one leads", seen.recv()).await.unwrap();
    assert!(third.epoch() > second.epoch() && third.is_held());
    drop((kept_a, kept_b));
}
