//! What a coordinator says to those who ask the wrong node or ask nonsense.

use crate::cluster::member::Member;
use crate::cluster::store::Store;
use crate::cluster::wire::{self, SECRET, Session, attach, refused, request_id};
use crate::cluster::{Cluster, soon, until};
use ringfence::Worker;
use ringfence::admin::{Admin, PolicyChange};
use ringfence::router::Router;
use ringfence_api::v1::{self, attach_request, report_item};
use ringfence_api::{ErrorKind, Failure, PROTOCOL};
use std::time::Duration;
use tonic::Code;

const LEASE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f106_a_follower_names_the_leader_and_the_sdk_and_the_router_follow() {
    let cluster = Cluster::three().await;
    cluster.keyspace("orders", 4, LEASE).await;
    let leader = cluster.leader().await;
    let follower = *cluster.nodes.keys().find(|id| **id != leader).unwrap();
    let endpoint = format!("http://{}", cluster.address(follower));
    let named = |failure: Failure| {
        assert_eq!(failure.kind(), ErrorKind::NotLeader, "{failure}");
        failure.leader().map(|leader| (leader.node.get(), leader.address.clone()))
    };
    let expected = Some((leader, cluster.address(leader).to_owned()));
    let mut client = wire::workers(&endpoint).await;
    let status = client.join(wire::join("w1", "orders")).await.unwrap_err();
    assert_eq!(named(Failure::decode(&status)), expected);
    let mut map = wire::map(&endpoint).await;
    let lookup = v1::LookupRequest {
        keyspace: "orders".to_owned(),
        target: Some(v1::lookup_request::Target::Partition(0)),
    };
    assert_eq!(named(Failure::decode(&map.lookup(lookup).await.unwrap_err())), expected);
    let mut admin = wire::admin(&endpoint).await;
    let status = admin.list_keyspaces(v1::ListKeyspacesRequest {}).await.unwrap_err();
    assert_eq!(named(Failure::decode(&status)), expected);

    // The SDK is told of the follower only, and so is the router.
    let store = Store::trusting();
    let builder =
        |name: &str, address: &str| Worker::builder(name).coordinator(endpoint.as_str()).address(address);
    let mut first = Member::join(builder("w1", "10.0.0.1:80"), "orders", &store).await;
    first.granted_many(4).await;
    let admin = Admin::at(endpoint.as_str()).unwrap();
    assert_eq!(admin.partitions("orders").await.unwrap().len(), 4);
    let router = Router::connect(endpoint.as_str(), ["orders"]).await.unwrap();
    let owner =
        soon("the router knows the owner", router.ready_owner("orders", "customer-17")).await.unwrap();
    assert_eq!((owner.worker().as_str(), owner.address()), ("w1", "10.0.0.1:80"));
    let mut second = Member::join(builder("w2", "10.0.0.2:80"), "orders", &store).await;
    cluster.begin_move("orders", owner.partition().get(), "w2").await;
    let moved = second.granted().await;
    let view = router.wait_for(|view| {
        view.owner("orders", "customer-17")
            .is_some_and(|owner| owner.epoch() == moved.epoch() && owner.is_ready())
    });
    let view = soon("the router has followed", view).await;
    let owner = view.owner("orders", "customer-17").unwrap();
    assert_eq!((owner.worker().as_str(), owner.address()), ("w2", "10.0.0.2:80"));
    // And it follows when the node it reads from does not lead, or does.
    cluster.another_leader().await;
    second.worker.leave().await.unwrap();
    let back = router.wait_for(|view| {
        view.owner("orders", "customer-17")
            .is_some_and(|owner| owner.epoch() > moved.epoch() && owner.is_ready())
    });
    assert_eq!(
        soon("it has come back", back).await.owner("orders", "customer-17").unwrap().worker().as_str(),
        "w1"
    );
    // A call that bears the epoch it was routed by finds out at the owner, not at the coordinator.
    assert!(!moved.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f057_another_protocol_another_cluster_and_a_message_too_large_are_refused_in_words() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 1, LEASE).await;
    let mut client = wire::workers(&cluster.endpoints()).await;
    let session = Session::open(&cluster.endpoints(), "w1", "orders").await;
    let workers = cluster.admin().workers().await.unwrap();
    for protocol in [0, PROTOCOL + 1, u32::MAX] {
        let join = v1::JoinRequest { protocol, ..wire::join("w2", "orders") };
        let status = client.join(join).await.unwrap_err();
        let failure = Failure::from_status(&status).unwrap();
        assert_eq!(failure.kind(), ErrorKind::UnsupportedProtocol);
        let side = if protocol > PROTOCOL { "upgrade the coordinator" } else { "upgrade the client" };
        assert!(failure.message().contains(side), "{failure}");
        let open = attach_request::Open { protocol, ..wire::open(session.id, SECRET) };
        let (_requests, stream) = attach(&mut client, attach_request::Message::Open(open)).await;
        assert_eq!(refused(stream), ErrorKind::UnsupportedProtocol);
    }
    for named in ["another", "\x1b[2J", &"x".repeat(100_000)] {
        let join = v1::JoinRequest { cluster: named.to_owned(), ..wire::join("w2", "orders") };
        let status = client.join(join).await.unwrap_err();
        let failure = Failure::from_status(&status).unwrap();
        assert_eq!(failure.kind(), ErrorKind::WrongCluster);
        assert!(failure.message().len() < 2_000 && !failure.message().contains('\x1b'), "{failure}");
        let open = attach_request::Open { cluster: named.to_owned(), ..wire::open(session.id, SECRET) };
        let (_requests, stream) = attach(&mut client, attach_request::Message::Open(open)).await;
        assert_eq!(refused(stream), ErrorKind::WrongCluster);
    }
    // Five MiB: one more than there may be.
    let join = v1::JoinRequest { address: "x".repeat(5 << 20), ..wire::join("w2", "orders") };
    let status = client.join(join).await.unwrap_err();
    assert!(matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted), "{status}");
    assert_eq!(Failure::decode(&status).kind(), ErrorKind::Limit);
    assert_eq!(
        cluster.admin().workers().await.unwrap(),
        workers,
        "nobody joined, and the one who had is there"
    );
}

/// F096: what is beyond every bound is refused, changes nothing, and the node lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f096_numbers_and_sizes_beyond_every_bound_are_refused_and_change_nothing() {
    let cluster = Cluster::one().await;
    cluster.keyspace("orders", 2, LEASE).await;
    let endpoint = cluster.endpoints();
    let mut session = Session::open(&endpoint, "w1", "orders").await;
    let held = session.granted(0).await;
    let admin = cluster.admin();
    let picture = async || {
        let (partitions, workers) =
            (admin.partitions("orders").await.unwrap(), admin.workers().await.unwrap());
        (admin.keyspaces().await.unwrap(), partitions, workers)
    };
    let before = picture().await;
    let mut client = wire::workers(&endpoint).await;
    let mut operator = wire::admin(&endpoint).await;
    let mut map = wire::map(&endpoint).await;

    // Policies.
    let with = |policy: v1::KeyspaceChange, partitions: u32| v1::CreateKeyspaceRequest {
        request: Some(request_id()),
        name: "other".to_owned(),
        partitions,
        policy: Some(policy),
        ..Default::default()
    };
    let plain = v1::KeyspaceChange::default;
    let policies = [
        v1::KeyspaceChange { ttl_ms: Some(u64::MAX), ..plain() },
        v1::KeyspaceChange { ttl_ms: Some(0), ..plain() },
        v1::KeyspaceChange { drain_deadline_ms: Some(u64::MAX), ..plain() },
        v1::KeyspaceChange { lock_delay_ms: Some(u64::MAX), ..plain() },
        v1::KeyspaceChange { max_moves_in_flight: Some(0), ..plain() },
        v1::KeyspaceChange { takeover: Some(i32::MAX), ..plain() },
        v1::KeyspaceChange { takeover: Some(-1), ..plain() },
    ];
    for policy in policies {
        let update = v1::UpdateKeyspaceRequest {
            request: Some(request_id()),
            name: "orders".to_owned(),
            policy: Some(policy.clone()),
            ..Default::default()
        };
        assert_eq!(
            refused(operator.create_keyspace(with(policy.clone(), 1)).await),
            ErrorKind::Invalid,
            "{policy:?}"
        );
        assert_eq!(refused(operator.update_keyspace(update).await), ErrorKind::Invalid, "{policy:?}");
    }
    for partitions in [0, 1_000_001, 1 << 31, u32::MAX] {
        let kind = refused(operator.create_keyspace(with(plain(), partitions)).await);
        assert!(matches!(kind, ErrorKind::Invalid | ErrorKind::Limit), "{partitions}: {kind:?}");
    }
    for id in [None, Some(vec![]), Some(vec![1; 15]), Some(vec![1; 17]), Some(vec![1; 1 << 20])] {
        let request = id.map(|id| v1::RequestId { id: id.into(), seen_index: u64::MAX });
        let delete = v1::DeleteKeyspaceRequest { request, name: "orders".to_owned(), ..Default::default() };
        assert_eq!(refused(operator.delete_keyspace(delete).await), ErrorKind::Invalid);
    }

    // Joins.
    let good = || wire::join("w2", "orders");
    let labels = |count: usize, key: usize, value: usize| {
        let label = |n: usize| (format!("{n:0key$}"), "v".repeat(value));
        v1::JoinRequest { labels: (0..count).map(label).collect(), ..good() }
    };
    let joins = [
        v1::JoinRequest { weight: u32::MAX, ..good() },
        v1::JoinRequest { weight: 10_001, ..good() },
        v1::JoinRequest { nonce: vec![].into(), ..good() },
        v1::JoinRequest { nonce: vec![0; 1 << 20].into(), ..good() },
        v1::JoinRequest { secret_sha256: vec![0; 31].into(), ..good() },
        v1::JoinRequest { address: "x".repeat(256), ..good() },
        v1::JoinRequest { address: "two\nlines".to_owned(), ..good() },
        v1::JoinRequest { keyspaces: vec![], ..good() },
        v1::JoinRequest { keyspaces: vec!["orders".to_owned(); 1_001], ..good() },
        labels(33, 3, 1),
        labels(1, 64, 1),
        labels(1, 1, 64),
        labels(1, 1, 3 << 20),
        labels(100_000, 6, 1),
    ];
    for join in joins {
        let short = format!("{:.200}", format!("{join:?}"));
        assert_eq!(refused(client.join(join).await), ErrorKind::Invalid, "{short}");
    }

    // Streams: an empty message, a renewal before it is open, no session at all, and one that never was.
    let (requests, stream) =
        attach(&mut client, attach_request::Message::Renew(attach_request::Renew { number: u64::MAX })).await;
    assert_eq!(refused(stream), ErrorKind::Invalid);
    drop(requests);
    let (requests, outgoing) = tokio::sync::mpsc::channel(1);
    requests.send(v1::AttachRequest { message: None }).await.unwrap();
    let stream = client.attach(tokio_stream::wrappers::ReceiverStream::new(outgoing)).await;
    assert_eq!(refused(stream), ErrorKind::Invalid);
    for (number, kind) in [(0, ErrorKind::Invalid), (u64::MAX, ErrorKind::SessionEnded)] {
        let open = attach_request::Message::Open(wire::open(number, SECRET));
        let (_requests, stream) = attach(&mut client, open).await;
        assert_eq!(refused(stream), kind);
        let report = v1::ReportRequest { session: number, ..session.release_of(&held) };
        assert_eq!(refused(client.report(report).await), kind);
    }

    // Reports: epochs that were never granted, partitions that are not there, nothing said, too much said.
    let released = || Some(report_item::What::Released(report_item::Released {}));
    let item = |partition: u32, epoch: u64, what| v1::ReportItem {
        keyspace: "orders".to_owned(),
        partition,
        epoch,
        what,
    };
    let wrong = [
        item(held.partition, 0, released()),
        item(held.partition, u64::MAX, released()),
        item(held.partition, 1 << 53, released()),
        item(u32::MAX, held.epoch, released()),
        item(2, held.epoch, released()),
        item(held.partition, held.epoch, None),
        v1::ReportItem { keyspace: "no\nname".to_owned(), ..item(0, 1, released()) },
    ];
    for item in wrong {
        // One malformed item takes no other with it, whichever comes first.
        let others = Session::item(&held, released().unwrap());
        let report = session.report_of(vec![others, item.clone()]);
        assert_eq!(refused(client.report(report).await), ErrorKind::Invalid, "{item:?}");
    }
    let many = session.report_of(vec![item(held.partition, held.epoch, released()); 1_001]);
    assert_eq!(refused(client.report(many).await), ErrorKind::Limit);
    // An epoch that may be granted one day is not granted now.
    let future = session.report_of(vec![item(held.partition, (1 << 53) - 1, released())]);
    let _ = client.report(future).await;

    // Lookups and the rest of the operator's calls.
    for target in [None, Some(v1::lookup_request::Target::Partition(u32::MAX))] {
        let lookup = v1::LookupRequest { keyspace: "orders".to_owned(), target };
        let kind = refused(map.lookup(lookup).await);
        assert!(matches!(kind, ErrorKind::Invalid | ErrorKind::NotFound), "{kind:?}");
    }
    let get = v1::GetPartitionRequest { keyspace: "orders".to_owned(), partition: u32::MAX };
    assert_eq!(refused(operator.get_partition(get).await), ErrorKind::NotFound);
    for epoch in [0, u64::MAX] {
        let end = v1::EndCoolingRequest {
            request: Some(request_id()),
            keyspace: "orders".to_owned(),
            partition: held.partition,
            epoch,
            ..Default::default()
        };
        assert_eq!(refused(operator.end_cooling(end).await), ErrorKind::Invalid);
    }
    let moving = v1::MovePartitionRequest {
        directive: None,
        request: Some(request_id()),
        keyspace: "orders".to_owned(),
        partition: u32::MAX,
        to: "w1".to_owned(),
        ..Default::default()
    };
    assert_eq!(refused(operator.move_partition(moving).await), ErrorKind::NotFound);
    for (node, kind) in [(u64::MAX, ErrorKind::Invalid), (99, ErrorKind::NotFound)] {
        let transfer = v1::TransferLeadershipRequest { to: node, directive: None };
        assert_eq!(refused(operator.transfer_leadership(transfer).await), kind, "{node}");
        assert_eq!(
            refused(
                operator.remove_node(v1::RemoveNodeRequest { node, dry_run_of: 0, directive: None }).await
            ),
            kind,
            "{node}"
        );
    }
    assert_eq!(
        refused(
            operator.add_node(v1::AddNodeRequest { node: 0, address: String::new(), directive: None }).await
        ),
        ErrorKind::Invalid
    );

    // A watch that asks to resume from the end of time waits or starts anew; it takes nobody with it.
    let watch = v1::WatchRequest {
        keyspaces: vec!["orders".to_owned()],
        lineage: "another".to_owned(),
        revision: u64::MAX,
        splits: true,
    };
    let mut stream = map.watch(watch).await.unwrap().into_inner();
    let first = soon("a full picture", stream.message()).await.unwrap().unwrap();
    assert!(first.reset, "another lineage is a full picture");

    assert_eq!(picture().await, before);
    // The node is alive, and the session that was spoken for is, too.
    session.renew().await;
    until("it is acknowledged", async || match session.next().await.unwrap() {
        v1::attach_response::Message::Acknowledgement(acknowledgement) => Some(acknowledgement.number),
        v1::attach_response::Message::Assignment(_) | v1::attach_response::Message::Drill(_) => None,
    })
    .await;
}

/// The same rules with and without the SDK: what cannot work is refused where it is said, with the rule.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f062_a01_timing_that_cannot_work_is_refused_with_the_rule() {
    let cluster = Cluster::three().await;
    let admin = cluster.admin();
    let ttl = |ms| PolicyChange { ttl: Some(Duration::from_millis(ms)), ..PolicyChange::default() };
    // Below the bound of every cluster; below three elections of this one, whose timings are slow.
    for (ms, rule) in [(0, "1s to 10m"), (999, "1s to 10m"), (600_001, "1s to 10m"), (1_500, "election")] {
        let error = admin.create_keyspace("orders", 1, &ttl(ms)).await.unwrap_err();
        assert!(error.kind() == ringfence::ErrorKind::Invalid && error.to_string().contains(rule), "{error}");
    }
    admin.create_keyspace("orders", 1, &ttl(2_000)).await.unwrap();
    let error = admin.update_keyspace("orders", &ttl(1_500)).await.unwrap_err();
    assert!(error.to_string().contains("election"), "{error}");
    assert_eq!(admin.keyspace("orders").await.unwrap().policy.ttl(), Duration::from_secs(2));
}
