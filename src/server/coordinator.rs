//! A coordinator node inside a program: a test, or a service that brings its own.
//!
//! ```no_run
//! # async fn example() -> Result<(), ringfence_server::NodeError> {
//! use ringfence_server::Coordinator;
//!
//! let coordinator = Coordinator::in_memory().start().await?;
//! println!("workers connect to {}", coordinator.endpoint());
//! coordinator.shutdown().await
//! # }
//! ```

use crate::context::Context;
use crate::files;
use crate::formation::Formation;
use crate::identity::IdentityStore;
use crate::node::{NodeError, Parts};
use crate::port::{self, Services, Source};
use crate::raft::RaftStatus;
use crate::readiness;
use crate::settings::{Membership, Settings, Storage};
use crate::surroundings::{Incoming, Surroundings};
use ringfence_core::ids::NodeId;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument as _;

/// How long calls under way may take when the node closes. Streams end by themselves at once.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// A running node. Dropping it stops the node as a crash would; [`shutdown`](Coordinator::shutdown) hands over first.
pub struct Coordinator {
    node: NodeId,
    address: SocketAddr,
    running: watch::Receiver<Option<Context>>,
    ended: watch::Receiver<Option<Result<(), NodeError>>>,
    forming: Formation,
    stop: CancellationToken,
    _abandon: DropGuard,
}

/// A node that is not started yet.
pub struct Launch {
    settings: Settings,
    surroundings: Option<Surroundings>,
    listener: Option<std::net::TcpListener>,
    incoming: Option<Incoming>,
}

impl Coordinator {
    /// One node in memory, on a free port of the loopback interface. It forgets everything when it stops.
    pub fn in_memory() -> Launch {
        Coordinator::with(Settings::in_memory())
    }

    /// One durable node with its data in `dir`, on a free port of the loopback interface.
    pub fn durable(dir: impl Into<PathBuf>) -> Launch {
        Coordinator::with(Settings::durable(dir))
    }

    /// A node with these settings.
    pub fn with(settings: Settings) -> Launch {
        Launch { settings, surroundings: None, listener: None, incoming: None }
    }

    /// This node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where workers, routers and operators reach it: `http://HOST:PORT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns when the node belongs to a formed cluster and knows of a leader.
    ///
    /// # Errors
    /// [`NodeError`] when the node ended before.
    pub async fn ready(&self) -> Result<(), NodeError> {
        tokio::select! {
            () = readiness::ready(self.running.clone()) => Ok(()),
            ended = self.ended() => match ended {
                Ok(()) => Err(NodeError::Failed("it was stopped before it was ready".to_owned())),
                Err(error) => Err(error),
            },
        }
    }

    /// What the node waits for while its cluster forms; empty when it waits for nothing.
    pub fn forming(&self) -> String {
        self.forming.progress().text()
    }

    /// What Raft says of the node; `None` until the node belongs to a cluster.
    pub fn raft_status(&self) -> Option<RaftStatus> {
        self.running.borrow().as_ref().map(|context| context.raft.status().borrow().clone())
    }

    /// What the node's services work with; `None` until the node belongs to a cluster.
    pub fn context(&self) -> Option<Context> {
        self.running.borrow().clone()
    }

    /// How the node ended; `None` while it runs.
    pub fn outcome(&self) -> Option<Result<(), NodeError>> {
        self.ended.borrow().clone()
    }

    /// Returns when the node has ended.
    ///
    /// # Errors
    /// [`NodeError`] when it ended although nobody told it to: its disk failed, or it must not belong to the cluster.
    pub async fn ended(&self) -> Result<(), NodeError> {
        let mut ended = self.ended.clone();
        let outcome = ended.wait_for(Option::is_some).await.map(|outcome| outcome.clone());
        match outcome {
            Ok(Some(outcome)) => outcome,
            Ok(None) | Err(_) => Err(NodeError::Failed("its task is gone".to_owned())),
        }
    }

    /// Hands leadership over, ends streams, and closes the files; the data directory is free when this returns.
    ///
    /// # Errors
    /// [`NodeError`] when the node had ended by itself before.
    pub async fn shutdown(self) -> Result<(), NodeError> {
        self.stop.cancel();
        self.ended().await
    }
}

impl Launch {
    /// Listens on this address of the loopback interface, `HOST:PORT`; port 0 stands for a free one.
    ///
    /// # Errors
    /// [`SettingsError`](crate::SettingsError) when it is no address, or one that others can reach.
    pub fn listen(mut self, address: &str) -> Result<Launch, crate::SettingsError> {
        self.settings = self.settings.listening(address)?;
        Ok(self)
    }

    /// Takes over a listener that exists already, instead of binding the address of the settings.
    #[must_use]
    pub fn listener(mut self, listener: std::net::TcpListener) -> Launch {
        self.listener = Some(listener);
        self
    }

    /// Runs the node on another disk, network and clock than the machine's: a simulator's.
    #[must_use]
    pub fn surroundings(mut self, surroundings: Surroundings) -> Launch {
        self.surroundings = Some(surroundings);
        self
    }

    /// Serves connections that come from somewhere else than a port of the system. The node binds nothing; the address of
    /// its settings is only what it is called by.
    #[must_use]
    pub fn incoming(mut self, incoming: Incoming) -> Launch {
        self.incoming = Some(incoming);
        self
    }

    /// Starts the node. It listens when this returns. A node that is a cluster of its own is also
    /// [`ready`](Coordinator::ready); one of several waits for the others, which may start later.
    ///
    /// # Errors
    /// [`NodeError`]: the address is in use, or the data directory cannot be this node's.
    pub async fn start(self) -> Result<Coordinator, NodeError> {
        let Launch { mut settings, surroundings, listener, incoming } = self;
        let (source, address) = match incoming {
            Some(incoming) => (Source::Given(incoming), settings.listen),
            None => {
                let (listener, address) = port::listen(settings.listen, listener).await?;
                (Source::Tcp(listener), address)
            }
        };
        settings.listen = address;
        let surroundings = surroundings.unwrap_or_default();
        let span = tracing::info_span!("node", id = settings.node.get());
        let alone = settings.membership == Membership::Alone;
        let coordinator = start(settings, surroundings, source, address).instrument(span).await?;
        if alone {
            coordinator.ready().await?;
        }
        Ok(coordinator)
    }
}

async fn start(
    settings: Settings,
    surroundings: Surroundings,
    source: Source,
    address: SocketAddr,
) -> Result<Coordinator, NodeError> {
    let node = settings.node;
    let advertise = settings.advertise.clone().unwrap_or_else(|| address.to_string());
    let storage = settings.storage.clone();
    let opened = files::away(&surroundings.files, move |files| match storage {
        Storage::Memory => IdentityStore::in_memory(node),
        Storage::Dir(dir) => IdentityStore::open(Arc::clone(files), &dir, node),
    });
    let identity = opened.await.map_err(|e| NodeError::Failed(e.to_string()))?.map_err(Arc::new)?;
    let formation = Formation::new(&settings, advertise.clone(), identity, &surroundings);
    tracing::info!(%address, advertise, "listening");

    let (stop, abandon, closing) =
        (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
    let services = Services::new(&formation, &settings.timings);
    let (running, was_running) = watch::channel(None);
    let (outcome, ended) = watch::channel(None);
    let (reporter, health) = tonic_health::server::health_reporter();
    tokio::spawn(readiness::report(reporter, was_running.clone(), closing.clone()).in_current_span());
    let forming = formation.clone();
    let parts = Parts {
        settings,
        surroundings,
        formation: formation.clone(),
        services,
        stop: stop.clone(),
        abandon: abandon.clone(),
        closing: closing.clone(),
        running,
    };
    let life = async move {
        // The port outlives the node by the calls under way, so that each of them is answered.
        let services = parts.services.clone();
        let serving = Box::pin(port::serve(source, services, formation, health, closing.clone()));
        let serving = tokio::spawn(serving.in_current_span());
        let mut lived = Box::pin(parts.live()).await;
        if let Ok(Ok(Err(error))) = tokio::time::timeout(LAST_CALLS, serving).await
            && lived.is_ok()
        {
            lived = Err(error);
        }
        outcome.send_replace(Some(lived));
    };
    tokio::spawn(life.in_current_span());
    Ok(Coordinator {
        node,
        address,
        running: was_running,
        ended,
        forming,
        stop,
        _abandon: abandon.drop_guard(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Given;
    use crate::testing::{self, Cluster, create, until};
    use ringfence_api::v1;
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_check_response::ServingStatus;
    use tonic_health::pb::health_client::HealthClient;

    #[tokio::test]
    async fn a_coordinator_is_embedded_in_three_lines() {
        let coordinator = Coordinator::in_memory().start().await.unwrap();
        assert!(coordinator.endpoint().starts_with("http://127.0.0.1:"));
        coordinator.shutdown().await.unwrap();
    }

    #[tokio::test]
    async fn a_durable_one_has_everything_again_when_it_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let node = Coordinator::durable(dir.path()).start().await.unwrap();
        testing::admin(&node).await.create_keyspace(create("orders", 4)).await.unwrap();
        node.shutdown().await.unwrap();
        // The directory is free at once, and the port may be another one.
        let node = Coordinator::durable(dir.path()).start().await.unwrap();
        let list = testing::admin(&node).await.list_keyspaces(v1::ListKeyspacesRequest {}).await.unwrap();
        assert_eq!(list.into_inner().keyspaces.len(), 1);
    }

    #[tokio::test]
    async fn a_node_that_cannot_go_on_says_so_and_ends() {
        let node = Coordinator::in_memory().start().await.unwrap();
        // As after a failed flush: Raft has stopped, and nobody told the node to.
        node.context().unwrap().raft.shutdown().await;
        let error = node.ended().await.unwrap_err();
        assert!(matches!(error, NodeError::Failed(_)), "{error}");
    }

    #[tokio::test]
    async fn an_address_in_use_is_named() {
        let first = Coordinator::in_memory().start().await.unwrap();
        let taken = first.address().to_string();
        let error = Coordinator::in_memory().listen(&taken).unwrap().start().await.err().unwrap().to_string();
        assert!(error.contains(&taken) && error.contains("in use"), "{error}");
    }

    #[tokio::test]
    async fn health_says_not_serving_until_the_cluster_is_formed() {
        let mut cluster = Cluster::of(1..=3);
        cluster.start(1).await;
        let health = async |cluster: &Cluster| {
            let mut client = HealthClient::new(testing::channel(&cluster.nodes[&1]).await);
            client.check(HealthCheckRequest::default()).await.ok().map(|status| status.into_inner().status())
        };
        until("it is known not to serve", async || {
            (health(&cluster).await? == ServingStatus::NotServing).then_some(())
        })
        .await;
        cluster.start(2).await;
        cluster.start(3).await;
        until("it serves", async || (health(&cluster).await? == ServingStatus::Serving).then_some(())).await;
    }

    #[tokio::test]
    async fn a_leader_that_is_stopped_has_handed_over_before_it_is_gone() {
        let mut cluster = Cluster::formed().await;
        let leader = cluster.leader().await;
        let term = cluster.nodes[&leader].raft_status().unwrap().term;
        cluster.shutdown(leader).await;
        // No election timeout passes: by the time it is gone another one leads, in the very next term.
        for node in cluster.nodes.values() {
            let status = node.raft_status().unwrap();
            assert!(status.leader.as_ref().is_some_and(|(id, _)| id.get() != leader), "{status:?}");
            assert_eq!(status.term.get(), term.get() + 1);
        }
    }

    #[tokio::test]
    async fn f037_a_node_with_another_secret_is_told_so_and_forms_nothing() {
        let cluster = Cluster::of(1..=3);
        let mut nodes = Vec::new();
        for (id, secret) in [(1, "a secret of the cluster"), (2, "a secret of another one")] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), secret).unwrap();
            let given =
                Given { cluster_secret_file: Some(file.path().to_owned()), ..cluster.given(id, &[1, 2, 3]) };
            let listener = cluster.listener(id);
            let node = Coordinator::with(given.check().unwrap()).listener(listener).start().await.unwrap();
            nodes.push(node);
        }
        until("both say so", async || {
            let told = |node: &Coordinator| node.forming().contains("cluster secret is missing or wrong");
            nodes.iter().all(told).then_some(())
        })
        .await;
    }
}
