//! Operators' calls to a scripted node.

mod fences;
mod locks;
mod placement;

use super::{Admin, Drill, DrillMode, HeldWrite, MoveStarted, Phase, PolicyChange, Takeover, Verdict};
use crate::error::ErrorKind;
use crate::net::fake::{Answered, Asked, Fake};
use ringfence_api::{Failure, v1};
use ringfence_core::ids::{Epoch, KeyspaceName, LogIndex, MoveId, NodeId, PartitionId, WorkerId};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn status() -> Answered {
    Answered::Status(v1::ClusterStatusResponse { applied_index: 77, ..Default::default() })
}

fn keyspace() -> v1::Keyspace {
    let policy = v1::KeyspacePolicy {
        ttl_ms: 3_000,
        takeover: v1::Takeover::Fence.into(),
        max_moves_in_flight: 4,
        ..Default::default()
    };
    v1::Keyspace { name: "orders".to_owned(), partitions: 64, policy: Some(policy), ..Default::default() }
}

#[tokio::test]
async fn f014_a_change_that_is_sent_again_keeps_its_request_id() {
    static CREATED: AtomicUsize = AtomicUsize::new(0);
    let fake = Fake::start(|asked| match asked {
        Asked::Status => Ok(status()),
        _ => match CREATED.fetch_add(1, Ordering::SeqCst) {
            0 => Err(tonic::Status::unavailable("the connection broke")),
            1 => Err(Failure::unknown_outcome().into()),
            _ => Ok(Answered::Create(v1::CreateKeyspaceResponse { keyspace: Some(keyspace()) })),
        },
    })
    .await;
    let admin = Admin::at(fake.endpoint.to_string()).unwrap();
    let change = PolicyChange { ttl: Some(Duration::from_secs(3)), ..Default::default() };
    let created = admin.create_keyspace("orders", 64, &change).await.unwrap();
    assert_eq!((created.partitions.get(), created.policy.takeover()), (64, Takeover::Fence));

    let sent: Vec<v1::CreateKeyspaceRequest> = fake
        .asked()
        .into_iter()
        .filter_map(|asked| if let Asked::Create(request) = asked { Some(request) } else { None })
        .collect();
    assert_eq!(sent.len(), 3);
    assert!(sent.iter().all(|request| *request == sent[0]));
    let id = sent[0].request.clone().unwrap();
    assert_eq!((id.id.len(), id.seen_index), (16, 77));
    assert_eq!(sent[0].policy.as_ref().unwrap().ttl_ms, Some(3_000));

    admin.create_keyspace("orders", 64, &change).await.unwrap();
    let Some(Asked::Create(another)) = fake.asked().pop() else { panic!() };
    assert_ne!(another.request.unwrap().id, id.id, "another call is another request");
}

/// To remove a node twice is to remove it once, and a leader that removes itself may be gone before it has answered.
#[tokio::test]
async fn a_removal_whose_answer_is_lost_is_asked_for_again_until_the_answer_is_clear() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let fake = Fake::start(|_| match ASKED.fetch_add(1, Ordering::SeqCst) {
        0 | 3 => Err(tonic::Status::unavailable("the connection broke")),
        1 => Err(Failure::unknown_outcome().into()),
        2 | 6 => Ok(Answered::RemoveNode { unchanged: ASKED.load(Ordering::SeqCst) == 7 }),
        _ => Err(Failure::not_found("node 3 is not a member").into()),
    })
    .await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap();
    let node = NodeId::new(3).unwrap();
    assert!(admin.remove_node(node).await.unwrap());
    assert_eq!(fake.asked().len(), 3);
    // The first call has done it.
    assert!(admin.remove_node(node).await.unwrap());
    assert_eq!(fake.asked().len(), 5);
    // Nobody has begun to remove it: it was never there.
    let error = admin.remove_node(node).await.unwrap_err();
    assert_eq!((error.kind(), fake.asked().len()), (ErrorKind::NotFound, 6));
    // It was removed before: there is nothing to do.
    assert!(!admin.remove_node(node).await.unwrap());

    let fake = Fake::start(|_| Err(Failure::unknown_outcome().into())).await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap().within(Duration::from_millis(500));
    let error = admin.remove_node(NodeId::new(3).unwrap()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownOutcome);
    assert!(
        error.to_string().contains("node 3") && error.to_string().contains("takes effect once"),
        "{error}"
    );
}

#[tokio::test]
async fn f056_a_list_larger_than_a_message_arrives_in_pieces() {
    let fake = Fake::start(|asked| {
        let Asked::Partitions(_) = asked else { panic!() };
        let partition = |partition| v1::Partition {
            keyspace: "k".repeat(63),
            partition,
            phase: v1::Phase::Vacant.into(),
            ..Default::default()
        };
        let piece = |piece: u32| v1::ListPartitionsResponse {
            partitions: (piece * 2_000..(piece + 1) * 2_000).map(partition).collect(),
        };
        Ok(Answered::Partitions((0..50).map(piece).collect()))
    })
    .await;
    let list = Admin::at(fake.endpoint.clone()).unwrap().partitions("orders").await.unwrap();
    assert_eq!(list.len(), 100_000);
    assert_eq!((list[99_999].partition, list[0].phase), (PartitionId::new(99_999), Phase::Vacant));
}

#[tokio::test]
async fn a_move_says_what_it_drains_or_that_there_was_nothing_to_do() {
    static MOVED: AtomicUsize = AtomicUsize::new(0);
    let fake = Fake::start(|asked| match asked {
        Asked::Status => Ok(status()),
        _ if MOVED.fetch_add(1, Ordering::SeqCst) == 0 => {
            Ok(Answered::Move(v1::MovePartitionResponse { r#move: 9, from_epoch: 5, ..Default::default() }))
        }
        _ => Ok(Answered::Move(v1::MovePartitionResponse::default())),
    })
    .await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap();
    let to = WorkerId::new("w2").unwrap();
    let started = admin.move_partition("orders", PartitionId::new(3), &to).await.unwrap();
    let expected = MoveStarted { move_id: Some(MoveId::new(9)), from_epoch: Epoch::new(5).ok(), note: None };
    assert_eq!(started, expected);
    let nothing = admin.move_partition("orders", PartitionId::new(3), &to).await.unwrap();
    assert_eq!(nothing, MoveStarted { move_id: None, from_epoch: None, note: None });
}

/// An older coordinator would move the partition, if the request could pass for one that is meant.
#[tokio::test]
async fn what_a_move_would_do_is_asked_without_an_id() {
    let fake = Fake::start(|asked| match asked {
        Asked::Move(request) => {
            assert_eq!((request.dry_run, &request.request, &request.directive), (true, &None, &None));
            let would = v1::MovePartitionResponse { from_epoch: 5, would_change: true, ..Default::default() };
            Ok(Answered::Move(would))
        }
        _ => Ok(status()),
    })
    .await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap().by("ada");
    let to = WorkerId::new("w2").unwrap();
    let would = admin.plan_move("orders", PartitionId::new(3), &to).await.unwrap();
    assert_eq!((would.changes, would.move_id, would.from_epoch), (true, None, Epoch::new(5).ok()));
}

fn drill() -> Drill {
    Drill {
        keyspace: KeyspaceName::new("orders").unwrap(),
        partition: None,
        worker: WorkerId::new("w1").ok(),
        mode: DrillMode::Stall,
        timeout: Duration::from_secs(60),
    }
}

fn drilled(write: v1::WriteOutcome, stale_reads_accepted: u32) -> v1::RunDrillResponse {
    let finding = v1::drill_request::Finding {
        write: write.into(),
        error: "the probe panicked".to_owned(),
        stale_reads_accepted,
        gap_ms: 12,
        ..Default::default()
    };
    v1::RunDrillResponse {
        keyspace: "orders".to_owned(),
        partition: 3,
        mode: v1::DrillMode::Stall.into(),
        old_worker: "w1".to_owned(),
        old_session: 7,
        old_epoch: 4,
        new_worker: "w2".to_owned(),
        new_session: 8,
        new_epoch: 5,
        partitions_moved: 2,
        ttl_ms: 10_000,
        finding: Some(finding),
    }
}

#[tokio::test]
async fn a_drill_proves_the_fence_only_when_nothing_stale_was_accepted() {
    use v1::WriteOutcome::{Accepted, Refused, Unknown, Unspecified};
    for (write, reads, verdict) in [
        (Refused, 0, Verdict::Fenced),
        (Refused, 1, Verdict::StaleReadAccepted),
        (Accepted, 0, Verdict::StaleWriteAccepted),
        (Accepted, 1, Verdict::StaleWriteAccepted),
        (Unknown, 0, Verdict::Unproven),
        (Unspecified, 0, Verdict::Unproven),
        (Unknown, 1, Verdict::StaleReadAccepted),
    ] {
        let fake = Fake::start(move |_| Ok(Answered::Drill(drilled(write, reads)))).await;
        let report = Admin::at(fake.endpoint.clone()).unwrap().drill(&drill()).await.unwrap();
        assert_eq!(report.verdict(), verdict, "{report:?}");
        assert_eq!((report.new_epoch.get(), report.plan.epoch.get(), report.plan.moves), (5, 4, 2));
        if verdict == Verdict::Unproven {
            assert_eq!(report.write, HeldWrite::Unknown("the probe panicked".to_owned()));
        }
        let Some(Asked::Drill(asked)) = fake.asked().pop() else { panic!() };
        assert_eq!((asked.worker.as_str(), asked.partition, asked.timeout_ms), ("w1", None, 60_000));
        assert!(asked.mode() == v1::DrillMode::Stall && !asked.dry_run);
    }
    let without = |_| Ok(Answered::Drill(v1::RunDrillResponse { finding: None, ..drilled(Refused, 0) }));
    let fake = Fake::start(without).await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap();
    assert!(admin.drill(&drill()).await.unwrap_err().to_string().contains("finding"));
    assert_eq!(admin.plan_drill(&drill()).await.unwrap().heir, WorkerId::new("w2").ok());
}

#[tokio::test]
async fn a_drill_that_is_given_too_little_or_too_much_time_is_asked_of_nobody() {
    let fake = Fake::start(|_| Err(Failure::invalid("nobody asks").into())).await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap();
    for timeout in [Duration::ZERO, Duration::from_millis(999), Duration::from_secs(1_801), Duration::MAX] {
        let drill = Drill { timeout, ..drill() };
        for error in [admin.drill(&drill).await.unwrap_err(), admin.plan_drill(&drill).await.unwrap_err()] {
            assert!(
                error.kind() == ErrorKind::Invalid && error.to_string().contains("1s to 1800s"),
                "{error}"
            );
        }
    }
    assert!(fake.asked().is_empty());
}

#[tokio::test]
async fn a_drill_whose_leader_is_lost_is_not_run_twice_and_may_be_run_again() {
    for lost in [tonic::Status::unavailable("the connection broke"), Failure::interrupted("no more").into()] {
        let fake = Fake::start(move |_| Err(lost.clone())).await;
        let error = Admin::at(fake.endpoint.clone()).unwrap().drill(&drill()).await.unwrap_err();
        assert_eq!((error.kind(), fake.asked().len()), (ErrorKind::Interrupted, 1), "{error}");
        assert!(error.is_retryable() && error.to_string().contains("run it again"), "{error}");
    }
}

#[tokio::test]
async fn what_cannot_be_a_name_a_count_or_an_address_is_not_even_sent() {
    let fake = Fake::start(|_| Ok(status())).await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap();
    let default = PolicyChange::default();
    for error in [
        admin.create_keyspace("Orders", 1, &default).await.unwrap_err(),
        admin.create_keyspace("orders", 0, &default).await.unwrap_err(),
        admin.partitions("a\nb").await.unwrap_err(),
        admin.add_node(NodeId::new(4).unwrap(), "nowhere").await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(!error.to_string().contains('\n'));
    }
    assert!(fake.asked().is_empty());
}

#[tokio::test]
async fn f096_an_answer_that_makes_no_sense_names_the_field() {
    let fake = Fake::start(|asked| match asked {
        Asked::Lookup(_) => Ok(Answered::Lookup(v1::LookupResponse {
            entry: Some(v1::MapEntry {
                keyspace: "orders".to_owned(),
                epoch: u64::MAX,
                ..Default::default()
            }),
            revision: 1,
        })),
        _ => Ok(Answered::Status(v1::ClusterStatusResponse {
            nodes: vec![v1::Node { node: 1, ..Default::default() }],
            ..Default::default()
        })),
    })
    .await;
    let admin = Admin::at(fake.endpoint.clone()).unwrap();
    let error = admin.locate_key("orders", "key").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
    assert!(error.to_string().contains("entry.epoch"), "{error}");
    let error = admin.cluster_status().await.unwrap_err();
    assert!(error.to_string().contains("nodes[0].role"), "{error}");
}

#[tokio::test]
async fn the_status_of_a_cluster_that_forms_has_no_name_and_no_leader() {
    let fake = Fake::start(|_| Ok(status())).await;
    let status = Admin::at(fake.endpoint.clone()).unwrap().cluster_status().await.unwrap();
    assert_eq!((status.cluster, status.leader, status.applied), (None, None, LogIndex::new(77)));
}

#[test]
fn calls_can_be_spawned() {
    fn is_send<T: Send>(_: T) {}
    let admin = Admin::at("http://127.0.0.1:1").unwrap();
    is_send(admin.health());
    is_send(admin.partitions("orders"));
    is_send(admin.create_keyspace("orders", 1, &PolicyChange::default()));
    is_send(admin.plan("orders", &[]));
    is_send(admin.undo_plan(None));
    is_send(crate::router::Router::connect("http://127.0.0.1:1", ["orders"]));
}
