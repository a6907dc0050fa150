//! A cluster in one process, whose links can be cut and whose nodes can be killed, wiped and started again.

use crate::files::{Files, SystemFiles};
use crate::raft::*;
use bytes::Bytes;
use ringfence_core::ids::{ClusterId, LogIndex, NodeId, Term};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tonic::transport::Channel;
use tonic::transport::server::TcpIncoming;

/// Far beyond anything that works.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn system_files() -> Arc<dyn Files> {
    Arc::new(SystemFiles)
}

/// What the test machine holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) last: Option<Position>,
    pub(super) values: Vec<Vec<u8>>,
    pub(super) restored: usize,
}

/// A machine that remembers every payload in order, and answers how many there are.
#[derive(Clone, Default)]
pub(super) struct Log(pub(super) Arc<Mutex<State>>);

impl Machine for Log {
    type Answer = usize;

    fn apply(&mut self, at: Position, payload: Option<&[u8]>) -> Result<usize, MachineError> {
        if payload == Some(b"format 9") {
            return Err(MachineError::new("format 9 is not known here: run a newer version"));
        }
        let mut state = self.0.lock().unwrap();
        assert!(state.last < Some(at), "applied in order, once");
        state.last = Some(at);
        state.values.extend(payload.map(<[u8]>::to_vec));
        Ok(state.values.len())
    }

    fn snapshot(&self) -> Box<dyn FnOnce() -> Vec<u8> + Send> {
        let values = self.0.lock().unwrap().values.clone();
        Box::new(move || {
            let framed = |value: &Vec<u8>| [&(value.len() as u32).to_le_bytes()[..], value].concat();
            values.iter().flat_map(framed).collect()
        })
    }

    fn restore(&mut self, at: Position, mut bytes: &[u8]) -> Result<(), MachineError> {
        let mut values = Vec::new();
        while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
            let (value, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
            values.push(value.to_vec());
            bytes = rest;
        }
        let mut state = self.0.lock().unwrap();
        *state = State { last: Some(at), values, restored: state.restored + 1 };
        Ok(())
    }
}

/// What a node's disk is made of.
#[derive(Clone)]
pub(super) enum Kept {
    Memory(MemoryLog, MemorySnapshots, NonZeroU64),
    Dir(PathBuf),
}

impl Kept {
    pub(super) fn memory() -> Kept {
        let store = NonZeroU64::new(fastrand::u64(1..1 << 62)).unwrap();
        Kept::Memory(MemoryLog::new(), MemorySnapshots::new(), store)
    }

    fn disk(&self, config: &RaftConfig) -> Result<Disk, StartError> {
        match self {
            Kept::Memory(log, snapshots, store) => Ok(Disk::new(log.clone(), snapshots.clone(), *store)),
            Kept::Dir(dir) => Disk::open(&system_files(), dir, &config.cluster, config.node),
        }
    }
}

/// Where a node listens while it runs. It is another port after each start: one that is given up in between may be an
/// outgoing connection's by then.
type Listens = watch::Sender<Option<SocketAddr>>;

/// One directed link: a proxy that can be cut, or slow.
struct Link {
    proxy: SocketAddr,
    cut: watch::Sender<bool>,
    /// How many bytes a connection that is made now carries in a millisecond; 0: as many as it can.
    rate: watch::Sender<usize>,
}

impl Link {
    async fn new(target: &Listens) -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = listener.local_addr().unwrap();
        let cut = watch::Sender::new(false);
        let rate = watch::Sender::new(0);
        let (is_cut, its_rate) = (cut.subscribe(), rate.subscribe());
        let target = target.subscribe();
        tokio::spawn(async move {
            while let Ok((mut inbound, _)) = listener.accept().await {
                // A node that does not run refuses the connection.
                let Some(target) = *target.borrow() else { continue };
                let mut is_cut = is_cut.clone();
                let rate = *its_rate.borrow();
                tokio::spawn(async move {
                    let pass = async {
                        let mut outbound = TcpStream::connect(target).await?;
                        // Or every answer waits 40 ms for Nagle and the delayed acknowledgement.
                        inbound.set_nodelay(true)?;
                        outbound.set_nodelay(true)?;
                        if rate == 0 {
                            return tokio::io::copy_bidirectional(&mut inbound, &mut outbound)
                                .await
                                .map(drop);
                        }
                        let (mut from, mut back_to) = inbound.split();
                        let (mut back, mut to) = outbound.split();
                        tokio::select! {
                            done = slowly(&mut from, &mut to, rate) => done,
                            done = tokio::io::copy(&mut back, &mut back_to) => done.map(drop),
                        }
                    };
                    tokio::select! {
                        _ = is_cut.wait_for(|cut| *cut) => {}
                        _ = pass => {}
                    }
                });
            }
        });
        Link { proxy, cut, rate }
    }
}

async fn slowly(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    rate: usize,
) -> std::io::Result<()> {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let count = from.read(&mut bytes).await?;
        if count == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_micros((count * 1_000 / rate) as u64)).await;
        to.write_all(&bytes[..count]).await?;
    }
}

/// Dials through the links of one node.
struct Linked {
    from: u64,
    links: Arc<BTreeMap<(u64, u64), Link>>,
}

impl Linked {
    fn through(&self, node: NodeId, address: &str) -> String {
        let link = self.links.get(&(self.from, node.get()));
        link.map_or_else(|| address.to_string(), |link| link.proxy.to_string())
    }
}

impl Dialer for Linked {
    fn dial(&self, node: NodeId, address: &str) -> Result<Channel, DialError> {
        TcpDialer::default().dial(node, &self.through(node, address))
    }

    fn dial_for_snapshots(&self, node: NodeId, address: &str) -> Result<Channel, DialError> {
        TcpDialer::default().dial_for_snapshots(node, &self.through(node, address))
    }
}

pub(super) struct World {
    links: Arc<BTreeMap<(u64, u64), Link>>,
    listens: BTreeMap<u64, Listens>,
    pub(super) disks: BTreeMap<u64, Kept>,
    pub(super) nodes: BTreeMap<u64, Running>,
    /// Changes the settings of a node before it starts.
    pub(super) settings: Box<dyn Fn(&mut RaftConfig) + Send + Sync>,
}

/// A started node. What it applied is looked at from outside.
#[derive(Clone)]
pub(super) struct Running {
    pub(super) raft: RaftNode<usize>,
    pub(super) log: Log,
    stop: watch::Sender<bool>,
}

impl Running {
    pub(super) fn values(&self) -> usize {
        self.log.0.lock().unwrap().values.len()
    }

    /// Waits until the status is like this.
    pub(super) async fn until(&self, what: &str, like: impl FnMut(&RaftStatus) -> bool) -> RaftStatus {
        let mut status = self.raft.status();
        let result = tokio::time::timeout(PATIENCE, status.wait_for(like)).await.map(|s| s.unwrap().clone());
        result
            .unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}; {:?}", self.raft.status().borrow()))
    }

    pub(super) async fn propose(&self, payload: impl Into<Bytes>) -> Result<(Position, usize), ProposeError> {
        self.raft.propose(payload.into(), None).await
    }
}

impl World {
    /// Nodes 1 to `count`, in memory, not started. Some of them may join later.
    pub(super) async fn new(count: u64) -> World {
        let listens: BTreeMap<u64, Listens> = (1..=count).map(|id| (id, Listens::new(None))).collect();
        let mut links = BTreeMap::new();
        for from in 1..=count {
            for (&to, target) in &listens {
                links.insert((from, to), Link::new(target).await);
            }
        }
        let disks = (1..=count).map(|id| (id, Kept::memory())).collect();
        World { links: Arc::new(links), listens, disks, nodes: BTreeMap::new(), settings: Box::new(|_| {}) }
    }

    /// Nodes 1 to `count`, started, in one cluster.
    pub(super) async fn cluster(count: u64) -> World {
        let mut world = World::new(count).await;
        world.start_all().await;
        world
    }

    pub(super) async fn start_all(&mut self) {
        let ids: Vec<u64> = self.disks.keys().copied().collect();
        for &id in &ids {
            self.start(id).await.unwrap();
        }
        for &id in &ids {
            self.initialize(id, &ids).await;
        }
    }

    pub(super) async fn initialize(&self, id: u64, members: &[u64]) {
        let members = members.iter().map(|&id| (node(id), self.address(id))).collect();
        self.nodes[&id].raft.initialize(members).await.unwrap();
    }

    /// The address the members know a node by, for as long as the world stands: its own link to itself.
    pub(super) fn address(&self, id: u64) -> String {
        self.links[&(id, id)].proxy.to_string()
    }

    pub(super) fn config(&self, id: u64) -> RaftConfig {
        let mut config = RaftConfig::new(ClusterId::new("test").unwrap(), node(id));
        (self.settings)(&mut config);
        config
    }

    pub(super) async fn start(&mut self, id: u64) -> Result<Running, StartError> {
        let config = self.config(id);
        let disk = self.disks[&id].disk(&config)?;
        self.start_on(id, disk).await
    }

    pub(super) async fn start_on(&mut self, id: u64, disk: Disk) -> Result<Running, StartError> {
        let log = Log::default();
        let dialer = Linked { from: id, links: Arc::clone(&self.links) };
        let raft = RaftNode::start(self.config(id), disk, log.clone(), dialer).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.listens[&id].send_replace(Some(listener.local_addr().unwrap()));
        let stop = watch::Sender::new(false);
        let mut stopped = stop.subscribe();
        let server = tonic::transport::Server::builder().add_service(raft.service().server());
        let until = async move { drop(stopped.wait_for(|stop| *stop).await) };
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        tokio::spawn(server.serve_with_incoming_shutdown(incoming, until));
        let running = Running { raft, log, stop };
        self.nodes.insert(id, running.clone());
        self.isolate(id, false);
        Ok(running)
    }

    /// Stops a node without a word to the others.
    pub(super) async fn kill(&mut self, id: u64) {
        self.isolate(id, true);
        self.listens[&id].send_replace(None);
        let running = self.nodes.remove(&id).unwrap();
        running.stop.send_replace(true);
        running.raft.shutdown().await;
    }

    /// Cuts all links to and from a node, or mends them.
    pub(super) fn isolate(&self, id: u64, cut: bool) {
        for (_, link) in self.links.iter().filter(|((from, to), _)| *from == id || *to == id) {
            link.cut.send_replace(cut);
        }
    }

    /// Cuts the links between two nodes, both ways, or mends them.
    pub(super) fn part(&self, a: u64, b: u64, cut: bool) {
        for ends in [(a, b), (b, a)] {
            self.links[&ends].cut.send_replace(cut);
        }
    }

    /// What connections to a node that are made from now on carry in a millisecond.
    pub(super) fn slow(&self, to: u64, bytes: usize) {
        for (_, link) in self.links.iter().filter(|((_, end), _)| *end == to) {
            link.rate.send_replace(bytes);
        }
    }

    /// The node that leads, confirmed, among those that run.
    pub(super) async fn leader(&self) -> (u64, Running) {
        let search = async {
            loop {
                for (id, running) in &self.nodes {
                    let leads = running.raft.status().borrow().leads();
                    if leads && running.raft.confirm().await.is_ok() {
                        return (*id, running.clone());
                    }
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, search).await.expect("a leader")
    }

    pub(super) async fn propose(&self, count: usize) {
        let (_, leader) = self.leader().await;
        for i in 0..count {
            leader.propose(format!("value {i}")).await.unwrap();
        }
    }

    /// Proposes to whoever leads until it is acknowledged, for a world in which leaders come and go. An attempt of which
    /// nobody knows may have taken effect too.
    pub(super) async fn written(&self, value: &str) -> Position {
        let write = async {
            loop {
                let (_, leader) = self.leader().await;
                if let Ok((at, _)) = leader.propose(value.to_owned()).await {
                    return at;
                }
            }
        };
        tokio::time::timeout(PATIENCE, write).await.expect("somebody who leads for as long as a write takes")
    }

    /// Waits until all running nodes have applied what is here.
    pub(super) async fn converged(&self, at: Position) {
        for running in self.nodes.values() {
            running.until("it has caught up", |s| s.applied.is_some_and(|applied| applied >= at)).await;
        }
    }

    /// Waits until all running nodes have applied the same.
    pub(super) async fn converge(&self) {
        let (_, leader) = self.leader().await;
        let upto = leader.raft.confirm().await.unwrap().applied;
        for running in self.nodes.values() {
            running.until("it has caught up", |s| s.applied.is_some_and(|at| at.index >= upto)).await;
        }
        let values = |running: &Running| running.log.0.lock().unwrap().values.clone();
        for running in self.nodes.values() {
            assert_eq!(values(running), values(&leader));
        }
    }
}

pub(super) fn node(id: u64) -> NodeId {
    NodeId::new(id).unwrap()
}

pub(super) fn term(number: u64) -> Term {
    Term::new(number)
}

pub(super) fn index(number: u64) -> LogIndex {
    LogIndex::new(number)
}
