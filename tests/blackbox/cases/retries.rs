//! Replies that are lost, requests that come late.

use crate::cluster::proxy::Network;
use crate::cluster::wire::{self, Session, at_the_leader, request_id};
use crate::cluster::{Cluster, soon, until};
use ringfence::admin::{Admin, PolicyChange};
use ringfence::ids::PartitionId;
use ringfence_api::v1::{self, attach_response};
use ringfence_api::{ErrorKind, Failure};
use std::time::Duration;

/// A lease that a session which is not renewed keeps for the whole of a test.
const LEASE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f007_a_release_whose_reply_was_lost_frees_no_newer_grant_when_it_is_sent_again() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, LEASE).await;
    let network = Network::to(cluster.addresses()).await;
    let mut session = Session::open(&network.endpoint(cluster.address(1)), "w1", "orders").await;
    let first = session.granted(0).await;
    let release = session.release_of(&first);
    // The release arrives, and its reply does not.
    network.all(|weather| weather.replies_stall = true);
    let mut client = session.client.clone();
    let lost = tokio::spawn({
        let release = release.clone();
        async move { client.report(release).await }
    });
    until("the partition is granted again", async || {
        let partition = cluster.partition("orders", 0).await;
        partition.owner.filter(|_| partition.epoch.is_some_and(|e| e.get() > first.epoch))
    })
    .await;
    network.reset();
    assert!(soon("the call has failed", lost).await.unwrap().is_err());
    network.heal();

    let before = cluster.partition("orders", 0).await;
    let mut again = wire::workers(&cluster.endpoints()).await;
    again.report(release).await.unwrap();
    let after = cluster.partition("orders", 0).await;
    assert_eq!(after, before, "a success that changes nothing");
    assert_eq!(after.epoch.unwrap().get(), first.epoch + 1);
    assert_eq!(after.owner.unwrap().session.get(), session.id);
}

/// An operator's request is committed, its reply is lost, and the leader is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f014_t43_a_request_sent_again_to_the_next_leader_takes_effect_once_also_behind_a_snapshot() {
    let mut cluster = Cluster::three().await;
    cluster.keyspace("orders", 1, LEASE).await;
    let endpoints: Vec<String> = cluster.addresses().map(|at| format!("http://{at}")).collect();
    let leader = cluster.leader().await;
    let mut first = Session::open(&endpoints[leader as usize - 1], "w1", "orders").await;
    let held = first.granted(0).await;
    let second = Session::open(&endpoints[leader as usize - 1], "w2", "orders").await;

    let request = v1::MovePartitionRequest {
        directive: None,
        request: Some(request_id()),
        keyspace: "orders".to_owned(),
        partition: 0,
        to: "w2".to_owned(),
        ..Default::default()
    };
    let network = Network::to(cluster.addresses()).await;
    let mut admin = wire::admin(&network.endpoint(cluster.address(leader))).await;
    network.all(|weather| weather.replies_stall = true);
    let lost = tokio::spawn({
        let request = request.clone();
        async move { admin.move_partition(request).await }
    });
    until("the move is committed", async || cluster.partition("orders", 0).await.moving).await;
    cluster.shutdown(leader).await;
    network.reset();
    assert!(soon("the call has failed", lost).await.unwrap().is_err());

    let ask = || {
        let request = request.clone();
        at_the_leader(&endpoints, async move |mut admin| admin.move_partition(request.clone()).await)
    };
    let answer = ask().await;
    assert_eq!(answer.from_epoch, held.epoch);
    let moving = cluster.partition("orders", 0).await.moving.unwrap();
    assert_eq!(moving.1.get(), answer.r#move, "the move that was committed, not another one");

    // The move is done; the same request must neither begin it again nor be refused.
    let release = first.release_of(&held);
    until("the release is taken", async || {
        for endpoint in &endpoints {
            let Ok(channel) =
                tonic::transport::Channel::from_shared(endpoint.clone()).unwrap().connect().await
            else {
                continue;
            };
            let mut client = v1::worker_service_client::WorkerServiceClient::new(channel);
            if client.report(release.clone()).await.is_ok() {
                return Some(());
            }
        }
        None
    })
    .await;
    let settled = until("the second owns it", async || {
        let partition = cluster.partition("orders", 0).await;
        let owner = partition.owner.as_ref()?;
        (owner.session.get() == second.id).then(|| partition.clone())
    })
    .await;
    assert_eq!(settled.epoch.unwrap().get(), held.epoch + 1);
    assert_eq!(ask().await.r#move, answer.r#move);
    assert_eq!(cluster.partition("orders", 0).await.epoch, settled.epoch);

    // A snapshot, and every node started anew from it.
    cluster.start(leader).await;
    cluster.ready().await;
    for node in cluster.nodes.values() {
        node.context().unwrap().raft.trigger_snapshot().await.unwrap();
    }
    for id in 1..=3 {
        cluster.shutdown(id).await;
    }
    for id in 1..=3 {
        cluster.start(id).await;
    }
    cluster.ready().await;
    assert_eq!(ask().await.r#move, answer.r#move);
    let history = cluster.admin().partition("orders", PartitionId::new(0)).await.unwrap().history;
    assert_eq!(history.iter().filter(|tenure| tenure.worker.as_str() == "w2").count(), 1, "{history:?}");
}

/// The SDK's own retry, which a caller does not see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f014_the_sdk_asks_again_under_the_same_id_when_a_reply_was_lost() {
    let cluster = Cluster::three().await;
    let network = Network::to(cluster.addresses()).await;
    let admin = Admin::new(&network.coordinator());
    admin.cluster_status().await.unwrap();
    let leader = cluster.leader().await;
    let address = cluster.address(leader).to_owned();
    // Its requests arrive there, and no reply comes back.
    network.one(&address, |weather| weather.replies_stall = true);
    let creating =
        tokio::spawn(async move { admin.create_keyspace("orders", 4, &PolicyChange::default()).await });
    until("the keyspace is there", async || cluster.admin().keyspace("orders").await.ok()).await;
    assert!(!creating.is_finished(), "nobody has told it");
    cluster.another_leader().await;
    network.reset();
    let created = soon("the SDK has an answer", creating).await.unwrap();
    assert_eq!(created.unwrap().name.as_str(), "orders", "not: it exists already");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f025_a_heartbeat_after_a_release_or_a_leave_brings_nothing_back() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, LEASE).await;
    let network = Network::to(cluster.addresses()).await;
    let mut first = Session::open(&network.endpoint(cluster.address(1)), "w1", "orders").await;
    let held = first.granted(0).await;
    let mut second = Session::open(&cluster.endpoints(), "w2", "orders").await;
    // A renewal is on its way while the partition is given back over another connection.
    network.all(|weather| weather.requests_stall = true);
    first.renew().await;
    let mut withdrawing = first.release_of(&held);
    withdrawing.withdraw = true;
    let mut other_way = wire::workers(&cluster.endpoints()).await;
    other_way.report(withdrawing).await.unwrap();
    let granted = second.granted(held.epoch).await;
    network.heal();
    // It is acknowledged, for the session lives; what was released stays so.
    loop {
        match first.next().await.unwrap() {
            attach_response::Message::Acknowledgement(_) => break,
            attach_response::Message::Assignment(assignment) => assert!(assignment.held.is_empty()),
            attach_response::Message::Drill(order) => panic!("{order:?}"),
        }
    }
    let partition = cluster.partition("orders", 0).await;
    assert_eq!(partition.epoch.unwrap().get(), granted.epoch);
    assert_eq!(partition.owner.unwrap().session.get(), second.id);

    // And one that follows the leave is told that the session is over.
    network.all(|weather| weather.requests_stall = true);
    first.renew().await;
    let leave = v1::LeaveRequest { session: first.id, secret: wire::SECRET.to_vec().into() };
    other_way.leave(leave.clone()).await.unwrap();
    other_way.leave(leave).await.unwrap();
    network.heal();
    let failure: Failure = soon("the stream ends", async {
        loop {
            if let Err(failure) = first.next().await {
                return failure;
            }
        }
    })
    .await;
    assert_eq!(failure.kind(), ErrorKind::SessionEnded, "{failure}");
    assert_eq!(cluster.admin().workers().await.unwrap().len(), 1);
}
