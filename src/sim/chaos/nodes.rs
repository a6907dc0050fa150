//! The three nodes: durable, on loopback, each behind its proxy.

use super::network::Network;
use super::process::Process;
use super::tools::{self, Controls, Tools};
use anyhow::{Context as _, bail};
use ringfence::admin::{Admin, ClusterStatus};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How long a cluster may take to form, or to elect, on a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(40);
/// Below the ports that the kernel gives to outgoing connections: a node that was killed finds its port free again.
const PORTS: std::ops::Range<u16> = 11_000..32_000;

/// One node.
pub(super) struct Node {
    /// `None` while it is down on purpose.
    pub(super) process: Option<Process>,
    pub(super) controls: Controls,
    pub(super) data: PathBuf,
    listen: String,
}

/// All nodes, by id.
pub(super) struct Nodes {
    pub(super) all: BTreeMap<u64, Node>,
    /// Where workers, other nodes and the run reach them.
    pub(super) endpoints: String,
    list: String,
    binary: PathBuf,
    dir: PathBuf,
}

/// The name of a node's process.
pub(super) fn name(node: u64) -> String {
    format!("n{node}")
}

/// The node whose process has this name.
pub(super) fn number(name: &str) -> Option<u64> {
    name.strip_prefix('n')?.parse().ok()
}

impl Node {
    /// Where it really listens.
    pub(super) fn listen(&self) -> &str {
        &self.listen
    }
}

impl Nodes {
    /// Puts proxies up and starts the nodes.
    pub(super) fn start(
        binary: &Path,
        dir: &Path,
        tools: &Tools,
        network: &Network,
        runtime: &Handle,
    ) -> anyhow::Result<Nodes> {
        let (mut all, mut list, mut urls) = (BTreeMap::new(), Vec::new(), Vec::new());
        for node in 1..=3 {
            let listen = free_address()?;
            let proxy = runtime.block_on(network.in_front_of(node, listen.clone()))?;
            list.push(format!("{node}={proxy}"));
            urls.push(format!("http://{proxy}"));
            let data = dir.join(format!("data-{node}"));
            // One node's disk is a small one, to be filled.
            if tools.mounts && node == 3 {
                tools::mount_disk(&data)?;
            }
            let controls = Controls::fair(dir, &name(node))?;
            all.insert(node, Node { process: None, controls, data, listen });
        }
        let mut nodes = Nodes {
            all,
            endpoints: urls.join(","),
            list: list.join(","),
            binary: binary.to_owned(),
            dir: dir.to_owned(),
        };
        for node in 1..=3 {
            nodes.run(node, tools, network, true)?;
        }
        Ok(nodes)
    }

    /// Starts a node on what its disk holds.
    pub(super) fn run(
        &mut self,
        id: u64,
        tools: &Tools,
        network: &Network,
        clock: bool,
    ) -> anyhow::Result<()> {
        let node = self.all.get_mut(&id).context("no such node")?;
        let mut command = Command::new(&self.binary);
        command.args(["--die-with-parent", "serve", "--node", &id.to_string(), "--listen", &node.listen]);
        command.arg("--data-dir").arg(&node.data).args(["--cluster", &self.list]);
        // Three nodes and four workers share a machine, and perhaps with others: a node that waits for its turn is not dead.
        command.args(["--heartbeat-ms", "100", "--election-min-ms", "300", "--election-max-ms", "600"]);
        // Balancing is to be over soon after the last fault, and snapshots are to be taken.
        command.args(["--cool-down-ms", "500", "--snapshot-entries", "200"]);
        tools.prepare(&mut command, &node.controls, clock);
        let process = Process::start(&name(id), &self.dir, command)?;
        network.introduce(process.pid(), &name(id));
        node.process = Some(process);
        Ok(())
    }

    /// The process of a node that is up.
    pub(super) fn process(&mut self, id: u64) -> anyhow::Result<&mut Process> {
        let node = self.all.get_mut(&id).context("no such node")?;
        node.process.as_mut().with_context(|| format!("{} is down", name(id)))
    }

    /// Nodes that have ended by themselves, with the last lines of what they logged.
    pub(super) fn fallen(&mut self) -> Vec<(u64, String)> {
        let fallen = |(id, node): (&u64, &mut Node)| {
            let process = node.process.as_mut()?;
            process.has_ended()?;
            Some((*id, process.last_words()))
        };
        self.all.iter_mut().filter_map(fallen).collect()
    }

    /// Waits until some node leads, and returns the cluster as that one sees it.
    pub(super) fn led(&mut self, admin: &Admin, runtime: &Handle) -> anyhow::Result<ClusterStatus> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some((id, words)) = self.fallen().pop() {
                bail!("node {id} has ended; {words}");
            }
            match runtime.block_on(admin.cluster_status()) {
                Ok(status) if status.leader.is_some() => return Ok(status),
                _ if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
                other => bail!("no leader within {PATIENCE:?}: {other:?}"),
            }
        }
    }
}

/// An address on loopback that is free now.
fn free_address() -> anyhow::Result<String> {
    for _ in 0..1_000 {
        let address = format!("127.0.0.1:{}", fastrand::u16(PORTS));
        if TcpListener::bind(&address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no port is free on loopback")
}
