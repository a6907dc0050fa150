//! What clients ask of a node, each a short story that it grants to its end.

use super::numbered;
use crate::fuzz::targets::calls::{Calls, DRILL, METHODS, OneCall};
use prost::Message;
use ringfence_api::v1::{self, attach_request, drill_request, report_item::What};

/// Of all sessions here. Not the judge's: in a name, where a mutation may put it, it may be quoted.
const SECRET: &[u8] = b"a worker's own";

/// SHA-256 of it.
const SECRET_SHA256: [u8; 32] = [
    243, 125, 96, 186, 23, 181, 246, 127, 227, 79, 237, 70, 77, 14, 6, 32, 22, 231, 57, 98, 72, 14, 17, 179,
    187, 2, 39, 9, 88, 97, 64, 65,
];

fn call(method: &str, messages: &[&dyn Encoded]) -> OneCall {
    let number = METHODS.iter().position(|(name, _)| name.ends_with(method));
    let number = number.unwrap_or_else(|| panic!("no method {method}"));
    OneCall {
        method: number.try_into().unwrap(),
        messages: messages.iter().map(|message| message.bytes()).collect(),
    }
}

/// A message of any type.
trait Encoded {
    fn bytes(&self) -> Vec<u8>;
}

impl<M: Message> Encoded for M {
    fn bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

fn id(number: u8) -> Option<v1::RequestId> {
    Some(v1::RequestId { id: vec![number; 16].into(), seen_index: u64::MAX })
}

fn create(name: &str, partitions: u32, balance: bool) -> OneCall {
    let policy = v1::KeyspaceChange { balance: Some(balance), ..Default::default() };
    let request = id(u8::try_from(name.len()).unwrap());
    let create = v1::CreateKeyspaceRequest {
        request,
        name: name.to_owned(),
        partitions,
        policy: Some(policy),
        ..Default::default()
    };
    call("/CreateKeyspace", &[&create])
}

fn join(worker: &str, nonce: u8, keyspace: &str) -> OneCall {
    let join = v1::JoinRequest {
        protocol: ringfence_api::PROTOCOL,
        worker: worker.to_owned(),
        nonce: vec![nonce; 16].into(),
        secret_sha256: SECRET_SHA256.to_vec().into(),
        address: "10.0.0.1:80".to_owned(),
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        keyspaces: vec![keyspace.to_owned()],
        ..Default::default()
    };
    call("/Join", &[&join])
}

fn attach(session: u64, drills: &[&str]) -> OneCall {
    let open = attach_request::Open {
        protocol: ringfence_api::PROTOCOL,
        session,
        secret: SECRET.into(),
        drills: drills.iter().map(|&name| name.to_owned()).collect(),
        ..Default::default()
    };
    let open = v1::AttachRequest { message: Some(attach_request::Message::Open(open)) };
    let renew = |number| v1::AttachRequest {
        message: Some(attach_request::Message::Renew(attach_request::Renew { number })),
    };
    call("/Attach", &[&open, &renew(1), &renew(2)])
}

fn report(session: u64, partition: u32, epoch: u64, what: What) -> OneCall {
    let item = v1::ReportItem { keyspace: "orders".to_owned(), partition, epoch, what: Some(what) };
    let report = v1::ReportRequest { session, secret: SECRET.into(), items: vec![item], withdraw: false };
    call("/Report", &[&report])
}

/// A keyspace of `partitions`, and a worker in session 1 that has all of them.
fn owned(partitions: u32) -> Vec<OneCall> {
    vec![create("orders", partitions, false), join("w1", 1, "orders"), attach(1, &["orders"])]
}

fn then<const N: usize>(mut before: Vec<OneCall>, calls: [OneCall; N]) -> Vec<u8> {
    before.extend(calls);
    Calls { calls: before }.encode_to_vec()
}

pub(super) fn stories() -> Vec<(String, Vec<u8>)> {
    let orders = || "orders".to_owned();
    let moved = v1::MovePartitionRequest {
        request: id(40),
        keyspace: orders(),
        partition: 1,
        to: "w2".to_owned(),
        ..Default::default()
    };
    let drill = v1::RunDrillRequest {
        keyspace: orders(),
        partition: Some(0),
        mode: v1::DrillMode::Move.into(),
        timeout_ms: 20_000,
        ..Default::default()
    };
    let dry = v1::RunDrillRequest { dry_run: true, ..drill.clone() };
    let begin = drill_request::Begin { drill: DRILL.to_vec().into(), session: 1, secret: SECRET.into() };
    let begin = v1::DrillRequest { message: Some(drill_request::Message::Begin(begin)) };
    let holding = v1::DrillRequest { message: Some(drill_request::Message::Holding(Default::default())) };
    let found = drill_request::Finding { write: v1::WriteOutcome::Refused.into(), ..Default::default() };
    let finding = v1::DrillRequest { message: Some(drill_request::Message::Finding(found)) };
    let update = v1::UpdateKeyspaceRequest {
        request: id(41),
        name: orders(),
        policy: Some(v1::KeyspaceChange { max_moves_in_flight: Some(9), ..Default::default() }),
        directive: Some(v1::Directive {
            by: "ada".to_owned(),
            reason: "more at once".to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let delete = v1::DeleteKeyspaceRequest { request: id(42), name: orders(), ..Default::default() };
    let get = v1::GetPartitionRequest { keyspace: orders(), partition: 1 };
    let watch = v1::WatchRequest { keyspaces: vec![orders()], ..Default::default() };
    let by_key = v1::LookupRequest {
        keyspace: orders(),
        target: Some(v1::lookup_request::Target::Key(b"a key".to_vec().into())),
    };
    let all = v1::ListPartitionsRequest { keyspace: orders() };
    let failed = What::Failed(v1::report_item::Failed { error: "no room on the disk".to_owned() });
    let mut all = numbered([
        then(
            vec![create("orders", 4, true), create("events2", 2, false)],
            [
                call("/UpdateKeyspace", &[&update]),
                call("/ListKeyspaces", &[&v1::ListKeyspacesRequest {}]),
                call("/ListPartitions", &[&all]),
                call("/DeleteKeyspace", &[&delete]),
            ],
        ),
        then(
            owned(4),
            [
                call("/GetPartition", &[&get]),
                report(1, 0, 1, What::Ready(Default::default())),
                call("/Lookup", &[&by_key]),
                call("/Watch", &[&watch]),
                report(1, 1, 1, failed),
                call("/ListWorkers", &[&v1::ListWorkersRequest {}]),
                call("/Health", &[&v1::HealthRequest {}]),
            ],
        ),
        then(
            owned(4),
            [
                join("w2", 2, "orders"),
                attach(2, &["orders"]),
                report(1, 1, 1, What::Ready(Default::default())),
                call("/MovePartition", &[&moved]),
                report(1, 1, 1, What::RevokeSeen(Default::default())),
                report(1, 1, 1, What::Released(Default::default())),
            ],
        ),
        then(
            owned(2),
            [
                join("w2", 2, "orders"),
                attach(2, &[]),
                report(1, 0, 1, What::Ready(Default::default())),
                report(1, 1, 1, What::Ready(Default::default())),
                call("/RunDrill", &[&dry]),
                call("/RunDrill", &[&drill]),
                call("/Drill", &[&begin, &holding, &finding]),
                report(1, 0, 1, What::Released(Default::default())),
                report(2, 0, 2, What::Ready(Default::default())),
            ],
        ),
        placed(),
        then(owned(2), [call("/Leave", &[&v1::LeaveRequest { session: 1, secret: SECRET.into() }])]),
        then(vec![], [call("/ClusterStatus", &[&v1::ClusterStatusRequest {}])]),
        raised_again(),
        locked(),
    ]);
    all.extend(refused());
    all
}

/// What operators decide of placement.
fn placed() -> Vec<u8> {
    let orders = || "orders".to_owned();
    let pin = v1::SetPartitionRequest {
        request: id(50),
        keyspace: orders(),
        partition: 1,
        pin: Some("w1".to_owned()),
        weight: Some(3),
        ..Default::default()
    };
    let worker = v1::SetWorkerRequest {
        request: id(51),
        worker: "w1".to_owned(),
        cordoned: Some(true),
        weight: Some(2),
        ..Default::default()
    };
    let freeze =
        v1::FreezeRequest { request: id(52), keyspace: orders(), frozen: true, ..Default::default() };
    let add = v1::what_if::Add { worker: "w9".to_owned(), weight: 1, ..Default::default() };
    let what_if = vec![v1::WhatIf { change: Some(v1::what_if::Change::Add(add)) }];
    then(
        owned(4),
        [
            call("/SetPartition", &[&pin]),
            call("/SetWorker", &[&worker]),
            call("/Freeze", &[&freeze]),
            call("/Plan", &[&v1::PlanRequest { keyspace: orders(), what_if }]),
        ],
    )
}

/// Fences that are raised again, and an owner whose storage has seen more.
fn raised_again() -> Vec<u8> {
    let orders = || "orders".to_owned();
    let all = v1::ReassertRequest { request: id(60), keyspace: orders(), ..Default::default() };
    let one =
        v1::ReassertRequest { request: id(61), partition: Some(1), above: 150, dry_run: true, ..all.clone() };
    let list = v1::ListReassertsRequest { keyspace: orders() };
    then(
        owned(2),
        [
            call("/Reassert", &[&one]),
            call("/Reassert", &[&all]),
            report(1, 0, 1, What::Released(Default::default())),
            call("/ListReasserts", &[&list]),
            call("/ListRefusals", &[&v1::ListRefusalsRequest { keyspace: orders() }]),
        ],
    )
}

/// Locks: held, waited for, given up, broken and given back.
fn locked() -> Vec<u8> {
    let session_only = |worker: &str, nonce: u8| {
        let join = v1::JoinRequest {
            protocol: ringfence_api::PROTOCOL,
            worker: worker.to_owned(),
            nonce: vec![nonce; 16].into(),
            secret_sha256: SECRET_SHA256.to_vec().into(),
            ttl_ms: 10_000,
            ..Default::default()
        };
        call("/Join", &[&join])
    };
    let lock = || "nightly".to_owned();
    let wish = v1::LockWish {
        mode: v1::LockMode::Exclusive.into(),
        takeover: v1::Takeover::Fence.into(),
        lock_delay_ms: 100,
        alert_after_ms: 60_000,
    };
    let acquire = |session, wait| v1::AcquireLockRequest {
        session,
        secret: SECRET.into(),
        lock: lock(),
        number: 1,
        settled_below: 1,
        wish: Some(wish),
        wait,
    };
    let of = |session| (session, SECRET.into(), lock());
    let (session, secret, name) = of(1);
    let release = v1::ReleaseLockRequest { session, secret, lock: name, epoch: 1 };
    let (session, secret, name) = of(2);
    let abandon = v1::AbandonLockRequest { session, secret, lock: name, number: 1 };
    let would = v1::BreakLockRequest { lock: lock(), dry_run: true, ..Default::default() };
    let broken = v1::BreakLockRequest { request: id(70), at_once: true, dry_run: false, ..would.clone() };
    then(
        vec![session_only("w1", 1), attach(1, &[]), session_only("w2", 2), attach(2, &[])],
        [
            call("LockService/Acquire", &[&acquire(1, true)]),
            call("LockService/Acquire", &[&acquire(2, false)]),
            call("LockService/Acquire", &[&acquire(2, true)]),
            call("LockService/Observe", &[&v1::ObserveLockRequest { lock: lock() }]),
            call("LockService/Get", &[&v1::GetLockRequest { lock: lock() }]),
            call("LockService/List", &[&v1::ListLocksRequest { prefix: "night".to_owned() }]),
            call("LockService/Break", &[&would]),
            call("LockService/Break", &[&broken]),
            call("LockService/Release", &[&release]),
            call("LockService/Abandon", &[&abandon]),
        ],
    )
}

/// What a node that is alone does not grant.
fn refused() -> [(String, Vec<u8>); 3] {
    let nodes = [
        call(
            "/AddNode",
            &[&v1::AddNodeRequest { node: 2, address: "10.0.0.2:7600".to_owned(), directive: None }],
        ),
        call("/RemoveNode", &[&v1::RemoveNodeRequest { node: 2, dry_run_of: 0, directive: None }]),
        call("/TransferLeadership", &[&v1::TransferLeadershipRequest { to: 2, directive: None }]),
    ];
    let cooling = v1::EndCoolingRequest {
        request: id(43),
        keyspace: "orders".to_owned(),
        partition: 0,
        epoch: 1,
        ..Default::default()
    };
    let of = |name: &str, bytes| (format!("refused-{name}"), bytes);
    // The cluster's name is drawn, so nobody knows it here.
    let item = v1::RefusalItem {
        scope: "orders/0".to_owned(),
        own_epoch: 1,
        highest_epoch: 2,
        store: "ledger".to_owned(),
        count: 1,
        ..Default::default()
    };
    let told =
        v1::ReportRefusalsRequest { cluster: "c-1".to_owned(), worker: "w1".to_owned(), items: vec![item] };
    let behind = What::Behind(v1::report_item::Behind { seen: 150, cluster: "c-1".to_owned() });
    [
        of("nodes", then(vec![], nodes)),
        of("end-cooling", then(owned(2), [call("/EndCooling", &[&cooling])])),
        of("fences", then(owned(2), [call("/ReportRefusals", &[&told]), report(1, 0, 1, behind)])),
    ]
}
