//! Drills that are cut short: whoever was drilled goes on as if nothing had been.

use crate::cluster::member::Member;
use crate::cluster::store::Store;
use crate::cluster::{Cluster, soon, until};
use ringfence::admin::{Drill, DrillMode};
use ringfence::ids::{KeyspaceName, WorkerId};
use ringfence::worker::Probed;
use ringfence::{ErrorKind, FencingToken, Ownership, Worker};
use std::time::Duration;

/// A third of it until a silent worker is suspected, and the rest for it to be heard from again.
const TTL: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_leader_during_a_stall_costs_nobody_a_partition_and_sends_nothing() {
    let cluster = Cluster::three().await;
    cluster.keyspace("orders", 2, TTL).await;
    let store = Store::fenced(cluster.id().await);
    let mut members = Vec::new();
    for name in ["w1", "w2"] {
        let probed = store.clone();
        let builder = Worker::builder(name)
            .coordinator(cluster.endpoints().as_str())
            .allow_drill("orders", move |stamp: FencingToken| {
                std::future::ready(Probed::from_fence(probed.write(&stamp, "probe")))
            });
        members.push(Member::join(builder, "orders", &store).await);
    }
    until("every owner is ready", async || (cluster.admin().health().await.ok()?.ready == 2).then_some(()))
        .await;
    let partition = cluster.partition("orders", 0).await;
    let worker = partition.owner.unwrap().worker;
    let owned: Vec<Ownership> = members.iter().flat_map(|member| member.worker.owned()).collect();
    let before = cluster.epochs("orders").await;

    let drill = Drill {
        keyspace: KeyspaceName::new("orders").unwrap(),
        partition: Some(partition.partition),
        worker: Some(worker.clone()),
        mode: DrillMode::Stall,
        timeout: Duration::from_secs(60),
    };
    let admin = cluster.admin();
    let running = tokio::spawn(async move { admin.drill(&drill).await });
    let thirds = async |worker: &WorkerId| {
        let workers = cluster.admin().workers().await.ok()?;
        workers.iter().find(|w| w.worker == *worker).map(|w| w.suspicion_thirds)
    };
    until("its silence is noticed", async || thirds(&worker).await.filter(|thirds| *thirds > 0)).await;
    cluster.another_leader().await;

    let error = soon("the drill ends", running).await.unwrap().unwrap_err();
    assert!(error.kind() == ErrorKind::Interrupted && error.is_retryable(), "{error:?}");
    until("it is heard from again", async || thirds(&worker).await.filter(|thirds| *thirds == 0)).await;
    assert_eq!(cluster.epochs("orders").await, before);
    assert!(owned.len() == 2 && owned.iter().all(Ownership::is_valid), "{owned:?}");
    assert_eq!(store.writes().len(), 1, "the held write was never sent");
}
