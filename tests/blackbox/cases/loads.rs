//! Measured loads, from the owners to the moves that follow.

use crate::cluster::{Cluster, until};
use ringfence::admin::{Admin, BalanceBy, PolicyChange};
use ringfence::ids::PartitionId;
use ringfence::ownership::NotOwner;
use ringfence::{Ownership, Worker};
use ringfence_server::Settings;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const PARTITIONS: u32 = 8;
const EVERY: Duration = Duration::from_millis(120);
/// No partition.
const NONE: u32 = u32::MAX;

/// A worker whose owners say that a usual partition counts 100, and the hot one 600.
async fn join(cluster: &Cluster, name: &str, hot: &Arc<AtomicU32>) -> Worker {
    let hot = Arc::clone(hot);
    let owner = move |partition: Ownership| {
        let hot = Arc::clone(&hot);
        async move {
            partition.ready().await?;
            let mut tick = tokio::time::interval(EVERY / 4);
            while partition.until_revoked(tick.tick()).await.is_some() {
                let is_hot = hot.load(Ordering::Relaxed) == partition.partition().get();
                partition.report_load(if is_hot { 600 } else { 100 });
            }
            Ok::<(), NotOwner>(())
        }
    };
    Worker::builder(name).coordinator(cluster.endpoints().as_str()).own("orders", owner).join().await.unwrap()
}

/// How many partitions each worker owns, when all are ready.
async fn spread(admin: &Admin) -> Option<BTreeMap<String, usize>> {
    let mut spread = BTreeMap::new();
    for partition in admin.partitions("orders").await.unwrap() {
        let owner = partition.owner.filter(|_| partition.ready)?;
        *spread.entry(owner.worker.to_string()).or_default() += 1;
    }
    Some(spread)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_partition_makes_its_worker_give_others_away_and_then_all_is_quiet() {
    let mut settings = Settings::in_memory();
    settings.placing.measure_every = EVERY;
    let cluster = Cluster::one_with(settings).await;
    let admin = cluster.admin();
    let policy = PolicyChange {
        ttl: Some(Duration::from_secs(5)),
        balance_by: Some(BalanceBy::Load),
        ..PolicyChange::default()
    };
    admin.create_keyspace("orders", PARTITIONS, &policy).await.unwrap();
    let hot = Arc::new(AtomicU32::new(NONE));
    let workers = [join(&cluster, "w1", &hot).await, join(&cluster, "w2", &hot).await];
    let evenly = BTreeMap::from([("w1".to_owned(), 4), ("w2".to_owned(), 4)]);
    until("both have half of the load", async || spread(&admin).await.filter(|found| *found == evenly)).await;
    until("all loads are known", async || {
        let all = admin.partitions("orders").await.unwrap();
        all.iter().all(|partition| partition.load == Some(100)).then_some(())
    })
    .await;

    let first = admin.partitions("orders").await.unwrap();
    let theirs = first.iter().find(|partition| partition.owner.as_ref().unwrap().worker.as_str() == "w1");
    let busy = theirs.unwrap().partition;
    hot.store(busy.get(), Ordering::Relaxed);
    let made_room = BTreeMap::from([("w1".to_owned(), 2), ("w2".to_owned(), 6)]);
    until("w1 has made room", async || spread(&admin).await.filter(|found| *found == made_room)).await;

    // What moved says why, and what is hot has stayed where it was.
    let mut moved = 0;
    for number in 0..PARTITIONS {
        let detail = admin.partition("orders", PartitionId::new(number)).await.unwrap();
        let before = first[number as usize].epoch;
        if detail.partition.epoch != before {
            assert_ne!(detail.partition.partition, busy);
            let since = detail.history.iter().filter(|tenure| Some(tenure.epoch) > before);
            since.for_each(|tenure| assert_eq!(tenure.reason, "load", "{detail:?}"));
            moved += 1;
        }
    }
    assert_eq!(moved, 2, "no more than it takes");
    let told = admin.explain("orders", busy).await.unwrap();
    assert!(told.load.as_ref().is_some_and(|(load, source)| *load > 300 && source == "measured"), "{told:?}");

    // A steady load moves nothing more: shown by time that passes, twenty measurements of everything.
    let epochs = cluster.epochs("orders").await;
    tokio::time::sleep(EVERY * 20).await;
    assert_eq!(cluster.epochs("orders").await, epochs);
    let plan = admin.plan("orders", &[]).await.unwrap();
    assert_eq!((plan.balanced_by, plan.moves.len()), (BalanceBy::Load, 0), "{plan:?}");
    for worker in workers {
        worker.leave().await.unwrap();
    }
}
