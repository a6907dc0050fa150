//! How long a partition stands still while it moves: from the last write under its epoch to the first under the next, with
//! a writer at 1 kHz on each, while a thousand other partitions move to and fro. Three durable nodes on loopback; nodes and
//! workers share one process and its cores.
//!
//! `cargo bench -p ringfence --bench moves`

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "nodes.rs"]
mod nodes;

use nodes::three_nodes;
use ringfence::admin::{Admin, PolicyChange, WorkerChange};
use ringfence::fence::{DeclaredFence, MemoryFence};
use ringfence::ids::{PartitionId, WorkerId};
use ringfence::router::{Owner, Router};
use ringfence::{NotOwner, Ownership, Worker};
use ringfence_server::Coordinator;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

const CROWD: u32 = 1_000;
const WATCHED: u32 = 4;
const MOVES: usize = 100;
const PERIOD: Duration = Duration::from_millis(1);

/// The last write to each watched partition, and every gap between two owners.
#[derive(Default)]
struct Ledger {
    last: BTreeMap<u32, (u64, Instant)>,
    gaps: Vec<Duration>,
}

/// Writes every millisecond, as long as the partition is its own.
async fn write(partition: Ownership, fence: MemoryFence, ledger: Arc<Mutex<Ledger>>) -> Result<(), NotOwner> {
    partition.ready().await?;
    let mut clock = tokio::time::interval(PERIOD);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while partition.until_revoked(clock.tick()).await.is_some() {
        let stamp = partition.stamp()?;
        let wrote = fence.guarded(&stamp, || {
            let (now, epoch) = (Instant::now(), stamp.epoch().get());
            let mut ledger = ledger.lock().unwrap();
            let before = ledger.last.insert(partition.partition().get(), (epoch, now));
            if let Some((_, then)) = before.filter(|(before, _)| *before < epoch) {
                ledger.gaps.push(now - then);
            }
        });
        if wrote.is_err() {
            break;
        }
    }
    Ok(())
}

async fn idle(partition: Ownership, grants: Arc<AtomicU64>) -> Result<(), NotOwner> {
    partition.ready().await?;
    grants.fetch_add(1, Ordering::Relaxed);
    partition.revoked().await;
    Ok(())
}

/// Moves all partitions of the crowd to one worker, and back, and again.
async fn sway(admin: Admin, router: Router) {
    let (a, b) = (WorkerId::new("crowd-a").unwrap(), WorkerId::new("crowd-b").unwrap());
    for (from, to) in [(&a, &b), (&b, &a)].into_iter().cycle() {
        let drained = |drained| WorkerChange { drained: Some(drained), ..WorkerChange::default() };
        admin.set_worker(to, &drained(false)).await.unwrap();
        admin.set_worker(from, &drained(true)).await.unwrap();
        router.wait_for(|view| owned(view, "crowd", |owner| owner.worker() == to) == CROWD as usize).await;
    }
}

fn owned(view: &ringfence::router::View, keyspace: &str, fits: impl Fn(&Owner) -> bool) -> usize {
    let ready = |owner: &Owner| owner.is_ready() && fits(owner);
    view.keyspace(keyspace).map_or(0, |keyspace| {
        keyspace.partitions().filter(|partition| partition.owner().is_some_and(ready)).count()
    })
}

/// Moves every watched partition so many times, one at a time, and returns the gaps in ascending order.
async fn gaps(admin: &Admin, router: &Router, ledger: &Mutex<Ledger>) -> Vec<Duration> {
    for number in 0..MOVES * WATCHED as usize {
        let partition = PartitionId::new((number % WATCHED as usize) as u32);
        let owner = router.owner_of("watched", partition).unwrap();
        let to = WorkerId::new(if owner.worker().as_str() == "w1" { "w2" } else { "w1" }).unwrap();
        admin.move_partition("watched", partition, &to).await.unwrap();
        router
            .wait_for(|view| {
                let owner = view.keyspace("watched").and_then(|keyspace| keyspace.owner(partition));
                owner.is_some_and(|owner| owner.is_ready() && *owner.worker() == to)
            })
            .await;
        while ledger.lock().unwrap().gaps.len() <= number {
            tokio::task::yield_now().await;
        }
    }
    let mut gaps = std::mem::take(&mut ledger.lock().unwrap().gaps);
    gaps.sort_unstable();
    gaps
}

fn show(what: &str, gaps: &[Duration]) {
    let at = |share: f64| gaps[((gaps.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!(
        "{what:<36} {} moves: gap p50 {:>5.1} ms, p99 {:>5.1} ms, longest {:>5.1} ms",
        gaps.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

#[tokio::main]
async fn main() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = three_nodes(dir.path()).await;
    let endpoints = nodes.iter().map(Coordinator::endpoint).collect::<Vec<_>>().join(",");
    let admin = Admin::at(endpoints.as_str()).unwrap();
    let still = PolicyChange { balance: Some(false), ..PolicyChange::default() };
    admin.create_keyspace("watched", WATCHED, &still).await.unwrap();
    let swaying = PolicyChange { max_moves_in_flight: Some(CROWD), ..PolicyChange::default() };
    admin.create_keyspace("crowd", CROWD, &swaying).await.unwrap();

    let cluster = admin.cluster_status().await.unwrap().cluster.unwrap();
    let fence = MemoryFence::new(cluster);
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let grants = Arc::new(AtomicU64::new(0));
    let mut workers = Vec::new();
    for name in ["w1", "w2"] {
        let (declared, store, ledger) = (fence.clone(), fence.clone(), Arc::clone(&ledger));
        let own = move |partition| write(partition, store.clone(), Arc::clone(&ledger));
        let builder = Worker::builder(name).coordinator(endpoints.as_str());
        let declared = vec![DeclaredFence::enforced("ledger", declared)];
        workers.push(builder.own_fenced("watched", declared, own).join().await.unwrap());
    }
    for name in ["crowd-a", "crowd-b"] {
        let grants = Arc::clone(&grants);
        let own = move |partition| idle(partition, Arc::clone(&grants));
        workers.push(
            Worker::builder(name).coordinator(endpoints.as_str()).own("crowd", own).join().await.unwrap(),
        );
    }
    let router = Router::connect(endpoints.as_str(), ["watched", "crowd"]).await.unwrap();
    let all = |view: &ringfence::router::View| {
        owned(view, "crowd", |_| true) + owned(view, "watched", |_| true) == (CROWD + WATCHED) as usize
    };
    router.wait_for(all).await;

    show("nothing else moves", &gaps(&admin, &router, &ledger).await);
    let swaying = tokio::spawn(sway(admin.clone(), router.clone()));
    let (before, start) = (grants.load(Ordering::Relaxed), Instant::now());
    let gaps = gaps(&admin, &router, &ledger).await;
    let others = grants.load(Ordering::Relaxed) - before;
    show("1 000 others move to and fro", &gaps);
    println!("the others meanwhile: {others} moves, {:.0}/s", others as f64 / start.elapsed().as_secs_f64());

    swaying.abort();
    for worker in workers {
        worker.leave().await.unwrap();
    }
    for node in nodes {
        node.shutdown().await.unwrap();
    }
}
