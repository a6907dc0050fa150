//! Drills with workers that are spoken by hand.

use crate::Coordinator;
use crate::testing::{self, Cluster, SECRET, create, join, until};
use ringfence_api::v1::admin_service_client::AdminServiceClient;
use ringfence_api::v1::worker_service_client::WorkerServiceClient;
use ringfence_api::v1::{self, DrillMode, attach_request, attach_response, drill_request, drill_response};
use ringfence_api::{ErrorKind, Failure, PROTOCOL};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// A worker that allows drills, spoken by hand.
struct Hand {
    client: WorkerServiceClient<Channel>,
    session: u64,
    orders: mpsc::Receiver<v1::DrillOrder>,
    _stream: mpsc::Sender<v1::AttachRequest>,
}

/// Its side of a drill.
struct Line {
    say: mpsc::Sender<v1::DrillRequest>,
    told: Streaming<v1::DrillResponse>,
}

impl Hand {
    async fn join(node: &Coordinator, worker: &str, keyspaces: &[&str], drills: &[&str]) -> Hand {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut client = testing::workers(node).await;
        let request = v1::JoinRequest {
            protocol: PROTOCOL,
            worker: worker.to_owned(),
            nonce: fastrand::u128(1..).to_be_bytes().to_vec().into(),
            secret_sha256: Sha256::digest(SECRET).to_vec().into(),
            keyspaces: names(keyspaces),
            ..v1::JoinRequest::default()
        };
        let session = client.join(request).await.unwrap().into_inner().session;
        let (stream, requests) = mpsc::channel(4);
        let open = attach_request::Open {
            protocol: PROTOCOL,
            session,
            secret: SECRET.into(),
            drills: names(drills),
            ..Default::default()
        };
        let open = v1::AttachRequest { message: Some(attach_request::Message::Open(open)) };
        stream.send(open).await.unwrap();
        let mut told = client.attach(ReceiverStream::new(requests)).await.unwrap().into_inner();
        let (push, orders) = mpsc::channel(4);
        tokio::spawn(async move {
            while let Ok(Some(message)) = told.message().await {
                if let Some(attach_response::Message::Drill(order)) = message.message {
                    let _ = push.send(order).await;
                }
            }
        });
        Hand { client, session, orders, _stream: stream }
    }

    async fn begin(&mut self, drill: &[u8], secret: &[u8]) -> Result<Line, Status> {
        let (say, requests) = mpsc::channel(4);
        let begin = drill_request::Begin {
            drill: drill.to_vec().into(),
            session: self.session,
            secret: secret.to_vec().into(),
        };
        let begin = v1::DrillRequest { message: Some(drill_request::Message::Begin(begin)) };
        say.send(begin).await.unwrap();
        let told = self.client.drill(ReceiverStream::new(requests)).await?.into_inner();
        Ok(Line { say, told })
    }

    /// Answers the order that comes, and says that it holds a write.
    async fn hold(&mut self) -> (v1::DrillOrder, Line) {
        let order = self.orders.recv().await.unwrap();
        let line = self.begin(&order.drill, SECRET).await.unwrap();
        line.say(drill_request::Message::Holding(drill_request::Holding {})).await;
        (order, line)
    }

    async fn report(&mut self, partition: u32, epoch: u64, what: v1::report_item::What) {
        let item = v1::ReportItem { keyspace: "orders".into(), partition, epoch, what: Some(what) };
        let report = v1::ReportRequest {
            session: self.session,
            secret: SECRET.into(),
            items: vec![item],
            withdraw: false,
        };
        self.client.report(report).await.unwrap();
    }

    async fn ready(&mut self, partition: u32, epoch: u64) {
        self.report(partition, epoch, v1::report_item::What::Ready(v1::report_item::Ready {})).await;
    }

    async fn release(&mut self, partition: u32, epoch: u64) {
        self.report(partition, epoch, v1::report_item::What::Released(v1::report_item::Released {})).await;
    }
}

impl Line {
    async fn say(&self, message: drill_request::Message) {
        self.say.send(v1::DrillRequest { message: Some(message) }).await.unwrap();
    }

    /// The coordinator has hung up, however it said so.
    async fn ends(mut self) {
        let last = self.told.message().await;
        assert!(!matches!(last, Ok(Some(_))), "{last:?}");
    }
}

/// A lease that outlasts the test: nobody here renews one.
async fn keyspace(admin: &mut AdminServiceClient<Channel>, name: &str, partitions: u32) {
    let mut request = create(name, partitions);
    request.policy.as_mut().unwrap().ttl_ms = Some(600_000);
    admin.create_keyspace(request).await.unwrap();
}

async fn partition(admin: &mut AdminServiceClient<Channel>, number: u32) -> v1::Partition {
    let get = v1::GetPartitionRequest { keyspace: "orders".into(), partition: number };
    admin.get_partition(get).await.unwrap().into_inner().partition.unwrap()
}

async fn owned_by(admin: &mut AdminServiceClient<Channel>, number: u32, worker: &str) -> v1::Partition {
    until("it has its owner", async || {
        let found = partition(admin, number).await;
        found.owner.as_ref().is_some_and(|owner| owner.worker == worker).then_some(found)
    })
    .await
}

async fn draining(admin: &mut AdminServiceClient<Channel>, number: u32) -> v1::Partition {
    until("it is moved", async || {
        Some(partition(admin, number).await).filter(|found| found.phase() == v1::Phase::Draining)
    })
    .await
}

async fn withdraw(node: &Coordinator, session: u64) {
    let withdraw = v1::ReportRequest { session, secret: SECRET.into(), items: Vec::new(), withdraw: true };
    testing::workers(node).await.report(withdraw).await.unwrap();
}

/// `orders/0` with worker w1, ready, and a worker w2 that owns nothing.
async fn stage(node: &Coordinator) -> (AdminServiceClient<Channel>, Hand, Hand, u64) {
    let mut admin = testing::admin(node).await;
    keyspace(&mut admin, "orders", 1).await;
    let mut first = Hand::join(node, "w1", &["orders"], &["orders"]).await;
    let epoch = owned_by(&mut admin, 0, "w1").await.epoch;
    first.ready(0, epoch).await;
    let second = Hand::join(node, "w2", &["orders"], &["orders"]).await;
    (admin, first, second, epoch)
}

fn ask() -> v1::RunDrillRequest {
    v1::RunDrillRequest {
        keyspace: "orders".into(),
        mode: DrillMode::Move.into(),
        timeout_ms: 60_000,
        ..Default::default()
    }
}

type Running = JoinHandle<Result<v1::RunDrillResponse, Failure>>;

fn run(admin: &AdminServiceClient<Channel>, request: v1::RunDrillRequest) -> Running {
    let mut admin = admin.clone();
    tokio::spawn(async move {
        let answer = admin.run_drill(request).await;
        answer.map(tonic::Response::into_inner).map_err(|status| Failure::decode(&status))
    })
}

async fn refused(admin: &AdminServiceClient<Channel>, request: v1::RunDrillRequest) -> Failure {
    run(admin, request).await.unwrap().unwrap_err()
}

#[tokio::test]
async fn the_held_write_is_sent_when_the_new_owner_is_ready_and_not_before() {
    let node = testing::alone().await;
    let (mut admin, mut first, mut second, epoch) = stage(&node).await;
    let running = run(&admin, ask());
    let (order, mut line) = first.hold().await;
    assert_eq!((order.keyspace.as_str(), order.partition, order.epoch), ("orders", 0, epoch));
    assert!(order.mode() == DrillMode::Move && order.limit_ms >= 60_000, "{order:?}");

    assert_eq!(draining(&mut admin, 0).await.moving_to, "w2");
    first.release(0, epoch).await;
    let next = owned_by(&mut admin, 0, "w2").await.epoch;
    // Granted and not ready: its fences may be as they were. A drill that sent now would have done so by the time
    // that another call was answered.
    partition(&mut admin, 0).await;
    assert!(futures_util::FutureExt::now_or_never(line.told.message()).is_none());
    second.ready(0, next).await;
    let told = line.told.message().await.unwrap().unwrap().message.unwrap();
    assert_eq!(told, drill_response::Message::Send(drill_response::Send { epoch: next }));

    let finding = drill_request::Finding {
        write: v1::WriteOutcome::Refused.into(),
        stale_reads_refused: 2,
        gap_ms: 7,
        ..Default::default()
    };
    line.say(drill_request::Message::Finding(finding.clone())).await;
    let report = running.await.unwrap().unwrap();
    assert_eq!(
        (report.old_worker.as_str(), report.old_session, report.old_epoch),
        ("w1", first.session, epoch)
    );
    assert_eq!(
        (report.new_worker.as_str(), report.new_session, report.new_epoch),
        ("w2", second.session, next)
    );
    assert_eq!((report.partitions_moved, report.finding), (1, Some(finding)));
    line.ends().await;
}

#[tokio::test]
async fn a_stalled_worker_is_moved_from_by_nobody_and_what_takes_over_is_waited_for() {
    let node = testing::alone().await;
    let (mut admin, mut first, mut second, epoch) = stage(&node).await;
    let stall = v1::RunDrillRequest { mode: DrillMode::Stall.into(), timeout_ms: 1_200_000, ..ask() };
    let running = run(&admin, stall);
    let (order, mut line) = first.hold().await;
    assert_eq!(order.mode(), DrillMode::Stall);
    assert_eq!(partition(&mut admin, 0).await.phase(), v1::Phase::Owned);
    // What the lease would do in ten minutes. The session has ended, and its drill goes on.
    let leave = v1::LeaveRequest { session: first.session, secret: SECRET.into() };
    withdraw(&node, first.session).await;
    first.release(0, epoch).await;
    first.client.leave(leave).await.unwrap();
    let next = owned_by(&mut admin, 0, "w2").await.epoch;
    second.ready(0, next).await;
    assert!(line.told.message().await.unwrap().is_some());
    let accepted = drill_request::Finding { write: v1::WriteOutcome::Accepted.into(), ..Default::default() };
    line.say(drill_request::Message::Finding(accepted)).await;
    let report = running.await.unwrap().unwrap();
    assert_eq!(report.finding.unwrap().write(), v1::WriteOutcome::Accepted);
}

#[tokio::test]
async fn what_forbids_a_drill_is_said_before_anything_moves() {
    let node = testing::alone().await;
    let mut admin = testing::admin(&node).await;
    keyspace(&mut admin, "orders", 2).await;
    keyspace(&mut admin, "users", 1).await;
    let said = async |request: v1::RunDrillRequest, kind: ErrorKind, part: &str| {
        let failure = refused(&admin, request).await;
        assert!(failure.kind() == kind && failure.message().contains(part), "{part}: {failure:?}");
    };
    let with = |partition| v1::RunDrillRequest { partition: Some(partition), ..ask() };
    let of = |worker: &str| v1::RunDrillRequest { worker: worker.into(), ..ask() };
    said(v1::RunDrillRequest { mode: 0, ..ask() }, ErrorKind::Invalid, "mode").await;
    said(v1::RunDrillRequest { mode: 9, ..ask() }, ErrorKind::Invalid, "mode").await;
    said(v1::RunDrillRequest { timeout_ms: 0, ..ask() }, ErrorKind::Invalid, "timeout_ms").await;
    said(v1::RunDrillRequest { timeout_ms: u64::MAX, ..ask() }, ErrorKind::Invalid, "timeout_ms").await;
    said(v1::RunDrillRequest { keyspace: "A".into(), ..ask() }, ErrorKind::Invalid, "keyspace").await;
    said(of("W"), ErrorKind::Invalid, "worker").await;
    said(v1::RunDrillRequest { keyspace: "absent".into(), ..ask() }, ErrorKind::NotFound, "absent").await;
    said(with(2), ErrorKind::NotFound, "partitions 0 to 1").await;
    said(of("w9"), ErrorKind::NotFound, "w9").await;
    said(ask(), ErrorKind::Refused, "no worker serves keyspace orders").await;
    said(with(0), ErrorKind::Refused, "nobody owns partition orders/0").await;

    // A worker whose SDK knows of no drills, and then one that allows them.
    join(&node, "old", "orders").await;
    let epoch = owned_by(&mut admin.clone(), 0, "old").await.epoch;
    said(with(0), ErrorKind::Refused, "not ready yet").await;
    said(ask(), ErrorKind::Refused, "allow_drill(\"orders\", probe)").await;
    let mut only = Hand::join(&node, "other", &["users"], &[]).await;
    said(of("other"), ErrorKind::Refused, "does not serve keyspace orders").await;
    only.session = owned_by(&mut admin.clone(), 0, "old").await.owner.unwrap().session;
    only.ready(0, epoch).await;
    said(with(0), ErrorKind::Refused, "worker old allows no drills of keyspace orders").await;
    said(
        v1::RunDrillRequest { worker: "other".into(), ..with(0) },
        ErrorKind::Refused,
        "owned by worker old",
    )
    .await;
    assert_eq!(partition(&mut admin.clone(), 0).await.epoch, epoch);
}

#[tokio::test]
async fn nobody_is_replaced_where_nobody_could_take_over() {
    let node = testing::alone().await;
    let mut admin = testing::admin(&node).await;
    keyspace(&mut admin, "orders", 1).await;
    keyspace(&mut admin, "users", 1).await;
    let mut first = Hand::join(&node, "w1", &["orders", "users"], &["orders"]).await;
    let epoch = owned_by(&mut admin, 0, "w1").await.epoch;
    first.ready(0, epoch).await;
    let alone = refused(&admin, ask()).await;
    assert!(alone.kind() == ErrorKind::Refused && alone.message().contains("start a second one"), "{alone}");

    let second = Hand::join(&node, "w2", &["orders"], &[]).await;
    let dry = v1::RunDrillRequest { dry_run: true, ..ask() };
    let planned = run(&admin, dry).await.unwrap().unwrap();
    assert_eq!((planned.old_worker.as_str(), planned.new_worker.as_str()), ("w1", "w2"));
    assert_eq!((planned.partitions_moved, planned.finding, planned.ttl_ms), (1, None, 600_000));
    // A stall takes the partition of users, too, and there it is alone.
    let stall = v1::RunDrillRequest { mode: DrillMode::Stall.into(), timeout_ms: 1_200_000, ..ask() };
    let users = refused(&admin, stall.clone()).await;
    assert!(users.message().contains("keyspace users") && users.kind() == ErrorKind::Refused, "{users}");
    // A lease that runs out under two leaders takes that long.
    let short = refused(&admin, v1::RunDrillRequest { timeout_ms: 1_199_999, ..stall }).await;
    assert!(short.message().contains("give the drill 1200s or more"), "{short}");
    assert!(short.message().contains("nothing was moved") && short.kind() == ErrorKind::Invalid, "{short}");
    // One that is about to leave takes nothing over.
    withdraw(&node, second.session).await;
    assert!(refused(&admin, ask()).await.message().contains("start a second one"));
    assert_eq!(partition(&mut admin, 0).await.epoch, epoch);
}

#[tokio::test]
async fn one_drill_at_a_time_and_its_stream_is_for_who_knows_its_id() {
    let node = testing::alone().await;
    let (admin, mut first, mut second, _) = stage(&node).await;
    let running = run(&admin, ask());
    let order = first.orders.recv().await.unwrap();
    let another = refused(&admin, ask()).await;
    assert!(another.kind() == ErrorKind::Refused && another.message().contains("drill of worker w1 runs"));

    let kind = |line: Result<Line, Status>| Failure::decode(&line.err().unwrap()).kind();
    assert_eq!(kind(first.begin(&[0; 16], SECRET).await), ErrorKind::Refused);
    assert_eq!(kind(first.begin(&order.drill, b"guessed").await), ErrorKind::WrongSecret);
    assert_eq!(kind(first.begin(b"short", SECRET).await), ErrorKind::Invalid);
    assert_eq!(kind(second.begin(&order.drill, SECRET).await), ErrorKind::Refused);
    let line = first.begin(&order.drill, SECRET).await.unwrap();
    assert_eq!(kind(first.begin(&order.drill, SECRET).await), ErrorKind::Refused);

    // It declines, and nothing was moved.
    let declined = drill_request::Declined { why: "the probe failed".to_owned() };
    line.say(drill_request::Message::Declined(declined)).await;
    let failure = running.await.unwrap().unwrap_err();
    assert!(
        failure.kind() == ErrorKind::Refused && failure.message().contains("the probe failed"),
        "{failure}"
    );
    line.ends().await;
}

#[tokio::test]
async fn a_drill_ends_with_the_workers_stream_and_with_the_operators_call() {
    let node = testing::alone().await;
    let (mut admin, mut first, mut second, epoch) = stage(&node).await;
    let running = run(&admin, ask());
    let (_, line) = first.hold().await;
    draining(&mut admin, 0).await;
    drop(line);
    let failure = running.await.unwrap().unwrap_err();
    assert!(
        failure.kind() == ErrorKind::Refused && failure.message().contains("ended the drill"),
        "{failure}"
    );
    assert!(
        failure.message().contains("move of orders/0 from worker w1 had begun")
            && failure.message().contains("run the drill again"),
        "{failure}"
    );

    // The move that it began goes to its end as any other; drill the one that has the partition then.
    first.release(0, epoch).await;
    let next = owned_by(&mut admin, 0, "w2").await.epoch;
    second.ready(0, next).await;
    let running = run(&admin, ask());
    let (_, line) = second.hold().await;
    draining(&mut admin, 0).await;
    running.abort();
    line.ends().await;
    // Its place is free.
    second.release(0, next).await;
    let last = owned_by(&mut admin, 0, "w1").await.epoch;
    first.ready(0, last).await;
    let _running = run(&admin, ask());
    assert_eq!(first.orders.recv().await.unwrap().epoch, last);
}

/// Where a drill of so many seconds stands when its time is over, and what its error says.
async fn late(admin: &AdminServiceClient<Channel>, seconds: u64, play: impl AsyncFnOnce(), parts: &[&str]) {
    let running = run(admin, v1::RunDrillRequest { timeout_ms: seconds * 1_000, ..ask() });
    play().await;
    let failure = running.await.unwrap().unwrap_err();
    assert_eq!(failure.kind(), ErrorKind::Refused);
    let waited = format!("took longer than its {seconds}s");
    for part in [waited.as_str(), "`ringfence partition show orders/0`"].iter().chain(parts) {
        assert!(failure.message().contains(part), "{part}: {failure}");
    }
}

#[tokio::test]
async fn a_drill_whose_time_is_over_says_how_far_it_came_and_who_did_not_answer() {
    let node = testing::alone().await;
    let (mut admin, mut first, mut second, epoch) = stage(&node).await;
    let caller = admin.clone();

    // The probe of the worker hangs.
    let hangs = async || {
        let order = first.orders.recv().await.unwrap();
        first.begin(&order.drill, SECRET).await.unwrap().ends().await;
    };
    let nothing = "nothing was moved, and no write was held";
    late(&caller, 2, hangs, &["first probe write of worker w1", nothing]).await;
    assert_eq!(partition(&mut admin, 0).await.epoch, epoch);

    // The worker does not release.
    let keeps = async || first.hold().await.1.ends().await;
    let begun = "move of orders/0 from worker w1 had begun, and goes to its end";
    late(&caller, 4, keeps, &["worker w1 was not replaced yet", begun, "dropped unsent"]).await;
    first.release(0, epoch).await;
    let next = owned_by(&mut admin, 0, "w2").await.epoch;

    // The heir stands still: it is granted the partition and never ready.
    second.ready(0, next).await;
    let frozen = async || {
        let (_, line) = second.hold().await;
        draining(&mut admin, 0).await;
        second.release(0, next).await;
        line.ends().await;
    };
    let granted = format!("worker w1, which was granted the partition under e{}, is not ready", next + 1);
    late(&caller, 6, frozen, &[&granted, "stands still", "look at that worker", "dropped unsent"]).await;
}

#[tokio::test]
async fn a_change_of_leader_ends_a_drill_without_a_result() {
    let cluster = Cluster::formed().await;
    let leader = cluster.leader().await;
    let (admin, mut first, _second, _) = stage(&cluster.nodes[&leader]).await;
    let stall = v1::RunDrillRequest { mode: DrillMode::Stall.into(), timeout_ms: 1_200_000, ..ask() };
    let running = run(&admin, stall);
    let (_, line) = first.hold().await;
    admin
        .clone()
        .transfer_leadership(v1::TransferLeadershipRequest { to: 0, directive: None })
        .await
        .unwrap();
    let failure = running.await.unwrap().unwrap_err();
    assert!(
        failure.kind() == ErrorKind::UnknownOutcome && failure.message().contains("run it again"),
        "{failure}"
    );
    assert!(failure.message().contains("worker w1 had stopped renewing"), "{failure}");
    line.ends().await;
}
