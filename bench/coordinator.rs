//! Three durable nodes on loopback: renewals per second, each confirmed by a quorum, and partitions handed over per
//! second. Nodes and clients share one process and its cores.
//!
//! `cargo bench -p ringfence-server --bench coordinator`

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "nodes.rs"]
mod nodes;

use nodes::three_nodes;
use ringfence_api::v1::admin_service_client::AdminServiceClient;
use ringfence_api::v1::worker_service_client::WorkerServiceClient;
use ringfence_api::v1::{self, attach_request, attach_response, report_item};
use ringfence_api::{Failure, PROTOCOL};
use ringfence_server::Coordinator;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

const SECRET: &[u8] = b"the secret of every session of this bench";
const MEASURE: Duration = Duration::from_secs(4);
const PARTITIONS: u32 = 10_000;

/// The leader's endpoint, by asking each node for a read that only the leader answers.
async fn leader(nodes: &[Coordinator]) -> String {
    loop {
        for node in nodes {
            let mut admin = AdminServiceClient::connect(node.endpoint()).await.unwrap();
            if admin.list_keyspaces(v1::ListKeyspacesRequest {}).await.is_ok() {
                return node.endpoint();
            }
        }
        tokio::task::yield_now().await;
    }
}

async fn create(endpoint: &str, name: &str, partitions: u32) {
    let mut admin = AdminServiceClient::connect(endpoint.to_string()).await.unwrap();
    let request = v1::RequestId { id: name.bytes().cycle().take(16).collect(), seen_index: u64::MAX >> 12 };
    let policy =
        v1::KeyspaceChange { ttl_ms: Some(60_000), balance: Some(false), ..v1::KeyspaceChange::default() };
    let create = v1::CreateKeyspaceRequest {
        request: Some(request),
        name: name.to_string(),
        partitions,
        policy: Some(policy),
        directive: None,
        dry_run: false,
    };
    admin.create_keyspace(create).await.unwrap();
}

/// One session with a connection of its own.
struct Session {
    client: WorkerServiceClient<Channel>,
    id: u64,
    requests: mpsc::Sender<v1::AttachRequest>,
    answers: Streaming<v1::AttachResponse>,
}

impl Session {
    async fn open(endpoint: &str, keyspace: &str, number: u64) -> Session {
        let channel =
            Channel::from_shared(endpoint.to_string()).unwrap().tcp_nodelay(true).connect().await.unwrap();
        let mut client = WorkerServiceClient::new(channel);
        let join = v1::JoinRequest {
            protocol: PROTOCOL,
            worker: format!("{keyspace}-{number}"),
            nonce: u128::from(number).to_be_bytes().to_vec().into(),
            secret_sha256: Sha256::digest(SECRET).to_vec().into(),
            keyspaces: vec![keyspace.to_string()],
            replace: true,
            ..v1::JoinRequest::default()
        };
        let id =
            client.join(join).await.map_err(|status| Failure::decode(&status)).unwrap().into_inner().session;
        let (requests, outgoing) = mpsc::channel(4);
        let open = attach_request::Open {
            protocol: PROTOCOL,
            cluster: String::new(),
            session: id,
            secret: SECRET.to_vec().into(),
            drills: Vec::new(),
        };
        let open = v1::AttachRequest { message: Some(attach_request::Message::Open(open)) };
        requests.send(open).await.unwrap();
        let answers = client.attach(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
        Session { client, id, requests, answers }
    }

    async fn renew(&mut self, number: u64) {
        let renew = attach_request::Renew { number };
        let renew = v1::AttachRequest { message: Some(attach_request::Message::Renew(renew)) };
        self.requests.send(renew).await.unwrap();
        loop {
            let answer = self.answers.message().await.unwrap().unwrap();
            if let Some(attach_response::Message::Acknowledgement(ack)) = answer.message {
                assert_eq!(ack.number, number);
                return;
            }
        }
    }
}

/// Each connection sends its next renewal when the last was acknowledged.
async fn renewals_per_second(endpoint: &str, connections: u64) -> f64 {
    let mut sessions = Vec::new();
    for number in 0..connections {
        sessions.push(Session::open(endpoint, "renewals", connections * 1_000 + number).await);
    }
    let done = Arc::new(AtomicU64::new(0));
    let until = Instant::now() + MEASURE;
    let start = Instant::now();
    let tasks: Vec<_> = sessions
        .into_iter()
        .map(|mut session| {
            let done = Arc::clone(&done);
            tokio::spawn(async move {
                let mut number = 0;
                while Instant::now() < until {
                    number += 1;
                    session.renew(number).await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    done.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

/// Workers give every partition back as soon as they are granted it, and the coordinator grants it again, under the next
/// epoch. Counts grants that have reached a worker.
async fn handovers_per_second(endpoint: &str, workers: u64) -> f64 {
    create(endpoint, "handovers", PARTITIONS).await;
    let mut sessions = Vec::new();
    for number in 0..workers {
        sessions.push(Session::open(endpoint, "handovers", number).await);
    }
    let granted = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> =
        sessions.into_iter().map(|session| tokio::spawn(give_back(session, Arc::clone(&granted)))).collect();
    // The first grants are of partitions that nobody had.
    while granted.load(Ordering::Relaxed) < 2 * u64::from(PARTITIONS) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (start, before) = (Instant::now(), granted.load(Ordering::Relaxed));
    tokio::time::sleep(MEASURE).await;
    let rate = (granted.load(Ordering::Relaxed) - before) as f64 / start.elapsed().as_secs_f64();
    for task in tasks {
        task.abort();
    }
    rate
}

async fn give_back(session: Session, granted: Arc<AtomicU64>) {
    let Session { client, id, requests: _open, mut answers } = session;
    while let Some(answer) = answers.message().await.unwrap() {
        let Some(attach_response::Message::Assignment(assignment)) = answer.message else { continue };
        let held: Vec<v1::Held> = assignment.held.into_iter().filter(|held| !held.draining).collect();
        granted.fetch_add(held.len() as u64, Ordering::Relaxed);
        for chunk in held.chunks(1_000) {
            let items = chunk.iter().map(|held| v1::ReportItem {
                keyspace: held.keyspace.clone(),
                partition: held.partition,
                epoch: held.epoch,
                what: Some(report_item::What::Released(report_item::Released {})),
            });
            let report = v1::ReportRequest {
                session: id,
                secret: SECRET.to_vec().into(),
                items: items.collect(),
                withdraw: false,
            };
            let mut client = client.clone();
            tokio::spawn(async move { client.report(report).await });
        }
    }
}

#[tokio::main]
async fn main() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = three_nodes(dir.path()).await;
    let endpoint = leader(&nodes).await;
    create(&endpoint, "renewals", 1).await;
    for connections in [64, 256] {
        let rate = renewals_per_second(&endpoint, connections).await;
        println!("renewals, 3 durable nodes, {connections:>3} connections:     {rate:>9.0} renewals/s");
    }
    let rate = handovers_per_second(&endpoint, 4).await;
    println!("partitions handed over, 3 durable nodes, 4 workers: {rate:>9.0} partitions/s");
}
