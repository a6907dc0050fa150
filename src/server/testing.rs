//! Clusters inside one test: real nodes, real sockets, real directories.

use crate::raft::Timings;
use crate::settings::{Given, Settings};
use crate::{Coordinator, NodeError};
use ringfence_api::v1;
use ringfence_api::v1::admin_service_client::AdminServiceClient;
use ringfence_api::v1::lock_service_client::LockServiceClient;
use ringfence_api::v1::map_service_client::MapServiceClient;
use ringfence_api::v1::worker_service_client::WorkerServiceClient;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;
use tonic::transport::Channel;

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Nodes by id. Each has an address and a directory for as long as the test runs.
pub(crate) struct Cluster {
    dir: tempfile::TempDir,
    addresses: BTreeMap<u64, String>,
    /// Held until the node starts, so that nobody else gets its port.
    reserved: BTreeMap<u64, TcpListener>,
    pub(crate) nodes: BTreeMap<u64, Coordinator>,
}

impl Cluster {
    /// Places for these nodes; none is started.
    pub(crate) fn of(ids: impl IntoIterator<Item = u64>) -> Cluster {
        let reserved: BTreeMap<u64, TcpListener> =
            ids.into_iter().map(|id| (id, TcpListener::bind("127.0.0.1:0").unwrap())).collect();
        let addresses = reserved.iter().map(|(id, l)| (*id, l.local_addr().unwrap().to_string())).collect();
        Cluster { dir: tempfile::tempdir().unwrap(), addresses, reserved, nodes: BTreeMap::new() }
    }

    /// Three nodes that have formed a cluster.
    pub(crate) async fn formed() -> Cluster {
        let mut cluster = Cluster::of(1..=4);
        for id in 1..=3 {
            cluster.start(id).await;
        }
        cluster.ready().await;
        cluster
    }

    pub(crate) fn address(&self, id: u64) -> &str {
        &self.addresses[&id]
    }

    pub(crate) fn dir(&self, id: u64) -> PathBuf {
        self.dir.path().join(id.to_string())
    }

    pub(crate) fn wipe(&self, id: u64) {
        std::fs::remove_dir_all(self.dir(id)).unwrap();
    }

    /// What node `id` is told when it forms a cluster with `founders`; none: it waits to be added.
    pub(crate) fn settings(&self, id: u64, founders: &[u64]) -> Settings {
        let mut settings = self.given(id, founders).check().unwrap();
        settings.timings = patient();
        settings
    }

    /// The socket that is kept for a node that was not started.
    pub(crate) fn listener(&self, id: u64) -> TcpListener {
        self.reserved[&id].try_clone().unwrap()
    }

    pub(crate) fn given(&self, id: u64, founders: &[u64]) -> Given {
        let list: Vec<String> = founders.iter().map(|id| format!("{id}={}", self.address(*id))).collect();
        Given {
            node: Some(id),
            listen: Some(self.address(id).to_owned()),
            data_dir: Some(self.dir(id)),
            join: Some(list.is_empty()),
            cluster: Some(list),
            ..Given::default()
        }
    }

    pub(crate) async fn start(&mut self, id: u64) {
        self.start_with(id, &[1, 2, 3]).await;
    }

    pub(crate) async fn start_with(&mut self, id: u64, founders: &[u64]) {
        let settings = self.settings(id, founders);
        // Its own process would have ended; here the old node may still be closing its files.
        let node = until("the port and the directory are free", async || {
            let mut launch = Coordinator::with(settings.clone());
            if let Some(listener) = self.reserved.get(&id) {
                launch = launch.listener(listener.try_clone().unwrap());
            }
            match launch.start().await {
                Ok(node) => Some(node),
                Err(NodeError::Listen { .. } | NodeError::Identity(_)) => None,
                Err(error) => panic!("{error}"),
            }
        })
        .await;
        self.reserved.remove(&id);
        self.nodes.insert(id, node);
    }

    pub(crate) async fn ready(&self) {
        for node in self.nodes.values() {
            let ready = tokio::time::timeout(PATIENCE, node.ready()).await;
            ready
                .unwrap_or_else(|_| panic!("node {} is not ready: {}", node.node(), node.forming()))
                .unwrap();
        }
    }

    pub(crate) async fn shutdown(&mut self, id: u64) {
        self.nodes.remove(&id).unwrap().shutdown().await.unwrap();
    }

    /// Ends a node as a crash would.
    pub(crate) fn crash(&mut self, id: u64) {
        drop(self.nodes.remove(&id).unwrap());
    }

    /// Who leads, by the word of all that run.
    pub(crate) async fn leader(&self) -> u64 {
        until("one leader is known to all", async || {
            let leaders = self.nodes.values().map(|node| node.raft_status()?.leader.map(|(id, _)| id.get()));
            let leaders: Option<Vec<u64>> = leaders.collect();
            let leaders = leaders?;
            leaders.first().copied().filter(|first| leaders.iter().all(|leader| leader == first))
        })
        .await
    }

    pub(crate) async fn admin(&self, id: u64) -> AdminServiceClient<Channel> {
        admin(&self.nodes[&id]).await
    }
}

/// Timings that a loaded machine keeps.
fn patient() -> Timings {
    Timings {
        heartbeat: Duration::from_millis(80),
        election_min: Duration::from_millis(200),
        election_max: Duration::from_millis(700),
        ..Timings::default()
    }
}

/// One ready node in memory.
pub(crate) async fn alone() -> Coordinator {
    let mut settings = Settings::in_memory();
    settings.timings = patient();
    Coordinator::with(settings).start().await.unwrap()
}

pub(crate) async fn channel(node: &Coordinator) -> Channel {
    Channel::from_shared(node.endpoint()).unwrap().connect().await.unwrap()
}

pub(crate) async fn admin(node: &Coordinator) -> AdminServiceClient<Channel> {
    AdminServiceClient::new(channel(node).await)
}

pub(crate) async fn map(node: &Coordinator) -> MapServiceClient<Channel> {
    MapServiceClient::new(channel(node).await)
}

pub(crate) async fn locks(node: &Coordinator) -> LockServiceClient<Channel> {
    LockServiceClient::new(channel(node).await)
}

pub(crate) async fn workers(node: &Coordinator) -> WorkerServiceClient<Channel> {
    WorkerServiceClient::new(channel(node).await)
}

/// A request id that nobody has used.
pub(crate) fn request_id() -> Option<v1::RequestId> {
    Some(v1::RequestId { id: fastrand::u128(1..).to_be_bytes().to_vec().into(), seen_index: u64::MAX })
}

/// A keyspace whose partitions stay where they are put.
pub(crate) fn create(name: &str, partitions: u32) -> v1::CreateKeyspaceRequest {
    let policy = v1::KeyspaceChange { balance: Some(false), ..v1::KeyspaceChange::default() };
    v1::CreateKeyspaceRequest {
        request: request_id(),
        name: name.to_owned(),
        partitions,
        policy: Some(policy),
        ..Default::default()
    }
}

/// A join that is accepted.
pub(crate) fn a_join(worker: &str, keyspace: &str) -> v1::JoinRequest {
    use sha2::{Digest as _, Sha256};
    v1::JoinRequest {
        protocol: ringfence_api::PROTOCOL,
        worker: worker.to_owned(),
        nonce: fastrand::u128(1..).to_be_bytes().to_vec().into(),
        secret_sha256: Sha256::digest(SECRET).to_vec().into(),
        keyspaces: vec![keyspace.to_owned()],
        ..v1::JoinRequest::default()
    }
}

/// Opens a session, and a stream of it, that is never renewed: it lives for its TTL of ten seconds.
pub(crate) async fn join(node: &Coordinator, worker: &str, keyspace: &str) -> u64 {
    let mut workers = workers(node).await;
    let session = workers.join(a_join(worker, keyspace)).await.unwrap().into_inner().session;
    let open = v1::attach_request::Open {
        protocol: ringfence_api::PROTOCOL,
        cluster: String::new(),
        session,
        secret: SECRET.into(),
        drills: Vec::new(),
    };
    let open = v1::AttachRequest { message: Some(v1::attach_request::Message::Open(open)) };
    // The requests never end, so the stream is there until the test is over.
    let requests = tokio_stream::StreamExt::chain(tokio_stream::once(open), tokio_stream::pending());
    let mut stream = workers.attach(requests).await.unwrap().into_inner();
    tokio::spawn(async move { while let Ok(Some(_)) = stream.message().await {} });
    session
}

/// Opens a session that only takes locks, without a stream: it lives for its TTL of a minute.
pub(crate) async fn join_for_locks(node: &Coordinator, worker: &str) -> u64 {
    let join = v1::JoinRequest { keyspaces: Vec::new(), ttl_ms: 60_000, ..a_join(worker, "none") };
    workers(node).await.join(join).await.unwrap().into_inner().session
}

/// The secret of every session that [`join`] opens.
pub(crate) const SECRET: &[u8] = b"the secret of a test";

/// Asks again and again until there is an answer.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "it did not come to be: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
