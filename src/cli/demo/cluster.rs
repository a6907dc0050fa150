//! Three durable nodes on loopback.

use super::children::Child;
use anyhow::{Context as _, bail};
use ringfence::admin::{Admin, ClusterStatus};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a cluster may take to form, or to elect, on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(20);
/// Somebody else may take a port between our look and the node's: then all three try others.
const TRIES: usize = 3;

/// The nodes, and where they are.
pub(super) struct Cluster {
    nodes: Vec<Node>,
    dir: PathBuf,
    list: String,
    pub(super) endpoints: String,
}

struct Node {
    number: u64,
    address: String,
    child: Child,
    /// It was killed on purpose.
    killed: bool,
}

impl Cluster {
    /// Starts three nodes and waits until they are a cluster with a leader.
    pub(super) async fn start(dir: &Path) -> anyhow::Result<Cluster> {
        for attempt in 1.. {
            let dir = dir.join(format!("cluster-{attempt}"));
            match Cluster::try_start(&dir).await {
                Ok(cluster) => return Ok(cluster),
                Err(error) if attempt < TRIES && error.to_string().contains("in use") => {}
                Err(error) => return Err(error),
            }
        }
        bail!("no ports were free")
    }

    async fn try_start(dir: &Path) -> anyhow::Result<Cluster> {
        std::fs::create_dir_all(dir)?;
        let addresses = free_addresses(3)?;
        let list: Vec<String> =
            addresses.iter().enumerate().map(|(i, at)| format!("{}={at}", i + 1)).collect();
        let endpoints: Vec<String> = addresses.iter().map(|at| format!("http://{at}")).collect();
        let mut cluster = Cluster {
            nodes: Vec::new(),
            dir: dir.to_path_buf(),
            list: list.join(","),
            endpoints: endpoints.join(","),
        };
        for (number, address) in (1..).zip(addresses) {
            let child = cluster.spawn(number, &address)?;
            cluster.nodes.push(Node { number, address, child, killed: false });
        }
        cluster.leader().await?;
        Ok(cluster)
    }

    fn spawn(&self, number: u64, address: &str) -> anyhow::Result<Child> {
        let data = self.dir.join(format!("node-{number}"));
        let args = [
            "serve",
            "--node",
            &number.to_string(),
            "--listen",
            address,
            "--data-dir",
            data.to_str().context("the temporary folder's name is not UTF-8")?,
            "--cluster",
            &self.list,
        ];
        Child::node(&format!("node-{number}"), &self.dir, &args.map(str::to_string))
    }

    /// An operator's connection to all nodes.
    pub(super) fn admin(&self) -> anyhow::Result<Admin> {
        Ok(Admin::at(self.endpoints.as_str())?)
    }

    /// Waits until there is a leader, and returns the cluster as it sees it.
    pub(super) async fn leader(&mut self) -> anyhow::Result<ClusterStatus> {
        let admin = self.admin()?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            for node in self.nodes.iter_mut().filter(|node| !node.killed) {
                if let Some(status) = node.child.has_ended() {
                    bail!("{} has ended ({status}); {}", node.child.name, node.child.last_words());
                }
            }
            match admin.cluster_status().await {
                Ok(status) if status.leader.is_some() => return Ok(status),
                _ if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(20)).await,
                Ok(status) => {
                    bail!("no leader within {PATIENCE:?}: {status:?}; {}", self.nodes[0].child.last_words())
                }
                Err(error) => {
                    bail!("no leader within {PATIENCE:?}: {error}; {}", self.nodes[0].child.last_words())
                }
            }
        }
    }

    /// Kills the node of this number with SIGKILL.
    pub(super) async fn kill(&mut self, number: u64) -> anyhow::Result<()> {
        let node = self.nodes.iter_mut().find(|node| node.number == number).context("no such node")?;
        node.killed = true;
        node.child.kill().await
    }

    /// Starts a node again on what its disk holds.
    pub(super) fn restart(&mut self, number: u64) -> anyhow::Result<()> {
        let at = self.nodes.iter().position(|node| node.number == number).context("no such node")?;
        let child = self.spawn(number, &self.nodes[at].address)?;
        self.nodes[at].child = child;
        self.nodes[at].killed = false;
        Ok(())
    }

    /// Stops all nodes.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        let nodes = self.nodes.iter_mut().map(|node| node.child.terminate());
        futures_util::future::try_join_all(nodes).await?;
        Ok(())
    }
}

/// Addresses on loopback that are free now, all different.
fn free_addresses(count: usize) -> anyhow::Result<Vec<String>> {
    let listeners: Result<Vec<_>, _> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    let listeners = listeners.context("no port is free on 127.0.0.1")?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.to_string())).collect()
}
