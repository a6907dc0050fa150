//! The life of a node, from its data directory to its end.
//!
//! It listens first, so that others can form a cluster with it; comes to belong to a cluster; starts Raft; and serves
//! until it is told to stop, or must. When it stops it hands leadership over, ends its streams, and closes its files, in
//! this order: workers have found the next leader before this one is gone.

use crate::context::Context;
use crate::drills::Drills;
use crate::fences::{self, Gathered};
use crate::files;
use crate::formation::{self, Formation, FormationError};
use crate::identity::IdentityError;
use crate::leader;
use crate::leaderless::Leaderless;
use crate::locks::Locks;
use crate::map::Map;
use crate::port::Services;
use crate::raft::{Disk, Member, RaftConfig, RaftNode, RaftStatus, StartError, Timings};
use crate::replica::Replica;
use crate::settings::{Settings, Storage};
use crate::surroundings::Surroundings;
use crate::workers::Workers;
use ringfence_core::ids::{ClusterId, NodeId};
use ringfence_core::state::Applied;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// How long handing leadership over may take. A few elections; after that the others elect by themselves.
const HANDOVER: Duration = Duration::from_secs(2);

/// Why a node did not start, or ended although nobody told it to.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NodeError {
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {source}; stop what uses that address, or give another one (listen)"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
    /// The data directory is not this node's, is in use, or is damaged.
    #[error(transparent)]
    Identity(#[from] Arc<IdentityError>),
    /// The node must not belong to the cluster that the others belong to.
    #[error(transparent)]
    Formation(#[from] Arc<FormationError>),
    /// Raft did not start.
    #[error(transparent)]
    Raft(#[from] Arc<StartError>),
    /// The log lacks what this node had acknowledged. Its data directory is refused from now on.
    #[error("the node has stopped: {0}")]
    WentBack(String),
    /// The node cannot go on: its disk failed, or it met what it does not understand.
    #[error("the node has stopped: {0}")]
    Failed(String),
}

impl NodeError {
    /// Whether something that was on the node's disk is not there any more: starting it again does not help.
    pub fn is_damage(&self) -> bool {
        match self {
            NodeError::Identity(error) => error.is_damage(),
            NodeError::Raft(error) => matches!(**error, StartError::Corrupt { .. }),
            NodeError::WentBack(_) => true,
            NodeError::Formation(error) => match &**error {
                FormationError::Identity(error) => error.is_damage(),
                FormationError::Wiped { .. } | FormationError::NotAMember { .. } => false,
            },
            NodeError::Listen { .. } | NodeError::Failed(_) => false,
        }
    }

    /// Whether the node has lost its votes: its data directory is new, or an older copy of itself.
    pub fn has_forgotten(&self) -> bool {
        match self {
            NodeError::WentBack(_) => true,
            NodeError::Identity(error) => matches!(**error, IdentityError::WentBack { .. }),
            NodeError::Formation(error) => matches!(**error, FormationError::Wiped { .. }),
            NodeError::Listen { .. } | NodeError::Raft(_) | NodeError::Failed(_) => false,
        }
    }
}

/// What a node needs to live.
pub(crate) struct Parts {
    pub(crate) settings: Settings,
    pub(crate) surroundings: Surroundings,
    pub(crate) formation: Formation,
    pub(crate) services: Services,
    /// Cancelled: hand over and stop.
    pub(crate) stop: CancellationToken,
    /// Cancelled: stop without handing over, as a crash would.
    pub(crate) abandon: CancellationToken,
    /// Cancelled by the node when its streams shall end and nothing new shall be accepted.
    pub(crate) closing: CancellationToken,
    /// Told when the node belongs to a cluster.
    pub(crate) running: tokio::sync::watch::Sender<Option<Context>>,
}

impl Parts {
    /// Lives until it is stopped or cannot go on. Its files are closed when this returns.
    ///
    /// # Errors
    /// [`NodeError`] when it ended although nobody told it to.
    pub(crate) async fn live(self) -> Result<(), NodeError> {
        for warning in self.settings.warnings() {
            tracing::warn!("{warning}");
        }
        let lived = Box::pin(self.serve()).await;
        if let Err(error) = &lived {
            tracing::error!("{error}");
            self.formation.progress().step(format!("the node has stopped: {error}"));
        }
        self.closing.cancel();
        let running = self.running.borrow().clone();
        if let Some(context) = running {
            context.raft.shutdown().await;
        }
        if let Err(NodeError::WentBack(why)) = &lived
            && let Err(error) = self.formation.refuse_from_now_on(why.clone()).await
        {
            tracing::error!(%error, "the data directory could not be marked: do not start this node again");
        }
        self.formation.close().await;
        tracing::info!("stopped");
        lived
    }

    async fn serve(&self) -> Result<(), NodeError> {
        let settled = tokio::select! {
            settled = Box::pin(self.formation.settle()) => settled,
            () = self.told_to_stop() => return Ok(()),
        };
        let belonging = settled.map_err(Arc::new)?;
        let context = self.start_raft(belonging.cluster.clone()).await?;
        self.open_services(&context);

        let form = async {
            formation::found(&self.formation, &context.raft, &belonging).await.map_err(|e| e.to_string())?;
            self.formation.progress().step(format!("waiting for a leader of cluster {}", belonging.cluster));
            formation::name_cluster(&context, &belonging).await;
            self.formation.progress().done();
            tracing::info!(cluster = %belonging.cluster, "serving");
            Ok(std::future::pending::<std::convert::Infallible>().await)
        };
        let ended = tokio::select! {
            formed = Box::pin(form) => match formed {
                Ok(never) => match never {},
                Err(why) => Err(NodeError::Failed(why)),
            },
            why = self.watch_raft(&context) => Err(if context.raft.has_log_gone_back() {
                NodeError::WentBack(why)
            } else {
                NodeError::Failed(why)
            }),
            () = self.abandon.cancelled() => Ok(()),
            () = self.stop.cancelled() => { self.hand_over(&context).await; Ok(()) }
        };
        ended
    }

    async fn told_to_stop(&self) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = self.abandon.cancelled() => {}
        }
    }

    async fn start_raft(&self, cluster: ClusterId) -> Result<Context, NodeError> {
        let settings = &self.settings;
        let node = settings.node;
        let disk = match &settings.storage {
            Storage::Memory => Disk::memory(),
            Storage::Dir(dir) => {
                let (dir, cluster) = (dir.clone(), cluster.clone());
                let files = &self.surroundings.files;
                let opened = files::away(files, move |files| Disk::open(files, &dir, &cluster, node)).await;
                opened.map_err(|e| NodeError::Failed(e.to_string()))?.map_err(Arc::new)?
            }
        };
        self.formation.log_made().await.map_err(Arc::new)?;
        let config = RaftConfig {
            timings: settings.timings,
            compaction: settings.compaction,
            secret: settings.secret.clone(),
            request_timeout: settings.request_timeout,
            seed: self.surroundings.seed,
            ..RaftConfig::new(cluster, node)
        };
        let clock = Arc::clone(&self.surroundings.clock);
        let replica = Replica::new(clock.clone());
        let raft: RaftNode<Applied> =
            Box::pin(RaftNode::start(config, disk, replica.machine(), self.surroundings.dialer.clone()))
                .await
                .map_err(Arc::new)?;
        Ok(Context { replica, raft, clock, drills: Drills::default(), gathered: Gathered::default() })
    }

    /// Fills the places that wait for the cluster.
    fn open_services(&self, context: &Context) {
        let closing = &self.closing;
        let leading = leader::run(context.clone(), self.settings.placing, closing.clone());
        tokio::spawn(leading.in_current_span());
        let noting = fences::run(context.clone(), closing.clone());
        tokio::spawn(noting.in_current_span());
        let workers = Workers::new(context.clone(), closing.clone());
        self.services.raft.set(context.raft.service().server());
        self.services.workers.set(Services::limit_workers(workers));
        let map = Map::new(context.clone(), self.settings.leaderless(), closing.clone());
        self.services.map.set(Services::limit_map(map));
        let locks = Locks::new(context.clone(), self.settings.leaderless(), closing.clone());
        self.services.locks.set(Services::limit_locks(locks));
        self.services.admin.open(context.clone());
        self.formation.open();
        self.running.send_replace(Some(context.clone()));
    }

    /// Says in the log what becomes of this node, and returns when it cannot go on.
    async fn watch_raft(&self, context: &Context) -> String {
        let mut status = context.raft.status();
        let mut member = false;
        let mut leaderless = Leaderless::default();
        loop {
            let now = status.borrow_and_update().clone();
            let is_member = now.members.contains_key(&now.node);
            if let Some(silence) = leaderless.note(now.leader.is_some() || !is_member, Instant::now()) {
                self.warn_of_no_leader(silence);
            }
            if let Some(why) = now.stopped {
                return why;
            }
            if is_member && !member {
                self.check_address(&now.members);
            }
            if member && !is_member && !now.members.is_empty() {
                tracing::warn!(
                    "this node was removed from its cluster: stop it; its id is used up and its data of no use"
                );
            }
            member = is_member;
            let look = async {
                match leaderless.next() {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = status.changed() => if changed.is_err() {
                    return "Raft has ended".to_owned();
                },
                () = look => {}
            }
        }
    }

    fn warn_of_no_leader(&self, silence: Duration) {
        let Timings { heartbeat, election_min, election_max, .. } = self.settings.timings;
        tracing::warn!(
            ?silence,
            ?heartbeat,
            ?election_min,
            ?election_max,
            "no leader: see that a majority of the nodes runs and reaches each other; when they do, their disks or the way \
             between them are too slow, or the machines too busy: raise heartbeat-ms, election-min-ms and election-max-ms \
             alike on all nodes"
        );
    }

    fn check_address(&self, members: &BTreeMap<NodeId, Member>) {
        let (Some(known), Some(told)) = (members.get(&self.settings.node), &self.settings.advertise) else {
            return;
        };
        if known.address != *told {
            tracing::warn!(
                known = known.address,
                told,
                "the cluster knows this node at another address than it advertises, and goes on calling it there"
            );
        }
    }

    async fn hand_over(&self, context: &Context) {
        let RaftStatus { role, members, .. } = context.raft.status().borrow().clone();
        let others = members.iter().filter(|(node, m)| m.voter && **node != self.settings.node).count();
        if role != crate::raft::Role::Leader || others == 0 {
            return;
        }
        match tokio::time::timeout(HANDOVER, context.raft.transfer_leadership(None)).await {
            Ok(Ok(leader)) => tracing::info!(%leader, "handed leadership over"),
            Ok(Err(error)) => tracing::warn!("leadership was not handed over: {error}"),
            Err(_) => tracing::warn!("leadership was not handed over within {HANDOVER:?}"),
        }
    }
}
