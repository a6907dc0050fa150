//! An ownership without a worker: what every thread of the process sees.

use super::{Ownership, Phase, Why};
use crate::clock::Clock;
use crate::fence::FencingToken;
use crate::ownership::{Desk, Grant, SessionLease, Tenure};
use crate::testkit::Granted;
use ringfence_core::ids::{KeyspaceName, PartitionId, SessionId};
use ringfence_core::placement::{PartitionCount, Share};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn f026_everyone_who_waits_is_told_once_and_late_comers_too() {
    let (owner, control) = Granted::new("orders", 17).epoch(42).start().unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let owner = owner.clone();
            tokio::spawn(async move {
                owner.revoked().await;
                owner.lost().await
            })
        })
        .collect();
    control.revoke();
    assert!(owner.is_valid(), "revoked is not lost");
    control.lose();
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap().why(), Why::Taken);
    }
    owner.revoked().await;
    assert_eq!(owner.lost().await.why(), Why::Taken);
    // The first reason stands.
    control.pause(Duration::from_secs(3_600));
    assert_eq!(owner.stamp().unwrap_err().why(), Why::Taken);
}

#[tokio::test]
async fn f045_f049_whoever_finds_it_over_first_ends_it_for_everybody() {
    let (owner, control) = Granted::new("orders", 17).start().unwrap();
    let waiter = tokio::spawn({
        let owner = owner.clone();
        async move { owner.lost().await }
    });
    tokio::task::yield_now().await;
    control.pause(Duration::from_secs(60));
    assert!(owner.stamp().is_err());
    assert_eq!(waiter.await.unwrap().why(), Why::Expired);
}

#[tokio::test]
async fn waits_are_cancel_safe() {
    let (owner, control) = Granted::new("orders", 17).start().unwrap();
    for _ in 0..3 {
        let waited = tokio::time::timeout(Duration::from_millis(1), owner.revoked()).await;
        assert!(waited.is_err());
    }
    control.revoke();
    owner.revoked().await;
    assert_eq!(owner.until_revoked(std::future::ready(1)).await, None, "no new work after a revoke");
}

#[test]
fn threads_wait_without_a_runtime() {
    let (owner, control) = Granted::new("orders", 17).start().unwrap();
    assert!(!owner.blocking_revoked(Duration::ZERO));
    assert!(owner.blocking_lost(Duration::from_millis(1)).is_none());
    assert!(matches!(owner.blocking_ready(SOON), Some(Ok(()))));
    assert!(control.is_ready());
    let waiter = std::thread::spawn({
        let owner = owner.clone();
        move || (owner.blocking_revoked(SOON), owner.blocking_lost(SOON))
    });
    control.revoke();
    control.lose();
    let (revoked, lost) = waiter.join().unwrap();
    assert!(revoked && lost.is_some_and(|lost| lost.why() == Why::Taken));
}

#[test]
fn t22_an_answer_that_took_longer_than_the_lease_is_dropped() {
    let (owner, control) = Granted::new("orders", 17).start().unwrap();
    let guard = owner.guard().unwrap();
    control.pause(Duration::from_secs(11));
    assert_eq!(guard.confirm("v1").unwrap_err().why(), Why::Expired);
    assert!(owner.read(|| "v1").is_err());
}

#[test]
fn f099_an_error_names_the_epoch_and_says_what_to_do() {
    let (owner, control) = Granted::new("orders", 17).epoch(42).start().unwrap();
    control.lose();
    let error = owner.stamp().unwrap_err();
    assert_eq!(
        error.to_string(),
        "orders/17@42 is not owned under epoch 42: the coordinator gave it to another owner, or took it; nothing was \
         written; end this task, the next grant comes with an epoch and a task of its own"
    );
    assert_eq!((error.epoch().get(), error.is_final()), (42, true));
}

#[tokio::test]
async fn f044_two_tenures_of_one_partition_are_two_ownerships() {
    let (first, mut control) = Granted::new("orders", 17).start().unwrap();
    control.lose();
    let second = control.next_epoch().unwrap();
    second.ready().await.unwrap();
    assert_eq!(first.ready().await.unwrap_err().why(), Why::Taken);
    assert!(first.is_revoked() && !second.is_revoked());
    assert_eq!(second.phase(), Phase::Active);
}

#[test]
fn the_token_names_the_session_so_that_a_clone_is_noticed() {
    let (owner, _control) = Granted::new("orders", 17).start().unwrap();
    assert_eq!(owner.stamp().unwrap().session(), Some(owner.session()));
}

/// Counts how often the coordinator is told.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Desk for Counting {
    fn say_ready(&self, _: &Tenure) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn on(clock: Clock, ttl: Duration) -> (Arc<Tenure>, Arc<SessionLease>, Arc<Counting>) {
    let lease = Arc::new(SessionLease::new(clock));
    lease.publish(Some(lease.clock.now() + ttl), None).unwrap();
    let token: FencingToken = "prod/orders/17@42".parse().unwrap();
    let grant = Grant {
        token,
        keyspace: KeyspaceName::new("orders").unwrap(),
        partition: PartitionId::new(17),
        session: SessionId::new(7).unwrap(),
        by_fence: false,
        share: PartitionCount::new(64).ok().map(|of| Share { partition: PartitionId::new(17), of }),
        ancestors: ["prod/orders/1@9".parse().unwrap()].into(),
    };
    let desk = Arc::new(Counting::default());
    (Arc::new(Tenure::new(grant, Arc::clone(&lease), desk.clone())), lease, desk)
}

#[tokio::test]
async fn ready_is_said_once_waits_for_the_coordinator_and_ends_with_the_ownership() {
    let (tenure, _lease, desk) = on(Clock::Machine, SOON);
    let owner = Ownership::new(Arc::clone(&tenure));
    for _ in 0..3 {
        assert!(tokio::time::timeout(Duration::from_millis(2), owner.ready()).await.is_err());
    }
    assert_eq!(desk.0.load(Ordering::Relaxed), 1);
    tenure.noted();
    owner.ready().await.unwrap();
    assert_eq!(owner.phase(), Phase::Active);

    let (tenure, _lease, _) = on(Clock::Machine, SOON);
    let owner = Ownership::new(Arc::clone(&tenure));
    let waiting = tokio::spawn(async move { owner.ready().await });
    tokio::task::yield_now().await;
    tenure.end(Why::SessionEnded);
    assert_eq!(waiting.await.unwrap().unwrap_err().why(), Why::SessionEnded);
}

#[test]
fn p04_the_time_left_is_that_of_the_lease_or_of_the_drain_and_ends_with_the_ownership() {
    let ns = Duration::from_nanos;
    let clock = Clock::Manual(Arc::new(1_000.into()));
    let (tenure, lease, _) = on(clock.clone(), ns(900));
    let ownership = Ownership::new(Arc::clone(&tenure));
    assert_eq!(ownership.time_left(), ns(900));
    clock.advance(ns(100));
    assert_eq!(ownership.time_left(), ns(800));
    tenure.bound(clock.now() + ns(50));
    assert_eq!(ownership.time_left(), ns(50), "a drain is no longer than it was said to be");
    lease.publish(Some(clock.now() + ns(5_000)), None).unwrap();
    assert_eq!(ownership.time_left(), ns(50), "and no renewal makes it longer");
    clock.advance(ns(60));
    assert_eq!(ownership.time_left(), Duration::ZERO);

    let (tenure, lease, _) = on(clock, ns(900));
    let ownership = Ownership::new(tenure);
    lease.end();
    assert_eq!(ownership.time_left(), Duration::ZERO, "with the session");
}

#[test]
fn p04_a_bound_ends_one_partition_and_not_the_session() {
    let (tenure, lease, _) = on(Clock::Machine, SOON);
    let owner = Ownership::new(Arc::clone(&tenure));
    tenure.bound(lease.clock.now());
    assert_eq!(owner.stamp().unwrap_err().why(), Why::DrainOver);
    tenure.bound(lease.clock.now() + SOON);
    assert!(!owner.is_valid(), "a later bound gives nothing back");
    assert!(lease.until().is_some());
}

/// A real fork, in the one moment the standard library gives: between `fork` and `exec` of a spawned command.
#[test]
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn t12_a_forked_child_does_not_own() {
    use std::os::unix::process::CommandExt;
    const VALID: i32 = 101;
    const REFUSED: i32 = 102;
    let (tenure, lease, _) = on(Clock::Machine, SOON);
    let owner = Ownership::new(Arc::clone(&tenure));
    let mut command = std::process::Command::new("true");
    // SAFETY: the comparison behind every check allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(move || {
            let answer = if tenure.holds(lease.clock.now()) { VALID } else { REFUSED };
            Err(std::io::Error::from_raw_os_error(answer))
        })
    };
    let error = command.spawn().expect_err("the child reports what it saw");
    assert_eq!(error.raw_os_error(), Some(REFUSED));
    assert!(owner.is_valid(), "the parent goes on");
}

/// Prints what the README quotes: `cargo test --release -p ringfence -- --ignored --nocapture hot_path`.
#[test]
#[ignore = "prints figures; meaningful in release and on a quiet machine"]
fn hot_path_figures() {
    let (tenure, _lease, _) = on(Clock::Machine, Duration::from_secs(600));
    let owner = Ownership::new(tenure);
    let figure = |name: &str, mut operation: Box<dyn FnMut()>| {
        let best = (0..20)
            .map(|_| {
                let begun = Instant::now();
                for _ in 0..200_000 {
                    operation();
                }
                begun.elapsed().as_nanos() as f64 / 200_000.0
            })
            .fold(f64::MAX, f64::min);
        println!("{name}: {best:.1} ns");
    };
    let (o, p, q, r) = (owner.clone(), owner.clone(), owner.clone(), Clock::Machine);
    figure("clock read", Box::new(move || _ = std::hint::black_box(r.now())));
    figure("is_valid", Box::new(move || _ = std::hint::black_box(p.is_valid())));
    figure("stamp", Box::new(move || drop(std::hint::black_box(o.stamp()))));
    figure("read guard", Box::new(move || drop(std::hint::black_box(q.guard()))));
    figure("read, both checks", Box::new(move || drop(std::hint::black_box(owner.read(|| 1)))));
}
