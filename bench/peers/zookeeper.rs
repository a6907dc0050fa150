//! ZooKeeper: the lock of its recipes, an ephemeral sequential node that watches the one before it.

use crate::peer::{Client, Peer};
use crate::stage::{Cluster, free_ports, program};
use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use zookeeper_client as zk;

/// Three nodes.
pub struct ZooKeeper {
    cluster: Option<Cluster>,
    addresses: Vec<String>,
}

/// Half a second: sessions of two seconds are allowed then, as with the others.
const TICK_MS: u32 = 500;
const JARS: [&str; 2] = ["/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar"];

impl ZooKeeper {
    pub async fn start() -> Result<ZooKeeper> {
        let java = program("java", "default-jre-headless")?;
        if let Some(missing) = JARS.iter().find(|jar| !Path::new(jar).exists()) {
            bail!("there is no {missing}: install it (Debian: zookeeper), or leave it out with --peers");
        }
        let ports = free_ports(9)?;
        let dir = tempfile::tempdir()?;
        let path = dir.path().to_owned();
        let addresses: Vec<String> = ports[..3].iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let mut cluster = Cluster::new(dir);
        let servers: String = (0..3)
            .map(|n| format!("server.{}=127.0.0.1:{}:{}\n", n + 1, ports[n + 3], ports[n + 6]))
            .collect();
        for n in 0..3 {
            let data = path.join(format!("n{n}"));
            std::fs::create_dir(&data)?;
            std::fs::write(data.join("myid"), format!("{}", n + 1))?;
            let config = format!(
                "tickTime={TICK_MS}\ninitLimit=20\nsyncLimit=10\ndataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\n\
                 maxClientCnxns=0\nadmin.enableServer=false\n{servers}",
                data.display(),
                ports[n]
            );
            let file = path.join(format!("n{n}.cfg"));
            std::fs::write(&file, config)?;
            let mut command = Command::new(&java);
            command
                .args([
                    "-Xmx512m",
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                    "-Dzookeeper.jmx.log4j.disable=true",
                ])
                .args(["-cp", &JARS.join(":"), "org.apache.zookeeper.server.quorum.QuorumPeerMain"])
                .arg(&file);
            cluster.start(&mut command, &path.join(format!("n{n}.log")))?;
        }
        let zookeeper = ZooKeeper { cluster: Some(cluster), addresses };
        crate::measure::until_it_serves(&zookeeper).await?;
        Ok(zookeeper)
    }

    /// One that runs already.
    pub fn at(addresses: &str) -> ZooKeeper {
        ZooKeeper { cluster: None, addresses: addresses.split(',').map(str::to_owned).collect() }
    }
}

#[async_trait]
impl Peer for ZooKeeper {
    fn name(&self) -> String {
        "ZooKeeper".to_owned()
    }

    async fn client(&self, number: usize, ttl: Duration) -> Result<Box<dyn Client>> {
        let address = &self.addresses[number % self.addresses.len()];
        let client = zk::Client::connector().with_session_timeout(ttl).connect(address).await?;
        Ok(Box::new(ZooKeeperClient { client, held: None, made: None }))
    }

    fn address(&self) -> String {
        debug_assert!(self.cluster.is_some());
        format!("zookeeper={}", self.addresses.join(","))
    }
}

struct ZooKeeperClient {
    client: zk::Client,
    held: Option<String>,
    /// The lock whose folder is there.
    made: Option<String>,
}

#[async_trait]
impl Client for ZooKeeperClient {
    async fn acquire(&mut self, lock: &str) -> Result<()> {
        let acls = zk::Acls::anyone_all();
        let folder = format!("/{lock}");
        if self.made.as_deref() != Some(lock) {
            let directory = zk::CreateMode::Persistent.with_acls(acls);
            match self.client.create(&folder, b"", &directory).await {
                Ok(_) | Err(zk::Error::NodeExists) => self.made = Some(lock.to_owned()),
                Err(error) => return Err(error.into()),
            }
        }
        let waiting = zk::CreateMode::EphemeralSequential.with_acls(acls);
        let (_, number) = self.client.create(&format!("{folder}/n-"), b"", &waiting).await?;
        let mine = format!("n-{number}");
        loop {
            let mut all = self.client.list_children(&folder).await?;
            all.sort_unstable();
            let place = all.iter().position(|name| *name == mine).context("its node has gone")?;
            if place == 0 {
                self.held = Some(format!("{folder}/{mine}"));
                return Ok(());
            }
            let before = format!("{folder}/{}", all[place - 1]);
            let (stat, watcher) = self.client.check_and_watch_stat(&before).await?;
            if stat.is_some() {
                watcher.changed().await;
            }
        }
    }

    async fn release(&mut self) -> Result<()> {
        let node = self.held.take().context("it holds nothing")?;
        Ok(self.client.delete(&node, None).await?)
    }
}
