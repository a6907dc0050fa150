//! The whole in one process: real coordinators, the real SDK, a real fence, over real sockets.
//!
//! | module | what it is |
//! |---|---|
//! | `proxy` | a network that delays, stalls, cuts one way and goes silent without a word |
//! | `store` | what owners write to, with a fence or without one |
//! | `member` | a worker whose ownerships a test looks at |
//! | `wire` | sessions spoken by hand, for what the SDK never says |
//!
//! Nothing here waits for a time to pass. A test waits for a state, and fails at its deadline with what it waited for.

pub(crate) mod member;
pub(crate) mod proxy;
pub(crate) mod store;
pub(crate) mod wire;

use ringfence::admin::{Admin, Partition, PolicyChange};
use ringfence::ids::{ClusterId, Epoch, NodeId, PartitionId, WorkerId};
use ringfence_server::raft::Timings;
use ringfence_server::{Coordinator, Given, NodeError, Settings};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// How long a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How many clusters run at once: a machine of two cores keeps the leases of no more.
static ROOM: Semaphore = Semaphore::const_new(2);

/// Coordinator nodes by id. Each keeps its address and its directory for as long as the test runs.
pub(crate) struct Cluster {
    dir: tempfile::TempDir,
    addresses: BTreeMap<u64, String>,
    reserved: BTreeMap<u64, TcpListener>,
    pub(crate) nodes: BTreeMap<u64, Coordinator>,
    _room: SemaphorePermit<'static>,
}

impl Cluster {
    /// One node in memory.
    pub(crate) async fn one() -> Cluster {
        Cluster::one_with(Settings::in_memory()).await
    }

    /// The same with settings of its own.
    pub(crate) async fn one_with(settings: Settings) -> Cluster {
        let mut cluster = Cluster::of(0).await;
        let node = Coordinator::with(settings).start().await.unwrap();
        cluster.addresses.insert(1, node.address().to_string());
        cluster.nodes.insert(1, node);
        cluster
    }

    /// Three durable nodes that have formed a cluster.
    pub(crate) async fn three() -> Cluster {
        let mut cluster = Cluster::of(3).await;
        for id in 1..=3 {
            cluster.start(id).await;
        }
        cluster.ready().await;
        cluster
    }

    async fn of(count: u64) -> Cluster {
        let room = ROOM.acquire().await.unwrap();
        let reserved: BTreeMap<u64, TcpListener> =
            (1..=count).map(|id| (id, TcpListener::bind("127.0.0.1:0").unwrap())).collect();
        let addresses = reserved.iter().map(|(id, l)| (*id, l.local_addr().unwrap().to_string())).collect();
        Cluster {
            dir: tempfile::tempdir().unwrap(),
            addresses,
            reserved,
            nodes: BTreeMap::new(),
            _room: room,
        }
    }

    /// Starts a durable node, the first time or again.
    pub(crate) async fn start(&mut self, id: u64) {
        let list = self.addresses.iter().map(|(id, at)| format!("{id}={at}")).collect();
        let given = Given {
            node: Some(id),
            listen: Some(self.addresses[&id].clone()),
            data_dir: Some(self.dir.path().join(id.to_string())),
            cluster: Some(list),
            ..Given::default()
        };
        let mut settings = given.check().unwrap();
        settings.timings = patient();
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

    /// Ends a node as an operator would.
    pub(crate) async fn shutdown(&mut self, id: u64) {
        self.nodes.remove(&id).unwrap().shutdown().await.unwrap();
    }

    /// Ends a node as a crash would.
    pub(crate) fn crash(&mut self, id: u64) {
        drop(self.nodes.remove(&id).unwrap());
    }

    pub(crate) fn address(&self, id: u64) -> &str {
        &self.addresses[&id]
    }

    /// The addresses of all nodes, those that are down included.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.addresses.values().map(String::as_str)
    }

    /// All nodes, as a worker is told of them.
    pub(crate) fn endpoints(&self) -> String {
        self.addresses().map(|at| format!("http://{at}")).collect::<Vec<_>>().join(",")
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

    /// Hands the lead to another node, and returns which.
    pub(crate) async fn another_leader(&self) -> u64 {
        let old = self.leader().await;
        let to = *self.nodes.keys().cycle().skip_while(|id| **id != old).find(|id| **id != old).unwrap();
        self.admin().transfer_leadership(NodeId::new(to).ok()).await.unwrap();
        until("the lead has changed", async || (self.leader().await == to).then_some(())).await;
        to
    }

    pub(crate) fn admin(&self) -> Admin {
        Admin::at(self.endpoints().as_str()).unwrap()
    }

    pub(crate) async fn id(&self) -> ClusterId {
        self.admin().cluster_status().await.unwrap().cluster.unwrap()
    }

    /// A keyspace whose partitions stay where they are put.
    pub(crate) async fn keyspace(&self, name: &str, partitions: u32, ttl: Duration) {
        self.keyspace_with(name, partitions, PolicyChange { ttl: Some(ttl), ..PolicyChange::default() })
            .await;
    }

    /// The same with more said of its policy.
    pub(crate) async fn keyspace_with(&self, name: &str, partitions: u32, policy: PolicyChange) {
        let policy = PolicyChange { balance: Some(false), ..policy };
        self.admin().create_keyspace(name, partitions, &policy).await.unwrap();
    }

    /// Asks for a move, without waiting for its end. A worker that was suspected for a moment is asked for again.
    pub(crate) async fn begin_move(&self, keyspace: &str, partition: u32, to: &str) {
        let (admin, to) = (self.admin(), WorkerId::new(to).unwrap());
        until("the move is accepted", async || {
            let asked = admin.move_partition(keyspace, PartitionId::new(partition), &to).await;
            match asked {
                Ok(_) => Some(()),
                Err(error) if error.kind() == ringfence::ErrorKind::Refused => None,
                Err(error) => panic!("{error}"),
            }
        })
        .await;
    }

    pub(crate) async fn partition(&self, keyspace: &str, partition: u32) -> Partition {
        self.admin().partition(keyspace, PartitionId::new(partition)).await.unwrap().partition
    }

    /// The epoch of each partition, in order; 0 where none was granted.
    pub(crate) async fn epochs(&self, keyspace: &str) -> Vec<u64> {
        let partitions = self.admin().partitions(keyspace).await.unwrap();
        partitions.iter().map(|p| p.epoch.map_or(0, Epoch::get)).collect()
    }

    /// Who owns a partition, once somebody does and is ready.
    pub(crate) async fn owner(&self, keyspace: &str, partition: u32) -> String {
        until("the partition has an owner that is ready", async || {
            let partition = self.partition(keyspace, partition).await;
            partition.owner.filter(|_| partition.ready).map(|owner| owner.worker.to_string())
        })
        .await
    }
}

/// Timings that a loaded machine keeps.
fn patient() -> Timings {
    Timings {
        heartbeat: Duration::from_millis(80),
        election_min: Duration::from_millis(200),
        election_max: Duration::from_millis(600),
        ..Timings::default()
    }
}

/// Asks again and again until there is an answer.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "it did not come to be: {what}");
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
}

/// Waits for one thing, no longer than a test may wait.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("it did not come to be: {what}"))
}
