use crate::testing::{self, Cluster, SECRET, create, join, request_id, until};
use ringfence_api::v1::fence_service_client::FenceServiceClient;
use ringfence_api::v1::report_item::{Behind, Ready, Released, What};
use ringfence_api::{ErrorKind, Failure, v1};
use tonic::Status;
use tonic::transport::Channel;

type Client = FenceServiceClient<Channel>;

async fn client(node: &crate::Coordinator) -> Client {
    FenceServiceClient::new(testing::channel(node).await)
}

fn kind(status: &Status) -> ErrorKind {
    Failure::decode(status).kind()
}

fn name_of(node: &crate::Coordinator) -> String {
    let context = node.context().unwrap();
    let local = context.replica.lock();
    local.state.cluster().unwrap().id.to_string()
}

fn item(scope: &str, own_epoch: u64, count: u64) -> v1::RefusalItem {
    v1::RefusalItem {
        scope: scope.into(),
        own_epoch,
        highest_epoch: own_epoch + 1,
        store: "ledger".into(),
        observed: false,
        count,
        first_ago_ms: 500,
        last_ago_ms: 100,
    }
}

fn told(node: &crate::Coordinator, items: Vec<v1::RefusalItem>) -> v1::ReportRefusalsRequest {
    v1::ReportRefusalsRequest { cluster: name_of(node), worker: "w1".into(), items }
}

async fn listed(client: &mut Client, keyspace: &str) -> Result<Vec<v1::RefusedWrites>, Status> {
    let request = v1::ListRefusalsRequest { keyspace: keyspace.into() };
    Ok(client.list_refusals(request).await?.into_inner().refusals)
}

/// What partition 0 of `orders` is, when it has an owner.
async fn owned(node: &crate::Coordinator) -> (u64, bool, String) {
    let mut admin = testing::admin(node).await;
    until("somebody owns it", async || {
        let get = v1::GetPartitionRequest { keyspace: "orders".into(), partition: 0 };
        let answer = admin.get_partition(get).await.ok()?.into_inner();
        let partition = answer.partition?;
        partition.owner.as_ref()?;
        Some((partition.epoch, partition.ready, answer.history.first()?.reason.clone()))
    })
    .await
}

async fn say(node: &crate::Coordinator, session: u64, epoch: u64, what: What) -> Result<(), Status> {
    let item = v1::ReportItem { keyspace: "orders".into(), partition: 0, epoch, what: Some(what) };
    let report = v1::ReportRequest { session, secret: SECRET.into(), items: vec![item], withdraw: false };
    testing::workers(node).await.report(report).await.map(drop)
}

/// A node whose worker `w1` owns the one partition of `orders`.
async fn alone() -> (crate::Coordinator, Client, u64) {
    let node = testing::alone().await;
    testing::admin(&node).await.create_keyspace(create("orders", 1)).await.unwrap();
    let session = join(&node, "w1", "orders").await;
    let client = client(&node).await;
    (node, client, session)
}

#[tokio::test]
async fn f076_a_refused_write_is_told_without_a_session_and_listed_with_what_it_means() {
    let (node, mut client, session) = alone().await;
    let (first, ..) = owned(&node).await;
    say(&node, session, first, What::Released(Released {})).await.unwrap();
    until("it is granted again", async || (owned(&node).await.0 > first).then_some(())).await;
    // The worker's session is over by the time anybody hears of its write.
    let leave = v1::LeaveRequest { session, secret: SECRET.into() };
    testing::workers(&node).await.leave(leave).await.unwrap();

    client.report_refusals(told(&node, vec![item("orders/0", first, 3)])).await.unwrap();
    client.report_refusals(told(&node, vec![item("orders/0", first, 4)])).await.unwrap();
    let writes = until("both are noted", async || {
        let writes = listed(&mut client, "orders").await.unwrap().pop()?;
        (writes.count == 7).then_some(writes)
    })
    .await;
    let writer = writes.writer.unwrap();
    assert_eq!((writer.worker.as_str(), writer.epoch, writer.lives), ("w1", first, false));
    assert_eq!((writes.store.as_str(), writes.reporter.as_str()), ("ledger", "w1"));
    assert!(writes.first_unix_ms < writes.last_unix_ms);
    assert!(writes.means.contains("worker w1") && writes.means.contains("orders/0"), "{}", writes.means);

    let health = testing::admin(&node).await.health(v1::HealthRequest {}).await.unwrap().into_inner();
    assert_eq!((health.refusals, health.refusals_observed), (7, 0));
    assert_eq!(health.last_refusal.unwrap().scope, "orders/0");
    assert!(kind(&listed(&mut client, "nothing").await.unwrap_err()) == ErrorKind::NotFound);
}

#[tokio::test]
async fn f096_f057_a_report_that_makes_no_sense_is_refused_and_leaves_nothing() {
    let (node, mut client, _) = alone().await;
    let of = |change: fn(&mut v1::ReportRefusalsRequest)| {
        let mut request = told(&node, vec![item("orders/0", 1, 1)]);
        change(&mut request);
        request
    };
    for (request, expected) in [
        (of(|r| r.cluster = "another".into()), ErrorKind::WrongCluster),
        (of(|r| r.cluster.clear()), ErrorKind::WrongCluster),
        (of(|r| r.worker = "A B".into()), ErrorKind::Invalid),
        (of(|r| r.items.clear()), ErrorKind::Invalid),
        (of(|r| r.items = vec![r.items[0].clone(); 257]), ErrorKind::Invalid),
        (of(|r| r.items[0].scope = "orders".into()), ErrorKind::Invalid),
        (of(|r| r.items[0].scope = "x".repeat(100_000)), ErrorKind::Invalid),
        (of(|r| r.items[0].store = "\u{1b}[31m".into()), ErrorKind::Invalid),
        (of(|r| r.items[0].own_epoch = 0), ErrorKind::Invalid),
        (of(|r| r.items[0].own_epoch = 2), ErrorKind::Invalid),
        (of(|r| r.items[0].highest_epoch = 1 << 53), ErrorKind::Invalid),
        (of(|r| r.items[0].count = 0), ErrorKind::Invalid),
    ] {
        assert_eq!(kind(&client.report_refusals(request).await.unwrap_err()), expected);
    }
    // What is not there is passed over, and takes nothing with it. A clock that is far off is no reason to forget.
    let gone = [item("gone/0", 1, 1), item("orders/9", 1, 1)];
    let ago =
        v1::RefusalItem { first_ago_ms: u64::MAX, last_ago_ms: u64::MAX, ..item("orders/0", 1, u64::MAX) };
    client.report_refusals(told(&node, gone.into_iter().chain([ago]).collect())).await.unwrap();
    let all = until("one is noted", async || {
        let all = listed(&mut client, "").await.unwrap();
        (!all.is_empty()).then_some(all)
    })
    .await;
    assert_eq!((all.len(), all[0].count), (1, u64::MAX));
}

#[tokio::test]
async fn last_nights_refusals_are_there_after_the_leader_has_changed() {
    let mut cluster = Cluster::formed().await;
    let leader = cluster.leader().await;
    cluster.admin(leader).await.create_keyspace(create("orders", 1)).await.unwrap();
    for (id, node) in &cluster.nodes {
        let answer = client(node).await.report_refusals(told(node, vec![item("orders/0", 1, 2)])).await;
        match answer {
            Ok(_) => assert_eq!(*id, leader),
            Err(status) => assert_eq!(kind(&status), ErrorKind::NotLeader, "node {id}, and {leader} leads"),
        }
    }
    let mut at_leader = client(&cluster.nodes[&leader]).await;
    until("it is noted", async || listed(&mut at_leader, "").await.unwrap().pop()).await;
    cluster.crash(leader);
    let writes = until("the next leader answers", async || {
        for (_, node) in cluster.nodes.iter().filter(|(id, _)| **id != leader) {
            if let Ok(writes) = listed(&mut client(node).await, "").await {
                return Some(writes);
            }
        }
        None
    })
    .await;
    assert_eq!(writes.iter().map(|w| w.count).collect::<Vec<_>>(), [2]);
}

#[tokio::test]
async fn f018_f057_the_owner_whose_storage_has_seen_more_is_granted_above_it_and_nobody_else_is_believed() {
    let (node, _, session) = alone().await;
    let (first, ..) = owned(&node).await;
    let behind = |seen, cluster: &str| What::Behind(Behind { seen, cluster: cluster.into() });
    let cluster = name_of(&node);
    for (what, expected) in [
        (behind(150, "another"), ErrorKind::WrongCluster),
        (behind(150, ""), ErrorKind::WrongCluster),
        (behind(first, &cluster), ErrorKind::Invalid),
        (behind(1 << 53, &cluster), ErrorKind::Invalid),
    ] {
        assert_eq!(kind(&say(&node, session, first, what).await.unwrap_err()), expected);
    }
    // A worker that does not own it.
    let other = join(&node, "w2", "orders").await;
    say(&node, other, first, behind(150, &cluster)).await.unwrap();
    assert_eq!(owned(&node).await.0, first);
    say(&node, session, first, behind(150, &cluster)).await.unwrap();
    let (epoch, ready, why) = owned(&node).await;
    assert_eq!((epoch, ready), (151, false));
    assert!(why.contains("storage had seen"), "{why}");
    // Said again, it is about an epoch that is over.
    say(&node, session, first, behind(900, &cluster)).await.unwrap();
    assert_eq!(owned(&node).await.0, 151);
}

#[tokio::test]
async fn t15_an_order_to_raise_again_names_who_has_not_until_it_has() {
    let (node, mut client, session) = alone().await;
    let (first, ..) = owned(&node).await;
    say(&node, session, first, What::Ready(Ready {})).await.unwrap();
    let order = |dry_run, above| v1::ReassertRequest {
        request: request_id(),
        keyspace: "orders".into(),
        partition: (above > 0).then_some(0),
        above,
        directive: None,
        dry_run,
    };
    let would = client.reassert(order(true, 0)).await.unwrap().into_inner();
    assert_eq!((would.order, would.partitions, would.owned), (0, 1, 1));
    let list = async |client: &mut Client| {
        let request = v1::ListReassertsRequest { keyspace: "orders".into() };
        client.list_reasserts(request).await.unwrap().into_inner().reasserts
    };
    assert!(list(&mut client).await.is_empty(), "a dry run does nothing");

    let given = client.reassert(order(false, 0)).await.unwrap().into_inner();
    assert!(given.order > 0);
    let far = until("its owner is told", async || {
        let far = list(&mut client).await.remove(0);
        (far.waiting.first()?.step() == v1::reassert::Step::Ending).then_some(far)
    })
    .await;
    assert_eq!((far.order, far.partitions, far.done, far.waiting_total), (given.order, 1, 0, 1));
    assert_eq!((far.workers[0].worker.as_str(), far.workers[0].partitions), ("w1", 1));
    say(&node, session, first, What::Released(Released {})).await.unwrap();
    let (second, _, why) = owned(&node).await;
    assert!(second > first && why.contains("raised again"), "{why}");
    say(&node, session, second, What::Ready(Ready {})).await.unwrap();
    assert_eq!(list(&mut client).await[0].done, 1);

    // Above what storage has seen, by an operator's word, and within what a fence takes.
    assert_eq!(kind(&client.reassert(order(true, 1 << 50)).await.unwrap_err()), ErrorKind::Refused);
    client.reassert(order(false, 5_000)).await.unwrap();
    until("its owner is told", async || {
        Some(list(&mut client).await[0].waiting.first()?.step() == v1::reassert::Step::Ending)
            .filter(|is| *is)
    })
    .await;
    say(&node, session, second, What::Released(Released {})).await.unwrap();
    assert_eq!(owned(&node).await.0, 5_001);
}

#[tokio::test]
async fn an_order_about_what_is_not_there_or_frozen_is_refused() {
    let (node, mut client, _) = alone().await;
    let order = |keyspace: &str, partition, above| v1::ReassertRequest {
        request: request_id(),
        keyspace: keyspace.into(),
        partition,
        above,
        directive: None,
        dry_run: true,
    };
    let mut placement =
        v1::placement_service_client::PlacementServiceClient::new(testing::channel(&node).await);
    let freeze = v1::FreezeRequest { request: request_id(), frozen: true, ..Default::default() };
    for (request, expected) in [
        (order("nothing", None, 0), ErrorKind::NotFound),
        (order("orders", Some(7), 0), ErrorKind::NotFound),
        (order("ORDERS", None, 0), ErrorKind::Invalid),
        (order("orders", None, 9), ErrorKind::Invalid),
    ] {
        assert_eq!(kind(&client.reassert(request).await.unwrap_err()), expected);
    }
    placement.freeze(freeze).await.unwrap();
    for dry_run in [true, false] {
        let request = v1::ReassertRequest { dry_run, ..order("orders", None, 0) };
        let status = client.reassert(request).await.unwrap_err();
        assert_eq!(kind(&status), ErrorKind::Refused);
        assert!(status.message().contains("frozen"), "{}", status.message());
    }
}
