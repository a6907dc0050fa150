//! The process around the worker: busy, wedged, dropped, stopped.

use super::*;
use crate::ownership::Why;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test]
async fn f058_dropping_a_worker_stops_the_renewals_and_releases_nothing() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = stubborn();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    drop(worker);
    timeout(PATIENCE, ownership.revoked()).await.unwrap();
    assert!(ownership.is_valid(), "until its lease runs out");
    let renewals = fake.world().renewals;
    assert_eq!(timeout(PATIENCE, ownership.lost()).await.unwrap().why(), Why::Expired);
    let world = fake.world();
    assert!(world.renewals <= renewals + 1);
    assert_eq!((world.said.len(), world.left.len(), world.joins.len()), (0, 0, 1));
}

#[tokio::test]
async fn a_serve_that_is_dropped_is_a_worker_that_is_dropped() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    let serving = worker.serve_until(std::future::pending::<()>());
    assert!(timeout(Duration::from_millis(50), serving).await.is_err());
    timeout(PATIENCE, ownership.revoked()).await.unwrap();
    // Its function has returned, and still nothing is said: dropping is not leaving.
    assert_eq!(timeout(PATIENCE, ownership.lost()).await.unwrap().why(), Why::TaskEnded);
    assert_eq!(fake.world().said.len(), 0);
}

/// The runtime of the tasks, apart from that of the fake and the test.
fn application(threads: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
}

#[tokio::test]
async fn t35_f052_an_owner_that_blocks_one_thread_of_several_does_not_cost_the_session() {
    let fake = Fake::start(TTL).await;
    let application = application(2);
    let (give, given) = mpsc::unbounded_channel();
    let owner = move |ownership: Ownership| {
        let give = give.clone();
        async move {
            let _ = give.send(ownership.clone());
            std::thread::sleep(TTL * 2);
            ownership.revoked().await;
            Ok::<(), Infallible>(())
        }
    };
    let worker = application.spawn(worker(&fake).own("orders", owner).join()).await.unwrap().unwrap();
    fake.grant(3);
    let ownership = Given(given).next().await;
    let renewals = fake.world().renewals;
    fake.until("renewed for two ttls", |world| world.renewals >= renewals + 12).await;
    assert!(ownership.is_valid());
    // Told in the middle of its sleep, and obeyed when it can.
    fake.drain(3, Duration::from_secs(30));
    timeout(PATIENCE, ownership.revoked()).await.unwrap();
    fake.heard("released 3@1").await;
    worker.leave().await.unwrap();
    application.shutdown_background();
}

#[tokio::test]
async fn f058_a_wedged_runtime_loses_its_partitions() {
    let fake = Fake::start(TTL).await;
    let application = application(1);
    let wedged = Arc::new(AtomicBool::new(true));
    let (give, given) = mpsc::unbounded_channel();
    let owner = {
        let wedged = Arc::clone(&wedged);
        move |ownership: Ownership| {
            let (wedged, give) = (Arc::clone(&wedged), give.clone());
            async move {
                let _ = give.send(ownership);
                while wedged.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Ok::<(), Infallible>(())
            }
        }
    };
    let worker = application.spawn(worker(&fake).own("orders", owner).join()).await.unwrap().unwrap();
    fake.grant(3);
    let ownership = Given(given).next().await;
    let lost = timeout(PATIENCE, ownership.lost()).await.unwrap();
    assert_eq!(lost.why(), Why::Expired);
    assert_eq!(fake.world().said("released 3@1"), 0, "its task has not ended");
    wedged.store(false, Ordering::SeqCst);
    drop(worker);
    application.shutdown_background();
}

#[tokio::test]
async fn t36_the_applications_health_check_decides() {
    let fake = Fake::start(TTL).await;
    let healthy = Arc::new(AtomicBool::new(true));
    let check = Arc::clone(&healthy);
    let (owner, mut given) = polite();
    let worker =
        worker(&fake).health(move || check.load(Ordering::SeqCst)).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    healthy.store(false, Ordering::SeqCst);
    assert_eq!(timeout(PATIENCE, ownership.lost()).await.unwrap().why(), Why::Expired);
    healthy.store(true, Ordering::SeqCst);
    fake.until("back", |world| world.joins.len() == 2).await;
    drop(worker);
}

#[tokio::test]
async fn a_runtime_that_is_shut_down_under_its_tasks_releases_nothing() {
    let fake = Fake::start(TTL).await;
    let application = application(1);
    let (owner, mut given) = stubborn();
    let worker = application.spawn(worker(&fake).own("orders", owner).join()).await.unwrap().unwrap();
    fake.grant(3);
    given.next().await;
    application.shutdown_background();
    let serving = worker.serve_until(std::future::pending::<()>());
    let _ = timeout(PATIENCE, serving).await.expect("it ends by itself");
    let world = fake.world();
    assert_eq!((world.said.len(), world.left.len()), (0, 0));
}

#[tokio::test]
async fn the_coordinator_that_is_gone_for_good_ends_in_a_loss_not_in_a_hang() {
    let fake = Fake::start(TTL).await;
    let (owner, mut given) = polite();
    let worker = worker(&fake).own("orders", owner).join().await.unwrap();
    fake.grant(3);
    let ownership = given.next().await;
    fake.stop();
    assert_eq!(timeout(PATIENCE, ownership.lost()).await.unwrap().why(), Why::Expired);
    // Leaving needs no coordinator to end.
    let _ = timeout(PATIENCE, worker.leave()).await.expect("it ends");
}
