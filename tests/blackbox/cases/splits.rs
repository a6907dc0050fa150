//! A keyspace whose partitions are split, and who may take part in it.

use crate::cluster::member::Member;
use crate::cluster::store::Store;
use crate::cluster::wire::{admin, join, map, request_id, workers};
use crate::cluster::{Cluster, soon, until};
use ringfence::admin::PolicyChange;
use ringfence::router::Router;
use ringfence::{ErrorKind, Ownership, Worker};
use ringfence_api::{Failure, v1};
use std::collections::BTreeSet;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(3);

fn start(name: &str, from: u32) -> v1::SplitKeyspaceRequest {
    let request = Some(request_id());
    v1::SplitKeyspaceRequest { request, name: name.to_owned(), from, to: 2 * from, ..Default::default() }
}

/// Neither comes to what the other would break: a worker that does not know of splits would raise its own fence and not its
/// partition's parent's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f061_a_worker_that_does_not_know_of_splits_and_a_split_refuse_each_other() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 2, TTL).await;
    let endpoint = cluster.endpoints();
    let (mut admin, mut workers) = (admin(&endpoint).await, workers(&endpoint).await);
    let old = workers.join(join("old", "orders")).await.unwrap().into_inner();
    let refused = |status: tonic::Status| {
        let failure = Failure::from_status(&status).unwrap();
        assert_eq!(failure.kind(), ringfence_api::ErrorKind::Refused);
        failure.message().to_owned()
    };
    let why = refused(admin.split_keyspace(start("orders", 2)).await.unwrap_err());
    assert!(why.contains("worker old") && why.contains("Ownership::covers"), "{why}");
    let leave =
        v1::LeaveRequest { session: old.session, secret: crate::cluster::wire::SECRET.to_vec().into() };
    workers.leave(leave).await.unwrap();
    admin.split_keyspace(start("orders", 2)).await.unwrap();
    let why = refused(workers.join(join("old", "orders")).await.unwrap_err());
    assert!(why.contains("worker old"), "{why}");
    let knows = v1::JoinRequest { splits: true, ..join("new", "orders") };
    workers.join(knows).await.unwrap();

    // Any other number is no split, and the answer says why.
    for to in [3, 5, 12] {
        let other = v1::SplitKeyspaceRequest { to, ..start("orders", 4) };
        let failure = Failure::from_status(&admin.split_keyspace(other).await.unwrap_err()).unwrap();
        assert_eq!(failure.kind(), ringfence_api::ErrorKind::Invalid);
        assert!(failure.message().contains("in no other way"), "{failure}");
    }
}

/// Routers, lookups and owners agree on every key, before, midway and after; and a reader that would not is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f061_routers_owners_and_the_coordinator_agree_on_every_key_while_a_keyspace_is_split() {
    let cluster = Cluster::one().await;
    // Held up halfway by the bound on moves in a minute, of which none is made for balance.
    let paced = PolicyChange {
        ttl: Some(TTL),
        balance: Some(false),
        moves_per_minute: Some(3),
        ..PolicyChange::default()
    };
    cluster.keyspace_with("orders", 6, paced).await;
    let store = Store::fenced(cluster.id().await);
    let mut members = Vec::new();
    for name in ["w1", "w2"] {
        let builder = Worker::builder(name).coordinator(cluster.endpoints().as_str()).splittable();
        members.push(Member::join(builder, "orders", &store).await);
    }
    let router = Router::connect(cluster.endpoints().as_str(), ["orders"]).await.unwrap();
    let ready = async |count: u64| {
        until("every owner is ready", async || {
            (cluster.admin().health().await.ok()?.ready == count).then_some(())
        })
        .await;
    };
    ready(6).await;
    cluster.admin().split_keyspace("orders", 6).await.unwrap();
    ready(9).await;
    agree(&cluster, &router, &members, 9).await;

    let endpoint = cluster.endpoints();
    let old = v1::WatchRequest { keyspaces: vec!["orders".to_owned()], ..Default::default() };
    let mut stream = map(&endpoint).await.watch(old).await.unwrap().into_inner();
    let told = soon("a reader that knows no splits is told", stream.message()).await.unwrap_err();
    assert_eq!(Failure::decode(&told).kind(), ringfence_api::ErrorKind::UnsupportedProtocol);

    let at_once = PolicyChange { moves_per_minute: Some(0), ..PolicyChange::default() };
    cluster.admin().update_keyspace("orders", &at_once).await.unwrap();
    ready(12).await;
    agree(&cluster, &router, &members, 12).await;
    let error = cluster.admin().split_keyspace("orders", 6).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}

async fn agree(cluster: &Cluster, router: &Router, members: &[Member], count: u32) {
    let view = router
        .wait_for(|view| view.keyspace("orders").is_some_and(|orders| orders.count().get() == count))
        .await;
    let owned: Vec<Ownership> = members.iter().flat_map(|member| member.worker.owned()).collect();
    assert_eq!(owned.len(), count as usize);
    let mut hit = BTreeSet::new();
    for number in 0..200_u32 {
        let key = number.to_le_bytes();
        let partition = view.keyspace("orders").unwrap().partition_of(key);
        let covering: Vec<_> = owned.iter().filter(|o| o.covers(key)).map(Ownership::partition).collect();
        assert_eq!(covering, [partition], "key {number}");
        if hit.insert(partition) {
            let asked = v1::LookupRequest {
                keyspace: "orders".to_owned(),
                target: Some(v1::lookup_request::Target::Key(key.to_vec().into())),
            };
            let found =
                map(&cluster.endpoints()).await.lookup(asked).await.unwrap().into_inner().entry.unwrap();
            assert_eq!(found.partition, partition.get());
        }
    }
    assert_eq!(hit.len(), count as usize);
}
