use crate::testing::{self, SECRET, create, join, request_id, until};
use ringfence_api::v1::placement_service_client::PlacementServiceClient;
use ringfence_api::v1::plan_response::Piece;
use ringfence_api::v1::{report_item, what_if};
use ringfence_api::{ErrorKind, Failure, v1};
use ringfence_core::ids::SessionId;
use ringfence_core::state::{EndReason, Event};
use std::collections::BTreeSet;
use tonic::transport::Channel;

type Client = PlacementServiceClient<Channel>;

/// A node whose worker `w1` owns all twelve partitions of `orders`, ready.
async fn owned_by_w1() -> (crate::Coordinator, Client) {
    let node = testing::alone().await;
    let mut admin = testing::admin(&node).await;
    admin.create_keyspace(create("orders", 12)).await.unwrap();
    let session = join(&node, "w1", "orders").await;
    let list = || v1::ListPartitionsRequest { keyspace: "orders".into() };
    let mut workers = testing::workers(&node).await;
    until("w1 owns all and is ready", async || {
        let mut list = admin.list_partitions(list()).await.ok()?.into_inner();
        let partitions = list.message().await.ok()??.partitions;
        let items = partitions.iter().filter(|p| p.owner.is_some() && !p.ready).map(|p| v1::ReportItem {
            keyspace: "orders".into(),
            partition: p.partition,
            epoch: p.epoch,
            what: Some(report_item::What::Ready(report_item::Ready {})),
        });
        let items: Vec<v1::ReportItem> = items.collect();
        if !items.is_empty() {
            let report = v1::ReportRequest { session, secret: SECRET.into(), items, withdraw: false };
            workers.report(report).await.ok()?;
        }
        partitions.iter().all(|p| p.ready).then_some(())
    })
    .await;
    let client = PlacementServiceClient::new(testing::channel(&node).await);
    (node, client)
}

fn add(worker: &str) -> v1::WhatIf {
    let add = what_if::Add { worker: worker.into(), ..Default::default() };
    v1::WhatIf { change: Some(what_if::Change::Add(add)) }
}

fn pin(partition: u32, to: &str) -> v1::SetPartitionRequest {
    v1::SetPartitionRequest {
        request: request_id(),
        keyspace: "orders".into(),
        partition,
        pin: Some(to.into()),
        ..Default::default()
    }
}

async fn plan(
    client: &mut Client,
    what_if: Vec<v1::WhatIf>,
) -> (v1::PlanSummary, Vec<v1::PlanWorker>, Vec<v1::PlannedMove>) {
    let request = v1::PlanRequest { keyspace: "orders".into(), what_if };
    let mut pieces = client.plan(request).await.unwrap().into_inner();
    let (mut summary, mut workers, mut moves) = (None, Vec::new(), Vec::new());
    while let Some(piece) = pieces.message().await.unwrap() {
        match piece.piece.unwrap() {
            Piece::Summary(s) => summary = Some(s),
            Piece::Workers(w) => workers.extend(w.workers),
            Piece::Moves(m) => moves.extend(m.moves),
        }
    }
    (summary.expect("it comes first"), workers, moves)
}

#[tokio::test]
async fn a_plan_comes_by_partition_whatever_its_moves_are_for() {
    let (_node, mut client) = owned_by_w1().await;
    assert!(client.set_partition(pin(11, "w9")).await.unwrap().into_inner().changed);
    let (summary, workers, moves) = plan(&mut client, vec![add("w9")]).await;
    assert!(summary.supposed && summary.workers == 2 && summary.moves == 6, "{summary:?}");
    assert_eq!(
        workers.iter().map(|w| (w.worker.as_str(), w.after)).collect::<Vec<_>>(),
        [("w1", 6), ("w9", 6)]
    );
    // The planner names what an operator demands first, and the pinned one is the last by number.
    let reasons: BTreeSet<&str> = moves.iter().map(|planned| planned.reason.as_str()).collect();
    assert_eq!(reasons.len(), 2, "{reasons:?}");
    assert!(moves.is_sorted_by(|a, b| a.partition < b.partition), "{moves:?}");
    assert!(moves.iter().all(|planned| planned.epoch == 1 && planned.from == "w1" && planned.to == "w9"));
}

#[tokio::test]
async fn a_supposition_about_nobody_is_refused_and_names_him() {
    let (_node, mut client) = owned_by_w1().await;
    let remove = v1::WhatIf { change: Some(what_if::Change::Remove("w7".into())) };
    let request = v1::PlanRequest { keyspace: "orders".into(), what_if: vec![remove] };
    let failure = Failure::decode(&client.plan(request).await.err().unwrap());
    assert!(failure.kind() == ErrorKind::NotFound && failure.message().contains("w7"), "{failure}");
    // Nor is one added that is there: it would seem to have nothing.
    let remove = v1::WhatIf { change: Some(what_if::Change::Remove("w1".into())) };
    let request = v1::PlanRequest { keyspace: "orders".into(), what_if: vec![add("w1")] };
    let failure = Failure::decode(&client.plan(request).await.err().unwrap());
    assert!(failure.kind() == ErrorKind::Refused && failure.message().contains("weight:w1=N"), "{failure}");
    let (summary, _, _) = plan(&mut client, vec![remove, add("w1")]).await;
    assert!(summary.supposed && summary.workers == 1, "{summary:?}");
}

#[tokio::test]
async fn nothing_is_moved_to_a_worker_that_an_operator_keeps_empty() {
    let (node, mut client) = owned_by_w1().await;
    join(&node, "w2", "orders").await;
    let set = |on| v1::SetWorkerRequest {
        request: request_id(),
        worker: "w2".into(),
        drained: Some(on),
        ..Default::default()
    };
    client.set_worker(set(true)).await.unwrap();
    let mut admin = testing::admin(&node).await;
    let to_w2 = || v1::MovePartitionRequest {
        request: request_id(),
        keyspace: "orders".into(),
        partition: 3,
        to: "w2".into(),
        directive: None,
        ..Default::default()
    };
    let failure = Failure::decode(&admin.move_partition(to_w2()).await.unwrap_err());
    assert!(failure.kind() == ErrorKind::Refused && failure.message().contains("undrain"), "{failure}");
    client.set_worker(set(false)).await.unwrap();
    assert_ne!(admin.move_partition(to_w2()).await.unwrap().into_inner().r#move, 0);
}

#[tokio::test]
async fn settings_of_more_workers_than_a_message_holds_are_listed_up_to_a_bound() {
    let (_node, mut client) = owned_by_w1().await;
    let all = (0..1_003).map(|number| {
        let mut client = client.clone();
        async move {
            let cordon = v1::SetWorkerRequest {
                request: request_id(),
                worker: format!("x{number:04}"),
                cordoned: Some(true),
                directive: Some(v1::Directive {
                    by: "a".repeat(300),
                    reason: "b".repeat(300),
                    ..Default::default()
                }),
                ..Default::default()
            };
            client.set_worker(cordon).await.unwrap();
        }
    });
    futures_util::future::join_all(all).await;
    let listed = client.list_settings(v1::ListSettingsRequest {}).await.unwrap().into_inner();
    assert_eq!((listed.workers.len(), listed.more_workers), (1_000, 3));
    assert!(listed.workers[0].cordoned.as_ref().is_some_and(|by| by.by.len() == 256));
}

/// The brake is the leader's own; that it was let go, by whom and why, is remembered.
#[tokio::test]
async fn an_operator_lets_the_brake_go_and_is_remembered_for_it_once() {
    let node = testing::alone().await;
    let (mut admin, channel) = (testing::admin(&node).await, testing::channel(&node).await);
    let mut client = PlacementServiceClient::new(channel);
    let release = || v1::ReleaseBrakeRequest {
        request: request_id(),
        directive: Some(v1::Directive {
            by: "ada".into(),
            reason: "zone b is off".into(),
            ..Default::default()
        }),
    };
    let directives = async |client: &mut Client| {
        client.list_directives(v1::ListDirectivesRequest {}).await.unwrap().into_inner().directives
    };
    assert!(!client.release_brake(release()).await.unwrap().into_inner().changed, "it is not on");
    assert_eq!(directives(&mut client).await, []);

    let context = node.context().unwrap();
    {
        let now = context.clock.now();
        let local = &mut *context.replica.lock();
        for number in 1..=3 {
            let session = SessionId::new(number).unwrap();
            let lost = Event::Ended { session, why: EndReason::Expired };
            local.leadership.as_mut().unwrap().placing.observe(&lost, now, &local.state);
        }
    }
    let brake = admin.health(v1::HealthRequest {}).await.unwrap().into_inner().brake;
    assert!(brake.starts_with("3 of 3 sessions") && brake.contains("release-brake"), "{brake}");
    let request = release();
    assert!(client.release_brake(request.clone()).await.unwrap().into_inner().changed);
    assert!(client.release_brake(request).await.unwrap().into_inner().changed, "a retry hears the same");
    assert_eq!(admin.health(v1::HealthRequest {}).await.unwrap().into_inner().brake, "");
    let given = directives(&mut client).await;
    assert_eq!((given.len(), given[0].by.as_str(), given[0].what.as_str()), (1, "ada", "release the brake"));
}

/// A plan of one move of partition 0, from `w1`.
async fn open(client: &mut Client, revision: u64) -> Result<u64, Failure> {
    let request = v1::OpenPlanRequest {
        request: request_id(),
        directive: Some(v1::Directive { by: "ada".into(), reason: String::new(), ..Default::default() }),
        keyspace: "orders".into(),
        size: 1,
        revision,
        ..Default::default()
    };
    let opened = client.open_plan(request).await;
    opened.map(|opened| opened.into_inner().plan).map_err(|status| Failure::decode(&status))
}

async fn extend(client: &mut Client, plan: u64, epoch: u64, dry_run: bool) -> Result<(), Failure> {
    let (from, to) = ("w1".into(), "w2".into());
    let moves = vec![v1::PlannedMove { epoch, from, to, ..Default::default() }];
    let request = if dry_run { None } else { request_id() };
    let request = v1::ExtendPlanRequest { request, plan, keyspace: "orders".into(), moves, dry_run };
    client.extend_plan(request).await.map(|_| ()).map_err(|status| Failure::decode(&status))
}

async fn plans(client: &mut Client) -> Vec<v1::ApprovedPlan> {
    let mut pieces =
        client.list_plans(v1::ListPlansRequest { with_moves: false }).await.unwrap().into_inner();
    let mut plans = Vec::new();
    while let Some(piece) = pieces.message().await.unwrap() {
        if let Some(v1::list_plans_response::Piece::Plan(plan)) = piece.piece {
            plans.push(plan);
        }
    }
    plans
}

#[tokio::test]
async fn a_plan_that_is_refused_is_dropped_and_its_dry_run_finds_the_same() {
    let (node, mut client) = owned_by_w1().await;
    join(&node, "w2", "orders").await;
    let stale = open(&mut client, 1).await.unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::StaleEpoch, "what was made from another map is not opened");
    assert_eq!(plans(&mut client).await, []);

    let plan = open(&mut client, 0).await.unwrap();
    assert_eq!(plans(&mut client).await[0].stage(), v1::PlanStage::Open);
    for (plan, dry_run) in [(0, true), (plan, false)] {
        let failure = extend(&mut client, plan, 9, dry_run).await.unwrap_err();
        assert_eq!(failure.kind(), ErrorKind::StaleEpoch, "{failure}");
    }
    assert_eq!(plans(&mut client).await, []);
    let directives = client.list_directives(v1::ListDirectivesRequest {}).await.unwrap().into_inner();
    assert_eq!(directives.directives, []);
    let unknown = extend(&mut client, plan, 1, false).await.unwrap_err();
    assert!(unknown.kind() == ErrorKind::NotFound && unknown.message().contains("given up"), "{unknown}");

    extend(&mut client, 0, 1, true).await.unwrap();
    let plan = open(&mut client, 0).await.unwrap();
    extend(&mut client, plan, 1, false).await.unwrap();
    let running = extend(&mut client, plan, 1, false).await.unwrap_err();
    assert!(running.kind() == ErrorKind::Refused && running.message().contains("takes no more"), "{running}");
    assert_eq!(plans(&mut client).await.len(), 1, "a piece too many stops nothing");
}

#[tokio::test]
async fn a_worker_without_an_address_is_told_as_one() {
    let (node, mut client) = owned_by_w1().await;
    let mut workers = testing::workers(&node).await;
    let nowhere = v1::JoinRequest { address: String::new(), ..testing::a_join("w9", "orders") };
    workers.join(nowhere).await.unwrap();
    let of = |worker: &str| v1::GetWorkerRequest { worker: worker.into() };
    let events = client.get_worker(of("w9")).await.unwrap().into_inner().events;
    assert!(events[0].what.ends_with(", without an address"), "{events:?}");
}

/// Each of them is told which plan goes on, whose it is and since when; nobody has to guess.
#[tokio::test]
async fn of_two_plans_that_are_put_at_once_the_one_that_does_not_go_on_is_told_whose_does() {
    let (node, mut client) = owned_by_w1().await;
    join(&node, "w2", "orders").await;
    // What is started goes on for as long as it takes to look at it.
    let keyspace = "orders".to_owned();
    let freeze = v1::FreezeRequest { request: request_id(), keyspace, frozen: true, ..Default::default() };
    client.freeze(freeze).await.unwrap();
    let put = async |client: &mut Client, by: &str| {
        let directive = Some(v1::Directive { by: by.into(), reason: "more workers".into(), assumed: false });
        let request = v1::OpenPlanRequest {
            request: request_id(),
            directive,
            keyspace: "orders".into(),
            size: 1,
            ..Default::default()
        };
        let opened = client.open_plan(request).await;
        opened.map(|opened| opened.into_inner().plan).map_err(|status| Failure::decode(&status))
    };
    let ada = put(&mut client, "ada").await.unwrap();
    let bob = put(&mut client, "bob").await.unwrap();
    extend(&mut client, bob, 1, false).await.unwrap();
    let replaced = extend(&mut client, ada, 1, false).await.unwrap_err();
    let told = format!("plan {ada} had not started when plan {bob} was put in its place, by bob at 2");
    assert!(replaced.kind() == ErrorKind::NotFound && replaced.message().starts_with(&told), "{replaced}");
    assert!(replaced.message().contains("(more workers)"), "{replaced}");

    let running = put(&mut client, "ada").await.unwrap_err();
    let told = format!("plan {bob} is being carried out; it was applied by bob at 2");
    assert!(running.kind() == ErrorKind::Refused && running.message().starts_with(&told), "{running}");

    // One that was cancelled before it had started.
    let cancel = v1::CancelPlanRequest { request: request_id(), plan: bob, ..Default::default() };
    assert!(client.cancel_plan(cancel).await.unwrap().into_inner().changed);
    let ada = put(&mut client, "ada").await.unwrap();
    let directive = Some(v1::Directive { by: "eve".into(), ..Default::default() });
    let cancel = v1::CancelPlanRequest { request: request_id(), plan: ada, directive };
    assert!(client.cancel_plan(cancel).await.unwrap().into_inner().changed);
    let cancelled = extend(&mut client, ada, 1, false).await.unwrap_err();
    let told = format!("plan {ada} was cancelled by eve at 2");
    assert!(cancelled.kind() == ErrorKind::NotFound && cancelled.message().starts_with(&told), "{cancelled}");
}

#[tokio::test]
async fn a_plan_of_another_lineage_is_refused_also_when_it_is_only_asked_about() {
    let (_node, mut client) = owned_by_w1().await;
    let (summary, _, _) = plan(&mut client, Vec::new()).await;
    for dry_run in [true, false] {
        let of = |lineage| v1::OpenPlanRequest {
            request: if dry_run { None } else { request_id() },
            keyspace: "orders".into(),
            size: 1,
            lineage,
            dry_run,
            ..Default::default()
        };
        let other =
            client.open_plan(of(summary.lineage ^ 1)).await.map_err(|e| Failure::decode(&e)).unwrap_err();
        assert!(
            other.kind() == ErrorKind::Refused && other.message().contains("was restored since"),
            "{other}"
        );
        client.open_plan(of(summary.lineage)).await.unwrap();
    }
}
