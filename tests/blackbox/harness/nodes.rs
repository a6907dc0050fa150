//! Durable nodes on loopback, or one in memory.

use super::{PATIENCE, Process, Ran, Slot, run, wait_for};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;
use tempfile::TempDir;

/// Below the ports that the kernel gives to outgoing connections: a node that was killed finds its port free again.
const PORTS: std::ops::Range<u16> = 11_000..32_000;
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

/// Nodes, by id. Dropping them kills them and takes their files away.
pub(crate) struct Cluster {
    pub(crate) nodes: BTreeMap<u64, Process>,
    pub(crate) addresses: BTreeMap<u64, String>,
    /// All nodes' URLs.
    pub(crate) endpoints: String,
    // After the nodes, so that they are gone before their files are and before the next cluster starts.
    dir: TempDir,
    _slot: Slot,
}

/// Who owns each partition, under which epoch and in which session.
pub(crate) type Owners = BTreeMap<u64, (String, u64, u64)>;

impl Cluster {
    /// One node in memory, which leads.
    pub(crate) fn dev() -> Cluster {
        Cluster::try_often(1, |cluster| {
            let address = cluster.addresses[&1].clone();
            cluster.nodes.insert(1, Process::start("node-1", cluster.dir(), &["dev", "--listen", &address]));
        })
    }

    /// So many durable nodes, with a leader.
    pub(crate) fn durable(count: u64) -> Cluster {
        Cluster::try_often(count, |cluster| {
            for node in 1..=count {
                cluster.start(node);
            }
        })
    }

    /// Somebody else may take a port between our look and the node's.
    fn try_often(count: u64, start: impl Fn(&mut Cluster)) -> Cluster {
        let mut slot = Some(Slot::take());
        loop {
            let mut cluster = Cluster::unstarted(count, slot.take().unwrap_or_else(Slot::take));
            start(&mut cluster);
            if cluster.is_led() {
                return cluster;
            }
        }
    }

    /// Addresses and an empty folder for so many nodes.
    pub(crate) fn unstarted(count: u64, slot: Slot) -> Cluster {
        let addresses: BTreeMap<u64, String> = (1..=count).map(|node| (node, free_address())).collect();
        let urls: Vec<String> = addresses.values().map(|address| format!("http://{address}")).collect();
        let dir = tempfile::tempdir().unwrap();
        Cluster { nodes: BTreeMap::new(), addresses, endpoints: urls.join(","), dir, _slot: slot }
    }

    /// False when a port was taken.
    fn is_led(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for node in self.nodes.values_mut() {
                let Some(status) = node.has_ended() else { continue };
                assert!(node.log().contains("in use"), "{} ended: {status}", node.name);
                return false;
            }
            if self.leader_now().is_some() {
                return true;
            }
            assert!(Instant::now() < deadline, "no leader within {PATIENCE:?}");
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn data_dir(&self, node: u64) -> PathBuf {
        self.dir().join(format!("data-{node}"))
    }

    /// The founders as `--cluster` takes them.
    pub(crate) fn list(&self) -> String {
        let entries: Vec<String> =
            self.addresses.iter().map(|(id, address)| format!("{id}={address}")).collect();
        entries.join(",")
    }

    /// Starts a founder, or starts it again on what its disk holds.
    pub(crate) fn start(&mut self, node: u64) {
        let list = self.list();
        self.start_with(node, &["--cluster", &list]);
    }

    /// The same with these arguments in place of the list.
    pub(crate) fn start_with(&mut self, node: u64, args: &[&str]) {
        let (id, data, address) = (node.to_string(), self.data_dir(node), self.addresses[&node].clone());
        let own = ["serve", "--node", &id, "--listen", &address, "--data-dir", data.to_str().unwrap()];
        let process = Process::start(&format!("node-{node}"), self.dir(), &[&own[..], args].concat());
        self.nodes.insert(node, process);
    }

    pub(crate) fn node(&mut self, node: u64) -> &mut Process {
        self.nodes.get_mut(&node).unwrap()
    }

    /// Waits until this node refuses to go on, and returns its exit code and what it said this time.
    pub(crate) fn refusal(&mut self, node: u64) -> (Option<i32>, String) {
        let process = self.node(node);
        let code = process.ended().code();
        let log = process.log();
        (code, log.lines().rev().find(|line| line.starts_with("error: ")).unwrap_or(&log).to_owned())
    }

    /// A command that asks this cluster.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        run(&self.endpoints, &[args, &["-o", "json"]].concat())
    }

    /// A command that asks one node.
    pub(crate) fn run_at(&self, node: u64, args: &[&str]) -> Ran {
        run(&format!("http://{}", self.addresses[&node]), &[args, &["-o", "json"]].concat())
    }

    /// Tries a change again until a leader has acknowledged it.
    #[track_caller]
    pub(crate) fn acknowledged(&self, args: &[&str]) -> Value {
        wait_for(&args.join(" "), || Some(self.run(args)).filter(|ran| ran.code == 0)).json()
    }

    pub(crate) fn create_keyspace(&self, name: &str, partitions: u32, ttl: &str) {
        self.run(&["keyspace", "create", name, "--partitions", &partitions.to_string(), "--ttl", ttl]).done();
    }

    /// The cluster as the leader sees it; `None` when no node that answers is the leader, or has heard of one.
    pub(crate) fn leader_now(&self) -> Option<Value> {
        let alive = self.nodes.iter().filter(|(_, process)| !process.is_stopped()).map(|(id, _)| *id);
        alive
            .filter_map(|node| {
                let ran = self.run_at(node, &["cluster", "status", "--timeout", "2s"]);
                (ran.code == 0).then(|| ran.json())
            })
            .find(|status| status["leader"].is_u64() && status["leader"] == status["answered_by"])
    }

    /// Waits until a node says of itself that it leads, and returns its id and term.
    pub(crate) fn leader(&self) -> (u64, u64) {
        let status = wait_for("a node leads", || self.leader_now());
        (status["leader"].as_u64().unwrap(), status["term"].as_u64().unwrap())
    }

    /// Who owns what, by the leader's account.
    pub(crate) fn owners(&self, keyspace: &str) -> Owners {
        owners(&self.acknowledged(&["partition", "list", keyspace]))
    }

    /// Waits until each partition is owned and ready.
    pub(crate) fn all_ready(&self, keyspace: &str) -> Owners {
        wait_for("every partition has an owner that is ready", || {
            let list = self.acknowledged(&["partition", "list", keyspace]);
            list.as_array().unwrap().iter().all(|partition| partition["ready"] == true).then(|| owners(&list))
        })
    }
}

/// Who owns what, from the answer of `partition list`.
pub(crate) fn owners(list: &Value) -> Owners {
    let of = |partition: &Value| {
        let worker = partition["worker"].as_str().unwrap_or_default().to_owned();
        let number = |field: &str| partition[field].as_u64().unwrap_or_default();
        (number("partition"), (worker, number("epoch"), number("session")))
    };
    list.as_array().unwrap().iter().map(of).collect()
}

/// An address on loopback that is free now and that no other test of this run is given.
pub(crate) fn free_address() -> String {
    let count = PORTS.end - PORTS.start;
    let start = u16::try_from(std::process::id() % u32::from(count)).unwrap();
    loop {
        let step = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
        let port =
            PORTS.start + u16::try_from((u32::from(start) + u32::from(step)) % u32::from(count)).unwrap();
        let address = format!("127.0.0.1:{port}");
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}
