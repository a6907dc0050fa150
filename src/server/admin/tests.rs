use crate::placement::directive::Given;
use crate::testing::{self, Cluster, SECRET, create, join, request_id, until};
use ringfence_api::{ErrorKind, Failure, v1};
use ringfence_core::ids::NodeId;
use tonic::Status;

fn kind(status: &Status) -> ErrorKind {
    Failure::decode(status).kind()
}

#[tokio::test]
async fn f014_a_request_asked_again_takes_effect_once_whatever_happened_since() {
    let node = testing::alone().await;
    let mut admin = testing::admin(&node).await;
    let first = create("orders", 4);
    let created = admin.create_keyspace(first.clone()).await.unwrap().into_inner();
    assert_eq!(admin.create_keyspace(first.clone()).await.unwrap().into_inner(), created);
    let twice = v1::CreateKeyspaceRequest { request: request_id(), ..first.clone() };
    assert_eq!(kind(&admin.create_keyspace(twice).await.unwrap_err()), ErrorKind::AlreadyExists);

    let delete =
        v1::DeleteKeyspaceRequest { request: request_id(), name: "orders".into(), ..Default::default() };
    admin.delete_keyspace(delete.clone()).await.unwrap();
    admin.delete_keyspace(delete.clone()).await.unwrap();
    let again = v1::DeleteKeyspaceRequest { request: request_id(), ..delete };
    assert_eq!(kind(&admin.delete_keyspace(again).await.unwrap_err()), ErrorKind::NotFound);
    // The answer to the creation is still the creation.
    assert_eq!(admin.create_keyspace(first).await.unwrap().into_inner(), created);
    let list = admin.list_keyspaces(v1::ListKeyspacesRequest {}).await.unwrap().into_inner();
    assert!(list.keyspaces.is_empty());
}

#[tokio::test]
async fn f096_what_is_missing_or_out_of_bounds_is_named_and_changes_nothing() {
    let node = testing::alone().await;
    let mut admin = testing::admin(&node).await;
    let good = create("orders", 4);
    let policy = |ttl_ms| Some(v1::KeyspaceChange { ttl_ms: Some(ttl_ms), ..Default::default() });
    for (request, field) in [
        (v1::CreateKeyspaceRequest { request: None, ..good.clone() }, "request"),
        (v1::CreateKeyspaceRequest { name: "A".into(), ..good.clone() }, "name"),
        (v1::CreateKeyspaceRequest { partitions: 0, ..good.clone() }, "partitions"),
        (v1::CreateKeyspaceRequest { partitions: u32::MAX, ..good.clone() }, "partitions"),
        (v1::CreateKeyspaceRequest { policy: policy(u64::MAX), ..good.clone() }, "ttl"),
        (v1::CreateKeyspaceRequest { policy: policy(0), ..good.clone() }, "ttl"),
        // F062: shorter than three elections of this cluster.
        (v1::CreateKeyspaceRequest { policy: policy(2_000), ..good.clone() }, "at least 2100ms"),
    ] {
        let failure = Failure::decode(&admin.create_keyspace(request).await.unwrap_err());
        assert!(failure.kind() == ErrorKind::Invalid && failure.message().contains(field), "{failure}");
    }
    let cooling = v1::EndCoolingRequest {
        request: request_id(),
        keyspace: "orders".into(),
        partition: 0,
        epoch: u64::MAX,
        ..Default::default()
    };
    assert_eq!(kind(&admin.end_cooling(cooling).await.unwrap_err()), ErrorKind::Invalid);
    let list = admin.list_keyspaces(v1::ListKeyspacesRequest {}).await.unwrap().into_inner();
    assert!(list.keyspaces.is_empty());
}

/// What a dry run says is what the change itself would be answered.
#[tokio::test]
async fn a_dry_run_is_judged_as_the_change_itself_and_changes_nothing() {
    let node = testing::alone().await;
    let mut admin = testing::admin(&node).await;
    let policy = |ttl_ms| Some(v1::KeyspaceChange { ttl_ms: Some(ttl_ms), ..Default::default() });
    let dry = |name: &str, ttl_ms| v1::CreateKeyspaceRequest {
        request: None,
        policy: policy(ttl_ms),
        dry_run: true,
        ..create(name, 4)
    };
    let would = admin.create_keyspace(dry("orders", 9_000)).await.unwrap().into_inner().keyspace.unwrap();
    assert_eq!((would.name.as_str(), would.policy.unwrap().ttl_ms), ("orders", 9_000));
    let short = Failure::decode(&admin.create_keyspace(dry("orders", 2_000)).await.unwrap_err());
    assert!(short.message().contains("at least 2100ms"), "{short}");
    let list = admin.list_keyspaces(v1::ListKeyspacesRequest {}).await.unwrap().into_inner();
    assert!(list.keyspaces.is_empty());

    admin.create_keyspace(create("orders", 4)).await.unwrap();
    let again = admin.create_keyspace(dry("orders", 9_000)).await.unwrap_err();
    assert_eq!(kind(&again), ErrorKind::AlreadyExists);
    let update = |request, ttl_ms| v1::UpdateKeyspaceRequest {
        dry_run: Option::is_none(&request),
        request,
        name: "orders".into(),
        policy: policy(ttl_ms),
        directive: None,
    };
    let short = Failure::decode(&admin.update_keyspace(update(None, 2_000)).await.unwrap_err());
    assert!(short.message().contains("at least 2100ms"), "{short}");
    let answered = |answer: v1::UpdateKeyspaceResponse| {
        (answer.keyspace.unwrap().policy.unwrap().ttl_ms, answer.unchanged)
    };
    let would = admin.update_keyspace(update(None, 9_000)).await.unwrap().into_inner();
    assert_eq!(answered(would), (9_000, false));
    let is = admin.update_keyspace(update(request_id(), 10_000)).await.unwrap().into_inner();
    assert_eq!(answered(is), (10_000, true), "as it was: the dry run has changed nothing");
    let first = update(request_id(), 9_000);
    for _ in 0..2 {
        let is = admin.update_keyspace(first.clone()).await.unwrap().into_inner();
        assert_eq!(answered(is), (9_000, false), "also when it is asked again");
    }
    let would = admin.update_keyspace(update(None, 9_000)).await.unwrap().into_inner();
    assert_eq!(answered(would), (9_000, true));
}

/// Nodes of the version before cannot read an entry that names somebody.
#[tokio::test]
async fn a_name_that_nobody_said_is_remembered_only_where_something_newer_was_used() {
    let node = testing::alone().await;
    let mut admin = testing::admin(&node).await;
    let context = node.context().unwrap();
    let names = || {
        let local = context.replica.lock();
        local.state.directives().map(|directive| directive.by.clone()).collect::<Vec<_>>()
    };
    let by = |by: &str, assumed| Some(v1::Directive { by: by.to_owned(), reason: String::new(), assumed });
    let of = |name, directive| v1::CreateKeyspaceRequest { directive, ..create(name, 1) };
    admin.create_keyspace(of("a", by("root", true))).await.unwrap();
    assert!(names().is_empty(), "{:?}", names());
    admin.create_keyspace(of("b", by("ada", false))).await.unwrap();
    admin.create_keyspace(of("c", by("root", true))).await.unwrap();
    assert_eq!(names(), ["ada", "root"]);
}

#[tokio::test]
async fn f056_f082_lists_come_in_pieces_and_are_complete() {
    let node = testing::alone().await;
    let mut admin = testing::admin(&node).await;
    admin.create_keyspace(create("orders", 50_000)).await.unwrap();
    let request = v1::ListPartitionsRequest { keyspace: "orders".into() };
    let mut stream = admin.list_partitions(request).await.unwrap().into_inner();
    let (mut pieces, mut next) = (0, 0);
    while let Some(piece) = stream.message().await.unwrap() {
        pieces += 1;
        for partition in piece.partitions {
            assert_eq!(partition.partition, next);
            next += 1;
        }
    }
    assert!(pieces > 1 && next == 50_000, "{pieces} pieces, {next} partitions");
    let absent = admin.list_partitions(v1::ListPartitionsRequest { keyspace: "absent".into() }).await;
    assert_eq!(kind(&absent.err().unwrap()), ErrorKind::NotFound);
}

#[tokio::test]
async fn f082_more_workers_than_a_message_holds_are_listed_each_once() {
    let node = testing::alone().await;
    let mut admin = testing::admin(&node).await;
    admin.create_keyspace(create("orders", 1)).await.unwrap();
    let workers = testing::workers(&node).await;
    let joins = (0..1_500).map(|number| {
        let mut workers = workers.clone();
        async move {
            let join = v1::JoinRequest {
                address: format!("{}:1", "x".repeat(250)),
                ..testing::a_join(&format!("w{number:04}"), "orders")
            };
            workers.join(join).await.unwrap();
        }
    });
    futures_util::future::join_all(joins).await;
    let mut list = admin.list_workers(v1::ListWorkersRequest {}).await.unwrap().into_inner();
    let (mut pieces, mut names) = (0, Vec::new());
    while let Some(piece) = list.message().await.unwrap() {
        pieces += 1;
        names.extend(piece.workers.into_iter().map(|worker| worker.worker));
    }
    assert!(pieces > 1, "{pieces}");
    assert_eq!(names, (0..1_500).map(|number| format!("w{number:04}")).collect::<Vec<_>>());
}

/// Two of three nodes are gone. The third says nothing about owners, and what it is asked to change happens once or never.
#[tokio::test]
async fn f073_f075_without_a_majority_nothing_is_answered_and_no_epoch_is_spent() {
    let mut cluster = Cluster::formed().await;
    let leader = cluster.leader().await;
    let mut admin = cluster.admin(leader).await;
    admin.create_keyspace(create("orders", 1)).await.unwrap();
    join(&cluster.nodes[&leader], "w1", "orders").await;
    let get = v1::GetPartitionRequest { keyspace: "orders".into(), partition: 0 };
    let before = until("w1 owns it", async || {
        let partition = admin.get_partition(get.clone()).await.ok()?.into_inner().partition?;
        partition.owner.is_some().then_some(partition)
    })
    .await;
    join(&cluster.nodes[&leader], "w2", "orders").await;
    let others: Vec<u64> = (1..=3).filter(|id| *id != leader).collect();
    for id in &others {
        cluster.crash(*id);
    }
    let lookup = v1::LookupRequest {
        keyspace: "orders".into(),
        target: Some(v1::lookup_request::Target::Partition(0)),
    };
    let mut map = testing::map(&cluster.nodes[&leader]).await;
    let moves = (0..100).map(|_| {
        let mut admin = admin.clone();
        let request = v1::MovePartitionRequest {
            directive: None,
            request: request_id(),
            keyspace: "orders".into(),
            partition: 0,
            to: "w2".into(),
            ..Default::default()
        };
        async move { admin.move_partition(request).await }
    });
    let asked = futures_util::future::join_all(moves);
    let (asked, looked_up) = tokio::join!(asked, map.lookup(lookup.clone()));
    let nobody =
        [ErrorKind::NoLeader, ErrorKind::NotLeader, ErrorKind::Unavailable, ErrorKind::UnknownOutcome];
    for status in asked.into_iter().map(|answer| answer.unwrap_err()).chain(looked_up.err()) {
        assert!(nobody.contains(&kind(&status)), "{status}");
    }
    kind(&map.lookup(lookup).await.unwrap_err());

    for id in others {
        cluster.start(id).await;
    }
    cluster.ready().await;
    let now = until("a leader answers", async || {
        let mut admin = cluster.admin(cluster.leader().await).await;
        admin.get_partition(get.clone()).await.ok()
    })
    .await
    .into_inner();
    // It may have begun to move. w1 has not released it, so nothing was granted: whatever was asked for has cost no epoch.
    assert_eq!((now.partition.unwrap().epoch, now.history.len()), (before.epoch, 1));
}

#[tokio::test]
async fn an_operator_moves_a_partition_and_is_told_what_stands_in_the_way() {
    let node = testing::alone().await;
    let mut admin = testing::admin(&node).await;
    admin.create_keyspace(create("orders", 2)).await.unwrap();
    admin.create_keyspace(create("users", 1)).await.unwrap();
    let first = join(&node, "w1", "orders").await;
    let partition = async |admin: &mut v1::admin_service_client::AdminServiceClient<_>| {
        let get = v1::GetPartitionRequest { keyspace: "orders".into(), partition: 0 };
        admin.get_partition(get).await.unwrap().into_inner()
    };
    let owned = until("w1 owns it", async || {
        partition(&mut admin).await.partition.filter(|p| p.owner.as_ref().is_some_and(|o| o.worker == "w1"))
    })
    .await;
    join(&node, "w2", "orders").await;
    join(&node, "w3", "users").await;
    let to = |worker: &str, keyspace: &str| v1::MovePartitionRequest {
        directive: None,
        request: request_id(),
        keyspace: keyspace.into(),
        partition: 0,
        to: worker.into(),
        ..Default::default()
    };
    for (request, expected) in [
        (to("w9", "orders"), ErrorKind::NotFound),
        (to("w1", "absent"), ErrorKind::NotFound),
        (
            v1::MovePartitionRequest { directive: None, partition: 2, ..to("w1", "orders") },
            ErrorKind::NotFound,
        ),
        (to("w3", "orders"), ErrorKind::Refused),
        (
            v1::MovePartitionRequest { directive: None, request: None, ..to("w1", "orders") },
            ErrorKind::Invalid,
        ),
    ] {
        assert_eq!(kind(&admin.move_partition(request).await.unwrap_err()), expected);
    }
    let nothing = admin.move_partition(to("w1", "orders")).await.unwrap().into_inner();
    assert_eq!((nothing.r#move, nothing.from_epoch), (0, 0), "w1 owns it already");

    let request = to("w2", "orders");
    let begun = admin.move_partition(request.clone()).await.unwrap().into_inner();
    assert!(begun.r#move > 0 && begun.from_epoch == owned.epoch, "{begun:?}");
    assert_eq!(admin.move_partition(request.clone()).await.unwrap().into_inner(), begun, "asked again");
    assert_eq!(admin.move_partition(to("w2", "orders")).await.unwrap().into_inner(), begun, "the same move");
    let draining = partition(&mut admin).await.partition.unwrap();
    assert_eq!((draining.phase(), draining.moving_to.as_str()), (v1::Phase::Draining, "w2"));
    assert_eq!(kind(&admin.move_partition(to("w1", "orders")).await.unwrap_err()), ErrorKind::Refused);

    let released = v1::report_item::What::Released(v1::report_item::Released {});
    let item = v1::ReportItem {
        keyspace: "orders".into(),
        partition: 0,
        epoch: begun.from_epoch,
        what: Some(released),
    };
    let report =
        v1::ReportRequest { session: first, secret: SECRET.into(), items: vec![item], withdraw: false };
    testing::workers(&node).await.report(report).await.unwrap();
    let moved = partition(&mut admin).await;
    let now = moved.partition.unwrap();
    assert!(now.epoch > begun.from_epoch && now.owner.unwrap().worker == "w2");
    assert_eq!((moved.history.len(), moved.history[0].worker.as_str()), (2, "w2"), "newest first");
    assert_eq!(
        admin.move_partition(request).await.unwrap().into_inner(),
        begun,
        "asked again when it is over"
    );

    let mut list = admin.list_workers(v1::ListWorkersRequest {}).await.unwrap().into_inner();
    let workers = list.message().await.unwrap().unwrap().workers;
    let held: Vec<_> = workers.iter().map(|w| (w.worker.as_str(), w.partitions)).collect();
    assert_eq!(held, [("w1", 1), ("w2", 1), ("w3", 1)]);
    let health = admin.health(v1::HealthRequest {}).await.unwrap().into_inner();
    assert_eq!((health.keyspaces, health.workers, health.partitions, health.owned), (2, 3, 3, 3));
    assert_eq!((health.ready, health.ownerless_total, health.brake.as_str()), (0, 0, ""));
}

#[tokio::test]
async fn f106_a_node_that_does_not_lead_names_the_one_that_does_and_leadership_can_be_moved() {
    let cluster = Cluster::formed().await;
    let leader = cluster.leader().await;
    let other = (1..=3).find(|id| *id != leader).unwrap();
    let refused = cluster.admin(other).await.create_keyspace(create("orders", 4)).await.unwrap_err();
    let failure = Failure::decode(&refused);
    assert_eq!(failure.kind(), ErrorKind::NotLeader);
    let hint = failure.leader().unwrap();
    assert_eq!((hint.node.get(), hint.address.as_str()), (leader, cluster.address(leader)));

    let mut admin = cluster.admin(leader).await;
    let absent = admin
        .transfer_leadership(v1::TransferLeadershipRequest { to: 9, directive: None })
        .await
        .unwrap_err();
    assert_eq!(kind(&absent), ErrorKind::NotFound);
    let moved = admin
        .transfer_leadership(v1::TransferLeadershipRequest { to: other, directive: None })
        .await
        .unwrap();
    assert_eq!(moved.into_inner().leader, other);
    assert_eq!(
        kind(
            &admin
                .remove_node(v1::RemoveNodeRequest { node: leader, dry_run_of: 0, directive: None })
                .await
                .unwrap_err()
        ),
        ErrorKind::NotLeader
    );
}

/// The list of directives is bounded, and would forget what stands.
#[tokio::test]
async fn a_transfer_of_the_lead_that_is_refused_is_not_remembered() {
    let node = testing::alone().await;
    let mut admin = testing::admin(&node).await;
    let context = node.context().unwrap();
    for (to, why) in [(0, ErrorKind::Invalid), (7, ErrorKind::NotFound)] {
        let directive = Some(v1::Directive { by: "ada".to_owned(), reason: String::new(), assumed: false });
        let transfer = v1::TransferLeadershipRequest { to, directive };
        assert_eq!(kind(&admin.transfer_leadership(transfer).await.unwrap_err()), why);
    }
    assert_eq!(context.replica.lock().state.directives().count(), 0);
}

/// The first to ask may have been refused by Raft; who asked last has removed the node.
#[tokio::test]
async fn whoever_ends_a_removal_that_was_begun_is_remembered() {
    let node = testing::alone().await;
    let context = node.context().unwrap();
    for by in ["ada", "bob"] {
        let given = Given::from(Some(v1::Directive { by: by.to_owned(), ..v1::Directive::default() }));
        crate::formation::note_removal(&context, NodeId::new(7).unwrap(), Some(&given)).await.unwrap();
    }
    let local = context.replica.lock();
    let names: Vec<&str> = local.state.directives().map(|directive| directive.by.as_str()).collect();
    assert_eq!(names, ["ada", "bob"]);
}

#[tokio::test]
async fn the_last_node_and_a_stranger_are_not_removed() {
    let node = testing::alone().await;
    let mut admin = testing::admin(&node).await;
    let remove = |node| v1::RemoveNodeRequest { node, dry_run_of: 0, directive: None };
    assert_eq!(kind(&admin.remove_node(remove(1)).await.unwrap_err()), ErrorKind::Refused);
    assert_eq!(kind(&admin.remove_node(remove(7)).await.unwrap_err()), ErrorKind::NotFound);
    assert_eq!(kind(&admin.remove_node(remove(0)).await.unwrap_err()), ErrorKind::Invalid);
    let dry_run = |node| v1::RemoveNodeRequest { node: 0, dry_run_of: node, directive: None };
    assert_eq!(kind(&admin.remove_node(dry_run(1)).await.unwrap_err()), ErrorKind::Refused);
    assert_eq!(kind(&admin.remove_node(dry_run(7)).await.unwrap_err()), ErrorKind::NotFound);
}
