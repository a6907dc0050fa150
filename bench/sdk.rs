//! What an owner and a caller pay on their own paths: a stamp, a leased read, a route. What a fence costs is in `fence.rs`.
//!
//! `cargo bench -p ringfence --bench sdk --features rusqlite`

#![allow(missing_docs, clippy::unwrap_used)]

use ringfence::admin::{Admin, PolicyChange};
use ringfence::router::Router;
use ringfence::{NotOwner, Ownership, Worker};
use ringfence_server::Coordinator;
use std::hint::black_box;
use std::time::Instant;

const PARTITIONS: u32 = 1_000;

/// The best of five runs, in nanoseconds a call: what the machine does when nothing else disturbs it.
fn best(mut call: impl FnMut(u64)) -> f64 {
    const CALLS: u64 = 2_000_000;
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        (0..CALLS).for_each(&mut call);
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / CALLS as f64);
    }
    best
}

fn line(what: &str, ns: f64) {
    println!("{what:<52} {ns:>7.1} ns");
}

async fn own(partition: Ownership) -> Result<(), NotOwner> {
    partition.ready().await?;
    partition.revoked().await;
    Ok(())
}

#[tokio::main]
async fn main() {
    let coordinator = Coordinator::in_memory().start().await.unwrap();
    let endpoint = coordinator.endpoint();
    let admin = Admin::at(endpoint.as_str()).unwrap();
    admin.create_keyspace("orders", PARTITIONS, &PolicyChange::default()).await.unwrap();
    let worker = Worker::builder("w1")
        .coordinator(endpoint.as_str())
        .address("127.0.0.1:1")
        .own("orders", own)
        .join()
        .await
        .unwrap();
    let router = Router::connect(endpoint.as_str(), ["orders"]).await.unwrap();
    let all_ready = |view: &ringfence::router::View| {
        let partitions = view.keyspace("orders").map(|keyspace| {
            keyspace
                .partitions()
                .filter(|p| p.owner().is_some_and(ringfence::router::Owner::is_ready))
                .count()
        });
        partitions == Some(PARTITIONS as usize)
    };
    router.wait_for(all_ready).await;

    // On the machine's own clock, as in production; the coordinator above goes on in the background.
    let (held, taken) = tokio::sync::oneshot::channel();
    let held = std::sync::Mutex::new(Some(held));
    admin.create_keyspace("one", 1, &PolicyChange::default()).await.unwrap();
    let second = Worker::builder("w2")
        .coordinator(endpoint.as_str())
        .own("one", move |partition: Ownership| {
            if let Some(held) = held.lock().unwrap().take() {
                let _ = held.send(partition.clone());
            }
            own(partition)
        })
        .join()
        .await
        .unwrap();
    let owned = taken.await.unwrap();
    while !owned.is_valid() {
        tokio::task::yield_now().await;
    }

    line(
        "stamp: one clock read, one comparison, one token",
        best(|_| drop(black_box(owned.stamp().unwrap()))),
    );
    line("read guard: one clock read, one comparison", best(|_| drop(black_box(owned.guard().unwrap()))));

    let keys: Vec<String> = (0..1024).map(|n| format!("customer-{n}")).collect();
    let look = |n: u64| drop(black_box(router.owner("orders", black_box(&keys[(n % 1024) as usize]))));
    line("route: key -> partition -> owner", best(look));

    second.leave().await.unwrap();
    worker.leave().await.unwrap();
    coordinator.shutdown().await.unwrap();
}
