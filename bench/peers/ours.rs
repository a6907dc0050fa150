//! ringfence: three durable nodes of the binary that `cargo build --release` makes, and the SDK with a session for each
//! client.

use crate::peer::{Client, Peer};
use crate::stage::{Cluster, free_ports};
use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use ringfence::lock::{LockGuard, Locks, Takeover};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Three nodes.
pub struct Ringfence {
    cluster: Option<Cluster>,
    addresses: Vec<String>,
    by_fence: bool,
}

impl Ringfence {
    pub async fn start() -> Result<Ringfence> {
        let binary = build()?;
        let ports = free_ports(3)?;
        let dir = tempfile::tempdir()?;
        let path = dir.path().to_owned();
        let addresses: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let founders: Vec<String> =
            addresses.iter().enumerate().map(|(n, at)| format!("{}={at}", n + 1)).collect();
        let mut cluster = Cluster::new(dir);
        for (n, address) in addresses.iter().enumerate() {
            let id = (n + 1).to_string();
            let mut command = Command::new(&binary);
            command
                .args([
                    "serve",
                    "--node",
                    &id,
                    "--listen",
                    address,
                    "--cluster",
                    &founders.join(","),
                    "--data-dir",
                ])
                .arg(path.join(format!("n{id}")));
            cluster.start(&mut command, &path.join(format!("n{id}.log")))?;
        }
        let ringfence = Ringfence { cluster: Some(cluster), addresses, by_fence: false };
        crate::measure::until_it_serves(&ringfence).await?;
        Ok(ringfence)
    }

    /// One that runs already.
    pub fn at(addresses: &str, by_fence: bool) -> Ringfence {
        let addresses = addresses.split(',').map(str::to_owned).collect();
        Ringfence { cluster: None, addresses, by_fence }
    }

    /// The same nodes, with locks whose silent holders are replaced by fence.
    pub fn by_fence(&self) -> Ringfence {
        Ringfence { cluster: None, addresses: self.addresses.clone(), by_fence: true }
    }
}

/// The binary, made anew.
fn build() -> Result<PathBuf> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let made = Command::new(cargo)
        .args(["build", "--release", "--quiet", "-p", "ringfence-cli"])
        .current_dir(root)
        .status();
    if !made.context("cargo does not start")?.success() {
        bail!("ringfence does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from(root).join("target"), PathBuf::from);
    Ok(target.join("release/ringfence"))
}

#[async_trait]
impl Peer for Ringfence {
    fn name(&self) -> String {
        if self.by_fence { "ringfence, by fence" } else { "ringfence" }.to_owned()
    }

    async fn client(&self, _: usize, ttl: Duration) -> Result<Box<dyn Client>> {
        // It finds the leader by itself.
        let endpoints: Vec<String> = self.addresses.iter().map(|at| format!("http://{at}")).collect();
        let locks = Locks::builder(endpoints.join(",").as_str()).ttl(ttl).connect().await?;
        Ok(Box::new(RingfenceClient { locks, by_fence: self.by_fence, held: None }))
    }

    fn address(&self) -> String {
        debug_assert!(self.cluster.is_some() || self.by_fence);
        let kind = if self.by_fence { "ringfence-fence" } else { "ringfence" };
        format!("{kind}={}", self.addresses.join(","))
    }
}

struct RingfenceClient {
    locks: Locks,
    by_fence: bool,
    held: Option<LockGuard>,
}

#[async_trait]
impl Client for RingfenceClient {
    async fn acquire(&mut self, lock: &str) -> Result<()> {
        let request = self.locks.lock(lock);
        let request = if self.by_fence { request.takeover(Takeover::Fence) } else { request };
        self.held = Some(request.acquire().await?);
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        self.held.take().context("it holds nothing")?.release().await?;
        Ok(())
    }
}
